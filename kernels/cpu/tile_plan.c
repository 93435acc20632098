/* Plans of the kernel "tile": axes and blocks, in which order values are
 * computed, where they lie. tile.c runs them. */
#include "tile_maker.h"

#include <string.h>

#define SEGMENT 65536 /* instructions of a cut of a chunk */
#define LEAST   4     /* of an element, besides its own */
#define FEW     64    /* chunks that are cut */
#define SMALL   1024  /* elements of a block, if there are fewer blocks than */
#define PARTS   8

/* --- the nest: dims, axes, blocks --- */

static bool joins(const fl_form *f, int k, int i, int64_t size) {
  return f->coef[k] == f->coef[i] * size;
}

static bool can_merge(const maker *m, int k, int i) {
  bool one = true;
  for (int x = 0; x < m->p->n_in && one; x++)
    one = is_reduce(m, x) || joins(&m->leaf[x], k, i, m->shape[i]);
  for (int x = 0; x < m->t->n_stores && one; x++)
    one = joins(&m->store[x], k, i, m->shape[i]);
  return one;
}

static void move_dim(maker *m, int to, int from) {
  m->shape[to] = m->shape[from];
  for (int x = 0; x < m->p->n_in; x++)
    m->leaf[x].coef[to] = m->leaf[x].coef[from];
  for (int x = 0; x < m->t->n_stores; x++)
    m->store[x].coef[to] = m->store[x].coef[from];
}

/* Dims of one element go, neighbours become one where all forms allow it. */
static void merge_dims(maker *m) {
  const fl_tile *t = m->t;
  int n = 0, outer = 0;
  for (int i = 0; i < t->n_dims; i++) {
    bool inner = i >= t->n_dims - t->n_inner;
    if (i == t->n_dims - t->n_inner)
      outer = n;
    if (t->shape[i] == 1)
      continue;
    m->shape[i] = t->shape[i];
    if (n > (inner ? outer : 0) && can_merge(m, n - 1, i)) {
      int64_t size = m->shape[n - 1] * m->shape[i];
      move_dim(m, n - 1, i);
      m->shape[n - 1] = size;
    } else {
      move_dim(m, n++, i);
    }
  }
  m->n_dims = n;
  m->n_inner = t->n_inner ? n - outer : 0;
}

/* Elements that lie side by side along dim d; along `beside` at its end. */
static double side_by_side(const maker *m, int d, int beside) {
  double sum = 0;
  for (int x = 0; x < m->p->n_in + m->t->n_stores; x++) {
    bool load = x < m->p->n_in;
    if (load && m->t->leaves[x].kind != FL_LEAF_LOAD)
      continue;
    const fl_form *f = load ? &m->leaf[x] : &m->store[x - m->p->n_in];
    int64_t step = beside < 0 ? 1 : f->coef[beside] * m->shape[beside];
    double size = 1;
    for (int i = 0; i < m->n_dims; i++)
      size *= f->coef[i] ? (double)m->shape[i] : 1;
    sum += f->coef[d] == step && step ? size : 0;
  }
  return sum;
}

static int best_dim(const maker *m, int from, int to, int beside,
                    double *best) {
  int at = -1;
  *best = -1;
  for (int d = to - 1; d >= from; d--) {
    double score = d == beside ? -1 : side_by_side(m, d, beside);
    if (score > *best) {
      *best = score;
      at = d;
    }
  }
  return at;
}

static void choose_axes(maker *m) {
  int outer = m->n_dims - m->n_inner;
  double in, out, any;
  m->n->inner = m->t->n_inner > 0;
  if (!m->n->inner) {
    m->axis_q = best_dim(m, 0, m->n_dims, -1, &any);
    m->axis_p = m->axis_q < 0 ? -1 : best_dim(m, 0, m->n_dims, m->axis_q, &any);
    return;
  }
  int q_in = best_dim(m, outer, m->n_dims, -1, &in);
  int q_out = best_dim(m, 0, outer, -1, &out);
  m->n->across = q_out >= 0 && (out > in || q_in < 0);
  m->axis_q = m->n->across ? q_out : q_in;
  if (m->axis_q < 0)
    m->axis_p = best_dim(m, 0, outer, -1, &any);
  else if (m->n->across)
    m->axis_p = best_dim(m, outer, m->n_dims, m->axis_q, &any);
  else
    m->axis_p = best_dim(m, 0, outer, m->axis_q, &any);
}

