/* Rules of the rows that read and write at positions. Gradients of reading are
 * sums into zeros at the same positions, and those of writing are reads. Where
 * scatter or index_copy write one place several times, every source gets the
 * gradient of that place. */
#include "../tensor/extra.h"
#include "env.h"

#include <string.h>

static void set_shape(fl_meta *m, int ndim, const int64_t *shape) {
  m->ndim = ndim;
  memcpy(m->shape, shape, (size_t)ndim * sizeof *shape);
}

static fl_value zeros_like(fli_grad *g, const fl_meta *m) {
  fl_value dy = g->dy[0];
  return fli_v_zeros(&g->e, fli_meta(dy)->dtype, m->ndim, m->shape,
                     dy.tensor ? fl_tensor_device(dy.tensor) : 0);
}

/* A zero expanded to every place, to be added to. */
static fl_value zero_like(fli_grad *g, const fl_meta *m) {
  fl_meta none = {.dtype = m->dtype};
  return EXPAND(zeros_like(g, &none), m);
}

/* A row's attributes with the dim of another row's. */
static fl_attrs index_along(fli_grad *g, int op, int at, int64_t dim) {
  fl_attrs a = fli_attrs(&g->e, op);
  a.v[at].i = dim;
  return a;
}

#define INDEX_ALONG(op, dim)                                                   \
  index_along(g, FLI_OP_##op, FL_ATTR_##op##_dim, dim)

/* --- embedding --- */

/* Appends x's shape from `from` on; fails with too many dims. */
static fl_status append(fli_infer *c, const fl_meta *x, int from) {
  fl_meta *y = &c->out[0];
  if (y->ndim + x->ndim - from > FL_MAX_DIMS)
    return fli_fail(FL_ESIZE,
                    "%s: the result would have %d dims, at most %d "
                    "are possible",
                    c->op->info.name, y->ndim + x->ndim - from, FL_MAX_DIMS);
  for (int d = from; d < x->ndim; d++)
    y->shape[y->ndim++] = x->shape[d];
  return FL_OK;
}

/* The optional position of the row that gets no gradient, from the end if
 * negative. */
static fl_status settle_padding(fli_infer *c, int64_t *padding, int64_t rows) {
  if (*padding == FL_ATTR_NONE)
    return FL_OK;
  int64_t p = *padding < 0 ? *padding + rows : *padding;
  if (p < 0 || p >= rows)
    return fli_fail(FL_EINDEX, "%s: padding %lld is no row of %lld",
                    c->op->info.name,
                    (long long)(*padding < 0 ? *padding : *padding + c->base),
                    (long long)rows);
  *padding = p;
  return FL_OK;
}

fl_status fli_shape_embedding(fli_infer *c) {
  const fl_meta *weight = c->in[FL_IN_embedding_weight],
                *index = c->in[FL_IN_embedding_index];
  if (weight->ndim != 2)
    return fli_fail(FL_ESHAPE,
                    "embedding: weight must be (rows, width), got shape %s",
                    fli_shape_text(weight->ndim, weight->shape));
  FLI_TRY(settle_padding(c, &c->attrs->v[FL_ATTR_embedding_padding].i,
                         weight->shape[0]));
  set_shape(&c->out[0], index->ndim, index->shape);
  return append(c, weight, 1);
}

fl_status fli_shape_embedding_backward(fli_infer *c) {
  const fl_meta *dy = c->in[FL_IN_embedding_backward_dy],
                *index = c->in[FL_IN_embedding_backward_index];
  int64_t rows = c->attrs->v[FL_ATTR_embedding_backward_rows].i;
  if (rows < 0 || dy->ndim < index->ndim ||
      memcmp(dy->shape, index->shape,
             (size_t)index->ndim * sizeof *index->shape))
    return fli_fail(FL_ESHAPE,
                    "embedding_backward: dy has shape %s and index %s; dy's "
                    "must begin with index's",
                    fli_shape_text(dy->ndim, dy->shape),
                    fli_shape_text(index->ndim, index->shape));
  FLI_TRY(settle_padding(c, &c->attrs->v[FL_ATTR_embedding_backward_padding].i,
                         rows));
  set_shape(&c->out[0], 1, &rows);
  return append(c, dy, index->ndim);
}

void fli_grad_embedding(fli_grad *g) {
  fl_attrs a = fli_attrs(&g->e, FLI_OP_embedding_backward);
  a.v[FL_ATTR_embedding_backward_rows].i =
      g->in_meta[FL_IN_embedding_weight].shape[0];
  a.v[FL_ATTR_embedding_backward_padding] =
      g->attrs->v[FL_ATTR_embedding_padding];
  g->dx[FL_IN_embedding_weight] =
      RUN_A(embedding_backward, &a, g->dy[0], g->in[FL_IN_embedding_index]);
}

/* Reads the rows of the gradient; positions equal to padding get 0. */
void fli_grad_embedding_backward(fli_grad *g) {
  int64_t padding = g->attrs->v[FL_ATTR_embedding_backward_padding].i,
          rows = g->attrs->v[FL_ATTR_embedding_backward_rows].i;
  const fl_meta *dy = &g->in_meta[FL_IN_embedding_backward_dy];
  fl_attrs a = INDEX_ALONG(index_select, 0);
  fl_value index = g->in[FL_IN_embedding_backward_index];
  int64_t n = fl_numel(fli_meta(index)->ndim, fli_meta(index)->shape);
  if (index.tensor)
    index = fli_v_reshape(&g->e, index, 1, &n);
  if (rows == 0 || n == 0) {
    g->dx[FL_IN_embedding_backward_dy] = zeros_like(g, dy);
    return;
  }
  fl_value dx = RUN_A(index_select, &a, g->dy[0], index);
  if (padding != FL_ATTR_NONE) {
    fl_value out = RUN(eq, index, fli_integer(padding + g->e.base));
    int64_t shape[FL_MAX_DIMS] = {n};
    for (int d = 1; d < fli_meta(dx)->ndim; d++)
      shape[d] = 1;
    out = fli_v_reshape(&g->e, out, fli_meta(dx)->ndim, shape);
    dx = RUN(where, out, NUM(0), dx);
  }
  g->dx[FL_IN_embedding_backward_dy] = RESHAPE(dx, dy);
}

/* --- embedding_bag --- */

enum { BAG_SUM, BAG_MEAN, BAG_MAX }; /* the order of its modes */

/* Inputs 1 to 3: index, offsets and factors; `last`: offsets end with where
 * the last bag ends. */
static fl_status count_bags(fli_infer *c, int64_t mode, bool last,
                            int64_t *bags) {
  const fl_meta *index = c->in[FL_IN_bags_index],
                *offsets = c->in[FL_IN_bags_offsets],
                *factors = c->in[FL_IN_bags_weights];
  const char *name = c->op->info.name;
  if (index->ndim != (offsets ? 1 : 2))
    return fli_fail(FL_ESHAPE,
                    "%s: index must be (bags, size), or (n) with offsets, got "
                    "%s%s",
                    name, fli_shape_text(index->ndim, index->shape),
                    offsets ? " with offsets" : "");
  if (offsets && (offsets->ndim != 1 || offsets->shape[0] < last))
    return fli_fail(FL_ESHAPE, "%s: offsets must be a vector%s, got shape %s",
                    name, last ? " that ends with the last bag" : "",
                    fli_shape_text(offsets->ndim, offsets->shape));
  if (factors && mode != BAG_SUM)
    return fli_fail(FL_EARG, "%s: weights go with mode = 'sum'", name);
  if (factors && !fli_same_shape(factors, index))
    return fli_fail(FL_ESHAPE,
                    "%s: weights must have the shape of index, %s, got %s",
                    name, fli_shape_text(index->ndim, index->shape),
                    fli_shape_text(factors->ndim, factors->shape));
  *bags = offsets ? offsets->shape[0] - last : index->shape[0];
  return FL_OK;
}

/* The second result has the positions of the largest elements; it is empty for
 * the other modes. */
fl_status fli_shape_embedding_bag(fli_infer *c) {
  const fl_meta *weight = c->in[FL_IN_embedding_bag_weight];
  fl_meta *y = &c->out[0], *where = &c->out[FL_OUT_embedding_bag_where];
  fl_attr *v = c->attrs->v;
  int64_t bags = 0, none = 0;
  if (weight->ndim != 2)
    return fli_fail(FL_ESHAPE,
                    "embedding_bag: weight must be (rows, width), got shape %s",
                    fli_shape_text(weight->ndim, weight->shape));
  FLI_TRY(
      settle_padding(c, &v[FL_ATTR_embedding_bag_padding].i, weight->shape[0]));
  FLI_TRY(count_bags(c, v[FL_ATTR_embedding_bag_mode].i,
                     v[FL_ATTR_embedding_bag_include_last].i != 0, &bags));
  set_shape(y, 2, (int64_t[]){bags, weight->shape[1]});
  set_shape(where, 1, &none);
  if (v[FL_ATTR_embedding_bag_mode].i == BAG_MAX)
    set_shape(where, 2, y->shape);
  else
    c->saves &= ~(2u << FLI_SAVE_OUT);
  if (!c->in[FL_IN_embedding_bag_weights])
    c->saves &= ~1u;
  return FL_OK;
}

fl_status fli_shape_embedding_bag_backward(fli_infer *c) {
  const fl_meta *dy = c->in[FL_IN_embedding_bag_backward_dy];
  fl_attr *v = c->attrs->v;
  int64_t bags = 0;
  FLI_TRY(count_bags(c, v[FL_ATTR_embedding_bag_backward_mode].i,
                     v[FL_ATTR_embedding_bag_backward_include_last].i != 0,
                     &bags));
  if (dy->ndim != 2 || dy->shape[0] != bags ||
      v[FL_ATTR_embedding_bag_backward_rows].i < 0)
    return fli_fail(FL_ESHAPE,
                    "embedding_bag_backward: dy must be (%lld, width), got "
                    "shape %s for %lld rows",
                    (long long)bags, fli_shape_text(dy->ndim, dy->shape),
                    (long long)v[FL_ATTR_embedding_bag_backward_rows].i);
  FLI_TRY(settle_padding(c, &v[FL_ATTR_embedding_bag_backward_padding].i,
                         v[FL_ATTR_embedding_bag_backward_rows].i));
  set_shape(
      &c->out[0], 2,
      (int64_t[]){v[FL_ATTR_embedding_bag_backward_rows].i, dy->shape[1]});
  if (!c->in[FL_IN_embedding_bag_backward_weights])
    c->saves &= ~1u;
  return FL_OK;
}

/* The row of dy (bags, width) for each position: that of its bag, or a row of
 * zeros, appended to dy, for positions that no bag contains. */
static fl_value by_position(fli_grad *g, fl_value dy, int64_t n) {
  fl_value offsets = g->in[FL_IN_bags_offsets];
  fl_attrs a = fli_attrs(&g->e, FLI_OP_arange);
  if (fli_nothing(offsets))
    return fli_v_unsqueeze(&g->e, dy, 1);
  a.v[FL_ATTR_arange_start].f = (double)g->e.base;
  a.v[FL_ATTR_arange_stop].f = (double)(g->e.base + n);
  a.v[FL_ATTR_arange_dtype].i = FL_I64;
  g->e.device = fl_tensor_device(dy.tensor);
  fl_value k = fli_run(&g->e, FLI_OP_arange, &a, 0, NULL);
  a = fli_attrs(&g->e, FLI_OP_searchsorted);
  a.v[FL_ATTR_searchsorted_right].i = true; /* right */
  fl_value bag = SUB(RUN_A(searchsorted, &a, offsets, k), fli_integer(1));
  fl_meta row = *fli_meta(dy);
  row.shape[0] = 1;
  fl_value more = fli_v_zeros(&g->e, row.dtype, 2, row.shape, g->e.device);
  a = INDEX_ALONG(cat, 0);
  dy = RUN_A(cat, &a, dy, more);
  a = INDEX_ALONG(index_select, 0);
  return RUN_A(index_select, &a, dy, bag);
}

/* The gradient of the factors: products of the rows of a table with those of
 * dy. */
static fl_value of_factors(fli_grad *g, fl_value table, fl_value dy,
                           int64_t padding) {
  const fl_meta *m = &g->in_meta[FL_IN_bags_index];
  fl_attrs a = fli_attrs(&g->e, FLI_OP_embedding);
  a.v[FL_ATTR_embedding_padding].i = padding;
  fl_value index = g->in[FL_IN_bags_index],
           rows = RUN_A(embedding, &a, table, index);
  dy = by_position(g, dy, m->shape[0]);
  fl_value d = MUL(fli_v_widened(&g->e, rows), fli_v_widened(&g->e, dy));
  d = SUM1(d, m->ndim, false);
  if (padding == FL_ATTR_NONE)
    return d;
  fl_value out = RUN(eq, index, fli_integer(padding + g->e.base));
  return RUN(where, out, NUM(0), d);
}

/* Each element of dy goes to the position of its largest element, if the bag
 * has one. */
static fl_value of_largest(fli_grad *g) {
  fl_value dy = g->dy[0], where = g->y[FL_OUT_embedding_bag_where],
           base = fli_integer(g->e.base);
  fl_attrs a = INDEX_ALONG(scatter_add, 0);
  fl_value zeros = zero_like(g, &g->in_meta[FL_IN_embedding_bag_weight]),
           some = RUN(ge, where, base);
  if (g->in_meta[FL_IN_embedding_bag_weight].shape[0] == 0)
    return zeros;
  dy = RUN(where, some, dy, NUM(0));
  return RUN_A(scatter_add, &a, zeros, RUN(where, some, where, base), dy);
}

void fli_grad_embedding_bag(fli_grad *g) {
  const fl_attr *v = g->attrs->v;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_embedding_bag_backward);
  a.v[FL_ATTR_embedding_bag_backward_rows].i =
      g->in_meta[FL_IN_embedding_bag_weight].shape[0];
  memcpy(a.v + 1, v, 3 * sizeof *v);
  if (g->need[FL_IN_embedding_bag_weight])
    g->dx[FL_IN_embedding_bag_weight] =
        v[FL_ATTR_embedding_bag_mode].i == BAG_MAX
            ? of_largest(g)
            : RUN_A(embedding_bag_backward, &a,
                    IN(embedding_bag_backward, dy) = g->dy[0],
                    IN(embedding_bag_backward, index) =
                        g->in[FL_IN_embedding_bag_index],
                    IN(embedding_bag_backward, offsets) =
                        g->in[FL_IN_embedding_bag_offsets],
                    IN(embedding_bag_backward, weights) =
                        g->in[FL_IN_embedding_bag_weights]);
  if (g->need[FL_IN_embedding_bag_weights])
    g->dx[FL_IN_embedding_bag_weights] =
        of_factors(g, g->in[FL_IN_embedding_bag_weight], g->dy[0],
                   v[FL_ATTR_embedding_bag_padding].i);
}

