/* The caching allocator when memory runs out: limits, a backend that refuses,
 * the host's reclaiming, injected failures, the message; and frees that come
 * from other threads, and the trace. */
#include "check.h"

#include "../../runtime/memory/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static size_t taken, room = SIZE_MAX; /* of the backend */

static fl_status take(fl_backend *b, int device, size_t bytes, void **memory) {
  (void)b, (void)device;
  if (bytes > room - taken || posix_memalign(memory, FL_ALIGN, bytes))
    return fli_fail(FL_ENOMEM, "no memory");
  taken += bytes;
  return FL_OK;
}

static void release(fl_backend *b, int device, void *memory, size_t bytes) {
  (void)b, (void)device;
  taken -= bytes;
  free(memory);
}

static fl_backend backend = {.struct_size = sizeof backend,
                             .name = "cpu",
                             .flags = FL_BACKEND_HOST,
                             .alloc = take,
                             .release = release};

/* What stands for a host with garbage: blocks that reclaiming frees. */
typedef struct garbage {
  fl_runtime *rt;
  fli_block *block[4];
  int n, calls;
  bool nested;
} garbage;

static bool collect(void *context, fl_device d, size_t bytes) {
  garbage *g = context;
  (void)d, (void)bytes;
  g->calls++;
  if (g->nested) { /* finalisers may allocate, too */
    fli_block *b;
    void *memory;
    CHECK(fli_alloc(g->rt, 0, 64 * MIB, 0, &b, &memory) == FL_ENOMEM);
  }
  if (g->n)
    fli_free(g->rt, g->block[--g->n]);
  return true;
}

static void drain_nothing(fl_runtime *rt) {
  (void)rt;
}

static void no_kernels(fl_runtime *rt, int k) {
  (void)rt, (void)k;
}

static int spared; /* how often memory that can be done without was asked for */

static void spare_nothing(fl_runtime *rt, fl_device d) {
  (void)rt;
  CHECK(d == 0);
  spared++;
}

static const fli_upcalls upcalls = {
    .drain = drain_nothing, .kernels = no_kernels, .spare = spare_nothing};

static void open_runtime(fl_runtime *rt, garbage *g) {
  memset(rt, 0, sizeof *rt);
  rt->up = &upcalls;
  rt->backends[0] = rt->cpu = &backend;
  rt->n_backends = rt->n_devices[0] = 1;
  rt->owner = fli_self();
  if (g) {
    memset(g, 0, sizeof *g);
    g->rt = rt;
    rt->options.reclaim = collect;
    rt->options.context = g;
  }
  rt->budget = fli_budget_new();
  CHECK(rt->budget != NULL);
  CHECK(fli_sites_open(rt) == FL_OK);
  CHECK(fli_alloc_open(rt) == FL_OK);
}

static void close_runtime(fl_runtime *rt) {
  fli_alloc_close(rt);
  fli_sites_close(rt);
  fl_budget_release(rt->budget);
  CHECK(taken == 0, "%zu bytes not given back", taken);
}

static fl_status get(fl_runtime *rt, size_t bytes, fli_block **b) {
  void *memory = NULL;
  fl_status s = fli_alloc(rt, 0, bytes, 0, b, &memory);
  if (s == FL_OK)
    memset(memory, 1, bytes);
  return s;
}