static fl_nest_place place_form(const maker *m, const fl_form *f) {
  fl_nest_place x = {.offset = f->offset};
  int k = 0;
  for (int d = 0; d < m->n_dims; d++)
    if (d == m->axis_p)
      x.p = f->coef[d];
    else if (d == m->axis_q)
      x.q = f->coef[d];
    else
      x.loop[k++] = f->coef[d];
  for (k = 0; k < m->t->n_positions; k++)
    x.along[k] = f->coef[m->t->n_dims + k];
  return x;
}

static bool has_sums(const maker *m) {
  bool any = false;
  for (int k = 0; k < m->t->n_stores; k++)
    any = any || m->t->stores[k].add;
  return any;
}

static int64_t even_cut(int64_t n, int64_t most) {
  int64_t cuts = fl_ceil_div(n, most),
          cut = fl_ceil_div(n, cuts > 1 ? cuts : 1);
  cut = cuts > 1 ? (cut + 15) / 16 * 16 : cut;
  return cut > 1 ? cut < most ? cut : most : 1;
}

static void cut_blocks(maker *m, int64_t most) {
  fl_nest_plan *n = m->n;
  int64_t inner = 1, outer = 1;
  n->np = m->axis_p < 0 ? 1 : m->shape[m->axis_p];
  n->nq = m->axis_q < 0 ? 1 : m->shape[m->axis_q];
  n->n_loops = n->n_outer = 0;
  for (int d = 0; d < m->n_dims; d++) {
    if (d == m->axis_p || d == m->axis_q)
      continue;
    bool in = d >= m->n_dims - m->n_inner;
    n->n_outer += !in;
    *(in ? &inner : &outer) *= m->shape[d];
    n->loop[n->n_loops++] = m->shape[d];
  }
  n->bq = even_cut(n->nq, n->inner && most > FL_NEST_ROW ? FL_NEST_ROW : most);
  n->bp = n->bq < n->nq && !n->across ? 1 : even_cut(n->np, most / n->bq);
  int64_t tp = fl_ceil_div(n->np, n->bp), tq = fl_ceil_div(n->nq, n->bq);
  n->tiles = !n->inner ? 1 : n->across ? tp : tq;
  n->outer_tiles = tp * tq / n->tiles;
  n->row_tiles = tq;
  n->width = n->across ? n->bq : n->bp;
  n->chunks = outer * n->outer_tiles;
  n->passes = inner * n->tiles;
  n->segment = SEGMENT / ((m->p->n_instr + LEAST) * n->bp * n->bq);
  n->segment = n->segment > 1 ? n->segment : 1;
  n->segments = n->chunks < FEW && n->passes >= 2 * n->segment && !has_sums(m)
                    ? fl_ceil_div(n->passes, n->segment)
                    : 1;
  m->whole = n->passes == 1;
  m->full =
      (uint8_t)((n->bp > 1 ? FL_VARY_P : 0) | (n->bq > 1 ? FL_VARY_Q : 0));
  for (int x = 0; x < m->p->n_in; x++)
    n->leaf[x] = place_form(m, &m->leaf[x]);
  for (int x = 0; x < m->t->n_stores; x++)
    n->store[x] = place_form(m, &m->store[x]);
}

/* --- what values vary with --- */

static uint8_t place_varies(const fl_nest_plan *n, const fl_nest_place *x) {
  bool in = (n->across ? x->p : x->q) != 0 && (n->across ? n->np : n->nq) > 1;
  bool any = (x->p && n->np > 1) || (x->q && n->nq > 1);
  for (int k = n->n_outer; k < n->n_loops; k++)
    in |= x->loop[k] != 0;
  for (int k = 0; k < n->n_loops; k++)
    any |= x->loop[k] != 0;
  return (uint8_t)((x->p && n->bp > 1 ? FL_VARY_P : 0) |
                   (x->q && n->bq > 1 ? FL_VARY_Q : 0) |
                   (in ? FL_VARY_INNER : 0) | (any ? FL_VARY_ANY : 0));
}

static bool join_values(fl_nest_plan *n, int v, int of) {
  uint8_t vary = n->vary[v] | n->vary[of];
  uint8_t phase = n->phase[of] > n->phase[v] ? n->phase[of] : n->phase[v];
  bool more = vary != n->vary[v] || phase != n->phase[v];
  n->vary[v] = vary;
  n->phase[v] = phase;
  return more;
}

