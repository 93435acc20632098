/* The short road of the commonest calls: elementwise, over one or two
 * contiguous tensors of one shape and one wide float dtype, or a tensor and a
 * number. It does what call.c does in general, in one go; every other call, and
 * every one that fails a check, takes the general road. */
#include "launch.h"
#include "tape.h"

/* How many inputs a row has here; 0: it never comes this way. */
int fli_flat_inputs(const fl_op *op) {
  bool floats = op->in_type[0] != FL_T_INT && op->in_type[0] != FL_T_BOOL;
  switch (op->family) {
  case FLI_UNARY:
  case FLI_TEST:
    return floats ? 1 : 0;
  case FLI_BINARY:
  case FLI_COMPARE:
  case FLI_UNARY_BACKWARD:
    return floats ? 2 : 0;
  default:
    return 0;
  }
}

static inline bool usable(const fl_runtime *rt, const fl_tensor *t) {
  return t && t->rt == rt && t->storage && t->contiguous &&
         (t->meta.dtype == FL_F32 || t->meta.dtype == FL_F64);
}

static inline void view_number(const fl_operand *o, fl_dtype d, fl_view *v) {
  double f = o->dtype == FL_F64 ? o->f : (double)o->i;
  v->data = v->imm;
  v->dtype = d;
  v->ndim = 0;
  if (d == FL_F64)
    *(double *)(void *)v->imm = f;
  else
    *(float *)(void *)v->imm = (float)f;
}

/* Kernels here ask for no memory but by mistake of theirs. */
static void *no_scratch(fl_scratch *s, size_t bytes) {
  (void)s, (void)bytes;
  fli_fail(FL_ENOMEM, "an elementwise kernel has no scratch");
  return NULL;
}

static inline bool wants(fl_tensor *t) {
  return t && (t->requires_grad || t->node || t->is_view) && fli_wants_grad(t);
}

/* False: not a call for this road, nothing has happened. */
bool fli_flat_run(fl_runtime *rt, const fl_call *c, fl_status *status) {
  const fl_op *op = c->op;
  fl_tensor *a = c->in[0].tensor, *b = NULL;
  if (c->n_in != op->flat || c->inplace || rt->meta || rt->anomaly ||
      !usable(rt, a))
    return false;
  if (op->flat == 2) {
    b = c->in[1].tensor;
    if (b ? !usable(rt, b) || b->meta.dtype != a->meta.dtype ||
                b->storage->device != a->storage->device ||
                !fli_same_shape(&a->meta, &b->meta)
          : c->in[1].dtype == FL_NODTYPE)
      return false;
  }
  fl_device d = a->storage->device;
  fl_kernel kernel = op->kernel[d >> 8];
  if (!kernel || !(fli_backend(rt, d)->flags & FL_BACKEND_HOST) ||
      fli_backend(rt, d)->launch)
    return false;
  fl_meta m = a->meta;
  if (op->family == FLI_TEST || op->family == FLI_COMPARE)
    m.dtype = FL_BOOL;
  fl_tensor **out = c->out;
  *status = fli_tensor_make(rt, &m, (size_t)a->numel << fli_shift(m.dtype), d,
                            c->site, out);
  if (*status)
    return true;
  fl_view in[2], to;
  fl_scratch scratch = {no_scratch};
  fli_view_of(a, &in[0]);
  if (b)
    fli_view_of(b, &in[1]);
  else if (op->flat == 2)
    view_number(&c->in[1], a->meta.dtype, &in[1]);
  fli_view_of(*out, &to);
  const fl_attrs *attrs = c->attrs ? c->attrs : &op->defaults;
  const fl_meta *shape = &a->meta;
  fli_note_launch(rt, c, ++rt->seq, 1, &shape);
  fl_launch l = {.op = op->info.name,
                 .n_in = op->flat,
                 .n_out = 1,
                 .in = in,
                 .out = &to,
                 .attrs = attrs,
                 .base = c->base,
                 .flat = true,
                 .device = d & 255,
                 .stream = fli_stream(rt, d),
                 .scratch = &scratch,
                 .seq = rt->seq};
  *status = kernel(&l);
  if (*status == FL_OK && rt->grad_enabled && op->grad &&
      (wants(a) || wants(b)))
    *status = fli_tape_record(rt, c, attrs, op->saves, out);
  if (*status)
    fl_tensor_release(*out);
  return true;
}
