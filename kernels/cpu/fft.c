/* Discrete Fourier transforms of any length along one dim: Stockham's passes of
 * radix 4, 2 and odd primes, several lines side by side, or one that is split
 * into as many, or a long one as two dims; lengths with a large prime go by
 * Bluestein's chirp. Complex numbers are pairs in the last dim. Real input of
 * even length is a complex transform of half of it. */
#include "fft.h"

#include <math.h>
#include <string.h>

#if TILE_BYTES == 64
#include "fft_lanes.h"
#endif

/* Pairs in double, as the type computed in. */
static void *fft_kept(const fl_launch *l, int64_t n, double *pairs, bool wide) {
  float *f = wide ? NULL : fl_scratch_get(l, (size_t)(2 * n) * sizeof *f);
  for (int64_t i = 0; f && i < 2 * n; i++)
    f[i] = (float)pairs[i];
  return wide ? (void *)pairs : f;
}

/* For the first `count` powers of the n-th root. */
static bool make_powers(const fl_launch *l, int64_t n, int64_t count,
                        powers *p) {
  p->log = 0;
  while ((int64_t)1 << 2 * p->log < count)
    p->log++;
  int64_t low = (int64_t)1 << p->log, high = (count - 1) / low + 1;
  double *a = fl_scratch_get(l, (size_t)(2 * (low + high)) * sizeof(double));
  if (!(p->a = a))
    return false;
  for (int64_t i = 0; i < low; i++)
    fli_root(i % n, n, a + 2 * i);
  p->b = a += 2 * low;
  for (int64_t i = 0; i < high; i++)
    fli_root(i * low % n, n, a + 2 * i);
  return true;
}

/* `count` first powers of the n-th root: products of two short tables. */
static void *all_roots(const fl_launch *l, int64_t n, int64_t count, bool wide,
                       double **pairs) {
  powers p;
  double *y = fl_scratch_get(l, (size_t)(2 * count) * sizeof(double));
  if (!y || !make_powers(l, n, count, &p))
    return NULL;
  for (int64_t i = 0; i < count; i++)
    power(&p, i, y + 2 * i);
  *pairs = y;
  return fft_kept(l, count, y, wide);
}

/* false: a factor is too large. */
static bool factorize(plan *p) {
  p->far = p->n + APART;
  p->n_factors = fli_factors(p->n, p->factors);
  return p->n_factors >= 0;
}

/* A part of a plan: every step-th of the roots is its own. */
static bool make_part(const fl_launch *l, plan *p, int64_t n, bool wide,
                      const double *pairs, int64_t step) {
  double *own = fl_scratch_get(l, (size_t)(2 * n) * sizeof *own);
  *p = (plan){.n = n};
  factorize(p);
  for (int64_t i = 0; own && i < n; i++) {
    own[2 * i] = pairs[2 * i * step];
    own[2 * i + 1] = pairs[2 * i * step + 1];
  }
  p->roots = own ? fft_kept(l, n, own, wide) : NULL;
  return p->roots;
}

/* How many lines a line of n is split into, 0: it is not. Short ones have the
 * same order of operations with all instruction sets. */
static int64_t split_of(int64_t n, bool wide) {
  int64_t q = TILE_BYTES / (wide ? sizeof(double) : sizeof(float));
  return q >= 4 && n > SHORT && n % q == 0 && n / q >= q ? q : 0;
}

static fl_status make_smooth(const fl_launch *l, plan *p, plan part[2],
                             bool alone, bool wide) {
  double *pairs;
  int64_t n = p->n, q = alone ? split_of(n, wide) : 0;
  if (!(p->roots = all_roots(l, n, n, wide, &pairs)))
    return FL_ENOMEM;
  if (!q)
    return FL_OK;
  double *turn = fl_scratch_get(l, (size_t)(2 * n) * sizeof *turn);
  if (!turn || !make_part(l, &part[0], n / q, wide, pairs, q) ||
      !make_part(l, &part[1], q, wide, pairs, n / q))
    return FL_ENOMEM;
  for (int64_t k = 0, i = 0; k < n / q; k++)
    for (int64_t b = 0; b < q; b++, i++) {
      turn[i] = pairs[2 * k * b];
      turn[n + i] = pairs[2 * k * b + 1];
    }
  p->turn = fft_kept(l, n, turn, wide);
  p->low = &part[0];
  p->across = &part[1];
  return p->turn ? FL_OK : FL_ENOMEM;
}

