/* Every kernel by its operator's name, from the rows of ops.def, and every
 * family's visit: the explicit tables of the backend. */
#include "process.h"

#include <string.h>

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
DECLARE(resample) /* fused rows that have kernels here */
DECLARE(resample_backward)
DECLARE(grid_sample)
DECLARE(grid_sample_backward)
DECLARE(complex_mul)
DECLARE(pair_distances)
DECLARE(lstm)
DECLARE(lstm_backward)
DECLARE(expr)
DECLARE(raw)
DECLARE(native)

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
ROW(resample)
ROW(resample_backward)
ROW(grid_sample)
ROW(grid_sample_backward)
ROW(complex_mul)
ROW(pair_distances)
ROW(lstm)
ROW(lstm_backward)
ROW(expr) /* of all run-time operators */
ROW(raw)  /* of users' source */
ROW(native)
};
/* clang-format on */

#define VISIT(family) void flc_visit_##family(flc_visitor *v);
FLC_FAMILIES(VISIT)

#define NAME(family) flc_visit_##family,
void flc_visit_all(flc_visitor *v) {
  static const flc_visit all[] = {FLC_FAMILIES(NAME)};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i])
      all[i](v);
}

/* Rows are asked for in the order of ops.def, and "raw" by every launch: the
 * last one and the next one are tried first. */
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
