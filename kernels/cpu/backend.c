/* The CPU as a backend: picks the kernel table of the best instruction set that
 * this CPU runs, owns the thread pool, and gets memory from the system. */
#include "cpu.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

typedef struct cpu {
  fl_backend base;
  fl_cpu_pool *pool;
  const fl_cpu_entry *table;
  int next; /* entries are asked for in their own order */
} cpu;

#define FL_TABLE(isa)                                                          \
  extern const fl_cpu_entry FL_PASTE3(fl_cpu_, isa, table)[];
#ifdef FL_HAVE_v2
FL_TABLE(v2)
#endif
#ifdef FL_HAVE_v3
FL_TABLE(v3)
#endif
#ifdef FL_HAVE_v4
FL_TABLE(v4)
#endif
#ifdef FL_HAVE_plain
FL_TABLE(plain)
#endif

static const fl_cpu_entry *choose_table(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
#ifdef FL_HAVE_v4
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd"))
    return fl_cpu_v4_table;
#endif
#ifdef FL_HAVE_v3
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2"))
    return fl_cpu_v3_table;
#endif
#ifdef FL_HAVE_v2
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt"))
    return fl_cpu_v2_table;
#endif
#endif
#ifdef FL_HAVE_plain
  return fl_cpu_plain_table;
#else
  return NULL;
#endif
}

static int device_count(fl_backend *b) {
  (void)b;
  return 1;
}

static fl_kernel find_kernel(fl_backend *b, const char *op) {
  cpu *c = (cpu *)b;
  for (int from = c->next, turn = 0; turn < 2; turn++, from = 0)
    for (int i = from; c->table[i].name; i++)
      if (strcmp(c->table[i].name, op) == 0) {
        c->next = i + 1;
        return c->table[i].kernel;
      }
  return NULL;
}

/* Segments from the size of a huge page on are mapped, at a multiple of it, and
 * asked for in huge pages: in small ones most tensors miss the TLB. */
#define HUGE ((size_t)2 << 20)

#if defined(__linux__)
static void *map_huge(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  bytes = (bytes + page - 1) / page * page;
  char *all = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED)
    return NULL;
  size_t before = -(uintptr_t)all & (HUGE - 1);
  if (before)
    munmap(all, before);
  if (before < HUGE)
    munmap(all + before + bytes, HUGE - before);
  madvise(all + before, bytes, MADV_HUGEPAGE);
  return all + before;
}
#endif

static fl_status get_memory(fl_backend *b, int device, size_t bytes,
                            void **memory) {
  (void)b;
  (void)device;
#if defined(__linux__)
  if (bytes >= HUGE)
    *memory = map_huge(bytes);
  else
#endif
    *memory =
        aligned_alloc(FL_ALIGN, (bytes + FL_ALIGN - 1) / FL_ALIGN * FL_ALIGN);
  return *memory ? FL_OK
                 : fli_fail(FL_ENOMEM, "the system has no %zu bytes to give",
                            bytes);
}

static void put_memory(fl_backend *b, int device, void *memory, size_t bytes) {
  (void)b;
  (void)device;
  (void)bytes;
#if defined(__linux__)
  if (bytes >= HUGE) {
    munmap(memory, bytes);
    return;
  }
#endif
  free(memory);
}

static fl_status memory_info(fl_backend *b, int device, size_t *free_bytes,
                             size_t *total) {
  (void)b;
  (void)device;
#if defined(__linux__)
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  *free_bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) * page;
  *total = (size_t)sysconf(_SC_PHYS_PAGES) * page;
  return FL_OK;
#else
  *free_bytes = *total = 0;
  return fli_fail(FL_EUNSUPPORTED, "memory_info: not known on this system");
#endif
}

static fl_status copy_bytes(fl_backend *b, int device, fl_stream *s,
                            fl_copy_kind kind, void *to, int from_device,
                            const void *from, size_t bytes) {
  (void)b;
  (void)device;
  (void)s;
  (void)kind;
  (void)from_device;
  memcpy(to, from, bytes);
  return FL_OK;
}

/* A launch's stream is the pool that it may use. */
static fl_status stream_new(fl_backend *b, int device, fl_stream **s) {
  (void)device;
  *s = (fl_stream *)((cpu *)b)->pool;
  return FL_OK;
}

static fl_status control(fl_backend *b, const char *what, double value) {
  fl_cpu_pool *pool = ((cpu *)b)->pool;
  if (strcmp(what, "threads") != 0)
    return fli_fail(FL_EARG, "cpu: there is no '%s' to set, only 'threads'",
                    what);
  if (!(value >= 1 && value <= FL_CPU_MOST_THREADS))
    return fli_fail(FL_EARG, "cpu: threads must be from 1 to %d, got %g",
                    FL_CPU_MOST_THREADS, value);
  fl_cpu_pool_resize(pool, (int)value);
  return FL_OK;
}

static void close_cpu(fl_backend *b) {
  fl_cpu_pool_close(((cpu *)b)->pool);
  free(b);
}

fl_status fl_cpu_open(const fl_backend_options *o, fl_backend *none,
                      fl_backend **out) {
  (void)none;
  cpu *c = calloc(1, sizeof *c);
  if (!c)
    return fli_fail(FL_ENOMEM, "out of memory: the CPU backend");
  c->table = choose_table();
  fl_status s =
      c->table ? fl_cpu_pool_open(o->threads, &c->pool)
               : fli_fail(FL_EUNSUPPORTED, "this CPU is older than x86-64-v2");
  if (s) {
    free(c);
    return s;
  }
  fl_cpu_pool_on_interrupt(c->pool, o->interrupted, o->context);
  c->base = (fl_backend){
      .struct_size = sizeof(fl_backend),
      .name = "cpu",
      .flags = FL_BACKEND_HOST,
      .device_count = device_count,
      .kernel = find_kernel,
      .alloc = get_memory,
      .release = put_memory,
      .memory_info = memory_info,
      .copy = copy_bytes,
      .stream_new = stream_new,
      .control = control,
      .close = close_cpu,
  };
  *out = &c->base;
  return FL_OK;
}
