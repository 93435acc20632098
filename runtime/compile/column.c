/* Column sums: reductions of a group over other dims than its rows. Their
 * results are stored as sums over rows (sum stores of ../tile.h), and no launch
 * of the group reads them. */
#include "fuse.h"
#include "rows.h"

#define SUMMED_LEAST 8 /* elements for each sum */
#define SCALE        1 /* which input of a row with FL_SCALES is the number */

static uint32_t dims_along(const fli_nest *nest, const fl_form *at) {
  uint32_t dims = 0;
  for (int d = 0; d < nest->n; d++)
    dims |= (uint32_t)(at->coef[d] && nest->size[d] > 1) << d;
  return dims;
}

static uint32_t dims_all(const fli_nest *nest) {
  uint32_t dims = 0;
  for (int d = 0; d < nest->n; d++)
    dims |= (uint32_t)(nest->size[d] > 1 && !nest->position[d]) << d;
  return dims;
}

/* --- values --- */

static const fuse_leaf *leaf_of(const fuse_group *g, int node) {
  for (int k = 0; k < g->n_leaves; k++)
    if (g->leaves[k].node == node)
      return &g->leaves[k];
  return NULL;
}

/* What is summed, if v is a sum, rounded or scaled: the sum of `*source`,
 * rounded to `*round`. With `build` nodes are added for what is scaled. */
static bool sum_source(fuse *f, fuse_group *g, fl_value v, bool build,
                       fl_value *source, fl_dtype *round) {
  if (v.dtype != FLI_NODE)
    return false;
  fli_expr_node x = g->graph.nodes[v.i];
  if (x.op == FLI_INPUT) {
    const fuse_leaf *leaf = leaf_of(g, (int)v.i);
    *round = FL_NODTYPE;
    *source = fli_node_value(leaf->source);
    return leaf->kind == FL_LEAF_REDUCE && leaf->reduction == FL_REDUCE_SUM &&
           fl_dtype_size(x.dtype) >= 4;
  }
  const fl_op *op = &f->rt->ops[x.op];
  bool scaled = fli_row_facts_of(op)->scales && fli_is_number(x.in[SCALE]);
  if ((fli_row_copies(op, x.n_in) != 0 && !scaled) ||
      fl_dtype_kind(x.dtype) != FL_KIND_FLOAT ||
      !sum_source(f, g, x.in[0], build, source, round) ||
      (scaled && *round != FL_NODTYPE))
    return false;
  if (fl_dtype_is_low(x.dtype))
    *round = x.dtype;
  if (!scaled || !build)
    return true;
  fl_value in[2] = {*source, x.in[SCALE]};
  f->status = fli_graph_apply(&g->graph, x.op, NULL, 2, in, source);
  return f->status == FL_OK && source->dtype == FLI_NODE;
}

bool fli_fuse_reduces(const fuse_group *g, fl_value v, int n_leaves) {
  uint8_t used[FL_PROGRAM_VALUES] = {0};
  if (v.dtype != FLI_NODE)
    return false;
  used[v.i] = 1;
  fli_fuse_used(g, used, false);
  for (int k = 0; k < g->n_leaves && k < n_leaves; k++)
    if (used[g->leaves[k].node] && g->leaves[k].kind == FL_LEAF_REDUCE)
      return true;
  return false;
}

/* --- which sums --- */

/* Whether sums over `summed`, of elements or rows, fit rows of dims `inner`. */
static bool sums_fit(const fuse_group *g, uint32_t summed, uint32_t inner) {
  int64_t count = 1;
  uint32_t within = summed & inner;
  for (int d = 0; d < g->nest.n; d++)
    count *= summed >> d & 1 ? g->nest.size[d] : 1;
  return count >= SUMMED_LEAST && (within == 0 || within == inner);
}

bool fli_fuse_columns_fit(const fuse_group *g, uint32_t inner) {
  for (int k = 0; k < g->n_written; k++) {
    const fuse_value *x = &g->written[k];
    uint32_t summed = dims_all(&g->nest) & ~dims_along(&g->nest, &x->at);
    if (x->column && (x->column == FL_STORE_SUM_ROWS ||
                      !sums_fit(g, summed, inner) || g->inner))
      return g->inner == inner;
  }
  return true;
}

bool fli_fuse_is_column(const fuse_group *g, uint32_t summed, bool rows) {
  uint32_t all = dims_all(&g->nest);
  if (g->n_positions || g->tall || !sums_fit(g, summed, g->inner) ||
      (rows && (!g->inner || summed & g->inner)))
    return false;
  for (int k = 0; k < g->n_written; k++) {
    const fuse_value *x = &g->written[k];
    uint32_t other = all & ~dims_along(&g->nest, &x->at);
    if (x->sum || (x->column && ((other ^ summed) & ~g->inner)))
      return false;
  }
  return true;
}

