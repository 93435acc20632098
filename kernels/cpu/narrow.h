/* Products of a few rows of floats with weights that are stored in fewer bits
 * (narrow.c): memory is what limits these, so the weights are read as they are
 * stored. And the same weights as floats (quantized_typed.c). */
#ifndef FL_CPU_NARROW_H
#define FL_CPU_NARROW_H

#include "cpu.h"

/* A weight (n, k), rows one after the other: F16 or BF16; I8; or U8, two
 * numbers of 4 bits in a byte. The integers q mean (q - zero) scale, with
 * scales and zeros (n, groups) of any float or (zeros) integer type. zeros may
 * be NULL: 0 for I8, 8 for U8. */
typedef struct fl_cpu_narrow {
  fl_dtype dtype;
  int64_t n, k, groups;
  const void *weight, *scales, *zeros;
  fl_dtype scale_dtype, zero_dtype;
} fl_cpu_narrow;

/* Rows of x from which it is better to have the weight as floats. */
#define FL_NARROW_ROWS 16

static inline size_t fl_cpu_narrow_bytes(const fl_cpu_narrow *w) { /* a row */
  return w->dtype == FL_U8   ? (size_t)(w->k / 2)
         : w->dtype == FL_I8 ? (size_t)w->k
                             : (size_t)w->k * 2;
}

/* Whether narrow.c has the product of x (m, k) with such a weight. */
bool FL_CPU(narrow_takes)(const fl_cpu_narrow *w, int64_t m);
/* y (m, n) = x (m, k) W^T, both contiguous f32. */
fl_status FL_CPU(narrow)(const fl_launch *l, const fl_cpu_narrow *w, int64_t m,
                         const float *x, float *y);

typedef struct quantized_kernels {
  /* rows `first` to `end` of the weight to out (end - first, k) */
  void (*rows)(const fl_cpu_narrow *w, int64_t first, int64_t end, void *out);
} quantized_kernels;
extern const quantized_kernels FL_CPU(quantized_f32), FL_CPU(quantized_f64);

#endif