/* Instructions may stand after others that leaves above them feed, so all are
 * gone through until nothing changes. */
static void find_values(maker *m) {
  fl_nest_plan *n = m->n;
  const uint16_t *out = m->p->out;
  memset(n->phase, 0, sizeof n->phase);
  memset(n->vary, 0, sizeof n->vary);
  for (int x = 0; x < m->p->n_in; x++)
    if (is_reduce(m, x))
      n->vary[x] =
          FL_VARY_ANY | (m->full & (n->across ? FL_VARY_Q : FL_VARY_P));
    else
      n->vary[x] = place_varies(n, &n->leaf[x]);
  for (bool more = true; more;) {
    more = false;
    for (int x = 0; x < m->p->n_in; x++) {
      const fl_leaf *leaf = &m->t->leaves[x];
      int along[FL_NEST_ALONG], count = along_values(m, &n->leaf[x], along);
      for (int k = 0; k < count; k++)
        more |= join_values(n, x, along[k]);
      if (is_reduce(m, x)) {
        uint8_t phase = (uint8_t)(n->phase[out[leaf->source]] + 1);
        more |= phase != n->phase[x];
        n->phase[x] = phase;
      } else {
        for (int of[2], k = leaf_values(m, x, of); k > 0; k--)
          more |= join_values(n, x, of[k - 1]);
      }
    }
    for (int k = 0; k < m->p->n_instr; k++)
      for (int j = 0; j < m->p->instrs[k].n_in; j++)
        more |= join_values(n, m->first + k, m->p->instrs[k].in[j]);
  }
  n->phases = 1;
  for (int v = 0; v < m->values; v++)
    n->phases = n->phase[v] >= n->phases ? n->phase[v] + 1 : n->phases;
}

/* --- steps --- */

static fl_nest_step *add_step(maker *m, int kind, int what, uint8_t vary) {
  fl_nest_plan *n = m->n;
  if (n->n_steps == FL_NEST_STEPS) {
    m->too_long = true;
    n->n_steps = 0;
  }
  fl_nest_step *s = &n->steps[n->n_steps++];
  *s = (fl_nest_step){.kind = (uint8_t)kind,
                      .vary = vary,
                      .what = (int16_t)what,
                      .slot = -1,
                      .store = -1,
                      .kept = -1};
  return s;
}

/* What costs no more than reading it back would. */
static bool is_cheap(const maker *m, int v) {
  const fl_instr *x = &m->p->instrs[v - m->first];
  switch (x->row) {
  case FL_ROW_add:
  case FL_ROW_sub:
  case FL_ROW_mul:
  case FL_ROW_neg:
  case FL_ROW_mul_add:
  case FL_ROW_mul_sub:
  case FL_ROW_sub_mul:
    break;
  default:
    return false;
  }
  int loads = 0;
  for (int j = 0; j < x->n_in; j++) {
    int u = x->in[j];
    if (u >= m->first && m->n->vary[u] & FL_VARY_INNER)
      return false;
    loads += u < m->first && m->n->vary[u] & FL_VARY_INNER;
  }
  return loads <= 1;
}

/* From now on an earlier phase keeps v: false if there is no room. */
static bool keep_value(maker *m, int v) {
  fl_nest_plan *n = m->n;
  size_t elements = (size_t)(n->passes * n->bp * n->bq);
  if (m->kept[v] >= 0)
    return true;
  if (n->segments > 1 || v < m->first || is_cheap(m, v) ||
      elements > FL_NEST_CACHE ||
      (m->cached + n->wide) * elements > FL_NEST_CACHE)
    return false;
  m->kept[v] = (int32_t)m->cached;
  n->steps[m->made_by[v]].kept = m->kept[v];
  m->cached += n->wide;
  return true;
}

static void want(maker *m, int v);

/* What an instruction reads to take v; its number among the values. */
static int want_spread(maker *m, int instr, int v) {
  int id = read_by_instr(m, instr, v);
  want(m, v);
  if (id != v && (m->made[id] != m->now && !(m->whole && m->made[id]))) {
    add_step(m, FL_NEST_SPREAD, v, vary_block(m, m->first + instr));
    m->made[id] = (uint8_t)m->now;
  }
  return id;
}

