/* Text to expression graphs: assignments in C's syntax whose functions are the
 * elementwise rows. One pass: nodes are made while the text is read. */
#include "../math/math.h"
#include "scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 200

/* --- values --- */

static fl_value parse_apply(fli_parser *p, const char *at, int op,
                            const fl_attrs *attrs, int n, const fl_value *in) {
  fl_value out = fli_none();
  if (p->status)
    return out;
  fl_status s = fli_graph_apply(p->g, op, attrs, n, in, &out);
  return s ? fli_refused(p, at, s) : out;
}

static fl_value parse_cast(fli_parser *p, const char *at, fl_value v,
                           fl_dtype d) {
  fl_value out = fli_none();
  if (p->status)
    return out;
  fl_status s = fli_graph_cast(p->g, v, d, &out);
  return s ? fli_refused(p, at, s) : out;
}

static fl_value condition(fli_parser *p, const char *at, fl_value v) {
  fl_dtype d = p->status ? FL_BOOL : fli_graph_dtype(p->g, v);
  if (d == FL_BOOL || d == FL_NODTYPE)
    return v;
  return parse_apply(p, at, FLI_OP_ne, NULL, 2,
                     (fl_value[]){v, fli_integer(0)});
}

static fl_value parse_choose(fli_parser *p, const char *at, fl_value c,
                             fl_value a, fl_value b) {
  return parse_apply(p, at, FLI_OP_where, NULL, 3,
                     (fl_value[]){condition(p, at, c), a, b});
}

static fl_value ternary(fli_parser *p);

static fl_value read_number(fli_parser *p) {
  fli_token t = p->t;
  bool whole = true, hex = t.len > 2 && (t.at[1] == 'x' || t.at[1] == 'X');
  for (int i = 0; i < t.len; i++)
    whole = whole && (fli_is_digit(t.at[i]) || strchr("uUlL", t.at[i]));
  fli_advance(p);
  if (fli_is_letter(*(t.at + t.len)))
    return fli_bad(p, t.at, "\"%.*s...\" is no number", t.len, t.at);
  if (whole || hex)
    return fli_integer((int64_t)strtoull(t.at, NULL, hex ? 16 : 10));
  return fli_number(fli_strtod(t.at, NULL));
}

static fli_variable *find_var(fli_parser *p, const fli_token *t) {
  for (int k = p->n_vars - 1; k >= 0; k--)
    if (fli_is(t, p->vars[k].name))
      return &p->vars[k];
  return NULL;
}

/* --- functions --- */

static bool is_elementwise(const fl_op *op) {
  return op->family < FLI_STRUCTURED && op->family != FLI_UNARY_BACKWARD &&
         op->family != FLI_UNARY_BACKWARD2;
}

static const struct {
  const char *name;
  int op;
} aliases[] = {
#define FL_ALIAS(alias, name)          {#alias, FLI_OP_##name},
#define FL_OVERLOAD(alias, name, when) OVERLOAD_##when(alias, name)
#define OVERLOAD_ALL(alias, name)
#define OVERLOAD_DIM(alias, name)
#define OVERLOAD_TENSOR(alias, name) {#alias, FLI_OP_##name},
#include "../ops.def"
};

/* Formulas write fl_exp for exp. */
static const fl_op *function_of(fli_parser *p, const fli_token *written) {
  fli_token own = *written, *t = &own;
  const fl_runtime *rt = p->s->rt;
  if (t->len > 3 && memcmp(t->at, "fl_", 3) == 0) {
    t->at += 3;
    t->len -= 3;
  }
  for (size_t k = 0; k < sizeof aliases / sizeof *aliases; k++)
    if (fli_is(t, aliases[k].name))
      return &rt->ops[aliases[k].op];
  for (int k = 0; k < rt->n_ops; k++)
    if (fli_is(t, rt->ops[k].info.name))
      return &rt->ops[k];
  return NULL;
}

static fl_value no_function(fli_parser *p, const fli_token *t) {
  const fl_runtime *rt = p->s->rt;
  fli_nearest n = {t->at, t->len, 3, NULL};
  char hint[80];
  for (int k = 0; k < rt->n_ops; k++)
    if (is_elementwise(&rt->ops[k]))
      fli_consider(&n, rt->ops[k].info.name);
  return fli_bad(p, t->at, "there is no function \"%.*s\"%s", t->len, t->at,
                 fli_meant(&n, hint, sizeof hint));
}

