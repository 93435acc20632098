/* padded.c beside plain products: random sizes, layouts and alignments, of
 * small integers, whose sums are exact. What is multiplied must suit tensor
 * cores; memory is as large as it must be, for AddressSanitizer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PRODUCT */

void host_copy(const lines_args *a, unsigned x, unsigned y, unsigned block);

static void *scratch[16];
static int n_scratch, n_split;
static bool suits;

size_t fl_dtype_size(fl_dtype d) {
  return d == FL_F32 ? 4 : 2;
}

static void *room_get(fl_scratch *s, size_t bytes) {
  (void)s;
  return scratch[n_scratch++] = aligned_alloc(16, (bytes + 15) / 16 * 16);
}

fl_status flc_run(const fl_launch *l, const flc_spec *spec, flc_grid grid,
                  const void *args, size_t bytes) {
  (void)l, (void)spec, (void)bytes;
  host_copy(args, grid.x, grid.y ? grid.y : 1, grid.block);
  return FL_OK;
}

fl_status flc_copy(const fl_launch *l, void *to, const void *from,
                   size_t bytes) {
  (void)l;
  memcpy(to, from, bytes);
  return FL_OK;
}

static float value(const void *p, int64_t i) {
  uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
  float v;
  memcpy(&v, &bits, 4);
  return v;
}

static void put(void *p, int64_t i, float v) {
  uint32_t bits;
  memcpy(&bits, &v, 4);
  ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
}

static void plain(const flc_product *p) {
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t j = 0; j < p->n; j++) {
      float sum = p->bias ? ((const float *)p->bias)[j] : 0;
      for (int64_t k = 0; k < p->k; k++)
        sum += value(p->a, i * p->am + k * p->ak) *
               value(p->b, k * p->bk + j * p->bn);
      if (p->add)
        ((float *)p->c)[i * p->n + j] += sum;
      else
        put(p->c, i * p->n + j, sum);
    }
}

static bool fits(const void *p, int64_t rows, int64_t down, int64_t along) {
  int64_t step = along == 1 ? down : along;
  return (uintptr_t)p % 16 == 0 && step % 8 == 0 && step >= 0 && rows >= 0;
}

fl_status flc_multiply(const fl_launch *l, flc_product *p) {
  (void)l;
  bool rest = p->m < 8 && p->ak != 1;
  n_split += rest;
  suits = suits && p->k % 8 == 0 && p->n % 8 == 0 &&
          (p->ak == 1 || rest || p->m % 8 == 0 || p->m < TALL) &&
          fits(p->a, p->m, p->am, p->ak) && fits(p->b, p->n, p->bn, p->bk);
  plain(p);
  return FL_OK;
}

static uint32_t state = 1;
static int draw(int n) {
  state = state * 1664525 + 1013904223;
  return (int)((state >> 8) % (unsigned)n);
}

/* (rows, k) in lines of exactly `step` elements, the last one shorter. */
static void *operand(int64_t rows, int64_t k, bool runs, int64_t *down,
                     int64_t *along, void **all) {
  int64_t lines = runs ? rows : k, length = runs ? k : rows,
          step = length + draw(3) * draw(9), skew = draw(3) ? 0 : draw(8),
          n = skew + (lines - 1) * step + length;
  uint16_t *p = malloc((size_t)n * 2);
  for (int64_t i = 0; i < n; i++)
    put(p, i, (float)(draw(5) - 2));
  *down = runs ? step : 1;
  *along = runs ? 1 : step;
  *all = p;
  return p + skew;
}

int main(void) {
  fl_scratch room = {.get = room_get};
  fl_launch l = {.scratch = &room};
  int taken = 0, bad = 0;
  for (int round = 0; round < 1000; round++) {
    flc_product p = {.dtype = FL_BF16, .sum = FL_BF16};
    void *a, *b;
    p.m = 2 + draw(60);
    p.n = 2 + draw(60);
    p.k = 2 + draw(60);
    p.a = operand(p.m, p.k, draw(2), &p.am, &p.ak, &a);
    p.b = operand(p.n, p.k, draw(2), &p.bn, &p.bk, &b);
    p.add = draw(4) == 0;
    p.sum = p.add ? FL_F32 : FL_BF16;
    size_t bytes = (size_t)(p.m * p.n) * (p.add ? 4 : 2);
    float *bias = malloc((size_t)p.n * 4);
    for (int j = 0; j < p.n; j++)
      bias[j] = (float)(draw(5) - 2);
    if (!p.add && draw(2)) {
      p.bias = bias;
      p.bias_dtype = FL_F32;
    }
    flc_product q = p;
    p.c = calloc(1, bytes);
    q.c = calloc(1, bytes);
    fl_status s = FL_OK;
    suits = true;
    if (flc_product_padded(&l, &p, &s)) {
      taken++;
      plain(&q);
      if (s != FL_OK || !suits || memcmp(p.c, q.c, bytes) != 0) {
        bad++;
        printf("bad: %d x %d x %d, strides %d %d, %d %d, add %d, suits %d\n",
               (int)p.m, (int)p.n, (int)p.k, (int)p.am, (int)p.ak, (int)p.bk,
               (int)p.bn, p.add, suits);
      }
    }
    while (n_scratch > 0)
      free(scratch[--n_scratch]);
    free(p.c);
    free(q.c);
    free(bias);
    free(a);
    free(b);
  }
  printf("products %s, the last rows apart %s, bad %d\n",
         taken > 700 ? "taken" : "not taken", n_split > 30 ? "taken" : "never",
         bad);
  return bad != 0;
}