static int want_everywhere(maker *m, int v) {
  int id = m->values + v;
  want(m, v);
  if (vary_block(m, v) == m->full)
    return v;
  if (m->made[id] != m->now && !(m->whole && m->made[id])) {
    add_step(m, FL_NEST_SPREAD, v, m->full);
    m->made[id] = (uint8_t)m->now;
  }
  return id;
}

static void want_along(maker *m, const fl_nest_place *x) {
  int along[FL_NEST_ALONG], n = along_values(m, x, along);
  for (int k = 0; k < n; k++)
    want(m, along[k]);
}

/* Steps for a value that varies with the inner dims, in this phase's list. */
static void want(maker *m, int v) {
  bool before = m->made[v] != 0;
  if (!(m->n->vary[v] & FL_VARY_INNER) || m->made[v] == m->now ||
      (m->whole && before))
    return;
  if (before && keep_value(m, v)) {
    add_step(m, FL_NEST_KEPT, v, vary_block(m, v))->kept = m->kept[v];
  } else if (v < m->p->n_in) {
    int of[2], n = leaf_values(m, v, of);
    for (int k = 0; k < n && !is_reduce(m, v); k++)
      want(m, of[k]);
    want_along(m, &m->n->leaf[v]);
    add_step(m, FL_NEST_LEAF, v, vary_block(m, v));
  } else {
    const fl_instr *x = &m->p->instrs[v - m->first];
    for (int j = 0; j < x->n_in; j++)
      want_spread(m, v - m->first, x->in[j]);
    add_step(m, FL_NEST_INSTR, v - m->first, vary_block(m, v));
    if (!before)
      m->made_by[v] = (int16_t)(m->n->n_steps - 1);
  }
  m->made[v] = (uint8_t)m->now;
}

static void want_row(maker *m, int v, int phase, uint8_t least) {
  fl_nest_plan *n = m->n;
  if (n->vary[v] & FL_VARY_INNER || (n->vary[v] & FL_VARY_ANY) != least ||
      n->phase[v] != phase || m->made[v] || !m->uses[v])
    return;
  m->made[v] = 1;
  if (v < m->p->n_in) {
    const fl_leaf *x = &m->t->leaves[v];
    int along[FL_NEST_ALONG], count = along_values(m, &n->leaf[v], along);
    for (int of[2], k = leaf_values(m, v, of); k > 0 && !is_reduce(m, v); k--)
      want_row(m, of[k - 1], phase, least);
    for (int k = 0; k < count; k++)
      want_row(m, along[k], phase, least);
    n->row_slot[v] = (int16_t)n->rows++;
    if (x->kind != FL_LEAF_REDUCE)
      add_step(m, FL_NEST_LEAF, v, vary_block(m, v))->slot = n->row_slot[v];
  } else if (v >= m->first) {
    const fl_instr *x = &m->p->instrs[v - m->first];
    for (int j = 0; j < x->n_in; j++)
      want_row(m, x->in[j], phase, least);
    n->row_slot[v] = (int16_t)n->rows++;
    add_step(m, FL_NEST_INSTR, v - m->first, vary_block(m, v))->slot =
        n->row_slot[v];
  }
}

/* The phase in whose blocks a store is done; -1: after them, once a chunk. */
static int phase_of_store(const maker *m, int k) {
  const fl_nest_plan *n = m->n;
  int v = m->p->out[m->t->stores[k].value], along[FL_NEST_ALONG];
  uint8_t vary = n->vary[v] | place_varies(n, &n->store[k]);
  int count = along_values(m, &n->store[k], along);
  for (int i = 0; i < count; i++)
    vary |= n->vary[along[i]];
  int add = m->t->stores[k].add;
  if ((add && !n->inner) || add == FL_STORE_SUM)
    return n->phases - 1; /* once for each element */
  if (!(vary & FL_VARY_INNER))
    return -1;
  if (add)
    return n->phases - 1;
  return n->over[k] ? n->phases - 1 : n->phase[v];
}

static bool is_typed(const maker *m, int k) {
  const fl_leaf *x = &m->t->leaves[m->n->reduce[k].leaf];
  return fl_dtype_is_float(fl_program_type(m->p, m->p->out[x->source])) &&
         x->reduction != FL_REDUCE_PROD && !fl_nest_moments(x->reduction);
}

