/* attention_varlen: attention whose mask says what belongs to the same
 * sequence, and is never made where there are kernels. */
#include "fits.h"

#include <math.h>

static fl_status check_sums(const char *row, const fl_meta *sums,
                            const char *name, int64_t like) {
  if (sums->ndim == 1 && sums->shape[0] > 0 &&
      (like < 0 || sums->shape[0] == like))
    return FL_OK;
  if (like >= 0 && sums->ndim == 1)
    return fli_fail(FL_ESHAPE,
                    "%s: %s has %lld numbers, but cu_seqlens_q has %lld: both "
                    "have one more than there are sequences",
                    row, name, (long long)sums->shape[0], (long long)like);
  return fli_fail(FL_ESHAPE,
                  "%s: %s must be 0 and the sums of the lengths of the "
                  "sequences, such as {0, 3, 8} for 3 and 5, got shape %s",
                  row, name, fli_shape_text(sums->ndim, sums->shape));
}

/* `in`: q, k, v, cu_seqlens_q, cu_seqlens_k */
static fl_status check_all(const char *row, const fl_meta *const *in) {
  const fl_meta *q = in[0], *k = in[1], *v = in[2];
  if (q->ndim != 3)
    return fli_fail(FL_ESHAPE,
                    "%s: q must be (queries of all sequences, heads, size), "
                    "got %s",
                    row, fli_shape_text(q->ndim, q->shape));
  if (k->ndim != 3 || v->ndim != 3 || k->shape[0] != v->shape[0] ||
      k->shape[1] != v->shape[1] || k->shape[2] != q->shape[2])
    return fli_fail(FL_ESHAPE,
                    "%s: q %s, k %s and v %s do not fit: k and v need the same "
                    "number of keys and heads, q and k the same last size",
                    row, fli_shape_text(q->ndim, q->shape),
                    fli_shape_text(k->ndim, k->shape),
                    fli_shape_text(v->ndim, v->shape));
  FLI_TRY(fli_fits_heads(row, q->shape[1], k->shape[1]));
  FLI_TRY(check_sums(row, in[3], "cu_seqlens_q", -1));
  if (in[4])
    return check_sums(row, in[4], "cu_seqlens_k", in[3]->shape[0]);
  return k->shape[0] == q->shape[0]
             ? FL_OK
             : fli_fail(FL_ESHAPE,
                        "%s: there are %lld queries and %lld keys; keys of "
                        "other lengths need cu_seqlens_k",
                        row, (long long)q->shape[0], (long long)k->shape[0]);
}

fl_status fli_shape_attention_varlen(fli_infer *c) {
  const fl_meta *q = c->in[FL_IN_attention_varlen_q];
  FLI_TRY(check_all("attention_varlen", c->in));
  double p = c->attrs->v[FL_ATTR_varlens_dropout].f;
  if (!(p >= 0 && p <= 1))
    return fli_fail(FL_EARG,
                    "attention_varlen: dropout must be from 0 to 1, got %g", p);
  fl_meta *lse = &c->out[FL_OUT_attention_varlen_lse];
  c->out[0].ndim = 3;
  c->out[0].shape[0] = lse->shape[1] = q->shape[0];
  c->out[0].shape[1] = lse->shape[0] = q->shape[1];
  c->out[0].shape[2] = c->in[FL_IN_attention_varlen_v]->shape[2];
  lse->ndim = 2;
  c->draws = p == 0 ? 0
                    : fl_numel(2, q->shape) *
                          c->in[FL_IN_attention_varlen_k]->shape[0];
  return FL_OK;
}

fl_status fli_shape_attention_varlen_backward(fli_infer *c) {
  const char *row = "attention_varlen_backward";
  const fl_meta *q = c->in[FL_IN_attention_varlen_backward_q],
                *v = c->in[FL_IN_attention_varlen_backward_v];
  FLI_TRY(check_all(row, c->in + FL_IN_attention_varlen_backward_q));
  int64_t like[3] = {q->shape[0], q->shape[1], v->shape[2]},
          sums[2] = {q->shape[1], q->shape[0]};
  FLI_TRY(fli_fits(c, FL_IN_attention_varlen_backward_dy, 3, like));
  return fli_fits_attention(c, FL_IN_attention_varlen_backward_y, 3, like,
                            sums);
}