static void test_limit(void) {
  static fl_runtime rt;
  fli_block *b[3];
  open_runtime(&rt, NULL);
  fl_memory_limit(&rt, 0, 10 * MIB);
  CHECK(get(&rt, 8 * MIB, &b[0]) == FL_OK);
  CHECK(spared == 0);
  CHECK(get(&rt, 4 * MIB, &b[1]) == FL_ENOMEM);
  CHECK(spared == 1);
  CHECK(strstr(fl_error(), "out of memory on cpu: asked for 4.19 MB; live "
                           "8.39 MB in 1 blocks, reserved 8."),
        "%s", fl_error());
  CHECK(strstr(fl_error(), "limit 10.5 MB"), "%s", fl_error());
  CHECK(strstr(fl_error(), "8.39 MB ?"), "%s", fl_error());
  CHECK(get(&rt, MIB, &b[1]) == FL_OK); /* smaller ones still fit */
  CHECK(get(&rt, 1000, &b[2]) == FL_OK);
  fli_free(&rt, b[2]);
  fli_free(&rt, b[1]);
  fli_free(&rt, b[0]);
  CHECK(get(&rt, 10 * MIB, &b[0]) == FL_OK); /* to the last byte */
  CHECK(get(&rt, 1, &b[1]) == FL_ENOMEM);
  fli_free(&rt, b[0]);
  fl_memory_limit(&rt, 0, 1000); /* gives back what is over */
  CHECK(taken == 0);
  CHECK(get(&rt, 512, &b[0]) == FL_OK);
  CHECK(get(&rt, 1000, &b[1]) == FL_ENOMEM);
  CHECK(taken <= 1000);
  fli_free(&rt, b[0]);
  fl_memory_limit(&rt, 0, 0);
  CHECK(get(&rt, 20 * MIB, &b[0]) == FL_OK);
  CHECK(get(&rt, SIZE_MAX, &b[1]) == FL_ENOMEM);
  CHECK(get(&rt, SIZE_MAX / 2, &b[1]) == FL_ENOMEM);
  close_runtime(&rt);
}

/* Many blocks under a tight limit: what is free in other pools counts, too. */
static void test_tight(void) {
  static fl_runtime rt;
  static fli_block *b[4000];
  open_runtime(&rt, NULL);
  fl_memory_limit(&rt, 0, 40 * MIB);
  int n = 0;
  while (n < 4000 && get(&rt, 60 << 10, &b[n]) == FL_OK)
    n++;
  CHECK(n >= 600, "%d blocks", n); /* of 682 */
  for (int i = 0; i < n; i++)
    fli_free(&rt, b[i]);
  n = 0;
  while (n < 4000 && get(&rt, 700 << 10, &b[n]) == FL_OK)
    n++;
  CHECK(n >= 54, "%d blocks", n); /* of 58 */
  for (int i = 0; i < n; i++)
    fli_free(&rt, b[i]);
  CHECK(get(&rt, 39 * MIB, &b[0]) == FL_OK);
  close_runtime(&rt);
}

static void test_reclaim(void) {
  static fl_runtime rt;
  garbage g;
  fli_block *b;
  open_runtime(&rt, &g);
  fl_memory_limit(&rt, 0, 40 * MIB);
  CHECK(get(&rt, 18 * MIB, &g.block[0]) == FL_OK);
  CHECK(get(&rt, 18 * MIB, &g.block[1]) == FL_OK);
  g.n = 2;
  g.nested = true;
  CHECK(get(&rt, 20 * MIB, &b) == FL_OK); /* one collection is enough */
  CHECK(g.calls == 1 && g.n == 1, "%d calls", g.calls);
  CHECK(get(&rt, 30 * MIB, &g.block[1]) == FL_ENOMEM); /* two are not */
  CHECK(g.calls == 3 && g.n == 0, "%d calls", g.calls);
  fli_free(&rt, b);
  CHECK(get(&rt, 30 * MIB, &b) == FL_OK);
  CHECK(g.calls == 3);
  close_runtime(&rt);
}

static void test_backend_refuses(void) {
  static fl_runtime rt;
  fli_block *b, *c;
  open_runtime(&rt, NULL);
  room = 5 * MIB;
  CHECK(get(&rt, 4 * MIB, &b) == FL_OK); /* less than a usual segment */
  CHECK(get(&rt, 2 * MIB, &c) == FL_ENOMEM);
  CHECK(strstr(fl_error(), "limit none"), "%s", fl_error());
  fli_free(&rt, b);
  CHECK(get(&rt, 5 * MIB, &c) == FL_OK); /* the cache is given up for it */
  fl_memory_stats s;
  fl_memory_get(&rt, 0, &s);
  CHECK(s.flushes > 0 && s.reserved == 5 * MIB);
  room = SIZE_MAX;
  close_runtime(&rt);
}

