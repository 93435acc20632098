/* The kernel "expr": programs of run-time operators as CUDA text, and the cuts,
 * axes and grids of their launches. */
#include "driver/process.h"

#include "expr.h"

#include "../../runtime/math/math.h"
#include "../../runtime/program.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the text of a program --- */

static const char *c_type(fl_dtype d) {
  return d == FL_F64    ? "double"
         : d == FL_F32  ? "float"
         : d == FL_BOOL ? "bool"
                        : "int64_t";
}

static bool is_real(fl_dtype d) {
  return fl_dtype_is_float(d);
}

typedef struct writer {
  char *to;
  size_t room, n;
} writer;

static void FL_PRINTF(2, 3) expr_put(writer *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  size_t left = w->n < w->room ? w->room - w->n : 0;
  int n = vsnprintf(left ? w->to + w->n : NULL, left, format, args);
  va_end(args);
  w->n += (size_t)n;
}

static void put_reduction(writer *w, const fl_program *p) {
  static const char *const real[] = {"", "0", "1", "-INFINITY", "INFINITY"};
  static const char *const whole[] = {"", "0", "1", "INT64_MIN", "INT64_MAX"};
  bool f = is_real(fl_program_type(p, p->out[0]));
  expr_put(w, "#define EXPR_REDUCE %d\n", p->reduce);
  if (p->reduce)
    expr_put(w, "#define EXPR_A %s\n#define EXPR_FIRST %s\n",
             f ? "double" : "int64_t", f ? real[p->reduce] : whole[p->reduce]);
}

int flc_math_of(const char *text) {
#define TEXT(name) #name,
  static const char *const basic[] = {FL_LIBM_NAMES(TEXT) FL_BASIC_FLOATS1(
      TEXT) FL_BASIC_TYPED1(TEXT) FL_BASIC_TYPED2(TEXT) "clamp"};
  static const char *const of_flare[] = {"to_int", "separate", "round_f16",
                                         "round_bf16"}; /* flare.cuh has them */
  int level = 0;
  while ((text = strstr(text, "fl_"))) {
    text += 3;
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_"), k = 0;
    while (k < 4 &&
           !(strlen(of_flare[k]) == n && !memcmp(text, of_flare[k], n)))
      k++;
    if (k < 4)
      continue;
    k = 0;
    while (k < sizeof basic / sizeof *basic &&
           !(strlen(basic[k]) == n && memcmp(text, basic[k], n) == 0))
      k++;
    if (k == sizeof basic / sizeof *basic)
      return 2;
    level = 1;
  }
  return level;
}

static void write_text(writer *w, const fl_launch *l) {
  const fl_program *p = l->program;
  put_reduction(w, p);
  expr_put(w, "#define EXPR_INPUTS(F)");
  for (int k = 0; k < p->n_in; k++)
    expr_put(w, " F(%d, %d, %d, %s)", k, l->in[k].dtype, k,
             c_type((fl_dtype)p->in_type[k]));
  expr_put(w, "\n#define EXPR_RESULTS(F)");
  for (int k = 0; k < p->n_out; k++)
    expr_put(w, " F(%d, %d, %d, %s)", p->n_in + k, l->out[k].dtype, p->out[k],
             c_type(fl_program_type(p, p->out[k])));
  expr_put(w, "\n#define EXPR_BODY ");
  size_t left = w->n < w->room ? w->room - w->n : 0, at = w->n;
  w->n += fl_program_source(p, left ? w->to + at : NULL, left);
  for (size_t i = at; i < w->n && i < w->room; i++)
    if (w->to[i] == '\n')
      w->to[i] = ' ';
  expr_put(w, "\n#define FL_MATH %d\n", left ? flc_math_of(w->to + at) : 0);
}

/* The program for these dtypes; it lives as long as the process. */
static const char *text_of(const fl_launch *l) {
  const fl_program *p = l->program;
  uint64_t key = p->hash;
  for (int k = 0; k < p->n_in; k++)
    key = (key ^ (uint64_t)l->in[k].dtype) * 0x100000001b3u;
  for (int k = 0; k < p->n_out; k++)
    key = (key ^ (uint64_t)l->out[k].dtype) * 0x100000001b3u;
  const char *known = flc_text_find(key);
  if (known)
    return known;
  writer w = {0};
  write_text(&w, l);
  w = (writer){malloc(w.n + 1), w.n + 1, 0};
  if (!w.to) {
    fli_fail(FL_ENOMEM, "out of memory: the text of a kernel");
    return NULL;
  }
  write_text(&w, l);
  return flc_text_keep(key, w.to);
}

