/* Anomaly mode: every result is checked, and the first NaN is an error that
 * names the operator and the line of its call. */
#include "call.h"

/* Runs the row `op`, which takes one tensor and has no attributes to set. */
static fl_status run_on(fl_runtime *rt, int op, fl_tensor *x, fl_site site,
                        fl_tensor **out) {
  fl_operand in = {.tensor = x};
  fl_call c = {
      .op = &rt->ops[op], .n_in = 1, .in = &in, .site = site, .out = out};
  return fl_call_run(rt, &c);
}

static fl_status find_nan(fl_runtime *rt, fl_tensor *x, fl_site site,
                          bool *found) {
  fl_tensor *nan, *any;
  FLI_TRY(run_on(rt, FLI_OP_isnan, x, site, &nan));
  fl_status s = run_on(rt, FLI_OP_any, nan, site, &any);
  fl_tensor_release(nan);
  FLI_TRY(s);
  int64_t is = 0;
  s = fl_tensor_item(any, NULL, &is);
  fl_tensor_release(any);
  *found = is != 0;
  return s;
}

fl_status fli_anomaly(fl_runtime *rt, const fl_call *c, int n_out,
                      fl_tensor *const *out) {
  rt->anomaly = false; /* looking must not look at itself */
  bool grad = fl_grad_mode(rt, false), found = false;
  fl_status s = FL_OK;
  for (int k = 0; k < n_out && s == FL_OK && !found; k++) {
    if (fl_dtype_kind(out[k]->meta.dtype) != FL_KIND_FLOAT || !out[k]->numel)
      continue;
    s = find_nan(rt, out[k], c->site, &found);
  }
  fl_grad_mode(rt, grad);
  rt->anomaly = true;
  if (s == FL_OK && found)
    return fli_fail(FL_EAUTOGRAD, "anomaly: %s%s at %s gave the first NaN",
                    c->op->info.name, rt->in_backward ? " (in backward)" : "",
                    fl_site_text(rt, c->site));
  return s;
}
