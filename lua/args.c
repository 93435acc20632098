/* Calls of operators from Lua: arguments are read as the operator's row
 * describes them, by position or by name in a last table, and turned into one
 * fl_call. Here dims and positions that count from 1 become ones that count
 * from 0; what lies inside index tensors is left alone, the call's base says
 * it. */
#include "fll.h"

#include <math.h>
#include <stdio.h>

#define FEW 48 /* inputs on the C stack */

typedef struct args {
  const fll_op *b;
  const char *name;
  int at[FL_MAX_PARAMS];    /* where the value lies; 0: left out */
  int count[FL_MAX_PARAMS]; /* values from there on; 0: one, or a table */
  bool attributes;          /* any given? */
  int base, top;
  bool all, requires_grad;
  fl_generator *generator;
  fl_device device;
} args;

/* --- single values --- */

int64_t fll_checkint(lua_State *L, int i, const char *where, const char *name) {
  int exact;
  lua_Integer v = lua_tointegerx(L, i, &exact);
  if (!exact || lua_type(L, i) != LUA_TNUMBER) {
    if (lua_type(L, i) == LUA_TNUMBER)
      fll_error(L, "%s: %s: expected an integer, got %g", where, name,
                lua_tonumber(L, i));
    fll_error(L, "%s: %s: expected an integer, got %s", where, name,
              fll_typename(L, i));
  }
  return v;
}

int64_t fll_dim(lua_State *L, int64_t d, const char *where, const char *name) {
  if (d == 0)
    fll_error(L, "%s: %s: dims count from 1; 0 is none (-1 is the last)", where,
              name);
  if (d == FL_ATTR_NONE) /* it would pass for one that is left out */
    d++;
  return d > 0 ? d - 1 : d;
}

static int64_t args_position(lua_State *L, int64_t p, const args *a,
                             const char *name) {
  if (p == 0 && a->base)
    fll_error(L,
              "%s: %s: positions count from 1, 0 is none; for positions "
              "that count from 0 pass base = 0",
              a->name, name);
  return p >= a->base ? p - a->base : p;
}

static const char *dtype_at(const void *list, int i) {
  (void)list;
  return fl_dtype_name((fl_dtype)i);
}

static const struct {
  const char *theirs, *ours;
} dtype_names[] = {
    {"float64", "f64"},    {"double", "f64"},   {"float32", "f32"},
    {"float", "f32"},      {"float16", "f16"},  {"half", "f16"},
    {"bfloat16", "bf16"},  {"int64", "i64"},    {"long", "i64"},
    {"int32", "i32"},      {"int", "i32"},      {"int16", "i16"},
    {"short", "i16"},      {"int8", "i8"},      {"uint8", "u8"},
    {"byte", "u8"},        {"boolean", "bool"}, {"complex64", "c64"},
    {"complex128", "c128"}};

const char *fll_checkname(lua_State *L, int i, const char *where,
                          const char *what) {
  size_t n;
  const char *s = lua_tolstring(L, i, &n);
  if (strlen(s) != n)
    fll_error(L, "%s: %s: \"%s\" is followed by a zero byte", where, what, s);
  return s;
}

fl_dtype fll_checkdtype(lua_State *L, int i, const char *where) {
  if (lua_type(L, i) != LUA_TSTRING)
    fll_error(L, "%s: dtype: expected a name such as \"f32\", got %s", where,
              fll_typename(L, i));
  const char *s = fll_checkname(L, i, where, "dtype"), *near = NULL;
  fl_dtype d = fl_dtype_find(s);
  if (d != FL_NODTYPE)
    return d;
  for (size_t k = 0; k < sizeof dtype_names / sizeof dtype_names[0]; k++)
    if (strcmp(s, dtype_names[k].theirs) == 0)
      near = dtype_names[k].ours;
  if (!near)
    near = fll_nearest(s, fl_dtype_count(), dtype_at, NULL);
  fll_error(L,
            "%s: there is no dtype \"%s\"%s%s%s (f64 f32 f16 bf16 i64 i32 i16 "
            "i8 u8 bool c64 c128)",
            where, s, near ? "; did you mean \"" : "", near ? near : "",
            near ? "\"?" : "");
}

