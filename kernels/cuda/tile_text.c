/* Plans of tiles as CUDA text. A kernel's body is straight code over sizes that
 * the compiler knows: values of a row, then for each pass the loads of some
 * vectors, what is computed of them, and the reductions.
 *   v<n>: value n; x<n>: what leaf n loads, as memory has it; k<n>: values kept
 *   between passes; r<n>: values of the rows of a thread (columns); s<n>: sums
 *   on their way; c<d>: coordinates; m<n>: masks; q<n>: positions */
#include "tile_text.h"
#include "driver/process.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool text_room(tile_text *t, size_t n) {
  if (t->n + n < t->room)
    return true;
  size_t room = 2 * t->room + n + 4096;
  char *more = realloc(t->at, room);
  t->failed = t->failed || !more;
  if (!more)
    return false;
  t->at = more;
  t->room = room;
  return true;
}

void FL_PRINTF(2, 3) flc_put(tile_text *t, const char *format, ...) {
  va_list args;
  if (!text_room(t, 1024))
    return;
  va_start(args, format);
  int n = vsnprintf(t->at + t->n, t->room - t->n, format, args);
  va_end(args);
  t->n += (size_t)n;
}

/* --- names --- */

const char *flc_memory_type(const tile_plan *p, int operand) {
  static const char *const names[] = {
      [FL_F64] = "double",  [FL_F32] = "float",   [FL_F16] = "f16",
      [FL_BF16] = "bf16",   [FL_I64] = "int64_t", [FL_I32] = "int32_t",
      [FL_I16] = "int16_t", [FL_I8] = "int8_t",   [FL_U8] = "uint8_t",
      [FL_BOOL] = "bool8"};
  return names[p->dtype[operand]];
}

#define PREFETCHED (16 << 10) /* bytes of a vector that is asked for early */

/* --- scopes --- */

/* Where values are declared: a row's (stage: the phase that is known), or an
 * element's. `plain`: nothing is known but coordinates. */
typedef struct scope {
  const tile_plan *p;
  tile_text *to;
  const uint8_t *need; /* of an element's; NULL: a row's */
  int stage;
  bool plain, vector; /* vector: there is a j */
  uint32_t known;     /* positions that have been printed */
  uint8_t done[FL_PROGRAM_VALUES];
} scope;

void flc_put_form(tile_text *to, const tile_plan *p, const fl_form *at,
                  const fl_form *given, bool j) {
  const char *end = p->wide ? "LL" : "";
  int dim = flc_tile_vector_dim(p);
  flc_put(to, "(%lld%s", (long long)at->offset, end);
  for (int d = 0; d < p->n_dims; d++)
    if (at->coef[d])
      flc_put(to, j && d == dim ? " + (c%d + j) * %lld%s" : " + c%d * %lld%s",
              d, (long long)at->coef[d], end);
  for (int k = 0; k < p->t->n_positions; k++)
    if (given->coef[p->t->n_dims + k])
      flc_put(to, " + max(q%d[%s], (ix)0) * %lld%s", k,
              p->along[flc_position_value(p, k)] ? "j" : "0",
              (long long)given->coef[p->t->n_dims + k], end);
  flc_put(to, ")");
}

static void put_leaf_form(tile_text *to, const tile_plan *p, int leaf, bool j) {
  flc_put_form(to, p, &p->leaf[leaf], &p->t->leaves[leaf].at, j);
}

static void scope_value(scope *s, int v);

/* Whether a value is only reduced: it may be contracted with the addition. */
static bool only_reduced(const tile_plan *p, int v) {
  const fl_program *b = p->t->body;
  for (int k = 0; k < b->n_instr; k++)
    for (int j = 0; j < b->instrs[k].n_in; j++)
      if (b->instrs[k].in[j] == v && p->live[first_instr(p) + k])
        return false;
  for (int k = 0; k < p->t->n_stores; k++)
    if (store_value(p, k) == v)
      return false;
  return true;
}

/* Takes back what was printed last if it is `end`. */
static void put_back(tile_text *to, const char *end) {
  size_t n = strlen(end);
  if (to->n >= n && memcmp(to->at + to->n - n, end, n) == 0)
    to->n -= n;
}