/* It is linear in dy: its gradient is embedding_bag itself. */
void fli_grad_embedding_bag_backward(fli_grad *g) {
  const fl_attr *v = g->attrs->v;
  fl_attrs a = fli_attrs(&g->e, FLI_OP_embedding_bag);
  memcpy(a.v, v + 1, 3 * sizeof *v);
  if (g->need[FL_IN_embedding_bag_backward_dy])
    g->dx[FL_IN_embedding_bag_backward_dy] = RUN_A(
        embedding_bag, &a, g->dy[0], g->in[FL_IN_embedding_bag_backward_index],
        g->in[FL_IN_embedding_bag_backward_offsets],
        g->in[FL_IN_embedding_bag_backward_weights]);
  if (g->need[FL_IN_embedding_bag_backward_weights])
    g->dx[FL_IN_embedding_bag_backward_weights] =
        of_factors(g, g->dy[0], g->in[FL_IN_embedding_bag_backward_dy],
                   v[FL_ATTR_embedding_bag_backward_padding].i);
}

/* --- gather and scatter --- */

/* In every dim but `dim`, index must lie within m. */
static fl_status check_within(fli_infer *c, const fl_meta *index,
                              const fl_meta *m, const char *name, int dim) {
  bool fits = m->ndim == index->ndim;
  for (int d = 0; d < index->ndim && fits; d++)
    fits = d == dim || index->shape[d] <= m->shape[d];
  return fits
             ? FL_OK
             : fli_fail(FL_ESHAPE,
                        "%s: index has shape %s and %s %s: index needs as many "
                        "dims and must not be larger%s",
                        c->op->info.name,
                        fli_shape_text(index->ndim, index->shape), name,
                        fli_shape_text(m->ndim, m->shape),
                        dim < 0 ? "" : " but along dim");
}

