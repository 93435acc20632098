/* Parts of a tile: where its masks change along a dim of the rows, as at the
 * seams of a `cat`, the nest is cut, and each part is a tile without them. */
#include "tile_plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct cuts {
  int n[FL_TILE_DIMS]; /* pieces along each dim */
  int64_t at[FL_TILE_DIMS][FL_NEST_PARTS + 1];
  int parts;
} cuts;

/* --- where to cut --- */

/* Comparison x of a coordinate with a constant: the result is `*below` for
 * coordinates less than *bound. */
static bool compares(const fl_program *p, const fl_tile *t, const fl_instr *x,
                     int64_t *bound, bool *below) {
  const uint16_t *of = x->in;
  int k = x->n_in == 2 ? of[1] - p->n_in : -1;
  if (x->type != FL_I64 || x->in[0] >= p->n_in || k < 0 || k >= p->n_const ||
      t->leaves[x->in[0]].kind != FL_LEAF_COORD)
    return false;
  bool next = x->row == FL_ROW_le || x->row == FL_ROW_gt;
  *bound = p->constants[k].i + next;
  *below = x->row == FL_ROW_lt || x->row == FL_ROW_le;
  return *below || next || x->row == FL_ROW_ge;
}

/* Where along which dim a form becomes at least `bound`; -1: that is no place
 * along one dim of the rows. */
static int find_cut(const fl_tile *t, const fl_form *f, int64_t bound,
                    int64_t *at) {
  int dim = -1;
  for (int d = 0; d < t->n_dims; d++) {
    if (f->coef[d] == 0 || t->shape[d] == 1)
      continue;
    if (dim >= 0 || f->coef[d] < 0)
      return -1;
    dim = d;
  }
  if (dim < 0 || dim >= t->n_dims - t->n_inner || bound <= f->offset)
    return -1;
  *at = fl_ceil_div(bound - f->offset, f->coef[dim]);
  return *at < t->shape[dim] ? dim : -1;
}

static void add_cut(cuts *c, int dim, int64_t at) {
  int n = c->n[dim], i = 0;
  int64_t *list = c->at[dim];
  while (list[i] < at)
    i++;
  if (list[i] == at || c->parts / n * (n + 1) > FL_NEST_PARTS)
    return;
  memmove(list + i + 1, list + i, (size_t)(n + 1 - i) * sizeof *list);
  list[i] = at;
  c->n[dim]++;
  c->parts = c->parts / n * (n + 1);
}

static void find_cuts(const fl_tile *t, cuts *c) {
  const fl_program *p = t->body;
  c->parts = 1;
  for (int d = 0; d < t->n_dims; d++) {
    c->n[d] = 1;
    c->at[d][0] = 0;
    c->at[d][1] = t->shape[d];
  }
  for (int k = 0; k < p->n_instr; k++) {
    const fl_instr *x = &p->instrs[k];
    int64_t bound, at;
    bool below;
    if (!compares(p, t, x, &bound, &below))
      continue;
    int dim = find_cut(t, &t->leaves[x->in[0]].at, bound, &at);
    if (dim >= 0)
      add_cut(c, dim, at);
  }
}

/* --- a part --- */

enum { FALSE_THERE, TRUE_THERE, OPEN };

typedef struct part { /* one block of memory */
  fl_tile tile;
  fl_program body;
  fl_leaf leaves[FL_TILE_LEAVES];
  fl_store stores[FL_TILE_STORES];
  uint16_t out[FL_TILE_OUT];
  fl_instr instrs[];
} part;

static size_t part_bytes(const fl_tile *t) {
  size_t n = sizeof(part) + (size_t)t->body->n_instr * sizeof(fl_instr);
  return (n + 63) / 64 * 64;
}

static void move_form(fl_form *f, const int64_t *from, int n) {
  for (int d = 0; d < n; d++)
    f->offset += f->coef[d] * from[d];
}

static int test_there(const fl_tile *t, const fl_instr *x) {
  int64_t bound;
  bool below;
  if (!compares(t->body, t, x, &bound, &below))
    return OPEN;
  const fl_form *f = &t->leaves[x->in[0]].at;
  int64_t low = f->offset, high = f->offset;
  for (int d = 0; d < t->n_dims; d++)
    *(f->coef[d] < 0 ? &low : &high) += f->coef[d] * (t->shape[d] - 1);
  return high < bound ? below : low >= bound ? !below : OPEN;
}

