/* Scaled dot-product attention without an N x N matrix: tiles with a running
 * softmax forward, tiles recomputed from the row sums backward (Dao, arXiv:
 * 2307.08691). The loops are in attention_typed.c.
 * Results depend on shapes only, not on threads. */
#include "attention.h"

#include <math.h>
#include <string.h>

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

/* `first` is the place of q among the inputs; attributes are causal, scale,
 * dropout in both rows. */
static void att_open(att *a, const fl_launch *l, int first, int mask,
                     int random) {
  _Static_assert(FL_IN_FOLLOWS(attention, q, k) &&
                     FL_IN_FOLLOWS(attention, k, v) &&
                     FL_IN_FOLLOWS(attention_backward, q, k) &&
                     FL_IN_FOLLOWS(attention_backward, k, v),
                 "read for both rows");
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
  _Static_assert(
      FL_ATTR_attention_causal == FL_ATTR_attention_backward_causal &&
          FL_ATTR_attention_scale == FL_ATTR_attention_backward_scale &&
          FL_ATTR_attention_dropout == FL_ATTR_attention_backward_dropout,
      "read for both rows");
  a->causal = l->attrs->v[FL_ATTR_attention_causal].i != 0;
  a->ahead = a->nk - a->nq;
  a->sequences = 1;
  a->all_q = a->nq;
  a->all_k = a->nk;
  a->scale = l->attrs->v[FL_ATTR_attention_scale].f;
  a->dropout = l->attrs->v[FL_ATTR_attention_dropout].f;
  if (a->scale != a->scale)
    a->scale = a->d ? 1 / sqrt((double)a->d) : 1;
  if (a->dropout > 0) {
    a->seed = (uint64_t)fl_cpu_scalar_int(&l->in[random]);
    a->offset = (uint64_t)fl_cpu_scalar_int(&l->in[FL_IN_OFFSET(random)]);
  }
}

static const attention_kernels *att_kernels(const att *a) {
  bool wide =
      a->q.dtype == FL_F64 || a->k.dtype == FL_F64 || a->v.dtype == FL_F64;
  return wide ? &FL_CPU(attention_f64) : &FL_CPU(attention_f32);
}

static fl_status att_forward(const fl_launch *l, att *a) {
  att_open_rows(&a->y, &l->out[0]);
  if (fl_view_numel(&l->out[FL_OUT_attention_lse]) == 0)
    return FL_OK;
  return att_kernels(a)->forward(a);
}

static fl_status att_backward(const fl_launch *l, att *a) {
  att_open_rows(&a->dy, &l->in[FL_IN_attention_backward_dy]);
  att_open_rows(&a->y, &l->in[FL_IN_attention_backward_y]);
  att_open_rows(&a->dq, &l->out[0]);
  att_open_rows(&a->dk, &l->out[FL_OUT_attention_backward_dk]);
  att_open_rows(&a->dv, &l->out[FL_OUT_attention_backward_dv]);
  return att_kernels(a)->backward(a);
}

/* q, k, v, mask, seed, offset -> y, lse */
FL_KERNEL(attention) {
  att a;
  att_open(&a, l, FL_IN_attention_q, FL_IN_attention_mask,
           FL_IN_attention_seed);
  return att_forward(l, &a);
}

/* dy, q, k, v, mask, y, lse, seed, offset -> dq, dk, dv */
FL_KERNEL(attention_backward) {
  att a;
  att_open(&a, l, FL_IN_attention_backward_q, FL_IN_attention_backward_mask,
           FL_IN_attention_backward_seed);
  return att_backward(l, &a);
}

/* --- sequences that lie one behind the other --- */

