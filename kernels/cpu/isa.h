/* The levels of x86-64 that the CPU's kernels are compiled for. The build runs
 * this to find out the machine's own, so nothing of flare's is included. */
#ifndef FL_CPU_ISA_H
#define FL_CPU_ISA_H

/* 4, 3 or 2 for the highest of x86-64-v4, -v3 and -v2 whose instructions the
 * CPU has and the system lets programs use, 1 below, 0 on other CPUs. */
static inline int fl_cpu_level(void) {
#if !defined(__x86_64__)
  return 0;
#else
  __builtin_cpu_init();
#if !defined(__clang__) && __GNUC__ >= 12
  return __builtin_cpu_supports("x86-64-v4")   ? 4
         : __builtin_cpu_supports("x86-64-v3") ? 3
         : __builtin_cpu_supports("x86-64-v2") ? 2
                                               : 1;
#else
  int level = 1;
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt"))
    level = 2;
  if (level == 2 && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
      __builtin_cpu_supports("bmi2"))
    level = 3;
  if (level == 3 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd"))
    level = 4;
  return level;
#endif
#endif
}

#endif
