/* Attention: shapes, gradient, cost. The kernels keep no scores; only gradients
 * that a kernel cannot give (of a mask, of lse, of gradients) are written out
 * in ordinary operators over all scores. attention_varlen.c has the rules of
 * sequences that lie one behind the other. */
#include "fits.h"

#include <math.h>
#include <string.h>

/* Counted from the last dim; 1 for a dim that is not there. */
static int64_t size_at(const fl_meta *m, int from_last) {
  return from_last <= m->ndim ? m->shape[m->ndim - from_last] : 1;
}

fl_status fli_fits_heads(const char *row, int64_t heads, int64_t of_keys) {
  if (heads == 0 || of_keys == 0 ? heads != of_keys : heads % of_keys != 0)
    return fli_fail(FL_ESHAPE,
                    "%s: %lld heads of q cannot share %lld heads of k equally",
                    row, (long long)heads, (long long)of_keys);
  return FL_OK;
}

static fl_status check_operands(const fl_meta *q, const fl_meta *k,
                                const fl_meta *v) {
  if (q->ndim < 2 || q->ndim > 4)
    return fli_fail(FL_ESHAPE,
                    "attention: q must be (batch, heads, queries, size), or "
                    "without the first one or two, got %s",
                    fli_shape_text(q->ndim, q->shape));
  if (k->ndim != q->ndim || v->ndim != q->ndim ||
      size_at(k, 4) != size_at(q, 4) || size_at(v, 4) != size_at(q, 4) ||
      size_at(v, 3) != size_at(k, 3) || size_at(v, 2) != size_at(k, 2) ||
      size_at(k, 1) != size_at(q, 1))
    return fli_fail(FL_ESHAPE,
                    "attention: q %s, k %s and v %s do not fit: k and v need "
                    "the same number of keys, q and k the same last size",
                    fli_shape_text(q->ndim, q->shape),
                    fli_shape_text(k->ndim, k->shape),
                    fli_shape_text(v->ndim, v->shape));
  return fli_fits_heads("attention", size_at(q, 3), size_at(k, 3));
}

static fl_status check_mask(const fl_meta *q, const fl_meta *k,
                            const fl_meta *mask) {
  int64_t scores[4] = {size_at(q, 4), size_at(q, 3), size_at(q, 2),
                       size_at(k, 2)};
  if (mask->dtype != FL_BOOL && fl_dtype_kind(mask->dtype) != FL_KIND_FLOAT)
    return fli_fail(FL_EDTYPE,
                    "attention: the mask is %s, but must be bool (true where "
                    "attention is allowed) or float (added to the scores)",
                    fl_dtype_name(mask->dtype));
  bool fits = mask->ndim <= q->ndim;
  for (int i = 1; i <= mask->ndim && fits; i++)
    fits = size_at(mask, i) == 1 || size_at(mask, i) == scores[4 - i];
  if (!fits)
    return fli_fail(FL_ESHAPE, "attention: a mask %s does not fit scores %s",
                    fli_shape_text(mask->ndim, mask->shape),
                    fli_shape_text(q->ndim, scores + 4 - q->ndim));
  return FL_OK;
}

fl_status fli_shape_attention(fli_infer *c) {
  const fl_meta *q = c->in[FL_IN_attention_q], *k = c->in[FL_IN_attention_k],
                *v = c->in[FL_IN_attention_v];
  FLI_TRY(check_operands(q, k, v));
  if (c->in[FL_IN_attention_mask])
    FLI_TRY(check_mask(q, k, c->in[FL_IN_attention_mask]));
  double p = c->attrs->v[FL_ATTR_attentions_dropout].f;
  if (!(p >= 0 && p <= 1))
    return fli_fail(FL_EARG, "attention: dropout must be from 0 to 1, got %g",
                    p);
  int n = q->ndim;
  c->out[0].ndim = n;
  c->out[FL_OUT_attention_lse].ndim = n - 1;
  for (int i = 0; i < n - 1; i++)
    c->out[0].shape[i] = c->out[FL_OUT_attention_lse].shape[i] = q->shape[i];
  c->out[0].shape[n - 1] = v->shape[n - 1];
  c->draws = p == 0 ? 0 : fl_numel(n - 1, q->shape) * size_at(k, 2);
  return FL_OK;
}

