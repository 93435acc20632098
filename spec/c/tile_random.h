/* Random tiles (runtime/tile.h) for tile.c: graphs, forms, masks, reductions in
 * several phases, stores in place. No values here; those are in tile.c. */
#ifndef SPEC_TILE_RANDOM_H
#define SPEC_TILE_RANDOM_H

#include "../../runtime/expr/tile.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

#define MOST_VALUES 160

typedef struct known { /* a value of the graph, and what may be done with it */
  fl_value v;
  fl_dtype dtype;
  int phase;
  bool inner, exact; /* exact: the same bits however it is computed */
  bool coordinates;  /* made of coordinates alone */
} known;

typedef struct memory { /* an operand */
  fl_dtype dtype;
  int64_t n;
  bool number;
  int same; /* an output: the input that lies there, or -1 */
} memory;

typedef struct sample {
  fli_graph g;
  fli_tile_request q;
  fl_leaf leaves[FL_TILE_LEAVES];
  int n_leaves;
  fl_store stores[FL_TILE_STORES];
  fl_value out[FL_TILE_OUT];
  fl_dtype out_dtype[FL_TILE_OUT];
  known k[MOST_VALUES];
  int n, phases;
  memory in[FL_TILE_OPERANDS], to[FL_TILE_OPERANDS];
  fl_dtype dtypes[FL_TILE_OPERANDS];
  struct { /* loads that a store may overwrite */
    int operand, leaf;
    bool inner;
  } place[8];
  int n_place;
  known *moments; /* what has only one of its moments yet; NULL */
} sample;

/* --- values --- */

static known *keep_value(sample *s, fl_value v, known facts) {
  known *k = &s->k[s->n];
  *k = facts;
  k->v = v;
  k->dtype = fli_graph_dtype(&s->g, v);
  if (s->n < MOST_VALUES - 1 && v.dtype == FLI_NODE)
    s->n++;
  return k;
}

static known join_facts(const known *a, const known *b) {
  known k = *a;
  k.phase = b->phase > k.phase ? b->phase : k.phase;
  k.inner |= b->inner;
  k.exact &= b->exact;
  k.coordinates &= b->coordinates;
  return k;
}

static int out_of(sample *s, fl_value v, fl_dtype d) {
  int k = 0;
  while (k < s->q.n_out && (s->out[k].i != v.i || s->out_dtype[k] != d))
    k++;
  if (k == FL_TILE_OUT)
    return -1;
  s->out[k] = v;
  s->out_dtype[k] = d;
  s->q.n_out = k == s->q.n_out ? k + 1 : s->q.n_out;
  return k;
}

static bool is_float(const known *k) {
  return fl_dtype_is_float(k->dtype);
}

/* A value that `wanted` takes, later ones more often; NULL: none found. */
static known *pick(sample *s, bool (*wanted)(const known *)) {
  for (int turn = 0; turn < 30 && s->n; turn++) {
    int64_t from = chance(60) && s->n > 4 ? s->n - 4 : 0;
    known *k = &s->k[from + below(s->n - from)];
    if (wanted(k))
      return k;
  }
  return NULL;
}

/* A row applied to values; NULL: the graph refuses it, or is full. */
static known *apply(sample *s, int op, int n, known *const *in) {
  fl_value v[3], out;
  known facts = *in[0];
  if (s->n >= MOST_VALUES - 4)
    return NULL;
  for (int k = 0; k < n; k++) {
    v[k] = in[k]->v;
    facts = join_facts(&facts, in[k]);
  }
  if (fli_graph_apply(&s->g, op, NULL, n, v, &out) || out.dtype != FLI_NODE)
    return NULL;
  facts.exact &= !fl_dtype_is_float(fli_graph_dtype(&s->g, out));
  return keep_value(s, out, facts);
}

/* --- forms and leaves --- */

static fl_dtype random_dtype(void) {
  static const fl_dtype d[] = {FL_F32, FL_F32, FL_F32, FL_F32,  FL_F16, FL_BF16,
                               FL_F64, FL_I64, FL_I32, FL_BOOL, FL_U8};
  return d[below((int64_t)(sizeof d / sizeof *d))];
}

/* A layout of the dims in `dims`, a set of bits: each element once if `once`.
 * `size` is how far each dim runs. Returns the elements of its memory. */
