/* Kernels that make and fill tensors: copy (another dtype or layout), full,
 * fill. Sequences and rearrangements are in shape.c. */
#include "cpu.h"

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

static fl_status fill(const fl_launch *l, fl_dtype from, const void *value) {
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
  double v = l->attrs->v[1].f;
  int64_t i = fl_to_int(v);
  if (l->out[0].dtype > FL_BF16 && l->out[0].dtype != FL_BOOL)
    return fill(l, FL_I64, &i);
  return fill(l, FL_F64, &v);
}

FL_KERNEL(fill);
FL_KERNEL(fill) {
  const fl_view *v = &l->in[1];
  if (fl_view_numel(v) != 1)
    return fli_fail(FL_ESHAPE, "fill: the value must be one element, not %s",
                    fli_shape_text(v->ndim, v->shape));
  return fill(l, v->dtype, v->data);
}