fl_device fll_checkdevice(lua_State *L, fl_lua *st, int i, const char *where) {
  if (lua_type(L, i) != LUA_TSTRING)
    fll_error(L, "%s: device: expected a name such as \"cpu\", got %s", where,
              fll_typename(L, i));
  fl_device d = 0;
  fl_status s =
      fl_device_find(st->rt, fll_checkname(L, i, where, "device"), &d);
  if (s != FL_OK)
    fll_error(L, "%s: %s", where, fl_error());
  return d;
}

typedef struct choices {
  int n;
  char text[12][24];
} choices;

static const char *choice_at(const void *list, int i) {
  return ((const choices *)list)->text[i];
}

/* The first choice in the text up to `end`; the next one begins behind it. */
static size_t choice_length(const char *s, const char *end) {
  const char *bar = memchr(s, '|', (size_t)(end - s));
  return bar ? (size_t)(bar - s) : (size_t)(end - s);
}

static int refuse_choice(lua_State *L, int i, const char *where,
                         const fl_param *p, const char *v) {
  choices c = {0};
  const char *s = p->choices, *end = s + p->choices_len;
  while (s < end && c.n < 12) {
    size_t n = choice_length(s, end);
    snprintf(c.text[c.n++], sizeof c.text[0], "%.*s", (int)n, s);
    s += n + 1;
  }
  const char *near = v ? fll_nearest(v, c.n, choice_at, &c) : NULL;
  char got[64];
  snprintf(got, sizeof got, v ? "\"%.40s\"" : "%s", v ? v : fll_typename(L, i));
  fll_error(L, "%s: %s: expected one of %.*s, got %s%s%s%s", where, p->name,
            p->choices_len, p->choices, got, near ? "; did you mean \"" : "",
            near ? near : "", near ? "\"?" : "");
}

static int64_t enumerated(lua_State *L, int i, const char *where,
                          const fl_param *p) {
  size_t length = 0;
  const char *v = NULL;
  if (lua_type(L, i) == LUA_TSTRING) {
    v = fll_checkname(L, i, where, p->name);
    length = strlen(v);
  }
  const char *s = p->choices, *end = s + p->choices_len;
  for (int k = 0; v && s < end; k++) {
    size_t n = choice_length(s, end);
    if (n == length && memcmp(v, s, n) == 0)
      return k;
    s += n + 1;
  }
  return refuse_choice(L, i, where, p, v);
}

/* --- which argument is which parameter --- */

static bool is_list(const fl_param *p) {
  return p->kind == FL_P_SHAPE || p->kind == FL_P_DIMS || p->kind == FL_P_INTS;
}

static bool is_number(const fl_param *p) {
  return p->kind == FL_P_INT || p->kind == FL_P_REAL || p->kind == FL_P_DIM ||
         p->kind == FL_P_NEWDIM || p->kind == FL_P_POS || is_list(p);
}

static bool is_whole(lua_State *L, int i) {
  int exact;
  lua_tointegerx(L, i, &exact);
  return exact && lua_type(L, i) == LUA_TNUMBER;
}

/* A list takes all integers that follow, unless a later parameter wants one. */
static bool greedy(const args *a, int k) {
  const fl_param *p = &a->b->info->params[a->b->pos[k]];
  if (p->kind == FL_P_DIMS && k + 1 < a->b->n_pos)
    return a->b->info->params[a->b->pos[k + 1]].kind != FL_P_DIMS;
  if (p->kind != FL_P_INTS)
    return true;
  for (int j = k + 1; j < a->b->n_pos; j++)
    if (is_number(&a->b->info->params[a->b->pos[j]]))
      return false;
  return true;
}

static int args_take(lua_State *L, args *a, int k, int i, int last) {
  int number = a->b->pos[k], n = 1;
  const fl_param *p = &a->b->info->params[number];
  if (lua_isnil(L, i))
    return 1;
  if (p->variadic && !lua_istable(L, i)) {
    while (i + n <= last && fll_test(L, i + n))
      n++;
    a->count[number] = n;
  } else if (is_list(p) && is_whole(L, i)) {
    while (greedy(a, k) && i + n <= last && is_whole(L, i + n))
      n++;
    a->count[number] = n;
  }
  a->at[number] = i;
  return n;
}

static void push_usage(lua_State *L, const fll_op *b) {
  luaL_Buffer text;
  luaL_buffinit(L, &text);
  for (int k = 0; k < b->n_pos; k++) {
    const fl_param *p = &b->info->params[b->pos[k]];
    if (k)
      luaL_addstring(&text, ", ");
    luaL_addstring(&text, p->name);
  }
  luaL_pushresult(&text);
}