/* Whether a reduction is a sum of products that nothing else reads. */
static bool is_dot(const maker *m, int k) {
  const fl_leaf *x = &m->t->leaves[m->n->reduce[k].leaf];
  int v = m->p->out[x->source];
  const fl_instr *mul = v < m->first ? NULL : &m->p->instrs[v - m->first];
  return mul && mul->row == FL_ROW_mul && x->reduction == FL_REDUCE_SUM &&
         is_typed(m, k) && !m->n->across && !m->p->separate &&
         m->uses[v] == 1 && vary_block(m, mul->in[0]) == m->full &&
         vary_block(m, mul->in[1]) == m->full;
}

static void list_steps(maker *m) {
  fl_nest_plan *n = m->n;
  const fl_tile *t = m->t;
  n->n_steps = n->rows = 0;
  n->once.begin = 0;
  for (int v = 0; v < m->values; v++)
    want_row(m, v, 0, 0);
  n->once.end = n->n_steps;
  for (int phase = 0; phase < n->phases; phase++) {
    n->row[phase].begin = n->n_steps;
    for (int v = 0; v < m->values; v++)
      want_row(m, v, phase, FL_VARY_ANY);
    n->row[phase].end = n->n_steps;
  }
  for (int phase = 0; phase < n->phases; phase++) {
    m->now = phase + 1;
    n->block[phase].begin = n->n_steps;
    for (int k = 0; k < n->n_reduce; k++) {
      int v = m->p->out[t->leaves[n->reduce[k].leaf].source];
      if (n->phase[v] != phase)
        continue;
      bool dot = is_dot(m, k);
      if (dot)
        for (int j = 0; j < 2; j++)
          want(m, m->p->instrs[v - m->first].in[j]);
      else
        want_everywhere(m, v);
      add_step(m, FL_NEST_REDUCE, k, m->full)->dot = dot;
    }
    for (int k = 0; k < t->n_stores; k++)
      if (phase_of_store(m, k) == phase) {
        want_along(m, &n->store[k]);
        want_everywhere(m, m->p->out[t->stores[k].value]);
      }
    for (int k = 0; k < t->n_stores; k++)
      if (phase_of_store(m, k) == phase)
        add_step(m, FL_NEST_STORE, k, m->full)->spread = true;
    n->block[phase].end = n->n_steps;
  }
  n->last.begin = n->n_steps;
  for (int k = 0; k < t->n_stores; k++)
    if (phase_of_store(m, k) < 0)
      add_step(m, FL_NEST_STORE, k,
               t->stores[k].add
                   ? m->full & (n->across ? FL_VARY_Q : FL_VARY_P)
                   : place_varies(n, &n->store[k]) & FL_VARY_BLOCK);
  n->last.end = n->n_steps;
}

/* --- all of it --- */

static void use_value(maker *m, int v);

static void use_along(maker *m, const fl_form *f) {
  for (int k = 0; k < m->t->n_positions; k++)
    if (f->coef[m->t->n_dims + k])
      use_value(m, m->p->out[m->t->positions[k].value]);
}

/* Counts a use of v, and what its first one uses. */
static void use_value(maker *m, int v) {
  if (m->uses[v]++)
    return;
  if (v >= m->first) {
    const fl_instr *x = &m->p->instrs[v - m->first];
    for (int j = 0; j < x->n_in; j++)
      use_value(m, x->in[j]);
  } else if (v < m->p->n_in) {
    for (int of[2], k = leaf_values(m, v, of); k > 0; k--)
      use_value(m, of[k - 1]);
    use_along(m, &m->t->leaves[v].at);
  }
}

/* Whether an earlier reduction gives leaf x too, as the mean and the deviation
 * of one value do; notes it there. */
static bool is_twin(maker *m, int x) {
  const fl_leaf *leaf = &m->t->leaves[x];
  for (int k = 0; k < m->n->n_reduce && fl_nest_moments(leaf->reduction); k++) {
    fl_nest_reduction *to = &m->n->reduce[k];
    const fl_leaf *of = &m->t->leaves[to->leaf];
    if (!fl_nest_moments(of->reduction) ||
        m->p->out[of->source] != m->p->out[leaf->source])
      continue;
    to->twin = (int16_t)x;
    return true;
  }
  return false;
}