/* Of the transforms that one of n, with a large prime in it, is made of: a
 * power of two, or five or three of them that are fewer. */
static int64_t chirp_length(int64_t n) {
  int64_t m = 8, least = 2 * n - 1;
  while (m < least)
    m *= 2;
  return m / 8 * 5 >= least ? m / 8 * 5 : m / 4 * 3 >= least ? m / 4 * 3 : m;
}

/* exp(-pi i j^2 / n): j^2 counts modulo 2 n. */
static fl_status make_chirp(const fl_launch *l, plan *p, plan inner[3],
                            bool alone, bool wide) {
  size_t size = wide ? sizeof(double) : sizeof(float);
  inner->n = chirp_length(p->n);
  factorize(inner);
  fl_status s = make_smooth(l, inner, inner + 1, alone, wide);
  double *pairs = fl_scratch_get(l, (size_t)(2 * p->n) * sizeof(double));
  void *spectrum = fl_scratch_get(l, (size_t)(2 * inner->n) * size);
  void *room = fl_scratch_get(l, (size_t)(4 * inner->far) * size);
  if (s || !pairs || !spectrum || !room)
    return FL_ENOMEM;
  uint64_t n = (uint64_t)p->n, square = 0;
  for (uint64_t j = 0; j < n; j++) {
    fli_root((int64_t)square, 2 * p->n, pairs + 2 * j);
    square = (square + 2 * j + 1) % (2 * n);
  }
  p->roots = fft_kept(l, p->n, pairs, wide);
  p->inner = inner;
  p->spectrum = spectrum;
  if (!p->roots)
    return FL_ENOMEM;
  (wide ? &FL_CPU(fft_f64) : &FL_CPU(fft_f32))->chirp_spectrum(p, room);
  return FL_OK;
}

/* From real to imaginary elements of w lines: so that of two buffers no two
 * planes lie at the same place of a page, where writing one would hold up
 * reading the other. */
static int64_t fft_apart(int64_t n, int64_t w, bool wide) {
  int64_t row = w * (wide ? 8 : 4), page = 4096;
  return ((n * row + page - 1) / page * page + page / 4 + row - 1) / row;
}

/* How many lines are done side by side. */
static int64_t width_of(const fft_job *j, int64_t longest, bool alone) {
  int64_t w = alone ? 1 : BUFFER / longest;
  w = w < 1 ? 1 : w < LINES ? w : LINES;
  if ((j->inner > 1 || j->below > 1) && w < ABREAST && longest <= LARGE)
    w = ABREAST;
  return w < j->lines ? w : j->lines;
}

#if TILE_BYTES == 64
#define AT_ONCE 16   /* rooms between which and memory real lines are changed */
#define WORTH   8192 /* pairs of them that are worth a thread's while */

/* What lines of pairs, or of 2 n real numbers, are done by. */
typedef struct straight {
  fft_job *j;
  lanes_plan plan; /* of lines that are not short */
  int64_t n;
  const float *table, *mirror;
} straight;

/* `lines` of them from x to y, or between memory and z. */
static void some_lines(const straight *c, int64_t lines, const float *x,
                       float *y, float *z) {
  const fft_job *j = c->j;
  int64_t n = c->n;
  float scale = (float)j->scale, *to = j->kind == REAL ? z : y;
  const float *from = j->kind == HALF ? z : x;
  if (j->kind == HALF)
    whole_lines(n, lines, x, z, c->mirror);
  scale = j->kind == REAL ? 1 : scale;
  if (has_short(n))
    short_lines(n, lines * n, from, to, c->table, j->inverse, scale);
  else if (c->plan.alone)
    lanes_line(&c->plan, from, to, z + 2 * (n + LANES), j->inverse, scale);
  else
    lanes_lines(&c->plan, lines, from, to, z, j->inverse, scale);
  if (j->kind == REAL)
    half_lines(n, lines, z, y, c->mirror, (float)j->scale);
}

