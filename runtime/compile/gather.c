/* Elements at positions. A position is a coordinate that an index tensor gives:
 * a dim of the group's nest that has no loop, so that forms, views of what is
 * gathered, and values that are computed again go along it like along any other
 * dim. Sums at positions are launches that add to memory instead of writing it;
 * what they are added to is a launch before. */
#include "fuse.h"
#include "rows.h"

#include <stdlib.h>
#include <string.h>

#define ALONG 2 /* positions of one form */

static bool gather_try(fuse *f, fl_status s) {
  if (s && !f->status)
    f->status = s;
  return s == FL_OK;
}

/* --- which launches --- */

static bool is_index(const fli_arg *a) {
  return a->slot >= 0 && a->meta.ndim > 0 &&
         (a->meta.dtype == FL_I64 || a->meta.dtype == FL_I32);
}

/* The dims of what has `all` dims: those before the positions, of the index,
 * behind. */
static bool fits_index(const fli_indexing *x, const fli_arg *at,
                       const fli_arg *index, const fli_arg *each) {
  int dims = x->at == FLI_AT_EACH ? index->meta.ndim
                                  : at->meta.ndim - 1 + index->meta.ndim;
  return is_index(index) && at->slot >= 0 && at->meta.ndim > 0 &&
         each->meta.ndim == dims && at->meta.shape[x->dim] > 1 &&
         at->stride[x->dim] != 0;
}

bool fli_fuse_gathers(const fuse *f, const fli_entry *e) {
  fli_indexing x;
  if (!f->tiles || e->n_out != 1 ||
      !fli_row_indexes(e->op, fli_entry_attrs(f->w, e), &x) || x.sum)
    return false;
  return fits_index(&x, fli_fuse_arg(f, e->arg + (uint32_t)x.x),
                    fli_fuse_arg(f, e->arg + (uint32_t)x.index),
                    fli_fuse_arg(f, e->arg + (uint32_t)e->n_in));
}

/* Whether input k of a launch goes along its loops as operands do that
 * broadcast. */
bool fli_fuse_aligned(const fuse *f, const fli_entry *e, int k) {
  fli_indexing x;
  if (fli_fuse_part(f, e)->role != FUSE_LAUNCH ||
      !fli_row_indexes(e->op, fli_entry_attrs(f->w, e), &x))
    return true;
  return k == x.index && x.at == FLI_AT_EACH;
}

/* --- positions --- */

/* The dim of the nest that `is` is; -1: there is no room. */
static int position_dim(fuse_group *g, const fl_position *is, uint32_t entry) {
  int k = 0;
  for (; k < g->n_positions; k++) {
    const fl_position *x = &g->positions[k].is;
    if (x->value == is->value && x->bound == is->bound && x->skip == is->skip &&
        x->base == is->base && x->from_end == is->from_end)
      break;
  }
  if (k == g->n_positions) {
    if (k == FL_TILE_POSITIONS || g->nest.n == g->most_dims)
      return -1;
    g->positions[g->n_positions++] = (fuse_position){*is, entry};
    fli_nest_add(&g->nest, is->bound);
    g->nest.position[g->nest.n - 1] = k + 1;
  }
  for (int d = 0; d < g->nest.n; d++)
    if (g->nest.position[d] == k + 1)
      return d;
  return -1;
}

void fli_fuse_forget_positions(fuse_group *g, int n) {
  g->nest.n -= g->n_positions - n;
  g->n_positions = n;
}

bool fli_fuse_along(const fli_nest *nest, const fl_form *at) {
  bool any = false;
  for (int d = 0; d < nest->n; d++)
    any = any || (nest->position[d] && at->coef[d]);
  return any;
}

static int positions_of(const fli_nest *nest, const fl_form *at) {
  int n = 0;
  for (int d = 0; d < nest->n; d++)
    n += nest->position[d] && at->coef[d];
  return n;
}

/* Whether v depends on the coordinate of dim d, which is checked only then; -1:
 * whether it depends on a reduction. */
static bool depends_on(const fuse_group *g, fl_value v, int d) {
  uint8_t used[FL_PROGRAM_VALUES] = {0};
  if (v.dtype != FLI_NODE)
    return false;
  used[v.i] = 1;
  fli_fuse_used(g, used, false);
  for (int k = 0; k < g->n_leaves; k++) {
    const fuse_leaf *of = &g->leaves[k];
    if (used[of->node] && (d < 0 ? of->kind == FL_LEAF_REDUCE
                                 : of->kind == FL_LEAF_LOAD && of->at.coef[d]))
      return true;
  }
  return false;
}

