/* Groups: launches that become one kernel. A launch joins if its loops are
 * those of the group, or run over the group's rows. */
#include "fuse.h"
#include "rows.h"

/* A row is read again after a reduction of it while it is in caches or
 * registers; longer ones, and few of them, are reduced by several blocks. */
#define ROW_MOST   32768
#define ROWS_LEAST 16
#define ROW_SHORT  4096 /* by one block, even if the rows are few */
#define ROW_COLUMN 512  /* across memory: rows are columns of a matrix */

/* --- which launches can be fused --- */

/* The registers of expressions are f32, f64, i64 and bool, so narrower integers
 * would not wrap around. With `exact` 16-bit floats must be rounded each time.
 */
static bool fits_register(const fuse *f, fl_dtype d) {
  if (fl_dtype_kind(d) == FL_KIND_FLOAT)
    return !f->c->exact || fl_dtype_size(d) > 2;
  return d == FL_BOOL || d == FL_I64;
}

static bool can_compute(const fuse *f, const fli_entry *e) {
  const fl_op *op = e->op;
  const fli_row_facts *row = fli_row_facts_of(op);
  fli_moving m = {.attrs = fli_entry_attrs(f->w, e)};
  fli_piece p;
  fuse_role role = fli_fuse_part(f, e)->role;
  if (role != FUSE_LAUNCH || fli_fuse_gathers(f, e))
    return role != FUSE_WHOLE;
  if (row->fills && f->tiles)
    return fl_dtype_kind(fli_fuse_space(f, e)->dtype) == FL_KIND_FLOAT;
  if (row->formula)
    return f->tiles && !f->c->exact && !e->writes &&
           fl_dtype_kind(fli_fuse_space(f, e)->dtype) == FL_KIND_FLOAT;
  if (row->body) /* before it is opened: whether it will be */
    return !f->parts && f->tiles && !f->c->exact && !e->writes &&
           fl_dtype_kind(fli_fuse_space(f, e)->dtype) == FL_KIND_FLOAT;
  if (row->pieces && f->tiles) {
    const fl_meta *metas[FL_MAX_LIST];
    if (e->n_in > 8)
      return false;
    for (int k = 0; k < e->n_in; k++)
      metas[k] = &fli_fuse_arg(f, e->arg + (uint32_t)k)->meta;
    m.in = metas;
    m.n_in = e->n_in;
    m.out = &fli_fuse_arg(f, e->arg + (uint32_t)e->n_in)->meta;
    return row->pieces(&m, 0, &p);
  }
  return e->n_in <= 3 &&
         (op->family <= FLI_TERNARY || fli_row_copies(op, e->n_in) >= 0);
}

fli_apart fli_fuse_apart(const fuse *f, const fli_entry *e) {
  bool part = fli_fuse_part(f, e)->role == FUSE_BODY;
  if (e->op->id >= FLI_OPS || (e->n_out != 1 && !part))
    return FLI_APART_OPERATOR;
  for (int k = 0; k < e->n_in; k++) {
    const fli_arg *a = fli_fuse_arg(f, e->arg + (uint32_t)k);
    if (a->slot == FLI_ARG_NONE && part)
      continue;
    if (a->slot == FLI_ARG_NONE)
      return FLI_APART_OPERATOR;
    if (fli_is_complex(a->meta.dtype))
      return FLI_APART_DTYPE;
    for (int i = 0; i < a->meta.ndim; i++)
      if (a->meta.shape[i] == 0)
        return FLI_APART_EMPTY;
  }
  for (int k = 0; k < e->n_out; k++) {
    const fli_arg *a = fli_fuse_arg(f, e->arg + (uint32_t)(e->n_in + k));
    if (!fits_register(f, a->meta.dtype))
      return FLI_APART_DTYPE;
    for (int i = 0; i < a->meta.ndim; i++)
      if (a->meta.shape[i] == 0)
        return FLI_APART_EMPTY;
  }
  return can_compute(f, e) ? FLI_APART_NOT : FLI_APART_OPERATOR;
}

/* --- the loops of a group --- */