/* Where sequences end, with the rest behind them: as queries, then as keys. */
static fl_status att_ends(const fl_launch *l, const fl_view *sums,
                          const char *name, int64_t rows, bool keys,
                          const int64_t **to) {
  int64_t n = sums->shape[0] - 1, before = 0;
  const int64_t *at = FL_CPU(input)(l, sums, FL_I64);
  int64_t *ends = fl_scratch_get(l, (size_t)(n + 2) * sizeof *ends);
  if (!at || !ends)
    return FL_ENOMEM;
  for (int64_t i = 0; i <= n; before = at[i++])
    if (at[i] < before || at[i] > rows || (i == 0 && at[i] != 0))
      return fli_fail(FL_EINDEX,
                      "%s: %s must begin with 0, not fall, and be at most "
                      "%lld, the number of rows; number %lld is %lld",
                      l->op, name, (long long)rows, (long long)(i + l->base),
                      (long long)at[i]);
  memcpy(ends, at + 1, (size_t)n * sizeof *ends);
  ends[n] = keys ? at[n] : rows;
  ends[n + 1] = rows;
  *to = ends;
  return FL_OK;
}

static fl_status att_open_sequences(att *a, const fl_launch *l, int of_q) {
  _Static_assert(
      FL_IN_FOLLOWS(attention_varlen, cu_seqlens_q, cu_seqlens_k) &&
          FL_IN_FOLLOWS(attention_varlen_backward, cu_seqlens_q, cu_seqlens_k),
      "read for both rows");
  const fl_view *q = &l->in[of_q], *k = &l->in[of_q + 1];
  bool same = !k->data;
  fl_status s = att_ends(l, q, "cu_seqlens_q", a->nq, false, &a->q_ends);
  a->sequences = q->shape[0] + 1;
  return s ? s
           : att_ends(l, same ? q : k, same ? "cu_seqlens_q" : "cu_seqlens_k",
                      a->nk, true, &a->k_ends);
}

/* A launch of attention_varlen, or of its gradient, as one of attention: input
 * `mask`, where attention has a mask, are two of lengths, and heads come after
 * rows in the views of three dims. */
typedef struct heads_first {
  fl_launch l;
  fl_view in[9], out[3];
} heads_first;
static void swap_heads(fl_view *to, const fl_view *v) {
  static const int order[3] = {1, 0, 2};
  fl_view_copy(to, v);
  if (v->ndim == 3)
    fl_reorder_dims(to, 3, order);
}
static const fl_launch *as_attention(const fl_launch *l, int mask,
                                     heads_first *to) {
  to->l = *l;
  to->l.n_in = l->n_in - 1;
  for (int i = 0; i < to->l.n_in; i++)
    swap_heads(&to->in[i], &l->in[i > mask ? i + 1 : i]);
  to->in[mask].data = NULL;
  for (int i = 0; i < l->n_out; i++)
    swap_heads(&to->out[i], &l->out[i]);
  to->l.in = to->in;
  to->l.out = to->out;
  return &to->l;
}

/* q, k, v, sums, sums, seed, offset -> y, lse */
FL_KERNEL(attention_varlen) {
  heads_first h;
  att a;
  const fl_launch *to = as_attention(l, FL_IN_attention_mask, &h);
  att_open(&a, to, FL_IN_attention_q, FL_IN_attention_mask,
           FL_IN_attention_seed);
  fl_status s = att_open_sequences(&a, l, FL_IN_attention_varlen_cu_seqlens_q);
  return s ? s : att_forward(to, &a);
}

/* dy, q, k, v, sums, sums, y, lse, seed, offset -> dq, dk, dv */
FL_KERNEL(attention_varlen_backward) {
  heads_first h;
  att a;
  const fl_launch *to = as_attention(l, FL_IN_attention_backward_mask, &h);
  att_open(&a, to, FL_IN_attention_backward_q, FL_IN_attention_backward_mask,
           FL_IN_attention_backward_seed);
  fl_status s =
      att_open_sequences(&a, l, FL_IN_attention_varlen_backward_cu_seqlens_q);
  return s ? s : att_backward(to, &a);
}
