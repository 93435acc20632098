/* The dims of a tile's loops on a GPU: their order, which become one, and
 * whether threads go along rows or columns. */
#include "tile.h"

#include <stdlib.h>
#include <string.h>

typedef struct plan_form {
  fl_form *at;
  int64_t bytes; /* of all elements that it goes through */
  bool store, inner, coord;
} plan_form;

static uint32_t form_dims(const tile_plan *p, const fl_form *at) {
  uint32_t dims = 0;
  for (int d = 0; d < p->n_dims; d++)
    dims |= (uint32_t)(at->coef[d] != 0) << d;
  return dims;
}

/* The dims that a value varies with, reductions apart, as far as they are not
 * those of values seen before. */
static uint32_t value_dims(const tile_plan *p, int v, uint8_t *seen) {
  const fl_program *b = p->t->body;
  int first = b->n_in + b->n_const;
  uint32_t dims = 0;
  if (seen[v])
    return 0;
  seen[v] = 1;
  if (v < b->n_in && p->t->leaves[v].kind != FL_LEAF_REDUCE)
    dims = form_dims(p, &p->leaf[v]);
  for (int k = 0; v < b->n_in && k < p->t->n_positions; k++)
    if (flc_leaf_along(p, v, k))
      dims |= value_dims(p, flc_position_value(p, k), seen);
  for (int j = 0; v >= first && j < b->instrs[v - first].n_in; j++)
    dims |= value_dims(p, b->instrs[v - first].in[j], seen);
  return dims;
}

static int64_t dims_bytes(const tile_plan *p, uint32_t dims, int operand) {
  int64_t n = (int64_t)fl_dtype_size(p->dtype[operand]);
  for (int d = 0; d < p->n_dims; d++)
    n *= dims >> d & 1 && n < INT64_MAX / 2 / p->size[d] ? p->size[d] : 1;
  return n;
}

int64_t flc_leaf_bytes(const tile_plan *p, int leaf) {
  uint8_t seen[FL_PROGRAM_VALUES] = {0};
  return dims_bytes(p, value_dims(p, leaf, seen), p->t->leaves[leaf].operand);
}

int64_t flc_store_bytes(const tile_plan *p, int store) {
  uint8_t seen[FL_PROGRAM_VALUES] = {0};
  uint32_t dims = form_dims(p, &p->store[store]);
  for (int k = 0; k < p->t->n_positions; k++)
    if (flc_store_along(p, store, k))
      dims |= value_dims(p, flc_position_value(p, k), seen);
  return dims_bytes(p, dims, p->t->n_in + p->t->stores[store].operand);
}

/* Stores first, then loads, then coordinates. */
static int plan_forms(tile_plan *p, plan_form *to) {
  const fl_tile *t = p->t;
  int n = 0;
  for (int k = 0; k < t->n_stores; k++)
    to[n++] = (plan_form){&p->store[k], flc_store_bytes(p, k), true,
                          flc_store_inner(p, k), false};
  for (int kind = FL_LEAF_LOAD; kind < FL_LEAF_REDUCE; kind++)
    for (int k = 0; k < t->body->n_in; k++)
      if (t->leaves[k].kind == kind && p->live[k])
        to[n++] = (plan_form){&p->leaf[k],
                              kind == FL_LEAF_LOAD ? flc_leaf_bytes(p, k) : 0,
                              false, p->f.inner[k], kind != FL_LEAF_LOAD};
  return n;
}

static void take_form(const tile_plan *p, const int *dims, const fl_form *from,
                      fl_form *to) {
  memset(to, 0, sizeof *to);
  to->offset = from->offset;
  for (int d = 0; d < p->n_dims; d++)
    to->coef[d] = from->coef[dims[d]];
}