static bool group_cut(void *context, int dim, int64_t inner) {
  fuse_group *g = context;
  int n = g->nest.n;
  if (n == g->most_dims)
    return false;
  fli_nest old = g->nest;
  g->nest.n = 0;
  for (int i = 0; i < n; i++) {
    fli_nest_add(&g->nest, i == dim ? old.size[i] / inner : old.size[i]);
    g->nest.position[g->nest.n - 1] = old.position[i];
    if (i == dim)
      fli_nest_add(&g->nest, inner);
  }
  uint32_t low = g->inner & ((2u << dim) - 1);
  g->inner = low | (g->inner >> dim & 1) << (dim + 1) |
             (g->inner >> (dim + 1)) << (dim + 2);
  for (int k = 0; k < g->n_leaves; k++)
    fli_form_cut_dim(&g->leaves[k].at, n, dim, inner);
  for (int k = 0; k < g->n_values; k++)
    fli_form_cut_dim(&g->values[k].at, n, dim, inner);
  for (int k = 0; k < g->n_written; k++)
    fli_form_cut_dim(&g->written[k].at, n, dim, inner);
  for (int i = 0; i < g->first.n; i++)
    fli_form_cut_dim(&g->first_at[i], n, dim, inner);
  return true;
}

typedef struct joining {
  fuse *f;
  fuse_group *g;
  int i; /* of the group */
  uint32_t entry;
  const fli_entry *e;
  fl_form of[FL_MAX_DIMS];
  fl_form out[FL_MAX_OUT];
  uint32_t inner;    /* of the group afterwards */
  bool each;         /* it has the loops of the group, not only its rows */
  bool turn;         /* the group's reductions become column sums */
  fl_storing column; /* its result is a column sum, rounded to `round` */
  fl_dtype round;
  bool dry; /* the group stays as it is */
  fli_apart apart;
} joining;

static uint32_t dims_used(const fli_nest *nest, const fl_form *of, int n) {
  uint32_t used = 0;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < nest->n; j++)
      used |= (uint32_t)(of[i].coef[j] && nest->size[j] > 1) << j;
  return used;
}

static uint32_t dims_of(const fli_nest *nest) {
  uint32_t all = 0;
  for (int j = 0; j < nest->n; j++)
    all |= (uint32_t)(nest->size[j] > 1 && !nest->position[j]) << j;
  return all;
}

/* The strides of an operand along the dims of the launch. */
static void strides_along(const fli_arg *a, int dims, int64_t *stride) {
  for (int i = 0; i < dims; i++) {
    int k = i - (dims - a->meta.ndim);
    stride[i] = k < 0 || a->meta.shape[k] == 1 ? 0 : a->stride[k];
  }
}

/* The launch's coordinates by an operand that the group knows at `at`. */
static bool coordinates_by(fuse_group *g, const fli_arg *a, fl_form at,
                           const fl_meta *space, fl_form *of) {
  int64_t stride[FL_MAX_DIMS];
  strides_along(a, space->ndim, stride);
  return fli_form_match(&g->nest, &at, space->ndim, space->shape, stride,
                        a->offset, of, group_cut, g);
}

static bool coordinates_by_shape(const fuse_group *g, const fl_meta *space,
                                 fl_form *of) {
  int j = 0;
  for (int i = 0; i < space->ndim; i++) {
    of[i] = fli_form_constant(0);
    if (space->shape[i] == 1)
      continue;
    while (j < g->first.n && g->first.size[j] == 1)
      j++;
    if (j == g->first.n || g->first.size[j] != space->shape[i])
      return false;
    of[i] = g->first_at[j++];
  }
  while (j < g->first.n && g->first.size[j] == 1)
    j++;
  return j == g->first.n;
}

/* Coordinates of the launch in the group's loops: by what it reads of the
 * group's results, by its shape, or by what both load. */
static bool coordinates_of(const fuse *f, fuse_group *g, const fli_entry *e,
                           fl_form *of) {
  const fl_meta *space = fli_fuse_space(f, e);
  for (int turn = 0; turn < 3; turn++) {
    if (turn == 1 && coordinates_by_shape(g, space, of))
      return true;
    for (int k = 0; k < e->n_in && turn != 1; k++) {
      const fli_arg *a = fli_fuse_arg(f, e->arg + (uint32_t)k);
      if (a->slot < 0 || !fli_fuse_aligned(f, e, k))
        continue;
      for (int j = g->n_written; j-- > 0 && turn == 0;)
        if (g->written[j].slot == a->slot && !g->written[j].sum &&
            !g->written[j].column &&
            coordinates_by(g, a, g->written[j].at, space, of))
          return true;
      for (int j = 0; j < g->n_leaves && turn == 2; j++)
        if (g->leaves[j].slot == a->slot && g->leaves[j].mask < 0 &&
            coordinates_by(g, a, g->leaves[j].at, space, of))
          return true;
    }
  }
  return false;
}

/* --- joining --- */