static int64_t random_form(const sample *s, unsigned dims, const int64_t *size,
                           bool once, fl_form *at) {
  int order[FL_TILE_DIMS] = {0}, n = s->q.n_dims;
  int64_t stride = 1, low = 0, high = 0;
  bool plain = chance(60);
  memset(at, 0, sizeof *at);
  for (int i = 0; i < n; i++)
    order[i] = i;
  for (int i = n - 1; i > 0 && !plain; i--) {
    int k = (int)below(i + 1), t = order[i];
    order[i] = order[k];
    order[k] = t;
  }
  for (int k = n - 1; k >= 0; k--) {
    int i = order[k];
    if (!(dims >> i & 1))
      continue;
    int64_t gap = plain || chance(80) ? 0 : below(3);
    if (once && size[i] == 1)
      continue;
    at->coef[i] = stride * (!plain && chance(15) ? -1 : 1);
    if (!once && !plain && chance(5))
      at->coef[i] = below(3);
    *(at->coef[i] < 0 ? &low : &high) += at->coef[i] * (size[i] - 1);
    stride = stride * size[i] + gap;
  }
  int64_t ahead = chance(30) ? below(9) : 0;
  at->offset = ahead - low;
  return ahead - low + high + 1 + (chance(30) ? below(9) : 0);
}

static int add_leaf(sample *s, fl_leaf leaf, fl_dtype d, known facts) {
  fl_value v;
  if (fli_graph_input(&s->g, d, FLI_TENSOR, &v))
    return -1;
  s->leaves[s->n_leaves] = leaf;
  keep_value(s, v, facts);
  return s->n_leaves++;
}

static bool form_inner(const sample *s, const fl_form *at) {
  for (int i = s->q.n_dims - s->q.n_inner; i < s->q.n_dims; i++)
    if (at->coef[i] && s->q.shape[i] != 1)
      return true;
  return false;
}

static unsigned random_dims(const sample *s) {
  unsigned all = (1u << s->q.n_dims) - 1;
  if (chance(60))
    return all;
  unsigned inner = all & ~((1u << (s->q.n_dims - s->q.n_inner)) - 1);
  return chance(25)   ? inner
         : chance(30) ? all & ~inner
                      : (unsigned)next_random() & all;
}

static int new_operand(sample *s, fl_dtype d, int64_t n, bool number) {
  s->in[s->q.n_in] = (memory){d, n, number, -1};
  return s->q.n_in++;
}

static void add_load(sample *s) {
  fl_leaf leaf = {.kind = FL_LEAF_LOAD, .source = -1, .mask = -1};
  fl_dtype d = random_dtype();
  known facts = {.exact = true};
  if (chance(10)) { /* a number */
    d = chance(30) ? FL_I64 : chance(30) ? FL_F64 : FL_F32;
    leaf.operand = (int16_t)new_operand(s, d, 1, true);
    add_leaf(s, leaf, d, facts);
    return;
  }
  bool once = chance(30);
  unsigned dims = random_dims(s);
  int64_t n = random_form(s, dims, s->q.shape, once, &leaf.at);
  leaf.operand = (int16_t)new_operand(s, d, n, false);
  facts.inner = form_inner(s, &leaf.at);
  int at = add_leaf(s, leaf, d, facts);
  unsigned all = (1u << s->q.n_dims) - 1,
           row = (1u << (s->q.n_dims - s->q.n_inner)) - 1;
  if (once && at >= 0 && s->n_place < 8 && (dims == all || dims == row)) {
    s->place[s->n_place].operand = leaf.operand;
    s->place[s->n_place].inner = facts.inner;
    s->place[s->n_place++].leaf = at;
  } else if (at >= 0 && chance(10)) { /* again, elsewhere in the same memory */
    int64_t m = random_form(s, dims, s->q.shape, false, &leaf.at);
    memory *o = &s->in[leaf.operand];
    o->n = m > o->n ? m : o->n;
    facts.inner = form_inner(s, &leaf.at);
    add_leaf(s, leaf, d, facts);
  }
}

static known *add_coord(sample *s, const fl_form *at) {
  fl_leaf leaf = {.kind = FL_LEAF_COORD,
                  .operand = -1,
                  .source = -1,
                  .mask = -1,
                  .at = *at};
  known facts = {
      .exact = true, .coordinates = true, .inner = form_inner(s, at)};
  return add_leaf(s, leaf, FL_I64, facts) < 0 ? NULL : &s->k[s->n - 1];
}

