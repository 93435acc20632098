/* The kernel "tile" of every device: random tiles (tile_random.h) against a
 * naive interpreter in double precision.
 *   tile [DEVICE[,DEVICE...] [COUNT [SEED [launch]]]]
 * Devices default to FLARE_SPEC_DEVICES, or cpu and sim:0. `launch`: results
 * are not compared, for a device whose kernels do nothing.
 *
 * How far a result may be from the reference is found by the reference itself:
 * it runs again with every rounding disturbed, and the spread of the results is
 * the measure. */
#include "check.h"
#include "tile_random.h"

#include "../../runtime/call/launch.h"
#include "../../runtime/math/math.h"

#include <math.h>

#define RUNS 4 /* of the reference: the first is not disturbed */

/* --- rows, one element at a time --- */

typedef union cell {
  double f;
  int64_t i;
} cell;

typedef struct row {
  double (*f)(double a, double b, double c, const double *p);
  int64_t (*i)(int64_t a, int64_t b, int64_t c, const double *p);
} row;

#define BODY(T, f)                                                             \
  const T x = a, y = b, p0 = (T)p[0], p1 = (T)p[1];                            \
  const int bits = 64;                                                         \
  enum { near = 0 };                                                           \
  (void)x, (void)y, (void)a, (void)b, (void)c, (void)p0, (void)p1;             \
  (void)bits, (void)near;                                                      \
  return (T)(f);
#define ROW_F(name, f)                                                         \
  static double name##_f(double a, double b, double c, const double *p) {      \
    typedef double T;                                                          \
    BODY(T, f)                                                                 \
  }
#define ROW_I(name, f)                                                         \
  static int64_t name##_i(int64_t a, int64_t b, int64_t c, const double *p) {  \
    typedef int64_t T;                                                         \
    BODY(T, f)                                                                 \
  }
#define ROW_N(name, f) ROW_F(name, f) ROW_I(name, f)
/* dy f', where what is saved is x, or y */
#define SAVED_X(f)    const T x = b, y = (T)(f);
#define SAVED_Y(f)    const T y = b, x = y;
#define SAVED_NONE(f) const T x = 0, y = 0;
#define FL_UNARY(name, T_, sig, cast, saves, f, df, ddf)                       \
  ROW_##T_(name, f) static double name##_back(double a, double b, double c,    \
                                              const double *p) {               \
    typedef double T;                                                          \
    const T p0 = p[0], p1 = p[1];                                              \
    enum { near = 0 };                                                         \
    SAVED_##saves(f)(void) c, (void)b, (void)x, (void)y, (void)p0, (void)p1;   \
    (void)near;                                                                \
    return a * (T)(df);                                                        \
  }
#define FL_TEST(name, T_, sig, f)                 ROW_N(name, f)
#define FL_BINARY(name, T_, sig, cast, saves, f)  ROW_##T_(name, f)
#define FL_COMPARE(name, sig, f)                  ROW_N(name, f)
#define FL_TERNARY(name, T_, sig, cast, saves, f) ROW_##T_(name, f)
#include "../../runtime/ops.def"
ROW_F(round_f16, fl_from_f16(fl_to_f16((float)x)))
ROW_F(round_bf16, fl_from_bf16(fl_to_bf16((float)x)))
ROW_F(mul_add, a *b + c)
ROW_F(mul_sub, a *b - c)
ROW_F(sub_mul, c - a * b)