fl_status fli_shape_gather(fli_infer *c) {
  const fl_meta *x = c->in[FL_IN_gather_x], *index = c->in[FL_IN_gather_index];
  FLI_TRY(
      check_within(c, index, x, "x", (int)c->attrs->v[FL_ATTR_gather_dim].i));
  set_shape(&c->out[0], index->ndim, index->shape);
  return FL_OK;
}

fl_status fli_shape_scatter(fli_infer *c) {
  const fl_meta *x = c->in[FL_IN_scatter_x],
                *index = c->in[FL_IN_scatter_index],
                *src = c->in[FL_IN_scatter_src];
  FLI_TRY(
      check_within(c, index, x, "x", (int)c->attrs->v[FL_ATTR_scatter_dim].i));
  if (src->ndim > 0) /* else one number for all */
    FLI_TRY(check_within(c, index, src, "src", -1));
  set_shape(&c->out[0], x->ndim, x->shape);
  return FL_OK;
}

void fli_grad_gather(fli_grad *g) {
  fl_attrs a = INDEX_ALONG(scatter_add, g->attrs->v[FL_ATTR_gather_dim].i);
  g->dx[FL_IN_gather_x] =
      RUN_A(scatter_add, &a, zero_like(g, &g->in_meta[FL_IN_gather_x]),
            g->in[FL_IN_gather_index], g->dy[0]);
}