/* How many elements say that those of a row lie further apart than rows; less
 * than 0: they lie closer together. */
static double form_votes(const fli_nest *nest, const fl_form *at,
                         uint32_t inner) {
  int64_t least[2] = {INT64_MAX, INT64_MAX}; /* strides across rows, in one */
  double elements = 1;
  for (int i = 0; i < nest->n; i++) {
    int64_t c = at->coef[i], *to = &least[inner >> i & 1];
    if (c > 0 && nest->size[i] > 1 && !nest->position[i]) {
      elements *= (double)nest->size[i];
      *to = c < *to ? c : *to;
    }
  }
  return least[0] < least[1] ? elements : -elements;
}

/* Whether elements of a row lie further apart than rows, by the memory that the
 * group and the launch go through. */
static bool rows_are_columns(const joining *j, uint32_t inner) {
  const fuse_group *g = j->g;
  int dims = fli_fuse_space(j->f, j->e)->ndim;
  double votes = 0;
  for (int k = 0; k < g->n_leaves; k++)
    if (g->leaves[k].slot >= 0)
      votes += form_votes(&g->nest, &g->leaves[k].at, inner);
  for (int k = 0; k < g->n_written; k++)
    if (fli_fuse_stays(j->f, g->written[k].slot))
      votes += form_votes(&g->nest, &g->written[k].at, inner);
  for (int k = 0; k < j->e->n_in; k++) {
    const fli_arg *a = fli_fuse_arg(j->f, j->e->arg + (uint32_t)k);
    bool own = a->slot < 0;
    for (int i = 0; i < g->n_written; i++)
      own = own || g->written[i].slot == a->slot;
    fl_form at = fli_form_constant(0);
    if (!own)
      at = fli_fuse_access(a, j->of, dims);
    votes += own ? 0 : form_votes(&g->nest, &at, inner);
  }
  return votes > 0;
}

static bool rows_are_tall(const joining *j, uint32_t inner) {
  const fuse_group *g = j->g;
  int64_t rows = 1, row = 1;
  for (int i = 0; i < g->nest.n; i++)
    if (!g->nest.position[i])
      *(inner >> i & 1 ? &row : &rows) *= g->nest.size[i];
  return row > ROW_MOST || (rows < ROWS_LEAST && row > ROW_SHORT) ||
         (row > ROW_COLUMN && rows_are_columns(j, inner));
}

/* Tall rows are reduced once, and only results by row are written. */
static bool tall_fits(const joining *j) {
  const fuse_group *g = j->g;
  uint8_t reduced[FL_PROGRAM_VALUES] = {0};
  for (int i = 0, leaf = 0; i < g->graph.n && g->tall; i++) {
    const fli_expr_node *x = &g->graph.nodes[i];
    for (int k = 0; k < x->n_in; k++)
      reduced[i] |= x->in[k].dtype == FLI_NODE && reduced[x->in[k].i];
    if (x->op != FLI_INPUT)
      continue;
    const fuse_leaf *of = &g->leaves[leaf++];
    if (of->kind == FL_LEAF_REDUCE && reduced[of->source])
      return false;
    reduced[i] = of->kind == FL_LEAF_REDUCE;
  }
  for (int k = 0; k < j->e->n_out && g->tall; k++)
    if (dims_used(&g->nest, &j->out[k], 1) & j->inner)
      return false;
  return true;
}

/* A result that is the sum of other elements than a row's. */
static bool column_fits(joining *j, uint32_t summed, bool rows) {
  if (j->e->n_out != 1 || !fli_fuse_is_column(j->g, summed, rows))
    return false;
  j->column = rows ? FL_STORE_SUM_ROWS : FL_STORE_SUM;
  return true;
}

/* Reductions by rows of dims `inner` that are not the group's: what lies side
 * by side is a row, and the others are column sums. */
static bool other_rows_fit(joining *j, uint32_t inner) {
  bool apart = rows_are_columns(j, inner);
  if (apart && column_fits(j, inner, false))
    return true;
  if (!fli_fuse_turns(j->f, j->i, inner))
    return !apart && column_fits(j, inner, false);
  j->turn = true;
  j->inner = inner;
  return true;
}