/* --- axes --- */

typedef struct plan {
  const fl_launch *l;
  expr_args a;
  int n_in, n; /* inputs, operands */
} plan;

static const fl_view *view_of(const plan *p, int k) {
  return k < p->n_in ? &p->l->in[k] : &p->l->out[k - p->n_in];
}

static int64_t stride_at(const fl_view *v, int dims, int i) {
  i -= dims - v->ndim;
  return i < 0 || v->shape[i] == 1 ? 0 : v->stride[i];
}

/* The shape of all inputs together. */
static int expr_together(const fl_launch *l, int64_t *shape) {
  int n = 0;
  for (int k = 0; k < l->n_in; k++)
    n = l->in[k].ndim > n ? l->in[k].ndim : n;
  for (int i = 0; i < n; i++)
    shape[i] = 1;
  for (int k = 0; k < l->n_in; k++)
    for (int i = 0; i < l->in[k].ndim; i++)
      if (l->in[k].shape[i] != 1)
        shape[n - l->in[k].ndim + i] = l->in[k].shape[i];
  return n;
}

/* Appends an axis, or makes the last one longer where every operand allows it.
 * There is always one, so that there is a last one. */
static void add_axis(plan *p, int first, int *n, const expr_axis *x) {
  expr_axis *last = *n ? &p->a.axis[first + *n - 1] : NULL;
  bool one = last != NULL;
  if (x->size == 1 && one)
    return;
  if (one && last->size == 1)
    one = true;
  else
    for (int k = 0; k < p->n && one; k++)
      one = last->stride[k] == x->stride[k] * x->size;
  if (!one)
    last = &p->a.axis[first + (*n)++];
  int64_t before = one ? last->size : 1;
  *last = *x;
  last->size *= before;
}

/* Dims whose bit in `mask` is `which`, from the outermost on. */
static int add_axes(plan *p, int first, int dims, const int64_t *shape,
                    uint32_t mask, uint32_t which) {
  int n = 0;
  expr_axis x;
  int64_t out = 1;
  for (int i = 0; i < dims; i++)
    if ((mask >> i & 1) == which && which == 0)
      out *= shape[i];
  for (int i = 0; i < dims; i++) {
    if ((mask >> i & 1) != which)
      continue;
    memset(&x, 0, sizeof x);
    x.size = shape[i];
    for (int k = 0; k < p->n_in; k++)
      x.stride[k] = stride_at(view_of(p, k), dims, i);
    if (which == 0) {
      out = shape[i] ? out / shape[i] : 0;
      for (int k = p->n_in; k < p->n; k++) /* a reduction's is contiguous */
        x.stride[k] =
            p->l->program->reduce ? out : stride_at(view_of(p, k), dims, i);
    }
    add_axis(p, first, &n, &x);
  }
  if (n == 0) {
    memset(&x, 0, sizeof x);
    x.size = 1;
    add_axis(p, first, &n, &x);
  }
  return n;
}

static void set_operands(plan *p) {
  for (int k = 0; k < p->n; k++) {
    const fl_view *v = view_of(p, k);
    if (flc_is_number(v))
      memcpy(&p->a.number[k], v->imm, sizeof v->imm);
    else
      p->a.data[k] = v->data;
  }
}

/* How many elements along axis `inner` a thread takes at once: 16 bytes of the
 * widest operand where all lie side by side (or repeat), aligned, whole. */
static int width_of(const plan *p, int inner, bool tail) {
  const expr_args *a = &p->a;
  size_t most = 1;
  for (int k = 0; k < p->n; k++) {
    size_t size = fl_dtype_size(view_of(p, k)->dtype);
    most = a->data[k] && size > most ? size : most;
  }
  int v = most == 1 ? 8 : (int)(16 / most);
  bool ok = tail || a->axis[inner].size % v == 0;
  for (int k = 0; k < p->n && ok; k++) {
    int64_t step = a->axis[inner].stride[k];
    size_t size = fl_dtype_size(view_of(p, k)->dtype);
    if (!a->data[k] || step == 0 || (k >= p->n_in && p->l->program->reduce))
      continue;
    ok = step == 1 && flc_aligned(a->data[k], (size_t)v * size);
    for (int d = 0; d < a->n_keep + a->n_red && ok; d++)
      ok = d == inner || a->axis[d].stride[k] % v == 0;
  }
  return ok ? v : 1;
}

/* The inputs that are numbers, or of which v elements are one and the same, a
 * bit each: known to the compiler, like all that the kernel would branch on. */
