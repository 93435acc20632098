/* The op table in memory: rows of ops.def become fl_op structs, their
 * signatures parsed once when a runtime opens. Run-time facts about an operator
 * are looked up here and nowhere else. */
#include "rules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define grad_of_F(name) fli_grad_##name
#define grad_of_N(name) fli_grad_##name
#define grad_of_I(name) fli_grad_none

/* Never called: the mark of rows whose results need no gradients. */
void fli_grad_none(fli_grad *g) {
  (void)g;
}

/* --- rows --- */

typedef struct row {
  const char *name, *sig;
  int cast;
  uint32_t saves;
  fli_grad_fn grad;
  fli_cost_fn cost;
  const char *cost_rule;
  fli_family family;
  fli_shape_fn shape;
  fli_view_fn view;
  fli_shows shows;
  fli_compose_fn compose;
} row;

enum { /* the words of the saves column */
       NONE = 0,
       A = 1,
       B = 2,
       C = 4,
       D = 8,
       E = 16,
       F = 32,
       G = 64,
       I = 256,
       J = 512,
       X = A,
       CROSS = FLI_SAVE_CROSS,
       ALONE = FLI_SAVE_ALONE,
       Y = 1 << FLI_SAVE_OUT,
       Y2 = 2 << FLI_SAVE_OUT,
       Y3 = 4 << FLI_SAVE_OUT
};