/* A launch that reduces dims `inner` of all that the group loops over. */
static bool reduction_fits(joining *j, uint32_t inner) {
  fuse_group *g = j->g;
  if (g->inner && g->inner != inner)
    return other_rows_fit(j, inner);
  bool tall = rows_are_tall(j, inner), reread = false;
  for (int k = 0; k < g->n_written; k++) {
    uint32_t goes = dims_used(&g->nest, &g->written[k].at, 1) & inner;
    reread = reread || (!g->written[k].column && goes);
    if (tall && g->written[k].sum)
      return false;
    /* all its elements are to be added, whether they differ or not */
    if (g->written[k].sum && !g->inner && goes != inner)
      return false;
  }
  if (tall && reread)
    return column_fits(j, inner, false);
  j->inner = inner;
  g->tall = tall;
  return fli_fuse_columns_fit(g, inner);
}

/* Whether the launch's loops are the group's, or its rows. */
static bool loops_fit(joining *j) {
  fuse_group *g = j->g;
  const fl_meta *space = fli_fuse_space(j->f, j->e);
  uint32_t all = dims_of(&g->nest),
           used = dims_used(&g->nest, j->of, space->ndim);
  j->inner = g->inner;
  uint32_t reduced = fli_fuse_part(j->f, j->e)->reduced;
  if (reduced) {
    uint32_t inner = 0, outer = 0;
    for (int i = 0; i < space->ndim; i++)
      *(reduced >> i & 1 ? &inner : &outer) |=
          dims_used(&g->nest, &j->of[i], 1);
    if (inner & outer || inner == 0 ||
        (used != all && (!g->inner || used != (all & ~g->inner))) ||
        !(used == all ? reduction_fits(j, inner) : column_fits(j, inner, true)))
      return false;
  } else if (used != all) {
    if (!g->inner || used != (all & ~g->inner))
      return false;
  } else if (g->tall) {
    if (!(j->turn = fli_fuse_turns(j->f, j->i, 0)))
      return false;
    j->inner = 0;
  }
  bool sum = fli_fuse_part(j->f, j->e)->role == FUSE_SUM;
  j->each = used == all;
  for (int k = 0; k < j->e->n_out && !sum; k++)
    j->out[k] = fli_fuse_access(
        fli_fuse_arg(j->f, j->e->arg + (uint32_t)(j->e->n_in + k)), j->of,
        space->ndim);
  return !(j->turn && sum);
}

/* Whether memory that a result is written to is not otherwise used by the group
 * than through the same elements. */
static bool results_fit(joining *j) {
  const fuse_group *g = j->g;
  int n = g->nest.n, more = 0;
  j->apart = FLI_APART_MEMORY;
  for (int k = 0; k < j->e->n_out; k++) {
    int slot = fli_fuse_arg(j->f, j->e->arg + (uint32_t)(j->e->n_in + k))->slot;
    for (int i = 0; i < g->n_leaves; i++)
      if (g->leaves[i].slot == slot &&
          (j->column || g->leaves[i].mask >= 0 ||
           !fli_form_equal(&g->leaves[i].at, &j->out[k], n)))
        return false;
    bool again = false;
    bool sum = fli_fuse_part(j->f, j->e)->role == FUSE_SUM;
    for (int i = 0; i < g->n_written; i++)
      if (g->written[i].slot == slot) {
        again = true;
        if (sum || g->written[i].sum || j->column || g->written[i].column ||
            !fli_form_equal(&g->written[i].at, &j->out[k], n))
          return false;
      }
    more += !again;
    for (int i = 0; i < k; i++)
      if (fli_fuse_arg(j->f, j->e->arg + (uint32_t)(j->e->n_in + i))->slot ==
          slot)
        return false;
  }
  j->apart = FLI_APART_LIMIT;
  if (!j->f->tiles &&
      (g->n_leaves > FL_PROGRAM_IN || g->n_written + more > FL_MAX_OUT))
    return false;
  return g->n_written + more <= FL_TILE_STORES &&
         g->n_values + j->e->n_out <= FUSE_VALUES;
}

static void join_write(joining *j, int k, fl_value v) {
  fuse_group *g = j->g;
  fuse *f = j->f;
  uint32_t def = j->e->arg + (uint32_t)(j->e->n_in + k);
  const fli_arg *a = fli_fuse_arg(f, def);
  fuse_value x = {.def = def,
                  .slot = a->slot,
                  .mask = -1,
                  .dtype = a->meta.dtype,
                  .sum = fli_fuse_part(f, j->e)->role == FUSE_SUM,
                  .column = j->column,
                  .round = j->round,
                  .at = j->out[k],
                  .value = v};
  int at = 0;
  while (at < g->n_written && g->written[at].slot != a->slot)
    at++;
  g->written[at] = x;
  g->n_written += at == g->n_written;
  if (!x.sum && !x.column)
    g->values[g->n_values++] = x;
  f->writer[a->slot] = (int8_t)j->i;
}