static void straight_lines(void *context, int64_t begin, int64_t end) {
  const straight *c = context;
  const fft_job *j = c->j;
  int64_t in = 2 * (c->n + (j->kind == HALF)),
          out = 2 * (c->n + (j->kind == REAL));
  int64_t step = !has_short(c->n)   ? c->plan.alone ? 1 : LANES
                 : j->kind == PAIRS ? end - begin
                                    : AT_ONCE * ROOM / c->n;
  float *z = tile_slot_take(&c->j->slots);
  for (int64_t at = begin; at < end; at += step) {
    const float *x = (const float *)j->x + at * in;
    if (at + step < end && step <= LANES)
      fetch_ahead(x + step * in, step * in * (int64_t)sizeof *x);
    some_lines(c, end - at < step ? end - at : step, x,
               (float *)j->y + at * out, z);
  }
  tile_slot_give(&c->j->slots, z);
}

static bool can_straight(const fft_job *j, int64_t n) {
  lanes_plan p;
  return j->inner == 1 && j->below == 1 && !j->turn &&
         (j->half || j->kind == PAIRS) &&
         (has_short(n) ||
          (lanes_factorize(n, j->lines, &p) && (p.alone || !j->half)));
}

static fl_status run_straight(const fl_launch *l, const fl_view *x,
                              const fl_view *y, fft_job *j, int64_t n) {
  straight c = {.j = j, .n = n};
  double *pairs;
  int64_t size = SHORT_TABLE, room = AT_ONCE * ROOM + LANES, unit = 1;
  if (!has_short(n) && lanes_factorize(n, j->lines, &c.plan)) {
    size = lanes_room(&c.plan);
    room = lanes_pairs(&c.plan);
    unit = c.plan.alone ? 1 : LANES;
  }
  float *table = fl_scratch_get(l, (size_t)(size + (n / LANES + 1) * ALIKE) *
                                       sizeof *table);
  if (!table || !all_roots(l, j->n, j->n, true, &pairs))
    return FL_ENOMEM;
  c.table = table;
  c.mirror = table + size;
  if (has_short(n))
    short_table(n, pairs, j->n / n, j->inverse, table);
  else
    lanes_tables(&c.plan, pairs, j->n / n, j->inverse, table);
  if (j->half)
    mirror_table(n, pairs, j->kind == HALF, j->scale, table + size);
  j->grain = fl_ceil_div(j->lines, SHARES);
  j->grain = tile_up(j->grain > WORTH / n ? j->grain : WORTH / n + 1, unit);
  if (!tile_slots_open(l, &j->slots, fl_ceil_div(j->lines, j->grain),
                       (size_t)(2 * room) * sizeof(float)))
    return FL_ENOMEM;
  j->x = FL_CPU(input)(l, x, FL_F32);
  j->y = FL_CPU(output)(l, y, FL_F32);
  if (!j->x || !j->y)
    return FL_ENOMEM;
  fl_status s = fl_cpu_stoppable(l, j->lines, j->grain, straight_lines, &c);
  if (s == FL_OK)
    FL_CPU(finish)(l, y, FL_F32, j->y);
  return s;
}
#endif

/* The transform of `j` from x to y, which may be the same memory: everything
 * but what is whose size is known. `size` is of the complex transform. */
