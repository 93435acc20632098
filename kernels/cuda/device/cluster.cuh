/* Clusters of blocks, of sm_90 on, which read each other's shared memory. */
#pragma once

#include "flare.cuh"

/* All threads of the cluster come here; what they have stored is seen. */
inline void fl_cluster_sync() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.aligned;\n"
               "barrier.cluster.wait.aligned;" ::: "memory");
#endif
}
/* What block `rank` has where p is in this one's shared memory. */
inline float fl_cluster_read(const float *p, int rank) {
  float v = *p;
#if __CUDA_ARCH__ >= 900
  uint32_t at = (uint32_t)__cvta_generic_to_shared(p);
  asm volatile("{\n.reg .u32 a;\nmapa.shared::cluster.u32 a, %1, %2;\n"
               "ld.shared::cluster.f32 %0, [a];\n}"
               : "=f"(v)
               : "r"(at), "r"(rank)
               : "memory");
#endif
  return v;
}