static bool join_commit(joining *j, const fl_value *y) {
  fuse_group *g = j->g;
  fuse *f = j->f;
  if (j->turn && !fli_fuse_turn(f, j->i))
    return false;
  for (int k = 0; k < j->e->n_out; k++) {
    const fli_arg *a = fli_fuse_arg(f, j->e->arg + (uint32_t)(j->e->n_in + k));
    fl_value v = y[k];
    fl_status s =
        j->column ? FL_OK : fli_graph_cast(&g->graph, y[k], a->meta.dtype, &v);
    if (s || v.dtype != FLI_NODE) {
      f->status = s;
      return false;
    }
    join_write(j, k, v);
  }
  for (int k = 0; k < g->n_leaves; k++)
    if (g->leaves[k].slot >= 0)
      f->readers[g->leaves[k].slot] |= 1u << j->i;
  g->inner = j->inner;
  g->body |= fli_fuse_part(f, j->e)->reduced != 0;
  g->entry[g->n++] = j->entry;
  g->age = 0;
  return true;
}

/* Groups besides this one that read or write what the launch writes. */
static uint32_t others_before(const joining *j) {
  uint32_t mask = 0;
  for (int k = 0; k < j->e->n_out; k++) {
    int slot = fli_fuse_arg(j->f, j->e->arg + (uint32_t)(j->e->n_in + k))->slot;
    mask |= j->f->readers[slot];
    if (j->f->writer[slot] >= 0)
      mask |= 1u << j->f->writer[slot];
  }
  return mask & ~(1u << j->i);
}

/* Whether the launch reads what would become a column sum. */
static bool turned_read(const joining *j, const fl_value *y) {
  bool reads = false;
  for (int k = 0; k < j->e->n_out; k++)
    reads = reads || fli_fuse_reduces(j->g, y[k], j->g->reduce_from);
  return reads;
}

/* Whether the launch fits into the group, with results y; sets j->apart. */
static bool join_fits(joining *j, uint32_t *also, fl_value *y) {
  j->apart = FLI_APART_ROWS;
  if (fli_fuse_part(j->f, j->e)->reduced && fli_fuse_in_product(j->f, j->g))
    return false;
  j->apart = FLI_APART_LOOPS;
  if (!loops_fit(j)) {
    if (j->g->tall)
      j->apart = FLI_APART_ROWS;
    return false;
  }
  if (j->turn)
    j->g->reduce_from = j->g->n_leaves;
  j->f->values = FLI_APART_LIMIT;
  bool sum = fli_fuse_part(j->f, j->e)->role == FUSE_SUM;
  if (sum ? !fli_fuse_build_sum(j->f, j->i, j->e, j->of, also, y, j->out)
          : !fli_fuse_build(j->f, j->i, j->e, j->of, -1, 0, also, y)) {
    j->apart = j->f->values;
    return false;
  }
  if ((j->column && !fli_fuse_column(j->f, j->i, y, &j->round)) ||
      (j->turn && turned_read(j, y)))
    return false;
  if (sum && j->each && j->inner & ~dims_used(&j->g->nest, j->out, 1))
    return false;
  if (!results_fit(j))
    return false;
  j->apart = FLI_APART_ROWS;
  if (!tall_fits(j))
    return false;
  j->apart = FLI_APART_ORDER;
  return !(*also >> j->i & 1);
}

static void join_fails(fuse *f, const fuse_group *g, fli_apart why) {
  if (f->apart != FLI_APART_NOT)
    return;
  f->apart = why;
  f->from = g->n ? g->entry[0] : FUSE_NONE;
}

static bool join_at(joining *j, uint32_t *close) {
  fuse_group *g = j->g;
  fuse *f = j->f;
  int nodes = g->graph.n, inputs = g->graph.n_in;
  int leaves = g->n_leaves, values = g->n_values, positions = g->n_positions;
  bool inlined = g->inlined, tall = g->tall;
  int reduce_from = g->reduce_from;
  uint32_t also = others_before(j);
  fl_value y[FL_MAX_OUT];
  g->graph.origin = j->entry;
  bool fits = join_fits(j, &also, y);
  if (fits && !j->dry && join_commit(j, y)) {
    *close |= also;
    return true;
  }
  if (!j->dry)
    join_fails(f, g, j->apart);
  else if (fits)
    *close |= also;
  g->graph.n = nodes;
  g->graph.n_in = inputs;
  g->n_leaves = leaves;
  g->n_values = values;
  g->inlined = inlined;
  g->tall = tall;
  g->reduce_from = reduce_from;
  fli_fuse_forget_positions(g, positions);
  return fits && j->dry;
}

