// machine.c's driver where the kernels of depthwise.cu are run on the host, those that FORMS names:
// a block after the other, its threads as coroutines that change at __syncthreads. Linked in front
// of machine.c. depthwise_host.lua puts the kernels' source where it says so.
#include "spec/support/peer_host.h"
#undef __launch_bounds__
#define __launch_bounds__(...)

#define _Alignas alignas
extern "C" {
#include "kernels/cuda/driver/library.h"
}

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <ucontext.h>

// --- threads of a block ---

enum { MOST = 256, STACK = 64 << 10 };
struct thread { jmp_buf at; bool begun, ended; };
static thread threads[MOST];
static jmp_buf scheduler;
static int running;
static void (*block_body)();

static void entry() {
  block_body();
  threads[running].ended = true;
  _longjmp(scheduler, 1);
}

static void yield() {
  if (!_setjmp(threads[running].at)) _longjmp(scheduler, 1);
}
#define __syncthreads yield

static void run_block(int n) {
  static char *stacks = (char *)malloc((size_t)MOST * STACK);
  for (int t = 0; t < n; t++) threads[t].begun = threads[t].ended = false;
  for (int left = n; left > 0;) {
    for (int t = 0; t < n; t++) {
      if (threads[t].ended) continue;
      running = threadIdx.x = t;
      if (!_setjmp(scheduler)) {
        if (threads[t].begun) _longjmp(threads[t].at, 1);
        static ucontext_t context; // its memory outlives the jump
        getcontext(&context);
        context.uc_stack.ss_sp = stacks + (size_t)t * STACK;
        context.uc_stack.ss_size = STACK;
        threads[t].begun = true;
        makecontext(&context, entry, 0);
        setcontext(&context);
      }
    }
    left = 0;
    for (int t = 0; t < n; t++) left += !threads[t].ended;
  }
}

// --- what the kernels take of the device ---

static uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint64_t)a * b >> 32; }
static float __uint_as_float(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
struct alignas(8) uint2 { uint32_t x, y; };
struct alignas(16) uint4 { uint32_t x, y, z, w; };
template <class S, int N> void fl_leave(S *p, const fl_vec<S, N> &v) {
  if ((uintptr_t)p % sizeof v) abort();
  fl_write(p, v);
}
template <class W> W fl_load(const void *p, int dtype, int64_t i) {
  return dtype == FL_F32 ? ((const float *)p)[i] : fl_get<W>(((const bf16 *)p)[i]);
}
static float staged[64 << 10], shared_sums[64 << 10];

// KERNELS

// --- launches ---

typedef void (*kernel)(const depthwise_args);
static const std::map<std::string, kernel> known = {
  // FORMS
};
static kernel function_now;
static depthwise_args args_now;

extern "C" CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned, unsigned,
    unsigned block, unsigned, unsigned, unsigned bytes, CUstream, void **params, void **) {
  std::string name = (const char *)function;
  auto f = known.find(name);
  if (f == known.end()) {
    if (name.find("places") == 0 || name.find("taps") == 0) fprintf(stderr, "no %s\n", name.c_str());
    return CUDA_SUCCESS;
  }
  function_now = f->second;
  args_now = *(const depthwise_args *)params[0];
  block_body = [] { function_now(args_now); };
  if (bytes > sizeof staged || block > MOST) return CUDA_ERROR_INVALID_VALUE;
  gridDim.x = (int)x, blockDim.x = (int)block;
  for (unsigned b = 0; b < x; b++) {
    blockIdx.x = (int)b;
    memset(staged, 0xff, bytes); // NaN
    run_block((int)block);
  }
  return CUDA_SUCCESS;
}
