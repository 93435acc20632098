/* The matrix product over the threads of a launch: C is cut into a few blocks
 * for each thread, and each block is computed on one (gemm_typed.c). How C is
 * cut changes no bit of it. Long sums over a C too small to cut are cut
 * themselves, by shape alone, and added up in order. */

#include "gemm.h"
#include "slots.h"

#include <math.h>

/* Multiply-adds that pay for handing them to a thread. */
#define UNIT 131072
/* Steps of a sum between two looks at whether the user wants to stop. */
#define K_PIECE 2048
/* Multiply-adds of one block: more would keep other threads waiting for the
 * last one, and the user who wants to stop. */
#define BLOCK_WORK ((double)(1 << 27))
#define BLOCK_AREA (1024.0 * 1024.0)
/* Rows of C that a block has at least, so that none is one of the thin ones. */
#define BLOCK_ROWS 32
/* A sum is cut when C has at most so many elements ... */
#define SPLIT_AREA 4096
#define SPLIT_SIDE 256
/* ... into at most so many parts of at least so many steps. */
#define SPLIT_PARTS 16
#define SPLIT_STEPS 1024

/* C in down x across blocks of nearly the same size. */
typedef struct cut {
  int64_t down, across;
} cut;

typedef struct job {
  const fl_launch *launch;
  const fl_cpu_product *product;
  fl_dtype dtype;
  cut cut;
  tile_slots rooms;
  int64_t k;         /* steps of the sum in one part */
  unsigned char *to; /* of parts: one m x n block for each */
} job;

/* Where block i of n begins among `size` rows, or columns in units. */
static int64_t gemm_begin(int64_t size, int64_t i, int64_t n, int64_t unit) {
  int64_t units = size / unit;
  return i == n ? size : units * i / n * unit;
}

/* What a cut costs, in multiply-adds of one step of the sum: whole vectors of
 * columns are computed, each block puts its own B in order (or reads it where
 * it lies) and reads A, and there are rounds of a block for each thread. */
static double cost(const fl_cpu_product *p, const cut *c, int threads,
                   double read_a, double read_b) {
  double rows = (double)fl_ceil_div(p->m, c->down);
  double cols = (double)(fl_ceil_div(fl_ceil_div(p->n, c->across), 16) * 16);
  double each = rows * cols + read_b * cols + read_a * rows;
  return each * (double)fl_ceil_div(c->down * c->across, threads);
}

/* Blocks that pay: a few for each thread if the work is long enough. */
static int64_t count_blocks(const fl_cpu_product *p, int threads) {
  double area = (double)p->m * (double)p->n, work = area * (double)p->k;
  int64_t thin = p->m < p->n ? p->m : p->n, blocks = threads;
  if (thin < 8) /* bound by memory: more time for less work */
    work *= 8 / (double)thin;
  while (blocks > 1 && work < (double)blocks * UNIT)
    blocks /= 2;
  while (threads > 1 && blocks < 4 * threads &&
         work > (double)blocks * BLOCK_WORK)
    blocks *= 2;
  while (area > (double)blocks * BLOCK_AREA)
    blocks *= 2;
  return blocks;
}

static cut cut_c(const fl_cpu_product *p, int threads) {
  cut best = {1, 1};
  int64_t blocks = count_blocks(p, threads);
  int64_t most = p->n / FL_STRIP_UNIT > 1 ? p->n / FL_STRIP_UNIT : 1;
  double least = INFINITY, read_a = 10, read_b = p->tb ? 12 : 10;
  for (int64_t across = 1; across <= blocks && across <= most; across++) {
    cut c = {blocks / across, across};
    if (c.down > p->m / BLOCK_ROWS)
      c.down = p->m < BLOCK_ROWS ? 1 : p->m / BLOCK_ROWS;
    double now = cost(p, &c, threads, read_a, read_b);
    if (now < least) {
      least = now;
      best = c;
    }
  }
  return best;
}

static void gemm_run(fl_dtype dtype, const fl_cpu_product *p) {
  if (dtype == FL_F64)
    FL_CPU(product_f64)(p);
  else
    FL_CPU(product_f32)(p);
}

