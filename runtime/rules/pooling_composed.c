/* Composed operators of pooling: adaptive max pooling, power means (lp_pool),
 * and max_unpool. */
#include "window.h"

#include <math.h>
#include <string.h>

/* The first dim of space, as pooling.c has it; 0 after a failure. */
static int space_from(fli_composing *g, int numbers) {
  const fl_meta *x = fli_meta(g->in[FL_IN_pools_x]);
  int n = numbers > 1 ? numbers : x->ndim == 2 ? 1 : x->ndim - 2;
  if (n >= 1 && n <= 3 && (x->ndim == n + 2 || x->ndim == n + 1))
    return x->ndim - n;
  fli_env_fail(&g->e, FL_ESHAPE,
               "%s: the input must be (batch, channels, sizes) or the same "
               "without batch, with 1 to 3 sizes, got %s",
               g->op->info.name, fli_shape_text(x->ndim, x->shape));
  return 0;
}

/* List attribute k as n numbers; `missing` NULL: it must be there. */
static bool numbers_of(fli_composing *g, int k, const char *name, int n,
                       const int64_t *missing, int64_t low, int64_t *out) {
  int given;
  const int64_t *v = fl_attr_list(g->attrs, k, &given);
  bool fits = given == n || given == 1 || (given == 0 && missing);
  for (int i = 0; i < n && fits; i++) {
    out[i] = given == 0 ? missing[i] : v[given == 1 ? 0 : i];
    fits = out[i] >= low && out[i] <= FLI_MAX_WINDOW;
  }
  if (!fits)
    fli_env_fail(&g->e, FL_EARG,
                 "%s: %s must be one number or %d, each at least %lld",
                 g->op->info.name, name, n, (long long)low);
  return fits;
}

static fl_value pooling_positions(fli_composing *g, int64_t n) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_arange);
  a.v[FL_ATTR_arange_start].f = 0;
  a.v[FL_ATTR_arange_stop].f = (double)n;
  return fli_run(&g->e, FLI_OP_arange, &a, 0, NULL);
}

/* --- to a given size --- */

/* Result j of m over n elements: those from floor(j n / m) up to ceil((j + 1) n
 * / m). The windows side by side, filled up with their last elements. */
static fl_value pooling_largest(fli_composing *g, fl_value x, int dim,
                                int64_t m) {
  const fl_meta *s = fli_meta(x);
  int64_t n = s->shape[dim], width = 0, shape[FL_MAX_DIMS + 1];
  int ndim = s->ndim;
  for (int64_t j = 0; j < m; j++) {
    int64_t w = (j * n + n + m - 1) / m - j * n / m;
    width = w > width ? w : width;
  }
  fl_value j = MUL(pooling_positions(g, m), fli_integer(n));
  fl_value end = RUN(floor_div, ADD(j, fli_integer(n + m - 1)), fli_integer(m));
  fl_value at = fli_v_unsqueeze(&g->e, RUN(floor_div, j, fli_integer(m)), 1);
  at = RUN(minimum, ADD(at, pooling_positions(g, width)),
           SUB(fli_v_unsqueeze(&g->e, end, 1), fli_integer(1)));
  at = fli_v_reshape(&g->e, at, 1, (int64_t[]){m * width});
  memcpy(shape, s->shape, sizeof s->shape);
  memmove(shape + dim + 1, shape + dim, (size_t)(ndim - dim) * sizeof *shape);
  shape[dim] = m;
  shape[dim + 1] = width;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_index_select);
  a.v[FL_ATTR_index_select_dim].i = dim;
  x = RUN_A(index_select, &a, x, ADD(at, fli_integer(g->e.base)));
  x = fli_v_reshape(&g->e, x, ndim + 1, shape);
  a = fli_attrs(&g->e, FLI_OP_max_dim);
  a.v[FL_ATTR_max_dim_dim].i = dim + 1;
  return RUN_A(max_dim, &a, x);
}

void fli_compose_adaptive_max_pool(fli_composing *g) {
  fl_value x = g->in[0];
  const fl_meta *m = fli_meta(x);
  int first =
      space_from(g, (int)g->attrs->v[FL_ATTR_adaptive_max_pool_size].list.n);
  int n = m->ndim - first;
  int64_t size[3], kernel[3];
  bool even = true;
  if (!first ||
      !numbers_of(g, FL_ATTR_adaptive_max_pool_size, "size", n, NULL, 1, size))
    return;
  for (int k = 0; k < n; k++) {
    int64_t have = m->shape[first + k];
    if (have == 0 || size[k] > INT32_MAX) {
      fli_env_fail(&g->e, FL_ESHAPE,
                   "adaptive_max_pool: no largest element in %s",
                   fli_shape_text(m->ndim, m->shape));
      return;
    }
    even = even && have % size[k] == 0;
    kernel[k] = have / size[k];
  }
  if (even) {
    fl_attrs a = fli_attrs(&g->e, FLI_OP_max_pool);
    fli_set_list(&g->e, &a, FL_ATTR_max_pool_kernel, n, kernel);
    x = RUN_A(max_pool, &a, x);
  }
  for (int k = 0; k < n && !even && g->e.status == FL_OK; k++)
    x = pooling_largest(g, x, first + k, size[k]);
  g->out[0] = x;
}

