/* The CPU's thread pool by itself: every piece once, the same pieces for any
 * number of threads, sharing, calls from inside a piece, sleeping threads,
 * stopping. */
#include "check.h"

#include "../../kernels/cpu/cpu.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST 4096

typedef struct work {
  const fl_launch *launch;
  atomic_int times[MOST];
  _Atomic int64_t ends[MOST]; /* of the piece that begins here, else 0 */
  atomic_int stopped;
} work;

static fl_launch launch_on(fl_cpu_pool *pool, uint64_t seq) {
  return (fl_launch){.op = "test", .stream = (fl_stream *)pool, .seq = seq};
}

static void count(void *context, int64_t begin, int64_t end) {
  work *w = context;
  w->ends[begin] = end;
  for (int64_t i = begin; i < end; i++)
    w->times[i]++;
}

static void nested(void *context, int64_t begin, int64_t end) {
  work *w = context;
  for (int64_t i = begin; i < end; i++)
    fl_cpu_parallel(w->launch, MOST, 100, count, w);
}

static void ask(void *context, int64_t begin, int64_t end) {
  work *w = context;
  (void)begin;
  (void)end;
  if (fl_cpu_interrupted(w->launch))
    w->stopped++;
}

static bool yes(void *context) {
  atomic_int *asked = context;
  return ++*asked > 3;
}

static void check_pieces(fl_cpu_pool *pool, work *w) {
  fl_launch l = launch_on(pool, 0);
  srand(1);
  for (int round = 0; round < 3000; round++) {
    int64_t n = rand() % 300, grain = rand() % 40;
    int64_t step = grain ? grain : 1;
    memset(w, 0, sizeof *w);
    fl_cpu_parallel(&l, n, grain, count, w);
    bool right = true;
    for (int64_t i = 0; i < n + 1; i++) {
      int64_t end = i + step < n ? i + step : n;
      right = right && w->times[i] == (i < n) &&
              w->ends[i] == (i < n && i % step == 0 ? end : 0);
    }
    CHECK(right, "n %lld, grain %lld", (long long)n, (long long)grain);
    if (round % 500 == 0) /* longer than threads spin */
      nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  }
}

static void check_nested(fl_cpu_pool *pool, work *w) {
  fl_launch l = launch_on(pool, 0);
  memset(w, 0, sizeof *w);
  w->launch = &l;
  fl_cpu_parallel(&l, 10, 1, nested, w);
  bool right = true;
  for (int i = 0; i < MOST; i++)
    right = right && w->times[i] == 10;
  CHECK(right, "nested calls");
}

/* Piece 0 ends after all others, those of its own thread's share included. */
static void hold_first(void *context, int64_t begin, int64_t end) {
  work *w = context;
  time_t late = time(NULL) + 30;
  for (int64_t i = begin; i < end; i++) {
    while (i == 0 && w->stopped < 99 && time(NULL) < late)
      nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    w->times[i] = i == 0 ? w->stopped : ++w->stopped;
  }
}

static void check_sharing(fl_cpu_pool *pool, work *w) {
  fl_launch l = launch_on(pool, 0);
  memset(w, 0, sizeof *w);
  fl_cpu_parallel(&l, 100, 1, hold_first, w);
  CHECK(w->times[0] == 99, "others had done %d pieces", w->times[0]);
}

static void check_stopping(fl_cpu_pool *pool, work *w) {
  fl_launch l = launch_on(pool, 7);
  atomic_int asked = 0;
  fl_cpu_pool_on_interrupt(pool, yes, &asked);
  w->launch = &l;
  w->stopped = 0;
  fl_cpu_parallel(&l, 20, 1, ask, w);
  while (!fl_cpu_interrupted(&l))
    CHECK(asked < 4, "the launching thread asks");
  int before = asked;
  w->stopped = 0;
  fl_cpu_parallel(&l, 20, 1, ask, w);
  CHECK(w->stopped == 20 && asked == before, "the answer stays");
  CHECK(fl_cpu_stopped(&l) == FL_EINTERRUPT, "its status");
  fl_cpu_pool_on_interrupt(pool, NULL, NULL);
  l.seq++;
  CHECK(!fl_cpu_interrupted(&l), "the next launch goes on");
}

/* Long work stops, unless it writes over its input. */
static void check_stoppable(fl_cpu_pool *pool, work *w, int threads) {
  char x, y;
  fl_view in = {.data = &x}, out = {.data = &y};
  fl_launch l = launch_on(pool, 20);
  l.in = &in, l.out = &out, l.n_in = l.n_out = 1;
  atomic_int asked = 3;
  memset(w, 0, sizeof *w);
  fl_cpu_pool_on_interrupt(pool, yes, &asked);
  CHECK(fl_cpu_stoppable(&l, MOST, 1, count, w) == FL_EINTERRUPT, "stops");
  CHECK(threads > 1 || w->times[0] == 0, "before the first piece");
  memset(w, 0, sizeof *w);
  l.seq++;
  out.data = &x;
  CHECK(fl_cpu_stoppable(&l, MOST, 1, count, w) == FL_OK, "goes on");
  bool right = true;
  for (int i = 0; i < MOST; i++)
    right = right && w->times[i] == 1;
  CHECK(right, "to the end");
  fl_cpu_pool_on_interrupt(pool, NULL, NULL);
}

int main(void) {
  static work w;
  for (int threads = 1; threads <= 4; threads++) {
    fl_cpu_pool *pool;
    CHECK(fl_cpu_pool_open(threads, &pool) == FL_OK, "open");
    CHECK(fl_cpu_pool_threads(pool) == threads, "threads");
    check_pieces(pool, &w);
    check_nested(pool, &w);
    if (threads > 1)
      check_sharing(pool, &w);
    check_stopping(pool, &w);
    check_stoppable(pool, &w, threads);
    fl_cpu_pool_close(pool);
  }
  check_pieces(NULL, &w);
  for (int i = 0; i < 50; i++) { /* closing while threads start, spin, sleep */
    fl_cpu_pool *pool;
    CHECK(fl_cpu_pool_open(3, &pool) == FL_OK, "open");
    fl_launch l = launch_on(pool, 0);
    memset(&w, 0, sizeof w);
    if (i % 2)
      fl_cpu_parallel(&l, 8, 1, count, &w);
    if (i % 10 == 0)
      nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    fl_cpu_pool_close(pool);
  }
  return check_done("pool");
}
