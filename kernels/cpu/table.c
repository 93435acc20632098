/* The kernel table of one instruction set, from the rows of ops.def: a row
 * whose kernel is missing is a link error. */
#include "cpu.h"
#include "table.h"

#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  FL_KERNEL(name);                                                             \
  FL_KERNEL(name##_backward);                                                  \
  FL_KERNEL(name##_backward2);
#define FL_TEST(name, T, sig, f)                         FL_KERNEL(name);
#define FL_BINARY(name, T, sig, cast, saves, f)          FL_KERNEL(name);
#define FL_COMPARE(name, sig, f)                         FL_KERNEL(name);
#define FL_TERNARY(name, T, sig, cast, saves, f)         FL_KERNEL(name);
#define FL_OP(name, sig, cast, saves, shape, grad, cost) FL_KERNEL(name);
#include "../../runtime/ops.def"
FL_KERNEL(expr);
FL_KERNEL(epilogue);
FL_KERNEL(tile);

extern const fl_cpu_entry FL_CPU(table)[];
const fl_cpu_entry FL_CPU(table)[] = {
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  {#name, FL_CPU(name)}, {#name "_backward", FL_CPU(name##_backward)},         \
      {#name "_backward2", FL_CPU(name##_backward2)},
#define FL_TEST(name, T, sig, f)                         {#name, FL_CPU(name)},
#define FL_BINARY(name, T, sig, cast, saves, f)          {#name, FL_CPU(name)},
#define FL_COMPARE(name, sig, f)                         {#name, FL_CPU(name)},
#define FL_TERNARY(name, T, sig, cast, saves, f)         {#name, FL_CPU(name)},
#define FL_OP(name, sig, cast, saves, shape, grad, cost) {#name, FL_CPU(name)},
#include "../../runtime/ops.def"
    {"expr", FL_CPU(expr)},
    {"epilogue", FL_CPU(epilogue)},
    {"tile", FL_CPU(tile)},
    {NULL, NULL}};
