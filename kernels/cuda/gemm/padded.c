/* Products of 16-bit matrices whose sizes are no multiples of 8. Tensor cores
 * read lines of 16 bytes; for other sizes the library takes kernels that are 2
 * to 6 times slower. Operands are copied with zeros behind the elements of
 * their lines, and what is computed for these is left out. */
#include "product.h"
#include "padded.h"

#define LINE  8    /* elements of 16 bytes */
#define PAYS  256  /* multiply-adds for each element that is copied */
#define LEAST 32   /* of each size: smaller ones have kernels of their own */
#define TALL  1024 /* rows of C, from which the last few are worth a launch */

static int64_t pad_up(int64_t n) {
  return fl_ceil_div(n, LINE) * LINE;
}

static fl_status pad_lines(const fl_launch *l, const lines_args *a) {
  int64_t chunks = fl_ceil_div(a->width, LINE) + 1;
  int64_t warps = fl_ceil_div(chunks, 32);
  unsigned block = 32 * (unsigned)(warps < 8 ? warps : 8);
  flc_grid g = {.x = (unsigned)fl_ceil_div(chunks, block),
                .y = (unsigned)(a->lines < 65535 ? a->lines : 65535),
                .block = block};
  flc_spec spec = FLC_SPEC("padded", "copy", 2);
  return FLC_RUN(l, spec, g, *a);
}

/* An operand (rows, k): its memory and strides. */
typedef struct padded {
  const void *data;
  int64_t rows, k, down, along;
  bool runs; /* lines are along k */
} padded;

static bool pad_describe(padded *x) {
  x->runs = x->along == 1;
  return x->along == 1 || x->down == 1;
}

static int64_t pad_step(const padded *x) {
  return x->runs ? x->down : x->along;
}

static bool pad_aligned(const padded *x) {
  return flc_aligned(x->data, 16) && pad_step(x) % LINE == 0;
}

/* A copy of x as (rows, k), both at least its own. */
static fl_status pad_operand(const fl_launch *l, padded *x, int64_t rows,
                             int64_t k) {
  lines_args a = {.from = x->data,
                  .lines = x->runs ? rows : k,
                  .from_lines = x->runs ? x->rows : x->k,
                  .width = pad_up(x->runs ? k : rows),
                  .length = x->runs ? x->k : x->rows,
                  .from_step = pad_step(x)};
  a.step = a.width;
  a.to = fl_scratch_get(l, (size_t)(a.lines * a.width) * 2);
  if (!a.to)
    return FL_ENOMEM;
  x->data = a.to;
  x->down = x->runs ? a.width : 1;
  x->along = x->runs ? 1 : a.width;
  return pad_lines(l, &a);
}

/* A copy of the bias, of n elements, with room for those of p. */
static fl_status pad_bias(const fl_launch *l, flc_product *p, int64_t n) {
  size_t size = fl_dtype_size(p->bias_dtype);
  void *to = fl_scratch_get(l, (size_t)p->n * size);
  if (!to)
    return FL_ENOMEM;
  const void *from = p->bias;
  p->bias = to;
  return flc_copy(l, to, from, (size_t)n * size);
}

/* C of whole lines, then what is left of m rows. */
static fl_status pad_multiply(const fl_launch *l, flc_product *p, bool across) {
  int64_t rest = p->m % LINE;
  if (!across || rest == 0 || p->m < TALL || p->behind || p->bias_down)
    return flc_multiply(l, p);
  flc_product q = *p;
  int64_t done = p->m - rest;
  size_t size = fl_dtype_size(p->add ? p->sum : p->dtype);
  q.m = done;
  fl_status s = flc_multiply(l, &q);
  q = *p;
  q.m = rest;
  q.a = (const char *)p->a + done * 2;
  q.c = (char *)p->c + (size_t)(done * p->n) * size;
  if (p->pre)
    q.pre = (char *)p->pre + done * p->n * 2;
  return s ? s : flc_multiply(l, &q);
}

static fl_status pad_run(const fl_launch *l, const flc_product *p, padded *a,
                         padded *b, const bool copies[2]) {
  flc_product q = *p;
  bool apart = p->n % LINE != 0;
  q.k = pad_up(p->k);
  q.n = pad_up(p->n);
  fl_status s = copies[0] ? pad_operand(l, a, p->m, q.k) : FL_OK;
  if (s == FL_OK && copies[1])
    s = pad_operand(l, b, q.n, q.k);
  if (s == FL_OK && apart && p->bias)
    s = pad_bias(l, &q, p->n);
  if (s == FL_OK && apart &&
      !(q.c = fl_scratch_get(l, (size_t)(p->m * q.n) * 2)))
    s = FL_ENOMEM;
  if (s)
    return s;
  q.a = a->data;
  q.am = a->down;
  q.ak = a->along;
  q.b = b->data;
  q.bn = b->down;
  q.bk = b->along;
  s = pad_multiply(l, &q, !a->runs);
  if (s || !apart)
    return s;
  lines_args out = {.from = q.c,
                    .to = p->c,
                    .lines = p->m,
                    .from_lines = p->m,
                    .width = p->n,
                    .length = p->n,
                    .step = p->n,
                    .from_step = q.n};
  return pad_lines(l, &out);
}

bool flc_product_padded(const fl_launch *l, const flc_product *p,
                        fl_status *s) {
  padded a = {p->a, p->m, p->k, p->am, p->ak, false},
         b = {p->b, p->n, p->k, p->bn, p->bk, false};
  bool odd_k = p->k % LINE != 0, odd_n = p->n % LINE != 0;
  if (fl_dtype_size(p->dtype) != 2 || p->dims > 0 || p->apart || p->m < LEAST ||
      p->n < LEAST || p->k < LEAST || !pad_describe(&a) || !pad_describe(&b))
    return false;
  bool odd_m = !a.runs && p->m % LINE != 0;
  if ((!odd_k && !odd_n && !odd_m) ||
      (odd_n && (p->add || p->pre || p->behind || p->bias_down)))
    return false;
  bool copies[2] = {odd_k || !pad_aligned(&a),
                    odd_k || odd_n || !pad_aligned(&b)};
  double m = (double)p->m, n = (double)p->n, k = (double)p->k;
  double moved =
      (copies[0] ? m * k : 0) + (copies[1] ? n * k : 0) + (odd_n ? m * n : 0);
  if (m * n * k < PAYS * moved || (odd_m && !odd_k && !odd_n && p->m < TALL))
    return false;
  *s = pad_run(l, p, &a, &b, copies);
  return true;
}

void flc_visit_padded(flc_visitor *v) {
  flc_spec s = FLC_SPEC("padded", "copy", 2);
  v->spec(v, &s, true);
}