/* One of an attribute's names: "tanh" for gelu's approx. */
static int64_t read_choice(fli_parser *p, const fl_op *op, const fl_param *q) {
  const char *s = q->choices, *end = s + q->choices_len;
  for (int64_t i = 0; s < end && p->t.kind == WORD; i++) {
    size_t n = 0;
    while (s + n < end && s[n] != '|')
      n++;
    if ((int)n == p->t.len && memcmp(s, p->t.at, n) == 0) {
      fli_advance(p);
      return i;
    }
    s += n + 1;
  }
  fli_bad(p, p->t.at, "%s: %s is one of %.*s", op->info.name, q->name,
          q->choices_len, q->choices);
  return 0;
}

static const fl_param *parse_param(const fl_op *op, bool input, int slot) {
  for (int k = 0; k < op->info.n_params; k++) {
    const fl_param *q = &op->info.params[k];
    if ((q->kind == FL_P_TENSOR) == input && q->slot == slot)
      return q;
  }
  return NULL;
}

/* Bounds may vary: then the row is a minimum of a maximum. */
static fl_value varying_clamp(fli_parser *p, const char *at, const fl_value *v,
                              int n) {
  fl_value low = parse_apply(p, at, FLI_OP_maximum, NULL, 2, v);
  if (n < 3)
    return low;
  return parse_apply(p, at, FLI_OP_minimum, NULL, 2, (fl_value[]){low, v[2]});
}

static fl_reduction reduction_of(const fl_op *op) {
  static const struct {
    int op;
    fl_reduction kind;
  } kinds[] = {
#define FL_REDUCES(name, kind) {FLI_OP_##name, FL_REDUCE_##kind},
#include "../ops.def"
  };
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    if (kinds[k].op == op->id)
      return kinds[k].kind;
  return FL_REDUCE_NONE;
}

/* sum(x): over the dims that the row with this body reduces. */
static fl_value parse_reduction(fli_parser *p, const fli_token *name,
                                fl_reduction kind) {
  fl_value v = ternary(p), out = fli_none();
  fli_expect(p, ")");
  if (p->status)
    return out;
  fl_status s = p->g->reduce(p->g->context, kind, v, &out);
  return s ? fli_refused(p, name->at, s) : out;
}

/* either(weight, 1): an input, or what stands for it where it is left out. */
static fl_value parse_either(fli_parser *p) {
  fl_value v = ternary(p);
  fli_expect(p, ",");
  fl_value other = ternary(p);
  fli_expect(p, ")");
  return fli_nothing(v) ? other : v;
}

static fl_value parse_call(fli_parser *p, const fli_token *name) {
  if (p->g->reduce && fli_is(name, "either"))
    return parse_either(p);
  if (p->g->reduce && fli_is(name, "average"))
    return parse_reduction(p, name, FL_REDUCE_MEAN);
  if (p->g->reduce && fli_is(name, "deviation"))
    return parse_reduction(p, name, FL_REDUCE_DEVIATION);
  const fl_op *op = function_of(p, name);
  fl_value v[3 + FL_MAX_ATTRS];
  fl_attrs attrs;
  int n = 0, n_in = 0;
  if (!op)
    return no_function(p, name);
  if (p->g->reduce && op->marks & FLI_MARK_REDUCES)
    return parse_reduction(p, name, reduction_of(op));
  if (!is_elementwise(op))
    return fli_bad(
        p, name->at,
        "%s is not elementwise, and cannot be part of an expression%s",
        op->info.name,
        op->marks & FLI_MARK_REDUCES ? "; flare.reduce can reduce one" : "");
  n_in = op->info.n_in;
  attrs = op->defaults;
  bool varying = false, more = !fli_is(&p->t, ")");
  while (more && p->status == FL_OK) {
    const fl_param *q = n < n_in ? NULL : parse_param(op, false, n - n_in);
    const char *at = p->t.at;
    if (n >= n_in && !q)
      return fli_bad(p, at, "%s takes at most %d value%s", op->info.name, n,
                     FLI_S(n));
    if (q && q->kind == FL_P_ENUM) {
      attrs.v[n - n_in].i = read_choice(p, op, q);
    } else {
      v[n] = ternary(p);
      if (q && fli_is_number(v[n]))
        attrs.v[n - n_in].f = v[n].dtype == FL_F64 ? v[n].f : (double)v[n].i;
      else if (q && op->marks & FLI_MARK_BOUNDS)
        varying = true;
      else if (q)
        return fli_bad(p, at, "%s: %s must be a number", op->info.name,
                       q->name);
    }
    n++;
    more = fli_accept(p, ",");
  }
  fli_expect(p, ")");
  if (n < n_in)
    return fli_bad(p, name->at, "%s takes %d value%s, not %d", op->info.name,
                   n_in, FLI_S(n_in), n);
  if (varying)
    return varying_clamp(p, name->at, v, n);
  for (int k = 0; k < n_in; k++)
    if (op->in_type[k] == FL_T_BOOL)
      v[k] = condition(p, name->at, v[k]);
  return parse_apply(p, name->at, op->id, &attrs, n_in, v);
}

