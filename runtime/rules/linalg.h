/* Helpers that the rules of linear algebra share. The macros expect the
 * environment in a variable `g`. */
#ifndef FL_RULES_LINALG_H
#define FL_RULES_LINALG_H

#include "env.h"

/* The last two dims the other way round. */
static inline fl_value fli_turn(fli_env *e, fl_value x) {
  int n = fli_meta(x)->ndim;
  return e->status ? x : fli_v_transpose(e, x, n - 2, n - 1);
}
#define TURN(x) fli_turn(&g->e, x)

/* tril or triu. */
static inline fl_value fli_triangle(fli_env *e, fl_value x, bool upper,
                                    int64_t diagonal) {
  int op = upper ? FLI_OP_triu : FLI_OP_tril;
  fl_attrs a = fli_attrs(e, op);
  a.v[FL_ATTR_triangle_diagonal].i = diagonal;
  return fli_run(e, op, &a, 1, &x);
}

/* Ones on the diagonal of m x n, of the dtype and on the device of `like`. */
static inline fl_value fli_diagonal(fli_env *e, int64_t m, int64_t n,
                                    fl_value like) {
  if (e->status)
    return like;
  fl_device device = fl_tensor_device(like.tensor);
  fl_value one =
      fli_v_zeros(e, fli_meta(like)->dtype, 2, (int64_t[]){m, n}, device);
  one = fli_run(e, FLI_OP_add, NULL, 2, (fl_value[]){one, fli_number(1)});
  return fli_triangle(e, fli_triangle(e, one, false, 0), true, 0);
}

static inline fl_value fli_identity(fli_env *e, int64_t n, fl_value like) {
  return fli_diagonal(e, n, n, like);
}

/* Rows of x, or columns, at positions that differ from matrix to matrix. */
static inline fl_value fli_rows_at(fli_env *e, fl_value x, fl_value at,
                                   bool columns) {
  if (e->status)
    return x;
  const fl_meta *m = fli_meta(x);
  int row = m->ndim - 2, column = m->ndim - 1;
  fl_attrs a = fli_attrs(e, FLI_OP_gather);
  a.v[FL_ATTR_gather_dim].i = columns ? column : row;
  at = fli_v_unsqueeze(e, at, columns ? row : column);
  at = fli_v_expand(e, at, m->ndim, m->shape);
  return fli_run(e, FLI_OP_gather, &a, 2, (fl_value[]){x, at});
}

/* The inverse of a permutation. */
static inline fl_value fli_inverse_order(fli_env *e, fl_value order) {
  return fli_run(e, FLI_OP_argsort, NULL, 1, &order);
}

#endif