#define ENTRY_F(name)                                                          \
  { name##_f, NULL }
#define ENTRY_I(name)                                                          \
  { NULL, name##_i }
#define ENTRY_N(name)                                                          \
  { name##_f, name##_i }
static const row rows[FL_ROWS] = {
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  [FL_ROW_##name] = ENTRY_##T(name),                                           \
  [FL_ROW_##name##_backward] = {name##_back, NULL},
#define FL_TEST(name, T, sig, f) [FL_ROW_##name] = ENTRY_N(name),
#define FL_BINARY(name, T, sig, cast, saves, f)                                \
  [FL_ROW_##name] = ENTRY_##T(name),
#define FL_COMPARE(name, sig, f) [FL_ROW_##name] = ENTRY_N(name),
#define FL_TERNARY(name, T, sig, cast, saves, f)                               \
  [FL_ROW_##name] = ENTRY_##T(name),
#include "../../runtime/ops.def"
    [FL_ROW_round_f16] = ENTRY_F(round_f16),
    [FL_ROW_round_bf16] = ENTRY_F(round_bf16),
    [FL_ROW_mul_add] = ENTRY_F(mul_add),
    [FL_ROW_mul_sub] = ENTRY_F(mul_sub),
    [FL_ROW_sub_mul] = ENTRY_F(sub_mul)};

/* --- elements of memory --- */

static fl_dtype type_of(fl_dtype d) {
  return fl_dtype_is_float(d) ? d == FL_F64 ? FL_F64 : FL_F32
         : d == FL_BOOL       ? FL_BOOL
                              : FL_I64;
}

static bool real(fl_dtype d) {
  return fl_dtype_is_float(d);
}

/* As a cell of its register type. */
static cell decode(fl_dtype d, const void *at) {
  switch (d) {
  case FL_F64:
    return (cell){.f = *(const double *)at};
  case FL_F32:
    return (cell){.f = (double)*(const float *)at};
  case FL_F16:
    return (cell){.f = (double)fl_from_f16(*(const uint16_t *)at)};
  case FL_BF16:
    return (cell){.f = (double)fl_from_bf16(*(const uint16_t *)at)};
  case FL_I64:
    return (cell){.i = *(const int64_t *)at};
  case FL_I32:
    return (cell){.i = *(const int32_t *)at};
  default:
    return (cell){.i = *(const uint8_t *)at};
  }
}

static void encode(fl_dtype d, void *at, double f, int64_t i) {
  switch (d) {
  case FL_F64:
    *(double *)at = f;
    return;
  case FL_F32:
    *(float *)at = (float)f;
    return;
  case FL_F16:
    *(uint16_t *)at = fl_to_f16((float)f);
    return;
  case FL_BF16:
    *(uint16_t *)at = fl_to_bf16((float)f);
    return;
  case FL_I64:
    *(int64_t *)at = i;
    return;
  case FL_I32:
    *(int32_t *)at = (int32_t)i;
    return;
  default:
    *(uint8_t *)at = (uint8_t)i;
  }
}

static int64_t saturate(double f) {
  return f != f         ? 0
         : f >= 0x1p63  ? INT64_MAX
         : f <= -0x1p63 ? INT64_MIN
                        : (int64_t)f;
}

static cell convert_cell(cell v, fl_dtype from, fl_dtype to) {
  if (to == FL_BOOL)
    return (cell){.i = real(from) ? v.f != 0 : v.i != 0};
  if (real(to))
    return (cell){.f = real(from) ? v.f : (double)v.i};
  return (cell){.i = real(from) ? saturate(v.f) : v.i};
}

/* --- the reference --- */

typedef struct reference {
  const sample *s;
  const fl_tile *t;
  int64_t n, group; /* elements of the nest, of its inner dims */
  cell *value[FL_PROGRAM_VALUES];
  bool done[FL_PROGRAM_VALUES];
  char *const *in; /* operands' bytes */
  bool disturbed;
  uint64_t noise;
} reference;

static double random_sign(reference *r) { /* from -1 to 1 */
  r->noise = r->noise * 6364136223846793005u + 1442695040888963407u;
  return (double)(int32_t)(r->noise >> 32) * 0x1p-31;
}

/* v with an error as if it were a result of this type, made of parts as large
 * as `size`. */
static double disturb(reference *r, fl_dtype type, double v, double size) {
  if (!r->disturbed || !real(type))
    return v;
  double unit = type == FL_F32 ? 5e-7 : 1e-15;
  v += random_sign(r) * unit * fabs(v);
  v += size > 0 && size < 1e30 ? random_sign(r) * unit * size : 0;
  return type == FL_F32 ? (double)(float)v : v;
}

/* Rows whose formulas lose digits have an error as large as their inputs'. */
static double size_of_parts(const fl_instr *x, cell a, cell b) {
  switch (x->row) {
  case FL_ROW_mul_add:
  case FL_ROW_mul_sub:
  case FL_ROW_sub_mul:
    return fabs(a.f * b.f);
  case FL_ROW_add:
  case FL_ROW_sub:
  case FL_ROW_mul:
  case FL_ROW_neg:
  case FL_ROW_abs:
  case FL_ROW_maximum:
  case FL_ROW_minimum:
    return 0;
  default:
    return x->n_in > 1 ? fabs(a.f) * (1 + fabs(b.f)) : fabs(a.f);
  }
}

static int64_t place_of(const fl_tile *t, const fl_form *at, int64_t element) {
  int64_t where = at->offset;
  for (int i = t->n_dims - 1; i >= 0; i--) {
    where += element % t->shape[i] * at->coef[i];
    element /= t->shape[i];
  }
  return where;
}

/* The mean, or the sum of squared differences from it. */
static double moment_of(reference *r, const cell *v, fl_reduction which,
                        fl_dtype type) {
  double mean = 0, square = 0, size = 0;
  for (int64_t k = 0; k < r->group; k++) {
    mean += v[k].f / (double)r->group;
    size += fabs(v[k].f) / (double)r->group;
  }
  if (which == FL_REDUCE_MEAN)
    return disturb(r, type, mean, size);
  for (int64_t k = 0; k < r->group; k++) {
    double d = disturb(r, type, v[k].f, 0) - mean;
    square += d * d;
  }
  return disturb(r, type, square, 0);
}

static void reduce_cells(reference *r, const fl_leaf *x, int leaf) {
  const fl_program *p = r->t->body;
  int of = p->out[x->source];
  fl_dtype from = fl_program_type(p, of), to = (fl_dtype)p->in_type[leaf];
  for (int64_t e = 0; e < r->n; e += r->group) {
    cell a = r->value[of][e];
    double size = real(from) ? fabs(a.f) : 0;
    for (int64_t k = 1; k < r->group; k++) {
      cell v = r->value[of][e + k];
      if (real(from)) {
        size += fabs(v.f);
        a.f = x->reduction == FL_REDUCE_SUM    ? a.f + v.f
              : x->reduction == FL_REDUCE_PROD ? a.f * v.f
              : x->reduction == FL_REDUCE_MAX
                  ? v.f > a.f || v.f != v.f ? v.f : a.f
              : v.f < a.f || v.f != v.f ? v.f
                                        : a.f;
      } else {
        a.i = x->reduction == FL_REDUCE_SUM
                  ? (int64_t)((uint64_t)a.i + (uint64_t)v.i)
              : x->reduction == FL_REDUCE_PROD
                  ? (int64_t)((uint64_t)a.i * (uint64_t)v.i)
              : x->reduction == FL_REDUCE_MAX ? v.i > a.i ? v.i : a.i
              : v.i < a.i                     ? v.i
                                              : a.i;
      }
    }
    if (x->reduction >= FL_REDUCE_MEAN)
      a.f = moment_of(r, &r->value[of][e], x->reduction, from);
    if (x->reduction == FL_REDUCE_SUM && r->disturbed && real(from))
      a.f = disturb(r, from, a.f, size);
    if (x->reduction == FL_REDUCE_PROD && real(from))
      for (int64_t k = 0; k < r->group; k += 16)
        a.f = disturb(r, from, a.f, 0);
    a = convert_cell(a, from, to);
    for (int64_t k = 0; k < r->group; k++)
      r->value[leaf][e + k] = a;
  }
}

static void leaf_cells(reference *r, int leaf) {
  const fl_leaf *x = &r->t->leaves[leaf];
  const fl_program *p = r->t->body;
  if (x->kind == FL_LEAF_REDUCE) {
    reduce_cells(r, x, leaf);
    return;
  }
  for (int64_t e = 0; e < r->n; e++) {
    cell *to = &r->value[leaf][e];
    int64_t at = place_of(r->t, &x->at, e);
    if (x->kind == FL_LEAF_COORD) {
      to->i = at;
    } else if (x->kind == FL_LEAF_BITS) {
      to->f = fl_dropout_bits((uint64_t)r->value[p->out[x->source]][e].i,
                              (uint64_t)r->value[p->out[x->mask]][e].i,
                              (uint64_t)at, 0);
    } else if (x->mask >= 0 && !r->value[p->out[x->mask]][e].i) {
      to->i = 0; /* 0.0, too */
    } else {
      const memory *m = &r->s->in[x->operand];
      CHECK(at >= 0 && at < m->n, "leaf %d reads %lld of %lld", leaf,
            (long long)at, (long long)m->n);
      *to = decode(m->dtype,
                   r->in[x->operand] + (size_t)at * fl_dtype_size(m->dtype));
      *to = convert_cell(*to, type_of(m->dtype), (fl_dtype)p->in_type[leaf]);
    }
  }
}

static void instr_cells(reference *r, int k) {
  const fl_program *p = r->t->body;
  const fl_instr *x = &p->instrs[k];
  cell *to = r->value[p->n_in + p->n_const + k];
  const cell *a = r->value[x->in[0]], *b = r->value[x->in[x->n_in > 1]],
             *c = r->value[x->in[x->n_in > 2 ? 2 : 0]];
  fl_dtype type = (fl_dtype)x->type, result = (fl_dtype)x->result;
  bool test = real(type) && result == FL_BOOL;
  const row *f = x->row == FL_ROW_convert ? NULL : &rows[x->row];
  for (int64_t e = 0; e < r->n; e++) {
    if (!f)
      to[e] = convert_cell(a[e], type, result);
    else if (x->row == FL_ROW_where)
      to[e] = a[e].i ? b[e] : c[e];
    else if (test)
      to[e].i = f->f(a[e].f, b[e].f, c[e].f, x->p) != 0;
    else if (real(type))
      to[e].f = f->f(a[e].f, b[e].f, c[e].f, x->p);
    else
      to[e].i = f->i(a[e].i, b[e].i, c[e].i, x->p);
    if (real(result) && x->row != FL_ROW_where)
      to[e].f = disturb(r, result, to[e].f,
                        f && real(type) ? size_of_parts(x, a[e], b[e]) : 0);
  }
}

/* Computes a value after those that it is made of. */
static void need_cells(reference *r, int v) {
  const fl_program *p = r->t->body;
  int first = p->n_in + p->n_const;
  if (r->done[v])
    return;
  r->done[v] = true;
  if (v < p->n_in) {
    const fl_leaf *x = &r->t->leaves[v];
    if (x->source >= 0)
      need_cells(r, p->out[x->source]);
    if (x->mask >= 0)
      need_cells(r, p->out[x->mask]);
    leaf_cells(r, v);
  } else if (v < first) {
    const fl_constant *c = &p->constants[v - p->n_in];
    for (int64_t e = 0; e < r->n; e++)
      r->value[v][e] = real(c->type) ? (cell){.f = c->f} : (cell){.i = c->i};
  } else {
    for (int k = 0; k < p->instrs[v - first].n_in; k++)
      need_cells(r, p->instrs[v - first].in[k]);
    instr_cells(r, v - first);
  }
}

static void reference_run(reference *r) {
  const fl_program *p = r->t->body;
  memset(r->done, 0, sizeof r->done);
  for (int v = 0; v < p->n_in + p->n_const + p->n_instr; v++)
    need_cells(r, v);
}

/* --- one tile --- */

typedef struct expected {
  cell v[RUNS];
  bool written;
} expected;

static fl_runtime *rt;
static bool launch_only;

static char *random_bytes(const memory *m, bool wild) {
  size_t size = fl_dtype_size(m->dtype);
  char *bytes = malloc((size_t)m->n * size + 8);
  for (int64_t i = 0; i < m->n; i++) {
    double f = (double)below(1 << 20) / (1 << 18) - 2;
    if (wild && chance(1))
      f = NAN;
    int64_t whole = m->dtype == FL_BOOL ? below(2)
                    : m->dtype == FL_U8 ? below(256)
                                        : below(40) - 8;
    encode(m->dtype, bytes + (size_t)i * size, f, whole);
  }
  return bytes;
}

static double round_to(int dtype, double v) {
  return dtype == FL_BF16 ? (double)fl_from_bf16(fl_to_bf16((float)v)) : v;
}

static void sum_expected(reference *r, int run, const fl_store *x,
                         expected *want) {
  const fl_tile *t = r->t;
  int v = t->body->out[x->value];
  fl_dtype type = fl_program_type(t->body, v);
  int64_t n = r->s->to[x->operand].n;
  double *size = calloc((size_t)n, sizeof *size);
  for (int64_t e = 0; e < r->n; e += x->add == FL_STORE_SUM ? 1 : r->group) {
    int64_t at = place_of(t, &x->at, e);
    CHECK(at >= 0 && at < n);
    want[at].v[run].f += r->value[v][e].f;
    want[at].written = true;
    size[at] += fabs(r->value[v][e].f);
  }
  for (int64_t at = 0; at < n; at++)
    if (want[at].written)
      want[at].v[run].f =
          round_to(x->round, disturb(r, type, want[at].v[run].f, size[at]));
  free(size);
}

static void fill_expected(reference *r, int run, expected **want) {
  const fl_tile *t = r->t;
  for (int k = 0; k < t->n_stores; k++) {
    const fl_store *x = &t->stores[k];
    int v = t->body->out[x->value];
    if (fl_store_sums(x)) {
      sum_expected(r, run, x, want[x->operand]);
      continue;
    }
    for (int64_t e = 0; e < r->n; e++) {
      int64_t at = place_of(t, &x->at, e);
      CHECK(at >= 0 && at < r->s->to[x->operand].n);
      want[x->operand][at].v[run] = r->value[v][e];
      want[x->operand][at].written = true;
    }
  }
}

/* How far `got` may be from the first run. */
static bool agrees(const expected *w, fl_dtype type, fl_dtype d, cell got,
                   double *off) {
  cell as = w->v[0];
  *off = 0;
  if (!real(d)) {
    unsigned char bytes[8];
    encode(d, bytes, 0, convert_cell(as, type, type_of(d)).i);
    return decode(d, bytes).i == got.i;
  }
  if (!real(type))
    as.f = (double)as.i;
  int nans = 0;
  double most = fabs(as.f), spread = 0;
  for (int k = 0; k < RUNS; k++) {
    double f = real(type) ? w->v[k].f : as.f;
    nans += f != f;
    most = fabs(f) > most ? fabs(f) : most;
    spread = fabs(f - as.f) > spread ? fabs(f - as.f) : spread;
  }
  if (nans)
    return nans < RUNS || got.f != got.f;
  if (most > (d == FL_F16 ? 6e4 : d == FL_F64 ? 1e300 : 1e37))
    return isinf(as.f) && spread != spread ? got.f == as.f || nans : true;
  double last = d == FL_F64 && type == FL_F64 ? 1e-13
                : d == FL_F16                 ? 1e-3
                : d == FL_BF16                ? 8e-3
                                              : 2e-6;
  *off = fabs(got.f - as.f);
  return *off <= 40 * spread + last * most + (d == FL_F16 ? 1e-7 : 1e-36);
}

static void print_tile(const fl_tile *t) {
  fprintf(stderr, "  dims");
  for (int i = 0; i < t->n_dims; i++)
    fprintf(stderr, " %lld", (long long)t->shape[i]);
  fprintf(stderr, ", %d inner\n", t->n_inner);
  for (int k = 0; k < t->body->n_in; k++) {
    const fl_leaf *x = &t->leaves[k];
    fprintf(stderr,
            "  v%d: kind %d reduction %d operand %d source %d mask %d:", k,
            x->kind, x->reduction, x->operand,
            x->source < 0 ? -1 : t->body->out[x->source],
            x->mask < 0 ? -1 : t->body->out[x->mask]);
    fprintf(stderr, " %lld", (long long)x->at.offset);
    for (int i = 0; i < t->n_dims; i++)
      fprintf(stderr, " %lld", (long long)x->at.coef[i]);
    fprintf(stderr, "\n");
  }
  for (int k = 0; k < t->n_stores; k++) {
    const fl_store *x = &t->stores[k];
    fprintf(stderr, "  store %d = v%d: %lld", x->operand,
            t->body->out[x->value], (long long)x->at.offset);
    for (int i = 0; i < t->n_dims; i++)
      fprintf(stderr, " %lld", (long long)x->at.coef[i]);
    fprintf(stderr, "\n");
  }
  char text[20000];
  fl_program_source(t->body, text, sizeof text);
  fprintf(stderr, "%s\n", text);
}

static bool compare(const sample *s, const fl_tile *t, int operand,
                    const expected *want, const char *before,
                    const char *after) {
  const memory *m = &s->to[operand];
  size_t size = fl_dtype_size(m->dtype);
  fl_dtype type = FL_F32;
  for (int k = 0; k < t->n_stores; k++)
    if (t->stores[k].operand == operand)
      type = fl_program_type(t->body, t->body->out[t->stores[k].value]);
  for (int64_t i = 0; i < m->n; i++) {
    const char *at = after + (size_t)i * size;
    double off = 0;
    bool good =
        want[i].written
            ? agrees(&want[i], type, m->dtype, decode(m->dtype, at), &off)
            : memcmp(at, before + (size_t)i * size, size) == 0;
    if (good)
      continue;
    cell got = decode(m->dtype, at);
    fprintf(stderr, "operand %d (%s), element %lld: ", operand,
            fl_dtype_name(m->dtype), (long long)i);
    if (!want[i].written)
      fprintf(stderr, "written\n");
    else if (real(m->dtype))
      fprintf(stderr, "%.9g, not %.9g (%.9g %.9g)\n", got.f, want[i].v[0].f,
              want[i].v[1].f, want[i].v[2].f);
    else
      fprintf(stderr, "%lld, not %lld\n", (long long)got.i,
              (long long)want[i].v[0].i);
    return false;
  }
  return true;
}

static fl_tensor *upload(const memory *m, const char *bytes, fl_device d) {
  fl_tensor *x = NULL;
  CHECK(fl_tensor_new(rt, m->dtype, 1, &m->n, d, &x) == FL_OK &&
            fl_tensor_write(x, bytes, (size_t)m->n * fl_dtype_size(m->dtype)) ==
                FL_OK,
        "%s", fl_error());
  return x;
}

static fl_status launch(const fl_tile *t, fl_device d, const fl_view *in,
                        const fl_view *out) {
  fl_kernel kernel = fli_backend(rt, d)->kernel(fli_backend(rt, d), "tile");
  fli_scratch scratch;
  fl_attrs attrs = {.used = 0};
  if (!kernel)
    return FL_EUNSUPPORTED;
  fli_scratch_open(&scratch, rt, d, 0);
  fl_launch l = {.op = "fused",
                 .n_in = t->n_in,
                 .n_out = t->n_out,
                 .in = in,
                 .out = out,
                 .attrs = &attrs,
                 .tile = t,
                 .device = d & 255,
                 .stream = fli_stream(rt, d),
                 .scratch = &scratch.base,
                 .seq = ++rt->seq};
  fl_status s = fli_send(rt, d, kernel, &l);
  fli_scratch_close(&scratch);
  return s;
}

/* Runs the tile on a device and compares all memory that it may write. */
static bool try_device(const sample *s, const fl_tile *t, fl_device d,
                       char *const *in, char *const *out,
                       expected *const *want) {
  fl_tensor *x[FL_TILE_OPERANDS] = {NULL}, *y[FL_TILE_OPERANDS] = {NULL};
  fl_view from[FL_TILE_OPERANDS], to[FL_TILE_OPERANDS];
  bool good = true;
  for (int k = 0; k < t->n_in; k++) {
    const memory *m = &s->in[k];
    from[k] = (fl_view){.dtype = m->dtype};
    if (m->number) {
      memcpy(from[k].imm, in[k], fl_dtype_size(m->dtype));
      from[k].data = from[k].imm;
    } else {
      x[k] = upload(m, in[k], d);
      fli_view_of(x[k], &from[k]);
    }
  }
  for (int k = 0; k < t->n_out; k++) {
    y[k] = s->to[k].same >= 0 ? fl_tensor_retain(x[s->to[k].same])
                              : upload(&s->to[k], out[k], d);
    fli_view_of(y[k], &to[k]);
  }
  fl_status status = launch(t, d, from, to);
  CHECK(status == FL_OK, "%s", fl_error());
  for (int k = 0; k < t->n_out && status == FL_OK && !launch_only; k++) {
    size_t bytes = (size_t)s->to[k].n * fl_dtype_size(s->to[k].dtype);
    char *after = malloc(bytes + 1);
    CHECK(fl_tensor_read(y[k], after, bytes) == FL_OK, "%s", fl_error());
    const char *before = s->to[k].same >= 0 ? in[s->to[k].same] : out[k];
    good = good && compare(s, t, k, want[k], before, after);
    free(after);
  }
  for (int k = 0; k < t->n_in; k++)
    if (x[k])
      fl_tensor_release(x[k]);
  for (int k = 0; k < t->n_out; k++)
    fl_tensor_release(y[k]);
  return good && status == FL_OK;
}

static void run_reference(const sample *s, const fl_tile *t, char *const *in,
                          expected **want) {
  const fl_program *p = t->body;
  reference r = {.s = s, .t = t, .n = 1, .group = 1, .in = in};
  for (int i = 0; i < t->n_dims; i++) {
    r.n *= t->shape[i];
    r.group *= i >= t->n_dims - t->n_inner ? t->shape[i] : 1;
  }
  int n = p->n_in + p->n_const + p->n_instr;
  cell *all = malloc((size_t)(n * r.n + 1) * sizeof *all);
  for (int v = 0; v < n; v++)
    r.value[v] = all + v * r.n;
  for (int run = 0; run < RUNS; run++) {
    r.disturbed = run > 0;
    r.noise = (uint64_t)run;
    reference_run(&r);
    fill_expected(&r, run, want);
  }
  free(all);
}

/* Lets the host make a plan without machine code; false: it has made none. */
static bool without_code(const fl_tile *t) {
  fl_tile_plan *plan = t->plan[FL_TILE_HOST];
  if (!plan)
    return false;
  plan->close(plan);
  t->plan[FL_TILE_HOST] = NULL;
  setenv("FLARE_CPU_CODE", "off", 1);
  return true;
}

static void try_tile(const sample *s, const fl_tile *t, int n_devices,
                     const fl_device *devices, uint64_t seed) {
  char *in[FL_TILE_OPERANDS], *out[FL_TILE_OPERANDS];
  expected *want[FL_TILE_OPERANDS];
  bool wild = chance(5);
  for (int k = 0; k < t->n_in; k++)
    in[k] = random_bytes(&s->in[k], wild);
  for (int k = 0; k < t->n_out; k++) {
    out[k] = random_bytes(&s->to[k], false);
    want[k] = calloc((size_t)s->to[k].n, sizeof **want);
  }
  run_reference(s, t, in, want);
  for (int k = 0; k < n_devices; k++)
    for (int code = 1; code >= 0; code--) {
      if (!code && !without_code(t))
        break;
      bool good = try_device(s, t, devices[k], in, out, want);
      CHECK(good, "tile %llu on %s%s", (unsigned long long)seed,
            fl_device_name(rt, devices[k]), code ? "" : ", without code");
      if (!good)
        print_tile(t);
    }
  unsetenv("FLARE_CPU_CODE");
  for (int k = 0; k < t->n_in; k++)
    free(in[k]);
  for (int k = 0; k < t->n_out; k++) {
    free(out[k]);
    free(want[k]);
  }
}

static int find_devices(const char *names, fl_device *devices) {
  char text[200];
  int n = 0;
  snprintf(text, sizeof text, "%s", names);
  for (char *save, *name = strtok_r(text, ",", &save); name && n < 8;
       name = strtok_r(NULL, ",", &save)) {
    CHECK(fl_device_find(rt, name, &devices[n]) == FL_OK, "%s", fl_error());
    fl_backend *b = fl_device_backend(rt, devices[n]);
    if (b && b->kernel(b, "tile"))
      n++;
    else
      printf("tile: %s has no kernel \"tile\"\n", name);
  }
  return n;
}

int main(int argc, char **argv) {
  const char *names = argc > 1 ? argv[1] : getenv("FLARE_SPEC_DEVICES");
  uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : 500;
  uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;
  fl_device devices[8];
  launch_only = argc > 4;
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK);
  int n = find_devices(names ? names : "cpu,sim:0", devices), refused = 0;
  sample *s = malloc(sizeof *s);
  for (uint64_t k = seed; k < seed + count && n && check_failures < 10; k++) {
    const fl_tile *t;
    random_state = k * 0x9E3779B97F4A7C15u;
    random_sample(s, rt);
    if (s->q.n_stores && fli_tile_intern(rt, &s->q, &t) == FL_OK)
      try_tile(s, t, n, devices, k);
    else
      refused++;
    fli_graph_close(&s->g);
  }
  CHECK(refused * 10 <= (int)count, "%d are no tiles", refused);
  free(s);
  fl_runtime_close(rt);
  return check_done("tile");
}
