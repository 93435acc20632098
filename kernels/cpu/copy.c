/* copy (another dtype or layout), assign, full and fill. Sequences and
 * rearrangements are in shape.c. */
#include "move.h"

#include "../../runtime/math/math.h"

#include <string.h>

FL_KERNEL(copy);
FL_KERNEL(copy) {
  FL_CPU(load)(l, &l->in[0], l->out[0].dtype, l->out[0].data);
  return FL_OK;
}

typedef struct filling {
  char *to;
  size_t size;
  unsigned char value[8];
} filling;

static void fill_piece(void *context, int64_t begin, int64_t end) {
  const filling *f = context;
  switch (f->size) {
#define FILL(bits)                                                             \
  case bits / 8: {                                                             \
    uint##bits##_t v, *to = (uint##bits##_t *)f->to;                           \
    memcpy(&v, f->value, sizeof v);                                            \
    for (int64_t i = begin; i < end; i++)                                      \
      to[i] = v;                                                               \
    return;                                                                    \
  }
    FILL(8) FILL(16) FILL(32) FILL(64)
  }
}

static fl_status copy_fill(const fl_launch *l, fl_dtype from,
                           const void *value) {
  const fl_view *y = &l->out[0];
  filling f = {.size = fl_dtype_size(y->dtype)};
  FL_CPU(convert)(1, y->dtype, f.value, from, value);
  f.to = FL_CPU(output)(l, y, y->dtype);
  if (!f.to)
    return FL_ENOMEM;
  fl_cpu_parallel(l, fl_view_numel(y), 65536, fill_piece, &f);
  FL_CPU(finish)(l, y, y->dtype, f.to);
  return FL_OK;
}

FL_KERNEL(full);
FL_KERNEL(full) {
  double v = l->attrs->v[FL_ATTR_full_value].f;
  int64_t i;
  if (!fl_attr_whole(l->attrs, FL_ATTR_full_value, FL_WHOLE_full_value, &i))
    i = fl_to_int(v);
  if (fl_dtype_is_int(l->out[0].dtype))
    return copy_fill(l, FL_I64, &i);
  return copy_fill(l, FL_F64, &v);
}

FL_KERNEL(fill);
FL_KERNEL(fill) {
  const fl_view *v = &l->in[FL_IN_fill_value];
  if (fl_view_numel(v) != 1)
    return fli_fail(FL_ESHAPE, "fill: the value must be one element, not %s",
                    fli_shape_text(v->ndim, v->shape));
  return copy_fill(l, v->dtype, v->data);
}

/* --- assign --- */

static void *element_at(const fl_view *v, int64_t offset) {
  return (char *)v->data + offset * (int64_t)fl_element_size(v);
}

/* Whether two views share bytes; may say so of interleaved ones. */
static bool overlap(const fl_view *a, const fl_view *b) {
  const char *low[2], *high[2];
  for (int k = 0; k < 2; k++) {
    const fl_view *v = k ? b : a;
    int64_t least = 0, most = 0;
    for (int d = 0; d < v->ndim; d++) {
      int64_t span = (v->shape[d] - 1) * v->stride[d];
      *(span < 0 ? &least : &most) += span;
    }
    low[k] = element_at(v, least);
    high[k] = element_at(v, most + 1);
  }
  return low[0] < high[1] && low[1] < high[0];
}

/* out[0] is in[0]'s memory with in[0]'s strides: the only kernel here that
 * writes an input. */
FL_KERNEL(assign) {
  const fl_view *to = &l->out[0], *from = &l->in[FL_IN_assign_from];
  fl_view v;
  if (fl_view_numel(to) == 0)
    return FL_OK;
  fl_view_copy(&v, from);
  if (overlap(to, from)) { /* x[2..n] = x[1..n-1] reads before it writes */
    size_t bytes = fl_view_bytes(from);
    void *copy = fl_scratch_get(l, bytes);
    if (!copy)
      return FL_ENOMEM;
    fl_row_major(v.ndim, v.shape, v.stride);
    FL_CPU(move)
    (l, fl_element_size(from), v.ndim, v.shape, copy, v.stride, from->data,
     from->stride);
    v.data = copy;
  }
  if (v.dtype != to->dtype && fl_view_numel(&v) < fl_view_numel(to)) {
    const void *p = FL_CPU(input)(l, &v, to->dtype); /* the few, once */
    if (!p)
      return FL_ENOMEM;
    v.data = (void *)p;
    v.dtype = to->dtype;
    fl_row_major(v.ndim, v.shape, v.stride);
  }
  int64_t stride[FL_MAX_DIMS];
  fl_broadcast_strides(&v, to->ndim, stride);
  v.ndim = to->ndim;
  memcpy(v.shape, to->shape, sizeof v.shape);
  memcpy(v.stride, stride, sizeof v.stride);
  FL_CPU(move_view)(l, to, &v);
  return FL_OK;
}