/* --- expressions --- */

static fl_value no_variable(fli_parser *p, const fli_token *t) {
  fli_nearest n = {t->at, t->len, 3, NULL};
  char hint[80];
  const fl_op *op = function_of(p, t);
  if (op && is_elementwise(op))
    return fli_bad(p, t->at, "%s is a function: %s(...)", op->info.name,
                   op->info.name);
  for (int k = 0; k < p->n_vars; k++)
    fli_consider(&n, p->vars[k].name);
  return fli_bad(p, t->at, "%.*s is not declared%s", t->len, t->at,
                 fli_meant(&n, hint, sizeof hint));
}

static fl_value word(fli_parser *p) {
  static const struct {
    const char *name;
    double value;
  } constants[] = {{"pi", 3.14159265358979323846},
                   {"M_PI", 3.14159265358979323846},
                   {"inf", INFINITY},
                   {"INFINITY", INFINITY},
                   {"nan", NAN},
                   {"NAN", NAN},
                   /* of formulas */
                   {"FL_LN2", FL_LN2},
                   {"FL_LOG2E", FL_LOG2E},
                   {"FL_LOG10E", FL_LOG10E},
                   {"FL_2_SQRTPI", FL_2_SQRTPI},
                   {"FL_SELU_S", FL_SELU_S},
                   {"FL_SELU_A", FL_SELU_A}};
  fli_token t = p->t;
  fli_advance(p);
  if (fli_accept(p, "("))
    return parse_call(p, &t);
  fli_variable *v = find_var(p, &t);
  if (v && !v->set)
    return fli_bad(p, t.at, "%s is read before it is assigned", v->name);
  if (v)
    return v->value;
  if (fli_is(&t, "true") || fli_is(&t, "false"))
    return (fl_value){.dtype = FL_BOOL, .i = fli_is(&t, "true")};
  for (size_t k = 0; k < sizeof constants / sizeof *constants; k++)
    if (fli_is(&t, constants[k].name))
      return fli_number(constants[k].value);
  return no_variable(p, &t);
}

/* The dtype that a type's name stands for; FL_NODTYPE while it is not known. */
static fl_dtype parse_resolve(fli_parser *p, const fli_token *t) {
  fl_dtype d = fli_named_type(t);
  int k = fli_find_letter(p, t);
  if (d == FL_NODTYPE && k < 0)
    fli_no_type(p, t);
  return d != FL_NODTYPE || k < 0 ? d : p->types[k].dtype;
}

static bool is_cast(fli_parser *p) {
  fli_token t = fli_peek(p); /* behind '(' */
  if (t.kind != WORD ||
      (fli_named_type(&t) == FL_NODTYPE && fli_find_letter(p, &t) < 0))
    return false;
  const char *behind = fli_skip_blanks(t.at + t.len);
  return *behind == ')';
}

static fl_value parse_unary(fli_parser *p);

static int find_prefix(const fli_token *t) {
  static const struct {
    const char *sign;
    int op;
  } prefixes[] = {
#define FL_PREFIX(name, sign) {sign, FLI_OP_##name},
#include "../ops.def"
  };
  for (size_t k = 0; k < sizeof prefixes / sizeof *prefixes; k++)
    if (fli_is(t, prefixes[k].sign))
      return prefixes[k].op;
  return -1;
}

