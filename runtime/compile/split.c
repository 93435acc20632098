/* The rules by which launches are done in parts: split_<rule> for the mark
 * FL_SPLIT of ops.def; elementwise rows and rows with a body need no mark. */
#include "split.h"
#include "rows.h"
#include "../program.h"

#include <string.h>

typedef bool split_fn(fli_split *s);

/* Sets operand k, of the shape m; a dim that it lacks, or broadcasts, is read
 * whole. */
static void split_set(fli_split *s, int k, const fl_meta *m, int dim,
                      int64_t size) {
  s->to[k] = m && dim >= 0 && dim < m->ndim && m->shape[dim] == size
                 ? (int8_t)dim
                 : FLI_SPLIT_WHOLE;
}

static const fl_meta *split_meta(const fli_split *s, int k) {
  return k < s->n_in ? s->in[k] : s->out[k - s->n_in];
}

static int64_t split_size(const fli_split *s) {
  return split_meta(s, s->at)->shape[s->dim];
}

/* --- rules --- */

/* Dims counted from the last one. */
static bool split_pointwise(fli_split *s) {
  int back = split_meta(s, s->at)->ndim - s->dim;
  int64_t size = split_size(s);
  for (int k = 0; k < s->n_in + s->n_out; k++) {
    const fl_meta *m = split_meta(s, k);
    split_set(s, k, m, m ? m->ndim - back : -1, size);
    if (k >= s->n_in && s->to[k] < 0)
      return false;
  }
  return true;
}

/* Where dim d of the first input is in operand k, -1: other inputs have its
 * last dims, results all of them or those that are not reduced. */
static int rows_dim(const fli_split *s, int k, int d, uint32_t reduced) {
  const fl_meta *x = s->in[0], *m = split_meta(s, k);
  if (!m)
    return -1;
  if (k < s->n_in || m->ndim == x->ndim)
    return d - (x->ndim - m->ndim);
  return reduced >> d & 1 ? -1
                          : d - __builtin_popcount(reduced & ((1u << d) - 1));
}