static const void *gemm_at(const void *base, fl_dtype dtype, int64_t elements) {
  return (const char *)base + elements * (int64_t)fl_dtype_size(dtype);
}

/* Block i, j of C over steps p .. p + k of the sum. */
static fl_cpu_product part_of(const job *g, int64_t i, int64_t j, int64_t p,
                              int64_t k) {
  fl_cpu_product b = *g->product;
  int64_t row = gemm_begin(b.m, i, g->cut.down, 1),
          col = gemm_begin(b.n, j, g->cut.across, FL_STRIP_UNIT);
  b.m = gemm_begin(b.m, i + 1, g->cut.down, 1) - row;
  b.n = gemm_begin(b.n, j + 1, g->cut.across, FL_STRIP_UNIT) - col;
  b.k = k;
  b.a = gemm_at(b.a, g->dtype, b.ta ? p * b.lda + row : row * b.lda + p);
  if (!b.packed)
    b.b = gemm_at(b.b, g->dtype, b.tb ? col * b.ldb + p : p * b.ldb + col);
  b.c = (void *)gemm_at(b.c, g->dtype, row * b.ldc + col);
  b.i0 += row;
  b.j0 += col;
  return b;
}

static void blocks_task(void *context, int64_t first, int64_t end) {
  job *g = context;
  int64_t k = g->product->k, piece = g->product->packed ? k : K_PIECE;
  void *room = g->rooms.memory ? tile_slot_take(&g->rooms) : NULL;
  for (int64_t t = first; t < end; t++) {
    int64_t i = t % g->cut.down, j = t / g->cut.down;
    for (int64_t p = 0; p < k || p == 0; p += piece) {
      if (fl_cpu_interrupted(g->launch))
        break;
      int64_t now = k - p < piece ? k - p : piece;
      fl_cpu_product b = part_of(g, i, j, p, now);
      b.add = b.add || p;
      if (p + now < k)
        b.done = NULL;
      b.room = room;
      gemm_run(g->dtype, &b);
    }
  }
  if (room)
    tile_slot_give(&g->rooms, room);
}

/* Columns of B for which a thread has room, as many in each strip: half its L2
 * cache. */
static int64_t room_cols(const fl_launch *l, fl_dtype dtype, int64_t cols) {
  size_t cache = fl_cpu_pool_cache((const fl_cpu_pool *)l->stream);
  int64_t column = FL_STRIP_STEPS * (int64_t)fl_dtype_size(dtype);
  int64_t strips = fl_ceil_div(cols * column, (int64_t)(cache / 2));
  return fl_ceil_div(fl_ceil_div(cols, strips), FL_STRIP_UNIT) * FL_STRIP_UNIT;
}

static fl_status in_blocks(job *g, const fl_cpu_product *whole) {
  fl_cpu_product p = *whole;
  int64_t row = p.ldb * (int64_t)fl_dtype_size(g->dtype);
  bool in_place =
      p.packed || (!p.tb && row <= FL_CLOSE_ROWS && FL_TILE_ROWS == 14);
  int threads = fl_cpu_pool_threads((const fl_cpu_pool *)g->launch->stream);
  g->product = &p;
  g->cut = cut_c(&p, threads);
  int64_t blocks = g->cut.down * g->cut.across;
  if (!in_place) {
    int64_t units = fl_ceil_div(p.n / FL_STRIP_UNIT, g->cut.across);
    p.room_cols = room_cols(g->launch, g->dtype,
                            units * FL_STRIP_UNIT + p.n % FL_STRIP_UNIT);
    int64_t steps = p.k < FL_STRIP_STEPS ? p.k : FL_STRIP_STEPS;
    size_t bytes = (size_t)(p.room_cols * steps + 1) * fl_dtype_size(g->dtype);
    if (!tile_slots_open(g->launch, &g->rooms, blocks, bytes))
      return FL_ENOMEM;
  }
  fl_cpu_parallel(g->launch, blocks, 1, blocks_task, g);
  return fl_cpu_interrupted(g->launch) ? fl_cpu_stopped(g->launch) : FL_OK;
}