void flc_put_each(tile_text *to, int v) { /* the j of a vector */
  if (v == 1)
    flc_put(to, "{ const int j = 0;\n");
  else
    flc_put(to, "#pragma unroll\nfor (int j = 0; j < %d; j++) {\n", v);
}

/* Position k of the elements here: of rows once in a kernel, others once in a
 * scope of the text. */
static void scope_position(scope *s, int k) {
  const tile_plan *p = s->p;
  const fl_position *x = &p->t->positions[k];
  int v = flc_position_value(p, k), n = p->along[v] ? p->v : 1;
  uint32_t *known = p->f.inner[v] ? &s->known : &s->to->known;
  scope each = *s;
  if (*known >> k & 1)
    return;
  *known |= 1u << k;
  each.vector = true;
  bool row = !p->columns && !p->f.inner[v] && !s->need && !s->plain;
  if (row)
    scope_value(s, v);
  flc_put(s->to, "ix q%d[%d];\n", k, n);
  flc_put_each(s->to, n);
  if (!row)
    scope_value(&each, v);
  flc_put(s->to,
          "q%d[j] = (ix)tile_position(a.fault, %d, v%d, %lldLL, %d, %s, "
          "%lldLL);\n}\n",
          k, k, v, (long long)x->bound, x->base, x->from_end ? "true" : "false",
          (long long)x->skip);
}

/* Those that a form goes along. */
static void scope_along(scope *s, const fl_form *given) {
  for (int k = 0; k < s->p->t->n_positions; k++)
    if (given->coef[s->p->t->n_dims + k])
      scope_position(s, k);
}

/* Elements of a vector that starts at a multiple of its length share a counter,
 * whose words the compiler computes once if it sees the same call. */
static void scope_bits(scope *s, int v) {
  const tile_plan *p = s->p;
  const fl_leaf *x = leaf_of(p, v);
  int seed = flc_tile_value(p, x->source), offset = flc_tile_value(p, x->mask);
  bool beside = s->vector && flc_tile_beside(p, v);
  scope_value(s, seed);
  scope_value(s, offset);
  flc_put(s->to,
          "const float v%d = (float)fl_dropout_bits((uint64_t)v%d, "
          "(uint64_t)v%d, (uint64_t)",
          v, seed, offset);
  put_leaf_form(s->to, p, v, s->vector && !beside);
  flc_put(s->to, beside ? ", j);\n" : ", 0);\n");
}

static void scope_leaf(scope *s, int v) {
  const tile_plan *p = s->p;
  const fl_leaf *x = leaf_of(p, v);
  const char *type = value_type(p, v);
  bool rows = !p->columns && !s->need && !s->plain; /* no vectors */
  if (x->kind == FL_LEAF_COORD) {
    flc_put(s->to, "const %s v%d = (%s)", type, v, type);
    put_leaf_form(s->to, p, v, s->vector);
    flc_put(s->to, ";\n");
  } else if (x->kind == FL_LEAF_BITS) {
    scope_bits(s, v);
  } else if (x->kind == FL_LEAF_REDUCE) {
    if (p->columns)
      flc_put(s->to, "const %s v%d = r%d[j];\n", type, v, v);
  } else if (rows) {
    scope_along(s, &x->at);
    if (x->mask >= 0)
      scope_value(s, flc_tile_value(p, x->mask));
    flc_put(s->to, "const %s v%d = ", type, v);
    if (x->mask >= 0)
      flc_put(s->to, "!v%d ? (%s)0 : ", flc_tile_value(p, x->mask), type);
    flc_put(s->to, "tile_get<%s>(in%d[", type, x->operand);
    put_leaf_form(s->to, p, v, false);
    flc_put(s->to, "]);\n");
  } else
    flc_put(s->to, "const %s v%d = tile_get<%s>(x%d%s.at[%s]);\n", type, v,
            type, v, p->f.inner[v] ? "[c]" : "",
            p->leaf_way[v] == TILE_SAME ? "0" : "j");
}

/* A test of the coordinate of a vector's first element. */
static void scope_steady(scope *s, int v) {
  const tile_plan *p = s->p;
  const fl_instr *x = &p->t->body->instrs[v - first_instr(p)];
  const uint16_t *of = x->in;
  flc_put(s->to, "const bool v%d = ", v);
  put_leaf_form(s->to, p, of[0], false);
  flc_put(s->to, " %s %lld;\n", x->row == FL_ROW_ge ? ">=" : "<",
          (long long)p->t->body->constants[of[1] - n_in(p)].i);
}

