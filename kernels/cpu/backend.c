/* The CPU as a backend: picks the kernel table of the best instruction set that
 * this CPU runs, owns the thread pool, and gets memory from the system. */
#include "cpu.h"
#include "isa.h"
#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

/* One instruction set that kernels are compiled for. */
typedef struct isa {
  const char *name; /* in FLARE_ISAS and FLARE_ISA */
  int level;        /* that the CPU must have: isa.h */
  const fl_cpu_entry *table;
} isa;

#define FL_TABLE(isa)                                                          \
  extern const fl_cpu_entry FL_PASTE3(fl_cpu_, isa, table)[];
FL_TABLE(v4)
FL_TABLE(v3)
FL_TABLE(v2)
FL_TABLE(plain)
static const isa isas[] = {
/* those that this build has, the best first */
#ifdef FL_HAVE_v4
    {"v4", 4, fl_cpu_v4_table},
#endif
#ifdef FL_HAVE_v3
    {"v3", 3, fl_cpu_v3_table},
#endif
#ifdef FL_HAVE_v2
    {"v2", 2, fl_cpu_v2_table},
#endif
#ifdef FL_HAVE_plain
    {"plain", 0, fl_cpu_plain_table},
#endif
};
enum { ISAS = sizeof isas / sizeof *isas };

typedef struct cpu {
  fl_backend base;
  fl_cpu_pool *pool;
  const isa *isa;
  int next; /* entries are asked for in their own order */
} cpu;

static void list_isas(char *list, size_t room) {
  *list = 0;
  for (int k = 0; k < ISAS; k++)
    snprintf(list + strlen(list), room - strlen(list), "%s%s", k ? ", " : "",
             isas[k].name);
}

/* The instruction set that is asked for, or NULL for the best of this CPU. */
static fl_status choose_isa(const char *asked, const isa **chosen) {
  static const char *const levels[] = {"no x86-64", "older than x86-64-v2",
                                       "x86-64-v2 (SSE4.2)", "x86-64-v3 (AVX2)",
                                       "x86-64-v4 (AVX-512)"};
  int level = fl_cpu_level();
  bool known = !asked;
  for (int k = 0; k < ISAS; k++)
    if (!asked || strcmp(isas[k].name, asked) == 0) {
      known = true;
      if (isas[k].level <= level) {
        *chosen = &isas[k];
        return FL_OK;
      }
    }
  if (known && asked)
    return fli_fail(FL_EUNSUPPORTED, "FLARE_ISA is %s, and this CPU is %s",
                    asked, levels[level]);
  char list[64];
  list_isas(list, sizeof list);
  if (asked)
    return fli_fail(FL_EARG,
                    "FLARE_ISA is \"%s\", and this flare has kernels for %s; "
                    "cmake -D FLARE_ISAS=all builds all",
                    asked, list);
  return fli_fail(FL_EUNSUPPORTED,
                  "this CPU is %s, and this flare has kernels for %s: build it "
                  "on this machine, or with cmake -D FLARE_ISAS=all",
                  levels[level], list);
}

static int device_count(fl_backend *b) {
  (void)b;
  return 1;
}

static fl_kernel find_kernel(fl_backend *b, const char *op) {
  cpu *c = (cpu *)b;
  for (int from = c->next, turn = 0; turn < 2; turn++, from = 0)
    for (int i = from; c->isa->table[i].name; i++)
      if (strcmp(c->isa->table[i].name, op) == 0) {
        c->next = i + 1;
        return c->isa->table[i].kernel;
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

static fl_status query(fl_backend *b, const char *what, const char *argument,
                       char **text) {
  (void)argument;
  if (strcmp(what, "doctor") != 0)
    return fli_fail(FL_EARG, "cpu: there is no '%s' to ask for, only 'doctor'",
                    what);
  char list[64], line[128];
  list_isas(list, sizeof list);
  snprintf(line, sizeof line, "kernels  %s (built: %s)\n",
           ((cpu *)b)->isa->name, list);
  *text = strdup(line);
  return *text ? FL_OK : fli_fail(FL_ENOMEM, "out of memory: a report");
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
  const char *asked = getenv("FLARE_ISA");
  fl_status s = choose_isa(asked && *asked ? asked : NULL, &c->isa);
  if (!s)
    s = fl_cpu_pool_open(o->threads, &c->pool);
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
      .query = query,
      .close = close_cpu,
  };
  *out = &c->base;
  return FL_OK;
}