/* The gradient of src: dy at the positions, and zeros where src is larger than
 * index. */
static fl_value scattered(fli_grad *g) {
  const fl_meta *src = &g->in_meta[FL_IN_scatter_src];
  fl_attrs a = INDEX_ALONG(gather, g->attrs->v[FL_ATTR_scatter_dim].i);
  fl_value dx = RUN_A(gather, &a, g->dy[0], g->in[FL_IN_scatter_index]);
  const fl_meta *m = fli_meta(dx);
  int64_t list[2 * FL_MAX_DIMS] = {0};
  bool larger = false;
  if (src->ndim == 0 || g->e.status)
    return dx;
  for (int d = 0; d < src->ndim; d++) {
    list[2 * (src->ndim - 1 - d) + 1] = src->shape[d] - m->shape[d];
    larger |= src->shape[d] != m->shape[d];
  }
  if (!larger)
    return dx;
  fl_attrs p = fli_attrs(&g->e, FLI_OP_pad);
  fli_set_list(&g->e, &p, FL_ATTR_pad_pad, 2 * src->ndim, list);
  return RUN_A(pad, &p, dx);
}

void fli_grad_scatter(fli_grad *g) {
  fl_attrs a = INDEX_ALONG(scatter, g->attrs->v[FL_ATTR_scatter_dim].i);
  if (g->need[FL_IN_scatter_x])
    g->dx[FL_IN_scatter_x] =
        RUN_A(scatter, &a, g->dy[0], g->in[FL_IN_scatter_index], NUM(0));
  if (g->need[FL_IN_scatter_src])
    g->dx[FL_IN_scatter_src] = scattered(g);
}

