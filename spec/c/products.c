/* The CPU's matrix products, those of every instruction set that this machine
 * has: against plain sums, at all the sizes where the code takes another way;
 * the same bits for any number of threads; every block of the result told once.
 */
#include "check.h"

#include "../../runtime/flare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FL_ISA v2
#include "../../kernels/cpu/gemm.h"
#include "../../kernels/cpu/isa.h"
typedef fl_cpu_product product;

#define DECLARE(isa)                                                           \
  __attribute__((weak)) void fl_cpu_##isa##_product_f32(const product *p);     \
  __attribute__((weak)) void fl_cpu_##isa##_product_f64(const product *p);     \
  __attribute__((weak)) fl_status fl_cpu_##isa##_product(                      \
      const fl_launch *l, fl_dtype dtype, const product *p);
DECLARE(v2)
DECLARE(v3)
DECLARE(v4)
DECLARE(plain)

typedef struct isa {
  const char *name;
  int level;
  void (*f32)(const product *p);
  void (*f64)(const product *p);
  fl_status (*threaded)(const fl_launch *l, fl_dtype dtype, const product *p);
} isa;
#define ISA(isa, level)                                                        \
  {                                                                            \
#isa, level, fl_cpu_##isa##_product_f32, fl_cpu_##isa##_product_f64,       \
        fl_cpu_##isa##_product                                                 \
  }

static bool runs(const isa *s) {
  return s->f32 && s->level <= fl_cpu_level();
}

static double value(fl_dtype d, const void *p, int64_t i) {
  return d == FL_F64 ? ((const double *)p)[i] : ((const float *)p)[i];
}

static void *values(fl_dtype d, int64_t n) {
  void *p = malloc((size_t)(n ? n : 1) * (d == FL_F64 ? 8 : 4));
  for (int64_t i = 0; i < n; i++) {
    double x = rand() / (double)RAND_MAX - 0.5;
    if (d == FL_F64)
      ((double *)p)[i] = x;
    else
      ((float *)p)[i] = (float)x;
  }
  return p;
}

/* Memory for rows of a matrix that ends with its last element. */
static int64_t extent(int64_t rows, int64_t cols, int64_t ld) {
  return rows ? (rows - 1) * ld + cols : 0;
}

typedef struct told {
  int64_t n;
  unsigned char *times;
} told;

static void tell(void *context, int64_t i, int64_t rows, int64_t j,
                 int64_t cols) {
  told *t = context;
  for (int64_t r = i; r < i + rows; r++)
    for (int64_t c = j; c < j + cols; c++)
      t->times[r * t->n + c]++;
}

/* The largest error in units of what rounding explains, of large products over
 * some of the elements; before: C as it was. */
static double error(fl_dtype d, const product *p, const void *before) {
  double unit = d == FL_F64 ? 0x1p-53 : 0x1p-24, worst = 0;
  bool large = (double)p->m * (double)p->n * (double)p->k > 3e7;
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t j = large ? i % 97 : 0; j < p->ldc; j += large ? 97 : 1) {
      int64_t at = i * p->ldc + j;
      if (j >= p->n && i == p->m - 1)
        break;
      double got = value(d, p->c, at), sum = 0, size = 0;
      if (j >= p->n) { /* between the rows: not to be touched */
        worst = got == value(d, before, at) ? worst : INFINITY;
        continue;
      }
      for (int64_t q = 0; q < p->k; q++) {
        double x = value(d, p->a, p->ta ? q * p->lda + i : i * p->lda + q),
               y = value(d, p->b, p->tb ? j * p->ldb + q : q * p->ldb + j);
        sum += x * y;
        size += fabs(x * y);
      }
      if (p->add) {
        sum += value(d, before, at);
        size += fabs(value(d, before, at));
      }
      double e = fabs(got - sum) /
                 (2 * unit * (2 + sqrt((double)p->k)) * size + 1e-300);
      if (!(e <= worst))
        worst = e;
    }
  return worst;
}

static void one(const isa *s, fl_dtype d, product p, const fl_launch *l) {
  int64_t na = p.ta ? p.k : p.m, nb = p.tb ? p.n : p.k, wa = p.ta ? p.m : p.k,
          wb = p.tb ? p.k : p.n;
  p.lda += wa;
  p.ldb += wb;
  p.ldc += p.n;
  int64_t size = extent(p.m, p.n, p.ldc);
  void *a = values(d, extent(na, wa, p.lda)),
       *b = values(d, extent(nb, wb, p.ldb)), *before = values(d, size);
  size_t bytes = (size_t)size * (d == FL_F64 ? 8 : 4);
  p.a = a;
  p.b = b;
  p.c = malloc(bytes + 1);
  memcpy(p.c, before, bytes);
  told t = {p.n, calloc((size_t)(p.m * p.n) + 1, 1)};
  p.done = tell;
  p.context = &t;
  fl_status status = FL_OK;
  if (l)
    status = s->threaded(l, d, &p);
  else
    (d == FL_F64 ? s->f64 : s->f32)(&p);
  double e = error(d, &p, before);
  bool once = true;
  for (int64_t i = 0; i < p.m * p.n; i++)
    once = once && t.times[i] == 1;
  CHECK(status == FL_OK && e <= 1 && once,
        "%s %s%s%s m %d n %d k %d ld %d %d %d%s: error %g%s", s->name,
        d == FL_F64 ? "f64" : "f32", p.ta ? " ta" : "", p.tb ? " tb" : "",
        (int)p.m, (int)p.n, (int)p.k, (int)p.lda, (int)p.ldb, (int)p.ldc,
        p.add ? " add" : "", e, once ? "" : ", blocks not told once");
  free(a);
  free(b);
  free(before);
  free(p.c);
  free(t.times);
}

