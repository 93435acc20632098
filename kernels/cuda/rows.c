/* The elementwise rows of ops.def, each as the text that map.cu is compiled
 * with, and their kernels. A row's derivatives are rows of their own: dy f',
 * and ddy dy f''. */
#include "rows.h"

#define LINE(body) "#define ROW " body
#define RETURN(f)  "return (T)(" #f ");"

/* What is saved is x, or y (or nothing is needed): operand i. */
#define SAVED_X(i, f)    "const T x = v[" #i "], y = (T)(" #f "); "
#define SAVED_Y(i, f)    "const T y = v[" #i "], x = y; "
#define SAVED_NONE(i, f) "const T x = 0, y = 0; "
/* rows that autocast leaves to the widest input meet f32 beside 16 bits */
#define MIXES_PROMOTE 1
#define MIXES_WIDE    0
#define MIXES_NONE    0
#define READS_X       1
#define READS_Y       1
#define READS_NONE    0

/* clang-format off */
enum {
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf) \
  ROW_##name, ROW_##name##_backward, ROW_##name##_backward2,
#define FL_TEST(name, T, sig, f)                ROW_##name,
#define FL_BINARY(name, T, sig, cast, saves, f) ROW_##name,
#define FL_COMPARE(name, sig, f)                ROW_##name,
#define FL_TERNARY(name, T, sig, cast, saves, f) ROW_##name,
#include "../../runtime/ops.def"
};

const flc_row flc_rows[] = {
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  {LINE("const T x = v[0]; " RETURN(f)), FL_PARAMS_##name, 1, FLC_ROW_##T, 0,  \
   0},                                                                         \
  {LINE(SAVED_##saves(1, f) "return (T)(v[0] * (" #df "));"),                  \
   FL_PARAMS_##name, 1 + READS_##saves, FLC_ROW_F, 0, 0},                      \
  {LINE(SAVED_##saves(2, f) "return (T)(v[0] * v[1] * (" #ddf "));"),          \
   FL_PARAMS_##name, 2 + READS_##saves, FLC_ROW_F, 0, 0},
#define FL_TEST(name, T, sig, f)                                               \
  {LINE("const T x = v[0]; " RETURN(f)), FL_PARAMS_NONE, 1, FLC_ROW_N, 1, 0},
#define FL_BINARY(name, T, sig, cast, saves, f)                                \
  {LINE("const T a = v[0], b = v[1]; " RETURN(f)), FL_PARAMS_NONE, 2,          \
   FLC_ROW_##T, 0, MIXES_##cast},
#define FL_COMPARE(name, sig, f)                                               \
  {LINE("const T a = v[0], b = v[1]; " RETURN(f)), FL_PARAMS_NONE, 2,          \
   FLC_ROW_N, 1, 0},
#define FL_TERNARY(name, T, sig, cast, saves, f)                               \
  {LINE("const T a = v[0], b = v[1], c = v[2]; " RETURN(f)), FL_PARAMS_##name, \
   3, FLC_ROW_##T, 0, 0},
#include "../../runtime/ops.def"
    {NULL, FL_PARAMS_NONE, 0, FLC_ROW_F, 0, 0}};

#define KERNEL(name)                                                           \
  FLC_KERNEL(name) {                                                           \
    return flc_map(l, &flc_rows[ROW_##name], &l->out[0], l->in, l->n_in);      \
  }
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  KERNEL(name) KERNEL(name##_backward) KERNEL(name##_backward2)
#define FL_TEST(name, T, sig, f)                 KERNEL(name)
#define FL_BINARY(name, T, sig, cast, saves, f)  KERNEL(name)
#define FL_COMPARE(name, sig, f)                 KERNEL(name)
#define FL_TERNARY(name, T, sig, cast, saves, f) KERNEL(name)
#include "../../runtime/ops.def"
