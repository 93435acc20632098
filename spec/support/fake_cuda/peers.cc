// machine.c's driver where GPUs of other processes can be reached: memory that is handed out is a
// file, which others map, and the kernels of collectives are run, one after the other, by some
// threads of the host, block after block. A launch returns at once; what touches memory waits.
// Linked in front of machine.c. peer_spec.lua puts the kernels' source where it says so.
#include "spec/support/peer_host.h"

#define _Alignas alignas
extern "C" {
#include "kernels/cuda/driver/library.h"
}

#include <condition_variable>
#include <cstdio>
#include <deque>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

// KERNELS

// --- one queue for all streams ---

enum { THREADS = PEER_RANKS, BLOCKS = 3 }; // at most: blocks are slow here
typedef void (*kernel)(const peer_args);
struct task { kernel f; int grid; peer_args a; };

static std::mutex lock;
static std::condition_variable &moved_on = *new std::condition_variable; // outlives who waits
static std::deque<task> tasks;
static uint64_t asked, done;

static void run(const task &k) {
  block one;
  pthread_barrier_init(&one.barrier, nullptr, THREADS);
  std::vector<std::thread> threads;
  for (int t = 0; t < THREADS; t++)
    threads.emplace_back([&, t] {
      threadIdx.x = t, blockDim.x = THREADS, gridDim.x = k.grid;
      here = &one;
      for (int b = 0; b < k.grid; b++) {
        blockIdx.x = b;
        k.f(k.a);
      }
    });
  for (auto &t : threads) t.join();
}

static void work() {
  std::unique_lock<std::mutex> held(lock);
  for (;;) {
    moved_on.wait(held, [] { return !tasks.empty(); });
    task k = tasks.front();
    tasks.pop_front();
    held.unlock();
    run(k);
    held.lock();
    done++;
    moved_on.notify_all();
  }
}

static CUresult drain() {
  std::unique_lock<std::mutex> held(lock);
  moved_on.wait(held, [] { return done == asked; });
  return CUDA_SUCCESS;
}

static CUresult at(uint64_t number) {
  std::unique_lock<std::mutex> held(lock);
  return done >= number ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

extern "C" CUresult cuEventCreate(CUevent *e, unsigned) {
  *e = (CUevent) new uint64_t(0);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuEventDestroy_v2(CUevent e) {
  delete (uint64_t *)e;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuEventRecord(CUevent e, CUstream) {
  *(uint64_t *)e = asked;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuEventQuery(CUevent e) { return at(*(uint64_t *)e); }
extern "C" CUresult cuStreamQuery(CUstream) { return at(asked); }
extern "C" CUresult cuEventSynchronize(CUevent) { return drain(); }
extern "C" CUresult cuStreamSynchronize(CUstream) { return drain(); }
extern "C" CUresult cuCtxSynchronize() { return drain(); }

static CUresult copy(void *to, const void *from, size_t bytes) {
  drain();
  memcpy(to, from, bytes);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream) {
  return copy((void *)to, from, n);
}

extern "C" CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream) {
  return copy(to, (void *)from, n);
}

extern "C" CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream) {
  return copy((void *)to, (void *)from, n);
}

extern "C" CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t n, CUstream) {
  drain();
  memset((void *)p, value, n);
  return CUDA_SUCCESS;
}

// --- memory: a handle is who has it, and which of its files it is ---

struct extent { size_t bytes; int file; };
static std::map<CUdeviceptr, extent> extents;
struct handle { int pid, file; size_t bytes; };

static CUdeviceptr map(int file, size_t bytes) {
  void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (p == MAP_FAILED) return 0;
  extents[(CUdeviceptr)p] = {bytes, file};
  return (CUdeviceptr)p;
}

extern "C" CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes) {
  int file = memfd_create("memory", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, (off_t)bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *p = map(file, bytes);
  return *p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

extern "C" CUresult cuMemFree_v2(CUdeviceptr p) {
  drain();
  extent e = extents[p];
  extents.erase(p);
  munmap((void *)p, e.bytes);
  close(e.file);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p) {
  handle h = {getpid(), extents[p].file, extents[p].bytes};
  memcpy(out, &h, sizeof h);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *p, CUipcMemHandle in, unsigned) {
  handle h;
  char name[64];
  memcpy(&h, &in, sizeof h);
  snprintf(name, sizeof name, "/proc/%d/fd/%d", h.pid, h.file);
  int file = open(name, O_RDWR | O_CLOEXEC);
  *p = file < 0 ? 0 : map(file, h.bytes);
  return *p ? CUDA_SUCCESS : (CUresult)1;
}

extern "C" CUresult cuIpcCloseMemHandle(CUdeviceptr p) { return cuMemFree_v2(p); }

extern "C" CUresult cuDeviceGetCount(int *count) {
  *count = 2;
  return CUDA_SUCCESS;
}

// --- kernels, by their names ---

template <int D> static void add(std::map<std::string, kernel> &all) {
  std::string d = "<" + std::to_string(D);
  all["ring" + d + ">"] = ring<D>;
  all["one_shot" + d + ", 2>"] = one_shot<D, 2>;
  all["one_shot" + d + ", 4>"] = one_shot<D, 4>;
  all["one_shot" + d + ", 8>"] = one_shot<D, 8>;
  all["two_shot" + d + ", 2>"] = two_shot<D, 2>;
  all["two_shot" + d + ", 4>"] = two_shot<D, 4>;
  all["two_shot" + d + ", 8>"] = two_shot<D, 8>;
}

static std::map<std::string, kernel> known() {
  std::map<std::string, kernel> all;
  add<FL_F64>(all), add<FL_F32>(all), add<FL_BF16>(all), add<FL_I64>(all), add<FL_I32>(all);
  add<FL_I8>(all), add<FL_U8>(all);
  all["moved<" + std::to_string(FL_U8) + ">"] = moved<FL_U8>;
  return all;
}

extern "C" CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned, unsigned, unsigned,
    unsigned, unsigned, unsigned, CUstream, void **params, void **) {
  static const std::map<std::string, kernel> all = known();
  auto f = all.find((const char *)function);
  if (f == all.end()) return CUDA_SUCCESS;
  std::unique_lock<std::mutex> held(lock);
  if (asked++ == 0) std::thread(work).detach();
  tasks.push_back({f->second, min((int)x, (int)BLOCKS), *(const peer_args *)params[0]});
  moved_on.notify_all();
  return CUDA_SUCCESS;
}
