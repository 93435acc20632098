/* Products of groups of rows: shapes, gradients, cost. */
#include "env.h"

/* A 3-d b has a matrix for each group of rows of a; a 2-d b is cut into groups
 * of rows as a's columns are. */
fl_status fli_shape_grouped_mm(fli_infer *c) {
  const fl_meta *a = c->in[FL_IN_grouped_mm_a], *b = c->in[FL_IN_grouped_mm_b],
                *ends = c->in[FL_IN_grouped_mm_ends];
  fl_meta *y = &c->out[0];
  if (a->ndim != 2 || (b->ndim != 2 && b->ndim != 3))
    return fli_fail(FL_ESHAPE,
                    "grouped_mm: a must be (rows, k) and b (groups, k, n), or "
                    "a (m, rows) and b (rows, n), got %s and %s",
                    fli_shape_text(a->ndim, a->shape),
                    fli_shape_text(b->ndim, b->shape));
  if (a->shape[1] != b->shape[b->ndim - 2])
    return fli_fail(
        FL_ESHAPE, "grouped_mm: %s x %s: inner sizes %lld and %lld differ",
        fli_shape_text(a->ndim, a->shape), fli_shape_text(b->ndim, b->shape),
        (long long)a->shape[1], (long long)b->shape[b->ndim - 2]);
  if (ends->ndim != 1 || (b->ndim == 3 && ends->shape[0] != b->shape[0]))
    return fli_fail(FL_ESHAPE,
                    "grouped_mm: ends %s must have one number for each group: "
                    "b is %s",
                    fli_shape_text(ends->ndim, ends->shape),
                    fli_shape_text(b->ndim, b->shape));
  y->ndim = b->ndim == 3 ? 2 : 3;
  y->shape[0] = ends->shape[0];
  y->shape[y->ndim - 2] = a->shape[0];
  y->shape[y->ndim - 1] = b->shape[b->ndim - 1];
  return FL_OK;
}

void fli_cost_grouped_mm(const fli_infer *c, double *flops, double *bytes) {
  const fl_meta *a = c->in[FL_IN_grouped_mm_a], *b = c->in[FL_IN_grouped_mm_b];
  fli_cost_bytes(c, flops, bytes);
  *flops =
      2 * (double)fl_numel(a->ndim, a->shape) * (double)b->shape[b->ndim - 1];
}

static fl_value grouped_turned(fli_env *e, fl_value x) {
  int n = e->status ? 2 : fli_meta(x)->ndim;
  return fli_v_transpose(e, x, n - 2, n - 1);
}

/* Whether b's matrices are stored the other way round, as (groups, n, k). */
static bool lies_turned(fl_value b) {
  if (!b.tensor || fli_meta(b)->ndim != 3)
    return false;
  const int64_t *stride = fl_tensor_strides(b.tensor);
  return stride[1] == 1 && stride[2] != 1;
}

#define GROUPED(a, b) RUN(grouped_mm, a, b, g->in[FL_IN_grouped_mm_ends])

/* The gradients are products of the same groups. That of b's matrices is stored
 * as they are, where these were kept: then no copy turns it for a weight. */
void fli_grad_grouped_mm(fli_grad *g) {
  fli_env *e = &g->e;
  fl_value a = g->in[FL_IN_grouped_mm_a], b = g->in[FL_IN_grouped_mm_b],
           dy = g->dy[0];
  bool rows = g->in_meta[FL_IN_grouped_mm_b].ndim == 3;
  if (g->need[FL_IN_grouped_mm_a])
    g->dx[FL_IN_grouped_mm_a] =
        rows ? GROUPED(dy, grouped_turned(e, b))
             : grouped_turned(e, GROUPED(b, grouped_turned(e, dy)));
  if (g->need[FL_IN_grouped_mm_b])
    g->dx[FL_IN_grouped_mm_b] =
        rows && lies_turned(b)
            ? grouped_turned(e, GROUPED(grouped_turned(e, dy), a))
            : GROUPED(grouped_turned(e, a), dy);
}