static void random_coord(sample *s) {
  fl_form at = {.offset = below(5) - 2};
  for (int i = 0; i < s->q.n_dims; i++)
    at.coef[i] = chance(50) ? below(5) - 2 : 0;
  add_coord(s, &at);
}

/* Random bits, by two numbers. */
static void add_bits(sample *s) {
  fl_leaf leaf = {.kind = FL_LEAF_LOAD, .source = -1, .mask = -1};
  known facts = {.exact = true};
  int16_t by[2];
  if (s->n_leaves > FL_TILE_LEAVES - 8 || s->n > MOST_VALUES - 8)
    return;
  for (int k = 0; k < 2; k++) {
    leaf.operand = (int16_t)new_operand(s, FL_I64, 1, true);
    if (add_leaf(s, leaf, FL_I64, facts) < 0)
      return;
    by[k] = (int16_t)out_of(s, s->k[s->n - 1].v, FL_I64);
  }
  leaf = (fl_leaf){
      .kind = FL_LEAF_BITS, .operand = -1, .source = by[0], .mask = by[1]};
  random_form(s, random_dims(s), s->q.shape, chance(50), &leaf.at);
  facts.inner = form_inner(s, &leaf.at);
  if (by[0] >= 0 && by[1] >= 0)
    add_leaf(s, leaf, FL_F32, facts);
}

/* A part of a dim, from elsewhere: what `cat` and `pad` read. */
static void add_masked(sample *s) {
  if (s->n_leaves > FL_TILE_LEAVES - 8 || !s->q.n_dims ||
      s->n > MOST_VALUES - 12)
    return;
  fl_leaf leaf = {.kind = FL_LEAF_LOAD, .source = -1, .mask = -1};
  int64_t size[FL_TILE_DIMS], first[FL_TILE_DIMS] = {0};
  known facts = {.exact = true}, *mask = NULL;
  memcpy(size, s->q.shape, sizeof size);
  for (int turn = 0; turn < 2; turn++) {
    int d = (int)below(s->q.n_dims);
    if (size[d] != s->q.shape[d] || (turn && chance(60)))
      continue;
    int64_t from = below(size[d]), to = from + 1 + below(size[d] - from);
    fl_form at = {.offset = chance(50) ? -from : 0};
    at.coef[d] = 1;
    known *c = add_coord(s, &at), low, high;
    if (!c)
      return;
    low = high = *c;
    low.v = fli_integer(from + at.offset);
    high.v = fli_integer(to + at.offset);
    known *a = apply(s, FLI_OP_ge, 2, (known *[]){c, &low});
    known *b = apply(s, FLI_OP_lt, 2, (known *[]){c, &high});
    known *both =
        a && b ? apply(s, FLI_OP_logical_and, 2, (known *[]){a, b}) : NULL;
    mask = mask && both
               ? apply(s, FLI_OP_logical_and, 2, (known *[]){mask, both})
               : both;
    if (!mask)
      return;
    first[d] = from;
    size[d] = to - from;
  }
  if (!mask || mask->dtype != FL_BOOL)
    return;
  unsigned all = (1u << s->q.n_dims) - 1;
  int64_t n = random_form(s, all, size, false, &leaf.at);
  for (int i = 0; i < s->q.n_dims; i++)
    leaf.at.offset -= first[i] * leaf.at.coef[i];
  facts =
      (known){.exact = true, .inner = form_inner(s, &leaf.at) || mask->inner};
  leaf.mask = (int16_t)out_of(s, mask->v, FL_BOOL);
  fl_dtype d = random_dtype();
  leaf.operand = (int16_t)new_operand(s, d, n, false);
  if (leaf.mask >= 0)
    add_leaf(s, leaf, d, facts);
}

/* --- instructions --- */

static bool any_value(const known *k) {
  return k != NULL;
}
static bool any_int(const known *k) {
  return fl_dtype_is_int(k->dtype);
}
static bool any_bool(const known *k) {
  return k->dtype == FL_BOOL;
}
static bool any_exact(const known *k) {
  return k->exact;
}
static bool exact_float(const known *k) {
  return k->exact && is_float(k);
}