/* Values that are others there: of conditions that are known, and of `where`
 * by them. */
static void simplify(part *x) {
  fl_program *p = &x->body;
  int first = p->n_in + p->n_const;
  uint8_t known[FL_PROGRAM_VALUES];
  uint16_t is[FL_PROGRAM_VALUES];
  memset(known, OPEN, sizeof known);
  for (int v = 0; v < FL_PROGRAM_VALUES; v++)
    is[v] = (uint16_t)v;
  for (int k = 0; k < p->n_instr; k++) {
    fl_instr *i = &x->instrs[k];
    int v = first + k;
    for (int j = 0; j < i->n_in; j++)
      i->in[j] = is[i->in[j]];
    uint8_t a = known[i->in[0]], b = known[i->in[i->n_in > 1]];
    if (i->row == FL_ROW_where && a != OPEN)
      is[v] = i->in[a == TRUE_THERE ? 1 : 2];
    else if (i->row == FL_ROW_logical_and && i->type == FL_BOOL) {
      is[v] = a == TRUE_THERE   ? i->in[i->n_in > 1]
              : b == TRUE_THERE ? i->in[0]
                                : is[v];
      known[v] = a == FALSE_THERE || b == FALSE_THERE ? FALSE_THERE : OPEN;
    } else
      known[v] = (uint8_t)test_there(&x->tile, i);
    if (is[v] != v)
      known[v] = known[is[v]];
  }
  for (int k = 0; k < p->n_in; k++) {
    int mask = x->leaves[k].mask;
    if (mask >= 0 && known[is[x->out[mask]]] == TRUE_THERE)
      x->leaves[k].mask = -1;
  }
  for (int k = 0; k < p->n_out; k++)
    x->out[k] = is[x->out[k]];
}

/* Part number `which` of t. */
static void make_part(const fl_tile *t, const cuts *c, int which, part *x) {
  const fl_program *p = t->body;
  int64_t from[FL_TILE_DIMS];
  memcpy(&x->tile, t, sizeof *t);
  x->body = *p;
  memcpy(x->leaves, t->leaves, (size_t)p->n_in * sizeof *x->leaves);
  memcpy(x->stores, t->stores, (size_t)t->n_stores * sizeof *x->stores);
  memcpy(x->out, p->out, (size_t)p->n_out * sizeof *x->out);
  memcpy(x->instrs, p->instrs, (size_t)p->n_instr * sizeof *x->instrs);
  x->body.instrs = x->instrs;
  x->body.out = x->out;
  x->tile.body = &x->body;
  x->tile.leaves = x->leaves;
  x->tile.stores = x->stores;
  for (int d = 0; d < t->n_dims; d++) {
    int at = which % c->n[d];
    which /= c->n[d];
    from[d] = c->at[d][at];
    x->tile.shape[d] = c->at[d][at + 1] - from[d];
  }
  for (int k = 0; k < p->n_in; k++)
    move_form(&x->leaves[k].at, from, t->n_dims);
  for (int k = 0; k < t->n_stores; k++)
    move_form(&x->stores[k].at, from, t->n_dims);
  simplify(x);
}

/* --- all of them --- */

static size_t plan_bytes(const fl_nest_plan *n) {
  size_t bytes =
      offsetof(fl_nest_plan, steps) + (size_t)n->n_steps * sizeof *n->steps;
  return (bytes + 63) / 64 * 64;
}

typedef struct making {
  const fl_launch *l;
  const fl_tile *t;
  const uint64_t *over;
  fl_code code;
  cuts c;
  fl_nest_plan fresh;
} making;

