/* Plans of tiles as CUDA text. A kernel's body is straight code over sizes that
 * the compiler knows: values of a row, then for each pass the loads of some
 * vectors, what is computed of them, and the reductions.
 *   v<n>: value n; x<n>: what leaf n loads, as memory has it; k<n>: values kept
 *   between passes; r<n>: values of the rows of a thread (columns); s<n>: sums
 *   on their way; c<d>: coordinates; m<n>: masks */
#include "tile.h"
#include "driver/process.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
  char *at;
  size_t n, room;
  bool failed;
} text;

static bool text_room(text *t, size_t n) {
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

static void FL_PRINTF(2, 3) put(text *t, const char *format, ...) {
  va_list args;
  if (!text_room(t, 1024))
    return;
  va_start(args, format);
  int n = vsnprintf(t->at + t->n, t->room - t->n, format, args);
  va_end(args);
  t->n += (size_t)n;
}

/* --- names --- */

static const char *value_type(const tile_plan *p, int v) {
  fl_dtype d = fl_program_type(p->t->body, v);
  return d == FL_F64    ? "double"
         : d == FL_F32  ? "float"
         : d == FL_BOOL ? "bool"
                        : "int64_t";
}

static const char *memory_type(const tile_plan *p, int operand) {
  static const char *const names[] = {
      [FL_F64] = "double",  [FL_F32] = "float",   [FL_F16] = "f16",
      [FL_BF16] = "bf16",   [FL_I64] = "int64_t", [FL_I32] = "int32_t",
      [FL_I16] = "int16_t", [FL_I8] = "int8_t",   [FL_U8] = "uint8_t",
      [FL_BOOL] = "bool8"};
  return names[p->dtype[operand]];
}

static int n_in(const tile_plan *p) {
  return p->t->body->n_in;
}
static int first_instr(const tile_plan *p) {
  return p->t->body->n_in + p->t->body->n_const;
}
static bool is_constant(const tile_plan *p, int v) {
  return v >= n_in(p) && v < first_instr(p);
}
static const fl_leaf *leaf_of(const tile_plan *p, int v) {
  return &p->t->leaves[v];
}
static bool is_load(const tile_plan *p, int v) {
  return v < n_in(p) && leaf_of(p, v)->kind == FL_LEAF_LOAD;
}
static bool is_reduce(const tile_plan *p, int v) {
  return v < n_in(p) && leaf_of(p, v)->kind == FL_LEAF_REDUCE;
}
static int store_value(const tile_plan *p, int k) {
  return flc_tile_value(p, p->t->stores[k].value);
}

/* --- scopes --- */

/* Where values are declared: a row's (stage: the phase that is known), or an
 * element's. `plain`: nothing is known but coordinates. */
typedef struct scope {
  const tile_plan *p;
  text *to;
  const uint8_t *need; /* of an element's; NULL: a row's */
  int stage;
  bool plain, vector; /* vector: there is a j */
  uint8_t done[FL_PROGRAM_VALUES];
} scope;

static void put_form(text *to, const tile_plan *p, const fl_form *at, bool j) {
  const char *end = p->wide ? "LL" : "";
  int dim = p->columns ? p->n_outer - 1 : p->n_dims - 1;
  put(to, "(%lld%s", (long long)at->offset, end);
  for (int d = 0; d < p->n_dims; d++)
    if (at->coef[d])
      put(to, j && d == dim ? " + (c%d + j) * %lld%s" : " + c%d * %lld%s", d,
          (long long)at->coef[d], end);
  put(to, ")");
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
static void put_back(text *to, const char *end) {
  size_t n = strlen(end);
  if (to->n >= n && memcmp(to->at + to->n - n, end, n) == 0)
    to->n -= n;
}

static void scope_leaf(scope *s, int v) {
  const tile_plan *p = s->p;
  const fl_leaf *x = leaf_of(p, v);
  const char *type = value_type(p, v);
  bool rows = !p->columns && !s->need && !s->plain; /* no vectors */
  if (x->kind == FL_LEAF_COORD) {
    put(s->to, "const %s v%d = (%s)", type, v, type);
    put_form(s->to, p, &p->leaf[v], s->vector);
    put(s->to, ";\n");
  } else if (x->kind == FL_LEAF_REDUCE) {
    if (p->columns)
      put(s->to, "const %s v%d = r%d[j];\n", type, v, v);
  } else if (rows) {
    if (x->mask >= 0)
      scope_value(s, flc_tile_value(p, x->mask));
    put(s->to, "const %s v%d = ", type, v);
    if (x->mask >= 0)
      put(s->to, "!v%d ? (%s)0 : ", flc_tile_value(p, x->mask), type);
    put(s->to, "tile_get<%s>(in%d[", type, x->operand);
    put_form(s->to, p, &p->leaf[v], false);
    put(s->to, "]);\n");
  } else
    put(s->to, "const %s v%d = tile_get<%s>(x%d%s.at[%s]);\n", type, v, type, v,
        p->f.inner[v] ? "[c]" : "", p->leaf_way[v] == TILE_SAME ? "0" : "j");
}

/* A test of the coordinate of a vector's first element. */
static void scope_steady(scope *s, int v) {
  const tile_plan *p = s->p;
  const fl_instr *x = &p->t->body->instrs[v - first_instr(p)];
  const uint16_t *of = x->in;
  put(s->to, "const bool v%d = ", v);
  put_form(s->to, p, &p->leaf[of[0]], false);
  put(s->to, " %s %lld;\n", x->row == FL_ROW_ge ? ">=" : "<",
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
      put(s->to, "const %s v%d = r%d[j];\n", value_type(p, v), v, v);
    return;
  }
  if (!s->plain && inner && !leaf && s->need && s->need[v] == TILE_KEPT) {
    put(s->to, "const %s v%d = k%d[c * %d + j];\n", value_type(p, v), v, v,
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

static void open_scope(scope *s, const tile_plan *p, text *to,
                       const uint8_t *need, int stage) {
  memset(s, 0, sizeof *s);
  s->p = p;
  s->to = to;
  s->need = need;
  s->stage = stage;
  s->vector = p->columns || need;
}

static void put_each(text *to, int v) { /* the j of a vector */
  if (v == 1)
    put(to, "{ const int j = 0;\n");
  else
    put(to, "#pragma unroll\nfor (int j = 0; j < %d; j++) {\n", v);
}

/* --- loads --- */

static int loaded_width(const tile_plan *p, int leaf) {
  return p->leaf_way[leaf] == TILE_SAME ? 1 : p->v;
}

static void put_loaded(text *to, const tile_plan *p, int leaf) {
  put(to, "tile_vec<%s, %d> x%d", memory_type(p, leaf_of(p, leaf)->operand),
      loaded_width(p, leaf), leaf);
  if (p->f.inner[leaf])
    put(to, "[%d]", p->chunks);
  put(to, ";\n");
}

/* A mask of coordinates: one, or one for each element. */
static void put_mask(text *to, const tile_plan *p, int leaf) {
  int mask = flc_tile_value(p, leaf_of(p, leaf)->mask);
  bool along = p->along[mask];
  scope s;
  open_scope(&s, p, to, NULL, 0);
  s.plain = s.vector = true;
  put(to, along ? "bool m%d[%d];\n" : "bool m%d;\n", leaf, p->v);
  put_each(to, along ? p->v : 1);
  scope_value(&s, mask);
  put(to, along ? "m%d[j] = v%d;\n}\n" : "m%d = v%d;\n}\n", leaf, mask);
}

static void put_load(text *to, const tile_plan *p, int leaf) {
  const fl_leaf *x = leaf_of(p, leaf);
  const char *at = p->f.inner[leaf] ? "[c]" : "";
  bool masked = x->mask >= 0;
  bool along = masked && p->along[flc_tile_value(p, x->mask)];
  put(to, "{\n");
  if (masked) {
    put_mask(to, p, leaf);
    if (p->leaf_way[leaf] == TILE_EACH || !along)
      put(to, "tile_zero(x%d%s);\n", leaf, at);
    if (!along)
      put(to, "if (m%d)\n", leaf);
  }
  if (p->leaf_way[leaf] == TILE_EACH) {
    put_each(to, p->v);
    if (along)
      put(to, "if (m%d[j])\n", leaf);
    put(to, "x%d%s.at[j] = in%d[", leaf, at, x->operand);
    put_form(to, p, &p->leaf[leaf], true);
    put(to, "];\n}\n}\n");
    return;
  }
  put(to, "tile_load%s(x%d%s, in%d + ", along ? "_masked" : "", leaf, at,
      x->operand);
  put_form(to, p, &p->leaf[leaf], false);
  if (along)
    put(to, ", m%d", leaf);
  put(to, ");\n}\n");
}

/* --- stores --- */

static void put_store_begin(text *to, const tile_plan *p, int k) {
  if (p->store_way[k] == TILE_BESIDE)
    put(to, "tile_vec<%s, %d> y%d;\n",
        memory_type(p, p->t->n_in + p->t->stores[k].operand), p->v, k);
}

/* Element j. */
static void put_store_value(text *to, const tile_plan *p, int k, bool j) {
  int operand = p->t->stores[k].operand;
  const char *type = memory_type(p, p->t->n_in + operand);
  if (j && p->store_way[k] == TILE_BESIDE) {
    put(to, "y%d.at[j] = tile_put<%s>(v%d);\n", k, type, store_value(p, k));
    return;
  }
  put(to, "tile_store(out%d + ", operand);
  put_form(to, p, &p->store[k], j);
  put(to, ", tile_put<%s>(v%d));\n", type, store_value(p, k));
}

static void put_store_end(text *to, const tile_plan *p, int k) {
  if (p->store_way[k] != TILE_BESIDE)
    return;
  put(to, "tile_save(out%d + ", p->t->stores[k].operand);
  put_form(to, p, &p->store[k], false);
  put(to, ", y%d);\n", k);
}

static bool rows_left(const tile_plan *p) { /* the last block has too few */
  return (p->rows / (p->columns ? p->v : 1)) % p->groups != 0;
}

static bool has_row_stores(const tile_plan *p) {
  for (int k = 0; k < p->t->n_stores; k++)
    if (!p->f.inner[store_value(p, k)])
      return true;
  return false;
}

/* Stores once a row, after all threads have loaded what lies there. */
static void put_row_stores(text *to, const tile_plan *p) {
  scope s;
  bool map = p->columns && p->lanes == 1;
  if (!has_row_stores(p))
    return;
  if (p->lanes > 32 || (p->columns && !map))
    put(to, "__syncthreads();\n");
  else if (!map)
    put(to, "__syncwarp();\n");
  put(to, "if (%s%s%s) {\n", rows_left(p) ? "on" : "true",
      p->lanes > 1 ? " && lane == 0" : "",
      p->kernels > 1 && p->writes_inner ? " && blockIdx.y == 0" : "");
  for (int k = 0; k < p->t->n_stores; k++)
    if (!p->f.inner[store_value(p, k)] && p->columns)
      put_store_begin(to, p, k);
  open_scope(&s, p, to, NULL, p->f.phases);
  if (p->columns)
    put_each(to, p->v);
  for (int k = 0; k < p->t->n_stores; k++)
    if (!p->f.inner[store_value(p, k)]) {
      scope_value(&s, store_value(p, k));
      put_store_value(to, p, k, p->columns);
    }
  put(to, p->columns ? "}\n" : "");
  for (int k = 0; k < p->t->n_stores; k++)
    if (!p->f.inner[store_value(p, k)] && p->columns)
      put_store_end(to, p, k);
  put(to, "}\n");
}

/* --- values of rows --- */

/* Of a phase. In columns they are arrays, for all rows of a thread. */
static void put_rows(text *to, const tile_plan *p, int stage) {
  scope s;
  open_scope(&s, p, to, NULL, stage);
#define EACH_ROW_VALUE(v, from)                                                \
  for (int v = from; v < p->n_values; v++)                                     \
    if (p->live[v] && !p->f.inner[v] && p->f.phase[v] == stage &&              \
        !is_constant(p, v))
  bool any = false;
  EACH_ROW_VALUE(v, p->columns ? first_instr(p) : 0) {
    any = true;
    if (p->columns)
      put(to, "%s r%d[%d];\n", value_type(p, v), v, p->v);
  }
  if (!any)
    return;
  if (p->columns)
    put_each(to, p->v);
  EACH_ROW_VALUE(v, p->columns ? first_instr(p) : 0) {
    scope_value(&s, v);
    if (p->columns)
      put(to, "r%d[j] = v%d;\n", v, v);
  }
  put(to, p->columns ? "}\n" : "");
}

/* --- reductions --- */

#define EACH_REDUCTION(k, phase_)                                              \
  for (int k = 0; k < n_in(p); k++)                                            \
    if (is_reduce(p, k) && p->live[k] && p->f.phase[k] == (phase_))

/* Partial sums of a thread: in columns one for each of its rows. */
static int partials(const tile_plan *p, int phase) {
  int n = 0;
  if (p->columns)
    return p->v;
  EACH_REDUCTION(k, phase)
  n++;
  return n * p->v > 32 ? 1 : p->v;
}

static const char *identity(const tile_plan *p, int k) {
  static const char *const real[] = {"", "0", "1", "-INFINITY", "INFINITY"};
  static const char *const whole[] = {"", "0", "1", "INT64_MIN", "INT64_MAX"};
  fl_dtype d = fl_program_type(p->t->body, k);
  return (fl_dtype_is_float(d) ? real : whole)[leaf_of(p, k)->reduction];
}

static void put_sums_begin(text *to, const tile_plan *p, int phase) {
  int n = partials(p, phase);
  EACH_REDUCTION(k, phase)
  put(to,
      "%s s%d[%d];\n#pragma unroll\nfor (int j = 0; j < %d; j++) s%d[j] = "
      "%s;\n",
      value_type(p, k), k, n, n, k, identity(p, k));
}

/* The sums of all threads of a row, in each of them. */
static void put_sums_end(text *to, const tile_plan *p, int phase) {
  int n = partials(p, phase), warps = p->lanes / 32;
  EACH_REDUCTION(k, phase) {
    int r = leaf_of(p, k)->reduction;
    const char *type = value_type(p, k);
    if (p->columns) {
      put(to,
          "%s r%d[%d];\n#pragma unroll\nfor (int j = 0; j < %d; j++) "
          "r%d[j] = s%d[j];\n",
          type, k, p->v, p->v, k, k);
      if (p->lanes > 1)
        put(to,
            "tile_columns<%d, %d, %d, %d>(r%d, (%s *)shared, lane, "
            "group);\n",
            r, p->lanes, p->groups, p->v, k, type);
      continue;
    }
    put(to, "%s v%d = s%d[0];\n", type, k, k);
    if (n > 1)
      put(to,
          "#pragma unroll\nfor (int j = 1; j < %d; j++) v%d = "
          "tile_join<%d>(v%d, s%d[j]);\n",
          n, k, r, k, k);
    put(to, "v%d = tile_lanes<%d, %d>(v%d);\n", k, r,
        p->lanes > 32 ? 32 : p->lanes, k);
    if (p->lanes > 32)
      put(to,
          "__shared__ %s w%d[%d];\nif ((lane & 31) == 0) w%d[lane >> 5] = "
          "v%d;\n",
          type, k, warps, k, k);
  }
  if (p->columns || p->lanes <= 32)
    return;
  put(to, "__syncthreads();\n");
  EACH_REDUCTION(k, phase)
  put(to, "v%d = tile_warps<%d, %d>(w%d);\n", k, leaf_of(p, k)->reduction,
      warps, k);
}

/* Where the segments' sums of a reduction lie. */
static void put_parts(text *to, const tile_plan *p, int k) {
  int which = 0;
  for (int i = 0; i < k; i++)
    which += is_reduce(p, i);
  put(to, "((%s *)(a.at[%d] + %lldLL))", value_type(p, k),
      p->t->n_in + p->t->n_out, (long long)which * p->segments * p->rows * 8);
}

/* The sums of an earlier kernel's segments, in the same order every time. */
static void put_sums_again(text *to, const tile_plan *p, int phase) {
  put_sums_begin(to, p, phase);
  EACH_REDUCTION(k, phase) {
    int r = leaf_of(p, k)->reduction;
    put(to, "#pragma unroll 4\nfor (int g = lane; g < %d; g += %d)\n",
        p->segments, p->lanes);
    if (p->columns)
      put_each(to, p->v);
    put(to, "s%d[%s] = tile_join<%d>(s%d[%s], ", k, p->columns ? "j" : "0", r,
        k, p->columns ? "j" : "0");
    put_parts(to, p, k);
    put(to, "[(int64_t)g * %lldLL + row%s]);\n", (long long)p->rows,
        p->columns ? " + j" : "");
    put(to, p->columns ? "}\n" : "");
  }
  put_sums_end(to, p, phase);
}

static void put_sums_away(text *to, const tile_plan *p, int phase) {
  put(to, "if (%s%s) {\n", rows_left(p) ? "on" : "true",
      p->lanes > 1 ? " && lane == 0" : "");
  EACH_REDUCTION(k, phase) {
    if (p->columns)
      put_each(to, p->v);
    put_parts(to, p, k);
    put(to, "[(int64_t)blockIdx.y * %lldLL + row%s] = %c%d%s;\n",
        (long long)p->rows, p->columns ? " + j" : "", p->columns ? 'r' : 'v', k,
        p->columns ? "[j]" : "");
    put(to, p->columns ? "}\n" : "");
  }
  put(to, "}\n");
}

/* --- passes --- */

static void put_coordinates(text *to, const tile_plan *p, const char *of,
                            int begin, int end) {
  if (begin == end)
    return;
  put(to, "ix c%d = %s;\n", begin, of);
  for (int d = end - 1; d > begin; d--)
    put(to, "const ix c%d = (ux)c%d %% %lldu; c%d = (ux)c%d / %lldu;\n", d,
        begin, (long long)p->size[d], begin, begin, (long long)p->size[d]);
}

/* Opens the loop over chunks: r is the first element of chunk c. */
static void put_chunks(text *to, const tile_plan *p, int64_t step) {
  bool all = p->reduced % (p->lanes * step) == 0 &&
             (p->kept || p->segment % (p->lanes * step * p->chunks) == 0) &&
             (p->kept || p->reduced % (p->lanes * step * p->chunks) == 0);
  put(to, "#pragma unroll\nfor (int c = 0; c < %d; c++) {\n", p->chunks);
  if (p->lanes > 1)
    put(to, "const ix r = r0 + (c * %d + lane) * %lld;\n", p->lanes,
        (long long)step);
  else
    put(to, "const ix r = r0 + c * %lld;\n", (long long)step);
  put(to, all ? "{\n" : "if (r < end) {\n");
  put_coordinates(to, p, "r", p->n_outer, p->n_dims);
}

static void put_element(text *to, tile_plan *p, int pass, const uint8_t *need,
                        const uint8_t *keeps) {
  scope s;
  bool last = pass == p->f.phases - 1;
  int n = partials(p, pass + 1);
  open_scope(&s, p, to, need, pass);
  put_each(to, p->v);
  EACH_REDUCTION(k, pass + 1) {
    int v = flc_tile_value(p, leaf_of(p, k)->source);
    const char *at = n == 1 ? "0" : "j";
    scope_value(&s, v);
    put(to, "s%d[%s] = tile_join<%d>(s%d[%s], (%s)v%d);\n", k, at,
        leaf_of(p, k)->reduction, k, at, value_type(p, k), v);
  }
  for (int k = 0; k < p->t->n_stores && last; k++)
    if (p->f.inner[store_value(p, k)]) {
      scope_value(&s, store_value(p, k));
      if (p->store_way[k] == TILE_BESIDE)
        put_store_value(to, p, k, true);
    }
  /* others are stored when all is known: they may be where it was loaded */
  for (int k = 0; k < p->t->n_stores && last; k++)
    if (p->f.inner[store_value(p, k)] && p->store_way[k] != TILE_BESIDE) {
      if (rows_left(p))
        put(to, "if (on)\n");
      put_store_value(to, p, k, true);
    }
  for (int v = first_instr(p); v < p->n_values && p->kept; v++)
    if (keeps[v] && need[v] == TILE_MADE && s.done[v])
      put(to, "k%d[c * %d + j] = v%d;\n", v, p->v, v);
  put(to, "}\n");
}

static bool pass_loads(const tile_plan *p, const uint8_t *need) {
  bool any = false;
  for (int k = 0; k < n_in(p); k++)
    any = any || (need[k] == TILE_MADE && is_load(p, k));
  return any;
}

static void put_pass_body(text *to, tile_plan *p, int pass, const uint8_t *need,
                          const uint8_t *keeps) {
  int64_t step = p->columns ? 1 : p->v;
  bool last = pass == p->f.phases - 1, beside = false;
  if (pass_loads(p, need)) {
    put_chunks(to, p, step);
    for (int k = 0; k < n_in(p); k++)
      if (need[k] == TILE_MADE && is_load(p, k))
        put_load(to, p, k);
    put(to, "}\n}\n");
  }
  put_chunks(to, p, step);
  for (int k = 0; k < p->t->n_stores && last; k++)
    if (p->f.inner[store_value(p, k)]) {
      put_store_begin(to, p, k);
      beside |= p->store_way[k] == TILE_BESIDE;
    }
  put_element(to, p, pass, need, keeps);
  if (beside)
    put(to, rows_left(p) ? "if (on) {\n" : "{\n");
  for (int k = 0; k < p->t->n_stores && last; k++)
    if (p->f.inner[store_value(p, k)])
      put_store_end(to, p, k);
  put(to, beside ? "}\n}\n}\n" : "}\n}\n");
}

/* All elements of a thread's rows. */
static void put_pass(text *to, tile_plan *p, int pass, const uint8_t *keeps) {
  uint8_t need[FL_PROGRAM_VALUES];
  int64_t step = p->lanes * (p->columns ? 1 : p->v);
  flc_tile_needs(p, pass, need);
  put_sums_begin(to, p, pass + 1);
  for (int k = 0; k < n_in(p) && p->kept; k++)
    if (need[k] == TILE_MADE && is_load(p, k))
      put_loaded(to, p, k);
  for (int v = first_instr(p); v < p->n_values && p->kept; v++)
    if (keeps[v] == pass + 1)
      put(to, "%s k%d[%d];\n", value_type(p, v), v, p->chunks * p->v);
  if (p->reduced == 0)
    return;
  if (p->kept)
    put(to, "{\nconst ix r0 = 0, end = %lld;\n", (long long)p->reduced);
  else if (p->segments == 1)
    put(to, "for (ix r0 = 0, end = %lld; r0 < end; r0 += %lld) {\n",
        (long long)p->reduced, (long long)step * p->chunks);
  else
    put(to,
        "for (ix r0 = blockIdx.y * (ix)%lld, end = r0 + %lld < %lld ? r0 + "
        "%lld : %lld; r0 < end; r0 += %lld) {\n",
        (long long)p->segment, (long long)p->segment, (long long)p->reduced,
        (long long)p->segment, (long long)p->reduced,
        (long long)step * p->chunks);
  for (int k = 0; k < n_in(p) && !p->kept; k++)
    if (need[k] == TILE_MADE && is_load(p, k))
      put_loaded(to, p, k);
  put_pass_body(to, p, pass, need, keeps);
  put(to, "}\n");
}

/* --- a kernel --- */

static void put_constants(text *to, const tile_plan *p) {
  for (int k = 0; k < p->t->body->n_const; k++) {
    const fl_constant *c = &p->t->body->constants[k];
    int v = n_in(p) + k;
    if (!p->live[v])
      continue;
    put(to, "const %s v%d = (%s)", value_type(p, v), v, value_type(p, v));
    if (!fl_dtype_is_float(c->type))
      put(to, c->i == INT64_MIN ? "INT64_MIN;\n" : "%lldLL;\n",
          (long long)c->i);
    else if (isnan(c->f))
      put(to, "NAN;\n");
    else if (isinf(c->f))
      put(to, c->f > 0 ? "INFINITY;\n" : "-INFINITY;\n");
    else
      put(to, "(%.17g);\n", c->f);
  }
}

static void put_operands(text *to, const tile_plan *p) {
  uint64_t used = 0;
  for (int k = 0; k < n_in(p); k++)
    if (is_load(p, k) && p->live[k])
      used |= 1ULL << leaf_of(p, k)->operand;
  for (int k = 0; k < p->t->n_in; k++)
    if (used >> k & 1)
      put(to, "const %s *const in%d = (const %s *)%sa.at[%d];\n",
          memory_type(p, k), k, memory_type(p, k),
          p->numbers >> k & 1 ? "&" : "", k);
  for (int k = 0; k < p->t->n_out; k++)
    put(to, "%s *const out%d = (%s *)a.at[%d];\n",
        memory_type(p, p->t->n_in + k), k, memory_type(p, p->t->n_in + k),
        p->t->n_in + k);
}

/* Which row, or rows; threads beyond the last do it again, but store nothing,
 * since others wait for them. */
static void put_place(text *to, const tile_plan *p) {
  int64_t n = p->columns ? p->rows / p->v : p->rows;
  if (p->columns)
    put(to, "const int group = threadIdx.x %% %d, lane = threadIdx.x / %d;\n",
        p->groups, p->groups);
  else
    put(to, "const int group = threadIdx.x / %d, lane = threadIdx.x %% %d;\n",
        p->lanes, p->lanes);
  put(to, "const ix wanted = (ix)blockIdx.x * %d + group;\n", p->groups);
  put(to, "const bool on = wanted < %lld;\n", (long long)n);
  if (p->columns && p->lanes == 1 && p->f.phases == 1)
    put(to, "if (!on) return;\nconst ix row = wanted * %d;\n", p->v);
  else
    put(to, "const ix row = (on ? wanted : %lld)%s;\n", (long long)n - 1,
        p->columns ? p->v == 8   ? " * 8"
                     : p->v == 4 ? " * 4"
                     : p->v == 2 ? " * 2"
                                 : ""
                   : "");
  put_coordinates(to, p, "row", 0, p->n_outer);
}

static void put_kernel(text *to, tile_plan *p, int k) {
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
  put_place(to, p);
  if (p->columns && p->lanes > 1 && p->f.phases > 1)
    put(to, "__shared__ double shared[%d];\n", p->lanes * p->groups * p->v);
  for (int v = 0; v < n_in(p) && p->columns; v++)
    if (is_load(p, v) && p->live[v] && !p->f.inner[v]) {
      put_loaded(to, p, v);
      put_load(to, p, v);
    }
  for (int stage = 0; stage <= last; stage++) {
    if (split && stage > 0)
      put_sums_again(to, p, stage);
    put_rows(to, p, stage);
    bool ends = stage == p->f.phases - 1;
    if ((split && stage < last) || (ends && !p->writes_inner))
      continue;
    put_pass(to, p, stage, keeps);
    if (!ends)
      put_sums_end(to, p, stage + 1);
    if (split && !ends)
      put_sums_away(to, p, stage + 1);
  }
  if (last == p->f.phases - 1)
    put_row_stores(to, p);
}

char *flc_tile_text(tile_plan *p, int k, const char *head) {
  text to = {0};
  put(&to, "%s", head);
  size_t level = to.n + strlen("#define FL_MATH ");
  put(&to, "#define FL_MATH 0\n#include \"kernels/cuda/tile.cuh\"\n");
  put(&to, p->wide ? "typedef int64_t ix; typedef uint64_t ux;\n"
                   : "typedef int ix; typedef unsigned ux;\n");
  put(&to, "struct tile_args { uint64_t at[%d]; };\n",
      p->t->n_in + p->t->n_out + 1);
  put(&to,
      "__global__ void __launch_bounds__(%d) tile(const __grid_constant__ "
      "tile_args a) {\n",
      p->lanes * p->groups);
  size_t body = to.n;
  put_kernel(&to, p, k);
  put(&to, "}\n");
  if (to.failed) {
    free(to.at);
    return NULL;
  }
  to.at[level] = (char)('0' + flc_math_of(to.at + body));
  return to.at;
}
