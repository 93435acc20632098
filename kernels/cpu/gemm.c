/* The matrix product over the threads of a launch: C is cut into blocks by
 * shape alone, and each is computed on one thread (gemm_typed.h). Long sums
 * over a C too small to cut are cut themselves, and added up in order. */

#include "gemm.h"

#include <math.h>

/* Multiply-adds that pay for handing them to a thread. */
#define UNIT 131072
/* Steps of a sum between two looks at whether the user wants to stop. */
#define K_PIECE 2048
/* C that one block covers at most: its part of A and B stays in an L2 cache. */
#define BLOCK_AREA (320.0 * 256.0)
/* Columns of a block of packed B: 256 steps of them are half an L2 cache. */
#define PACKED_COLUMNS 512
/* B is packed before when the work is so much (below, to fetch what another
 * core has packed costs more than to pack it again), so many bytes at a time.
 */
#define PACK_WORK  (2048 * (int64_t)UNIT)
#define PACK_BYTES (32 << 20)
/* A sum is cut when C has at most so many elements ... */
#define SPLIT_AREA 4096
#define SPLIT_SIDE 256
/* ... into at most so many parts of at least so many steps. */
#define SPLIT_PARTS 16
#define SPLIT_STEPS 1024

typedef struct cut {
  int64_t rows, cols; /* of a block */
  int64_t down, across;
} cut;

typedef struct job {
  const fl_launch *launch;
  const fl_cpu_product *product;
  fl_dtype dtype;
  cut cut;
  int64_t k;         /* steps of the sum in one part */
  int64_t pack;      /* columns of B in one piece of the packing */
  unsigned char *to; /* of parts: one m x n block for each */
} job;

static int64_t quotient_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/* What a cut costs, in multiply-adds of one step of the sum: whole vectors of
 * columns are computed, each block puts its own B in order (or fetches it, or
 * of few rows reads it where it lies) and reads A. An odd number of blocks
 * leaves one of two threads waiting. */
static double cost(const cut *c, bool tb, bool packed) {
  double rows = (double)c->rows, cols = (double)(quotient_up(c->cols, 16) * 16);
  double blocks = (double)(c->down * c->across);
  double read_b = packed ? 1 : tb ? 6 : 2, read_a = packed ? 2 : 0.5;
  double strips = packed ? 1 : ceil(cols / 128);
  if (!packed && !tb && c->rows <= 2 * FL_TILE_ROWS)
    read_b = 0.5;
  double each = rows * cols + read_b * cols + read_a * rows * strips;
  bool odd = c->down * c->across % 2 && blocks > 1;
  return each * (odd ? blocks + 1 : blocks);
}

/* About the square root of the work, in units that pay for a thread, so that
 * blocks and their number grow together. */
static int64_t count_blocks(const fl_cpu_product *p) {
  double area = (double)p->m * (double)p->n, work = area * (double)p->k;
  int64_t thin = p->m < p->n ? p->m : p->n;
  if (thin < 8) /* bound by memory: more time for less work */
    work *= 8 / (double)thin;
  int64_t blocks = 1;
  while (blocks < 32 && (double)(blocks * blocks) * 2 * UNIT <= work)
    blocks *= 2;
  while (area / (double)blocks > BLOCK_AREA)
    blocks *= 2;
  return blocks;
}

static cut cut_c(const fl_cpu_product *p, bool packed) {
  cut best = {p->m, p->n, 1, 1};
  int64_t blocks = count_blocks(p);
  double least = INFINITY;
  if (blocks == 1)
    return best;
  for (int64_t across = 1; across <= blocks; across *= 2) {
    cut c;
    c.cols = quotient_up(quotient_up(p->n, across), 32) * 32;
    if (packed && c.cols > PACKED_COLUMNS)
      c.cols = PACKED_COLUMNS;
    c.across = quotient_up(p->n, c.cols);
    c.rows = quotient_up(p->m, blocks > c.across ? blocks / c.across : 1);
    c.rows = c.rows < 4 ? 4 : c.rows;
    c.down = quotient_up(p->m, c.rows);
    double now = cost(&c, p->tb, packed);
    if (now < least) {
      least = now;
      best = c;
    }
    if (c.cols == 32)
      break;
  }
  return best;
}

