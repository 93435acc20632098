/* Runs composed rows: calls that are made of other calls. */
#include "env.h"

#include <string.h>

/* An error begins with the row that was called, in place of the step that
 * failed, of which the caller may never have heard. */
static fl_status name_row(const char *row, const fl_op *step, fl_status s) {
  const char *text = fl_error();
  size_t n = step ? strlen(step->info.name) : 0;
  if (n && s <= FL_EUNSUPPORTED && strncmp(text, step->info.name, n) == 0 &&
      text[n] == ':')
    return fli_fail(s, "%s%s", row, text + n);
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
  return s == FL_OK ? s : name_row(c->op->info.name, g.e.failed, s);
}