static void scope_value(scope *s, int v) {
  const tile_plan *p = s->p;
  bool inner = p->f.inner[v], leaf = v < n_in(p);
  if (s->done[v] || is_constant(p, v))
    return;
  s->done[v] = 1;
  if (!s->plain && !inner && (s->need || p->f.phase[v] < s->stage)) {
    if (p->columns && leaf)
      scope_leaf(s, v);
    else if (p->columns)
      flc_put(s->to, "const %s v%d = r%d[j];\n", value_type(p, v), v, v);
    return;
  }
  if (!s->plain && inner && !leaf && s->need && s->need[v] == TILE_KEPT) {
    flc_put(s->to, "const %s v%d = k%d[c * %d + j];\n", value_type(p, v), v, v,
            p->v);
    return;
  }
  if (leaf) {
    scope_leaf(s, v);
    return;
  }
  const fl_program *b = p->t->body;
  const fl_instr *x = &b->instrs[v - first_instr(p)];
  if (p->steady[v]) {
    scope_steady(s, v);
    return;
  }
  for (int j = 0; j < x->n_in; j++)
    scope_value(s, x->in[j]);
  size_t n = fl_program_piece(b, v - first_instr(p), 1, NULL, 0);
  if (!text_room(s->to, n + 1))
    return;
  fl_program_piece(b, v - first_instr(p), 1, s->to->at + s->to->n, n + 1);
  s->to->n += n;
  if (only_reduced(p, v)) {
    char end[40];
    snprintf(end, sizeof end, "fl_separate(v%d);\n", v);
    put_back(s->to, end);
  }
}

static void open_scope(scope *s, const tile_plan *p, tile_text *to,
                       const uint8_t *need, int stage) {
  memset(s, 0, sizeof *s);
  s->p = p;
  s->to = to;
  s->need = need;
  s->stage = stage;
  s->vector = p->columns || need;
}

/* --- loads --- */

static int loaded_width(const tile_plan *p, int leaf) {
  return p->leaf_way[leaf] == TILE_SAME ? 1 : p->v;
}

static void put_loaded(tile_text *to, const tile_plan *p, int leaf) {
  flc_put(to, "tile_vec<%s, %d> x%d",
          flc_memory_type(p, leaf_of(p, leaf)->operand), loaded_width(p, leaf),
          leaf);
  if (p->f.inner[leaf])
    flc_put(to, "[%d]", p->chunks);
  flc_put(to, ";\n");
}

/* A mask of coordinates: one, or one for each element. */
static void put_mask(tile_text *to, const tile_plan *p, int leaf) {
  int mask = flc_tile_value(p, leaf_of(p, leaf)->mask);
  bool along = p->along[mask];
  scope s;
  open_scope(&s, p, to, NULL, 0);
  s.plain = s.vector = true;
  flc_put(to, along ? "bool m%d[%d];\n" : "bool m%d;\n", leaf, p->v);
  flc_put_each(to, along ? p->v : 1);
  scope_value(&s, mask);
  flc_put(to, along ? "m%d[j] = v%d;\n}\n" : "m%d = v%d;\n}\n", leaf, mask);
}

/* `s`: where positions are computed. */
static void put_load(tile_text *to, const tile_plan *p, int leaf, scope *s) {
  const fl_leaf *x = leaf_of(p, leaf);
  const char *at = p->f.inner[leaf] ? "[c]" : "";
  bool masked = x->mask >= 0;
  bool along = masked && p->along[flc_tile_value(p, x->mask)];
  scope_along(s, &x->at);
  flc_put(to, "{\n");
  if (masked) {
    put_mask(to, p, leaf);
    if (p->leaf_way[leaf] == TILE_EACH || !along)
      flc_put(to, "tile_zero(x%d%s);\n", leaf, at);
    if (!along)
      flc_put(to, "if (m%d)\n", leaf);
  }
  if (p->leaf_way[leaf] == TILE_EACH) {
    flc_put_each(to, p->v);
    if (along)
      flc_put(to, "if (m%d[j])\n", leaf);
    flc_put(to, "x%d%s.at[j] = in%d[", leaf, at, x->operand);
    put_leaf_form(to, p, leaf, true);
    flc_put(to, "];\n}\n}\n");
    return;
  }
  flc_put(to, "tile_load%s(x%d%s, in%d + ", along ? "_masked" : "", leaf, at,
          x->operand);
  put_leaf_form(to, p, leaf, false);
  if (along)
    flc_put(to, ", m%d", leaf);
  flc_put(to, ");\n}\n");
}