static void run(fl_dtype dtype, const fl_cpu_product *p) {
  if (dtype == FL_F64)
    FL_CPU(product_f64)(p);
  else
    FL_CPU(product_f32)(p);
}

static const void *at(const void *base, fl_dtype dtype, int64_t elements) {
  return (const char *)base + elements * (int64_t)fl_dtype_size(dtype);
}

/* Block i, j of C over steps p .. p + k of the sum. */
static fl_cpu_product part_of(const job *g, int64_t i, int64_t j, int64_t p,
                              int64_t k) {
  fl_cpu_product b = *g->product;
  int64_t row = i * g->cut.rows, col = j * g->cut.cols;
  b.m = b.m - row < g->cut.rows ? b.m - row : g->cut.rows;
  b.n = b.n - col < g->cut.cols ? b.n - col : g->cut.cols;
  b.k = k;
  b.a = at(b.a, g->dtype, b.ta ? p * b.lda + row : row * b.lda + p);
  b.b = at(b.b, g->dtype, b.tb ? col * b.ldb + p : p * b.ldb + col);
  b.c = (void *)at(b.c, g->dtype, row * b.ldc + col);
  if (b.packed)
    b.packed = at(b.packed, g->dtype, p * b.packed_cols);
  b.i0 += row;
  b.j0 += col;
  return b;
}

static void blocks_task(void *context, int64_t begin, int64_t end) {
  const job *g = context;
  int64_t k = g->product->k, piece = K_PIECE;
  if (g->product->packed) /* whole steps */
    piece = K_PIECE / g->product->step * g->product->step;
  bool packed = g->product->packed; /* then B stays in the cache, else A */
  for (int64_t t = begin; t < end; t++) {
    int64_t i = packed ? t % g->cut.down : t / g->cut.across;
    int64_t j = packed ? t / g->cut.down : t % g->cut.across;
    for (int64_t p = 0; p < k || p == 0; p += piece) {
      if (fl_cpu_interrupted(g->launch))
        return;
      int64_t now = k - p < piece ? k - p : piece;
      fl_cpu_product b = part_of(g, i, j, p, now);
      b.add = b.add || p;
      if (p + now < k)
        b.done = NULL;
      run(g->dtype, &b);
    }
  }
}

static fl_status in_blocks(job *g) {
  fl_cpu_parallel(g->launch, g->cut.down * g->cut.across, 1, blocks_task, g);
  return fl_cpu_interrupted(g->launch) ? fl_cpu_stopped(g->launch) : FL_OK;
}

/* --- packed before --- */

/* Piece t: some columns of one step. */
static void pack_task(void *context, int64_t begin, int64_t end) {
  const job *g = context;
  const fl_cpu_product *p = g->product;
  int64_t groups = quotient_up(p->n, g->pack);
  for (int64_t t = begin; t < end && !fl_cpu_interrupted(g->launch); t++) {
    int64_t from = t / groups * p->step, col = t % groups * g->pack;
    int64_t k = p->k - from < p->step ? p->k - from : p->step;
    int64_t cols = p->n - col < g->pack ? p->n - col : g->pack;
    const void *b =
        at(p->b, g->dtype, p->tb ? col * p->ldb + from : from * p->ldb + col);
    void *to = (void *)at(p->packed, g->dtype, from * p->packed_cols + col * k);
    if (g->dtype == FL_F64)
      FL_CPU(product_pack_f64)(p->tb, k, cols, b, p->ldb, to);
    else
      FL_CPU(product_pack_f32)(p->tb, k, cols, b, p->ldb, to);
  }
}