static fl_value one_value(fli_parser *p) {
  fli_token t = p->t;
  if (t.kind == NUMBER)
    return read_number(p);
  if (t.kind == WORD)
    return word(p);
  if (fli_is(&t, "(") && is_cast(p)) {
    fli_advance(p);
    fl_dtype d = parse_resolve(p, &p->t);
    fli_advance(p);
    fli_expect(p, ")");
    fl_value v = parse_unary(p);
    return parse_cast(p, t.at, v, d);
  }
  if (fli_accept(p, "(")) {
    fl_value v = ternary(p);
    fli_expect(p, ")");
    return v;
  }
  if (fli_accept(p, "+"))
    return parse_unary(p);
  int op = find_prefix(&t);
  if (op < 0)
    return fli_bad(p, t.at,
                   t.kind == END ? "a value is missing at the end"
                                 : "expected a value before '%.*s'",
                   t.len, t.at);
  fli_advance(p);
  fl_value v = parse_unary(p);
  return parse_apply(p, t.at, op, NULL, 1, &v);
}

static fl_value parse_unary(fli_parser *p) {
  if (p->depth == MAX_DEPTH)
    return fli_bad(p, p->t.at, "nested more than %d deep", MAX_DEPTH);
  p->depth++;
  fl_value v = one_value(p);
  p->depth--;
  return v;
}

static const struct {
  const char *sign;
  int level, op;
} operators[] = {
#define FL_INFIX(name, sign, level) {sign, level, FLI_OP_##name},
#include "../ops.def"
};

static int find_operator(const fli_token *t) {
  int n = (int)(sizeof operators / sizeof *operators), k = 0;
  while (k < n && !fli_is(t, operators[k].sign))
    k++;
  return k < n ? k : -1;
}

static fl_value parse_binary(fli_parser *p, int level) {
  fl_value left = parse_unary(p);
  while (p->status == FL_OK && p->t.kind == SIGN) {
    fli_token t = p->t;
    int k = find_operator(&t);
    if (fli_is(&t, "**"))
      return fli_bad(p, t.at, "a power is pow(x, y)");
    if (k < 0 || operators[k].level < level)
      break;
    fli_advance(p);
    fl_value in[2] = {left, parse_binary(p, operators[k].level + 1)};
    left = parse_apply(p, t.at, operators[k].op, NULL, 2, in);
    if (p->status == FL_EDTYPE && fli_is(&t, "^"))
      fli_fail(FL_EDTYPE, "%s\n  (^ is exclusive or; a power is pow(x, y))",
               fl_error());
  }
  return left;
}

static fl_value parse_choice(fli_parser *p) {
  const char *at = p->t.at;
  fl_value c = parse_binary(p, 1);
  if (!fli_accept(p, "?"))
    return c;
  fl_value a = ternary(p);
  fli_expect(p, ":");
  fl_value b = ternary(p);
  if (p->g->reduce && c.dtype == FL_BOOL) /* an attribute of the row */
    return c.i ? a : b;
  return parse_choose(p, at, c, a, b);
}

static fl_value ternary(fli_parser *p) {
  if (p->depth == MAX_DEPTH)
    return fli_bad(p, p->t.at, "nested more than %d deep", MAX_DEPTH);
  p->depth++;
  fl_value v = parse_choice(p);
  p->depth--;
  return v;
}

/* --- statements --- */

/* A value on its way into a fli_variable of a declared type. */
static void assign(fli_parser *p, const char *at, fli_variable *v,
                   fl_value value) {
  if (p->status)
    return;
  fl_dtype from = fli_graph_dtype(p->g, value), to = v->dtype;
  if (to != FL_NODTYPE && from != FL_NODTYPE) {
    fl_kind a = fl_dtype_kind(from), b = fl_dtype_kind(to);
    if (a > b && (a == FL_KIND_FLOAT || b == FL_KIND_BOOL)) {
      char is_what[32] = "";
      if (v->type[0] && strcmp(v->type, fl_dtype_name(to)) != 0)
        snprintf(is_what, sizeof is_what, "%s, here ", v->type);
      fli_bad(
          p, at,
          "%s is %s%s, but its value is %s: declare it so, or convert: (%s)",
          v->name, is_what, fl_dtype_name(to), fl_dtype_name(from),
          v->type[0] ? v->type : fl_dtype_name(to));
      p->status = FL_EDTYPE;
      return;
    }
    value = parse_cast(p, at, value, to);
  } else if (v->kind == OUTPUT && fli_is_number(value)) {
    value =
        parse_cast(p, at, value, value.dtype == FL_F64 ? FL_F32 : value.dtype);
  }
  v->value = value;
  v->set = true;
}

