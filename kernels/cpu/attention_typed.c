/* The loops of attention.c for one float type. Forward keeps a tile of scores
 * transposed, (keys, queries), so that the running maximum and sum are vectors
 * over queries; backward needs no reductions and keeps (queries, keys). */
#include "attention.h"
#include "philox.h"
#include "tile_typed.h"

/* exp(x) for the scores of a softmax, x <= 0 (up to 88): branch-free where libm
 * takes the slow way, for -inf. Below -87.7, 0. Polynomial fitted to
 * (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2, error 3e-9. */
#if FL_T_IS_F32
static inline float att_exp(float x) {
  x = x < -88.2f ? -88.2f : x > 88.0f ? 88.0f : x;
  float shifted = x * (float)FL_LOG2E + 0x1.8p23f, n = shifted - 0x1.8p23f;
  float r = x - n * 0x1.62e4p-1f;
  r = r - n * 0x1.7f7d1cp-20f; /* the rest of ln(2) */
  float p = 0.001381432288f;
  p = p * r + 0.008368850686f;
  p = p * r + 0.041668400168f;
  p = p * r + 0.166665196419f;
  p = p * r + 0.499999940395f;
  p = p * r * r + r + 1;
  /* the low bits of `shifted` are n; n = -127 gives the factor 0 */
  return p * fl_bits_float((fl_float_bits(shifted) + 127) << 23);
}
#else
static inline double att_exp(double x) {
  return fl_exp(x);
}
#endif

/* Rows of an operand as T with whole vectors: the memory itself, or `room`. */
static const T *att_tile(const att_rows *r, const char *at, int64_t rows,
                         int64_t cols, T *room, int64_t *ld) {
  if (r->dtype == DTYPE && r->stride[3] == 1 && cols % VN == 0) {
    *ld = r->stride[2];
    return (const T *)at;
  }
  *ld = tile_up(cols, VN);
  pack(room, *ld, at, r->dtype, r->stride[2], r->stride[3], rows, cols);
  return room;
}

/* The same where single elements are read: any strides will do. */
static const T *att_elements(const att_rows *r, const char *at, int64_t rows,
                             int64_t cols, T *room, int64_t *row,
                             int64_t *col) {
  *row = r->stride[2];
  *col = r->stride[3];
  if (r->dtype == DTYPE)
    return (const T *)at;
  *col = 1;
  return att_tile(r, at, rows, cols, room, row);
}

/* to (cols, ld) = scale * rows transposed */
static void att_flip(const att_rows *r, const char *at, int64_t rows,
                     int64_t cols, T *room, T *to, int64_t ld, T scale) {
  int64_t ldf = r->stride[2];
  const T *from = (const T *)at;
  if (r->dtype != DTYPE || r->stride[3] != 1) {
    ldf = cols;
    pack(room, ldf, at, r->dtype, r->stride[2], r->stride[3], rows, cols);
    from = room;
  }
  transpose(to, ld, from, ldf, rows, cols, scale);
}

/* Adds the mask to scores s(i, j) at s + i * row + j * col. */
static void att_mask(const att *a, int64_t b, int64_t h, int64_t i0, int64_t j0,
                     int64_t ni, int64_t nj, T *s, int64_t row, int64_t col) {
  const att_rows *m = &a->mask;
  T values[ATT_K];
  for (int64_t i = 0; i < ni; i++) {
    const char *at = att_at(m, b, h, i0 + i) + m->size * j0 * m->stride[3];
    T *to = s + i * row;
    if (m->dtype == FL_BOOL) {
      for (int64_t j = 0; j < nj; j++)
        if (!at[j * m->stride[3]])
          to[j * col] = -(T)INFINITY;
      continue;
    }
    load(values, at, m->dtype, m->stride[3], nj);
    for (int64_t j = 0; j < nj; j++)
      to[j * col] += values[j];
  }
}