static void find_constants(maker *m) {
  fl_nest_plan *n = m->n;
  for (int k = 0; k < m->p->n_const; k++) {
    const fl_constant *c = &m->p->constants[k];
    fl_dtype from = fl_dtype_kind(c->type) == FL_KIND_FLOAT ? FL_F64 : FL_I64;
    FL_CPU(convert)(1, c->type, &n->cell[k], from, &c->f);
  }
  n->n_reduce = 0;
  n->wide = 4;
  for (int v = 0; v < m->values; v++)
    if (fl_dtype_size(fl_program_type(m->p, v)) == 8)
      n->wide = 8;
  for (int k = 0; k < m->t->n_stores; k++) {
    use_value(m, m->p->out[m->t->stores[k].value]);
    use_along(m, &m->t->stores[k].at);
  }
  for (int x = 0; x < m->p->n_in; x++)
    if (is_reduce(m, x) && m->uses[x] && !is_twin(m, x)) {
      n->reduce[n->n_reduce].twin = -1;
      n->reduce[n->n_reduce++].leaf = (uint8_t)x;
    }
}

static void find_reductions(maker *m) {
  fl_nest_plan *n = m->n;
  n->all_direct = true;
  n->n_acc = 0;
  for (int k = 0; k < n->n_reduce; k++) {
    fl_nest_reduction *x = &n->reduce[k];
    const fl_leaf *leaf = &m->t->leaves[x->leaf];
    fl_dtype type = fl_program_type(m->p, m->p->out[leaf->source]);
    x->phase = n->phase[x->leaf];
    x->reduction = leaf->reduction;
    x->type = (uint8_t)type;
    x->to = m->p->in_type[x->leaf];
    x->typed = is_typed(m, k);
    x->direct = x->typed && x->to == x->type && m->whole;
    x->first = FL_CPU(nest_first)(x->reduction, type);
    n->all_direct = n->all_direct && x->direct;
    x->acc = n->n_acc;
    n->n_acc += fl_nest_moments(x->reduction) ? FL_NEST_MOMENTS : 1;
  }
  n->reduce[n->n_reduce].acc = n->n_acc;
}

static void plan_blocks(maker *m, int64_t most) {
  fl_nest_plan *n = m->n;
  m->cached = 0;
  memset(m->made, 0, sizeof m->made);
  memset(m->kept, -1, sizeof m->kept);
  cut_blocks(m, most);
  find_values(m);
  if (n->phases > FL_NEST_PHASES) {
    m->too_long = true;
    return;
  }
  list_steps(m);
  if (m->too_long)
    return;
  find_reductions(m);
  FL_CPU(nest_order)(m);
  FL_CPU(nest_bind)(m);
  n->room = ((size_t)(n->bp * n->bq) * n->wide + 63) / 64 * 64;
  n->row_room = ((size_t)n->width * 8 + 63) / 64 * 64;
  n->arena = (size_t)(n->slots + 1) * n->room + n->room +
             (size_t)(n->rows + n->n_acc + n->n_reduce) * n->row_room;
  n->cache = m->cached * (size_t)(n->passes * n->bp * n->bq);
}

fl_status FL_CPU(nest_plan)(const fl_launch *l, const fl_tile *t,
                            const uint64_t *over, fl_code *code,
                            fl_nest_plan *n) {
  maker m = {.l = l, .t = t, .p = t->body, .n = n, .code = code};
  m.first = m.p->n_in + m.p->n_const;
  m.values = m.first + m.p->n_instr;
  n->across = false;
  n->cycles = 0;
  memcpy(n->over, over, (size_t)t->n_stores * sizeof *over);
  for (int k = 0; k < m.p->n_in; k++)
    m.leaf[k] = t->leaves[k].at;
  for (int k = 0; k < t->n_stores; k++)
    m.store[k] = t->stores[k].at;
  find_constants(&m);
  merge_dims(&m);
  choose_axes(&m);
  int64_t most = FL_NEST_BLOCK, all = 1;
  for (int d = 0; d < m.n_dims; d++)
    all *= m.shape[d];
  while (most > SMALL && most * PARTS > all) /* work for several threads */
    most /= 2;
  for (; most >= 16; most /= 2) {
    plan_blocks(&m, most);
    if (m.too_long || n->arena <= FL_NEST_ARENA)
      break;
  }
  if (m.too_long || most < 16)
    return fli_fail(FL_ESIZE, "%s: the kernel keeps too many values at once",
                    l->op);
  FL_CPU(nest_code)(&m);
  return FL_OK;
}