/* --- cut sums --- */

static void parts_task(void *context, int64_t gemm_begin, int64_t end) {
  const job *g = context;
  const fl_cpu_product *all = g->product;
  for (int64_t t = gemm_begin; t < end; t++) {
    int64_t from = t * g->k, to = from + g->k < all->k ? from + g->k : all->k;
    for (int64_t p = from; p < to && !fl_cpu_interrupted(g->launch);
         p += K_PIECE) {
      int64_t now = to - p < K_PIECE ? to - p : K_PIECE;
      fl_cpu_product b = part_of(g, 0, 0, p, now);
      b.c = (void *)gemm_at(g->to, g->dtype, t * all->m * all->n);
      b.ldc = all->n;
      b.add = p > from;
      b.done = NULL;
      gemm_run(g->dtype, &b);
    }
  }
}

static void add_parts(const job *g, int64_t parts) {
  const fl_cpu_product *p = g->product;
  int64_t size = p->m * p->n;
  for (int64_t i = 0; i < size; i++) {
    int64_t to = i / p->n * p->ldc + i % p->n;
    if (g->dtype == FL_F64) {
      const double *from = (const double *)(const void *)g->to + i;
      double s = p->add ? ((double *)p->c)[to] : 0;
      for (int64_t t = 0; t < parts; t++)
        s += from[t * size];
      ((double *)p->c)[to] = s;
    } else {
      const float *from = (const float *)(const void *)g->to + i;
      float s = p->add ? ((float *)p->c)[to] : 0;
      for (int64_t t = 0; t < parts; t++)
        s += from[t * size];
      ((float *)p->c)[to] = s;
    }
  }
  if (p->done)
    p->done(p->context, p->i0, p->m, p->j0, p->n);
}

static fl_status gemm_split(job *g, int64_t parts) {
  const fl_cpu_product *p = g->product;
  g->k = fl_ceil_div(p->k, parts);
  parts = fl_ceil_div(p->k, g->k);
  g->cut = (cut){1, 1};
  g->to = fl_scratch_get(g->launch, (size_t)(parts * p->m * p->n) *
                                        fl_dtype_size(g->dtype));
  if (!g->to)
    return FL_ENOMEM;
  fl_cpu_parallel(g->launch, parts, 1, parts_task, g);
  if (fl_cpu_interrupted(g->launch))
    return fl_cpu_stopped(g->launch);
  add_parts(g, parts);
  return FL_OK;
}

fl_status FL_CPU(product)(const fl_launch *l, fl_dtype dtype,
                          const fl_cpu_product *p) {
  if (p->m <= 0 || p->n <= 0)
    return FL_OK;
  if (p->m < 256 && p->n < 256 && p->k < 256 && p->m * p->n * p->k < 2 * UNIT) {
    gemm_run(dtype, p);
    return FL_OK;
  }
  job g = {.launch = l, .product = p, .dtype = dtype};
  int64_t parts = p->k / SPLIT_STEPS;
  if (parts > 1 && !p->packed && p->m <= SPLIT_SIDE && p->n <= SPLIT_SIDE &&
      p->m * p->n <= SPLIT_AREA)
    return gemm_split(&g, parts < SPLIT_PARTS ? parts : SPLIT_PARTS);
  return in_blocks(&g, p);
}

fl_status FL_CPU(gemm)(const fl_launch *l, fl_dtype dtype, bool ta, bool tb,
                       int64_t m, int64_t n, int64_t k, const void *a,
                       int64_t lda, const void *b, int64_t ldb, bool add,
                       void *c, int64_t ldc) {
  fl_cpu_product p = {.ta = ta,
                      .tb = tb,
                      .add = add,
                      .m = m,
                      .n = n,
                      .k = k,
                      .a = a,
                      .lda = lda,
                      .b = b,
                      .ldb = ldb,
                      .c = c,
                      .ldc = ldc};
  return FL_CPU(product)(l, dtype, &p);
}
