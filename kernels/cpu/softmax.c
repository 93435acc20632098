/* softmax, log_softmax and their gradients, each a pass or two over rows that
 * stay in the cache. */
#include "cpu.h"

#include "../../runtime/math.h"

#define WIDE 64 /* columns taken together when the dim is not the last */

typedef struct job {
  int64_t n, inner, blocks;
  const void *x; /* or dy */
  const void *y; /* of the gradients; NULL: forward */
  void *out;
  bool logarithm;
} job;

#define T float
#define S(name) name##_f32
#include "softmax.inc"
#undef T
#undef S
#define T double
#define S(name) name##_f64
#include "softmax.inc"
#undef T
#undef S

static fl_status run(const fl_launch *l, bool backward, bool logarithm) {
  const fl_view *x = &l->in[0];
  fl_dtype type = fl_cpu_wide(x->dtype);
  int dim = (int)l->attrs->v[0].i;
  int64_t total = fl_view_numel(x);
  job j = {.n = x->ndim ? x->shape[dim] : 1, .inner = 1,
           .logarithm = logarithm};
  for (int i = dim + 1; i < x->ndim; i++)
    j.inner *= x->shape[i];
  if (total == 0)
    return FL_OK;
  j.blocks = (j.inner + WIDE - 1) / WIDE;
  j.x = FL_CPU(input)(l, x, type);
  j.y = backward ? FL_CPU(input)(l, &l->in[1], type) : NULL;
  j.out = FL_CPU(output)(l, &l->out[0], type);
  if (!j.x || !j.out || (backward && !j.y))
    return FL_ENOMEM;
  int64_t rows = total / j.n / j.inner * j.blocks;
  int64_t each = j.n * (j.inner < WIDE ? j.inner : WIDE);
  fl_cpu_parallel(l, rows, each < 16384 ? 16384 / each : 1,
                  type == FL_F64 ? piece_f64 : piece_f32, &j);
  FL_CPU(finish)(l, &l->out[0], type, j.out);
  return FL_OK;
}

FL_KERNEL(softmax);
FL_KERNEL(softmax) {
  return run(l, false, false);
}
FL_KERNEL(log_softmax);
FL_KERNEL(log_softmax) {
  return run(l, false, true);
}
FL_KERNEL(softmax_backward);
FL_KERNEL(softmax_backward) {
  return run(l, true, false);
}
FL_KERNEL(log_softmax_backward);
FL_KERNEL(log_softmax_backward) {
  return run(l, true, true);
}