static void test_injection(void) {
  static fl_runtime rt;
  garbage g;
  fli_block *b[5];
  open_runtime(&rt, &g);
  fl_memory_fail(&rt, 0, 0);
  CHECK(get(&rt, 100, &b[0]) == FL_OK);
  void *p = fli_malloc(&rt, 10);
  fli_mfree(p);
  CHECK(fl_memory_fail(&rt, 2, 2) == 2);
  CHECK(get(&rt, 100, &b[1]) == FL_OK);
  CHECK((p = fli_malloc(&rt, 10)) != NULL);
  fli_mfree(p);
  CHECK(get(&rt, 100, &b[2]) == FL_ENOMEM);
  CHECK(strstr(fl_error(), "injected"), "%s", fl_error());
  CHECK(fli_malloc(&rt, 10) == NULL);
  CHECK(strstr(fl_error(), "injected"), "%s", fl_error());
  CHECK(get(&rt, 100, &b[2]) == FL_OK);
  CHECK(fl_memory_fail(&rt, 0, -1) == 5);
  for (int i = 0; i < 10; i++)
    CHECK(get(&rt, (size_t)i * MIB, &b[3]) == FL_ENOMEM);
  CHECK(fli_fail_now(&rt));
  fl_memory_fail(&rt, 0, 0);
  CHECK(!fli_fail_now(&rt));
  CHECK(get(&rt, MIB, &b[3]) == FL_OK);
  CHECK(g.calls == 0); /* an injected failure is one for good */
  fl_memory_stats s;
  fl_memory_get(&rt, 0, &s);
  CHECK(s.blocks == 4 && s.live == MIB + 300);
  close_runtime(&rt);
}

/* --- other threads --- */

enum { THREADS = 3, EACH = 20000 };
static fli_block *handed[THREADS][EACH];
static fl_runtime shared;

static void *free_all(void *mine) {
  fli_block **b = mine;
  for (int i = 0; i < EACH; i++)
    fli_free(&shared, b[i]);
  return NULL;
}

static void test_threads(void) {
  pthread_t thread[THREADS];
  open_runtime(&shared, NULL);
  for (int t = 0; t < THREADS; t++) {
    for (int i = 0; i < EACH; i++)
      CHECK(get(&shared, (size_t)(i % 300) * 16, &handed[t][i]) == FL_OK);
    CHECK(pthread_create(&thread[t], NULL, free_all, handed[t]) == 0);
  }
  for (int i = 0; i < 200000; i++) { /* and the owner goes on */
    fli_block *b;
    CHECK(get(&shared, (size_t)(i % 100) * 32, &b) == FL_OK);
    fli_free(&shared, b);
  }
  for (int t = 0; t < THREADS; t++)
    pthread_join(thread[t], NULL);
  fl_memory_stats s;
  fl_memory_get(&shared, 0, &s);
  CHECK(s.blocks == 0 && s.live == 0, "%zu blocks", s.blocks);
  fl_memory_flush(&shared, 0);
  CHECK(taken == 0);
  close_runtime(&shared);
}

/* --- the trace --- */

static size_t traced, most, events;

static void note(void *context, fl_device d, int64_t bytes, size_t live) {
  (void)context;
  CHECK(d == 0);
  events++;
  if (bytes >= 0) {
    CHECK(live == traced);
    traced += (size_t)bytes;
    most = traced > most ? traced : most;
  } else {
    traced -= (size_t)-bytes;
    CHECK(live == traced);
  }
}

static void test_trace(void) {
  static fl_runtime rt;
  fli_block *a, *b;
  open_runtime(&rt, NULL);
  fl_memory_trace(&rt, note, NULL);
  get(&rt, 1000, &a);
  get(&rt, MIB, &b);
  fli_free(&rt, a);
  get(&rt, 100, &a);
  fli_free(&rt, b);
  fl_memory_trace(&rt, NULL, NULL);
  fli_free(&rt, a);
  CHECK(events == 5 && traced == 100 && most == MIB + 1000);
  close_runtime(&rt);
}

int main(void) {
  test_limit();
  test_tight();
  test_reclaim();
  test_backend_refuses();
  test_injection();
  test_threads();
  test_trace();
  return check_done("alloc_failure");
}