/* Inputs of steep rows are made small first. */
static known *tamed(sample *s, known *k, int op) {
  known *small = apply(s, op, 1, &k);
  return small ? small : k;
}

static known *number(double f) {
  static known pool[8];
  static int turn;
  known *k = &pool[turn++ & 7];
  *k = (known){
      .v = fli_number(f), .dtype = FL_F64, .exact = true, .coordinates = true};
  return k;
}

static void add_float_row(sample *s) {
  static const int unary[] = {
      FLI_OP_neg,      FLI_OP_abs,    FLI_OP_tanh,      FLI_OP_sigmoid,
      FLI_OP_relu,     FLI_OP_sin,    FLI_OP_cos,       FLI_OP_erf,
      FLI_OP_gelu,     FLI_OP_silu,   FLI_OP_atan,      FLI_OP_elu,
      FLI_OP_softplus, FLI_OP_square, FLI_OP_leaky_relu};
  static const int binary[] = {FLI_OP_add, FLI_OP_sub,     FLI_OP_mul,
                               FLI_OP_add, FLI_OP_maximum, FLI_OP_minimum,
                               FLI_OP_mul, FLI_OP_sub};
  static const int backward[] = {FLI_OP_tanh_backward, FLI_OP_sigmoid_backward,
                                 FLI_OP_gelu_backward, FLI_OP_silu_backward};
  known *a = pick(s, is_float), *b = pick(s, is_float), *c = pick(s, any_bool);
  if (!a || !b)
    return;
  known *in[3] = {a, b, b};
  switch (below(10)) {
  case 0:
  case 1:
  case 2:
    apply(s, unary[below(sizeof unary / sizeof *unary)], 1, in);
    return;
  case 3:
    in[0] = tamed(s, a, FLI_OP_tanh);
    apply(s, FLI_OP_exp, 1, in);
    return;
  case 4:
    in[0] = tamed(s, a, FLI_OP_square);
    in[1] = number(0.5);
    if ((in[0] = apply(s, FLI_OP_add, 2, in)))
      apply(s, chance(50) ? FLI_OP_rsqrt : FLI_OP_reciprocal, 1, in);
    return;
  case 5:
    in[1] = number((double)(below(9) - 4) / 2);
    apply(s, binary[below(8)], 2, in);
    return;
  case 6:
    if (c) {
      known *three[] = {c, a, b};
      apply(s, FLI_OP_where, 3, three);
    }
    return;
  case 7:
    apply(s, backward[below(4)], 2, in);
    return;
  default:
    apply(s, binary[below(8)], 2, in);
  }
}

static void add_exact_row(sample *s) {
  static const int whole[] = {FLI_OP_add,        FLI_OP_sub,
                              FLI_OP_mul,        FLI_OP_maximum,
                              FLI_OP_minimum,    FLI_OP_bitwise_and,
                              FLI_OP_bitwise_or, FLI_OP_bitwise_xor};
  static const int compare[] = {FLI_OP_lt, FLI_OP_le, FLI_OP_gt,
                                FLI_OP_ge, FLI_OP_eq, FLI_OP_ne};
  static const int logical[] = {FLI_OP_logical_and, FLI_OP_logical_or,
                                FLI_OP_bitwise_xor, FLI_OP_ne};
  known *a, *b;
  if (chance(35) && (a = pick(s, any_int)) && (b = pick(s, any_int))) {
    known *in[] = {a, b};
    apply(s, whole[below(8)], 2, in);
  } else if (chance(50) && (a = pick(s, any_exact)) &&
             (b = pick(s, any_exact)) && is_float(a) == is_float(b)) {
    known *in[] = {a, b};
    apply(s, compare[below(6)], 2, in);
  } else if ((a = pick(s, any_bool)) && (b = pick(s, any_bool))) {
    known *in[] = {a, b};
    if (chance(20))
      apply(s, FLI_OP_logical_not, 1, in);
    else
      apply(s, logical[below(4)], 2, in);
  }
}