/* Puts part k and its plan behind what the block has; grows it. */
static fl_status add_part(making *m, int k, fl_nest_parts **block,
                          size_t *bytes) {
  size_t own = m->c.parts > 1 ? part_bytes(m->t) : 0;
  part *x = own ? malloc(own) : NULL;
  if (own && !x)
    return fli_fail(FL_ENOMEM, "%s: no memory for a plan", m->l->op);
  if (own)
    make_part(m->t, &m->c, k, x);
  fl_status s = FL_CPU(nest_plan)(m->l, own ? &x->tile : m->t, m->over,
                                  m->code.at ? &m->code : NULL, &m->fresh);
  free(x);
  if (s)
    return s;
  size_t all = *bytes + own + plan_bytes(&m->fresh);
  fl_nest_parts *more = realloc(*block, all);
  if (!more)
    return fli_fail(FL_ENOMEM, "%s: no memory for a plan", m->l->op);
  *block = more;
  more->tile[k] = *bytes;
  more->plan[k] = *bytes + own;
  memcpy((char *)more + more->plan[k], &m->fresh,
         offsetof(fl_nest_plan, steps) +
             (size_t)m->fresh.n_steps * sizeof *m->fresh.steps);
  more->n = k + 1;
  *bytes = all;
  return FL_OK;
}

static void close_parts(fl_tile_plan *plan) {
  fl_nest_parts *parts = (fl_nest_parts *)(void *)plan;
  FL_CPU(code_close)(&parts->code);
  free(parts);
}

/* All parts, one after the other; without code if the system forbids it. */
static fl_status add_parts(making *m, fl_nest_parts **parts) {
  size_t bytes = (sizeof(fl_nest_parts) + 63) / 64 * 64;
  fl_status s = FL_OK;
  for (int k = 0; s == FL_OK && k < m->c.parts; k++)
    s = add_part(m, k, parts, &bytes);
  if (s || !m->code.at)
    return s;
  bool any = m->code.n > 0;
  if (FL_CPU(code_seal)(&m->code) || !any)
    return FL_OK;
  return add_parts(m, parts);
}

static fl_status make_parts(const fl_launch *l, const uint64_t *over,
                            fl_nest_parts **parts) {
  const fl_tile *t = l->tile;
  making *m = malloc(sizeof *m);
  *parts = calloc(1, (sizeof(fl_nest_parts) + 63) / 64 * 64);
  if (!m || !*parts) {
    free(m);
    free(*parts);
    return fli_fail(FL_ENOMEM, "%s: no memory for a plan", l->op);
  }
  m->l = l;
  m->t = t;
  m->over = over;
  m->code = FL_CPU(code_open)();
  find_cuts(t, &m->c);
  memcpy((*parts)->over, over, (size_t)t->n_stores * sizeof *over);
  fl_status s = add_parts(m, parts);
  /* parts point into the block, which does not move any more */
  for (int k = 0; s == FL_OK && m->c.parts > 1 && k < m->c.parts; k++)
    make_part(t, &m->c, k,
              (part *)(void *)((char *)*parts + (*parts)->tile[k]));
  (*parts)->base.close = close_parts;
  (*parts)->code = m->code;
  (*parts)->whole = m->c.parts == 1;
  free(m);
  if (s) {
    close_parts(&(*parts)->base);
    *parts = NULL;
  }
  return s;
}

/* --- the tile's own --- */

/* Which leaves lie where a store writes: in the same memory, by equal forms. */
static void find_over(const fl_launch *l, uint64_t *over) {
  const fl_tile *t = l->tile;
  for (int k = 0; k < t->n_stores; k++) {
    const fl_view *to = &l->out[t->stores[k].operand];
    over[k] = 0;
    for (int x = 0; x < t->body->n_in; x++)
      if (t->leaves[x].kind == FL_LEAF_LOAD &&
          l->in[t->leaves[x].operand].data == to->data)
        over[k] |= (uint64_t)1 << x;
  }
}

static bool parts_fit(const fl_nest_parts *x, const fl_tile *t,
                      const uint64_t *over) {
  return x && memcmp(x->over, over, (size_t)t->n_stores * sizeof *over) == 0;
}

fl_status FL_CPU(nest_find_parts)(const fl_launch *l, fl_nest_parts **parts,
                                  bool *own) {
  const fl_tile *t = l->tile;
  uint64_t over[FL_TILE_STORES];
  void *none = NULL;
  find_over(l, over);
  *own = false;
  *parts = __atomic_load_n(&t->plan[FL_TILE_HOST], __ATOMIC_ACQUIRE);
  if (parts_fit(*parts, t, over))
    return FL_OK;
  fl_status s = make_parts(l, over, parts);
  *own = s == FL_OK && !__atomic_compare_exchange_n(
                           &t->plan[FL_TILE_HOST], &none, *parts, false,
                           __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  return s;
}