static fl_status fft_run(const fl_launch *l, const fl_view *x, const fl_view *y,
                         fft_job *j, int dim, int64_t size) {
  fl_dtype d = fl_cpu_wide(x->dtype);
  bool wide = d == FL_F64;
  plan p = {.n = size}, parts[3] = {{0}};
  double *pairs;
  if (fl_view_numel(y) == 0)
    return FL_OK;
  int pair = j->kind == REAL ? y->ndim - 1 : x->ndim - 1;
  j->inner = fl_numel(pair - dim - 1, x->shape + dim + 1);
  j->lines = fl_numel(dim, x->shape) * j->inner;
  j->below = j->below ? j->below : j->inner;
#if TILE_BYTES == 64
  if (!wide && can_straight(j, size))
    return run_straight(l, x, y, j, size);
#endif
  bool smooth = factorize(&p);
  int64_t longest = smooth ? size : chirp_length(size);
  bool alone = j->below == 1 && split_of(longest, wide);
  fl_status s = smooth ? make_smooth(l, &p, parts, alone, wide)
                       : make_chirp(l, &p, parts, alone, wide);
  if (s)
    return s;
  j->plan = &p;
  if (j->half && !(j->roots = all_roots(l, j->n, size + 1, wide, &pairs)))
    return FL_ENOMEM;
  j->width = width_of(j, longest, alone);
  p.far = fft_apart(p.n, j->width, wide);
  parts[0].far = fft_apart(longest, j->width, wide);
  int64_t groups = fl_ceil_div(j->lines, j->width),
          worth = GRAIN / (longest * j->width) + 1;
  j->grain = fl_ceil_div(groups, SHARES);
  j->grain = j->grain > worth ? j->grain : worth;
  int64_t each = 2 * (p.far + (p.inner ? 2 * p.inner->far : p.far)) * j->width;
  if (!tile_slots_open(l, &j->slots, fl_ceil_div(groups, j->grain),
                       (size_t)each * (wide ? 8 : 4)))
    return FL_ENOMEM;
  j->x = FL_CPU(input)(l, x, d);
  j->y = FL_CPU(output)(l, y, d);
  if (!j->x || !j->y)
    return FL_ENOMEM;
  s = fl_cpu_stoppable(l, groups, j->grain,
                       (wide ? &FL_CPU(fft_f64) : &FL_CPU(fft_f32))->groups, j);
  if (s == FL_OK)
    FL_CPU(finish)(l, y, d, j->y);
  return s;
}

/* Room for what one pass leaves to the next: as v, but contiguous and wide. */
static fl_status fft_between(const fl_launch *l, const fl_view *v,
                             fl_view *to) {
  int64_t step = 1;
  fl_view_copy(to, v);
  to->dtype = fl_cpu_wide(v->dtype);
  for (int d = v->ndim - 1; d >= 0; step *= v->shape[d--])
    to->stride[d] = step;
  to->data = fl_scratch_get(l, (size_t)(step + 1) * fl_dtype_size(to->dtype));
  return to->data ? FL_OK : FL_ENOMEM;
}

/* A long line of n = m q numbers as q lines of m side by side, turned, and then
 * m lines of q, whose results lie side by side again. So each thread has what
 * fits its cache, and all have work. */
static int64_t lines_of_long(int64_t n, int64_t lines) {
  plan p = {.n = n};
  int64_t q = 1;
  if (!lines || n < LONG || (lines > 1 && n <= LARGE) || !factorize(&p))
    return 0;
  while (q * q < n)
    q *= p.factors[--p.n_factors];
  return q % LINES == 0 && n / q % LINES == 0 ? q : 0;
}

static bool make_turn(const fl_launch *l, int64_t m, int64_t q, turning *t) {
  double *c = fl_scratch_get(l, (size_t)(2 * m * LINES) * sizeof *c), *s;
  if (!c || !make_powers(l, m * q, m * q, &t->of))
    return false;
  t->lines = q;
  t->cos = c;
  t->sin = s = c + m * LINES;
  for (int64_t i = 0; i < m * LINES; i++) {
    double y[2];
    power(&t->of, i / LINES * (i % LINES), y);
    c[i] = y[0];
    s[i] = y[1];
  }
  return true;
}

