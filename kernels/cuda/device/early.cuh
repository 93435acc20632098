/* Kernels that begin while the one before them on their stream ends, and those
 * before them: flc_grid.early of cuda.h. */
#pragma once

#include "flare.cuh"

/* Lets the kernel behind this one begin, as far as there is room. */
inline void fl_let_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
/* Waits for what is before this kernel on its stream. */
inline void fl_await() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
inline void fl_begin() {
  fl_let_next();
  fl_await();
}
/* Asks for memory that is read later, also before fl_await: it comes into the
 * L2 cache, where others may yet write it. p and bytes are multiples of 16. */
inline void fl_prefetch(const void *p, int64_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                   __cvta_generic_to_global(p)),
               "r"((uint32_t)bytes));
#endif
}