static void by_position(lua_State *L, args *a, int last) {
  int i = 1;
  for (int k = 0; k < a->b->n_pos && i <= last; k++)
    i += args_take(L, a, k, i, last);
  if (i <= last) {
    push_usage(L, a->b);
    fll_error(L, "%s: too many arguments: it takes (%s)", a->name,
              lua_tostring(L, -1));
  }
}

/* The parameter of that name; "dim" also names "dims". */
static int by_name(const fl_op_info *info, const char *name) {
  int dims = -1;
  for (int k = 0; k < info->n_params; k++) {
    const fl_param *p = &info->params[k];
    if (p->kind == FL_P_RNG)
      continue;
    if (strcmp(p->name, name) == 0)
      return k;
    if (p->kind == FL_P_DIMS && strcmp(p->name, "dims") == 0)
      dims = k;
  }
  return strcmp(name, "dim") == 0 ? dims : -1;
}

static const char *param_at(const void *list, int i) {
  static const char *const more[] = {"base", "generator", "device", "all",
                                     "requires_grad"};
  const fl_op_info *info = list;
  if (i >= info->n_params)
    return more[i - info->n_params];
  return info->params[i].kind == FL_P_RNG ? more[1] : info->params[i].name;
}

/* Without tensors among its inputs: a generator's are none. */
static bool makes(const fl_op_info *info) {
  for (int k = 0; k < info->n_params; k++)
    if (info->params[k].kind == FL_P_TENSOR)
      return false;
  return true;
}

/* Keys that every operator takes, the value on top. */
static bool common_key(lua_State *L, fl_lua *st, args *a, const char *key) {
  if (strcmp(key, "base") == 0) {
    a->base = (int)fll_checkint(L, -1, a->name, key);
    if (a->base != 0 && a->base != 1)
      fll_error(L, "%s: base: expected 0 or 1, got %d", a->name, a->base);
  } else if (strcmp(key, "generator") == 0 && a->b->info->random) {
    a->generator = fll_checkgenerator(L, lua_gettop(L), a->name);
  } else if (strcmp(key, "all") == 0 && a->b->info->n_out > a->b->n_ret) {
    a->all = lua_toboolean(L, -1);
  } else if (strcmp(key, "device") == 0 && makes(a->b->info)) {
    a->device = fll_checkdevice(L, st, lua_gettop(L), a->name);
  } else if (strcmp(key, "requires_grad") == 0 && makes(a->b->info)) {
    a->requires_grad = lua_toboolean(L, -1);
  } else {
    return false;
  }
  return true;
}

/* Values of known keys stay on the stack, below the key. */
static void by_key(lua_State *L, fl_lua *st, args *a, int table) {
  const fl_op_info *info = a->b->info;
  lua_Integer n = (lua_Integer)lua_rawlen(L, table);
  luaL_checkstack(L, FL_MAX_PARAMS + 10, NULL);
  lua_pushnil(L);
  while (lua_next(L, table)) {
    if (lua_isinteger(L, -2) && lua_tointeger(L, -2) >= 1 &&
        lua_tointeger(L, -2) <= n) {
      lua_pop(L, 1);
      continue;
    }
    if (lua_type(L, -2) != LUA_TSTRING)
      fll_error(L, "%s: options have names, got a key that is %s", a->name,
                fll_typename(L, -2));
    const char *key = fll_checkname(L, -2, a->name, "option");
    int k = by_name(info, key);
    if (k < 0 && common_key(L, st, a, key)) {
      lua_pop(L, 1);
      continue;
    }
    if (k < 0) {
      const char *near = fll_nearest(key, info->n_params + 5, param_at, info);
      if (near && strcmp(near, key) != 0) /* which others may take */
        fll_error(L, "%s: unknown option '%s'; did you mean '%s'?", a->name,
                  key, near);
      push_usage(L, a->b);
      fll_error(L, "%s: unknown option '%s': it takes (%s)", a->name, key,
                lua_tostring(L, -1));
    }
    if (a->at[k])
      fll_error(L, "%s: %s is given twice", a->name, key);
    lua_insert(L, -2);
    a->at[k] = lua_gettop(L) - 1;
    /* of a variadic one anything but a list is one input */
    a->count[k] = info->params[k].variadic && !lua_istable(L, a->at[k]);
  }
}