static fl_status run_long(const fl_launch *l, const fl_view *x,
                          const fl_view *y, const fft_job *like, int64_t q) {
  fl_dtype d = fl_cpu_wide(x->dtype);
  int64_t n = like->n, m = n / q, all = fl_view_numel(y);
  fl_view a = {.dtype = d,
               .ndim = 4,
               .shape = {all / (2 * n), m, q, 2},
               .stride = {2 * n, 2 * q, 2, 1},
               .data = (void *)(uintptr_t)FL_CPU(input)(l, x, d)};
  fl_view b = a, c = a;
  fft_job first = *like, second = *like;
  turning t;
  b.data = fl_scratch_get(l, (size_t)all * fl_dtype_size(d));
  c.data = FL_CPU(output)(l, y, d);
  if (!a.data || !b.data || !c.data || !make_turn(l, m, q, &t))
    return FL_ENOMEM;
  first.n = m;
  first.turn = &t;
  second.n = q;
  second.below = m;
  second.scale = 1;
  fl_status s = fft_run(l, &a, &b, &first, 1, m);
  s = s ? s : fft_run(l, &b, &c, &second, 2, q);
  if (s == FL_OK)
    FL_CPU(finish)(l, y, d, c.data);
  return s;
}

/* Pairs from x to y, over `dims` dims up to dim. Only the first has the scale.
 */
static fl_status run_pairs(const fl_launch *l, const fl_view *x,
                           const fl_view *y, bool inverse, double scale,
                           int dim, int64_t dims) {
  fl_view part;
  fl_status s = dims > 1 ? fft_between(l, y, &part) : FL_OK;
  for (; dims > 0 && s == FL_OK; dims--, dim--, x = &part, scale = 1) {
    fft_job j = {
        .kind = PAIRS, .n = y->shape[dim], .inverse = inverse, .scale = scale};
    bool last = fl_numel(x->ndim - dim - 2, x->shape + dim + 1) == 1;
    int64_t q = last ? lines_of_long(j.n, fl_numel(dim, x->shape)) : 0;
    s = q ? run_long(l, x, dims > 1 ? &part : y, &j, q)
          : fft_run(l, x, dims > 1 ? &part : y, &j, dim, j.n);
  }
  return s;
}

FL_KERNEL(dft) {
  const fl_attr *a = l->attrs->v;
  return run_pairs(l, &l->in[0], &l->out[0], a[FL_ATTR_dft_inverse].i,
                   a[FL_ATTR_dft_scale].f, (int)a[FL_ATTR_dft_dim].i,
                   a[FL_ATTR_dft_dims].i);
}

FL_KERNEL(rdft) {
  const fl_attr *a = l->attrs->v;
  const fl_view *x = &l->in[0], *y = &l->out[0];
  int dim = (int)a[FL_ATTR_rdft_dim].i;
  int64_t others = a[FL_ATTR_rdft_dims].i - 1;
  fft_job j = {
      .kind = REAL, .n = x->shape[dim], .scale = a[FL_ATTR_rdft_scale].f};
  j.half = j.n % 2 == 0;
  fl_view part;
  fl_status s = others ? fft_between(l, y, &part) : FL_OK;
  if (s == FL_OK)
    s = fft_run(l, x, others ? &part : y, &j, dim, j.half ? j.n / 2 : j.n);
  return s ? s : run_pairs(l, &part, y, false, 1, dim - 1, others);
}

FL_KERNEL(irdft) {
  const fl_attr *a = l->attrs->v;
  const fl_view *x = &l->in[0];
  int dim = (int)a[FL_ATTR_irdft_dim].i;
  int64_t others = a[FL_ATTR_irdft_dims].i - 1;
  fft_job j = {.kind = HALF,
               .n = a[FL_ATTR_irdft_n].i,
               .inverse = true,
               .scale = a[FL_ATTR_irdft_scale].f};
  j.half = j.n % 2 == 0;
  fl_view part;
  fl_status s = others ? fft_between(l, x, &part) : FL_OK;
  if (s == FL_OK)
    s = run_pairs(l, x, &part, true, 1, dim - 1, others);
  if (s)
    return s;
  return fft_run(l, others ? &part : x, &l->out[0], &j, dim,
                 j.half ? j.n / 2 : j.n);
}