#define FOLLOW(row)                                                            \
  (FL_IN_FOLLOWS(row, dy, q) && FL_IN_FOLLOWS(row, q, k) &&                    \
   FL_IN_FOLLOWS(row, k, v) && FL_IN_FOLLOWS(row, y, lse) &&                   \
   FL_IN_FOLLOWS(row, lse, seed) && FL_IN_FOLLOWS(row, seed, offset))

fl_status fli_fits_attention(fli_infer *c, int first, int ndim,
                             const int64_t *y, const int64_t *lse) {
  _Static_assert(
      FOLLOW(attention_backward) && FOLLOW(attention_varlen_backward) &&
          FL_IN_attention_backward_q == FL_IN_attention_varlen_backward_q,
      "read for both rows");
  FLI_TRY(fli_fits(c, first, ndim, y));
  FLI_TRY(fli_fits(c, first + 1, ndim - 1, lse));
  FLI_TRY(fli_fits(c, first + 2, 0, NULL));
  FLI_TRY(fli_fits(c, first + 3, 0, NULL));
  for (int k = 0; k < 3; k++) {
    const fl_meta *of = c->in[FL_IN_attention_backward_q + k];
    c->out[k].ndim = of->ndim;
    memcpy(c->out[k].shape, of->shape, (size_t)of->ndim * sizeof *of->shape);
  }
  return FL_OK;
}

fl_status fli_shape_attention_backward(fli_infer *c) {
  const fl_meta *dy = c->in[FL_IN_attention_backward_dy],
                *q = c->in[FL_IN_attention_backward_q],
                *v = c->in[FL_IN_attention_backward_v];
  FLI_TRY(check_operands(q, c->in[FL_IN_attention_backward_k], v));
  bool same = dy->ndim == q->ndim && size_at(dy, 1) == size_at(v, 1);
  for (int i = 0; i < q->ndim - 1 && same; i++)
    same = dy->shape[i] == q->shape[i];
  if (!same)
    return fli_fail(
        FL_ESHAPE, "attention_backward: dy %s does not fit q %s and v %s",
        fli_shape_text(dy->ndim, dy->shape), fli_shape_text(q->ndim, q->shape),
        fli_shape_text(v->ndim, v->shape));
  if (c->in[FL_IN_attention_backward_mask])
    FLI_TRY(check_mask(q, c->in[FL_IN_attention_backward_k],
                       c->in[FL_IN_attention_backward_mask]));
  return fli_fits_attention(c, FL_IN_attention_backward_y, q->ndim, dy->shape,
                            q->shape);
}

/* Of the products of queries with keys, and of scores with values; a causal
 * mask halves them. */
static void count_products(const fli_infer *c, const fl_meta *const *in,
                           int of_keys, int of_values, double *flops,
                           double *bytes) {
  const fl_meta *q = in[0], *k = in[1], *v = in[2];
  double scores = (double)size_at(q, 4) * (double)size_at(q, 3) *
                  (double)size_at(q, 2) * (double)size_at(k, 2);
  double d = (double)size_at(q, 1), dv = (double)size_at(v, 1);
  fli_cost_bytes(c, flops, bytes);
  *flops = 2 * scores * (of_keys * d + of_values * dv);
  if (c->attrs->v[FL_ATTR_attentions_causal].i) {
    double nq = (double)size_at(q, 2), nk = (double)size_at(k, 2);
    double all = nq * nk, cut = nk < nq ? nk * nk : nq * nq;
    if (all > 0) /* queries that see nothing are skipped */
      *flops *= ((nk < nq ? 0 : all) + (nk < nq ? cut : -cut) / 2) / all;
  }
}

void fli_cost_attention(const fli_infer *c, double *flops, double *bytes) {
  count_products(c, c->in, 1, 1, flops, bytes);
}

void fli_cost_attention_backward(const fli_infer *c, double *flops,
                                 double *bytes) {
  count_products(c, c->in + 1, 3, 2, flops, bytes); /* after dy */
}