static int expr_repeated(const plan *p, int inner, int v) {
  int mask = 0;
  for (int k = 0; k < p->n_in; k++)
    mask |= (!p->a.data[k] || (v > 1 && p->a.axis[inner].stride[k] == 0)) << k;
  return mask;
}

/* --- launches --- */

static fl_status run_map(plan *p, const char *text) {
  const fl_view *y = &p->l->out[0];
  expr_args *a = &p->a;
  a->n = fl_view_numel(y);
  if (a->n == 0)
    return FL_OK;
  a->n_keep = add_axes(p, 0, y->ndim, y->shape, 0, 0);
  int v = width_of(p, a->n_keep - 1, a->n_keep == 1);
  int64_t blocks = fl_ceil_div(a->n, (int64_t)v * EXPR_THREADS);
  int flat = a->n_keep == 1;
  flc_spec spec =
      FLC_SPEC("expr", "map", v, flat, a->n % v != 0, !flat && a->n > INT32_MAX,
               expr_repeated(p, a->n_keep - 1, v));
  spec.text = text;
  spec.soon = true;
  flc_grid g = {.x = (unsigned)blocks, .block = EXPR_THREADS, .early = true};
  return FLC_RUN(p->l, spec, g, *a);
}

/* Threads for a result, and segments where there are few results. */
static flc_grid expr_cut(plan *p, int v, bool columns) {
  expr_args *a = &p->a;
  int64_t steps = fl_ceil_div(a->reduced, columns ? 1 : v), most = 8;
  int64_t busy = (int64_t)flc_chip_of(p->l)->processors * 8;
  if (!columns)
    most = a->n * 32 < busy * EXPR_THREADS ? EXPR_THREADS : 32;
  else if (a->n / v < busy * EXPR_THREADS / 8)
    most = 32;
  int lanes = 1;
  for (a->lane_bits = 0; lanes < most && lanes * 2 < steps; lanes *= 2)
    a->lane_bits++;
  int64_t blocks =
      fl_ceil_div(fl_ceil_div(a->n, columns ? v : 1), EXPR_THREADS / lanes);
  int64_t segments = busy / blocks, worth = steps / (lanes * 4);
  segments = segments < worth ? segments : worth;
  segments = segments < 1 ? 1 : segments > 65535 ? 65535 : segments;
  a->segment = fl_ceil_div(fl_ceil_div(a->reduced, segments), v) * v;
  if (a->segment == 0)
    a->segment = 1;
  a->segments = (int)fl_ceil_div(a->reduced, a->segment);
  if (a->segments < 1)
    a->segments = 1;
  return (flc_grid){.x = (unsigned)blocks,
                    .y = (unsigned)a->segments,
                    .block = EXPR_THREADS,
                    .early = true};
}

static fl_status run_fold(plan *p) {
  const fl_program *program = p->l->program;
  bool whole = !is_real(fl_program_type(program, program->out[0]));
  expr_fold a = {p->a.n, p->a.segments, p->a.partial, p->l->out[0].data};
  flc_spec spec =
      FLC_SPEC("expr", "fold", program->reduce, whole, p->l->out[0].dtype);
  flc_grid g = {.x = (unsigned)fl_ceil_div(a.n, EXPR_THREADS / 32),
                .block = EXPR_THREADS,
                .early = true};
  return FLC_RUN(p->l, spec, g, a);
}

static fl_status run_reduce(plan *p, const char *text) {
  const fl_launch *l = p->l;
  expr_args *a = &p->a;
  int64_t shape[FL_MAX_DIMS];
  int n, dims = expr_together(l, shape);
  const int64_t *given = fl_attr_list(l->attrs, FL_ATTR_reduce_dims, &n);
  uint32_t mask = n ? 0 : (1u << dims) - 1;
  for (int k = 0; k < n; k++)
    mask |= 1u << given[k];
  a->n = a->reduced = 1;
  for (int i = 0; i < dims; i++)
    *(mask >> i & 1 ? &a->reduced : &a->n) *= shape[i];
  if (a->n == 0)
    return FL_OK;
  a->n_keep = add_axes(p, 0, dims, shape, mask, 0);
  a->n_red = add_axes(p, a->n_keep, dims, shape, mask, 1);
  int big = a->n > INT32_MAX || a->reduced > INT32_MAX;
  int last = dims - 1;
  while (last >= 0 && shape[last] == 1)
    last--;
  bool columns = last >= 0 && !(mask >> last & 1) && a->reduced > 0;
  int inner = columns ? a->n_keep - 1 : a->n_keep + a->n_red - 1;
  int flat = a->n_keep == 1 && a->n_red == 1;
  int v = width_of(p, inner, false);
  flc_spec spec = FLC_SPEC("expr", "reduce", v, columns, flat, !flat && big,
                           expr_repeated(p, inner, v));
  spec.text = text;
  spec.soon = true;
  flc_grid g = expr_cut(p, v, columns);
  if (a->segments > 1 &&
      !(a->partial = fl_scratch_get(l, (size_t)a->segments * (size_t)a->n * 8)))
    return FL_ENOMEM;
  fl_status s = FLC_RUN(l, spec, g, *a);
  return s || !a->partial ? s : run_fold(p);
}