/* Where the elements of query i, keys from j0, are in the array of all. */
static int64_t att_element(const att *a, int64_t b, int64_t h, int64_t i,
                           int64_t j0) {
  return att_query(a, b, h, i) * a->all_k + a->first_k + j0;
}

/* keep[j] = 0 or 1 / (1 - p) for elements at, at + 1, ... of the virtual
 * (batch, heads, queries, keys) array; element e is dropped by half e % 8 of
 * counter offset + e / 8, as in dropout. */
static void att_keep(const att *a, int64_t at, int64_t n, T *keep) {
  uint64_t limit = (uint64_t)rint(a->dropout * 0x1p16);
  T scale = limit >> 16 ? 0 : (T)(1 / (1 - a->dropout));
  uint16_t h[2 * FL_PHILOX_WORDS];
  int64_t first = at / 8 * 8; /* the element of h[0] */
  for (int64_t j = 0; j < n; first += 2 * FL_PHILOX_WORDS) {
    fl_philox_halves(a->seed, a->offset + (uint64_t)(first / 8), h);
    for (; j < n && at + j < first + 2 * FL_PHILOX_WORDS; j++)
      keep[j] = h[at + j - first] >= limit ? scale : 0;
  }
}

/* --- forward --- */

typedef struct att_front {
  T *qt;    /* (d, ATT_Q), scaled */
  T *s;     /* (ATT_K, ATT_Q) */
  T *o;     /* (ATT_Q, padded columns of v) */
  T *kroom; /* copies where the memory itself will not do */
  T *vroom;
  T *top, *sum, *next, *ratio; /* of each query */
} att_front;

static size_t att_front_carve(const att *a, char *at, att_front *f) {
  int64_t d = tile_up(a->d, VN), dv = tile_up(a->dv_cols, VN), n = sizeof(T);
  char *start = at;
  f->qt = tile_carve(&at, d * ATT_Q, (size_t)n);
  f->s = tile_carve(&at, ATT_K * ATT_Q, (size_t)n);
  f->o = tile_carve(&at, ATT_Q * dv, (size_t)n);
  f->kroom = tile_carve(&at, (ATT_K > ATT_Q ? ATT_K : ATT_Q) * d, (size_t)n);
  f->vroom = tile_carve(&at, ATT_K * (d > dv ? d : dv), (size_t)n);
  f->top = tile_carve(&at, ATT_Q, (size_t)n);
  f->sum = tile_carve(&at, ATT_Q, (size_t)n);
  f->next = tile_carve(&at, ATT_Q, (size_t)n);
  f->ratio = tile_carve(&at, ATT_Q, (size_t)n);
  return (size_t)(at - start);
}

/* Scores to exp(score - top), with top, sum and ratio (what was summed before
 * counts that much less) brought up to date. Keys j may be seen by queries
 * i >= j + off. Queries that see nothing keep top -inf and sum 0. */
static void att_soften(att_front *f, int64_t keys, int64_t queries,
                       int64_t off) {
  T *restrict top = f->top, *restrict sum = f->sum, *restrict next = f->next,
              *restrict ratio = f->ratio;
  memcpy(next, top, (size_t)queries * sizeof(T));
  for (int64_t j = 0; j < keys; j++) {
    T *restrict s = f->s + j * ATT_Q;
    int64_t from = j + off > 0 ? j + off : 0;
    if (from >= queries)
      break;
    int64_t first = from / VN * VN;
    for (int64_t i = first; i < from; i++)
      s[i] = -(T)INFINITY;
#pragma omp simd
    for (int64_t i = first; i < queries; i++)
      next[i] = s[i] > next[i] ? s[i] : next[i];
  }
#pragma omp simd
  for (int64_t i = 0; i < queries; i++) {
    T was = top[i];
    top[i] = next[i];
    next[i] = next[i] == -(T)INFINITY ? 0 : next[i];
    ratio[i] = att_exp(was - next[i]);
    sum[i] *= ratio[i];
  }
  for (int64_t j = 0; j < keys; j++) {
    T *restrict s = f->s + j * ATT_Q;
    int64_t from = j + off > 0 ? j + off : 0;
    from = from < queries ? from / VN * VN : queries;
    /* products read a block of rows' width before the diagonal */
    for (int64_t i = from > TILE_MR ? (from - TILE_MR) / VN * VN : 0; i < from;
         i++)
      s[i] = 0;
#pragma omp simd
    for (int64_t i = from; i < queries; i++) {
      T p = att_exp(s[i] - next[i]);
      s[i] = p;
      sum[i] += p;
    }
  }
}