void fli_grad_scatter_add(fli_grad *g) {
  if (g->need[FL_IN_scatter_add_x])
    g->dx[FL_IN_scatter_add_x] = g->dy[0];
  if (g->need[FL_IN_scatter_add_src])
    g->dx[FL_IN_scatter_add_src] = scattered(g);
}

/* --- whole slices --- */

static fl_status check_vector(fli_infer *c, const fl_meta *index) {
  return index->ndim <= 1
             ? FL_OK
             : fli_fail(FL_ESHAPE, "%s: index must be a vector, got shape %s",
                        c->op->info.name,
                        fli_shape_text(index->ndim, index->shape));
}

fl_status fli_shape_index_select(fli_infer *c) {
  const fl_meta *x = c->in[FL_IN_index_select_x],
                *index = c->in[FL_IN_index_select_index];
  FLI_TRY(check_vector(c, index));
  set_shape(&c->out[0], x->ndim, x->shape);
  if (x->ndim > 0)
    c->out[0].shape[c->attrs->v[FL_ATTR_index_select_dim].i] =
        fl_numel(index->ndim, index->shape);
  else if (fl_numel(index->ndim, index->shape) != 1)
    return fli_fail(FL_ESHAPE,
                    "index_select: a 0-d tensor has one element, "
                    "index has %lld",
                    (long long)fl_numel(index->ndim, index->shape));
  return FL_OK;
}

fl_status fli_shape_index_add(fli_infer *c) {
  const fl_meta *x = c->in[FL_IN_index_add_x],
                *index = c->in[FL_IN_index_add_index],
                *src = c->in[FL_IN_index_add_src];
  int dim = (int)c->attrs->v[FL_ATTR_index_add_dim].i;
  int64_t n = fl_numel(index->ndim, index->shape);
  FLI_TRY(check_vector(c, index));
  set_shape(&c->out[0], x->ndim, x->shape);
  if (src->ndim == 0) /* one number for all */
    return FL_OK;
  bool fits = src->ndim == x->ndim;
  for (int d = 0; d < x->ndim && fits; d++)
    fits = src->shape[d] == (d == dim ? n : x->shape[d]);
  return fits
             ? FL_OK
             : fli_fail(FL_ESHAPE,
                        "%s: src has shape %s; it must be x's %s with %lld "
                        "along dim %d, as many as index has",
                        c->op->info.name, fli_shape_text(src->ndim, src->shape),
                        fli_shape_text(x->ndim, x->shape), (long long)n,
                        dim + c->base);
}