/* In rounds of as many steps as PACK_BYTES hold. */
static fl_status with_packed(job *g, const fl_cpu_product *whole) {
  fl_cpu_product p = *whole;
  int64_t steps = quotient_up(p.k, FL_PACK_STEPS);
  p.step = quotient_up(quotient_up(p.k, steps), 16) * 16;
  p.packed_cols = quotient_up(p.n, FL_PACK_COLUMNS) * FL_PACK_COLUMNS;
  int64_t row = p.packed_cols * (int64_t)fl_dtype_size(g->dtype);
  int64_t round = PACK_BYTES / (row * p.step) * p.step;
  round = p.k < round ? p.k : round;
  void *packed = fl_scratch_get(g->launch, (size_t)(round * row));
  if (!packed)
    return FL_ENOMEM;
  g->product = &p;
  g->cut = cut_c(whole, true);
  g->pack = 4 * FL_PACK_COLUMNS;
  for (int64_t from = 0; from < whole->k; from += round) {
    p.k = whole->k - from < round ? whole->k - from : round;
    p.a = at(whole->a, g->dtype, p.ta ? from * p.lda : from);
    p.b = at(whole->b, g->dtype, p.tb ? from : from * p.ldb);
    p.add = whole->add || from;
    p.done = from + p.k == whole->k ? whole->done : NULL;
    p.packed = packed;
    fl_cpu_parallel(g->launch,
                    quotient_up(p.k, p.step) * quotient_up(p.n, g->pack), 1,
                    pack_task, g);
    fl_status s = in_blocks(g);
    if (s != FL_OK)
      return s;
  }
  return FL_OK;
}

/* Worth it when B would be packed again for other rows of C. */
static bool pays_to_pack(const fl_cpu_product *p, const cut *c,
                         fl_dtype dtype) {
  int64_t step =
      (p->n + FL_PACK_COLUMNS) * FL_PACK_STEPS * (int64_t)fl_dtype_size(dtype);
  int64_t more = p->n % 32;
  return c->down > 1 && p->n >= 64 && p->k >= 64 && step <= PACK_BYTES &&
         (double)p->m * (double)p->n * (double)p->k >= (double)PACK_WORK &&
         (more == 0 || more > 4 || p->n > 512);
}

/* --- cut sums --- */

static void parts_task(void *context, int64_t begin, int64_t end) {
  const job *g = context;
  const fl_cpu_product *all = g->product;
  for (int64_t t = begin; t < end; t++) {
    int64_t from = t * g->k, to = from + g->k < all->k ? from + g->k : all->k;
    for (int64_t p = from; p < to && !fl_cpu_interrupted(g->launch);
         p += K_PIECE) {
      int64_t now = to - p < K_PIECE ? to - p : K_PIECE;
      fl_cpu_product b = part_of(g, 0, 0, p, now);
      b.c = (void *)at(g->to, g->dtype, t * all->m * all->n);
      b.ldc = all->n;
      b.add = p > from;
      b.done = NULL;
      run(g->dtype, &b);
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

static fl_status split(job *g, int64_t parts) {
  const fl_cpu_product *p = g->product;
  g->k = quotient_up(p->k, parts);
  parts = quotient_up(p->k, g->k);
  g->cut = (cut){p->m, p->n, 1, 1};
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
    run(dtype, p);
    return FL_OK;
  }
  job g = {.launch = l, .product = p, .dtype = dtype};
  int64_t parts = p->k / SPLIT_STEPS;
  if (parts > 1 && p->m <= SPLIT_SIDE && p->n <= SPLIT_SIDE &&
      p->m * p->n <= SPLIT_AREA)
    return split(&g, parts < SPLIT_PARTS ? parts : SPLIT_PARTS);
  g.cut = cut_c(p, false);
  return pays_to_pack(p, &g.cut, dtype) ? with_packed(&g, p) : in_blocks(&g);
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
