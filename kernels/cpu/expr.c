/* Expressions: the tile machine, and the kernel "expr" for programs without a
 * reduction. Loops come from the elementwise rows; here are only those over
 * booleans, which rows compute as integers. */
#include "machine.h"

#include "move.h"

#include "../../runtime/math/math.h"

#include <string.h>

#define PIECE 16384 /* elements a thread takes at a time */
#define NEAR                                                                   \
  32768 /* bytes of the buffers together, if tiles stay long enough */

/* --- loops of booleans --- */

#define BOOL_LOOP(name, f)                                                     \
  static void name##_bool(int64_t n, void *out, const void *const *in,         \
                          const int *step, const double *p, int bits) {        \
    typedef uint8_t T;                                                         \
    const T *u = in[0], *v = in[1];                                            \
    const int64_t ku = step[0], kv = step[1];                                  \
    T *r = out;                                                                \
    (void)p, (void)bits;                                                       \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                      \
      const T a = u[i * ku], b = v[i * kv], x = a;                             \
      (void)b, (void)x;                                                        \
      r[i] = (T)(f);                                                           \
    }                                                                          \
  }
#define FL_TEST(name, T, sig, f) BOOL_LOOP(name, f)
#define FL_COMPARE(name, sig, f) BOOL_LOOP(name, f)
#include "../../runtime/ops.def"

#define CHOOSE(A, B)                                                           \
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++) r[i] = c[i] ? A : B
#define WHERE_LOOP(T)                                                          \
  static void where_##T(int64_t n, void *out, const void *const *in,           \
                        const int *step, const double *p, int bits) {          \
    const uint8_t *c = in[0];                                                  \
    const T *a = in[1], *b = in[2], a0 = *a, b0 = *b;                          \
    T *r = out;                                                                \
    (void)p, (void)bits;                                                       \
    if (!step[0])                                                              \
      for (int64_t i = 0; i < n; i++)                                          \
        r[i] = *c ? a[i * step[1]] : b[i * step[2]];                           \
    else if (step[1] && step[2])                                               \
      CHOOSE(a[i], b[i]);                                                      \
    else if (step[1])                                                          \
      CHOOSE(a[i], b0);                                                        \
    else if (step[2])                                                          \
      CHOOSE(a0, b[i]);                                                        \
    else                                                                       \
      CHOOSE(a0, b0);                                                          \
  }
WHERE_LOOP(fl_word1)
WHERE_LOOP(fl_word4)
WHERE_LOOP(fl_word8)