static void att_drop_front(const att *a, int64_t b, int64_t h, int64_t i0,
                           int64_t j0, int64_t ni, int64_t nj, T *s) {
  T keep[ATT_K];
  for (int64_t i = 0; i < ni; i++) {
    att_keep(a, att_element(a, b, h, i0 + i, j0), nj, keep);
    for (int64_t j = 0; j < nj; j++)
      s[j * ATT_Q + i] *= keep[j];
  }
}

/* Scores of one or two queries: dot products waste less than a tile does. */
static void att_few(const T *qt, int64_t d, const T *k, int64_t row, int64_t ni,
                    int64_t nj, T *q, T *s) {
  for (int64_t i = 0; i < ni; i++) {
    for (int64_t c = 0; c < d; c++)
      q[c] = qt[c * ATT_Q + i];
    for (int64_t j = 0; j < nj; j++) {
      const T *restrict kj = k + j * row;
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < d; c++)
        sum += q[c] * kj[c];
      s[j * ATT_Q + i] = sum;
    }
  }
  for (int64_t j = 0; j < nj; j++)
    for (int64_t i = ni; i < VN; i++)
      s[j * ATT_Q + i] = 0;
}

static void att_front_tile(const att *a, att_front *f, int64_t b, int64_t h,
                           int64_t i0) {
  int64_t ni = a->nq - i0 < ATT_Q ? a->nq - i0 : ATT_Q,
          queries = tile_up(ni, VN), dv = tile_up(a->dv_cols, VN),
          hk = h / a->group, nk = a->nk, ldv, row, col;
  bool first = true;
  if (a->causal && nk > i0 + ni + a->ahead)
    nk = i0 + ni + a->ahead; /* none, if not positive */
  att_flip(&a->q, att_at(&a->q, b, h, i0), ni, a->d, f->kroom, f->qt, ATT_Q,
           (T)a->scale);
  for (int64_t i = 0; i < queries; i++) {
    f->top[i] = -(T)INFINITY;
    f->sum[i] = 0;
  }
  for (int64_t j0 = 0; j0 < nk; j0 += ATT_K, first = false) {
    int64_t nj = nk - j0 < ATT_K ? nk - j0 : ATT_K, off = j0 - i0 - a->ahead;
    bool cut = a->causal && off + nj > 1; /* some key is after some query */
    const T *k = att_elements(&a->k, att_at(&a->k, b, hk, j0), nj, a->d,
                              f->kroom, &row, &col);
    if (ni <= 2 && col == 1)
      att_few(f->qt, a->d, k, row, ni, nj, f->vroom, f->s);
    else
      product(cut ? TILE_N_FROM : TILE_FULL, off, nj, queries, a->d, k, row,
              col, f->qt, ATT_Q, f->s, ATT_Q, false);
    if (a->mask.data)
      att_mask(a, b, h, i0, j0, ni, nj, f->s, 1, ATT_Q);
    att_soften(f, nj, queries, cut ? off : -nj);
    if (a->dropout > 0)
      att_drop_front(a, b, h, i0, j0, ni, nj, f->s);
    for (int64_t i = 0; i < ni && !first; i++) {
      T *restrict o = f->o + i * dv, ratio = f->ratio[i];
      for (int64_t c = 0; c < dv; c++)
        o[c] *= ratio;
    }
    const T *v = att_tile(&a->v, att_at(&a->v, b, hk, j0), nj, a->dv_cols,
                          f->vroom, &ldv);
    product(cut ? TILE_K_TO : TILE_FULL, -off, ni, dv, nj, f->s, 1, ATT_Q, v,
            ldv, f->o, dv, !first);
  }
  T *lse = (T *)a->lse + att_query(a, b, h, i0);
  for (int64_t i = 0; i < ni; i++) {
    T sum = f->sum[i];
    if (first) /* these queries see no keys */
      memset(f->o + i * dv, 0, (size_t)dv * sizeof(T));
    store(att_at(&a->y, b, h, i0 + i), a->y.dtype, 1, f->o + i * dv, a->dv_cols,
          sum == 0 ? 0 : 1 / sum, 0);
    lse[i] = f->top[i] + fl_log(sum); /* -inf of nothing */
  }
}