static fli_variable *new_var(fli_parser *p, const fli_token *name) {
  fli_variable *v = find_var(p, name);
  if (v) {
    fli_bad(p, name->at, "%s is declared already", v->name);
    return NULL;
  }
  if (p->n_vars == FLI_EXPR_VARS) {
    fli_bad(p, name->at, "more than %d variables", FLI_EXPR_VARS);
    return NULL;
  }
  v = &p->vars[p->n_vars];
  *v = (fli_variable){.dtype = FL_NODTYPE, .kind = LOCAL};
  if (!fli_copy_word(v->name, sizeof v->name, name)) {
    fli_bad(p, name->at, "expected a name");
    return NULL;
  }
  return v;
}

/* T t = ..., u = ...; */
static void declaration(fli_parser *p) {
  fli_token type = p->t;
  fl_dtype d = FL_NODTYPE;
  if (!fli_is(&type, "auto"))
    d = parse_resolve(p, &type);
  do {
    fli_advance(p);
    fli_token name = p->t;
    fli_variable *v = new_var(p, &name);
    if (!v)
      return;
    v->dtype = d;
    if (!fli_is(&type, "auto"))
      fli_copy_word(v->type, sizeof v->type, &type);
    fli_advance(p);
    fli_expect(p, "=");
    fl_value value = ternary(p);
    assign(p, name.at, v, value);
    p->n_vars++; /* from here on */
  } while (p->status == FL_OK && fli_is(&p->t, ","));
}

static void assignment(fli_parser *p) {
  fli_token name = p->t, sign = fli_peek(p), first = sign;
  fli_variable *v = find_var(p, &name);
  first.len = 1; /* the + of += */
  int k = sign.len > 1 ? find_operator(&first) : -1;
  if (!v && p->g->reduce) { /* a result of the row that is not asked for */
    fli_advance(p);
    fli_advance(p);
    ternary(p);
    return;
  }
  if (!v) {
    no_variable(p, &name);
    return;
  }
  if (v->kind == INPUT) {
    fli_bad(p, name.at, "%s is an input; what changes is a local: %s t = %s",
            v->name, v->type, v->name);
    return;
  }
  if (k >= 0 && !v->set) {
    fli_bad(p, name.at, "%s is read before it is assigned", v->name);
    return;
  }
  fli_advance(p);
  fli_advance(p);
  fl_value value = ternary(p);
  if (k >= 0)
    value = parse_apply(p, sign.at, operators[k].op, NULL, 2,
                        (fl_value[]){v->value, value});
  assign(p, name.at, v, value);
}

static bool is_assignment(const fli_token *t) {
  return fli_is(t, "=") || fli_is(t, "+=") || fli_is(t, "-=") ||
         fli_is(t, "*=") || fli_is(t, "/=");
}

static fli_variable *only_output(fli_parser *p) {
  fli_variable *found = NULL;
  for (int k = 0; k < p->n_vars; k++)
    if (p->vars[k].kind == OUTPUT) {
      if (found)
        return NULL;
      found = &p->vars[k];
    }
  return found && !found->set ? found : NULL;
}

static void statement(fli_parser *p) {
  static const struct {
    const char *word, *hint;
  } words[] = {{"if", "an expression chooses: z = x > 0 ? x : 0"},
               {"return", "a result is assigned: z = ..."},
               {"for", "expressions have no loops"},
               {"while", "expressions have no loops"}};
  fli_accept(p, "const");
  fli_token t = p->t, behind = fli_peek(p);
  for (size_t k = 0; k < sizeof words / sizeof *words; k++)
    if (fli_is(&t, words[k].word)) {
      fli_bad(p, t.at, "%s: %s", words[k].word, words[k].hint);
      return;
    }
  if (t.kind == WORD && behind.kind == WORD) {
    declaration(p);
  } else if (t.kind == WORD && is_assignment(&behind)) {
    assignment(p);
  } else {
    fli_variable *z = only_output(p);
    fl_value v = ternary(p);
    if (p->status == FL_OK && !z)
      fli_bad(p, t.at,
              "a value that nothing is done with: assign it, as in z = x");
    else if (p->status == FL_OK)
      assign(p, t.at, z, v);
  }
}

