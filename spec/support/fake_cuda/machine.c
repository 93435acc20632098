/* A driver with one GPU whose memory is the host's and whose kernels do nothing
 * but what FAKE_FAULT and FAKE_HANG say: "name:700" leaves that error for good,
 * "name" never ends. FAKE_MEMORY is how many bytes there are, FAKE_LAUNCHED a
 * file that gets the names of what is launched, FAKE_EARLY one that gets file
 * and name of what may begin before the launch in front has ended, FAKE_MAJOR
 * and FAKE_MINOR its compute capability (9.0), FAKE_SHARED the bytes of shared
 * memory that a block may ask for. FAKE_WORK gets a line for each module that
 * is loaded, graph that is made and memory that is reserved: "module call" by
 * the program's thread, "module thread" by another. FAKE_LAUNCHED gets "graph"
 * when one is launched, then the names of its launches, and "set" with a
 * kernel's name when one of a graph changes. Events tell the time of the
 * device: each launch takes FAKE_TIME microseconds (10), or what FAKE_TIMES
 * says of its kernel
 * ("name:20,other:30"). An event has happened when FAKE_LAG launches (0) are
 * behind it. A call that breaks a capture makes it fail as a driver does, and
 * so does a launch of the kernel FAKE_BREAKS. A program that waits for what
 * never ends, other than by asking, is stopped with status 99; one that maps
 * memory where there is some, or takes it away where there is none, with 98. */
#include "../../../kernels/cuda/driver/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CU(ret, name, symbol, params) ret symbol params;
#define FLC_CU                        CU
#include "../../../kernels/cuda/driver/dl.def"

typedef struct segment {
  CUdeviceptr at; /* 0: not mapped */
  size_t bytes;
  CUmemGenericAllocationHandle handle;
} segment;

static CUresult broken; /* what every call answers from now on */
static bool hangs;
static size_t used;
static segment segments[1024], mapped[2048];

static size_t total(void) {
  const char *said = getenv("FAKE_MEMORY");
  return said ? strtoull(said, NULL, 10) : (size_t)1 << 32;
}

static int number_of(const char *variable, int otherwise) {
  const char *said = getenv(variable);
  return said ? atoi(said) : otherwise;
}

/* --- captures: one at a time of each thread, of any stream --- */

enum { UNSUPPORTED = 900, INVALIDATED = 901 };

typedef struct node {
  const char *name; /* of a kernel; NULL: bytes */
  unsigned shared;
  CUdeviceptr to, from; /* no `from`: they become `value` */
  size_t bytes;
  unsigned char value;
} node;

typedef struct CUgraph_st {
  int n;
  node nodes[4096];
} graph;

static _Thread_local graph *captured; /* under way */
static _Thread_local bool invalidated;

static CUresult breaks_capture(void) {
  invalidated = true;
  return UNSUPPORTED;
}

static CUresult add(node n) {
  if (captured->n == 4096)
    return CUDA_ERROR_OUT_OF_MEMORY;
  captured->nodes[captured->n++] = n;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  (void)stream;
  *status = captured ? 1 + invalidated : 0;
  return broken;
}

/* A node is its number, from 1. */
CUresult cuStreamGetCaptureInfo_v2(CUstream stream,
                                   CUstreamCaptureStatus *status, uint64_t *id,
                                   CUgraph *graph, const CUgraphNode **last,
                                   size_t *n_last) {
  static CUgraphNode node;
  (void)stream, (void)id, (void)graph;
  *status = captured ? 1 + invalidated : 0;
  node = (CUgraphNode)(uintptr_t)(captured ? captured->n : 0);
  *last = &node;
  *n_last = node != NULL;
  return broken;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  (void)stream;
  if (broken || captured || mode != CU_STREAM_CAPTURE_MODE_RELAXED)
    return broken ? broken : CUDA_ERROR_INVALID_VALUE;
  invalidated = false;
  captured = calloc(1, sizeof *captured);
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *to) {
  (void)stream;
  *to = NULL;
  if (invalidated) {
    free(captured);
    captured = NULL;
    return INVALIDATED;
  }
  *to = captured;
  captured = NULL;
  return broken;
}

