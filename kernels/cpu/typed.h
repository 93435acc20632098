/* The element type T of a file that is compiled for several. CMake compiles
 * each *_typed.c once for each type (FL_TYPE: f32 and f64; for some i64, or f16
 * and bf16, which are computed as float) of each instruction set. Such a file
 * exports a table of functions, FL_TYPED(name), that the file without the
 * suffix chooses from. */
#ifndef FL_CPU_TYPED_H
#define FL_CPU_TYPED_H

#include "cpu.h"

#ifndef FL_TYPE /* for tools that do not know the flags */
#define FL_TYPE f32
#endif

#define FL_TYPED_PASTE_(name, type) FL_CPU(name##_##type)
#define FL_TYPED_PASTE(name, type)  FL_TYPED_PASTE_(name, type)
/* FL_TYPED(softmax) is fl_cpu_v4_softmax_f32 and so on. */
#define FL_TYPED(name) FL_TYPED_PASTE(name, FL_TYPE)

#define FL_NUMBER_f32         1
#define FL_NUMBER_f64         2
#define FL_NUMBER_i64         3
#define FL_NUMBER_f16         4
#define FL_NUMBER_bf16        5
#define FL_TYPE_NUMBER_(type) FL_NUMBER_##type
#define FL_TYPE_NUMBER(type)  FL_TYPE_NUMBER_(type)
#define FL_T_IS_F32           (FL_TYPE_NUMBER(FL_TYPE) == 1)
#define FL_T_IS_F64           (FL_TYPE_NUMBER(FL_TYPE) == 2)
#define FL_T_IS_FLOAT         (FL_TYPE_NUMBER(FL_TYPE) != 3)
#define FL_T_IS_F16           (FL_TYPE_NUMBER(FL_TYPE) == 4)
#define FL_T_IS_BF16          (FL_TYPE_NUMBER(FL_TYPE) == 5)

#if FL_T_IS_F16 || FL_T_IS_BF16
typedef float T;
#elif FL_T_IS_F32
typedef float T;
#define DTYPE FL_F32
#elif FL_T_IS_F64
typedef double T;
#define DTYPE FL_F64
#else
typedef int64_t T;
#define DTYPE FL_I64
#endif

#endif