/* The access of memory `at` whose coordinate along x->dim is the position: the
 * other coordinates are those of the loops. The dims of the index are the
 * loops' dims from x->dim on, or all of them. */
static bool access_at(fuse *f, int i, const fli_entry *e, const fli_indexing *x,
                      const fli_arg *at, const fli_arg *index,
                      const fl_form *index_at, const fl_form *of, int depth,
                      uint32_t *close, fl_form *to, int *dim) {
  fuse_group *g = f->groups[i];
  int dims = x->at == FLI_AT_EACH ? 1 : index->meta.ndim;
  fl_value v;
  if (!fli_fuse_resolve(f, i, index->slot, index->meta.dtype, index_at,
                        (uint32_t)(e - f->entries), -1, depth, close, &v) ||
      !gather_try(f, fli_graph_cast(&g->graph, v, FL_I64, &v)) ||
      v.dtype != FLI_NODE || depends_on(g, v, -1))
    return false; /* positions are known before anything is reduced */
  fl_position is = {.bound = at->meta.shape[x->dim],
                    .skip = x->sum ? x->skip : -1,
                    .op = e->op->info.name,
                    .base = e->base,
                    .value = (int16_t)v.i,
                    .from_end = x->from_end};
  *dim = position_dim(g, &is, (uint32_t)(e - f->entries));
  if (*dim < 0)
    return false;
  *to = fli_form_constant(at->offset);
  for (int d = 0; d < at->meta.ndim; d++)
    if (d != x->dim && at->meta.shape[d] != 1)
      fli_form_add(to, &of[d < x->dim ? d : d - 1 + dims], at->stride[d],
                   FL_TILE_DIMS);
  to->coef[*dim] += at->stride[x->dim];
  return positions_of(&g->nest, to) <= ALONG;
}

bool fli_fuse_build_gather(fuse *f, int i, const fli_entry *e,
                           const fl_form *of, int mask, int depth,
                           uint32_t *close, fl_value *y) {
  fuse_group *g = f->groups[i];
  fli_indexing x;
  fli_row_indexes(e->op, fli_entry_attrs(f->w, e), &x);
  const fli_arg *from = fli_fuse_arg(f, e->arg + (uint32_t)x.x),
                *index = fli_fuse_arg(f, e->arg + (uint32_t)x.index),
                *out = fli_fuse_arg(f, e->arg + (uint32_t)e->n_in);
  const fl_form *along = x.at == FLI_AT_EACH ? of : of + x.dim;
  fl_form index_at = fli_fuse_access(index, along, index->meta.ndim), at;
  int dim;
  return mask < 0 &&
         access_at(f, i, e, &x, from, index, &index_at, of, depth, close, &at,
                   &dim) &&
         fli_fuse_resolve(f, i, from->slot, from->meta.dtype, &at,
                          (uint32_t)(e - f->entries), -1, depth, close, y) &&
         depends_on(g, *y, dim) &&
         gather_try(f, fli_graph_cast(&g->graph, *y, out->meta.dtype, y));
}

/* --- sums --- */

/* What a sum is added to. */
bool fli_fuse_build_begin(fuse *f, int i, const fli_entry *e, const fl_form *of,
                          int mask, int depth, uint32_t *close, fl_value *y) {
  fuse_group *g = f->groups[i];
  const fli_arg *out = fli_fuse_arg(f, e->arg + (uint32_t)e->n_in);
  if (e->n_in == 0) {
    fl_form none = fli_form_constant(0);
    return fli_fuse_coordinate(f, i, &none, y) &&
           gather_try(f, fli_graph_cast(&g->graph, *y, out->meta.dtype, y));
  }
  const fli_arg *x = fli_fuse_arg(f, e->arg);
  fl_form at = fli_fuse_access(x, of, out->meta.ndim);
  return fli_fuse_resolve(f, i, x->slot, x->meta.dtype, &at,
                          (uint32_t)(e - f->entries), mask, depth, close, y) &&
         gather_try(f, fli_graph_cast(&g->graph, *y, out->meta.dtype, y));
}