/* --- the gradient --- */

/* Attention in ordinary operators; heads are (batch, heads of k, group). */
typedef struct plain {
  fl_value q, k, v, dy, keep_seed, keep_offset;
  double scale, dropout;
  int64_t batch, heads, group, nq, nk;
  fl_value p, dropped; /* (batch, heads, group, nq, nk) */
} plain;

static fl_value five(fli_grad *g, fl_value x, int64_t group, fl_dtype d) {
  fl_meta m = *fli_meta(x);
  int64_t heads = size_at(&m, 3) / (group ? group : 1);
  int64_t shape[5] = {size_at(&m, 4), heads, group, size_at(&m, 2),
                      size_at(&m, 1)};
  return fli_v_reshape(&g->e, CAST(x, d), 5, shape);
}

static fl_value dropped(fli_grad *g, const plain *a, fl_value x) {
  if (a->dropout == 0)
    return x;
  fl_attrs attrs = fli_attrs(&g->e, FLI_OP_dropout_backward);
  attrs.v[FL_ATTR_dropout_backward_p].f = a->dropout;
  return RUN_A(dropout_backward, &attrs, x, a->keep_seed, a->keep_offset);
}

/* true where key j <= query i + nk - nq: (nq, nk) */
static fl_value causal_mask(fli_grad *g, const plain *a) {
  int64_t shape[2] = {a->nq, a->nk};
  fl_value zeros =
      fli_v_zeros(&g->e, FL_BOOL, 2, shape,
                  fl_tensor_device(g->in[FL_IN_attention_q].tensor));
  fl_attrs attrs = fli_attrs(&g->e, FLI_OP_tril);
  attrs.v[FL_ATTR_tril_diagonal].i = a->nk - a->nq;
  return RUN_A(tril, &attrs, RUN(logical_not, zeros));
}

/* Scores of the forward pass -> a->p, a->dropped. */
static void recompute(fli_grad *g, plain *a) {
  int64_t shape[5] = {a->batch, a->heads, a->group, a->nq, a->nk};
  fl_value s = MUL(MATMUL(a->q, TRANSPOSE(a->k, 3, 4)), NUM(a->scale));
  fl_value alive = fli_none();
  /* whether some queries may see nothing */
  bool blind = !fli_nothing(g->in[FL_IN_attention_mask]) ||
               (g->attrs->v[FL_ATTR_attentions_causal].i && a->nq > a->nk);
  if (!fli_nothing(g->in[FL_IN_attention_mask])) {
    fl_value mask = g->in[FL_IN_attention_mask];
    fl_meta m = *fli_meta(mask);
    int64_t whole[4] = {a->batch, a->heads * a->group, a->nq, a->nk};
    if (m.ndim > 2) /* the dim of heads becomes two */
      mask =
          fli_v_reshape(&g->e, fli_v_expand(&g->e, mask, 4, whole), 5, shape);
    s = m.dtype == FL_BOOL ? RUN(where, mask, s, NUM(-INFINITY)) : ADD(s, mask);
  }
  if (g->attrs->v[FL_ATTR_attentions_causal].i)
    s = RUN(where, causal_mask(g, a), s, NUM(-INFINITY));
  if (blind) { /* those give 0 */
    fl_attrs keep = fli_attrs(&g->e, FLI_OP_any);
    fli_set_list(&g->e, &keep, FL_ATTR_any_dims, 1, (int64_t[]){4});
    keep.v[FL_ATTR_any_keepdim].i = 1;
    alive = RUN_A(any, &keep, RUN(ne, s, NUM(-INFINITY)));
    s = RUN(where, alive, s, NUM(0));
  }
  fl_attrs last = fli_attrs(&g->e, FLI_OP_softmax);
  last.v[FL_ATTR_softmax_dim].i = 4;
  a->p = RUN_A(softmax, &last, s);
  if (!fli_nothing(alive))
    a->p = RUN(where, alive, a->p, NUM(0));
  a->dropped = dropped(g, a, a->p);
}