/* Lengths are in memory: what all sequences of the average length need. */
static void count_products(const fli_infer *c, const fl_meta *const *in,
                           int of_keys, int of_values, double *flops,
                           double *bytes) {
  const fl_meta *q = in[0], *k = in[1], *v = in[2];
  int64_t n = in[3]->shape[0] > 1 ? in[3]->shape[0] - 1 : 1;
  double scores =
      (double)fl_numel(2, q->shape) * (double)k->shape[0] / (double)n;
  fli_cost_bytes(c, flops, bytes);
  *flops = 2 * scores *
           (of_keys * (double)q->shape[2] + of_values * (double)v->shape[2]);
  if (c->attrs->v[FL_ATTR_varlens_causal].i)
    *flops /= 2;
}

void fli_cost_attention_varlen(const fli_infer *c, double *flops,
                               double *bytes) {
  count_products(c, c->in, 1, 1, flops, bytes);
}

void fli_cost_attention_varlen_backward(const fli_infer *c, double *flops,
                                        double *bytes) {
  count_products(c, c->in + 1, 3, 2, flops, bytes); /* after dy */
}

/* --- as attention with a mask --- */

/* Of rows 0.. n - 1: the sequence of each, from 0, or, behind the last, their
 * number; and how many rows of the sequence there are from each on. */
typedef struct owners {
  fl_value of, left;
} owners;

static owners owners_of(fli_composing *g, fl_value sums, int64_t n) {
  int64_t last = fli_meta(sums)->shape[0] - 1;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_arange);
  a.v[FL_ATTR_arange_start].f = 0;
  a.v[FL_ATTR_arange_stop].f = (double)n;
  g->e.device = fl_tensor_device(sums.tensor);
  fl_value row = fli_run(&g->e, FLI_OP_arange, &a, 0, NULL);
  fl_value begun = RUN(ge, fli_v_unsqueeze(&g->e, row, 1), sums);
  owners o = {.of = SUB(SUM1(begun, 1, false), fli_integer(1))};
  fl_attrs limit = fli_attrs(&g->e, FLI_OP_clamp);
  limit.v[FL_ATTR_clamp_min].f = 0;
  limit.v[FL_ATTR_clamp_max].f = (double)last;
  fl_value next = RUN_A(clamp, &limit, ADD(o.of, fli_integer(1)));
  fl_attrs take = fli_attrs(&g->e, FLI_OP_index_select);
  take.v[FL_ATTR_index_select_dim].i = 0;
  fl_value end = RUN_A(index_select, &take, CAST(sums, FL_I64),
                       ADD(next, fli_integer(g->e.base)));
  o.left = SUB(end, row);
  return o;
}

void fli_compose_attention_varlen(fli_composing *g) {
  const fl_meta *in[5];
  for (int k = 0; k < 5; k++)
    in[k] = g->in[k].tensor ? fli_meta(g->in[k]) : NULL;
  for (int k = 0; k < 4; k++)
    if (!in[k]) {
      fli_env_fail(
          &g->e, FL_EARG,
          "attention_varlen: q, k, v and cu_seqlens_q must be tensors");
      return;
    }
  if ((g->e.status = check_all("attention_varlen", in)))
    return;
  fl_value sums = g->in[FL_IN_attention_varlen_cu_seqlens_q],
           more = g->in[FL_IN_attention_varlen_cu_seqlens_k];
  owners q = owners_of(g, sums, in[0]->shape[0]),
         k = owners_of(g, in[4] ? more : sums, in[1]->shape[0]);
  fl_value own = fli_v_unsqueeze(&g->e, q.of, 1),
           left = fli_v_unsqueeze(&g->e, q.left, 1),
           seen = RUN(logical_and, RUN(eq, own, k.of),
                      RUN(lt, own, fli_integer(in[3]->shape[0] - 1)));
  fl_attrs a = fli_attrs(&g->e, FLI_OP_attention);
  if (g->attrs->v[FL_ATTR_varlens_causal].i)
    seen = RUN(logical_and, seen, RUN(ge, k.left, left));
  a.v[FL_ATTR_attention_scale].f = g->attrs->v[FL_ATTR_varlens_scale].f;
  a.v[FL_ATTR_attention_dropout].f = g->attrs->v[FL_ATTR_varlens_dropout].f;
  fl_value out[FL_MAX_OUT];
  RUN_ALL(attention, &a, out,
          IN(attention, q) = TRANSPOSE(g->in[FL_IN_attention_varlen_q], 0, 1),
          IN(attention, k) = TRANSPOSE(g->in[FL_IN_attention_varlen_k], 0, 1),
          IN(attention, v) = TRANSPOSE(g->in[FL_IN_attention_varlen_v], 0, 1),
          IN(attention, mask) = seen,
          IN(attention, seed) = g->in[FL_IN_attention_varlen_seed],
          IN(attention, offset) = g->in[FL_IN_attention_varlen_offset]);
  g->out[0] = TRANSPOSE(out[0], 0, 1);
  g->out[FL_OUT_attention_varlen_lse] = out[FL_OUT_attention_lse];
}