static void add_cast(sample *s) {
  known *a = chance(40) ? pick(s, any_bool) : pick(s, any_value);
  fl_dtype to = random_dtype();
  fl_value v;
  if (a && a->exact && chance(70) && fl_dtype_kind(to) == FL_KIND_FLOAT)
    to = FL_F32;
  if (!a || (!fl_dtype_is_float(to) && is_float(a) && !exact_float(a)) ||
      s->n >= MOST_VALUES - 4)
    return;
  if (fli_graph_cast(&s->g, a->v, to, &v) == FL_OK && v.dtype == FLI_NODE) {
    known facts = *a;
    facts.exact = a->exact && !fl_dtype_is_float(to);
    keep_value(s, v, facts);
  }
}

static void add_reduce(sample *s) {
  static const fl_reduction kinds[] = {
      FL_REDUCE_SUM, FL_REDUCE_SUM,  FL_REDUCE_MAX,  FL_REDUCE_MIN,
      FL_REDUCE_SUM, FL_REDUCE_PROD, FL_REDUCE_MEAN, FL_REDUCE_DEVIATION};
  known *a = chance(80) ? pick(s, is_float) : pick(s, any_value);
  fl_reduction kind = kinds[below(8)];
  bool moments = kind >= FL_REDUCE_MEAN;
  if (moments) /* often both of one value */
    a = s->moments ? s->moments : pick(s, is_float);
  if (!a || !s->q.n_inner || a->phase >= 3 || s->n > MOST_VALUES - 8)
    return;
  if (is_float(a) && !a->exact && (kind == FL_REDUCE_SUM || moments) &&
      a != s->moments)
    a = tamed(s, a, FLI_OP_tanh);
  s->moments = moments && s->moments != a ? a : NULL;
  if (is_float(a) && kind == FL_REDUCE_PROD) {
    known *in[] = {tamed(s, a, FLI_OP_sin), number(1.0 / 64)};
    known *more[] = {apply(s, FLI_OP_mul, 2, in), number(1)};
    a = more[0] ? apply(s, FLI_OP_add, 2, more) : NULL;
    if (!a)
      return;
  }
  fl_dtype d = is_float(a) ? a->dtype == FL_F64 ? FL_F64 : FL_F32 : FL_I64;
  fl_leaf leaf = {.kind = FL_LEAF_REDUCE,
                  .reduction = (uint8_t)kind,
                  .operand = -1,
                  .mask = -1,
                  .source = (int16_t)out_of(s, a->v, d)};
  known facts = {.phase = a->phase + 1, .exact = !is_float(a)};
  if (leaf.source < 0 || add_leaf(s, leaf, d, facts) < 0)
    return;
  s->phases = facts.phase > s->phases ? facts.phase : s->phases;
  known *sum = &s->k[s->n - 1], *in[] = {sum, NULL};
  if (kind == FL_REDUCE_SUM && is_float(sum)) { /* a mean */
    int64_t n = 1;
    for (int i = s->q.n_dims - s->q.n_inner; i < s->q.n_dims; i++)
      n *= s->q.shape[i];
    in[1] = number(1 / (double)n);
    apply(s, FLI_OP_mul, 2, in);
  }
}

/* --- stores --- */

static void add_store(sample *s, const known *k) {
  fl_store *x = &s->stores[s->q.n_stores];
  int n = s->q.n_dims, operand = -1, same = -1;
  unsigned all = (1u << n) - 1, row = (1u << (n - s->q.n_inner)) - 1;
  fl_dtype d = k->dtype;
  int64_t room = 0;
  if (s->q.n_stores == 8 || s->q.n_out == FL_TILE_OUT)
    return;
  for (int p = 0; p < s->n_place && same < 0; p++)
    if (s->place[p].inner == k->inner && s->place[p].operand >= 0 &&
        (fl_dtype_is_float(s->in[s->place[p].operand].dtype) || k->exact)) {
      same = s->place[p].operand;
      x->at = s->leaves[s->place[p].leaf].at;
      s->place[p].operand = -1;
      d = s->in[same].dtype;
      room = s->in[same].n;
    }
  if (same < 0) {
    if (fl_dtype_is_float(d) && chance(20))
      d = chance(50) ? FL_F16 : FL_BF16;
    room = random_form(s, k->inner || chance(30) ? all : row, s->q.shape, true,
                       &x->at);
  }
  operand = s->q.n_operands - s->q.n_in;
  s->to[operand] = (memory){d, room, false, same};
  s->q.n_operands++;
  x->operand = (int16_t)operand;
  x->value = (int16_t)out_of(s, k->v, d);
  if (x->value >= 0)
    s->q.n_stores++;
}