static void plan_sizes(tile_plan *p) {
  const fl_tile *t = p->t;
  int dims[FL_TILE_DIMS] = {0}, n_outer = t->n_dims - t->n_inner;
  p->rows = p->reduced = 1;
  for (int i = 0; i < t->n_dims; i++) {
    *(i < n_outer ? &p->rows : &p->reduced) *= t->shape[i];
    if (t->shape[i] == 1)
      continue;
    dims[p->n_dims] = i;
    p->size[p->n_dims++] = t->shape[i];
    p->n_outer += i < n_outer;
  }
  for (int k = 0; k < t->body->n_in; k++)
    take_form(p, dims, &t->leaves[k].at, &p->leaf[k]);
  for (int k = 0; k < t->n_stores; k++)
    take_form(p, dims, &t->stores[k].at, &p->store[k]);
}

static void swap_dims(tile_plan *p, plan_form *f, int n, int a, int b) {
  int64_t s = p->size[a];
  p->size[a] = p->size[b];
  p->size[b] = s;
  for (int k = 0; k < n; k++) {
    int64_t c = f[k].at->coef[a];
    f[k].at->coef[a] = f[k].at->coef[b];
    f[k].at->coef[b] = c;
  }
}

/* Whether dim b goes outside of a: by the first form that tells. */
static bool goes_outside(const plan_form *f, int n, int a, int b) {
  for (int k = 0; k < n; k++) {
    int64_t x = llabs(f[k].at->coef[a]), y = llabs(f[k].at->coef[b]);
    if (x && y && x != y)
      return y > x;
  }
  return false;
}

/* Bytes that lie side by side along a dim. */
static int64_t dim_score(const plan_form *f, int n, int d, bool inner) {
  int64_t score = 0;
  for (int k = 0; k < n; k++)
    if (!f[k].coord && llabs(f[k].at->coef[d]) == 1 && (f[k].inner || !inner))
      score += f[k].bytes / 64 * (f[k].store ? 5 : 4);
  return score;
}

static int best_dim(const plan_form *f, int n, int begin, int end, bool inner,
                    int64_t *score) {
  int best = end - 1;
  *score = -1;
  for (int d = end - 1; d >= begin; d--) {
    int64_t s = dim_score(f, n, d, inner);
    if (s > *score) {
      *score = s;
      best = d;
    }
  }
  return best;
}

/* Dims [begin, end) in the order of the forms' strides, the one along which
 * most lies side by side last. */
static void order_dims(tile_plan *p, plan_form *f, int n, int begin, int end,
                       bool inner) {
  int64_t score;
  for (int i = begin + 1; i < end; i++)
    for (int d = i; d > begin && goes_outside(f, n, d - 1, d); d--)
      swap_dims(p, f, n, d - 1, d);
  if (begin < end)
    for (int d = best_dim(f, n, begin, end, inner, &score); d < end - 1; d++)
      swap_dims(p, f, n, d, d + 1);
}

static void merge_dims(tile_plan *p, plan_form *f, int n) {
  for (int d = p->n_dims - 2; d >= 0; d--) {
    bool one = d + 1 != p->n_outer;
    for (int k = 0; k < n && one; k++)
      one = f[k].at->coef[d] == f[k].at->coef[d + 1] * p->size[d + 1];
    if (!one)
      continue;
    p->size[d] *= p->size[d + 1];
    for (int k = 0; k < n; k++)
      f[k].at->coef[d] = f[k].at->coef[d + 1];
    for (int i = d + 1; i < p->n_dims - 1; i++)
      swap_dims(p, f, n, i, i + 1);
    for (int k = 0; k < n; k++)
      f[k].at->coef[p->n_dims - 1] = 0;
    p->n_dims--;
    p->n_outer -= d < p->n_outer;
  }
}

/* What varies with the inner dims, as fl_tile_find says it of the tile's. */
static void plan_inner(tile_plan *p) {
  const fl_program *b = p->t->body;
  int first = b->n_in + b->n_const;
  for (int v = 0; v < p->n_values; v++) {
    uint8_t to = 0;
    for (int d = p->n_outer; d < p->n_dims && v < b->n_in; d++)
      to |= p->leaf[v].coef[d] != 0;
    for (int j = 0; v >= first && j < b->instrs[v - first].n_in; j++)
      to |= p->f.inner[b->instrs[v - first].in[j]];
    p->f.inner[v] = to;
  }
}

