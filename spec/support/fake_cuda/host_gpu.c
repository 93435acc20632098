/* A driver whose GPU is the host's memory: everything has happened when a call
 * returns. A few kernels are known by name and printed on stderr as they run;
 * after one called "fault" the device is broken, as a real one would be. */
#include "../../../kernels/cuda/driver/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static bool broken;

CUresult cuDriverGetVersion(int *version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult e, const char **text) {
  *text = e == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal memory access" : "?";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what,
                              CUdevice device) {
  *value = what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
           : what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
           : what == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
               ? 100000
               : 1;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  *free_bytes = *total = (size_t)1 << 30;
  return CUDA_SUCCESS;
}

static CUresult get(void **p, size_t bytes) {
  *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes) {
  return get((void **)p, bytes);
}

CUresult cuMemAddressReserve(CUdeviceptr *p, size_t bytes, size_t alignment,
                             CUdeviceptr wish, unsigned long long flags) {
  return get((void **)p, bytes);
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
  return get(p, bytes);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *p, void *host,
                                      unsigned flags) {
  *p = (CUdeviceptr)(uintptr_t)host;
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
                              CUstream stream) {
  memcpy((void *)(uintptr_t)to, from, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes,
                              CUstream stream) {
  memcpy(to, (void *)(uintptr_t)from, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t bytes,
                         CUstream stream) {
  memset((void *)(uintptr_t)p, value, bytes);
  return CUDA_SUCCESS;
}

/* --- streams and events --- */

static char streams[64];

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  static int n;
  *stream = (CUstream)(void *)&streams[++n];
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) {
  return broken ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  return cuStreamQuery(stream);
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  return get((void **)event, sizeof(struct timespec));
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  clock_gettime(CLOCK_MONOTONIC, (struct timespec *)(void *)event);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) {
  const struct timespec *a = (void *)start, *b = (void *)end;
  *ms = (float)(b->tv_sec - a->tv_sec) * 1e3f +
        (float)(b->tv_nsec - a->tv_nsec) * 1e-6f;
  return CUDA_SUCCESS;
}

/* --- kernels: modules are their images, functions their names --- */

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  *module = (CUmodule)(uintptr_t)image;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *f, CUmodule module, const char *name) {
  *f = (CUfunction)(void *)strdup(name);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute what,
                            CUfunction f) {
  *value = what == 0 ? 1024 : 8;
  return CUDA_SUCCESS;
}

#define BLEND(T, name)                                                         \
  static void name(void **p) { /* x, w, y, by, twice, n */                     \
    const T *x = *(T **)p[0], *w = *(T **)p[1];                                \
    T *y = *(T **)p[2], by = (T) * (double *)p[3];                             \
    for (int64_t i = 0; i < *(int64_t *)p[5]; i++)                             \
      y[i] = x[i] * w[i] * by + (*(bool *)p[4] ? x[i] : 0);                    \
  }
BLEND(float, blend_f32)
BLEND(double, blend_f64)

CUresult cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z,
                        unsigned bx, unsigned by, unsigned bz, unsigned shared,
                        CUstream stream, void **params, void **extra) {
  const char *name = (const char *)f;
  fprintf(stderr, "[%s %u %u %u %u %u %u %u]\n", name, x, y, z, bx, by, bz,
          shared);
  if (strcmp(name, "blend_f32") == 0)
    blend_f32(params);
  else if (strcmp(name, "blend_f64") == 0)
    blend_f64(params);
  broken = strcmp(name, "fault") == 0;
  return CUDA_SUCCESS;
}
