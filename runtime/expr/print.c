/* Programs as text: the formulas of ops.def, stringised, in the order of the
 * instructions. Nothing is compiled here. */
#include "../base/base.h"
#include "../tile.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct formula {
  const char *params, *saved, *text;
} formula;

#define XY      "x, y"
#define X(f)    "const T x = s, y = (T)(" f ");"
#define Y(f)    "const T y = s, x = y;"
#define NONE(f) "const T x = 0, y = 0;"

static const formula formulas[FL_ROWS] = {
#define FL_UNARY(name, T, sig, cast, saves, f, df, ddf)                        \
  [FL_ROW_##name] = {"x", "", #f},                                             \
  [FL_ROW_##name##_backward] = {"gs", saves(#f), "g * (" #df ")"},             \
  [FL_ROW_##name##_backward2] = {"dgs", saves(#f), "d * g * (" #ddf ")"},
#define FL_TEST(name, T, sig, f) [FL_ROW_##name] = {"x", "", #f},
#define FL_BINARY(name, T, sig, cast, saves, f)                                \
  [FL_ROW_##name] = {"ab", "", #f},
#define FL_COMPARE(name, sig, f) [FL_ROW_##name] = {"ab", "", #f},
#define FL_TERNARY(name, T, sig, cast, saves, f)                               \
  [FL_ROW_##name] = {"abc", "", #f},
#include "../ops.def"
    [FL_ROW_round_f16] = {"x", "", "fl_round_f16(x)"},
    [FL_ROW_round_bf16] = {"x", "", "fl_round_bf16(x)"},
    [FL_ROW_mul_add] = {"abc", "", "a * b + c"},
    [FL_ROW_mul_sub] = {"abc", "", "a * b - c"},
    [FL_ROW_sub_mul] = {"abc", "", "c - a * b"},
};

typedef struct printer {
  char *to;
  size_t room, n;
} printer;

static void put_bytes(printer *w, const char *text, size_t n) {
  if (w->n + 1 < w->room) {
    size_t left = w->room - w->n - 1, fits = n < left ? n : left;
    memcpy(w->to + w->n, text, fits);
    w->to[w->n + fits] = 0;
  }
  w->n += n;
}

static void put_index(printer *w, int v) {
  char digits[12];
  size_t n = sizeof digits;
  do
    digits[--n] = (char)('0' + v % 10);
  while ((v /= 10) > 0);
  put_bytes(w, digits + n, sizeof digits - n);
}

/* %s, %c and %d of what is not negative, without the C library's printf: the
 * planner prints thousands of instructions. */
static void FL_PRINTF(2, 3) print_put(printer *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  for (const char *at = format; *at;) {
    size_t n = strcspn(at, "%");
    put_bytes(w, at, n);
    at += n;
    if (!*at)
      break;
    if (at[1] == 's') {
      const char *text = va_arg(args, const char *);
      put_bytes(w, text, strlen(text));
    } else if (at[1] == 'c') {
      char c = (char)va_arg(args, int);
      put_bytes(w, &c, 1);
    } else
      put_index(w, va_arg(args, int));
    at += 2;
  }
  va_end(args);
}

/* A number, whatever the locale. */
static void FL_PRINTF(2, 3) put_digits(printer *w, const char *format, ...) {
  char text[40];
  va_list args;
  va_start(args, format);
  int n = fli_vsnprintf(text, sizeof text, format, args);
  va_end(args);
  put_bytes(w, text, (size_t)n);
}

static const char *c_type(fl_dtype d) {
  return d == FL_F64    ? "double"
         : d == FL_F32  ? "float"
         : d == FL_BOOL ? "bool"
                        : "long long";
}

static void put_real(printer *w, double v) {
  if (isnan(v))
    print_put(w, "(0.0 / 0.0)");
  else if (isinf(v))
    print_put(w, v > 0 ? "(1.0 / 0.0)" : "(-1.0 / 0.0)");
  else
    put_digits(w, "(%.17g)", v);
}

static void put_number(printer *w, fl_dtype type, double f, int64_t i) {
  print_put(w, "(%s)", c_type(type));
  if (fl_dtype_kind(type) == FL_KIND_FLOAT)
    put_real(w, f);
  else if (i == INT64_MIN)
    print_put(w, "(-9223372036854775807LL - 1)");
  else
    put_digits(w, "%lldLL", (long long)i);
}

/* Attributes by the names p0 and p1, where the formula has them. */
static void put_params(printer *w, const fl_instr *x, const formula *f) {
  for (int k = 0; k < 2; k++) {
    const char name[] = {'p', (char)('0' + k), 0};
    if (!strstr(f->text, name) && !strstr(f->saved, name))
      continue;
    print_put(w, " const T %s = ", name);
    put_number(w, (fl_dtype)x->type, x->p[k], fli_to_integer(x->p[k]));
    print_put(w, ";");
  }
}

static void put_instr(printer *w, const fl_instr *x, int value) {
  const char *result = c_type((fl_dtype)x->result);
  if (x->row == FL_ROW_convert) {
    bool to_int = x->result == FL_I64 &&
                  fl_dtype_kind((fl_dtype)x->type) == FL_KIND_FLOAT;
    if (x->result == FL_BOOL)
      print_put(w, "const bool v%d = v%d != 0;\n", value, x->in[0]);
    else if (to_int)
      print_put(w, "const long long v%d = fl_to_int((double)v%d);\n", value,
                x->in[0]);
    else
      print_put(w, "const %s v%d = (%s)v%d;\n", result, value, result,
                x->in[0]);
    return;
  }
  const formula *f = &formulas[x->row];
  print_put(w, "%s v%d; { typedef %s T;", result, value,
            c_type((fl_dtype)x->type));
  for (int k = 0; k < x->n_in; k++)
    print_put(w, " const T %c = v%d;", f->params[k], x->in[k]);
  put_params(w, x, f);
  if (strstr(f->text, "bits"))
    print_put(w, " const int bits = 64;");
  print_put(w, " %s v%d = (%s)(%s); }\n", f->saved, value, result, f->text);
}

/* Whether a compiler may contract the instruction with an addition behind it:
 * its last operation may be a product. */
static bool may_contract(const fl_instr *x) {
  return x->row < FL_ROW_convert && strpbrk(formulas[x->row].text, "*/(") &&
         fl_dtype_kind((fl_dtype)x->result) == FL_KIND_FLOAT;
}

/* A product that is rounded before it is added to c. */
static void put_separate_product(printer *w, const fl_instr *x, int value) {
  const char *type = c_type((fl_dtype)x->result);
  print_put(w, "%s v%d = v%d * v%d; fl_separate(v%d); ", type, value, x->in[0],
            x->in[1], value);
  if (x->row == FL_ROW_sub_mul)
    print_put(w, "v%d = v%d - v%d;\n", value, x->in[2], value);
  else
    print_put(w, "v%d = v%d %c v%d;\n", value, value,
              x->row == FL_ROW_mul_add ? '+' : '-', x->in[2]);
}

static void put_instrs(printer *w, const fl_program *p, int begin, int n) {
  for (int k = begin; k < begin + n; k++) {
    const fl_instr *x = &p->instrs[k];
    int v = p->n_in + p->n_const + k;
    if (p->separate && x->row > FL_ROW_convert) {
      put_separate_product(w, x, v);
      continue;
    }
    put_instr(w, x, v);
    if (p->separate && may_contract(x))
      print_put(w, "fl_separate(v%d);\n", v);
  }
}

size_t fl_program_piece(const fl_program *p, int begin, int n, char *text,
                        size_t room) {
  FLI_NEED_OR(p, "p", 0);
  printer w = {text, text ? room : 0, 0};
  if (w.room)
    *text = 0;
  put_instrs(&w, p, begin, n);
  return w.n;
}

size_t fl_program_source(const fl_program *p, char *text, size_t room) {
  FLI_NEED_OR(p, "p", 0);
  printer w = {text, text ? room : 0, 0};
  int v = p->n_in;
  if (w.room)
    *text = 0;
  for (int k = 0; k < p->n_const; k++, v++) {
    const fl_constant *c = &p->constants[k];
    print_put(&w, "const %s v%d = ", c_type(c->type), v);
    put_number(&w, c->type, c->f, c->i);
    print_put(&w, ";\n");
  }
  put_instrs(&w, p, 0, p->n_instr);
  return w.n;
}