/* Whether what is loaded is the same along dim d, in vectors along `dim`. */
static bool is_repeated(const plan_form *f, int dim, int d) {
  return !f->store && !f->coord && f->at->coef[dim] && !f->at->coef[d];
}

#define REPEATS_LEAST 64 /* elements that have loads in common */

/* Without reductions: leaves that repeat along all dims but the vector's, as
 * factors of channels do, are loaded once by threads that keep to their place
 * along it. The other dims become inner ones. */
static void plan_repeats(tile_plan *p, plan_form *f, int n) {
  int64_t score, others = 1;
  if (p->n_dims < 2 || p->n_dims > p->n_outer || p->t->n_positions)
    return;
  int dim = best_dim(f, n, 0, p->n_dims, false, &score), repeated = 0;
  for (int d = 0; d < p->n_dims; d++)
    others *= d == dim ? 1 : p->size[d];
  for (int k = 0; k < n; k++) {
    bool all = true, any = false;
    for (int d = 0; d < p->n_dims; d++)
      if (d != dim) {
        bool same = is_repeated(&f[k], dim, d);
        all = all && same;
        any = any || f[k].at->coef[d];
      }
    if (f[k].coord || (f[k].store && !any))
      return;
    repeated += all;
  }
  if (repeated < 2 || others < REPEATS_LEAST || p->size[dim] < 8)
    return;
  for (int d = dim; d > 0; d--)
    swap_dims(p, f, n, d - 1, d);
  p->n_outer = 1;
  p->rows = p->size[0];
  p->reduced = others;
  plan_inner(p);
  for (int k = 0; k < p->t->n_stores; k++)
    if (!p->f.inner[flc_tile_value(p, p->t->stores[k].value)]) {
      p->n_outer = p->n_dims;
      p->rows *= others;
      p->reduced = 1;
      memset(p->f.inner, 0, sizeof p->f.inner);
      return;
    }
  p->writes_inner = true;
}

/* Whether all indices and places fit 32 bits; `given`: the tile's own form. */
static bool form_fits(const tile_plan *p, const fl_form *at,
                      const fl_form *given) {
  double most = (double)llabs(at->offset);
  for (int k = 0; k < p->t->n_positions; k++)
    most += (double)llabs(given->coef[p->t->n_dims + k]) *
            (double)p->t->positions[k].bound;
  for (int d = 0; d < p->n_dims; d++)
    most += (double)llabs(at->coef[d]) * (double)p->size[d];
  return most < 2e9;
}

static void plan_width(tile_plan *p) {
  p->wide = p->rows > 2000000000 || p->reduced > 2000000000;
  for (int k = 0; k < p->t->body->n_in; k++)
    if (p->live[k] && p->t->leaves[k].kind != FL_LEAF_REDUCE)
      p->wide = p->wide || !form_fits(p, &p->leaf[k], &p->t->leaves[k].at);
  for (int k = 0; k < p->t->n_stores; k++)
    p->wide = p->wide || !form_fits(p, &p->store[k], &p->t->stores[k].at);
  for (int k = 0; k < p->t->n_positions; k++)
    p->wide = p->wide || p->t->positions[k].bound > 2000000000;
}

/* --- sum stores --- */

/* Dims that they sum over, a bit each. */
static uint32_t summed_dims(const tile_plan *p) {
  uint32_t dims = 0;
  for (int k = p->t->n_stores; k-- > 0;)
    if (fl_store_sums(&p->t->stores[k]))
      dims = ~form_dims(p, &p->store[k]) & ((1u << p->n_dims) - 1);
  return dims;
}