static void note_in(const char *variable, const char *name) {
  const char *path = getenv(variable);
  FILE *f = path ? fopen(path, "a") : NULL;
  if (f) {
    fprintf(f, "%s\n", name);
    fclose(f);
  }
}

/* What a call does beside launches, and whether the program's thread does it.
 */
static void note_work(const char *what) {
  char text[40];
  snprintf(text, sizeof text, "%s %s", what,
           syscall(SYS_gettid) == getpid() ? "call" : "thread");
  note_in("FAKE_WORK", text);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph g,
                                     unsigned long long flags) {
  graph *copy = malloc(sizeof *copy);
  (void)flags;
  note_work("graph");
  *copy = *g;
  *exec = (CUgraphExec)(void *)copy;
  return broken;
}

CUresult cuGraphDestroy(CUgraph g) {
  free(g);
  return broken;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  free(exec);
  return captured ? breaks_capture() : broken;
}

static CUresult wait_for_all(void) {
  if (captured)
    return breaks_capture();
  if (hangs)
    _exit(99);
  return broken;
}

CUresult cuDriverGetVersion(int *version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult e, const char **text) {
  *text = e == 700   ? "an illegal memory access was encountered"
          : e == 710 ? "device-side assert triggered"
          : e == 716 ? "misaligned address"
                     : "something else";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int room, CUdevice device) {
  (void)device;
  snprintf(name, (size_t)room, "Fake");
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what,
                              CUdevice device) {
  (void)device;
  *value = what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
               ? number_of("FAKE_MAJOR", 9)
           : what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
               ? number_of("FAKE_MINOR", 0)
           : what == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
               ? number_of("FAKE_SHARED", 227 << 10)
               : 8;
  return CUDA_SUCCESS;
}

/* --- memory --- */

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *all) {
  *all = total();
  *free_bytes = *all - used;
  return broken;
}

CUresult cuMemAddressReserve(CUdeviceptr *p, size_t bytes, size_t alignment,
                             CUdeviceptr wish, unsigned long long flags) {
  (void)alignment, (void)wish, (void)flags;
  void *memory = broken ? NULL : aligned_alloc(4096, bytes);
  if (!memory)
    return broken ? broken : CUDA_ERROR_OUT_OF_MEMORY;
  *p = (CUdeviceptr)(uintptr_t)memory;
  return CUDA_SUCCESS;
}

static void misuse(const char *what, CUdeviceptr p) {
  fprintf(stderr, "fake driver: %s at %#llx\n", what, (unsigned long long)p);
  _exit(98);
}

/* Bytes that are mapped from p to p + bytes. */
static size_t mapped_in(CUdeviceptr p, size_t bytes) {
  size_t there = 0;
  for (int i = 0; i < 2048; i++) {
    const segment *m = &mapped[i];
    CUdeviceptr first = m->at > p ? m->at : p;
    CUdeviceptr last =
        m->at + m->bytes < p + bytes ? m->at + m->bytes : p + bytes;
    there += m->at && first < last ? last - first : 0;
  }
  return there;
}

CUresult cuMemAddressFree(CUdeviceptr p, size_t bytes) {
  if (mapped_in(p, bytes))
    misuse("addresses freed with memory", p);
  free((void *)(uintptr_t)p);
  return broken;
}

CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  (void)flags;
  if (offset || mapped_in(p, bytes) || segments[handle].bytes != bytes)
    misuse("memory mapped over other memory", p);
  int i = 0;
  while (mapped[i].at)
    i++;
  mapped[i] = (segment){p, bytes, handle};
  return broken;
}