bool fli_fuse_column(fuse *f, int i, fl_value *y, fl_dtype *round) {
  return sum_source(f, f->groups[i], *y, true, y, round);
}

/* --- a group's reductions become column sums --- */

bool fli_fuse_turns(fuse *f, int i, uint32_t inner) {
  fuse_group *g = f->groups[i];
  uint32_t all = dims_all(&g->nest);
  if (g->n_positions || !g->inner || !sums_fit(g, g->inner, inner))
    return false;
  for (int k = 0; k < g->n_written; k++) {
    const fuse_value *x = &g->written[k];
    bool sum = fli_fuse_reduces(g, x->value, g->n_leaves);
    fl_value source;
    fl_dtype round;
    if (x->sum || x->column ||
        dims_along(&g->nest, &x->at) != (sum ? all & ~g->inner : all) ||
        (sum && (!sum_source(f, g, x->value, false, &source, &round) ||
                 fli_fuse_reduces(g, source, g->n_leaves))))
      return false;
  }
  return true;
}

bool fli_fuse_turn(fuse *f, int i) {
  fuse_group *g = f->groups[i];
  int n = 0, leaves = g->n_leaves;
  for (int k = 0; k < g->n_written; k++) {
    fuse_value *x = &g->written[k];
    if (!fli_fuse_reduces(g, x->value, leaves))
      continue;
    if (!sum_source(f, g, x->value, true, &x->value, &x->round))
      return false;
    x->column = FL_STORE_SUM;
  }
  for (int k = 0; k < g->n_values; k++)
    if (!fli_fuse_reduces(g, g->values[k].value, leaves))
      g->values[n++] = g->values[k];
  g->n_values = n;
  g->inner = 0;
  g->tall = false;
  return true;
}

/* --- copies of sums --- */

/* Whether elements lie side by side, in the order of the dims. */
static bool is_packed(const fli_arg *a, int64_t *count) {
  *count = 1;
  bool packed = true;
  for (int d = a->meta.ndim; d-- > 0;) {
    packed = packed && (a->meta.shape[d] == 1 || a->stride[d] == *count);
    *count *= a->meta.shape[d];
  }
  return packed;
}

/* The sum that launch e copies as a whole; NULL: it does not. */
static const fuse_value *copied_sum(const fuse *f, const fuse_group *g,
                                    const fli_entry *e) {
  int from = fli_row_copies(e->op, e->n_in);
  if (fli_fuse_part(f, e)->role != FUSE_LAUNCH || e->n_out != 1 || from < 0 ||
      fli_fuse_gathers(f, e))
    return NULL;
  const fli_arg *a = fli_fuse_arg(f, e->arg + (uint32_t)from),
                *to = fli_fuse_arg(f, e->arg + (uint32_t)e->n_in);
  for (int k = 0; k < g->n_written; k++) {
    const fuse_value *x = &g->written[k];
    const fli_arg *def = fli_fuse_arg(f, x->def);
    int64_t n, m, l;
    if (x->column && x->slot == a->slot && is_packed(def, &n) &&
        is_packed(a, &m) && is_packed(to, &l) && n == m && m == l &&
        a->offset == def->offset && a->meta.dtype == def->meta.dtype &&
        fl_dtype_kind(to->meta.dtype) == FL_KIND_FLOAT)
      return x;
  }
  return NULL;
}

bool fli_fuse_copies_column(fuse *f, int i, uint32_t entry, fuse_value *y) {
  const fuse_group *g = f->groups[i];
  const fli_entry *e = &f->entries[entry];
  const fuse_value *x = copied_sum(f, g, e);
  uint32_t def = e->arg + (uint32_t)e->n_in;
  if (!x || g->n_written == FL_TILE_STORES)
    return false;
  const fli_arg *to = fli_fuse_arg(f, def);
  for (int k = 0; k < g->n_leaves; k++)
    if (g->leaves[k].slot == to->slot)
      return false;
  for (int k = 0; k < g->n_written; k++)
    if (g->written[k].slot == to->slot)
      return false;
  *y = *x;
  y->def = def;
  y->slot = to->slot;
  y->dtype = to->meta.dtype;
  y->at.offset += to->offset - fli_fuse_arg(f, x->def)->offset;
  if (fl_dtype_is_low(x->dtype))
    y->round = x->dtype;
  return true;
}