/* --- stores --- */

/* Whether there is a place to add to. */
static void put_sum(tile_text *to, const tile_plan *p, int k, bool j) {
  const char *sign = "if (";
  for (int i = 0; i < p->t->n_positions; i++)
    if (flc_store_along(p, k, i)) {
      bool along = j && p->along[flc_position_value(p, i)];
      flc_put(to, "%sq%d[%s] >= 0", sign, i, along ? "j" : "0");
      sign = " && ";
    }
  flc_put(to, *sign == ' ' ? ")\n" : "");
}

static void put_store_begin(tile_text *to, const tile_plan *p, int k) {
  if (p->store_way[k] == TILE_BESIDE)
    flc_put(to, "tile_vec<%s, %d> y%d;\n",
            flc_memory_type(p, p->t->n_in + p->t->stores[k].operand), p->v, k);
}

/* Element j. */
static void put_store_value(tile_text *to, const tile_plan *p, int k, bool j) {
  int operand = p->t->stores[k].operand;
  const char *type = flc_memory_type(p, p->t->n_in + operand);
  if (fl_store_sums(&p->t->stores[k])) {
    flc_columns_add(to, p, k, j || p->t->stores[k].add == FL_STORE_SUM);
    return;
  }
  if (j && p->store_way[k] == TILE_BESIDE) {
    flc_put(to, "y%d.at[j] = tile_put<%s>(v%d);\n", k, type, store_value(p, k));
    return;
  }
  put_sum(to, p, k, j);
  flc_put(to, "tile_%s(out%d + ", p->t->stores[k].add ? "add" : "store",
          operand);
  flc_put_form(to, p, &p->store[k], &p->t->stores[k].at, j);
  flc_put(to, ", tile_put<%s>(v%d));\n", type, store_value(p, k));
}

static void put_store_end(tile_text *to, const tile_plan *p, int k) {
  if (p->store_way[k] != TILE_BESIDE)
    return;
  put_sum(to, p, k, false);
  flc_put(to, "tile_%s(out%d + ", p->t->stores[k].add ? "add" : "save",
          p->t->stores[k].operand);
  flc_put_form(to, p, &p->store[k], &p->t->stores[k].at, false);
  flc_put(to, ", y%d);\n", k);
}

static bool has_row_stores(const tile_plan *p) {
  for (int k = 0; k < p->t->n_stores; k++)
    if (!flc_store_inner(p, k))
      return true;
  return false;
}

/* Stores once a row, after all threads have loaded what lies there. */
static void put_row_stores(tile_text *to, const tile_plan *p) {
  scope s;
  bool map = p->columns && p->lanes == 1;
  if (!has_row_stores(p))
    return;
  if (p->lanes > 32 || (p->columns && !map))
    flc_put(to, "__syncthreads();\n");
  else if (!map)
    flc_put(to, "__syncwarp();\n");
  flc_put(to, "if (%s%s%s) {\n", rows_left(p) ? "on" : "true",
          p->lanes > 1 ? " && lane == 0" : "",
          p->segments > 1 && p->writes_inner ? " && blockIdx.y == 0" : "");
  for (int k = 0; k < p->t->n_stores; k++)
    if (!flc_store_inner(p, k) && p->columns)
      put_store_begin(to, p, k);
  open_scope(&s, p, to, NULL, p->f.phases);
  for (int k = 0; k < p->t->n_stores; k++)
    if (!flc_store_inner(p, k))
      scope_along(&s, &p->t->stores[k].at);
  if (p->columns)
    flc_put_each(to, p->v);
  for (int k = 0; k < p->t->n_stores; k++)
    if (!flc_store_inner(p, k)) {
      scope_value(&s, store_value(p, k));
      put_store_value(to, p, k, p->columns);
    }
  flc_put(to, p->columns ? "}\n" : "");
  for (int k = 0; k < p->t->n_stores; k++)
    if (!flc_store_inner(p, k) && p->columns)
      put_store_end(to, p, k);
  flc_put(to, "}\n");
}