/* Cuts the group's loops as those of an opened launch that computes an input,
 * which sees channels in groups: else it could not be computed again. False:
 * the launch's coordinates are lost. */
static bool cut_for_parts(joining *j) {
  const fuse *f = j->f;
  int n = j->g->nest.n;
  for (int k = 0; k < j->e->n_in; k++) {
    const fli_arg *a = fli_fuse_arg(f, j->e->arg + (uint32_t)k);
    uint32_t def =
        a->slot < 0 ? FUSE_NONE : fli_fuse_before(f, a->slot, j->entry);
    if (def == FUSE_NONE)
      continue;
    const fli_arg *as = fli_fuse_arg(f, def);
    const fuse_part *part = fli_fuse_part(f, &f->entries[f->entry_of[def]]);
    if (!part->text || part->reduced || as->meta.ndim <= a->meta.ndim)
      continue;
    fl_form of[FL_MAX_DIMS];
    fl_form at = fli_fuse_access(a, j->of, fli_fuse_space(f, j->e)->ndim);
    fli_form_match(&j->g->nest, &at, as->meta.ndim, as->meta.shape, as->stride,
                   as->offset, of, group_cut, j->g);
    if (j->g->nest.n != n && !coordinates_of(f, j->g, j->e, j->of))
      return false;
    n = j->g->nest.n;
  }
  return true;
}

/* A launch that copies a column sum of the group. */
static bool join_copy(joining *j, uint32_t *close) {
  fuse_group *g = j->g;
  fuse_value x;
  if (!fli_fuse_copies_column(j->f, j->i, j->entry, &x))
    return false;
  *close |= others_before(j);
  g->written[g->n_written++] = x;
  j->f->writer[x.slot] = (int8_t)j->i;
  g->entry[g->n++] = j->entry;
  g->age = 0;
  return true;
}

bool fli_fuse_join(fuse *f, int i, uint32_t entry, uint32_t *close) {
  fuse_group *g = f->groups[i];
  joining j = {.f = f, .g = g, .i = i, .entry = entry, .e = &f->entries[entry]};
  if (g->n >= f->most || g->graph.n > FUSE_NODES) {
    join_fails(f, g, FLI_APART_LIMIT);
    return false;
  }
  if (join_copy(&j, close))
    return true;
  if (coordinates_of(f, g, j.e, j.of) && cut_for_parts(&j))
    return join_at(&j, close);
  join_fails(f, g, FLI_APART_LOOPS);
  return false;
}

bool fli_fuse_could_join(fuse *f, int i, uint32_t entry, uint32_t *close) {
  fuse_group *g = f->groups[i];
  joining j = {.f = f,
               .g = g,
               .i = i,
               .entry = entry,
               .e = &f->entries[entry],
               .dry = true};
  return g->n < f->most && g->graph.n <= FUSE_NODES &&
         coordinates_of(f, g, j.e, j.of) && join_at(&j, close);
}

bool fli_fuse_begin(fuse *f, int i, uint32_t entry, uint32_t *close) {
  fuse_group *g = f->groups[i];
  joining j = {.f = f, .g = g, .i = i, .entry = entry, .e = &f->entries[entry]};
  const fl_meta *space = fli_fuse_space(f, j.e);
  for (int d = 0; d < space->ndim; d++) {
    fli_nest_add(&g->nest, space->shape[d]);
    fli_nest_add(&g->first, space->shape[d]);
    j.of[d] = fli_form_constant(0);
    j.of[d].coef[d] = 1;
    memcpy(&g->first_at[d], &j.of[d], sizeof j.of[d]);
  }
  return cut_for_parts(&j) && join_at(&j, close);
}

fuse_group *fli_fuse_group_new(fuse *f) {
  fuse_group *g = fli_malloc(f->rt, sizeof *g);
  if (!g) {
    f->status = FL_ENOMEM;
    return NULL;
  }
  memset(g, 0, offsetof(fuse_group, leaves));
  g->most_dims = f->tiles ? FL_TILE_DIMS : FL_MAX_DIMS;
  g->open = true;
  fli_graph_open(&g->graph, f->rt);
  return g;
}

void fli_fuse_group_free(fuse_group *g) {
  if (!g)
    return;
  fli_graph_close(&g->graph);
  fli_mfree(g);
}