void fli_grad_index_select(fli_grad *g) {
  fl_attrs a = INDEX_ALONG(index_add, g->attrs->v[FL_ATTR_index_select_dim].i);
  g->dx[FL_IN_index_select_x] =
      RUN_A(index_add, &a, zero_like(g, &g->in_meta[FL_IN_index_select_x]),
            g->in[FL_IN_index_select_index], g->dy[0]);
}

static fl_value index_selected(fli_grad *g) {
  fl_attrs a = INDEX_ALONG(index_select, g->attrs->v[FL_ATTR_index_add_dim].i);
  return RUN_A(index_select, &a, g->dy[0], g->in[FL_IN_index_add_index]);
}

void fli_grad_index_add(fli_grad *g) {
  if (g->need[FL_IN_index_add_x])
    g->dx[FL_IN_index_add_x] = g->dy[0];
  if (g->need[FL_IN_index_add_src])
    g->dx[FL_IN_index_add_src] = index_selected(g);
}

void fli_grad_index_copy(fli_grad *g) {
  fl_attrs a = INDEX_ALONG(index_copy, g->attrs->v[FL_ATTR_index_copy_dim].i);
  if (g->need[FL_IN_index_copy_x])
    g->dx[FL_IN_index_copy_x] =
        RUN_A(index_copy, &a, g->dy[0], g->in[FL_IN_index_copy_index], NUM(0));
  if (g->need[FL_IN_index_copy_src])
    g->dx[FL_IN_index_copy_src] = index_selected(g);
}

/* --- masks --- */

static fl_status index_broadcast(fli_infer *c, const fl_meta *a,
                                 const fl_meta *b, fl_meta *out) {
  int n = a->ndim > b->ndim ? a->ndim : b->ndim;
  out->ndim = n;
  for (int d = 0; d < n; d++) {
    int i = d - (n - a->ndim), j = d - (n - b->ndim);
    int64_t s = i < 0 ? 1 : a->shape[i], t = j < 0 ? 1 : b->shape[j];
    out->shape[d] = s == 1 ? t : s;
    if (s != t && s != 1 && t != 1)
      return fli_fail(FL_ESHAPE, "%s: shapes %s and %s do not broadcast",
                      c->op->info.name, fli_shape_text(a->ndim, a->shape),
                      fli_shape_text(b->ndim, b->shape));
  }
  return FL_OK;
}

/* Counts the elements of input k that are not 0. No other shape rule of this
 * file reads memory and waits for the device. */
static fl_status count_nonzero(fli_infer *c, int k, int64_t *n) {
  const fl_operand *x = &c->operands[k];
  FLI_TRY(fli_needs_values(c->rt, x->tensor, c->op->info.name));
  if (!x->tensor) {
    *n = x->dtype == FL_F64 ? x->f != 0 : x->i != 0;
    return FL_OK;
  }
  fl_tensor *count;
  bool grad = fl_grad_mode(c->rt, false);
  /* what is the same for all samples of vmap has values */
  bool one = c->rt->one, meta = fl_meta_mode(c->rt, false);
  c->rt->one = false;
  fl_call call = {.op = &c->rt->ops[FLI_OP_count_nonzero],
                  .n_in = 1,
                  .in = x,
                  .out = &count};
  fl_status s = fl_call_run(c->rt, &call);
  c->rt->one = one;
  fl_meta_mode(c->rt, meta);
  fl_grad_mode(c->rt, grad);
  if (s == FL_OK) {
    s = fl_tensor_item(count, NULL, n);
    fl_tensor_release(count);
  }
  return s;
}

static fl_status check_mask(fli_infer *c) {
  return c->operands[1].tensor
             ? FL_OK
             : fli_fail(FL_EARG, "%s: the mask must be a tensor",
                        c->op->info.name);
}