/* --- values of rows --- */

/* Of a phase. In columns they are arrays, for all rows of a thread. */
static void put_rows(tile_text *to, const tile_plan *p, int stage) {
  scope s;
  open_scope(&s, p, to, NULL, stage);
#define EACH_ROW_VALUE(v, from)                                                \
  for (int v = from; v < p->n_values; v++)                                     \
    if (p->live[v] && !p->f.inner[v] && p->f.phase[v] == stage &&              \
        !is_constant(p, v))
  bool any = false;
  for (int k = 0; k < p->t->n_positions; k++) {
    int v = flc_position_value(p, k);
    if (!p->f.inner[v] && p->f.phase[v] == stage)
      scope_position(&s, k);
  }
  EACH_ROW_VALUE(v, p->columns ? first_instr(p) : 0) {
    any = true;
    if (p->columns)
      flc_put(to, "%s r%d[%d];\n", value_type(p, v), v, p->v);
  }
  if (!any)
    return;
  if (p->columns)
    flc_put_each(to, p->v);
  EACH_ROW_VALUE(v, p->columns ? first_instr(p) : 0) {
    scope_value(&s, v);
    if (p->columns)
      flc_put(to, "r%d[j] = v%d;\n", v, v);
  }
  flc_put(to, p->columns ? "}\n" : "");
}

/* --- passes --- */

void flc_put_coordinates(tile_text *to, const tile_plan *p, const char *of,
                         int begin, int end) {
  if (begin == end)
    return;
  flc_put(to, "ix c%d = %s;\n", begin, of);
  for (int d = end - 1; d > begin; d--)
    flc_put(to, "const ix c%d = (ux)c%d %% %lldu; c%d = (ux)c%d / %lldu;\n", d,
            begin, (long long)p->size[d], begin, begin, (long long)p->size[d]);
}

/* Opens the loop over chunks: r is the first element of chunk c. */
static void put_chunks(tile_text *to, const tile_plan *p, int64_t step) {
  bool all = p->reduced % (p->lanes * step) == 0 &&
             (p->kept || p->segment % (p->lanes * step * p->chunks) == 0) &&
             (p->kept || p->reduced % (p->lanes * step * p->chunks) == 0) &&
             (!p->kept || p->segments == 1 || p->reduced % p->segment == 0);
  flc_put(to, "#pragma unroll\nfor (int c = 0; c < %d; c++) {\n", p->chunks);
  if (p->lanes > 1)
    flc_put(to, "const ix r = r0 + (c * %d + lane) * %lld;\n", p->lanes,
            (long long)step);
  else
    flc_put(to, "const ix r = r0 + c * %lld;\n", (long long)step);
  flc_put(to, all ? "{\n" : "if (r < end) {\n");
  flc_put_coordinates(to, p, "r", p->n_outer, p->n_dims);
}

static void put_element(tile_text *to, tile_plan *p, int pass,
                        const uint8_t *need, const uint8_t *keeps) {
  scope s;
  bool last = pass == p->f.phases - 1;
  open_scope(&s, p, to, need, pass);
  flc_sums_hold(to, p, pass + 1);
  flc_put_each(to, p->v);
  EACH_REDUCTION(k, pass + 1) {
    int v = flc_tile_value(p, leaf_of(p, k)->source);
    scope_value(&s, v);
    flc_sums_add(to, p, k, v);
  }
  for (int k = 0; k < p->t->n_stores && last; k++)
    if (flc_store_inner(p, k)) {
      scope_value(&s, store_value(p, k));
      if (p->store_way[k] == TILE_BESIDE)
        put_store_value(to, p, k, true);
    }
  /* others are stored when all is known: they may be where it was loaded */
  for (int k = 0; k < p->t->n_stores && last; k++)
    if (flc_store_inner(p, k) && p->store_way[k] != TILE_BESIDE) {
      if (rows_left(p) && !fl_store_sums(&p->t->stores[k]))
        flc_put(to, "if (on)\n");
      put_store_value(to, p, k, true);
    }
  for (int v = first_instr(p); v < p->n_values && p->kept; v++)
    if (keeps[v] && need[v] == TILE_MADE && s.done[v])
      flc_put(to, "k%d[c * %d + j] = v%d;\n", v, p->v, v);
  flc_put(to, "}\n");
  flc_sums_take(to, p, pass + 1);
}

