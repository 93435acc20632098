/* Elementwise kernels: a row's formulas compiled to contiguous loops
 * (loops_*.c) and the one driver that broadcasts, converts, cuts and threads
 * (map.c). */
#ifndef FL_CPU_MAP_H
#define FL_CPU_MAP_H

#include "cpu.h"

#define FL_MAP_IN 3

/* n results at `y` from inputs that are contiguous (step 1) or one element
 * (step 0), all of the loop's type. p: the row's attributes; bits: 1 for bool.
 */
typedef void (*fl_map_loop)(int64_t n, void *y, const void *const *in,
                            const int *step, const double *p, int bits);

typedef struct fl_map {
  int params;          /* FL_PARAMS_* of the row */
  bool test;           /* results are bool */
  fl_map_loop loop[3]; /* f32, f64, i64; NULL: not compiled for it */
} fl_map;

fl_status FL_CPU(map)(const fl_launch *l, const fl_map *m);

/* The loops of every elementwise row, for expressions (expr.c), too. */
#define FL_MAP(name) FL_CPU(name##_map)
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  extern const fl_map FL_MAP(name), FL_MAP(name##_backward),                   \
      FL_MAP(name##_backward2);
#define FL_TEST(name, T, sig, f) extern const fl_map FL_MAP(name);
#define FL_BINARY(name, T, sig, cast, saves, f)                                \
  extern const fl_map FL_MAP(name);
#define FL_COMPARE(name, sig, f) extern const fl_map FL_MAP(name);
#define FL_TERNARY(name, T, sig, cast, saves, f)                               \
  extern const fl_map FL_MAP(name);
#include "../../runtime/ops.def"

/* For loops: whether attribute 0 of a row chooses a formula. Then the first one
 * has a loop of its own, which need not compute both and select. */
#define FL_CHOOSES(name) (FL_PARAMS_##name == FL_PARAMS_CHOICE)
/* Loops with functions run over a multiple of these elements, since a compiler
 * that takes functions from a vector libm takes libm's behind the last vector,
 * which may differ in the last bit. So an element has the same bits wherever it
 * lies, in a tensor of any layout. */
#define FL_LANES 16
/* For loops: whether formulas call functions; those that are series are in no
 * vector. */
#define FL_CALLS(...)                                                          \
  (__builtin_strstr(#__VA_ARGS__, "fl_") != NULL &&                            \
   !__builtin_strstr(#__VA_ARGS__, "gamma") &&                                 \
   !__builtin_strstr(#__VA_ARGS__, "bessel") &&                                \
   !__builtin_strstr(#__VA_ARGS__, "zeta"))
/* Whether all operands are single elements: a compiler computes one result,
 * outside of vectors. Unary loops have no step. */
static inline bool fl_map_single(int n_in, const int *step) {
  return n_in > 1 && !step[0] && !step[1] && (n_in == 2 || !step[2]);
}
/* For loops over T, at their beginning: `self` is the loop. */
#define FL_WHOLE_VECTORS(self, T, n_in, ...)                                   \
  if ((T)0.5 != 0 && FL_CALLS(__VA_ARGS__) &&                                  \
      (n % FL_LANES || fl_map_single(n_in, step))) {                           \
    FL_CPU(map_padded)(self, sizeof(T), n_in, n, out, in, step, p, bits);      \
    return;                                                                    \
  }
void FL_CPU(map_padded)(fl_map_loop loop, size_t size, int n_in, int64_t n,
                        void *out, const void *const *in, const int *step,
                        const double *p, int bits);

/* For loops: attribute k in the type computed in. */
#define FL_PARAM(T, v) _Generic((T)0, int64_t : fl_to_int(v), default : (T)(v))

#endif