CUresult cuMemSetAccess(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *who,
                        size_t count) {
  (void)who, (void)count;
  if (mapped_in(p, bytes) != bytes)
    misuse("access to what is not mapped", p);
  return broken;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties,
                     unsigned long long flags) {
  note_work("memory");
  (void)properties, (void)flags;
  if (broken)
    return broken;
  if (bytes > total() - used)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (int i = 0; i < 1024; i++)
    if (!segments[i].bytes) {
      segments[i].bytes = bytes;
      used += bytes;
      *handle = (CUmemGenericAllocationHandle)i;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  for (int i = 0; i < 2048; i++)
    if (mapped[i].at && mapped[i].handle == handle)
      misuse("memory released that is mapped", mapped[i].at);
  if (!segments[handle].bytes)
    misuse("memory released twice", 0);
  used -= segments[handle].bytes;
  segments[handle].bytes = 0;
  return broken;
}

CUresult cuMemUnmap(CUdeviceptr p, size_t bytes) {
  int i = 0;
  while (i < 2048 && (mapped[i].at != p || mapped[i].bytes != bytes))
    i++;
  if (i == 2048)
    misuse("no memory to unmap", p);
  mapped[i].at = 0;
  return wait_for_all();
}

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes) {
  note_work("memory");
  *p = (CUdeviceptr)(uintptr_t)calloc(1, bytes);
  return broken;
}

CUresult cuMemFree_v2(CUdeviceptr p) {
  free((void *)(uintptr_t)p);
  return wait_for_all();
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
  (void)flags;
  *p = calloc(1, bytes);
  return broken;
}

CUresult cuMemFreeHost(void *p) {
  free(p);
  return wait_for_all();
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *p, void *host,
                                      unsigned flags) {
  (void)flags;
  *p = (CUdeviceptr)(uintptr_t)host;
  return broken;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
                              CUstream stream) {
  (void)stream;
  if (captured)
    return breaks_capture();
  if (!broken && !hangs)
    memcpy((void *)(uintptr_t)to, from, bytes);
  return broken;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes,
                              CUstream stream) {
  (void)stream;
  if (captured)
    return breaks_capture();
  if (!broken && !hangs)
    memcpy(to, (void *)(uintptr_t)from, bytes);
  return broken;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                              CUstream stream) {
  if (captured)
    return add((node){.to = to, .from = from, .bytes = bytes});
  return cuMemcpyHtoDAsync_v2(to, (void *)(uintptr_t)from, bytes, stream);
}

CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t bytes,
                         CUstream stream) {
  (void)stream;
  if (captured)
    return add((node){.to = p, .value = value, .bytes = bytes});
  if (!broken && !hangs)
    memset((void *)(uintptr_t)p, value, bytes);
  return broken;
}

/* --- waiting --- */

CUresult cuStreamQuery(CUstream stream) {
  (void)stream;
  if (captured)
    return breaks_capture();
  return hangs ? CUDA_ERROR_NOT_READY : broken;
}

/* --- time --- */

typedef struct CUevent_st {
  long at, launches;
} event;

static _Atomic long now, launches; /* nanoseconds of the device */

static long time_of(const char *name) {
  const char *times = getenv("FAKE_TIMES");
  size_t n = strlen(name);
  for (const char *at = times; at; at = strchr(at, ',')) {
    at += *at == ',';
    if (strncmp(at, name, n) == 0 && at[n] == ':')
      return atol(at + n + 1) * 1000;
  }
  return number_of("FAKE_TIME", 10) * 1000L;
}

CUresult cuEventCreate(CUevent *e, unsigned flags) {
  (void)flags;
  *e = calloc(1, sizeof **e);
  return broken;
}

CUresult cuEventDestroy_v2(CUevent e) {
  free(e);
  return broken;
}

CUresult cuEventRecord(CUevent e, CUstream stream) {
  (void)stream;
  *e = (event){now, launches};
  return broken;
}

CUresult cuEventQuery(CUevent e) {
  bool soon = launches < e->launches + number_of("FAKE_LAG", 0);
  return hangs || soon ? CUDA_ERROR_NOT_READY : broken;
}

CUresult cuStreamSynchronize(CUstream stream) {
  (void)stream;
  return wait_for_all();
}

CUresult cuEventSynchronize(CUevent event) {
  (void)event;
  return wait_for_all();
}

CUresult cuCtxSynchronize(void) {
  return wait_for_all();
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
  *ms = to->at == from->at ? 0.01f : (float)(to->at - from->at) * 1e-6f;
  return broken;
}

/* --- kernels: a function is its name, then, behind the 0, its file --- */

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  note_work("module");
  *module = (CUmodule)strndup(image, 63);
  return broken;
}