/* --- the gradient --- */

/* The gradients of what it is composed of. `in`: q, k, v, sums, sums, seed,
 * offset; a left-out input is nothing. */
static void composed_grad(fli_env *e, const fl_attrs *attrs, const fl_value *in,
                          const bool *need, const fl_value *dy, fl_value *dx) {
  fli_composed_grad(e, &e->rt->ops[FLI_OP_attention_varlen], attrs,
                    FL_INS_attention_varlen, in, need, dy, dx);
}

void fli_grad_attention_varlen(fli_grad *g) {
  if (g->create || !fli_nothing(g->dy[FL_OUT_attention_varlen_lse])) {
    fl_value in[FL_INS_attention_varlen];
    bool need[FL_INS_attention_varlen];
    for (int k = 0; k < FL_INS_attention_varlen; k++) {
      in[k] = k < g->n_in ? g->in[k] : fli_none();
      need[k] = k < 3 && g->need[k];
    }
    composed_grad(&g->e, g->attrs, in, need, g->dy, g->dx);
    return;
  }
  fl_value d[FL_MAX_OUT];
  RUN_ALL(
      attention_varlen_backward,
      ATTRS_FOR(attention_varlen_backward, attention_varlen), d,
      IN(attention_varlen_backward, dy) = fli_g_dy(g, 0),
      IN(attention_varlen_backward, q) = g->in[FL_IN_attention_varlen_q],
      IN(attention_varlen_backward, k) = g->in[FL_IN_attention_varlen_k],
      IN(attention_varlen_backward, v) = g->in[FL_IN_attention_varlen_v],
      IN(attention_varlen_backward, cu_seqlens_q) =
          g->in[FL_IN_attention_varlen_cu_seqlens_q],
      IN(attention_varlen_backward, cu_seqlens_k) =
          g->in[FL_IN_attention_varlen_cu_seqlens_k],
      IN(attention_varlen_backward, y) = g->y[0],
      IN(attention_varlen_backward, lse) = g->y[FL_OUT_attention_varlen_lse],
      IN(attention_varlen_backward, seed) = g->in[FL_IN_attention_varlen_seed],
      IN(attention_varlen_backward, offset) =
          g->in[FL_IN_attention_varlen_offset]);
  for (int k = 0; k < 3; k++)
    if (g->need[k])
      g->dx[k] = d[k];
}

/* Where a backend has no kernel. */
void fli_compose_attention_varlen_backward(fli_composing *g) {
  fl_value in[FL_INS_attention_varlen], dy[FL_MAX_OUT], dx[FL_MAX_OUT + 3];
  bool need[FL_INS_attention_varlen] = {true, true, true};
  _Static_assert(FL_INS_attention_varlen <= FL_MAX_OUT + 3, "room for dx");
  for (int k = 0; k < FL_MAX_OUT; k++)
    dy[k] = fli_none();
  for (int k = 0; k < FL_INS_attention_varlen; k++) {
    int from = k < FL_IN_attention_varlen_seed
                   ? k + FL_IN_attention_varlen_backward_q
                   : k - FL_IN_attention_varlen_seed +
                         FL_IN_attention_varlen_backward_seed;
    in[k] = from < g->n_in ? g->in[from] : fli_none();
    dx[k] = fli_none();
  }
  dy[0] = g->in[FL_IN_attention_varlen_backward_dy];
  if (!dy[0].tensor) {
    fli_env_fail(&g->e, FL_EARG,
                 "attention_varlen_backward: dy must be a tensor");
    return;
  }
  composed_grad(&g->e, g->attrs, in, need, dy, dx);
  for (int k = 0; k < 3; k++)
    g->out[k] = fli_nothing(dx[k]) ? MUL(in[k], NUM(0)) : dx[k];
}

/* y and lse follow from the rest. */
void fli_grad_attention_varlen_backward(fli_grad *g) {
  fli_composed_grad(&g->e, g->op, g->attrs, g->n_in, g->in, g->need, g->dy,
                    g->dx);
}