#define ROUND_LOOP(type)                                                       \
  static void round_##type(int64_t n, void *out, const void *const *in,        \
                           const int *step, const double *p, int bits) {       \
    const float *x = in[0];                                                    \
    const int64_t k = step[0];                                                 \
    float *r = out;                                                            \
    (void)p, (void)bits;                                                       \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) r[i] =                 \
        fl_from_##type(fl_to_##type(x[i * k]));                                \
  }                                                                            \
  static const fl_map round_map_##type = {                                     \
      FL_PARAMS_NONE, false, {round_##type}};
ROUND_LOOP(f16)
ROUND_LOOP(bf16)

static const fl_map *const maps[FL_ROWS] = {
    [FL_ROW_round_f16] = &round_map_f16,
    [FL_ROW_round_bf16] = &round_map_bf16,
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  [FL_ROW_##name] = &FL_MAP(name),                                             \
  [FL_ROW_##name##_backward] = &FL_MAP(name##_backward),                       \
  [FL_ROW_##name##_backward2] = &FL_MAP(name##_backward2),
#define FL_TEST(name, T, sig, f)                [FL_ROW_##name] = &FL_MAP(name),
#define FL_BINARY(name, T, sig, cast, saves, f) [FL_ROW_##name] = &FL_MAP(name),
#define FL_COMPARE(name, sig, f)                [FL_ROW_##name] = &FL_MAP(name),
#define FL_TERNARY(name, T, sig, cast, saves, f)                               \
  [FL_ROW_##name] = &FL_MAP(name),
#include "../../runtime/ops.def"
};

static const fl_map_loop bool_loops[FL_ROWS] = {
#define FL_TEST(name, T, sig, f) [FL_ROW_##name] = name##_bool,
#define FL_COMPARE(name, sig, f) [FL_ROW_##name] = name##_bool,
#include "../../runtime/ops.def"
};

fl_map_loop FL_CPU(machine_loop)(const fl_program *p, const fl_instr *x) {
  size_t size = fl_dtype_size((fl_dtype)x->type);
  if (x->row == FL_ROW_convert)
    return NULL;
  if (x->row == FL_ROW_where)
    return size == 1   ? where_fl_word1
           : size == 4 ? where_fl_word4
                       : where_fl_word8;
  if (x->type == FL_BOOL)
    return bool_loops[x->row];
  const fl_map *map = maps[x->row];
  if (x->row >= FL_ROW_mul_add)
    map = (p->separate ? FL_CPU(products_twice) : FL_CPU(products_once)) +
          (x->row - FL_ROW_mul_add);
  return map->loop[x->type == FL_F32 ? 0 : x->type == FL_F64 ? 1 : 2];
}

/* --- the machine --- */

static void run_instr(const fl_machine *m, int k, int64_t n, void *out,
                      const void *const *at, const uint8_t *steps) {
  const fl_instr *x = &m->program->instrs[k];
  const void *in[3];
  uint64_t one[3];
  int step[3] = {0, 0, 0};
  if (!m->loop[k]) {
    FL_CPU(convert)
    (n, (fl_dtype)x->result, out, (fl_dtype)x->type, at[x->in[0]]);
    return;
  }
  for (int i = 0; i < 3; i++) { /* loops may look at inputs they do not use */
    int v = x->in[i < x->n_in ? i : 0];
    in[i] = at[v];
    step[i] = steps[v];
    if (at[v] == out && !step[i]) /* read for each element, and written over */
      in[i] = memcpy(&one[i], at[v], sizeof one[i]);
  }
  m->loop[k](n, out, in, step, x->p, 64);
}

/* What has one element for the whole launch is computed here, once. */
static void find_known(fl_machine *m) {
  const fl_program *p = m->program;
  const fl_tiled *in = m->op + p->n_out;
  const void *at[FL_PROGRAM_VALUES];
  const uint8_t steps[FL_PROGRAM_VALUES] = {0};
  int v = 0;
  for (; v < p->n_in; v++) {
    m->known[v] = in[v].single;
    at[v] = in[v].value;
  }
  for (int k = 0; k < p->n_const; k++, v++) {
    const fl_constant *c = &p->constants[k];
    fl_dtype from = fl_dtype_kind(c->type) == FL_KIND_FLOAT ? FL_F64 : FL_I64;
    m->known[v] = true;
    at[v] = &m->cell[v];
    FL_CPU(convert)(1, c->type, &m->cell[v], from, &c->f);
  }
  for (int k = 0; k < p->n_instr; k++, v++) {
    const fl_instr *x = &p->instrs[k];
    m->known[v] = true;
    at[v] = &m->cell[v];
    for (int i = 0; i < x->n_in; i++)
      m->known[v] &= m->known[x->in[i]];
    if (m->known[v])
      run_instr(m, k, 1, &m->cell[v], at, steps);
  }
}

static void mark_used(fl_machine *m) {
  const fl_program *p = m->program;
  memset(m->used, 0, sizeof m->used);
  for (int k = 0; k < p->n_instr; k++)
    for (int i = 0; i < p->instrs[k].n_in; i++)
      if (p->instrs[k].in[i] < p->n_in)
        m->used[p->instrs[k].in[i]] = true;
  for (int k = 0; k < p->n_out; k++)
    if (p->out[k] < p->n_in)
      m->used[p->out[k]] = true;
}

fl_status FL_CPU(machine_open)(fl_machine *m, const fl_launch *l) {
  const fl_program *p = m->program = l->program;
  int first = p->n_in + p->n_const, buffers = p->n_in + p->buffers + 1;
  size_t wide = 4;
  for (int v = 0; v < first + p->n_instr; v++)
    if (fl_dtype_size(fl_program_type(p, v)) == 8)
      wide = 8;
  int64_t most = FL_MACHINE_ARENA / (buffers * (int64_t)wide) / 16 * 16;
  int64_t best = NEAR / (buffers * (int64_t)wide) / 64 * 64;
  m->tile = best > FL_MACHINE_TILE ? FL_MACHINE_TILE : best < 256 ? 256 : best;
  m->tile = m->tile < most ? m->tile : most;
  if (most == 0)
    return fli_fail(FL_ESIZE,
                    "%s: the expression keeps too many values at once", l->op);
  m->room = (size_t)m->tile * wide;
  m->tiles.op = m->op;
  m->tiles.n = p->n_out + p->n_in;
  fl_tiles_merge(&m->tiles);
  mark_used(m);
  for (int k = 0; k < p->n_instr; k++) {
    m->loop[k] = FL_CPU(machine_loop)(p, &p->instrs[k]);
    m->result_of[k] = -1;
  }
  for (int k = p->n_out - 1; k >= 0; k--)
    if (p->out[k] >= first)
      m->result_of[p->out[k] - first] = (int16_t)k;
  find_known(m);
  return FL_OK;
}

void FL_CPU(machine_seek)(fl_machine_run *r, int64_t begin) {
  r->begin = begin;
  fl_tiles_start(&r->w, &r->m->tiles, begin);
}

void FL_CPU(machine_start)(fl_machine_run *r, const fl_machine *m) {
  const fl_program *p = m->program;
  r->m = m;
  for (int v = p->n_in; v < p->n_in + p->n_const + p->n_instr; v++)
    if (m->known[v]) {
      r->at[v] = &m->cell[v];
      r->step[v] = 0;
    }
}

static void load_inputs(fl_machine_run *r, int64_t n) {
  const fl_machine *m = r->m;
  const fl_program *p = m->program;
  unsigned char *buffer = r->arena;
  for (int k = 0; k < p->n_in; k++, buffer += m->room) {
    int step = 0;
    if (m->used[k])
      r->at[k] =
          fl_tiles_load(&m->tiles, &r->w, r->begin, n, &m->op[p->n_out + k],
                        (fl_dtype)p->in_type[k], buffer, false, &step);
    r->step[k] = (uint8_t)step;
  }
}

static bool varies(const fl_machine_run *r, const fl_instr *x) {
  for (int i = 0; i < x->n_in; i++)
    if (r->step[x->in[i]])
      return true;
  return false;
}

const void *FL_CPU(machine_value)(fl_machine_run *r, int value, int64_t n) {
  const fl_machine *m = r->m;
  const fl_program *p = m->program;
  size_t size = fl_dtype_size(fl_program_type(p, value));
  unsigned char *spread = r->arena + m->room * (size_t)(p->n_in + p->buffers);
  if (r->step[value] || n == 1)
    return r->at[value];
  for (int64_t i = 0; i < n; i++)
    memcpy(spread + (size_t)i * size, r->at[value], size);
  return spread;
}

/* Results that are inputs go first: another one may be written over them. */
static void store_results(fl_machine_run *r, int64_t n, const bool *stored,
                          bool inputs) {
  const fl_machine *m = r->m;
  const fl_program *p = m->program;
  for (int k = 0; k < p->n_out; k++)
    if (!stored[k] && (p->out[k] < p->n_in) == inputs)
      fl_tiles_move(&m->tiles, r->w, n, &m->op[k],
                    (char *)(uintptr_t)FL_CPU(machine_value)(r, p->out[k], n),
                    fl_program_type(p, p->out[k]), true);
}

void FL_CPU(machine_tile)(fl_machine_run *r, int64_t n, bool store) {
  const fl_machine *m = r->m;
  const fl_program *p = m->program;
  bool stored[FL_MAX_OUT] = {false};
  load_inputs(r, n);
  for (int k = 0, v = p->n_in + p->n_const; k < p->n_instr; k++, v++) {
    const fl_instr *x = &p->instrs[k];
    void *out = r->arena + m->room * (size_t)(p->n_in + x->buffer);
    int result = m->result_of[k];
    if (m->known[v])
      continue;
    bool all = varies(r, x);
    if (store && result >= 0 && all && !m->over) {
      void *place = fl_tiles_place(&m->tiles, &r->w, r->begin, n,
                                   &m->op[result], (fl_dtype)x->result);
      stored[result] = place != NULL;
      out = place ? place : out;
    }
    run_instr(m, k, all ? n : 1, out, r->at, r->step);
    r->at[v] = out;
    r->step[v] = all;
  }
  if (store) {
    store_results(r, n, stored, true);
    store_results(r, n, stored, false);
  }
  r->begin += n;
  fl_tiles_next(&r->w, &m->tiles, n);
}

/* --- the kernel --- */

static void piece(void *context, int64_t begin, int64_t end) {
  const fl_machine *m = context;
  fl_machine_run r;
  FL_CPU(machine_start)(&r, m);
  FL_CPU(machine_seek)(&r, begin);
  while (r.begin < end)
    FL_CPU(machine_tile)
  (&r, fl_tiles_take(&r.w, &m->tiles, end - r.begin, m->tile), true);
}

/* Whether a result is written over an input, which later instructions may read.
 */
static bool writes_over(const fl_launch *l) {
  for (int k = 0; k < l->n_out; k++)
    for (int i = 0; i < l->n_in; i++)
      if (l->out[k].data == l->in[i].data)
        return true;
  return false;
}

FL_KERNEL(expr) {
  const fl_program *p = l->program;
  fl_machine m;
  const fl_view *y = &l->out[0];
  int64_t n = fl_view_numel(y);
  if (p->reduce)
    return FL_CPU(expr_reduce)(l);
  if (n == 0)
    return FL_OK;
  m.tiles.ndim = y->ndim;
  memcpy(m.tiles.shape, y->shape, (size_t)y->ndim * sizeof *y->shape);
  for (int k = 0; k < p->n_out; k++) {
    fl_tiled_bind(&m.op[k], &l->out[k], y->ndim, l->out[k].dtype);
    m.op[k].single = false;
  }
  for (int k = 0; k < p->n_in; k++)
    fl_tiled_bind(&m.op[p->n_out + k], &l->in[k], y->ndim,
                  (fl_dtype)p->in_type[k]);
  m.over = writes_over(l);
  fl_status s = FL_CPU(machine_open)(&m, l);
  if (s == FL_OK && n <= PIECE)
    piece(&m, 0, n);
  else if (s == FL_OK)
    fl_cpu_parallel(l, n, PIECE, piece, &m);
  return s;
}