CUresult cuModuleUnload(CUmodule module) {
  free(module);
  return broken;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                             const char *name) {
  size_t n = strlen(name) + 1, n_file = strlen((char *)module) + 1;
  char *to = malloc(n + n_file);
  memcpy(to, name, n);
  memcpy(to + n, module, n_file);
  *function = (CUfunction)(void *)to;
  return broken;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute what,
                            CUfunction function) {
  (void)function;
  *value = what == 0 ? 1024 : 0;
  return broken;
}

/* As a driver refuses it: more shared memory than the chip has. */
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute what,
                            int value) {
  (void)function;
  if (what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
      value > number_of("FAKE_SHARED", 227 << 10))
    return CUDA_ERROR_INVALID_VALUE;
  return broken;
}

/* Nothing is asked of kernels: they cost nothing. */
static bool is_quiet(void) {
  static int quiet = -1;
  if (quiet < 0)
    quiet = !getenv("FAKE_LAUNCHED") && !getenv("FAKE_FAULT") &&
            !getenv("FAKE_HANG") && !getenv("FAKE_SHARED") &&
            !getenv("FAKE_BREAKS") && !getenv("FAKE_TIMES") &&
            !getenv("FAKE_TIME");
  return quiet;
}

static CUresult launch(CUfunction function, unsigned shared) {
  if (!captured)
    launches++;
  if (is_quiet() && !captured) {
    now += 10000;
    return broken;
  }
  const char *name = (const char *)function, *fault = getenv("FAKE_FAULT"),
             *hang = getenv("FAKE_HANG"),
             *code = fault ? strchr(fault, ':') : 0;
  const char *fatal = getenv("FAKE_BREAKS");
  if (captured && fatal && strcmp(name, fatal) == 0)
    invalidated = true;
  if (captured)
    return add((node){.name = name, .shared = shared});
  note_in("FAKE_LAUNCHED", name);
  now += time_of(name);
  if (broken)
    return broken;
  if (shared > (unsigned)number_of("FAKE_SHARED", 227 << 10))
    return CUDA_ERROR_INVALID_VALUE;
  if (code && strncmp(name, fault, (size_t)(code - fault)) == 0)
    broken = atoi(code + 1);
  if (hang && strcmp(name, hang) == 0)
    hangs = true;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z,
                        unsigned bx, unsigned by, unsigned bz, unsigned shared,
                        CUstream stream, void **params, void **extra) {
  (void)x, (void)y, (void)z, (void)bx, (void)by, (void)bz;
  (void)stream, (void)params, (void)extra;
  return launch(function, shared);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                          void **params, void **extra) {
  (void)params, (void)extra;
  for (unsigned i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id ==
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      const char *name = (const char *)function;
      char text[300];
      snprintf(text, sizeof text, "%s %s", name + strlen(name) + 1, name);
      note_in("FAKE_EARLY", text);
    }
  return launch(function, config->sharedMemBytes);
}

/* Says "set" and the kernel's name. */
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *p) {
  graph *g = (graph *)(void *)exec;
  uintptr_t k = (uintptr_t)node;
  char text[300];
  if (is_quiet())
    return broken;
  if (k == 0 || k > (uintptr_t)g->n || !g->nodes[k - 1].name ||
      strcmp(g->nodes[k - 1].name, (const char *)p->func) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  snprintf(text, sizeof text, "set %s", (const char *)p->func);
  note_in("FAKE_LAUNCHED", text);
  return broken;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  const graph *g = (const graph *)(void *)exec;
  if (captured)
    return breaks_capture();
  if (!is_quiet())
    note_in("FAKE_LAUNCHED", "graph");
  for (int i = 0; i < g->n && !broken; i++) {
    const node *n = &g->nodes[i];
    if (n->name && is_quiet())
      continue;
    if (n->name)
      launch((CUfunction)(void *)n->name, n->shared);
    else if (n->from)
      cuMemcpyDtoDAsync_v2(n->to, n->from, n->bytes, stream);
    else
      cuMemsetD8Async(n->to, n->value, n->bytes, stream);
  }
  return CUDA_SUCCESS;
}
