/* Launches of dequantize and quantized_linear: a few rows of x read the weight
 * as it is stored, more are multiplied with floats. */
#include "product.h"
#include "quantized.h"

#include "../device/line.h"

#include <string.h>

#define SCALES (32 << 10) /* bytes of them that a block may have */

/* The weight, scales and zeros of a row, contiguous; `at` is the first of them
 * among the inputs. */
static fl_status quantized_take(const fl_launch *l, int at, quantized_args *a,
                                int64_t *n, int64_t *k, const void **data) {
  _Static_assert(FL_IN_FOLLOWS(dequantize, weight, scales) &&
                     FL_IN_FOLLOWS(dequantize, scales, zeros) &&
                     FL_IN_FOLLOWS(quantized_linear, weight, scales) &&
                     FL_IN_FOLLOWS(quantized_linear, scales, zeros),
                 "a weight, its scales and its zeros");
  const fl_view *weight = &l->in[at], *scales = &l->in[at + 1],
                *zeros = &l->in[at + 2];
  bool four = weight->dtype == FL_U8;
  *n = weight->shape[0];
  *k = weight->shape[1] * (four ? 2 : 1);
  a->groups = (int)scales->shape[1];
  a->scale_dtype = (int)scales->dtype;
  a->zero_dtype = (int)zeros->dtype;
  a->center = four ? 8 : 0;
  if (*n == 0 || *k == 0)
    return FL_OK;
  if (!(*data = flc_input(l, weight, weight->dtype)) ||
      !(a->scales = flc_input(l, scales, scales->dtype)) ||
      (zeros->data && !(a->zeros = flc_input(l, zeros, zeros->dtype))))
    return FL_ENOMEM;
  return FL_OK;
}

static fl_status quantized_floats(const fl_launch *l, fl_dtype weight,
                                  fl_dtype d, quantized_args *a) {
  int64_t k = a->s.g.k, group = k / a->groups;
  int n = group % 8 == 0 && flc_aligned(a->s.g.b, 8) && flc_aligned(a->y, 64)
              ? 8
              : 1;
  flc_spec spec = FLC_SPEC("quantized", "dequantize", d, weight, n);
  a->by_row = flc_divisor_of(k / n);
  a->by_group = flc_divisor_of(group / n);
  int64_t blocks = fl_ceil_div(a->s.g.n * (k / n), QUANTIZED_THREADS);
  flc_grid g = {.x = (unsigned)(blocks < 1 << 30 ? blocks : 1 << 30),
                .block = QUANTIZED_THREADS};
  return FLC_RUN(l, spec, g, *a);
}

FLC_KERNEL(dequantize) {
  const fl_view *y = &l->out[0];
  quantized_args a = {.y = y->data};
  if (fl_view_numel(y) == 0)
    return FL_OK;
  fl_status s = quantized_take(l, FL_IN_dequantize_weight, &a, &a.s.g.n,
                               &a.s.g.k, &a.s.g.b);
  return s == FL_OK ? quantized_floats(l, l->in[FL_IN_dequantize_weight].dtype,
                                       y->dtype, &a)
                    : s;
}

/* Numbers in 16 bytes of a weight. */
static int quantized_each(fl_dtype weight) {
  return weight == FL_U8 ? 32 : 16;
}

/* Columns of a block of `tensor`, in eights; 0: scales would take too much. */
static int quantized_columns(const fl_launch *l, const flc_product *p,
                             int groups) {
  int64_t tiles = fl_ceil_div(p->n, 8), sms = flc_chip_of(l)->processors;
  int r = tiles >= 16 * sms ? 4 : tiles >= 4 * sms ? 2 : 1;
  while (r > 0 && r * 64 * (int64_t)groups > SCALES)
    r /= 2;
  return r;
}

static flc_spec tensor_spec(int d, int weight, int halves, int r, int stages) {
  return FLC_SPEC("quantized", "tensor", d, weight, halves, r, stages);
}
static flc_spec rows_spec(int weight, int m) {
  return FLC_SPEC("quantized", "rows", weight, m);
}

/* Whether the weight is read as it is stored; *r: columns of `tensor`. */
static bool quantized_few(const fl_launch *l, const flc_product *p,
                          fl_dtype weight, int groups, int *r) {
  bool low = fl_dtype_is_low(p->dtype);
  *r = quantized_columns(l, p, groups);
  return p->k > 0 && p->dtype != FL_F64 && p->m <= (low ? 16 : 8) &&
         (*r > 0 || !low) && p->k / groups % quantized_each(weight) == 0 &&
         flc_aligned(p->a, 16) && flc_aligned(p->b, 16);
}