static bool pass_loads(const tile_plan *p, const uint8_t *need) {
  bool any = false;
  for (int k = 0; k < n_in(p); k++)
    any = any || (need[k] == TILE_MADE && is_load(p, k));
  return any;
}

static void put_pass_body(tile_text *to, tile_plan *p, int pass,
                          const uint8_t *need, const uint8_t *keeps) {
  int64_t step = p->columns ? 1 : p->v;
  bool last = pass == p->f.phases - 1, beside = false;
  if (pass_loads(p, need)) {
    scope loads;
    open_scope(&loads, p, to, need, pass);
    put_chunks(to, p, step);
    for (int k = 0; k < n_in(p); k++)
      if (need[k] == TILE_MADE && is_load(p, k))
        put_load(to, p, k, &loads);
    flc_put(to, "}\n}\n");
  }
  put_chunks(to, p, step);
  scope places;
  open_scope(&places, p, to, need, pass);
  for (int k = 0; k < p->t->n_stores && last; k++)
    if (flc_store_inner(p, k)) {
      scope_along(&places, &p->t->stores[k].at);
      put_store_begin(to, p, k);
      beside |= p->store_way[k] == TILE_BESIDE;
    }
  put_element(to, p, pass, need, keeps);
  if (beside)
    flc_put(to, rows_left(p) ? "if (on) {\n" : "{\n");
  for (int k = 0; k < p->t->n_stores && last; k++)
    if (flc_store_inner(p, k))
      put_store_end(to, p, k);
  flc_put(to, beside ? "}\n}\n}\n" : "}\n}\n");
}

/* All elements of a thread's rows. */
static void put_pass(tile_text *to, tile_plan *p, int pass,
                     const uint8_t *keeps) {
  uint8_t need[FL_PROGRAM_VALUES];
  int64_t step = p->lanes * (p->columns ? 1 : p->v);
  flc_tile_needs(p, pass, need);
  flc_sums_begin(to, p, pass + 1);
  for (int k = 0; k < n_in(p) && p->kept; k++)
    if (need[k] == TILE_MADE && is_load(p, k))
      put_loaded(to, p, k);
  for (int v = first_instr(p); v < p->n_values && p->kept; v++)
    if (keeps[v] == pass + 1)
      flc_put(to, "%s k%d[%d];\n", value_type(p, v), v, p->chunks * p->v);
  if (p->reduced == 0)
    return;
  flc_sums_turns(to, p, pass + 1);
  if (p->kept && p->segments > 1)
    flc_put(
        to,
        "{\nconst ix r0 = blockIdx.y * (ix)%lld, end = r0 + %lld < %lld ? r0 "
        "+ %lld : %lld;\n",
        (long long)p->segment, (long long)p->segment, (long long)p->reduced,
        (long long)p->segment, (long long)p->reduced);
  else if (p->kept)
    flc_put(to, "{\nconst ix r0 = 0, end = %lld;\n", (long long)p->reduced);
  else if (p->segments == 1)
    flc_put(to, "for (ix r0 = 0, end = %lld; r0 < end; r0 += %lld) {\n",
            (long long)p->reduced, (long long)step * p->chunks);
  else
    flc_put(to,
            "for (ix r0 = blockIdx.y * (ix)%lld, end = r0 + %lld < %lld ? r0 + "
            "%lld : %lld; r0 < end; r0 += %lld) {\n",
            (long long)p->segment, (long long)p->segment, (long long)p->reduced,
            (long long)p->segment, (long long)p->reduced,
            (long long)step * p->chunks);
  for (int k = 0; k < n_in(p) && !p->kept; k++)
    if (need[k] == TILE_MADE && is_load(p, k))
      put_loaded(to, p, k);
  put_pass_body(to, p, pass, need, keeps);
  flc_sums_turn(to, p, pass + 1);
  flc_put(to, "}\n");
}

