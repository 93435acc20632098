/* Calls that write some of their inputs, as the signatures of their rows say:
 * optimizer steps, running statistics. A write gives the storage a new version
 * and a line, so that backward notices when it needs what was there before. */
#include "../tape/tape.h"
#include "call.h"

static const char *input_name(const fl_op *op, int k) {
  for (int i = 0; i < op->info.n_params; i++) {
    const fl_param *p = &op->info.params[i];
    if (p->slot == k && p->written)
      return p->name;
  }
  return "an input";
}

fl_status fli_writes_check(fl_runtime *rt, const fl_op *op, const fl_attrs *a,
                           int n_in, const fl_operand *in) {
  for (int k = 0; k < n_in; k++) {
    fl_tensor *t = in[k].tensor;
    if (!t || !t->storage || !fli_op_writes(op, a, n_in, k))
      continue;
    FLI_TRY(fli_check_writable(t, op->info.name, ""));
    if (k < op->info.n_in && rt->grad_enabled && fli_wants_grad(t))
      return fli_fail(FL_EAUTOGRAD,
                      "%s: %s is written, so it cannot require a gradient",
                      op->info.name, input_name(op, k));
  }
  return FL_OK;
}

void fli_writes_note(const fl_op *op, const fl_attrs *a, int n_in,
                     const fl_operand *in, fl_site site) {
  for (int k = 0; k < n_in; k++) {
    fl_tensor *t = in[k].tensor;
    if (!t || !t->storage || !fli_op_writes(op, a, n_in, k))
      continue;
    t->storage->version++;
    t->storage->write_site = site;
  }
}