static void att_front_task(void *context, int64_t begin, int64_t end) {
  att *a = context;
  att_front f;
  char *slot = tile_slot_take(&a->slots);
  att_front_carve(a, slot, &f);
  for (int64_t n = begin; n < end && !fl_cpu_interrupted(a->l); n++) {
    int64_t bh = n / a->tiles, tile = n % a->tiles, s = 0;
    if (a->q_ends) {
      s = att_sequence(a, tile, ATT_Q);
      tile -= att_tiles(a, s, ATT_Q);
    }
    att one = att_of(a, s);
    if (tile * ATT_Q < one.nq)
      att_front_tile(&one, &f, bh / a->heads, bh % a->heads, tile * ATT_Q);
  }
  tile_slot_give(&a->slots, slot);
}

static fl_status att_forward(att *a) {
  att_front f;
  size_t size = att_front_carve(a, NULL, &f);
  a->tiles =
      a->q_ends ? att_tiles(a, a->sequences, ATT_Q) : fl_ceil_div(a->nq, ATT_Q);
  int64_t n = a->batch * a->heads * a->tiles;
  /* pieces of about 1.5 M multiply-adds */
  int64_t work = (a->nq < VN      ? VN
                  : a->nq < ATT_Q ? a->nq
                                  : ATT_Q) *
                 (a->nk / a->sequences + 16) * (a->d + a->dv_cols + 16) /
                 (a->causal ? 2 : 1);
  int64_t grain = 1 + 1500000 / (work + 1);
  a->lse = FL_CPU(output)(a->l, &a->l->out[FL_OUT_attention_lse], DTYPE);
  if (!a->lse || !tile_slots_open(a->l, &a->slots, fl_ceil_div(n, grain), size))
    return FL_ENOMEM;
  fl_cpu_parallel(a->l, n, grain, att_front_task, a);
  FL_CPU(finish)(a->l, &a->l->out[FL_OUT_attention_lse], DTYPE, a->lse);
  return fl_cpu_interrupted(a->l) ? fl_cpu_stopped(a->l) : FL_OK;
}

/* --- backward --- */

typedef struct att_back {
  T *kt, *vt; /* (d, ATT_K) scaled, (columns of v, ATT_K) */
  T *p, *ds;  /* (ATT_Q, ATT_K) */
  T *dk, *dv; /* (ATT_K, padded columns) */
  T *qroom, *dyroom, *kroom, *vroom;
} att_back;

static size_t att_back_carve(const att *a, char *at, att_back *f) {
  int64_t d = tile_up(a->d, VN), dv = tile_up(a->dv_cols, VN),
          wide = d > dv ? d : dv;
  size_t n = sizeof(T);
  char *start = at;
  f->kt = tile_carve(&at, d * ATT_K, n);
  f->vt = tile_carve(&at, dv * ATT_K, n);
  f->p = tile_carve(&at, ATT_Q * ATT_K, n);
  f->ds = tile_carve(&at, ATT_Q * ATT_K, n);
  f->dk = tile_carve(&at, ATT_K * d, n);
  f->dv = tile_carve(&at, ATT_K * dv, n);
  f->qroom = tile_carve(&at, ATT_Q * d, n);
  f->dyroom = tile_carve(&at, ATT_Q * dv, n);
  f->kroom = tile_carve(&at, ATT_K * d, n);
  f->vroom = tile_carve(&at, (ATT_K > ATT_Q ? ATT_K : ATT_Q) * wide, n);
  return (size_t)(at - start);
}