/* --- a kernel --- */

static void put_constants(tile_text *to, const tile_plan *p) {
  for (int k = 0; k < p->t->body->n_const; k++) {
    const fl_constant *c = &p->t->body->constants[k];
    int v = n_in(p) + k;
    if (!p->live[v])
      continue;
    flc_put(to, "const %s v%d = (%s)", value_type(p, v), v, value_type(p, v));
    if (!fl_dtype_is_float(c->type))
      flc_put(to, c->i == INT64_MIN ? "INT64_MIN;\n" : "%lldLL;\n",
              (long long)c->i);
    else if (isnan(c->f))
      flc_put(to, "NAN;\n");
    else if (isinf(c->f))
      flc_put(to, c->f > 0 ? "INFINITY;\n" : "-INFINITY;\n");
    else
      flc_put(to, "(%.17g);\n", c->f);
  }
}

static void put_operands(tile_text *to, const tile_plan *p) {
  uint64_t used = 0;
  for (int k = 0; k < n_in(p); k++)
    if (is_load(p, k) && p->live[k])
      used |= 1ULL << leaf_of(p, k)->operand;
  for (int k = 0; k < p->t->n_in; k++)
    if (used >> k & 1)
      flc_put(to, "const %s *const in%d = (const %s *)%sa.at[%d];\n",
              flc_memory_type(p, k), k, flc_memory_type(p, k),
              p->numbers >> k & 1 ? "&" : "", k);
  for (int k = 0; k < p->t->n_out; k++)
    flc_put(to, "%s *const out%d = (%s *)a.at[%d];\n",
            flc_memory_type(p, p->t->n_in + k), k,
            flc_memory_type(p, p->t->n_in + k), p->t->n_in + k);
}

/* Bytes of an aligned vector that leaf k loads along one dim from its beginning
 * on, as a norm's weight; 0: it is something else. */
static int64_t vector_bytes(const tile_plan *p, int k) {
  const fl_leaf *x = leaf_of(p, k);
  const fl_form *at = &p->leaf[k];
  int64_t n = 0;
  if (!is_load(p, k) || !p->live[k] || x->mask >= 0 || at->offset ||
      !(p->aligned >> x->operand & 1))
    return 0;
  for (int i = 0; i < p->t->n_positions; i++)
    if (flc_leaf_along(p, k, i))
      return 0;
  for (int d = 0; d < p->n_dims; d++)
    if (at->coef[d]) {
      if (n || at->coef[d] != 1)
        return 0;
      n = p->size[d] * (int64_t)fl_dtype_size(p->dtype[x->operand]);
    }
  return n / 16 * 16;
}

/* Of a few rows: asks for vectors while the kernel in front still runs, since
 * weights lie in no cache. */
static void put_prefetches(tile_text *to, const tile_plan *p) {
  uint64_t asked = 0;
  int thread = 0;
  for (int k = 0; k < n_in(p) && p->rows <= TILE_FEW && !p->sums; k++) {
    int64_t bytes = vector_bytes(p, k);
    if (bytes == 0 || bytes > PREFETCHED || asked >> leaf_of(p, k)->operand & 1)
      continue;
    asked |= 1ULL << leaf_of(p, k)->operand;
    flc_put(
        to,
        "if (threadIdx.x == %d) fl_prefetch((const void *)a.at[%d], %lld);\n",
        thread++, leaf_of(p, k)->operand, (long long)bytes);
  }
}

/* Which row, or rows; threads beyond the last do it again, but store nothing,
 * since others wait for them. */
