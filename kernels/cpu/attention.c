/* Scaled dot-product attention without an N x N matrix: tiles with a running
 * softmax forward, tiles recomputed from the row sums backward (Dao, arXiv:
 * 2307.08691). Products of tiles are in tile.inc, the loops in attention.inc.
 * Results depend on shapes only, not on threads. */
#include "philox.h"
#include "tile.h"

#define ATT_Q   64 /* queries of a tile */
#define ATT_K   64 /* keys of a tile */
#define ATT_MIN 16 /* tasks worth having, backward */

/* An operand as (batch, head, row, column); strides in elements. */
typedef struct att_rows {
  char *data;
  fl_dtype dtype;
  int64_t size; /* of an element */
  int64_t stride[4];
} att_rows;

typedef struct att {
  const fl_launch *l;
  att_rows q, k, v, mask, y, dy, dq, dk, dv;
  int64_t batch, heads, group; /* heads of q; q heads to one of k */
  int64_t nq, nk, d, dv_cols;  /* queries, keys, columns of q and k, of v */
  int64_t tiles;               /* of queries, forward */
  int64_t chunks;              /* of keys, backward */
  bool causal;
  int64_t ahead; /* keys - queries: query i sees keys up to i + ahead */
  double scale, dropout;
  uint64_t seed, offset;
  void *lse;     /* (batch, heads, nq) of the type computed in */
  void *delta;   /* the same: sum of dy * y over columns */
  void *dq_sums; /* (chunks, batch, heads, nq, padded d), or dq itself */
  tile_slots slots;
} att;

static void att_open_rows(att_rows *r, const fl_view *v) {
  r->data = v->data;
  r->dtype = v->dtype;
  r->size = (int64_t)fl_dtype_size(v->dtype);
  for (int i = 0; i < 4; i++) {
    int d = i - (4 - v->ndim);
    r->stride[i] = d < 0 || v->shape[d] == 1 ? 0 : v->stride[d];
  }
}

/* Counted from the last dim; 1 for a dim that is not there. */
static int64_t att_dim(const fl_view *v, int from_last) {
  return from_last <= v->ndim ? v->shape[v->ndim - from_last] : 1;
}

static char *att_at(const att_rows *r, int64_t b, int64_t h, int64_t row) {
  return r->data +
         r->size * (b * r->stride[0] + h * r->stride[1] + row * r->stride[2]);
}

/* `first` is the place of q among the inputs; attributes are causal, scale,
 * dropout in both rows. */
static void att_open(att *a, const fl_launch *l, int first, int mask,
                     int random) {
  const fl_view *q = &l->in[first], *k = &l->in[first + 1],
                *v = &l->in[first + 2];
  memset(a, 0, sizeof *a);
  a->l = l;
  att_open_rows(&a->q, q);
  att_open_rows(&a->k, k);
  att_open_rows(&a->v, v);
  if (l->in[mask].data)
    att_open_rows(&a->mask, &l->in[mask]);
  a->batch = att_dim(q, 4);
  a->heads = att_dim(q, 3);
  a->group = att_dim(k, 3) ? a->heads / att_dim(k, 3) : 1;
  a->nq = att_dim(q, 2);
  a->nk = att_dim(k, 2);
  a->d = att_dim(q, 1);
  a->dv_cols = att_dim(v, 1);
  a->causal = l->attrs->v[0].i != 0;
  a->ahead = a->nk - a->nq;
  a->scale = l->attrs->v[1].f;
  a->dropout = l->attrs->v[2].f;
  if (a->scale != a->scale)
    a->scale = a->d ? 1 / sqrt((double)a->d) : 1;
  if (a->dropout > 0) {
    a->seed = (uint64_t)fl_cpu_scalar_int(&l->in[random]);
    a->offset = (uint64_t)fl_cpu_scalar_int(&l->in[random + 1]);
  }
}

/* exp(x) for the scores of a softmax, x <= 0 (up to 88): branch-free where libm
 * takes the slow way, for -inf. Below -87.7, 0. Polynomial fitted to
 * (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2, error 3e-9. */
static inline float att_exp_f32(float x) {
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

static inline double att_exp_f64(double x) {
  return fl_exp(x);
}

#define BODY "attention.inc"
#include "floats.inc"

static bool att_is_f64(const att *a) {
  return a->q.dtype == FL_F64 || a->k.dtype == FL_F64 || a->v.dtype == FL_F64;
}

/* q, k, v, mask, seed, offset -> y, lse */
FL_KERNEL(attention) {
  att a;
  att_open(&a, l, 0, 3, 4);
  att_open_rows(&a.y, &l->out[0]);
  if (fl_view_numel(&l->out[1]) == 0)
    return FL_OK;
  return att_is_f64(&a) ? att_forward_f64(&a) : att_forward_f32(&a);
}

/* dy, q, k, v, mask, y, lse, seed, offset -> dq, dk, dv */
FL_KERNEL(attention_backward) {
  att a;
  att_open(&a, l, 1, 4, 7);
  att_open_rows(&a.dy, &l->in[0]);
  att_open_rows(&a.y, &l->in[5]);
  att_open_rows(&a.dq, &l->out[0]);
  att_open_rows(&a.dk, &l->out[1]);
  att_open_rows(&a.dv, &l->out[2]);
  return att_is_f64(&a) ? att_backward_f64(&a) : att_backward_f32(&a);
}