/* delta = sum of dy * y over columns, for the queries of one head */
static void att_delta(const att *a, att_back *f, int64_t b, int64_t h) {
  T *delta = (T *)a->delta + att_query(a, b, h, 0);
  for (int64_t i0 = 0; i0 < a->nq; i0 += ATT_Q) {
    int64_t n = a->nq - i0 < ATT_Q ? a->nq - i0 : ATT_Q, ldy, ldd;
    const T *y =
        att_tile(&a->y, att_at(&a->y, b, h, i0), n, a->dv_cols, f->vroom, &ldy);
    const T *dy = att_tile(&a->dy, att_at(&a->dy, b, h, i0), n, a->dv_cols,
                           f->dyroom, &ldd);
    for (int64_t i = 0; i < n; i++) {
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < a->dv_cols; c++)
        sum += dy[i * ldd + c] * y[i * ldy + c];
      delta[i0 + i] = sum;
    }
  }
}

/* Scores and dy * v in f->p and f->ds become probabilities and the gradient of
 * scores times scale. Query i sees keys before i + 1 - off. */
static void att_scores_back(const att *a, att_back *f, int64_t b, int64_t h,
                            int64_t i0, int64_t j0, int64_t ni, int64_t nj,
                            int64_t off) {
  int64_t at = att_query(a, b, h, i0), keys = tile_up(nj, VN);
  const T *lse = (const T *)a->lse + at, *delta = (const T *)a->delta + at;
  T scale = (T)a->scale;
  T keep[ATT_K];
  for (int64_t i = 0; i < ni; i++) {
    T *restrict p = f->p + i * ATT_K, *restrict ds = f->ds + i * ATT_K;
    int64_t end = i + 1 - off < nj ? i + 1 - off : nj;
    /* -inf: the query saw nothing, all its scores are -inf */
    T top = lse[i] == -(T)INFINITY ? 0 : lse[i], less = delta[i];
    if (a->dropout > 0) {
      att_keep(a, att_element(a, b, h, i0 + i, j0), nj, keep);
      for (int64_t j = 0; j < end; j++) {
        T e = att_exp(p[j] - top), k = keep[j];
        ds[j] = e * (ds[j] * k - less) * scale;
        p[j] = e * k;
      }
    } else {
      for (int64_t j = 0; j < end; j += VN) /* whole vectors; see below */
#pragma omp simd
        for (int64_t k = j; k < j + VN; k++) {
          T e = att_exp(p[k] - top);
          ds[k] = e * (ds[k] - less) * scale;
          p[k] = e;
        }
    }
    for (int64_t j = end > 0 ? end : 0; j < keys; j++)
      p[j] = ds[j] = 0;
  }
}

