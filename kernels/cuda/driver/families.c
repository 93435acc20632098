/* The table of kernels by operator, made of the rows of ops.def, and the list
 * of all families' specialisations. */
#include "process.h"

#include <string.h>

/* Kernels beyond those of FL_OP and formulas: fused rows that have one here
 * (the others run their expression), then operators of run time and of users'
 * source, and two questions (launch.c, graph.c). */
#define MORE(F)                                                                \
  F(resample)                                                                  \
  F(resample_backward)                                                         \
  F(grid_sample)                                                               \
  F(grid_sample_backward)                                                      \
  F(complex_mul)                                                               \
  F(pair_distances)                                                            \
  F(dequantize)                                                                \
  F(quantized_linear)                                                          \
  F(lstm)                                                                      \
  F(lstm_backward)                                                             \
  F(expr)                                                                      \
  F(epilogue)                                                                  \
  F(tile)                                                                      \
  F(settled)                                                                   \
  F(lasting)                                                                   \
  F(raw)                                                                       \
  F(native)

/* clang-format off */
#define DECLARE(name) FLC_KERNEL(name);
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf) \
  DECLARE(name) DECLARE(name##_backward) DECLARE(name##_backward2)
#define FL_TEST(name, T, sig, f)                         DECLARE(name)
#define FL_BINARY(name, T, sig, cast, saves, f)          DECLARE(name)
#define FL_COMPARE(name, sig, f)                         DECLARE(name)
#define FL_TERNARY(name, T, sig, cast, saves, f)         DECLARE(name)
#define FL_OP(name, sig, cast, saves, shape, grad, cost) DECLARE(name)
#define FL_FUSED(name, sig, cast, saves, shape, grad, cost)
#include "../../../runtime/ops.def"
MORE(DECLARE)

static const struct {
  const char *name;
  fl_kernel kernel;
} table[] = {
#define ROW(name) {#name, fl_cuda_##name},
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf) \
  ROW(name) {#name "_backward", fl_cuda_##name##_backward}, \
  {#name "_backward2", fl_cuda_##name##_backward2},
#define FL_TEST(name, T, sig, f)                         ROW(name)
#define FL_BINARY(name, T, sig, cast, saves, f)          ROW(name)
#define FL_COMPARE(name, sig, f)                         ROW(name)
#define FL_TERNARY(name, T, sig, cast, saves, f)         ROW(name)
#define FL_OP(name, sig, cast, saves, shape, grad, cost) ROW(name)
#define FL_FUSED(name, sig, cast, saves, shape, grad, cost)
#include "../../../runtime/ops.def"
MORE(ROW)
};
/* clang-format on */

#define NAME(family) flc_visit_##family,
void flc_visit_all(flc_visitor *v) {
  static const flc_visit all[] = {FLC_FAMILIES(NAME)};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    all[i](v);
}

/* Callers look rows up in the order of ops.def, and "raw" at every launch: the
 * last one found and the one after it are compared first. */
fl_kernel flc_kernel_find(const char *op) {
  static _Thread_local size_t next;
  size_t n = sizeof table / sizeof *table;
  if (next && strcmp(table[next - 1].name, op) == 0)
    return table[next - 1].kernel;
  for (size_t i = 0; i < n; i++) {
    size_t k = (next + i) % n;
    if (strcmp(table[k].name, op) == 0) {
      next = k + 1;
      return table[k].kernel;
    }
  }
  return NULL;
}