static void grad_plain(fli_grad *g) {
  fl_dtype d = g->out_meta[FL_OUT_attention_lse].dtype;
  const fl_meta *mq = &g->in_meta[FL_IN_attention_q],
                *mk = &g->in_meta[FL_IN_attention_k];
  plain a = {.heads = size_at(mk, 3),
             .batch = size_at(mq, 4),
             .nq = size_at(mq, 2),
             .nk = size_at(mk, 2),
             .keep_seed = g->in[FL_IN_attention_seed],
             .keep_offset = g->in[FL_IN_attention_offset],
             .scale = g->attrs->v[FL_ATTR_attentions_scale].f,
             .dropout = g->attrs->v[FL_ATTR_attentions_dropout].f};
  a.group = a.heads ? size_at(mq, 3) / a.heads : 1;
  if (a.scale != a.scale)
    a.scale = 1 / sqrt((double)(size_at(mq, 1) ? size_at(mq, 1) : 1));
  a.q = five(g, g->in[FL_IN_attention_q], a.group, d);
  a.k = five(g, g->in[FL_IN_attention_k], 1, d);
  a.v = five(g, g->in[FL_IN_attention_v], 1, d);
  a.dy = five(g, fli_g_dy(g, 0), a.group, d);
  /* k and v: (batch, heads, 1, nk, size) */
  recompute(g, &a);
  fl_value dp = dropped(g, &a, MATMUL(a.dy, TRANSPOSE(a.v, 3, 4)));
  fl_attrs last = fli_attrs(&g->e, FLI_OP_softmax_backward);
  last.v[FL_ATTR_softmax_backward_dim].i = 4;
  fl_value ds = RUN_A(softmax_backward, &last, dp, a.p);
  if (!fli_nothing(g->dy[FL_OUT_attention_lse])) {
    int64_t rows[5] = {a.batch, a.heads, a.group, a.nq, 1};
    ds = ADD(ds, MUL(a.p, fli_v_reshape(&g->e, g->dy[FL_OUT_attention_lse], 5,
                                        rows)));
  }
  fl_value flat = MUL(ds, NUM(a.scale));
  if (g->need[FL_IN_attention_q])
    g->dx[FL_IN_attention_q] = RESHAPE(MATMUL(flat, a.k), mq);
  if (g->need[FL_IN_attention_k])
    g->dx[FL_IN_attention_k] =
        RESHAPE(SUM1(MATMUL(TRANSPOSE(flat, 3, 4), a.q), 2, true), mk);
  if (g->need[FL_IN_attention_v])
    g->dx[FL_IN_attention_v] =
        RESHAPE(SUM1(MATMUL(TRANSPOSE(a.dropped, 3, 4), a.dy), 2, true),
                &g->in_meta[FL_IN_attention_v]);
  if (g->need[FL_IN_attention_mask]) {
    int64_t scores[4] = {a.batch, a.heads * a.group, a.nq, a.nk};
    g->dx[FL_IN_attention_mask] =
        fli_v_sum_to(&g->e, fli_v_reshape(&g->e, ds, 4, scores),
                     &g->in_meta[FL_IN_attention_mask]);
  }
}

void fli_grad_attention(fli_grad *g) {
  if (g->create || g->need[FL_IN_attention_mask] ||
      !fli_nothing(g->dy[FL_OUT_attention_lse])) {
    grad_plain(g);
    return;
  }
  fl_value d[FL_MAX_OUT];
  RUN_ALL(attention_backward, ATTRS_FOR(attention_backward, attention), d,
          IN(attention_backward, dy) = fli_g_dy(g, 0),
          IN(attention_backward, q) = g->in[FL_IN_attention_q],
          IN(attention_backward, k) = g->in[FL_IN_attention_k],
          IN(attention_backward, v) = g->in[FL_IN_attention_v],
          IN(attention_backward, mask) = g->in[FL_IN_attention_mask],
          IN(attention_backward, y) = g->y[0],
          IN(attention_backward, lse) = g->y[FL_OUT_attention_lse],
          IN(attention_backward, seed) = g->in[FL_IN_attention_seed],
          IN(attention_backward, offset) = g->in[FL_IN_attention_offset]);
  for (int k = 0; k < 3; k++)
    if (g->need[k])
      g->dx[k] = d[k];
}