/* Sums over some dims of the rows, and over all inner dims or none. */
static void add_sums(sample *s) {
  int n = s->q.n_dims, outer = n - s->q.n_inner;
  unsigned row = (1u << outer) - 1, inner = ((1u << n) - 1) & ~row,
           kept = chance(60) ? 0 : (unsigned)next_random() & row;
  for (int64_t more = 1 + below(3); more > 0; more--) {
    fl_store *x = &s->stores[s->q.n_stores];
    const known *k = pick(s, is_float);
    if (!k || s->q.n_stores == 8 || s->q.n_out == FL_TILE_OUT)
      return;
    fl_dtype d = k->dtype;
    k = k->exact ? k : tamed(s, &s->k[k - s->k], FLI_OP_tanh);
    if (k->dtype != FL_F32 && k->dtype != FL_F64)
      continue;
    d = k->dtype;
    bool rows = s->q.n_inner && !k->inner && chance(70);
    x->add = rows ? FL_STORE_SUM_ROWS : FL_STORE_SUM;
    x->round = d == FL_F32 && chance(20) ? FL_BF16 : d;
    fl_dtype to = chance(20) ? FL_F16 : chance(20) ? FL_BF16 : d;
    int64_t room = random_form(s, !rows && chance(70) ? kept | inner : kept,
                               s->q.shape, true, &x->at);
    int operand = s->q.n_operands++ - s->q.n_in;
    s->to[operand] = (memory){to, room, false, -1};
    x->operand = (int16_t)operand;
    x->value = (int16_t)out_of(s, k->v, d);
    if (x->value < 0) {
      s->q.n_operands--;
      return;
    }
    s->q.n_stores++;
  }
}

/* --- all of it --- */

static void random_shape(sample *s) {
  int64_t most = chance(5) ? 20000 : chance(30) ? 8000 : 1500, n = 1;
  int dims = (int)below(6);
  s->q.n_dims = dims;
  for (int i = 0; i < dims; i++) {
    int64_t size = chance(15) ? 1 : 1 + below(70);
    size = n * size > most ? 1 + below(most / n) : size;
    s->q.shape[i] = size;
    n *= size;
  }
  for (int i = dims - 1; i > 0; i--) { /* so that small ones come first, too */
    int k = (int)below(i + 1);
    int64_t t = s->q.shape[i];
    s->q.shape[i] = s->q.shape[k];
    s->q.shape[k] = t;
  }
  s->q.n_inner = dims && chance(70) ? 1 + (int)below(dims < 2 ? 1 : 2) : 0;
}

static void random_sample(sample *s, fl_runtime *rt) {
  memset(s, 0, sizeof *s);
  fli_graph_open(&s->g, rt);
  random_shape(s);
  int loads = 1 + (int)below(5), nodes = 1 + (int)below(40), reductions = 0;
  for (int k = 0; k < loads; k++)
    add_load(s);
  for (int k = 0; k < nodes && s->n_leaves < FL_TILE_LEAVES - 8; k++) {
    int what = (int)below(100);
    if (what < 4)
      add_load(s);
    else if (what < 8)
      add_masked(s);
    else if (what < 10)
      random_coord(s);
    else if (what < 12)
      add_bits(s);
    else if (what < 16 && reductions < 4)
      reductions++, add_reduce(s);
    else if (what < 24)
      add_cast(s);
    else if (what < 40)
      add_exact_row(s);
    else
      add_float_row(s);
  }
  s->q.n_operands = s->q.n_in;
  add_store(s, &s->k[s->n - 1]);
  for (int64_t more = below(4); more > 0; more--)
    add_store(s, &s->k[below(s->n)]);
  if (chance(30))
    add_sums(s);
  for (int k = 0; k < s->q.n_operands; k++)
    s->dtypes[k] = k < s->q.n_in ? s->in[k].dtype : s->to[k - s->q.n_in].dtype;
  s->q.graph = &s->g;
  s->q.out = s->out;
  s->q.out_dtype = s->out_dtype;
  s->q.operand_dtype = s->dtypes;
  s->q.leaves = s->leaves;
  s->q.stores = s->stores;
}

#endif
