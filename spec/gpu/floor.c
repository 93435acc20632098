/* What one launch costs the host: the least and the median of rounds of
 * launches back to back of a kernel that adds 256 numbers, by cuLaunchKernel
 * and nothing around it, in microseconds. cc -O2 -o floor spec/gpu/floor.c -ldl
 * && ./floor */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LAUNCHES 2000
#define ROUNDS   41

static const char text[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry sum(.param .u64 pa, .param .u64 pb, .param .u64 py) {\n"
    ".reg .f32 %f<4>;\n.reg .b32 %r<2>;\n.reg .b64 %d<8>;\n"
    "ld.param.u64 %d1, [pa];\nld.param.u64 %d2, [pb];\n"
    "ld.param.u64 %d3, [py];\nmov.u32 %r1, %tid.x;\n"
    "mul.wide.u32 %d4, %r1, 4;\nadd.s64 %d5, %d1, %d4;\n"
    "add.s64 %d6, %d2, %d4;\nadd.s64 %d7, %d3, %d4;\n"
    "ld.global.f32 %f1, [%d5];\nld.global.f32 %f2, [%d6];\n"
    "add.f32 %f3, %f1, %f2;\nst.global.f32 [%d7], %f3;\nret;\n}\n";

static void *driver;

static void *symbol(const char *name) {
  void *f = dlsym(driver, name);
  if (!f) {
    fprintf(stderr, "floor: no %s\n", name);
    exit(1);
  }
  return f;
}

static void good(int e, const char *what) {
  if (e) {
    fprintf(stderr, "floor: %s: %d\n", what, e);
    exit(1);
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(void) {
  void *context, *module, *kernel, *stream;
  unsigned long long memory;
  int device;
  double times[ROUNDS];
  if (!(driver = dlopen("libcuda.so.1", RTLD_NOW))) {
    fprintf(stderr, "floor: %s\n", dlerror());
    return 1;
  }
  int (*init)(unsigned) = (int (*)(unsigned))symbol("cuInit");
  int (*get)(int *, int) = (int (*)(int *, int))symbol("cuDeviceGet");
  int (*retain)(void **, int) =
      (int (*)(void **, int))symbol("cuDevicePrimaryCtxRetain");
  int (*enter)(void *) = (int (*)(void *))symbol("cuCtxSetCurrent");
  int (*load)(void **, const void *) =
      (int (*)(void **, const void *))symbol("cuModuleLoadData");
  int (*find)(void **, void *, const char *) =
      (int (*)(void **, void *, const char *))symbol("cuModuleGetFunction");
  int (*make)(void **, unsigned) =
      (int (*)(void **, unsigned))symbol("cuStreamCreate");
  int (*wait)(void *) = (int (*)(void *))symbol("cuStreamSynchronize");
  int (*take)(unsigned long long *, size_t) =
      (int (*)(unsigned long long *, size_t))symbol("cuMemAlloc_v2");
  int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned,
                unsigned, unsigned, void *, void **, void **) =
      (int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned,
               unsigned, unsigned, void *, void **,
               void **))symbol("cuLaunchKernel");
  good(init(0), "cuInit");
  good(get(&device, 0), "cuDeviceGet");
  good(retain(&context, device), "cuDevicePrimaryCtxRetain");
  good(enter(context), "cuCtxSetCurrent");
  good(load(&module, text), "cuModuleLoadData");
  good(find(&kernel, module, "sum"), "cuModuleGetFunction");
  good(make(&stream, 1), "cuStreamCreate");
  good(take(&memory, 3 * 1024), "cuMemAlloc");
  unsigned long long a = memory, b = memory + 1024, y = memory + 2048;
  void *args[] = {&a, &b, &y};
  for (int r = -2; r < ROUNDS; r++) {
    double start = now();
    for (int i = 0; i < LAUNCHES; i++)
      good(launch(kernel, 1, 1, 1, 256, 1, 1, 0, stream, args, NULL), "launch");
    double time = (now() - start) / LAUNCHES;
    good(wait(stream), "cuStreamSynchronize");
    if (r >= 0)
      times[r] = time;
  }
  qsort(times, ROUNDS, sizeof *times, by_size);
  printf("floor\t%.3f\t%.3f\n", times[0], times[ROUNDS / 2]);
  return 0;
}