/* Is the last argument a table of options? One with names in it, or an empty
 * one where no list is wanted. */
static bool is_options(lua_State *L, const args *a, int i) {
  if (!lua_istable(L, i))
    return false;
  bool any = false;
  lua_pushnil(L);
  while (lua_next(L, i)) {
    any = true;
    lua_pop(L, 1);
    if (lua_type(L, -1) == LUA_TSTRING) {
      lua_pop(L, 1);
      return true;
    }
  }
  if (any)
    return false;
  if (i <= a->b->n_pos) {
    const fl_param *p = &a->b->info->params[a->b->pos[i - 1]];
    return !is_list(p) && !p->variadic;
  }
  return true;
}

static void args_collect(lua_State *L, fl_lua *st, args *a) {
  int last = a->top;
  if (last > 0 && is_options(L, a, last)) {
    /* {2, 3, dtype = "f64"}: the numbers are a list given by position */
    by_position(L, a, lua_rawlen(L, last) > 0 ? last : last - 1);
    by_key(L, st, a, last);
  } else {
    by_position(L, a, last);
  }
}

/* --- attributes --- */

/* The least i64 stands for an attribute that is left out, and is no size,
 * offset or position that could be meant. */
static int64_t optional_int(lua_State *L, const args *a, const fl_param *p,
                            int64_t v) {
  if (v == FL_ATTR_NONE && p->has_default && p->value.i == FL_ATTR_NONE)
    fll_error(L, "%s: %s: %lld is out of range", a->name, p->name,
              (long long)v);
  return v;
}

static void list_attribute(lua_State *L, const args *a, const fl_param *p,
                           int number, fl_attrs *attrs) {
  int64_t v[FL_MAX_LIST];
  int at = a->at[number], n = a->count[number];
  bool table = n == 0 && lua_istable(L, at);
  if (table)
    n = (int)(lua_rawlen(L, at) > FL_MAX_LIST ? FL_MAX_LIST + 1
                                              : lua_rawlen(L, at));
  else if (n == 0)
    n = 1;
  if (table && n == 0)
    fll_checklist(L, at, a->name, p->name);
  if (n > FL_MAX_LIST)
    fll_error(L, "%s: %s: %d numbers are too many", a->name, p->name, n);
  for (int k = 0; k < n; k++) {
    if (table)
      lua_rawgeti(L, at, k + 1);
    v[k] = fll_checkint(L, table ? -1 : at + k, a->name, p->name);
    if (table)
      lua_pop(L, 1);
    if (p->kind == FL_P_DIMS)
      v[k] = fll_dim(L, v[k], a->name, p->name);
  }
  if (fl_attrs_list(attrs, p->slot, n, v) != FL_OK)
    fll_error(L, "%s: %s: %s", a->name, p->name, fl_error());
}

static void attribute(lua_State *L, const args *a, const fl_param *p,
                      int number, fl_attrs *attrs) {
  int at = a->at[number];
  fl_attr *v = &attrs->v[p->slot];
  switch (p->kind) {
  case FL_P_DIM:
  case FL_P_NEWDIM:
    v->i = fll_dim(L, fll_checkint(L, at, a->name, p->name), a->name, p->name);
    break;
  case FL_P_POS:
    v->i = fll_checkint(L, at, a->name, p->name);
    v->i = args_position(L, optional_int(L, a, p, v->i), a, p->name);
    break;
  case FL_P_INT:
    v->i = optional_int(L, a, p, fll_checkint(L, at, a->name, p->name));
    break;
  case FL_P_REAL:
    if (lua_type(L, at) != LUA_TNUMBER)
      fll_error(L, "%s: %s: expected a number, got %s", a->name, p->name,
                fll_typename(L, at));
    v->f = lua_tonumber(L, at);
    if (isnan(v->f) && p->has_default && isnan(p->value.f))
      fll_error(L, "%s: %s is NaN, which would mean that it is left out",
                a->name, p->name);
    if (p->whole && lua_isinteger(L, at))
      attrs->v[p->whole].i = lua_tointeger(L, at);
    break;
  case FL_P_FLAG:
    if (!lua_isboolean(L, at))
      fll_error(L, "%s: %s: expected true or false, got %s", a->name, p->name,
                fll_typename(L, at));
    v->i = lua_toboolean(L, at);
    break;
  case FL_P_ENUM:
    v->i = enumerated(L, at, a->name, p);
    break;
  case FL_P_DTYPE:
    v->i = fll_checkdtype(L, at, a->name);
    break;
  default:
    list_attribute(L, a, p, number, attrs);
  }
}

