/* The fast path of the most frequent calls: elementwise, over one or two
 * contiguous tensors of one shape and one wide float dtype, one of which may be
 * a number or a single element instead. One function does what call.c does in
 * general; other calls, and those that fail a check, take the general path. */
#include "../tape/tape.h"
#include "window.h"

#include <string.h>

static inline bool flat_usable(const fl_runtime *rt, const fl_tensor *t) {
  return t && t->rt == rt && t->storage && !t->storage->away &&
         (t->meta.dtype == FL_F32 || t->meta.dtype == FL_F64);
}

/* Whether t is one element, which is read for all of a result of `shape`. */
static bool repeats(const fl_tensor *t, const fl_meta *shape) {
  if (t->numel == 1)
    return t->meta.ndim <= shape->ndim;
  if (t->contiguous || !fli_same_shape(&t->meta, shape))
    return false;
  for (int i = 0; i < t->meta.ndim; i++)
    if (t->meta.shape[i] != 1 && t->stride[i])
      return false;
  return true;
}

/* The one of two tensors that has the result's elements: the other has them,
 * too, or repeats. */
static inline fl_tensor *flat_full(fl_tensor *a, fl_tensor *b) {
  if (a->meta.dtype != b->meta.dtype ||
      a->storage->device != b->storage->device)
    return NULL;
  if (a->contiguous && b->contiguous && fli_same_shape(&a->meta, &b->meta))
    return a;
  if (a->contiguous && repeats(b, &a->meta))
    return a;
  return b->contiguous && repeats(a, &b->meta) ? b : NULL;
}

/* The tensor that has the result's shape; NULL: the call takes the general
 * path. */
static inline fl_tensor *shape_of(const fl_runtime *rt, const fl_call *c) {
  fl_tensor *a = c->in[0].tensor, *b = c->n_in > 1 ? c->in[1].tensor : NULL;
  if (a && b)
    return flat_usable(rt, a) && flat_usable(rt, b) ? flat_full(a, b) : NULL;
  if (c->n_in > 1 && (unsigned)c->in[a != NULL].dtype >= FLI_DTYPES)
    return NULL;
  fl_tensor *y = a ? a : b;
  return flat_usable(rt, y) && y->contiguous ? y : NULL;
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

/* n elements as one dim, or one that repeats as a number. */
static inline void view_of(const fl_tensor *t, int64_t n, fl_view *v) {
  v->data = fli_tensor_ptr(t);
  v->dtype = t->meta.dtype;
  v->ndim = 1;
  v->shape[0] = n;
  v->stride[0] = 1;
  if (FLI_LIKELY(t->contiguous && t->numel == n))
    return;
  memcpy(v->imm, v->data, (size_t)1 << fli_shift(v->dtype));
  v->data = v->imm;
  v->ndim = 0;
}

static inline void view_operand(const fl_operand *o, const fl_tensor *y,
                                fl_view *v) {
  if (FLI_LIKELY(o->tensor != NULL))
    view_of(o->tensor, y->numel, v);
  else
    view_number(o, y->meta.dtype, v);
}

/* These kernels need no scratch memory; a request is a bug. */
static void *no_scratch(fl_scratch *s, size_t bytes) {
  (void)s, (void)bytes;
  fli_fail(FL_ENOMEM, "an elementwise kernel has no scratch");
  return NULL;
}

static inline bool wants(fl_tensor *t) {
  return t && (t->requires_grad || t->node || t->is_view) && fli_wants_grad(t);
}

/* The result's dims and dtype, where y has its shape. */
static inline const fl_meta *meta_of(const fl_op *op, const fl_tensor *y,
                                     fl_meta *test) {
  if (op->family != FLI_TEST && op->family != FLI_COMPARE)
    return &y->meta;
  *test = y->meta;
  test->dtype = FL_BOOL;
  return test;
}

static inline fl_status flat_record(fl_runtime *rt, const fl_call *c,
                                    const fl_attrs *attrs) {
  const fl_op *op = c->op;
  if (!rt->grad_enabled || !op->grad ||
      !(wants(c->in[0].tensor) || (op->flat == 2 && wants(c->in[1].tensor))))
    return FL_OK;
  return fli_tape_record(rt, c, attrs, op->saves, c->out);
}

/* In a window: the launch waits. False as below. */
bool fli_flat_wait(fl_runtime *rt, const fl_call *c, fl_status *status) {
  const fl_op *op = c->op;
  if (c->n_in != op->flat || c->inplace || rt->meta || rt->anomaly)
    return false;
  fl_tensor *y = shape_of(rt, c);
  fli_entry e = {
      .op = op, .site = c->site, .base = c->base, .n_in = op->flat, .n_out = 1};
  if (!y || !op->kernel[y->storage->device >> 8] ||
      !fli_window_waits(rt, y->storage->device, &e, c->in))
    return false;
  e.common = y->meta.dtype;
  fl_meta test;
  const fl_meta *shape = meta_of(op, y, &test);
  const fl_attrs *attrs = c->attrs ? c->attrs : &op->defaults;
  *status =
      fli_tensor_result(rt, shape, (size_t)y->numel << fli_shift(shape->dtype),
                        y->storage->device, c->site, c->out);
  if (*status)
    return true;
  *status = fli_window_add(rt, y->storage->device, &e, attrs, c->in, c->out);
  if (*status == FL_OK)
    *status = flat_record(rt, c, attrs);
  if (*status)
    fl_tensor_release(*c->out);
  return true;
}

/* False: the call takes the general path; nothing has changed. */
bool fli_flat_run(fl_runtime *rt, const fl_call *c, fl_status *status) {
  const fl_op *op = c->op;
  if (c->n_in != op->flat || c->inplace || rt->meta || rt->anomaly ||
      rt->profile || rt->capture)
    return false;
  fl_tensor *y = shape_of(rt, c);
  if (!y)
    return false;
  fl_device d = y->storage->device;
  fl_kernel kernel = op->kernel[d >> 8];
  fl_backend *backend = fli_backend(rt, d);
  if (!kernel || !(backend->flags & FL_BACKEND_HOST) || backend->launch)
    return false;
  fl_meta test;
  const fl_meta *shape = meta_of(op, y, &test);
  fl_tensor **out = c->out;
  *status = fli_tensor_make(
      rt, shape, (size_t)y->numel << fli_shift(shape->dtype), d, c->site, out);
  if (*status)
    return true;
  fl_view in[2], to;
  fl_scratch scratch = {no_scratch, NULL, 0};
  view_operand(&c->in[0], y, &in[0]);
  if (op->flat == 2)
    view_operand(&c->in[1], y, &in[1]);
  view_of(*out, y->numel, &to);
  const fl_attrs *attrs = c->attrs ? c->attrs : &op->defaults;
  fli_note_launch(rt, op->info.name, c->site, ++rt->seq, 1, &shape);
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
  if (*status == FL_OK)
    *status = flat_record(rt, c, attrs);
  if (*status)
    fl_tensor_release(*out);
  return true;
}