static void put_place(tile_text *to, const tile_plan *p) {
  int64_t n = p->columns ? p->rows / p->v : p->rows;
  if (p->columns)
    flc_put(to,
            "const int group = threadIdx.x %% %d, lane = threadIdx.x / %d;\n",
            p->groups, p->groups);
  else
    flc_put(to,
            "const int group = threadIdx.x / %d, lane = threadIdx.x %% %d;\n",
            p->lanes, p->lanes);
  if (p->sums) {
    flc_columns_begin(to, p);
    flc_put_coordinates(to, p, "row", 0, p->n_outer);
    return;
  }
  flc_put(to, "const ix wanted = (ix)blockIdx.x * %d + group;\n", p->groups);
  flc_put(to, "const bool on = wanted < %lld;\n", (long long)n);
  if (p->columns && p->lanes == 1 && p->f.phases == 1)
    flc_put(to, "if (!on) return;\nconst ix row = wanted * %d;\n", p->v);
  else
    flc_put(to, "const ix row = (on ? wanted : %lld)%s;\n", (long long)n - 1,
            p->columns ? p->v == 8   ? " * 8"
                         : p->v == 4 ? " * 4"
                         : p->v == 2 ? " * 2"
                                     : ""
                       : "");
  flc_put_coordinates(to, p, "row", 0, p->n_outer);
}

static void put_kernel(tile_text *to, tile_plan *p, int k) {
  uint8_t keeps[FL_PROGRAM_VALUES] = {0}, need[FL_PROGRAM_VALUES];
  bool split = p->kernels > 1;
  int last = split ? k : p->f.phases - 1;
  memset(p->keep, 0, sizeof p->keep);
  for (int pass = 0; pass < p->f.phases && p->kept; pass++)
    flc_tile_needs(p, pass, need);
  for (int pass = p->f.phases - 1; pass >= 0 && p->kept; pass--) {
    flc_tile_needs(p, pass, need); /* keeps: 1 + the pass that makes it */
    for (int v = 0; v < p->n_values; v++)
      if (p->keep[v] && need[v] == TILE_MADE)
        keeps[v] = (uint8_t)(pass + 1);
  }
  put_constants(to, p);
  put_operands(to, p);
  if (p->sums && k > 0) {
    flc_columns_text(to, p);
    return;
  }
  put_place(to, p);
  if (p->columns && p->lanes > 1 && p->f.phases > 1)
    flc_put(to, "__shared__ double shared[%d];\n",
            p->lanes * p->groups * flc_sums_shared(p) / 8);
  scope loads;
  open_scope(&loads, p, to, NULL, 0);
  loads.plain = true;
  for (int v = 0; v < n_in(p) && p->columns; v++)
    if (is_load(p, v) && p->live[v] && !p->f.inner[v]) {
      put_loaded(to, p, v);
      put_load(to, p, v, &loads);
    }
  for (int stage = 0; stage <= last; stage++) {
    if (split && stage > 0)
      flc_sums_again(to, p, stage);
    put_rows(to, p, stage);
    bool ends = stage == p->f.phases - 1;
    if ((split && stage < last) || (ends && !p->writes_inner))
      continue;
    put_pass(to, p, stage, keeps);
    if (!ends)
      flc_sums_end(to, p, stage + 1);
    if (split && !ends)
      flc_sums_away(to, p, stage + 1);
  }
  if (last == p->f.phases - 1)
    put_row_stores(to, p);
  if (p->sums)
    flc_columns_end(to, p);
}

char *flc_tile_text(tile_plan *p, int k, const char *head) {
  tile_text to = {0};
  int threads = p->lanes * p->groups;
  if (p->sums && k > 0)
    flc_columns_blocks(p, &threads);
  flc_put(&to, "%s", head);
  size_t level = to.n + strlen("#define FL_MATH ");
  flc_put(&to, "#define FL_MATH 0\n#include \"kernels/cuda/tile.cuh\"\n");
  flc_put(&to, p->wide ? "typedef int64_t ix; typedef uint64_t ux;\n"
                       : "typedef int ix; typedef unsigned ux;\n");
  flc_put(&to, "struct tile_args { uint64_t at[%d];%s };\n",
          p->t->n_in + p->t->n_out + 1,
          p->t->n_positions ? " tile_fault fault;" : "");
  flc_put(&to,
          "__global__ void __launch_bounds__(%d%s%.0d) tile(const "
          "__grid_constant__ tile_args a) {\nfl_let_next();\n",
          threads, p->resident ? ", " : "", p->resident);
  put_prefetches(&to, p);
  flc_put(&to, "fl_await();\n");
  size_t body = to.n;
  put_kernel(&to, p, k);
  flc_put(&to, "}\n");
  if (to.failed) {
    free(to.at);
    return NULL;
  }
  to.at[level] = (char)('0' + flc_math_of(to.at + body));
  return to.at;
}