/* --- inputs --- */

static int inputs(const lua_State *L, const args *a, int *variadic) {
  int n = 0;
  *variadic = 0;
  for (int k = 0; k < a->b->info->n_params; k++) {
    const fl_param *p = &a->b->info->params[k];
    if (p->variadic && a->at[k])
      *variadic =
          a->count[k] ? a->count[k] : (int)lua_rawlen((lua_State *)L, a->at[k]);
    else if (!p->variadic && (p->kind == FL_P_TENSOR || p->kind == FL_P_RNG))
      n++;
  }
  return n;
}

static void input(lua_State *L, const args *a, const fl_param *p, int i,
                  fl_operand *o, unsigned *flags) {
  if (!fll_operand(L, i, o, flags))
    fll_argerror(L, a->name, p->name, "a tensor or a number", i);
}

/* Reads all inputs; nothing here allocates, so no tensor can go meanwhile. */
static void read_inputs(lua_State *L, const args *a, fl_operand *in, int n,
                        unsigned *flags) {
  for (int k = 0; k < n; k++) {
    in[k].tensor = NULL;
    in[k].dtype = FL_NODTYPE;
  }
  for (int k = 0; k < a->b->info->n_params; k++) {
    const fl_param *p = &a->b->info->params[k];
    int at = a->at[k];
    if (p->kind != FL_P_TENSOR || !at)
      continue;
    if (!p->variadic) {
      input(L, a, p, at, &in[p->slot], flags);
    } else if (a->count[k]) {
      for (int j = 0; j < a->count[k]; j++)
        input(L, a, p, at + j, &in[p->slot + j], flags);
    } else {
      for (int j = 0; p->slot + j < n; j++) {
        lua_rawgeti(L, at, j + 1);
        input(L, a, p, -1, &in[p->slot + j], flags);
        lua_pop(L, 1);
      }
    }
  }
}

static void check_given(lua_State *L, const args *a) {
  for (int k = 0; k < a->b->info->n_params; k++) {
    const fl_param *p = &a->b->info->params[k];
    if (a->at[k] || p->optional || p->has_default || p->kind == FL_P_RNG)
      continue;
    if (p->kind == FL_P_TENSOR && p->slot == 0 && !p->variadic)
      fll_argerror(L, a->name, p->name, "a tensor", 1);
    push_usage(L, a->b);
    fll_error(L, "%s: %s is missing: it takes (%s)", a->name, p->name,
              lua_tostring(L, -1));
  }
}

/* --- running --- */

/* Hands the results to the handles that wait for them at [first, first + n). */
static void args_fill(lua_State *L, int first, int n, int n_out,
                      fl_tensor **out) {
  for (int k = 0; k < n_out; k++) {
    if (k >= n)
      fl_tensor_release(out[k]);
    else if (out[k])
      fll_fill(lua_touserdata(L, first + k), out[k]);
  }
  for (int k = 0; k < n; k++)
    if (!out[k]) {
      lua_pushnil(L);
      lua_replace(L, first + k);
    }
}

static int args_finish(lua_State *L, fl_lua *st, const args *a, fl_call *c,
                       unsigned flags) {
  fl_tensor *out[FL_MAX_OUT] = {NULL};
  int n_out = a->b->info->n_out, first = lua_gettop(L) + 1;
  int n = c->inplace ? 0 : a->all ? n_out : a->b->n_ret;
  first -= n;
  c->out = out;
  fl_status s = fl_call_run(st->rt, c);
  if (s != FL_OK)
    fll_raise(L, st, s);
  if (a->requires_grad)
    s = fl_tensor_require_grad(out[0], true);
  bool view = a->b->views && !c->inplace && c->n_in > 0 && c->in[0].tensor &&
              fl_tensor_shares(out[0], c->in[0].tensor);
  args_fill(L, first, n, n_out, out);
  fll_check(L, st, s);
  if (c->inplace) {
    lua_pushvalue(L, 1);
    first = 1;
    n = 1;
  }
  if (flags)
    fll_inherit(L, st, first, n, a->top);
  int x = a->at[a->b->pos[0]]; /* also where it came by name */
  if (view && fll_test(L, x))
    fll_set_parent(L, first, x);
  return n;
}