/* One tile of queries against one of keys: adds to f->dk, f->dv, dq. */
static void att_back_tile(const att *a, att_back *f, int64_t b, int64_t h,
                          int64_t i0, int64_t j0, T *dq, bool first) {
  int64_t ni = a->nq - i0 < ATT_Q ? a->nq - i0 : ATT_Q,
          nj = a->nk - j0 < ATT_K ? a->nk - j0 : ATT_K, hk = h / a->group,
          d = tile_up(a->d, VN), dv = tile_up(a->dv_cols, VN),
          off = j0 - i0 - a->ahead, ldq, ldy, ldk;
  bool cut = a->causal && off + nj > 1;
  const T *q =
      att_tile(&a->q, att_at(&a->q, b, h, i0), ni, a->d, f->qroom, &ldq);
  const T *dy = att_tile(&a->dy, att_at(&a->dy, b, h, i0), ni, a->dv_cols,
                         f->dyroom, &ldy);
  const T *k =
      att_tile(&a->k, att_at(&a->k, b, hk, j0), nj, a->d, f->kroom, &ldk);
  product(cut ? TILE_N_TO : TILE_FULL, -off, ni, nj, a->d, q, ldq, 1, f->kt,
          ATT_K, f->p, ATT_K, false);
  product(cut ? TILE_N_TO : TILE_FULL, -off, ni, nj, a->dv_cols, dy, ldy, 1,
          f->vt, ATT_K, f->ds, ATT_K, false);
  if (a->mask.data)
    att_mask(a, b, h, i0, j0, ni, nj, f->p, ATT_K, 1);
  att_scores_back(a, f, b, h, i0, j0, ni, nj, cut ? off : -nj);
  product(cut ? TILE_K_FROM : TILE_FULL, off, nj, dv, ni, f->p, 1, ATT_K, dy,
          ldy, f->dv, dv, true);
  product(cut ? TILE_K_FROM : TILE_FULL, off, nj, d, ni, f->ds, 1, ATT_K, q,
          ldq, f->dk, d, true);
  product(cut ? TILE_K_TO : TILE_FULL, -off, ni, d, nj, f->ds, ATT_K, 1, k, ldk,
          dq + i0 * d, d, !first);
}

/* Every chunks-th tile of keys of one head of k, against its heads of q. */
static void att_back_head(const att *a, att_back *f, int64_t b, int64_t hk,
                          int64_t chunk) {
  int64_t d = tile_up(a->d, VN), dv = tile_up(a->dv_cols, VN),
          h0 = hk * a->group;
  T *sums = (T *)a->dq_sums + chunk * a->batch * a->heads * a->all_q * d;
  if (a->chunks == 1)
    for (int64_t h = h0; h < h0 + a->group; h++)
      att_delta(a, f, b, h);
  bool first = true;
  for (int64_t j0 = chunk * ATT_K; j0 < a->nk; j0 += a->chunks * ATT_K) {
    int64_t nj = a->nk - j0 < ATT_K ? a->nk - j0 : ATT_K;
    int64_t from =
        a->causal && j0 > a->ahead ? (j0 - a->ahead) / ATT_Q * ATT_Q : 0;
    att_flip(&a->k, att_at(&a->k, b, hk, j0), nj, a->d, f->vroom, f->kt, ATT_K,
             (T)a->scale);
    att_flip(&a->v, att_at(&a->v, b, hk, j0), nj, a->dv_cols, f->vroom, f->vt,
             ATT_K, 1);
    memset(f->dk, 0, (size_t)(ATT_K * d) * sizeof(T));
    memset(f->dv, 0, (size_t)(ATT_K * dv) * sizeof(T));
    for (int64_t h = h0; h < h0 + a->group; h++) {
      T *dq = sums + att_query(a, b, h, 0) * d;
      if (first)
        memset(dq, 0, (size_t)((from < a->nq ? from : a->nq) * d) * sizeof(T));
      for (int64_t i0 = from; i0 < a->nq; i0 += ATT_Q)
        att_back_tile(a, f, b, h, i0, j0, dq, first);
    }
    for (int64_t j = 0; j < nj; j++) {
      store(att_at(&a->dk, b, hk, j0 + j), a->dk.dtype, 1, f->dk + j * d, a->d,
            1, 0);
      store(att_at(&a->dv, b, hk, j0 + j), a->dv.dtype, 1, f->dv + j * dv,
            a->dv_cols, 1, 0);
    }
    first = false;
  }
  for (int64_t h = h0; first && h < h0 + a->group; h++) /* no keys */
    memset(sums + att_query(a, b, h, 0) * d, 0,
           (size_t)(a->nq * d) * sizeof(T));
}

