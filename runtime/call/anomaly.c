/* Anomaly mode: every result is looked at, and the first NaN is an error that
 * names the operator and where it was asked for. */
#include "../rules/env.h"

fl_status fli_anomaly(fl_runtime *rt, const fl_call *c, int n_out,
                      fl_tensor *const *out) {
  rt->anomaly = false; /* looking must not look at itself */
  bool grad = fl_grad_mode(rt, false), found = false;
  fl_status s = FL_OK;
  for (int k = 0; k < n_out && s == FL_OK && !found; k++) {
    if (fl_dtype_kind(out[k]->meta.dtype) != FL_KIND_FLOAT || !out[k]->numel)
      continue;
    fli_env e;
    fli_env_open(&e, rt, 0, c->site);
    fl_value nan =
        fli_run(&e, FLI_OP_isnan, NULL, 1, &(fl_value){.tensor = out[k]});
    nan = fli_run(&e, FLI_OP_any, NULL, 1, &nan);
    int64_t is = 0;
    s = e.status;
    if (s == FL_OK)
      s = fl_tensor_item(nan.tensor, NULL, &is);
    found = is != 0;
    fli_env_close(&e);
  }
  fl_grad_mode(rt, grad);
  rt->anomaly = true;
  if (s == FL_OK && found)
    return fli_fail(FL_EAUTOGRAD, "anomaly: %s%s at %s gave the first NaN",
                    c->op->info.name, rt->in_backward ? " (in backward)" : "",
                    fl_site_text(rt, c->site));
  return s;
}