/* Whether it is the sum over the dims that it reduces. */
static bool rows_sum(const fl_op *op) {
  static const bool sums[FLI_OPS] = {
#define FL_REDUCES(name, kind)                                                 \
  [FLI_OP_##name] = FL_REDUCE_##kind == FL_REDUCE_SUM,
#include "../ops.def"
  };
  return sums[op->id];
}

static bool rows_named(const fli_split *s) {
  for (int k = 0; k < s->op->info.n_params; k++) {
    const fl_param *q = &s->op->info.params[k];
    if (q->kind == FL_P_DIM && s->attrs->v[q->slot].i == FL_ATTR_NONE)
      return false;
  }
  return true;
}

/* Rows of the dims that an attribute names: along other dims they are computed
 * apart, and sums along these are sums of the parts'. */
static bool split_rows(fli_split *s) {
  const fl_meta *x = s->in[0];
  if (!x || x->ndim == 0 || !rows_named(s))
    return false;
  uint32_t reduced = fli_row_reduced(s->op, s->attrs, x);
  int d = -1;
  for (int i = 0; i < x->ndim && d < 0; i++)
    if (rows_dim(s, s->at, i, reduced) == s->dim &&
        x->shape[i] == split_size(s))
      d = i;
  bool sum = d >= 0 && reduced >> d & 1;
  if (d < 0 || (sum && !rows_sum(s->op)))
    return false;
  for (int k = 0; k < s->n_in + s->n_out; k++) {
    int at = rows_dim(s, k, d, reduced);
    split_set(s, k, split_meta(s, k), at, x->shape[d]);
    if (k >= s->n_in && sum)
      s->to[k] = FLI_SPLIT_SUM;
    if (k >= s->n_in && s->to[k] == FLI_SPLIT_WHOLE)
      return false;
  }
  return true;
}

enum { ROWS, INNER, COLUMNS, BATCH }; /* of a product */

typedef struct factor {            /* which dims of an operand are what */
  int rows, inner, columns, batch; /* -1; dims below `batch` are of the batch */
} factor;

/* The batch dims are counted from the last one. */
static int factor_dim(const factor *f, int what, int back) {
  switch (what) {
  case ROWS:
    return f->rows;
  case INNER:
    return f->inner;
  case COLUMNS:
    return f->columns;
  default:
    return back <= f->batch ? f->batch - back : -1;
  }
}

static bool split_product(fli_split *s, const factor f[3]) {
  int k = s->at < s->n_in ? s->at : 2, what = BATCH, back = 0;
  int64_t size = split_size(s);
  if (s->dim == f[k].rows)
    what = ROWS;
  else if (s->dim == f[k].inner)
    what = INNER;
  else if (s->dim == f[k].columns)
    what = COLUMNS;
  else
    back = f[k].batch - s->dim;
  split_set(s, 0, s->in[0], factor_dim(&f[0], what, back), size);
  split_set(s, 1, s->in[FL_IN_matmul_b], factor_dim(&f[1], what, back), size);
  split_set(s, s->n_in, s->out[0], factor_dim(&f[2], what, back), size);
  if (what == INNER)
    s->to[s->n_in] = FLI_SPLIT_SUM;
  return what == INNER ? s->to[0] >= 0 && s->to[1] >= 0 : s->to[s->n_in] >= 0;
}

static bool split_matmul(fli_split *s) {
  int a = s->in[FL_IN_matmul_a]->ndim, b = s->in[FL_IN_matmul_b]->ndim,
      y = s->out[0]->ndim;
  bool row = a == 1, column = b == 1;
  factor f[3] = {
      {row ? -1 : a - 2, a - 1, -1, row ? 0 : a - 2},
      {-1, column ? 0 : b - 2, column ? -1 : b - 1, column ? 0 : b - 2},
      {row ? -1 : y - 1 - !column, -1, column ? -1 : y - 1,
       y - !row - !column}};
  _Static_assert(FL_IN_matmul_a == 0 && FL_IN_matmul_b == 1, "factors");
  return split_product(s, f);
}

/* All dims of x but the last are rows. A bias and an activation come after the
 * sum, so this must be whole. */
static bool split_linear(fli_split *s) {
  int x = s->in[FL_IN_linear_x]->ndim;
  const fl_meta *bias = s->n_in > 2 ? s->in[FL_IN_linear_bias] : NULL,
                *pre = s->out[FL_OUT_linear_pre];
  int second = s->n_in + FL_OUT_linear_pre;
  bool pair = pre->ndim == s->out[0]->ndim;
  factor f[3] = {{-1, x - 1, -1, x - 1}, {-1, 1, 0, 0}, {-1, -1, x - 1, x - 1}};
  _Static_assert(FL_IN_linear_x == 0 && FL_IN_linear_weight == 1, "factors");
  if (bias && s->at == FL_IN_linear_bias) {
    s->at = FL_IN_linear_weight;
    s->dim = 0;
  }
  if (s->at == second && pair)
    s->at = s->n_in;
  if (s->at == second || !split_product(s, f))
    return false;
  if (s->to[s->n_in] == FLI_SPLIT_SUM &&
      (bias || s->attrs->v[FL_ATTR_linear_act].i != 0))
    return false;
  for (int k = 2; k < s->n_in; k++)
    s->to[k] = bias && s->to[1] == 0 ? 0 : FLI_SPLIT_WHOLE;
  s->to[second] = pair ? s->to[s->n_in] : FLI_SPLIT_WHOLE;
  return true;
}

enum { MEAN, SUM, NONE }; /* attribute `reduction` */

/* The dim of the scores that an operand of a loss has as its dim d: of the
 * scores' shape, or without the classes. */
static int scores_dim(const fl_meta *x, const fl_meta *m, int d) {
  return m->ndim == x->ndim ? d : d + (d >= 1);
}

static void split_scores(fli_split *s, int k, const fl_meta *x, int d) {
  const fl_meta *m = split_meta(s, k);
  bool all = m && m->ndim == x->ndim;
  split_set(s, k, m, all ? d : d - (d > 1), x->shape[d]);
}

/* Samples apart from each other, classes together. */
static bool split_cross_entropy(fli_split *s) {
  const fl_meta *x = s->in[FL_IN_cross_entropy_x];
  int y = s->n_in, total = s->n_in + FL_OUT_cross_entropy_total;
  int64_t reduction = s->attrs->v[FL_ATTR_cross_entropy_reduction].i;
  int d = scores_dim(x, split_meta(s, s->at), s->dim);
  if (x->ndim < 2 || d == 1 || s->at == total ||
      s->at == FL_IN_cross_entropy_weight)
    return false;
  split_scores(s, FL_IN_cross_entropy_x, x, d);
  split_scores(s, FL_IN_cross_entropy_target, x, d);
  s->to[FL_IN_cross_entropy_weight] = FLI_SPLIT_WHOLE;
  split_scores(s, s->n_in + FL_OUT_cross_entropy_lse, x, d);
  s->to[total] = FLI_SPLIT_SUM;
  if (reduction == NONE) {
    split_scores(s, y, x, d);
    return true;
  }
  s->to[y] = FLI_SPLIT_SUM;
  s->attr = FL_ATTR_cross_entropy_reduction;
  s->value = SUM;
  if (reduction == MEAN)
    s->over[0] = FL_OUT_cross_entropy_total;
  return true;
}

static bool split_cross_entropy_backward(fli_split *s) {
  const fl_meta *x = s->in[FL_IN_cross_entropy_backward_x];
  int d = scores_dim(x, split_meta(s, s->at), s->dim);
  if (x->ndim < 2 || d == 1 || s->at == FL_IN_cross_entropy_backward_weight)
    return false;
  for (int k = 0; k < s->n_in + s->n_out; k++)
    split_scores(s, k, x, d);
  s->to[FL_IN_cross_entropy_backward_weight] = FLI_SPLIT_WHOLE;
  s->to[FL_IN_cross_entropy_backward_total] = FLI_SPLIT_WHOLE;
  if (s->attrs->v[FL_ATTR_cross_entropy_backward_reduction].i != NONE)
    s->to[FL_IN_cross_entropy_backward_dy] = FLI_SPLIT_WHOLE;
  return true;
}

/* --- the table --- */

static split_fn *const rules[FLI_OPS] = {
#define FL_SPLIT(name, rule) [FLI_OP_##name] = split_##rule,
#include "../ops.def"
};
static const int16_t adders[FLI_OPS] = {
#define FL_ADDER(name, row) [FLI_OP_##name] = FLI_OP_##row + 1,
#include "../ops.def"
};
static const struct {
  int16_t out, row;
} aheads[FLI_OPS] = {
#define FL_AHEAD(name, result, row)                                            \
  [FLI_OP_##name] = {FL_OUT_##name##_##result, FLI_OP_##row + 1},
#include "../ops.def"
};
static const int8_t reuses[FLI_OPS] = {
#define FL_REUSES(name, input) [FLI_OP_##name] = FL_IN_##name##_##input + 1,
#include "../ops.def"
};

bool fli_split_of(fli_split *s) {
  const fl_op *op = s->op;
  if (op->id >= FLI_OPS || s->n_in + s->n_out > FLI_SPLIT_OPERANDS)
    return false;
  s->attr = -1;
  for (int k = 0; k < FL_MAX_OUT; k++)
    s->over[k] = -1;
  split_fn *rule = rules[op->id];
  if (!rule && op->marks & FLI_MARK_POINTWISE)
    rule = split_pointwise;
  if (!rule && fli_row_facts_of(op)->body)
    rule = split_rows;
  return rule && rule(s);
}

int fli_split_adder(const fl_op *op) {
  return op->id < FLI_OPS ? adders[op->id] - 1 : -1;
}

int fli_split_ahead(const fl_op *op, int *out) {
  if (op->id >= FLI_OPS)
    return -1;
  *out = aheads[op->id].out;
  return aheads[op->id].row - 1;
}

int fli_split_reuses(const fl_op *op) {
  return op->id < FLI_OPS ? reuses[op->id] - 1 : -1;
}
