/* dequantize and quantized_linear. A few rows of x are multiplied with the
 * weight as it is stored (narrow.c); more of them with floats, a strip of the
 * weight at a time. */
#include "narrow.h"
#include "slots.h"

/* Rows of the weight that are floats at a time. */
#define STRIP 64

/* The weight, scales and zeros of a row, contiguous; `at` is the first of them
 * among the inputs. */
static fl_status quantized_take(const fl_launch *l, int at, fl_cpu_narrow *w) {
  _Static_assert(FL_IN_FOLLOWS(dequantize, weight, scales) &&
                     FL_IN_FOLLOWS(dequantize, scales, zeros) &&
                     FL_IN_FOLLOWS(quantized_linear, weight, scales) &&
                     FL_IN_FOLLOWS(quantized_linear, scales, zeros),
                 "a weight, its scales and its zeros");
  const fl_view *weight = &l->in[at], *scales = &l->in[at + 1],
                *zeros = &l->in[at + 2];
  w->dtype = weight->dtype;
  w->n = weight->shape[0];
  w->k = weight->shape[1] * (weight->dtype == FL_U8 ? 2 : 1);
  w->groups = scales->shape[1];
  w->scale_dtype = scales->dtype;
  w->zero_dtype = zeros->dtype;
  w->zeros = NULL;
  if (!(w->weight = FL_CPU(input)(l, weight, weight->dtype)) ||
      !(w->scales = FL_CPU(input)(l, scales, scales->dtype)) ||
      (zeros->data && !(w->zeros = FL_CPU(input)(l, zeros, zeros->dtype))))
    return FL_ENOMEM;
  return FL_OK;
}

/* --- dequantize --- */

typedef struct strips {
  const fl_launch *launch;
  const fl_cpu_narrow *w;
  fl_dtype dtype;
  int64_t m;
  const void *x;
  char *y;
  tile_slots slots;
} strips;

static void dequantize_task(void *context, int64_t begin, int64_t end) {
  const strips *s = context;
  FL_OF_FLOAT(quantized, s->dtype)
      ->rows(s->w, begin, end,
             s->y + (size_t)(begin * s->w->k) * fl_dtype_size(s->dtype));
}

FL_KERNEL(dequantize) {
  const fl_view *y = &l->out[0];
  fl_cpu_narrow w;
  strips s = {.w = &w, .dtype = fl_cpu_wide(y->dtype)};
  if (fl_view_numel(y) == 0)
    return FL_OK;
  if (quantized_take(l, FL_IN_dequantize_weight, &w) != FL_OK ||
      !(s.y = FL_CPU(output)(l, y, s.dtype)))
    return FL_ENOMEM;
  fl_cpu_parallel(l, w.n, 1 + 65536 / w.k, dequantize_task, &s);
  FL_CPU(finish)(l, y, s.dtype, s.y);
  return FL_OK;
}

/* --- quantized_linear --- */

static void strip_task(void *context, int64_t begin, int64_t end) {
  strips *s = context;
  const fl_cpu_narrow *w = s->w;
  size_t size = fl_dtype_size(s->dtype);
  void *slot = tile_slot_take(&s->slots);
  for (int64_t t = begin; t < end; t++) {
    int64_t first = t * STRIP,
            rows = w->n - first < STRIP ? w->n - first : STRIP;
    FL_OF_FLOAT(quantized, s->dtype)->rows(w, first, first + rows, slot);
    void *y = s->y + (size_t)first * size;
    if (s->dtype == FL_F64)
      FL_CPU(gemm_f64)
    (false, true, s->m, rows, w->k, s->x, w->k, slot, w->k, false, y, w->n);
    else FL_CPU(gemm_f32)(false, true, s->m, rows, w->k, s->x, w->k, slot, w->k,
                          false, y, w->n);
  }
  tile_slot_give(&s->slots, slot);
}

static fl_status by_strips(const fl_launch *l, strips *s) {
  int64_t n = fl_ceil_div(s->w->n, STRIP);
  if (!tile_slots_open(l, &s->slots, n,
                       (size_t)(STRIP * (s->w->k + 1)) *
                           fl_dtype_size(s->dtype)))
    return FL_ENOMEM;
  return fl_cpu_stoppable(l, n, 1, strip_task, s);
}

#define ADD_BIAS(T)                                                            \
  for (int64_t r = 0; r < m; r++)                                              \
    for (int64_t j = 0; j < n; j++)                                            \
      ((T *)y)[r * n + j] += ((const T *)bias)[j];

static void add_bias(fl_dtype d, int64_t m, int64_t n, const void *bias,
                     void *y) {
  if (d == FL_F64) {
    ADD_BIAS(double)
  } else {
    ADD_BIAS(float)
  }
}

FL_KERNEL(quantized_linear) {
  const fl_view *x = &l->in[FL_IN_quantized_linear_x], *y = &l->out[0],
                *bias = &l->in[FL_IN_quantized_linear_bias];
  fl_cpu_narrow w;
  strips s = {.launch = l, .w = &w, .dtype = fl_cpu_wide(y->dtype)};
  const void *b = NULL;
  if (fl_view_numel(y) == 0)
    return FL_OK;
  if (quantized_take(l, FL_IN_quantized_linear_weight, &w) != FL_OK ||
      !(s.x = FL_CPU(input)(l, x, s.dtype)) ||
      !(s.y = FL_CPU(output)(l, y, s.dtype)) ||
      (bias->data && !(b = FL_CPU(input)(l, bias, s.dtype))))
    return FL_ENOMEM;
  s.m = fl_view_numel(y) / w.n;
  fl_status status = s.dtype == FL_F32 && FL_CPU(narrow_takes)(&w, s.m)
                         ? FL_CPU(narrow)(l, &w, s.m, s.x, (float *)s.y)
                         : by_strips(l, &s);
  if (status != FL_OK)
    return status;
  if (b)
    add_bias(s.dtype, s.m, w.n, b, s.y);
  FL_CPU(finish)(l, y, s.dtype, s.y);
  return FL_OK;
}
