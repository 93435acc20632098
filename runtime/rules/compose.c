/* Runs composed rows: calls that are made of other calls. */
#include "env.h"

#include <string.h>

/* An error of a step begins with the row that was called, in place of the
 * step's, which the caller may never have heard of. A message that quotes the
 * step's signature keeps both names. */
static fl_status name_row(fl_runtime *rt, const char *row, fl_status s) {
  const char *text = fl_error(), *colon = strchr(text, ':');
  char step[48];
  size_t n = colon ? (size_t)(colon - text) : 0;
  if (n > 0 && n < sizeof step && colon[1] == ' ' && s <= FL_EUNSUPPORTED &&
      !strstr(colon, " -> ")) {
    memcpy(step, text, n);
    step[n] = 0;
    if (strcmp(step, row) != 0 && fl_op_row(rt, step) >= 0)
      return fli_fail(s, "%s%s", row, colon);
  }
  return fli_told(row, s);
}

fl_status fli_compose_call(fl_runtime *rt, const fl_call *c,
                           const fl_attrs *attrs, fl_device d) {
  fli_composing g = {.op = c->op, .attrs = attrs, .n_in = c->n_in, .in = c->in};
  fli_env_open(&g.e, rt, c->base, c->site);
  g.e.device = d;
  g.e.generator = c->generator;
  bool some = c->n_in == 0;
  for (int k = 0; k < c->n_in; k++)
    some = some || c->in[k].tensor;
  for (int k = 0; k < FL_MAX_OUT; k++)
    g.out[k] = fli_none();
  if (some)
    c->op->compose(&g);
  fl_status s = g.e.status;
  int n_out = c->op->info.n_out;
  for (int k = 0; k < n_out && s == FL_OK; k++)
    if (!g.out[k].tensor) /* every input was a number */
      s = fli_no_tensor(c->op);
  for (int k = 0; k < n_out && s == FL_OK; k++)
    c->out[k] = fl_tensor_retain(g.out[k].tensor);
  fli_env_close(&g.e);
  return s == FL_OK ? s : name_row(rt, c->op->info.name, s);
}