static void att_back_task(void *context, int64_t begin, int64_t end) {
  att *a = context;
  att_back f;
  char *slot = tile_slot_take(&a->slots);
  int64_t hk = a->heads / a->group;
  att_back_carve(a, slot, &f);
  for (int64_t n = begin; n < end && !fl_cpu_interrupted(a->l); n++) {
    int64_t each = n / a->chunks, bh = each / a->sequences;
    att one = att_of(a, each % a->sequences);
    att_back_head(&one, &f, bh / hk, bh % hk, n % a->chunks);
  }
  tile_slot_give(&a->slots, slot);
}

static void att_delta_task(void *context, int64_t begin, int64_t end) {
  att *a = context;
  att_back f;
  char *slot = tile_slot_take(&a->slots);
  att_back_carve(a, slot, &f);
  for (int64_t n = begin; n < end; n++)
    att_delta(a, &f, n / a->heads, n % a->heads);
  tile_slot_give(&a->slots, slot);
}

/* Rows of dq from the sums of all chunks, always in the same order. */
static void att_dq_task(void *context, int64_t begin, int64_t end) {
  att *a = context;
  int64_t d = tile_up(a->d, VN), all = a->batch * a->heads * a->nq * d;
  T *sums = a->dq_sums;
  for (int64_t n = begin; n < end; n++) {
    T *restrict row = sums + n * d;
    for (int64_t c = 1; c < a->chunks; c++) {
      const T *restrict more = row + c * all;
      for (int64_t i = 0; i < d; i++)
        row[i] += more[i];
    }
    int64_t bh = n / a->nq, b = bh / a->heads;
    char *to = att_at(&a->dq, b, bh - b * a->heads, n - bh * a->nq);
    if ((void *)sums != (void *)a->dq.data)
      store(to, a->dq.dtype, 1, row, a->d, 1, 0);
  }
}

static fl_status att_backward(att *a) {
  const fl_launch *l = a->l;
  att_back f;
  size_t size = att_back_carve(a, NULL, &f);
  int64_t heads = a->batch * (a->heads / a->group) * a->sequences,
          tiles = fl_ceil_div(a->nk / a->sequences, ATT_K),
          d = tile_up(a->d, VN), rows = a->batch * a->heads * a->nq;
  if (heads == 0)
    return FL_OK;
  a->chunks = heads >= ATT_MIN ? 1 : fl_ceil_div(ATT_MIN, heads);
  a->chunks = a->chunks > tiles ? tiles > 1 ? tiles : 1 : a->chunks;
  int64_t n = heads * a->chunks;
  int64_t work = a->group * (a->nq / a->sequences + 1) *
                 (a->nk / a->sequences / a->chunks + 16) *
                 (a->d + a->dv_cols + 16) * 5 / (a->causal ? 4 : 2);
  int64_t grain = 1 + 1500000 / (work + 1);
  bool direct = a->chunks == 1 && a->dq.dtype == DTYPE && d == a->d &&
                fl_contiguous(&l->out[0]);
  a->lse =
      (void *)FL_CPU(input)(l, &l->in[FL_IN_attention_backward_lse], DTYPE);
  a->delta = fl_scratch_get(l, (size_t)rows * sizeof(T) + 1);
  a->dq_sums =
      direct
          ? a->dq.data
          : fl_scratch_get(l, (size_t)(a->chunks * rows * d) * sizeof(T) + 1);
  if (!a->lse || !a->delta || !a->dq_sums ||
      !tile_slots_open(l, &a->slots, n * a->group, size))
    return FL_ENOMEM;
  if (a->chunks > 1)
    fl_cpu_parallel(l, a->batch * a->heads,
                    1 + 30000 / (a->nq * a->dv_cols + 1), att_delta_task, a);
  fl_cpu_parallel(l, n, grain, att_back_task, a);
  if (!direct)
    fl_cpu_parallel(l, rows, 1 + 30000 / (d * a->chunks + 1), att_dq_task, a);
  return fl_cpu_interrupted(l) ? fl_cpu_stopped(l) : FL_OK;
}

const attention_kernels FL_TYPED(attention) = {.forward = att_forward,
                                               .backward = att_backward};