/* --- power means --- */

void fli_compose_lp_pool(fli_composing *g) {
  static const int64_t none[3] = {0, 0, 0};
  const fl_meta *m = fli_meta(g->in[0]);
  double p = g->attrs->v[FL_ATTR_lp_pool_p].f;
  int first = space_from(g, (int)g->attrs->v[FL_ATTR_lp_pool_kernel].list.n),
      n = m->ndim - first;
  int64_t kernel[3], stride[3], padding[3], list[6], most = 1;
  if (!first ||
      !numbers_of(g, FL_ATTR_lp_pool_kernel, "kernel", n, NULL, 1, kernel) ||
      !numbers_of(g, FL_ATTR_lp_pool_stride, "stride", n, kernel, 1, stride) ||
      !numbers_of(g, FL_ATTR_lp_pool_padding, "padding", n, none, 0, padding))
    return;
  if (!(p > 0) || !(p < INFINITY)) {
    fli_env_fail(&g->e, FL_EARG, "lp_pool: p must be above 0, got %g", p);
    return;
  }
  for (int k = 0; k < n; k++) { /* zeros do not count: pad what is missing */
    int64_t have = m->shape[first + k];
    int64_t count = fli_window_count(have, kernel[k], stride[k], padding[k], 1,
                                     g->attrs->v[FL_ATTR_lp_pool_ceil].i != 0);
    int64_t need = (count - 1) * stride[k] + kernel[k] - have - padding[k];
    list[2 * (n - 1 - k)] = padding[k];
    list[2 * (n - 1 - k) + 1] = need > padding[k] ? need : padding[k];
    most *= kernel[k];
  }
  fl_dtype d = m->dtype;
  fl_attrs pad = fli_attrs(&g->e, FLI_OP_pad);
  fl_attrs pool = fli_attrs(&g->e, FLI_OP_avg_pool);
  fli_set_list(&g->e, &pad, FL_ATTR_pad_pad, 2 * n, list);
  fli_set_list(&g->e, &pool, FL_ATTR_avg_pool_kernel, n, kernel);
  fli_set_list(&g->e, &pool, FL_ATTR_avg_pool_stride, n, stride);
  fl_value x = CAST(g->in[0], d == FL_F64 ? FL_F64 : FL_F32);
  x = RUN(pow, RUN(abs, RUN_A(pad, &pad, x)), NUM(p));
  x = MUL(RUN_A(avg_pool, &pool, x), NUM((double)most));
  g->out[0] = CAST(RUN(pow, x, NUM(1 / p)), d);
}

/* --- back --- */

void fli_compose_max_unpool(fli_composing *g) {
  static const int64_t none[3] = {0, 0, 0};
  fl_value x = g->in[FL_IN_max_unpool_x], where = g->in[FL_IN_max_unpool_where];
  const fl_meta *m = fli_meta(x);
  int first = space_from(g, (int)g->attrs->v[FL_ATTR_max_unpool_kernel].list.n),
      n = m->ndim - first;
  int64_t kernel[3], stride[3], padding[3], size[3], shape[FL_MAX_DIMS];
  if (!first ||
      !numbers_of(g, FL_ATTR_max_unpool_kernel, "kernel", n, NULL, 1, kernel) ||
      !numbers_of(g, FL_ATTR_max_unpool_stride, "stride", n, kernel, 1,
                  stride) ||
      !numbers_of(g, FL_ATTR_max_unpool_padding, "padding", n, none, 0,
                  padding))
    return;
  for (int k = 0; k < n; k++)
    size[k] =
        (m->shape[first + k] - 1) * stride[k] - 2 * padding[k] + kernel[k];
  if (!numbers_of(g, FL_ATTR_max_unpool_size, "size", n, size, 1, size))
    return;
  if (!where.tensor || !fli_same_shape(m, fli_meta(where))) {
    fli_env_fail(&g->e, FL_ESHAPE,
                 "max_unpool: x has shape %s and the positions %s; they must "
                 "be the same",
                 fli_shape_text(m->ndim, m->shape),
                 fli_shape_text(fli_meta(where)->ndim, fli_meta(where)->shape));
    return;
  }
  memcpy(shape, m->shape, sizeof shape);
  int64_t flat = fl_numel(n, size), part = fl_numel(n, m->shape + first);
  shape[first] = part;
  x = fli_v_reshape(&g->e, x, first + 1, shape);
  where = fli_v_reshape(&g->e, where, first + 1, shape);
  shape[first] = flat;
  fl_value y = fli_v_zeros(&g->e, m->dtype, first + 1, shape, g->e.device);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_scatter);
  a.v[FL_ATTR_scatter_dim].i = first;
  y = RUN_A(scatter, &a, y, where, x);
  memcpy(shape + first, size, (size_t)n * sizeof *size);
  g->out[0] = fli_v_reshape(&g->e, y, m->ndim, shape);
}