FLC_KERNEL(expr) {
  plan p = {.l = l, .n_in = l->n_in, .n = l->n_in + l->n_out};
  const char *text = text_of(l);
  if (!text)
    return FL_ENOMEM;
  set_operands(&p);
  return l->program->reduce ? run_reduce(&p, text) : run_map(&p, text);
}

/* --- in other kernels --- */

/* The dims of v as those of the loops, in the order of `by`. */
static void expr_turn(const fl_view *v, int dims, const int *by, fl_view *to) {
  fl_view_copy(to, v);
  to->ndim = dims;
  for (int i = 0; i < dims; i++) {
    int at = by[i] - (dims - v->ndim);
    to->shape[i] = at < 0 ? 1 : v->shape[at];
    to->stride[i] = at < 0 ? 0 : v->stride[at];
  }
}

/* The loops from the largest stride of v on; false: its elements do not lie
 * side by side, each once. */
static bool expr_order(const fl_view *v, int dims, const int64_t *shape,
                       int *by) {
  int64_t n = 1;
  for (int i = 0; i < dims; i++) {
    int at = i;
    for (; at > 0 && stride_at(v, dims, by[at - 1]) < stride_at(v, dims, i);
         at--)
      by[at] = by[at - 1];
    by[at] = i;
  }
  for (int i = dims; i-- > 0; n *= shape[by[i]])
    if (shape[by[i]] != 1 && stride_at(v, dims, by[i]) != n)
      return false;
  return true;
}

bool flc_expr_inside(const fl_launch *l, int input, const char **text,
                     expr_args *a) {
  fl_view views[FL_PROGRAM_IN + FL_MAX_OUT];
  int by[FL_MAX_DIMS], dims = l->out[0].ndim;
  fl_launch turned = *l;
  plan p = {.l = &turned, .n_in = l->n_in, .n = l->n_in + l->n_out};
  if (l->program->reduce ||
      !expr_order(&l->in[input], dims, l->out[0].shape, by) ||
      fl_view_numel(&l->out[0]) > INT32_MAX || !(*text = text_of(l)))
    return false;
  turned.in = views;
  turned.out = views + l->n_in;
  for (int k = 0; k < p.n; k++)
    expr_turn(k < p.n_in ? &l->in[k] : &l->out[k - p.n_in], dims, by,
              &views[k]);
  set_operands(&p);
  p.a.n = fl_view_numel(&l->out[0]);
  p.a.n_keep = add_axes(&p, 0, dims, turned.out[0].shape, 0, 0);
  *a = p.a;
  return true;
}

/* --- for the check: programs of users are in no pack, but for the fold --- */

#define SAMPLE(reduce)                                                         \
  "#define EXPR_REDUCE " reduce "\n#define EXPR_A double\n"                    \
  "#define EXPR_FIRST 0\n#define EXPR_INPUTS(F) F(0, 1, 0, float) "            \
  "F(1, 3, 1, float)\n#define EXPR_RESULTS(F) F(2, 1, 2, float)\n"             \
  "#define EXPR_BODY const float v2 = v0 * v1;\n#define FL_MATH 0\n"

void flc_visit_expr(flc_visitor *v) {
  flc_spec s = FLC_SPEC("expr", "map", 4, 1, 0, 0, 0);
  s.text = SAMPLE("0");
  v->spec(v, &s, true);
  for (int columns = 0; columns < 2; columns++) {
    s = FLC_SPEC("expr", "reduce", 4, columns, 1, 0, 0);
    s.text = SAMPLE("1");
    v->spec(v, &s, columns == 0);
  }
  for (int reduce = 1; reduce <= 4; reduce++)
    FL_EACH_DTYPE(d, fl_dtype_is_real) {
      if (d == FL_F64 || (!is_real(d) && d != FL_I64))
        continue;
      s = FLC_SPEC("expr", "fold", reduce, !is_real(d), d);
      v->spec(v, &s, reduce == 1 && d == FL_F32);
    }
}