fl_status fli_shape_masked_select(fli_infer *c) {
  const fl_meta *mask = c->in[FL_IN_masked_select_mask];
  fl_meta all;
  int64_t n = 0;
  FLI_TRY(check_mask(c));
  FLI_TRY(index_broadcast(c, c->in[FL_IN_masked_select_x], mask, &all));
  FLI_TRY(count_nonzero(c, 1, &n));
  int64_t own = fl_numel(mask->ndim, mask->shape);
  if (own > 0) /* each element of the mask stands for as many */
    n *= fl_numel(all.ndim, all.shape) / own;
  set_shape(&c->out[0], 1, &n);
  return FL_OK;
}

fl_status fli_shape_masked_scatter(fli_infer *c) {
  FLI_TRY(check_mask(c));
  return index_broadcast(c, c->in[FL_IN_masked_scatter_x],
                         c->in[FL_IN_masked_scatter_mask], &c->out[0]);
}

void fli_grad_masked_select(fli_grad *g) {
  const fl_meta *x = &g->in_meta[FL_IN_masked_select_x],
                *mask = fli_meta(g->in[FL_IN_masked_select_mask]);
  int n = x->ndim > mask->ndim ? x->ndim : mask->ndim;
  fl_meta all = {.ndim = n};
  for (int d = 0; d < n; d++) {
    int i = d - (n - x->ndim), j = d - (n - mask->ndim);
    int64_t s = i < 0 ? 1 : x->shape[i], t = j < 0 ? 1 : mask->shape[j];
    all.shape[d] = s == 1 ? t : s;
  }
  g->dx[FL_IN_masked_select_x] = RUN(masked_scatter, zeros_like(g, &all),
                                     g->in[FL_IN_masked_select_mask], g->dy[0]);
}

void fli_grad_masked_scatter(fli_grad *g) {
  const fl_meta *src = &g->in_meta[FL_IN_masked_scatter_src];
  if (g->need[FL_IN_masked_scatter_x])
    g->dx[FL_IN_masked_scatter_x] =
        RUN(where, g->in[FL_IN_masked_scatter_mask], NUM(0), g->dy[0]);
  if (!g->need[FL_IN_masked_scatter_src])
    return;
  fl_value taken =
      RUN(masked_select, g->dy[0], g->in[FL_IN_masked_scatter_mask]);
  int64_t n = fl_numel(src->ndim, src->shape);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_pad);
  fli_set_list(&g->e, &a, FL_ATTR_pad_pad, 2,
               (int64_t[]){0, n - fli_meta(taken)->shape[0]});
  g->dx[FL_IN_masked_scatter_src] = RESHAPE(RUN_A(pad, &a, taken), src);
}

/* The result keeps x's dtype, so the value must fit it. */
void fli_compose_masked_fill(fli_composing *g) {
  fl_value x = g->in[FL_IN_masked_fill_x],
           value = g->in[FL_IN_masked_fill_value];
  fl_dtype d = x.tensor ? fli_meta(x)->dtype : x.dtype;
  bool whole = fl_dtype_kind(d) != FL_KIND_FLOAT;
  if (value.tensor)
    value = CAST(value, d);
  else if (whole && value.dtype == FL_F64) {
    if (!(value.f >= -0x1p63 && value.f < 0x1p63) ||
        (double)(int64_t)value.f != value.f) {
      fli_env_fail(&g->e, FL_EDTYPE, "masked_fill: %g cannot be kept in %s",
                   value.f, fl_dtype_name(d));
      return;
    }
    value = fli_integer((int64_t)value.f);
  }
  g->out[0] = CAST(RUN(where, g->in[FL_IN_masked_fill_mask], value, x), d);
}

/* --- nonzero, one_hot --- */

fl_status fli_shape_nonzero(fli_infer *c) {
  int64_t shape[2] = {0, c->in[0]->ndim};
  FLI_TRY(count_nonzero(c, 0, &shape[0]));
  set_shape(&c->out[0], 2, shape);
  return FL_OK;
}

fl_status fli_shape_one_hot(fli_infer *c) {
  fl_meta classes = {.ndim = 1,
                     .shape = {c->attrs->v[FL_ATTR_one_hot_classes].i}};
  if (classes.shape[0] < 1)
    return fli_fail(FL_EARG, "one_hot: classes must be at least 1, got %lld",
                    (long long)classes.shape[0]);
  set_shape(&c->out[0], c->in[0]->ndim, c->in[0]->shape);
  return append(c, &classes, 0);
}