static int any(const int *from, int n) {
  return from[rand() % n];
}

static void check_sizes(const isa *s, fl_dtype d) {
  static const int sides[] = {0,  1,  2,  3,  4,  5,   6,  7,  8,
                              9,  13, 14, 15, 16, 17,  28, 29, 31,
                              32, 33, 48, 64, 65, 100, 130},
                   sums[] = {0,  1,  2,   7,   8,   15,  16,  17,
                             33, 64, 100, 255, 256, 257, 300, 520},
                   more[] = {0, 0, 0, 1, 3, 16};
  for (int i = 0; i < 1500; i++) {
    product p = {.ta = rand() % 2,
                 .tb = rand() % 2,
                 .add = rand() % 2,
                 .m = any(sides, 25),
                 .n = any(sides, 25),
                 .k = any(sums, 16),
                 .lda = any(more, 6),
                 .ldb = any(more, 6),
                 .ldc = any(more, 6)};
    one(s, d, p, NULL);
  }
  /* long sums; rows of A that share a set of the cache */
  for (int i = 0; i < 4; i++) {
    product p = {.ta = i & 1, .tb = i >> 1, .m = 3, .n = 70, .k = 2100};
    one(s, d, p, NULL);
    p = (product){.ta = i & 1, .tb = i >> 1, .m = 1, .n = 1100, .k = 1030};
    one(s, d, p, NULL);
    p = (product){.ta = i & 1, .tb = i >> 1, .m = 1030, .n = 1, .k = 1100};
    one(s, d, p, NULL);
    p = (product){.ta = i & 1, .tb = i >> 1, .m = 40, .n = 140, .k = 1024};
    one(s, d, p, NULL);
  }
}

/* --- over threads --- */

typedef struct arena {
  fl_scratch base;
  void *block;
} arena;

static void *arena_get(fl_scratch *base, size_t bytes) {
  arena *a = (arena *)base;
  free(a->block);
  return a->block = malloc(bytes);
}

static void check_threads(const isa *s, fl_cpu_pool *const pools[3]) {
  static const int shapes[][3] = {
      {128, 128, 128},  {768, 65, 128}, {1, 700, 300},   {700, 1, 300},
      {17, 19, 9000},   {300, 5, 600},  {4, 4, 20000},   {0, 5, 5},
      {5, 5, 0},        {200, 333, 70}, {150, 517, 300}, {700, 650, 620},
      {1100, 1068, 300}};
  for (int i = 0; i < 13; i++)
    for (int form = 0; form < 4; form++) {
      int m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
      product p = {.ta = form & 1,
                   .tb = form >> 1,
                   .add = i % 2,
                   .m = m,
                   .n = n,
                   .k = k};
      arena memory = {{.get = arena_get}, NULL};
      fl_launch l = {.op = "matmul",
                     .scratch = &memory.base,
                     .stream = (fl_stream *)pools[1]};
      one(s, FL_F32, p, &l);
      p.lda = p.ta ? m : k;
      p.ldb = p.tb ? k : n;
      p.ldc = n;
      size_t bytes = (size_t)(m * n) * 4;
      float *a = values(FL_F32, m * k), *b = values(FL_F32, n * k);
      float *c = calloc(3, bytes + 1);
      p.a = a;
      p.b = b;
      for (int t = 0; t < 3; t++) {
        p.c = (char *)c + (size_t)t * bytes;
        l.stream = (fl_stream *)pools[t];
        CHECK(s->threaded(&l, FL_F32, &p) == FL_OK, "threads");
      }
      CHECK(memcmp(c, (char *)c + bytes, bytes) == 0 &&
                memcmp(c, (char *)c + 2 * bytes, bytes) == 0,
            "%s: %d x %d x %d: bits depend on threads", s->name, m, n, k);
      free(a);
      free(b);
      free(c);
      free(memory.block);
    }
}

int main(void) {
  /* brings in the kernels of all instruction sets */
  fl_runtime *rt;
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK, "runtime");
  fl_runtime_close(rt);
  const isa all[] = {ISA(v2, 2), ISA(v3, 3), ISA(v4, 4), ISA(plain, 0)};
  fl_cpu_pool *pools[3] = {NULL};
  CHECK(fl_cpu_pool_open(2, &pools[1]) == FL_OK, "pool");
  CHECK(fl_cpu_pool_open(3, &pools[2]) == FL_OK, "pool");
  srand(1);
  int ran = 0;
  for (int i = 0; i < 4; i++) {
    if (!runs(&all[i]))
      continue;
    ran++;
    check_sizes(&all[i], FL_F32);
    check_sizes(&all[i], FL_F64);
    check_threads(&all[i], pools);
  }
  CHECK(ran > 0, "no instruction set");
  fl_cpu_pool_close(pools[1]);
  fl_cpu_pool_close(pools[2]);
  return check_done("products");
}