/* --- the whole --- */

/* Input k, its letter and its dtype. */
static void declare_inputs(fli_parser *p, int n, const fli_decl *d,
                           const fl_dtype *dtypes, const int *weak) {
  for (int k = 0; k < n && p->status == FL_OK; k++) {
    fli_variable *v = &p->vars[p->n_vars++];
    *v = (fli_variable){.dtype = d[k].dtype, .kind = INPUT, .set = true};
    strcpy(v->name, d[k].name);
    strcpy(v->type, d[k].type);
    p->status = fli_graph_input(p->g, dtypes ? dtypes[k] : d[k].dtype,
                                weak ? weak[k] : FLI_TENSOR, &v->value);
    fli_token type = {WORD, d[k].type, (int)strlen(d[k].type)};
    if (d[k].dtype == FL_NODTYPE && fli_find_letter(p, &type) < 0) {
      strcpy(p->types[p->n_types].name, d[k].type);
      p->types[p->n_types++].dtype = FL_NODTYPE;
    }
  }
}

/* A letter is what all its inputs promote to; then they are of that type. */
static void settle_inputs(fli_parser *p, int n, const int *weak) {
  for (int t = 0; t < p->n_types; t++) {
    fl_value all[FLI_EXPR_VARS];
    int m = 0, w;
    for (int k = 0; k < n; k++)
      if (strcmp(p->vars[k].type, p->types[t].name) == 0)
        all[m++] = p->vars[k].value;
    p->types[t].dtype = fli_graph_promote(p->g, m, all, &w);
    for (int k = 0; k < n && w != FLI_NUMBER; k++) /* numbers stay weak */
      if (strcmp(p->vars[k].type, p->types[t].name) == 0)
        p->vars[k].dtype = p->types[t].dtype;
  }
  for (int k = 0; k < n && p->status == FL_OK; k++) {
    fli_variable *v = &p->vars[k];
    fl_dtype from = fli_graph_dtype(p->g, v->value), to = v->dtype;
    bool number = weak[k] == FLI_NUMBER;
    if (to == FL_NODTYPE)
      continue;
    if (from != to && (number ? fl_dtype_kind(from) > fl_dtype_kind(to)
                              : p->typed && v->type[0] >= 'a')) {
      p->status = fli_fail(
          FL_EDTYPE, "%s%s: %s is declared %s, but a %s%s is given%s",
          p->s->name, p->s->where, v->name, v->type,
          number ? "number of type " : "tensor of ", fl_dtype_name(from),
          number ? "" : "; declare it with a letter (T x) to take any");
      return;
    }
    v->value = parse_cast(p, p->text, v->value, to);
  }
}

static void declare_outputs(fli_parser *p, int n, const fli_decl *d) {
  for (int k = 0; k < n && p->status == FL_OK; k++) {
    fli_token name = {WORD, d[k].name, (int)strlen(d[k].name)};
    fli_token type = {WORD, d[k].type, (int)strlen(d[k].type)};
    int letter = fli_find_letter(p, &type);
    if (find_var(p, &name)) {
      p->status = fli_fail(FL_EARG, "%s%s: %s is an input and an output",
                           p->s->name, p->s->where, d[k].name);
      return;
    }
    fli_variable *v = &p->vars[p->n_vars++];
    *v = (fli_variable){.dtype =
                            letter < 0 ? d[k].dtype : p->types[letter].dtype,
                        .kind = OUTPUT};
    strcpy(v->name, d[k].name);
    strcpy(v->type, d[k].type);
  }
}

static void read_body(fli_parser *p) {
  fli_advance(p);
  while (p->status == FL_OK && p->t.kind != END) {
    if (fli_accept(p, ";"))
      continue;
    statement(p);
    if (p->status == FL_OK && p->t.kind != END)
      fli_expect(p, ";");
  }
}