/* Whether all sum over the same dims, inner ones included. */
static bool sums_alike(const tile_plan *p) {
  uint32_t dims = summed_dims(p), all = (1u << p->n_dims) - 1;
  bool alike = true;
  for (int k = 0; k < p->t->n_stores; k++)
    if (fl_store_sums(&p->t->stores[k]))
      alike = alike && (~form_dims(p, &p->store[k]) & all) == dims;
  return alike;
}

/* Moves the dims of [begin, end) that are in the set to the end; their number
 * is returned. */
static int dims_last(tile_plan *p, plan_form *f, int n, int begin, int end,
                     uint32_t set) {
  int last = 0;
  for (int d = end - 1; d >= begin; d--) {
    if (!(set >> d & 1))
      continue;
    for (int i = d; i < end - 1 - last; i++)
      swap_dims(p, f, n, i, i + 1);
    last++;
  }
  return last;
}

/* Without reductions: rows are what lies side by side, of the dims that are
 * kept all, of those that are summed one. */
static void plan_sum_rows(tile_plan *p, plan_form *f, int n) {
  int64_t score;
  uint32_t summed = summed_dims(p), all = (1u << p->n_dims) - 1;
  if (p->n_dims == 0)
    return;
  int best = best_dim(f, n, 0, p->n_dims, false, &score);
  uint32_t inner = summed >> best & 1 ? 1u << best : all & ~summed;
  p->n_outer = p->n_dims - dims_last(p, f, n, 0, p->n_dims, inner);
  p->rows = p->reduced = 1;
  for (int d = 0; d < p->n_dims; d++)
    *(d < p->n_outer ? &p->rows : &p->reduced) *= p->size[d];
  plan_inner(p);
}

static void count_kept(tile_plan *p) {
  uint32_t summed = summed_dims(p);
  p->over = 1;
  for (int d = 0; d < p->n_outer; d++)
    if (!(summed >> d & 1)) {
      p->n_kept++;
      p->over *= p->size[d];
    }
  p->turns = p->rows / p->over;
}

/* Inner dims that nothing is reduced over, nor stored once for, are outer ones
 * like the others. */
void flc_tile_dims(tile_plan *p) {
  plan_form f[FL_TILE_STORES + FL_TILE_LEAVES];
  bool rows = p->f.phases > 1;
  plan_sizes(p);
  for (int k = 0; k < p->t->n_stores; k++) {
    bool inner = flc_store_inner(p, k);
    rows = rows || (!inner && p->t->n_inner);
    p->writes_inner |= inner;
    p->sums |= fl_store_sums(&p->t->stores[k]);
  }
  rows = rows || (p->sums && !sums_alike(p));
  if (!rows) {
    p->n_outer = p->n_dims;
    p->rows *= p->reduced;
    p->reduced = 1;
    memset(p->f.inner, 0, sizeof p->f.inner);
    p->writes_inner = p->sums;
  }
  int n = plan_forms(p, f), kept = 0;
  int64_t outer = -1, inner = -1;
  if (!rows) {
    (p->sums ? plan_sum_rows : plan_repeats)(p, f, n);
    n = plan_forms(p, f);
  }
  if (p->sums) {
    uint32_t summed = summed_dims(p);
    kept = p->n_outer - dims_last(p, f, n, 0, p->n_outer, summed);
    order_dims(p, f, n, 0, kept, false);
  }
  order_dims(p, f, n, kept, p->n_outer, false);
  order_dims(p, f, n, p->n_outer, p->n_dims, true);
  if (p->n_outer)
    best_dim(f, n, 0, p->n_outer, p->n_dims > p->n_outer, &outer);
  if (p->n_dims > p->n_outer)
    best_dim(f, n, p->n_outer, p->n_dims, true, &inner);
  merge_dims(p, f, n);
  p->columns = !p->sums &&
               (p->n_dims == p->n_outer || (outer > inner && p->reduced > 0));
  if (p->sums)
    count_kept(p);
  plan_width(p);
}