/* What is added, and where. Inputs of the part: src and its positions. */
bool fli_fuse_build_sum(fuse *f, int i, const fli_entry *e, const fl_form *of,
                        uint32_t *close, fl_value *y, fl_form *to) {
  fuse_group *g = f->groups[i];
  const fli_arg *src = fli_fuse_arg(f, e->arg),
                *index = fli_fuse_arg(f, e->arg + 1),
                *out = fli_fuse_arg(f, e->arg + 2);
  int dims = src->meta.ndim, dim;
  fli_indexing x;
  fl_form at = fli_fuse_access(src, of, dims),
          index_at = fli_fuse_access(index, of, dims);
  fli_row_indexes(e->op, fli_entry_attrs(f->w, e), &x);
  fli_arg as = *index; /* the dims that it has of its own */
  as.meta.ndim = x.at == FLI_AT_EACH ? dims : dims + 1 - out->meta.ndim;
  return fli_fuse_resolve(f, i, src->slot, src->meta.dtype, &at,
                          (uint32_t)(e - f->entries), -1, 0, close, y) &&
         gather_try(f, fli_graph_cast(&g->graph, *y, out->meta.dtype, y)) &&
         access_at(f, i, e, &x, out, &as, &index_at, of, 0, close, to, &dim);
}

/* Sums are made in the dtype of the result, in any order. */
static bool sum_opens(const fuse *f, const fli_entry *e, fli_indexing *x) {
  if (!f->tiles || f->c->exact || e->n_out != 1 || e->writes || !f->p->sums ||
      !fli_row_indexes(e->op, fli_entry_attrs(f->w, e), x) || !x->sum)
    return false;
  const fli_arg *src = &f->args[e->arg + (uint32_t)x->src],
                *index = &f->args[e->arg + (uint32_t)x->index],
                *out = &f->args[e->arg + (uint32_t)e->n_in];
  fl_dtype d = out->meta.dtype;
  if ((d != FL_F32 && d != FL_F64 && d != FL_I64) || src->slot < 0 ||
      src->meta.dtype != d || !fits_index(x, out, index, src))
    return false;
  int first = x->at == FLI_AT_EACH ? 0 : x->dim;
  for (int k = 0; k < index->meta.ndim; k++)
    if (src->meta.shape[first + k] != index->meta.shape[k])
      return false;
  for (int k = 0; k < src->meta.ndim; k++)
    if (src->meta.shape[k] == 0)
      return false;
  for (int k = 0; k < e->n_in; k++)
    if (f->args[e->arg + (uint32_t)k].slot == out->slot)
      return false;
  return x->x < 0 || f->args[e->arg + (uint32_t)x->x].slot >= 0;
}

bool fli_fuse_open_sum(fuse *f, uint32_t i) {
  const fli_entry *e = &f->w->entries[i];
  fli_indexing x;
  if (!sum_opens(f, e, &x))
    return false;
  fli_entry *begin = &f->entries[f->n], *sum = begin + 1;
  fuse_part *part = &f->parts[f->n];
  const fli_arg *out = &f->args[e->arg + (uint32_t)e->n_in];
  *begin = *sum = *e;
  part[0] = (fuse_part){.origin = i, .role = FUSE_BEGIN, .parts = 2};
  part[1] = (fuse_part){.origin = i, .role = FUSE_SUM, .parts = 2};
  begin->arg = f->n_args;
  begin->n_in = x.x >= 0;
  if (x.x >= 0)
    f->args[f->n_args++] = f->args[e->arg + (uint32_t)x.x];
  f->args[f->n_args++] = *out;
  sum->arg = f->n_args;
  sum->n_in = 2;
  const fli_arg *src = &f->args[e->arg + (uint32_t)x.src];
  fli_arg index = f->args[e->arg + (uint32_t)x.index];
  f->args[f->n_args++] = *src;
  fli_arg *seen = &f->args[f->n_args++]; /* with the dims of src */
  *seen = index;
  seen->meta.ndim = src->meta.ndim;
  int first = x.at == FLI_AT_EACH ? 0 : x.dim;
  for (int d = 0; d < src->meta.ndim; d++) {
    bool own = d >= first && d < first + index.meta.ndim;
    seen->meta.shape[d] = own ? index.meta.shape[d - first] : 1;
    seen->stride[d] = own ? index.stride[d - first] : 0;
  }
  f->args[f->n_args++] = *out;
  f->n += 2;
  return true;
}

/* --- whether sums may be in any order --- */

bool fli_sums_allowed(fl_runtime *rt, fl_device d) {
  fl_backend *b = fli_backend(rt, d);
  char *text = NULL;
  bool allowed = true;
  if (b->query && b->query(b, "settings", NULL, &text) == FL_OK && text)
    allowed = !strstr(text, "deterministic 1");
  free(text);
  return allowed;
}