static int run_parsed(lua_State *L, fl_lua *st, args *a, bool inplace) {
  const fl_op_info *info = a->b->info;
  fl_attrs attrs;
  fl_operand few[FEW], *in = few;
  unsigned flags = 0;
  int variadic, fixed = inputs(L, a, &variadic), n = fixed + variadic;
  for (int k = 0; k < info->n_params; k++) {
    const fl_param *p = &info->params[k];
    if (!a->at[k] || p->kind == FL_P_TENSOR)
      continue;
    if (!a->attributes)
      attrs = *fl_op_defaults(a->b->op);
    a->attributes = true;
    attribute(L, a, p, k, &attrs);
  }
  check_given(L, a);
  if (n > FEW)
    in = fll_scratch(L, (size_t)n * sizeof *in);
  if (!inplace)
    for (int k = 0; k < (a->all ? info->n_out : a->b->n_ret); k++)
      fll_new(L, st, FLL_MT);
  read_inputs(L, a, in, n, &flags);
  if (inplace && !in[0].tensor)
    fll_argerror(L, a->name, info->params[0].name, "a tensor", 1);
  fl_call c = {.op = a->b->op,
               .n_in = n,
               .in = in,
               .attrs = a->attributes ? &attrs : NULL,
               .base = a->base,
               .inplace = inplace,
               .site = fll_site_here(L, st),
               .device = a->device,
               .generator = a->generator};
  return args_finish(L, st, a, &c, flags);
}

int fll_run(lua_State *L, fl_lua *st, const fll_op *b, bool inplace) {
  int top = lua_gettop(L);
  if (b->simple && top == b->simple && lua_type(L, top) != LUA_TTABLE)
    return fll_run_simple(L, st, b, top, inplace);
  args a = {.b = b,
            .name = inplace ? b->inplace_name : b->info->name,
            .base = 1,
            .top = top,
            .device = st->device};
  luaL_checkstack(L, FL_MAX_PARAMS + 20, NULL);
  args_collect(L, st, &a);
  return run_parsed(L, st, &a, inplace);
}

static int simple_error(lua_State *L, const fll_op *b, int n, bool inplace) {
  const char *name = inplace ? b->inplace_name : b->info->name;
  for (int k = 0; k < n; k++) {
    fl_operand o;
    unsigned flags;
    if (!fll_operand(L, k + 1, &o, &flags))
      return fll_argerror(L, name, b->info->params[b->pos[k]].name,
                          "a tensor or a number", k + 1);
  }
  return fll_argerror(L, name, b->info->params[b->pos[0]].name, "a tensor", 1);
}

/* The short way: arguments 1..n are all of the required inputs, the rest is
 * left out. For metamethods, too. */
int fll_run_simple(lua_State *L, fl_lua *st, const fll_op *b, int n,
                   bool inplace) {
  fl_operand in[FLL_FEW];
  fl_tensor *out[FL_MAX_OUT] = {NULL};
  unsigned flags = 0;
  fll_tensor *h = inplace ? NULL : fll_new(L, st, FLL_MT);
  for (int k = 0; k < n; k++)
    if (!fll_operand(L, k + 1, &in[k], &flags))
      return simple_error(L, b, n, inplace);
  for (int k = n; k < b->n_in; k++) {
    in[k].tensor = NULL;
    in[k].dtype = FL_NODTYPE;
  }
  if (inplace && !in[0].tensor)
    return simple_error(L, b, n, inplace);
  fl_call c = {.op = b->op,
               .n_in = b->n_in,
               .in = in,
               .base = 1,
               .inplace = inplace,
               .site = fll_site_here(L, st),
               .device = st->device,
               .out = out};
  fll_check(L, st, fl_call_run(st->rt, &c));
  for (int k = 1; k < b->info->n_out; k++)
    fl_tensor_release(out[k]);
  if (inplace) {
    fl_tensor_release(out[0]);
    if (flags)
      fll_inherit(L, st, 1, 1, n);
    lua_settop(L, 1);
    return 1;
  }
  fll_fill(h, out[0]);
  if (flags)
    fll_inherit(L, st, n + 1, 1, n);
  if (b->views && n > 0 && in[0].tensor &&
      fl_tensor_shares(out[0], in[0].tensor))
    fll_set_parent(L, n + 1, 1);
  return 1;
}