static fl_status run_few(const fl_launch *l, const flc_product *p,
                         fl_dtype weight, int r, quantized_args *a) {
  int each = quantized_each(weight), halves = p->m > 8 ? 2 : 1;
  bool low = fl_dtype_is_low(p->dtype);
  int columns = low ? 8 * r : QUANTIZED_THREADS / 32,
      scales = (columns * a->groups * 8 + 1023) / 1024 * 1024;
  int64_t blocks = fl_ceil_div(p->n, columns);
  skinny_cut c = flc_skinny_cut(l, blocks, p->k, 8 * each, QUANTIZED_WARPS);
  int stages = c.turns <= 2 ? 2 : 4;
  flc_spec spec =
      low ? tensor_spec((int)p->dtype, (int)weight, halves, r, stages)
          : rows_spec((int)weight, flc_power(p->m, 8));
  flc_grid g = {.x = (unsigned)blocks,
                .block = low ? (unsigned)c.warps * 32 : QUANTIZED_THREADS,
                .shared =
                    low ? (unsigned)(scales + c.warps * r * stages * 1024) : 0,
                .early = p->n * p->k / each * 16 >= SKINNY_EARLY};
  a->parts = (int)(p->k / a->groups / each);
  a->by_group = flc_divisor_of(a->parts);
  if (flc_skinny_args(l, p, &a->s, &spec)) {
    a->s.lasting = 0;
    return FLC_RUN(l, spec, g, *a);
  }
  flc_product first = *p;
  size_t bytes = (size_t)(p->m * p->n) * fl_dtype_size(p->dtype);
  if (l->probe)
    return flc_product_behind(p, p->c);
  first.behind = NULL;
  if (!first.c && !(first.c = fl_scratch_get(l, bytes)))
    return FL_ENOMEM;
  fl_status s = run_few(l, &first, weight, r, a);
  return s ? s : flc_product_behind(p, first.c);
}

FLC_KERNEL(quantized_linear) {
  const fl_view *x = &l->in[FL_IN_quantized_linear_x], *out = &l->out[0],
                *bias = &l->in[FL_IN_quantized_linear_bias];
  fl_dtype weight = l->in[FL_IN_quantized_linear_weight].dtype, d = out->dtype;
  quantized_args a = {0};
  flc_product p = {
      .dtype = d, .c = out->data, .ak = 1, .bk = 1, .bias_dtype = bias->dtype};
  int r;
  if (fl_view_numel(out) == 0)
    return FL_OK;
  fl_status s =
      quantized_take(l, FL_IN_quantized_linear_weight, &a, &p.n, &p.k, &p.b);
  if (s != FL_OK ||
      (bias->data && !(p.bias = flc_input(l, bias, bias->dtype))) ||
      (p.k > 0 && !(p.a = flc_input(l, x, d))))
    return s == FL_OK ? FL_ENOMEM : s;
  p.m = fl_view_numel(out) / p.n;
  p.am = p.bn = p.k;
  flc_product_take(l, &p);
  if (quantized_few(l, &p, weight, a.groups, &r))
    return run_few(l, &p, weight, r, &a);
  if (p.k > 0 && !l->probe) {
    a.s.g = (gemm_args){.b = p.b, .n = p.n, .k = p.k};
    p.b = a.y = fl_scratch_get(l, (size_t)(p.n * p.k) * fl_dtype_size(d));
    s = a.y ? quantized_floats(l, weight, d, &a) : FL_ENOMEM;
  }
  return s == FL_OK ? flc_multiply(l, &p) : s;
}

void flc_visit_quantized(flc_visitor *v) {
  for (int four = 0; four < 2; four++) {
    int weight = four ? FL_U8 : FL_I8;
    FL_EACH_DTYPE(d, fl_dtype_is_float)
    for (int n = 1; n <= 8; n += 7) {
      flc_spec spec = FLC_SPEC("quantized", "dequantize", d, weight, n);
      v->spec(v, &spec, d == FL_BF16 && n == 8);
    }
    FL_EACH_DTYPE(d, fl_dtype_is_low)
    for (int halves = 1; halves <= 2; halves++)
      for (int k = 0; k < 6; k++) { /* 1, 2 and 4 eights, 2 and 4 stages */
        flc_spec spec =
            tensor_spec(d, weight, halves, 1 << k / 2, 2 + k % 2 * 2);
        spec.t[spec.n++] = -1;
        v->spec(v, &spec, d == FL_BF16 && k == 5);
      }
    for (int m = 1; m <= 8; m *= 2) {
      flc_spec spec = rows_spec(weight, m);
      spec.t[spec.n++] = -1;
      v->spec(v, &spec, m == 8);
    }
  }
}