fl_status fli_expr_parse(const fli_source *s, int n_in, const fli_decl *in,
                         int n_out, const fli_decl *out, const fl_dtype *dtypes,
                         const int *weak, fli_graph *g, fl_value *values,
                         fl_dtype *out_dtypes) {
  fli_parser *p = fli_malloc(s->rt, sizeof *p);
  if (!p)
    return FL_ENOMEM;
  memset(p, 0, sizeof *p);
  p->s = s;
  p->text = p->next = s->body;
  p->typed = dtypes != NULL;
  p->g = g;
  declare_inputs(p, n_in, in, dtypes, weak);
  if (p->typed && p->status == FL_OK)
    settle_inputs(p, n_in, weak);
  declare_outputs(p, n_out, out);
  read_body(p);
  for (int k = 0; k < n_out && p->status == FL_OK; k++) {
    fli_variable *v = &p->vars[n_in + k];
    if (!v->set)
      fli_bad(p, p->text, "%s is never assigned", v->name);
    values[k] = v->value;
    int ignored;
    if (p->typed && p->status == FL_OK)
      out_dtypes[k] = v->dtype != FL_NODTYPE
                          ? v->dtype
                          : fli_graph_promote(g, 1, &v->value, &ignored);
  }
  fl_status status = p->status;
  fli_mfree(p);
  return status;
}

/* A parser of `text` whose type T is t. */
static fli_parser *parser_of(fli_graph *g, fli_source *s, fl_dtype t) {
  fli_parser *r = fli_malloc(g->rt, sizeof *r);
  if (!r)
    return NULL;
  memset(r, 0, offsetof(fli_parser, vars)); /* what is added is set whole */
  r->s = s;
  r->text = r->next = s->body;
  r->typed = true;
  r->g = g;
  strcpy(r->types[r->n_types].name, "T");
  r->types[r->n_types++].dtype = t;
  return r;
}

static void parser_give(fli_parser *r, const char *name, fl_value value) {
  fli_variable *v = &r->vars[r->n_vars++];
  *v = (fli_variable){.kind = INPUT, .set = true, .value = value};
  snprintf(v->name, sizeof v->name, "%s", name);
}

static fli_variable *parser_want(fli_parser *r, const char *name, fl_dtype t) {
  fli_variable *v = &r->vars[r->n_vars++];
  *v = (fli_variable){.dtype = t, .kind = OUTPUT};
  snprintf(v->name, sizeof v->name, "%s", name);
  return v;
}

fl_status fli_expr_formula(fli_graph *g, const char *name, const char *text,
                           fl_dtype t, fl_value x, fl_value y, const double *p,
                           fl_value *out) {
  fli_source s = {.rt = g->rt, .name = name, .where = "", .body = text};
  fli_parser *r = parser_of(g, &s, t);
  if (!r)
    return FL_ENOMEM;
  parser_give(r, "x", x);
  parser_give(r, "y", y);
  parser_give(r, "p0", fli_number(p[0]));
  parser_give(r, "p1", fli_number(p[1]));
  fli_variable *result = parser_want(r, "result", t);
  read_body(r);
  *out = result->value;
  fl_status status = r->status;
  fli_mfree(r);
  return status;
}

fl_status fli_expr_body(fli_graph *g, const char *name, const char *text,
                        fl_dtype t, int n, const fli_named_value *given,
                        int n_out, const char (*out_name)[20], fl_value *out) {
  fli_source s = {.rt = g->rt, .name = name, .where = "", .body = text};
  fli_parser *r = parser_of(g, &s, t);
  if (!r)
    return FL_ENOMEM;
  for (int k = 0; k < n; k++)
    parser_give(r, given[k].name, given[k].value);
  for (int k = 0; k < n_out; k++)
    parser_want(r, out_name[k], t);
  read_body(r);
  for (int k = 0; k < n_out && r->status == FL_OK; k++) {
    out[k] = r->vars[n + k].value;
    if (!r->vars[n + k].set)
      fli_bad(r, r->text, "%s is never assigned", out_name[k]);
  }
  fl_status status = r->status;
  fli_mfree(r);
  return status;
}