#define ROW(name, sig, kind, cast, saves, grad, cost, ...)                     \
  {name, sig,   FLI_CAST_##cast,      saves,      grad,                        \
   cost, #cost, .family = FLI_##kind, __VA_ARGS__},
static const row rows[] = {
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  ROW(#name, sig, UNARY, cast, saves, fli_grad_unary, fli_cost_bytes)          \
  ROW(#name "_backward", sig, UNARY_BACKWARD, cast, B,                         \
      fli_grad_unary_backward, fli_cost_bytes)                                 \
  ROW(#name "_backward2", sig, UNARY_BACKWARD2, cast, NONE,                    \
      fli_grad_unary_backward2, fli_cost_bytes)
#define FL_TEST(name, T, sig, f)                                               \
  ROW(#name, sig, TEST, NONE, NONE, fli_grad_none, fli_cost_bytes)
#define FL_BINARY(name, T, sig, cast, saves, f)                                \
  ROW(#name, sig, BINARY, cast, saves, grad_of_##T(name), fli_cost_bytes)
#define FL_COMPARE(name, sig, f)                                               \
  ROW(#name, sig, COMPARE, PROMOTE, NONE, fli_grad_none, fli_cost_bytes)
#define FL_TERNARY(name, T, sig, cast, saves, f)                               \
  ROW(#name, sig, TERNARY, cast, saves, grad_of_##T(name), fli_cost_bytes)
#define FL_OP(name, sig, cast, saves, rule, grad, cost)                        \
  ROW(#name, sig, STRUCTURED, cast, saves, fli_grad_##grad, fli_cost_##cost,   \
      .shape = fli_shape_##rule)
#define FL_FUSED(name, sig, cast, saves, rule, grad, cost)                     \
  ROW(#name, sig, STRUCTURED, cast, saves, fli_grad_##grad, fli_cost_##cost,   \
      .shape = fli_shape_##rule, .compose = fli_compose_##name)
#define FL_VIEW(name, sig, what, grad)                                         \
  ROW(#name, sig, VIEW, NONE, NONE, fli_grad_##grad, fli_cost_bytes,           \
      .view = fli_view_##name, .shows = FLI_SHOWS_##what)
#define FL_COMPOSE(name, sig)                                                  \
  ROW(#name, sig, COMPOSE, NONE, NONE, fli_grad_none, fli_cost_bytes,          \
      .compose = fli_compose_##name)
#include "../ops.def"
};

static const struct {
  int id;
  const char *text;
} docs[] = {
#define FL_DOC(name, text) {FLI_OP_##name, text},
#include "../ops.def"
};

static const struct {
  int id;
  unsigned mark;
} marks[] = {
#define FL_INPLACE(name)          {FLI_OP_##name, FLI_MARK_INPLACE},
#define FL_CONSTANT(name)         {FLI_OP_##name, FLI_MARK_CONSTANT},
#define FL_COLLECTIVE(name, kind) {FLI_OP_comm_##name, FLI_MARK_COLLECTIVE},
#define FL_BACKWARD(name)         {FLI_OP_##name, FLI_MARK_BACKWARD},
#define FL_IDENTITY(name)         {FLI_OP_##name, FLI_MARK_IDENTITY},
#define FL_OVERWRITES(name)       {FLI_OP_##name, FLI_MARK_OVERWRITES},
#define FL_TRANSFERS(name)        {FLI_OP_##name, FLI_MARK_TRANSFERS},
#define FL_BOUNDS(name)           {FLI_OP_##name, FLI_MARK_BOUNDS},
#define FL_ORDER(name, holds)     {FLI_OP_##name, FLI_MARK_ORDER},
#define FL_REDUCES(name, kind)    {FLI_OP_##name, FLI_MARK_REDUCES},
#define FL_POINTWISE(name)        {FLI_OP_##name, FLI_MARK_POINTWISE},
#include "../ops.def"
};

static const struct {
  int id;
  fli_layout_fn rule;
} layouts[] = {
#define FL_LAYOUT(name, rule) {FLI_OP_##name, fli_layout_##rule},
#include "../ops.def"
};

static const struct {
  const char *name;
  int id;
} aliases[] = {
#define FL_ALIAS(alias, name) {#alias, FLI_OP_##name},
#include "../ops.def"
};

static const char *const families[] = {"unary",  "backward", "backward", "test",
                                       "binary", "compare",  "ternary",  "op",
                                       "view",   "compose"};

/* --- signatures --- */

typedef struct reader {
  const char *at, *word; /* the last one began here */
  fl_op *op;
} reader;

static void blanks(reader *r) {
  while (*r->at == ' ')
    r->at++;
}

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_';
}

/* Copies an identifier; false if there is none or it is too long. */
static bool word(reader *r, char *to, size_t room) {
  size_t n = 0;
  blanks(r);
  r->word = r->at;
  while (is_word(*r->at) && n + 1 < room)
    to[n++] = *r->at++;
  to[n] = 0;
  return n > 0 && !is_word(*r->at);
}

static bool accept(reader *r, char c) {
  blanks(r);
  if (*r->at != c)
    return false;
  r->at++;
  return true;
}

static int find_param(const fl_op *op, const char *name) {
  for (int i = 0; i < op->info.n_params; i++)
    if (strcmp(op->info.params[i].name, name) == 0)
      return i;
  return -1;
}

static bool op_choice(fl_param *p, const char *name, size_t len, int64_t *n) {
  const char *s = p->choices, *end = s + p->choices_len;
  for (*n = 0; s < end; ++*n) {
    const char *bar = memchr(s, '|', (size_t)(end - s));
    size_t here = (size_t)((bar ? bar : end) - s);
    if (here == len && memcmp(s, name, len) == 0)
      return true;
    s += here + 1;
  }
  return false;
}

/* The text after '=': ends at ',' or " ->". Nothing there: left out. */
static bool read_default(reader *r, fl_param *p) {
  const char *s = r->at;
  size_t n = strcspn(s, ",");
  const char *arrow = strstr(s, " ->");
  if (arrow && (size_t)(arrow - s) < n)
    n = (size_t)(arrow - s);
  while (n && s[n - 1] == ' ')
    n--;
  r->at += n;
  char text[32] = "";
  if (n >= sizeof text)
    return false;
  memcpy(text, s, n);
  p->has_default = true;
  switch (p->kind) {
  case FL_P_REAL:
    p->value.f = n == 0 ? NAN : fli_strtod(text, NULL);
    return true;
  case FL_P_FLAG:
    p->value.i = strcmp(text, "true") == 0;
    return true;
  case FL_P_ENUM:
    return op_choice(p, text, n, &p->value.i);
  case FL_P_DTYPE:
    p->value.i = n == 0 ? FL_ATTR_NONE : (int64_t)fl_dtype_find(text);
    return n == 0 || p->value.i != FL_NODTYPE;
  case FL_P_DIMS:
  case FL_P_INTS:
  case FL_P_SHAPE:
    p->value.i = 0; /* list.n = list.at = 0 */
    return n == 0;
  default:
    p->value.i = n == 0 ? FL_ATTR_NONE : strtoll(text, NULL, 10);
    return true;
  }
}

static bool read_type(reader *r, fl_param *p) {
  static const struct {
    const char *name;
    fl_param_kind kind;
    fl_param_type type;
  } types[] = {
      {"any", FL_P_TENSOR, FL_T_ANY},
      {"num", FL_P_TENSOR, FL_T_NUM},
      {"float", FL_P_TENSOR, FL_T_FLOAT},
      {"int", FL_P_TENSOR, FL_T_INT},
      {"bool", FL_P_TENSOR, FL_T_BOOL},
      {"index", FL_P_TENSOR, FL_T_INDEX},
      {"id", FL_P_TENSOR, FL_T_ID},
      {"rng", FL_P_RNG, FL_T_ANY},
      {"dim", FL_P_DIM, FL_T_ANY},
      {"dims", FL_P_DIMS, FL_T_ANY},
      {"pos", FL_P_POS, FL_T_ANY},
      {"ints", FL_P_INTS, FL_T_ANY},
      {"shape", FL_P_SHAPE, FL_T_ANY},
      {"real", FL_P_REAL, FL_T_ANY},
      {"number", FL_P_REAL, FL_T_ANY},
      {"flag", FL_P_FLAG, FL_T_ANY},
      {"dtype", FL_P_DTYPE, FL_T_ANY},
      {"enum", FL_P_ENUM, FL_T_ANY},
      {"newdim", FL_P_NEWDIM, FL_T_ANY},
      {"complex", FL_P_TENSOR, FL_T_COMPLEX},
  };
  char name[20];
  if (!word(r, name, sizeof name))
    return false;
  size_t i = 0;
  while (i < sizeof types / sizeof *types && strcmp(types[i].name, name) != 0)
    i++;
  if (i == sizeof types / sizeof *types)
    return false;
  p->kind = types[i].kind;
  p->type = types[i].type;
  p->whole = strcmp(name, "number") == 0;
  if (p->kind == FL_P_ENUM) {
    if (!accept(r, '('))
      return false;
    p->choices = r->at;
    p->choices_len = (int)strcspn(r->at, ")");
    r->at += p->choices_len;
    return accept(r, ')');
  }
  return true;
}

/* "int" is an integer input in elementwise rows and a count in all others. */
static void settle_int(fl_op *op, fl_param *p) {
  if (p->kind == FL_P_TENSOR && p->type == FL_T_INT &&
      op->family >= FLI_STRUCTURED)
    p->kind = FL_P_INT;
}

static bool read_param(reader *r, fl_op *op) {
  if (op->info.n_params == FL_MAX_PARAMS)
    return false;
  fl_param *p = &op->info.params[op->info.n_params];
  if (!word(r, p->name, sizeof p->name) || !accept(r, ':') || !read_type(r, p))
    return false;
  settle_int(op, p);
  if (accept(r, '?'))
    p->optional = true;
  if (accept(r, '*'))
    p->variadic = true;
  if (accept(r, '!')) {
    p->written = true;
    p->written_if = r->at;
    while (is_word(*r->at))
      r->at++;
  }
  bool input = p->kind == FL_P_TENSOR || p->kind == FL_P_RNG;
  if (!input && op->info.n_attr == FL_MAX_ATTRS)
    return false;
  p->slot = input ? op->info.n_in : op->info.n_attr;
  if (accept(r, '=') && !read_default(r, p))
    return false;
  if (!p->has_default && p->kind == FL_P_REAL)
    p->value.f = NAN;
  else if (!p->has_default && p->kind != FL_P_DIMS && p->kind != FL_P_INTS &&
           p->kind != FL_P_SHAPE)
    p->value.i = FL_ATTR_NONE;
  if (input) {
    op->in_type[p->slot] = (uint8_t)p->type;
    op->in_optional[p->slot] = p->optional || p->kind == FL_P_RNG;
  }
  if (p->variadic)
    op->variadic = op->info.n_params;
  else if (input)
    op->info.n_in++;
  if (!input)
    op->defaults.v[op->info.n_attr++] = p->value;
  if (p->kind == FL_P_RNG)
    op->info.random = true;
  if (p->kind == FL_P_DIM || p->kind == FL_P_DIMS)
    op->dims = true;
  op->info.n_params++;
  return true;
}

/* An input's name in a rule: its slot, -1 if it is none. */
static int rule_input(reader *r, const fl_op *op) {
  char name[20];
  if (!word(r, name, sizeof name))
    return -1;
  int p = find_param(op, name);
  return p < 0 ? -1 : op->info.params[p].slot;
}

static bool read_result(reader *r, fl_op *op) {
  int k = op->info.n_out;
  char name[20];
  if (k == FL_MAX_OUT || !word(r, name, sizeof name))
    return false;
  if (accept(r, ':')) {
    strcpy(op->info.out_name[k], name);
    if (!word(r, name, sizeof name))
      return false;
  }
  if (strcmp(name, "none") == 0)
    return true;
  op->info.n_out++;
  op->out[k].b = -1;
  static const struct {
    const char *name;
    fli_out_rule rule;
  } calls[] = {{"promote", FLI_OUT_PROMOTE}, {"float", FLI_OUT_FLOAT},
               {"acc", FLI_OUT_ACC},         {"wide", FLI_OUT_WIDE},
               {"complex", FLI_OUT_COMPLEX}, {"real", FLI_OUT_REAL}};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    if (strcmp(name, calls[i].name) != 0)
      continue;
    op->out[k].rule = (uint8_t)calls[i].rule;
    if (!accept(r, '('))
      return false;
    op->out[k].a = (int8_t)rule_input(r, op);
    if (accept(r, ','))
      op->out[k].b = (int8_t)rule_input(r, op);
    if (accept(r, ',')) { /* the last of three */
      rule_input(r, op);
      op->out[k].b = -2;
    } else if (op->variadic >= 0 && op->out[k].b < 0)
      op->out[k].b = -2; /* all from a on */
    return accept(r, ')');
  }
  fl_dtype d = fl_dtype_find(name);
  int p = find_param(op, name);
  if (d != FL_NODTYPE && p < 0) {
    op->out[k].rule = FLI_OUT_FIXED;
    op->out[k].a = (int8_t)d;
    return true;
  }
  if (p < 0)
    return false;
  op->out[k].rule =
      op->info.params[p].kind == FL_P_DTYPE ? FLI_OUT_ATTR : FLI_OUT_INPUT;
  op->out[k].a = (int8_t)op->info.params[p].slot;
  return true;
}

/* Inputs with a mark: whether they are always written, or by which flag. */
static bool settle_writes(reader *r, fl_op *op) {
  for (int k = 0; k < op->info.n_params; k++) {
    const fl_param *p = &op->info.params[k];
    const char *end = r->at;
    char name[20];
    if (!p->written)
      continue;
    op->writes = true;
    op->in_writes[p->slot] = FLI_WRITES;
    r->at = p->written_if;
    if (word(r, name, sizeof name)) {
      int flag = find_param(op, name);
      if (flag < 0 || op->info.params[flag].kind != FL_P_FLAG)
        return false;
      op->in_writes[p->slot] =
          (uint8_t)(FLI_WRITES_IF + op->info.params[flag].slot);
    }
    r->at = end;
  }
  return true;
}

/* The integers of `number` parameters lie behind the last attribute. */
static bool place_wholes(fl_op *op) {
  int next = op->info.n_attr;
  for (int i = 0; i < op->info.n_params; i++)
    if (op->info.params[i].whole)
      op->info.params[i].whole = next++;
  return next <= FL_MAX_ATTRS;
}

static bool read_signature(reader *r, fl_op *op) {
  do {
    if (!read_param(r, op))
      return false;
  } while (accept(r, ','));
  if (!settle_writes(r, op))
    return false;
  blanks(r);
  if (strncmp(r->at, "->", 2) != 0)
    return false;
  r->at += 2;
  do {
    if (!read_result(r, op))
      return false;
    if (accept(r, ';')) {
      op->info.n_shown = op->info.n_out;
      r->at--;
    }
  } while (accept(r, ',') || accept(r, ';'));
  if (op->info.n_shown == 0)
    op->info.n_shown = op->info.n_out;
  blanks(r);
  return *r->at == 0 && place_wholes(op);
}

static fl_status parse(fl_op *op) {
  reader r = {.at = op->info.signature, .op = op};
  if (read_signature(&r, op))
    return FL_OK;
  return fli_fail(FL_EARG, "%s: bad signature near \"%s\": %s", op->info.name,
                  r.word, op->info.signature);
}

/* --- building the table --- */

/* The signature of gelu_backward from that of gelu: its input gives way to what
 * backward takes, its attributes stay. Where f' is a constant nothing is saved.
 */
static const char *backward_signature(fl_runtime *rt, const row *w) {
  const char *attrs = strchr(w->sig, ','), *arrow = strstr(w->sig, " ->");
  bool first = w->family == FLI_UNARY_BACKWARD;
  int n = attrs && attrs < arrow ? (int)(arrow - attrs) : 0;
  char *text = fli_malloc(rt, 64 + (size_t)n);
  if (text)
    sprintf(text, "%sdy:float, saved:float%s%.*s -> dy",
            first ? "" : "ddx:float, ",
            (first ? w[-1].saves : w[-2].saves) == NONE ? "?" : "", n,
            n ? attrs : "");
  return text;
}

static bool keeps_shape(const fl_op *op) {
  return op->shape == fli_shape_same || op->family == FLI_UNARY ||
         op->family == FLI_BINARY || op->family == FLI_COMPARE ||
         op->family == FLI_TERNARY;
}

/* Whether the result can be written over the first input: there is one, of the
 * first input's shape and of a dtype that follows its dtype (or a truth value,
 * which is stored as 0 or 1). */
static bool allows_inplace(const fl_op *op) {
  bool follows = op->out[0].rule == FLI_OUT_FIXED || op->out[0].a == 0;
  return op->info.n_shown == 1 && op->info.n_in > 0 &&
         op->info.params[0].kind == FL_P_TENSOR &&
         !op->info.params[0].variadic &&
         (op->marks & FLI_MARK_INPLACE || (keeps_shape(op) && follows));
}

static bool takes_floats(const fl_op *op) {
  for (int k = 0; k < op->info.n_params; k++) {
    const fl_param *p = &op->info.params[k];
    if (p->kind == FL_P_TENSOR && p->type != FL_T_INT && p->type != FL_T_BOOL &&
        p->type != FL_T_INDEX && p->type != FL_T_ID)
      return true;
  }
  return false;
}

static bool gives_floats(const fl_op *op) {
  for (int k = 0; k < op->info.n_shown; k++)
    if (op->out[k].rule != FLI_OUT_FIXED ||
        fli_is_float((fl_dtype)op->out[k].a))
      return true;
  return false;
}

/* Whether gradients go through it: a composed row has no rule of its own, but
 * those of the rows it is made of. */
static bool is_differentiable(const fl_op *op) {
  bool rule = op->family == FLI_COMPOSE ? !(op->marks & FLI_MARK_CONSTANT)
                                        : op->grad && op->grad != fli_grad_once;
  return rule && takes_floats(op) && gives_floats(op);
}

/* How many inputs a row has on the short path (flat.c); 0: never takes it. */
static int count_flat_inputs(const fl_op *op) {
  bool floats = op->in_type[0] != FL_T_INT && op->in_type[0] != FL_T_BOOL;
  switch (op->family) {
  case FLI_UNARY:
  case FLI_TEST:
    return floats ? 1 : 0;
  case FLI_BINARY:
  case FLI_COMPARE:
  case FLI_UNARY_BACKWARD:
    return floats ? 2 : 0;
  default:
    return 0;
  }
}

static fl_status op_fill(fl_runtime *rt, fl_op *op, int id) {
  const row *w = &rows[id];
  op->id = id;
  op->family = w->family;
  op->cast = w->cast;
  op->saves = w->saves;
  op->variadic = -1;
  op->info.name = w->name;
  op->info.signature = w->sig;
  op->info.family = families[w->family];
  op->shape = w->shape;
  op->grad = w->grad == fli_grad_none ? NULL : w->grad;
  op->cost = w->cost;
  op->cost_rule = w->cost_rule + sizeof "fli_cost_" - 1;
  op->view = w->view;
  op->compose = w->compose;
  op->shows = w->shows;
  if (w->family == FLI_UNARY_BACKWARD || w->family == FLI_UNARY_BACKWARD2)
    op->info.signature = backward_signature(rt, w);
  if (!op->info.signature)
    return FL_ENOMEM;
  if (w->family == FLI_UNARY_BACKWARD)
    op->saves = A | B;
  if (w->family == FLI_UNARY_BACKWARD2)
    op->saves = A | B | C;
  FLI_TRY(parse(op));
  op->info.view = w->family == FLI_VIEW;
  op->info.inplace = allows_inplace(op);
  op->info.composed = w->family == FLI_COMPOSE;
  op->info.collective = op->marks & FLI_MARK_COLLECTIVE;
  op->info.backward = w->family == FLI_UNARY_BACKWARD ||
                      w->family == FLI_UNARY_BACKWARD2 ||
                      op->marks & FLI_MARK_BACKWARD;
  if (op->marks & FLI_MARK_TRANSFERS)
    op->modes |= 1u << FLI_MODE_TRANSFER;
  if (op->marks & (FLI_MARK_BOUNDS | FLI_MARK_ORDER))
    op->modes |= 1u << FLI_MODE_INTEGERS;
  if (op->family < FLI_STRUCTURED) {
    op->marks |= FLI_MARK_POINTWISE;
    op->layout = fli_layout_alike;
    if (op->family == FLI_UNARY_BACKWARD || op->family == FLI_UNARY_BACKWARD2)
      op->layout = fli_layout_saved;
  }
  op->flat = (uint8_t)count_flat_inputs(op);
  op->info.differentiable = is_differentiable(op);
  return FL_OK;
}

/* Rows by name: a slot has a row's number + 1, or the next slot is tried. */
#define SLOTS 2048
_Static_assert(2 * sizeof rows / sizeof *rows <= SLOTS,
               "slots are half empty at least");

static unsigned slot_of(const char *name) {
  uint32_t h = 0x811c9dc5u; /* FNV-1a */
  for (; *name; name++)
    h = (h ^ (unsigned char)*name) * 0x01000193u;
  return (h ^ h >> 15) % SLOTS;
}

static void op_enter(fl_runtime *rt, int id) {
  unsigned at = slot_of(rows[id].name);
  while (rt->op_slots[at])
    at = (at + 1) % SLOTS;
  rt->op_slots[at] = (uint16_t)(id + 1);
}

int fl_op_row(fl_runtime *rt, const char *name) {
  FLI_NEED_OR(rt, "rt", -1);
  FLI_NEED_OR(name, "name", -1);
  for (unsigned at = slot_of(name); rt->op_slots[at]; at = (at + 1) % SLOTS)
    if (strcmp(rows[rt->op_slots[at] - 1].name, name) == 0)
      return rt->op_slots[at] - 1;
  return -1;
}

fl_status fli_ops_init(fl_runtime *rt) {
  int n = (int)(sizeof rows / sizeof *rows);
  rt->op_slots = fli_malloc(rt, SLOTS * sizeof *rt->op_slots);
  if (!rt->op_slots)
    return FL_ENOMEM;
  memset(rt->op_slots, 0, SLOTS * sizeof *rt->op_slots);
  for (int i = 0; i < n; i++)
    op_enter(rt, i);
  rt->ops = fli_malloc(rt, (size_t)n * sizeof *rt->ops);
  if (!rt->ops)
    return FL_ENOMEM;
  memset(rt->ops, 0, (size_t)n * sizeof *rt->ops);
  rt->n_ops = n;
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
    rt->ops[marks[i].id].marks |= (uint16_t)marks[i].mark;
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
    rt->ops[layouts[i].id].layout = layouts[i].rule;
  for (int i = 0; i < n; i++)
    FLI_TRY(op_fill(rt, &rt->ops[i], i));
  for (size_t i = 0; i < sizeof docs / sizeof *docs; i++)
    rt->ops[docs[i].id].info.doc = docs[i].text;
  return FL_OK;
}

void fli_ops_close(fl_runtime *rt) {
  for (int i = 0; i < rt->n_ops && rt->ops; i++)
    if (rt->ops[i].info.signature != rows[i].sig)
      fli_mfree((void *)(uintptr_t)rt->ops[i].info.signature);
  fli_mfree(rt->ops);
  fli_mfree(rt->op_slots);
  rt->ops = NULL;
  rt->op_slots = NULL;
  for (fl_op *op = rt->more_ops, *next; op; op = next) {
    next = op->next;
    if (op->native)
      rt->up->native_free(op->native);
    fli_mfree(op);
  }
  rt->more_ops = NULL;
}

fl_status fli_op_new(fl_runtime *rt, const char *name, const char *signature,
                     const char *kernel, fl_op **result) {
  const char *const texts[] = {name, signature, kernel};
  char *copies[3];
  size_t room = sizeof(fl_op);
  for (int k = 0; k < 3; k++)
    room += strlen(texts[k]) + 1;
  fl_op *op = fli_malloc(rt, room);
  if (!op)
    return FL_ENOMEM;
  memset(op, 0, sizeof *op);
  char *at = (char *)(op + 1);
  for (int k = 0; k < 3; k++) {
    copies[k] = strcpy(at, texts[k]);
    at += strlen(at) + 1;
  }
  op->id = FLI_OPS;
  op->family = FLI_STRUCTURED;
  op->variadic = -1;
  op->info.name = copies[0];
  op->info.signature = copies[1];
  op->info.family = families[FLI_STRUCTURED];
  op->kernel_name = copies[2];
  op->cost = fli_cost_bytes;
  op->cost_rule = "bytes";
  fl_status s = parse(op);
  if (s) {
    fli_mfree(op);
    return s;
  }
  for (int k = 0; k < rt->n_backends; k++)
    op->kernel[k] = rt->backends[k]->kernel(rt->backends[k], kernel);
  op->next = rt->more_ops;
  rt->more_ops = op;
  *result = op;
  return FL_OK;
}

/* --- looking up --- */

const fl_op *fl_op_find(fl_runtime *rt, const char *name) {
  FLI_NEED_OR(rt, "rt", NULL);
  FLI_NEED_OR(name, "name", NULL);
  int k = fl_op_row(rt, name);
  if (k >= 0)
    return &rt->ops[k];
  for (const fl_op *op = rt->more_ops; op; op = op->next)
    if (op->native && strcmp(op->info.name, name) == 0)
      return op;
  for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
    if (strcmp(aliases[i].name, name) == 0)
      return &rt->ops[aliases[i].id];
  fli_fail(FL_EARG, "there is no operator \"%s\"", name);
  return NULL;
}

int fl_op_count(fl_runtime *rt) {
  FLI_NEED_OR(rt, "rt", 0);
  return rt->n_ops;
}

const fl_op *fl_op_at(fl_runtime *rt, int i) {
  FLI_NEED_OR(rt, "rt", NULL);
  return i >= 0 && i < rt->n_ops ? &rt->ops[i] : NULL;
}

const fl_op_info *fl_op_get(const fl_op *op) {
  FLI_NEED_OR(op, "op", NULL);
  return &op->info;
}

bool fl_op_has_kernel(const fl_op *op, fl_device d) {
  FLI_NEED_OR(op, "op", false);
  return d >= 0 && d >> 8 < FLI_MAX_BACKENDS && op->kernel[d >> 8];
}

const fl_attrs *fl_op_defaults(const fl_op *op) {
  FLI_NEED_OR(op, "op", NULL);
  return &op->defaults;
}

fl_status fl_attrs_list(fl_attrs *a, int k, int n, const int64_t *v) {
  FLI_NEED(a, "a");
  if (n > 0)
    FLI_NEED(v, "v");
  if (k < 0 || k >= FL_MAX_ATTRS || n < 0 ||
      a->used + (uint32_t)n > FL_MAX_LIST)
    return fli_fail(FL_ESIZE, "a list of %d numbers is too long", n);
  a->v[k].list.n = (uint32_t)n;
  a->v[k].list.at = a->used;
  if (n)
    memcpy(a->list + a->used, v, (size_t)n * sizeof *v);
  a->used += (uint32_t)n;
  return FL_OK;
}

/* A list is written in groups of as many tensors: all but the gradients, the
 * second of them (the steps of optimizers; see ops.def). */
static bool writes_of_list(const fl_attrs *a, int n, int i) {
  int64_t moments = a->v[FL_ATTR_step_moments].i;
  int count = moments < 0 ? n : n / (int)(2 + moments);
  return moments < 0 || i < count || i >= 2 * count;
}

bool fli_op_writes(const fl_op *op, const fl_attrs *a, int n_in, int k) {
  int first = op->info.n_in, how = op->in_writes[k < first ? k : first];
  if (!op->writes || how == FLI_WRITES_NOT)
    return false;
  a = a ? a : &op->defaults;
  if (how >= FLI_WRITES_IF)
    return a->v[how - FLI_WRITES_IF].i != 0;
  return k < first || writes_of_list(a, n_in - first, k - first);
}

void fli_ops_backend(fl_runtime *rt, int k) {
  fl_backend *b = rt->backends[k];
  for (int i = 0; i < rt->n_ops; i++)
    if (rt->ops[i].family != FLI_VIEW && rt->ops[i].family != FLI_COMPOSE)
      rt->ops[i].kernel[k] = b->kernel(b, rt->ops[i].info.name);
  for (fl_op *op = rt->more_ops; op; op = op->next)
    op->kernel[k] = b->kernel(b, op->kernel_name);
}

fl_status fli_no_tensor(const fl_op *op) {
  const fl_op_info *info = &op->info;
  for (int k = 0; k < info->n_params; k++)
    if (info->params[k].kind == FL_P_TENSOR)
      return fli_fail(FL_EARG, "%s takes a tensor as %s, got a number: %s",
                      info->name, info->params[k].name, info->signature);
  return FL_EARG;
}
