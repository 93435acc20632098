/* Launches of a window as the profiler keeps them: what they do, by their rows,
 * and who has called them. */
#include "window.h"

#include <stdio.h>
#include <string.h>

#define FEW_INPUTS 16

/* What a launch is, by the row's cost rule and marks. */
const char *fli_window_kind(const fl_op *op) {
  static const struct {
    const char *rule, *kind;
  } kinds[] = {{"matmul", "product"},      {"conv", "convolution"},
               {"attention", "attention"}, {"reads", "reduction"},
               {"lines", "reduction"},     {"cubic", "linear algebra"}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    if (strncmp(op->cost_rule, kinds[k].rule, strlen(kinds[k].rule)) == 0)
      return kinds[k].kind;
  if (op->marks & (FLI_MARK_IDENTITY | FLI_MARK_OVERWRITES))
    return "copy";
  return op->info.collective           ? "collective"
         : op->family < FLI_STRUCTURED ? "pointwise"
                                       : "operator";
}

void fli_window_cost(const fli_window *w, uint32_t i, double *flops,
                     double *bytes, double *written) {
  const fli_entry *e = &w->entries[i];
  const fli_arg *a = &w->args[e->arg];
  const fl_meta *few[FEW_INPUTS], **in = few;
  fl_operand few_operands[FEW_INPUTS], *operands = few_operands;
  fl_meta out[FL_MAX_OUT];
  *flops = *bytes = *written = 0;
  if (e->n_in > FEW_INPUTS) {
    in = fli_malloc(w->rt, (size_t)e->n_in * sizeof *in);
    operands = fli_malloc(w->rt, (size_t)e->n_in * sizeof *operands);
  }
  for (int k = 0; in && operands && k < e->n_in; k++) {
    in[k] = a[k].slot == FLI_ARG_NONE ? NULL : &a[k].meta;
    if (in[k] && fli_op_writes(e->op, fli_entry_attrs(w, e), e->n_in, k))
      *written += (double)fl_numel(in[k]->ndim, in[k]->shape) *
                  (double)fl_dtype_size(in[k]->dtype);
    operands[k] = a[k].slot == FLI_ARG_NUMBER
                      ? a[k].operand
                      : (fl_operand){.dtype = FL_NODTYPE};
  }
  for (int k = 0; k < e->n_out; k++) {
    out[k] = a[e->n_in + k].meta;
    *written += (double)fl_numel(out[k].ndim, out[k].shape) *
                (double)fl_dtype_size(out[k].dtype);
  }
  fli_infer f = {.rt = w->rt,
                 .op = e->op,
                 .n_in = e->n_in,
                 .n_out = e->n_out,
                 .in = in,
                 .operands = operands,
                 .out = out,
                 .attrs = (fl_attrs *)(uintptr_t)fli_entry_attrs(w, e),
                 .base = e->base,
                 .draws = -1};
  if (in && operands)
    e->op->cost(&f, flops, bytes);
  if (in != few)
    fli_mfree(in);
  if (operands != few_operands)
    fli_mfree(operands);
}

fl_profile_launch fli_window_launched(const fli_window *w, uint32_t i) {
  const fli_entry *e = &w->entries[i];
  fli_note note = w->notes ? w->notes[i] : (fli_note){.called = NULL};
  return (fl_profile_launch){.op = e->op->info.name,
                             .site = e->site,
                             .part = note.part,
                             .backward = note.backward};
}

/* "(64, 128), (128, 10) -> (64, 10)" */
static void write_shapes(const fli_window *w, const fli_entry *e, char *text,
                         size_t room) {
  size_t n = 0;
  for (int k = 0; k < e->n_in + e->n_out && n < room; k++) {
    const fli_arg *a = &w->args[e->arg + (uint32_t)k];
    if (a->slot < 0 || fl_numel(a->meta.ndim, a->meta.shape) == 0)
      continue;
    n += (size_t)snprintf(text + n, room - n, "%s%s",
                          k == e->n_in ? (n ? " -> " : "-> ")
                          : n          ? ", "
                                       : "",
                          fli_shape_text(a->meta.ndim, a->meta.shape));
  }
}

fl_profile_step *fli_window_step(const fli_window *w, uint32_t i, uint32_t n) {
  double bytes;
  fl_profile_step *s = fli_malloc(w->rt, sizeof *s + n * sizeof *s->launches);
  if (!s)
    return NULL;
  memset(s, 0, sizeof *s);
  s->kind = fli_window_kind(w->entries[i].op);
  s->number = s->from = -1;
  s->n = n;
  s->launches[0] = fli_window_launched(w, i);
  fli_window_cost(w, i, &s->flops, &bytes, &s->written);
  s->read = bytes - s->written;
  write_shapes(w, &w->entries[i], s->shapes, sizeof s->shapes);
  return s;
}

fl_status fli_window_timed(fli_window *w, const fli_entry *e, const fl_op *op,
                           const fl_launch *l) {
  uint32_t i = (uint32_t)(e - w->entries);
  fl_runtime *rt = w->rt;
  double written;
  fli_profiled what = {.op = l->op,
                       .site = e->site,
                       .device = w->device,
                       .dtype = l->n_in ? l->in[0].dtype : FL_NODTYPE,
                       .note = w->notes ? &w->notes[i] : NULL};
  what.step = w->step ? w->step : fli_window_step(w, i, 1);
  w->step = NULL;
  if (what.step) {
    what.flops = what.step->flops;
    what.bytes = what.step->read + what.step->written;
  } else {
    fli_window_cost(w, i, &what.flops, &what.bytes, &written);
  }
  size_t row = fli_profile_begin(rt, &what, l->stream);
  fl_status s = fli_send(rt, w->device, op->kernel[w->device >> 8], l);
  fli_profile_end(rt, row, l->stream);
  return s;
}
