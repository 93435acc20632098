/* Operators as Lua functions, methods, in-place methods and metamethods: one
 * closure each over a row of the table, plus the few names whose meaning
 * depends on the arguments. How arguments are read is in args.c. */
#include "fll.h"

#include <stdio.h>

static bool is_input(const fl_param *p) {
  return p->kind == FL_P_TENSOR;
}

/* By position come all parameters in the row's order, but a variadic input goes
 * before attributes that stand in front of it: cat(xs, dim). */
static void positions(fll_op *b) {
  const fl_op_info *info = b->info;
  b->variadic = -1;
  for (int k = 0; k < info->n_params; k++)
    if (info->params[k].variadic)
      b->variadic = (int8_t)k;
  for (int k = 0; b->variadic >= 0 && k <= b->variadic; k++)
    if (is_input(&info->params[k]))
      b->pos[b->n_pos++] = (uint8_t)k;
  for (int k = 0; k < info->n_params; k++) {
    const fl_param *p = &info->params[k];
    bool done = k <= b->variadic && is_input(p);
    if (!done && p->kind != FL_P_RNG)
      b->pos[b->n_pos++] = (uint8_t)k;
  }
}

/* Operators that may be called with their inputs alone. */
static void find_simple(fll_op *b) {
  int inputs = 0;
  for (int k = 0; k < b->info->n_params; k++) {
    const fl_param *p = &b->info->params[k];
    if ((is_input(p) && !p->variadic) || p->kind == FL_P_RNG)
      b->n_in++;
    if (p->optional || p->has_default || p->kind == FL_P_RNG)
      continue;
    if (!is_input(p) || p->variadic || p->slot != inputs || b->pos[inputs] != k)
      return;
    inputs++;
  }
  if (b->n_ret == 1 && b->variadic < 0 && b->n_in <= FLL_FEW)
    b->simple = (uint8_t)inputs;
}

static void ops_describe(fl_lua *st, fll_op *b, const fl_op *op) {
  memset(b, 0, sizeof *b);
  b->st = st;
  b->op = op;
  b->info = fl_op_get(op);
  positions(b);
  b->n_ret = (uint8_t)b->info->n_shown;
  snprintf(b->inplace_name, sizeof b->inplace_name, "%s_", b->info->name);
  find_simple(b);
  b->views = b->info->view || strcmp(b->info->family, "composite") == 0;
}

static const fl_op *ops_row(fl_lua *st, const char *name) {
  return fl_op_find(st->rt, name);
}

void fll_ops_open(lua_State *L, fl_lua *st) {
  st->n_ops = fl_op_count(st->rt);
  fll_getkey(L, FLL_STATE);
  st->ops = lua_newuserdatauv(L, sizeof(fll_op) * (size_t)st->n_ops, 0);
  lua_setiuservalue(L, -2, 1);
  lua_pop(L, 1);
  for (int i = 0; i < st->n_ops; i++)
    ops_describe(st, &st->ops[i], fl_op_at(st->rt, i));
  st->select = ops_row(st, "select");
  st->narrow = ops_row(st, "narrow");
  st->assign = ops_row(st, "assign");
  st->index_select = ops_row(st, "index_select");
  st->masked_select = ops_row(st, "masked_select");
  st->index_copy = ops_row(st, "index_copy");
  st->masked_scatter = ops_row(st, "masked_scatter");
  st->masked_fill = ops_row(st, "masked_fill");
  st->nonzero = ops_row(st, "nonzero");
  st->reshape = ops_row(st, "reshape");
  st->expand = ops_row(st, "expand");
  st->permute = ops_row(st, "permute");
  st->mul = ops_row(st, "mul");
  st->add = ops_row(st, "add");
  st->full = ops_row(st, "full");
  st->copy = ops_row(st, "copy");
  st->unsqueeze = ops_row(st, "unsqueeze");
}

const fll_op *fll_findop(fl_lua *st, const char *name) {
  for (int i = 0; i < st->n_ops; i++)
    if (strcmp(st->ops[i].info->name, name) == 0)
      return &st->ops[i];
  return NULL;
}

/* --- closures; upvalue 3 is the row --- */

static int ops_function(lua_State *L) {
  const fll_op *b = fll_enter_op(L);
  return fll_run(L, b->st, b, false);
}

static void check_self(lua_State *L, const fll_op *b, bool inplace) {
  if (!fll_test(L, 1))
    fll_argerror(L, inplace ? b->inplace_name : b->info->name,
                 b->info->params[b->pos[0]].name, "a tensor", 1);
}

static int ops_method(lua_State *L) {
  const fll_op *b = fll_enter_op(L);
  check_self(L, b, false);
  return fll_run(L, b->st, b, false);
}

static int inplace(lua_State *L) {
  const fll_op *b = fll_enter_op(L);
  check_self(L, b, true);
  return fll_run(L, b->st, b, true);
}

static int ops_binary(lua_State *L) {
  const fll_op *b = fll_enter_op(L);
  if (lua_gettop(L) != 2)
    lua_settop(L, 2);
  return fll_run_simple(L, b->st, b, 2, false);
}

static int ops_unary(lua_State *L) {
  const fll_op *b = fll_enter_op(L);
  lua_settop(L, 1);
  return fll_run_simple(L, b->st, b, 1, false);
}

static void push_closure(lua_State *L, lua_CFunction f, const fll_op *b) {
  fll_getkey(L, FLL_STATE);
  fll_getkey(L, FLL_TENSOR);
  lua_pushlightuserdata(L, (void *)b);
  lua_pushcclosure(L, f, 3);
}

/* Runs a row by another name, which is the one that messages have. */
static int run_known(lua_State *L, const fll_op *b, const char *known,
                     bool inplace) {
  fl_lua *st = b->st;
  st->row = b->info->name;
  st->known = known;
  check_self(L, b, inplace);
  int n = fll_run(L, st, b, inplace);
  st->row = NULL;
  return n;
}

/* The rows of max or min: over all, along a dim, of two. */
typedef struct extremes {
  const char *name;
  const fll_op *all, *along, *two;
} extremes;

/* x:max(), x:max(dim), x:max(y): three operators. Upvalue 3 has them. */
static int ops_extreme(lua_State *L) {
  fll_enter(L);
  const extremes *e = lua_touserdata(L, FLL_OWN);
  const fll_op *b = e->all;
  if (fll_test(L, 2)) {
    b = e->two;
  } else if (lua_istable(L, 2)) {
    if (fll_option(L, 2, "dim") == LUA_TNUMBER)
      b = e->along;
    lua_pop(L, 1);
  } else if (lua_type(L, 2) == LUA_TNUMBER) {
    b = e->along;
  }
  return run_known(L, b, e->name, false);
}

static void push_extreme(lua_State *L, fl_lua *st, bool max) {
  fll_getkey(L, FLL_STATE);
  fll_getkey(L, FLL_TENSOR);
  extremes *e = lua_newuserdatauv(L, sizeof *e, 0);
  e->name = max ? "max" : "min";
  e->all = fll_findop(st, max ? "amax" : "amin");
  e->along = fll_findop(st, max ? "max_dim" : "min_dim");
  e->two = fll_findop(st, max ? "maximum" : "minimum");
  lua_pushcclosure(L, ops_extreme, 3);
}

static int copy_into(lua_State *L) {
  const fll_op *b = fll_enter_op(L);
  return run_known(L, b, "copy_", true);
}

/* --- names --- */

static const struct {
  const char *name, *row;
} aliases[] = {{"mm", "matmul"},
               {"bmm", "matmul"},
               {"mv", "matmul"},
               {"dot", "matmul"},
               {"ger", "outer"},
               {"clip", "clamp"},
               {"moveaxis", "movedim"},
               {"concat", "cat"},
               {"concatenate", "cat"},
               {"negative", "neg"},
               {"multiply", "mul"},
               {"subtract", "sub"},
               {"divide", "div"},
               {"true_divide", "div"},
               {"floor_divide", "floor_div"},
               {"absolute", "abs"},
               {"power", "pow"},
               {"mod", "remainder"},
               {"swapdims", "transpose"},
               {"swapaxes", "transpose"},
               {"clone", "copy"},
               {"broadcast_to", "expand"},
               {"col2im", "fold"},
               {"ravel", "flatten"},
               {"expand_dims", "unsqueeze"},
               {"argwhere", "nonzero"},
               {"arccos", "acos"},
               {"arcsin", "asin"},
               {"arctan", "atan"},
               {"arccosh", "acosh"},
               {"arcsinh", "asinh"},
               {"arctanh", "atanh"},
               {"arctan2", "atan2"},
               {"degrees", "rad2deg"},
               {"radians", "deg2rad"},
               {"fix", "trunc"},
               {"rint", "round"},
               {"less", "lt"},
               {"less_equal", "le"},
               {"greater", "gt"},
               {"greater_equal", "ge"},
               {"not_equal", "ne"},
               {"left_shift", "shift_left"},
               {"right_shift", "shift_right"},
               {"bitwise_left_shift", "shift_left"},
               {"bitwise_right_shift", "shift_right"},
               {"lshift", "shift_left"},
               {"rshift", "shift_right"},
               {"bitand", "bitwise_and"},
               {"bitor", "bitwise_or"},
               {"bitxor", "bitwise_xor"},
               {"permute_dims", "permute"},
               {"around", "round"},
               {"cumulative_sum", "cumsum"},
               {"cumulative_prod", "cumprod"},
               {"solve_triangular", "triangular_solve"},
               {"orgqr", "householder_product"},
               {"multigammaln", "mvlgamma"},
               {"invert", "bitwise_not"},
               {"inverse", "inv"},
               {"pinverse", "pinv"},
               {"trapz", "trapezoid"},
               {"expit", "sigmoid"},
               {"psi", "digamma"},
               {"gammaln", "lgamma"},
               {"gammainc", "igamma"},
               {"gammaincc", "igammac"},
               {"cinv", "reciprocal"},
               {"cmul", "mul"},
               {"cdiv", "div"},
               {"cpow", "pow"},
               {"csub", "sub"},
               {"cmax", "maximum"},
               {"cmin", "minimum"},
               {"cfmod", "fmod"},
               {"cremainder", "remainder"}};

static bool ends_with(const char *s, const char *tail) {
  size_t n = strlen(s), t = strlen(tail);
  return n >= t && strcmp(s + n - t, tail) == 0;
}

static bool is_method(const fll_op *b) {
  const char *name = b->info->name;
  if (!b->n_pos || !is_input(&b->info->params[b->pos[0]]))
    return false;
  return b->variadic < 0 && !strstr(name, "_backward") &&
         !ends_with(name, "_step");
}

void fll_ops_methods(lua_State *L, fl_lua *st) {
  for (int i = 0; i < st->n_ops; i++) {
    const fll_op *b = &st->ops[i];
    if (!is_method(b))
      continue;
    push_closure(L, ops_method, b);
    lua_setfield(L, -2, b->info->name);
    if (!b->info->inplace)
      continue;
    push_closure(L, inplace, b);
    lua_setfield(L, -2, b->inplace_name);
  }
  for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
    const fll_op *b = fll_findop(st, aliases[i].row);
    if (!b || !is_method(b))
      continue;
    push_closure(L, ops_method, b);
    lua_setfield(L, -2, aliases[i].name);
  }
  push_extreme(L, st, true);
  lua_setfield(L, -2, "max");
  push_extreme(L, st, false);
  lua_setfield(L, -2, "min");
  const fll_op *b = fll_findop(st, "assign");
  if (b) {
    push_closure(L, copy_into, b);
    lua_setfield(L, -2, "copy_");
  }
}

void fll_ops_metatable(lua_State *L, fl_lua *st) {
  static const struct {
    const char *event, *row;
    bool two;
  } events[] = {
      {"__add", "add", true},          {"__sub", "sub", true},
      {"__mul", "mul", true},          {"__div", "div", true},
      {"__idiv", "floor_div", true},   {"__mod", "remainder", true},
      {"__pow", "pow", true},          {"__unm", "neg", false},
      {"__band", "bitwise_and", true}, {"__bor", "bitwise_or", true},
      {"__bxor", "bitwise_xor", true}, {"__shl", "shift_left", true},
      {"__shr", "shift_right", true},  {"__bnot", "bitwise_not", false}};
  for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
    const fll_op *b = fll_findop(st, events[i].row);
    if (!b)
      continue;
    push_closure(L, events[i].two ? ops_binary : ops_unary, b);
    lua_setfield(L, -2, events[i].event);
  }
}

void fll_op_function(lua_State *L, fl_lua *st, const fl_op *op) {
  fll_getkey(L, FLL_STATE);
  fll_getkey(L, FLL_TENSOR);
  ops_describe(st, lua_newuserdatauv(L, sizeof(fll_op), 0), op);
  lua_pushcclosure(L, ops_function, 3);
}

/* --- core.ops(): the rows as tables, for specs, help and documents --- */

static const char *kind_name(const fl_param *p) {
  static const char *const types[] = {"any",  "num",   "float",   "int",
                                      "bool", "index", "complex", "id"};
  static const char *const kinds[] = {
      [FL_P_DIM] = "dim",     [FL_P_DIMS] = "dims", [FL_P_POS] = "pos",
      [FL_P_INT] = "int",     [FL_P_INTS] = "ints", [FL_P_SHAPE] = "shape",
      [FL_P_REAL] = "real",   [FL_P_FLAG] = "flag", [FL_P_ENUM] = "enum",
      [FL_P_DTYPE] = "dtype", [FL_P_RNG] = "rng",   [FL_P_NEWDIM] = "newdim"};
  return p->kind == FL_P_TENSOR ? types[p->type] : kinds[p->kind];
}

static void push_default(lua_State *L, const fl_param *p) {
  const fl_attr *v = &p->value;
  if (p->kind == FL_P_REAL && v->f == v->f)
    lua_pushnumber(L, v->f);
  else if (p->kind == FL_P_FLAG)
    lua_pushboolean(L, v->i != 0);
  else if (p->kind == FL_P_DTYPE && v->i != FL_ATTR_NONE)
    lua_pushstring(L, fl_dtype_name((fl_dtype)v->i));
  else if ((p->kind == FL_P_DIM || p->kind == FL_P_NEWDIM) &&
           v->i != FL_ATTR_NONE)
    lua_pushinteger(L, v->i < 0 ? v->i : v->i + 1);
  else if ((p->kind == FL_P_INT || p->kind == FL_P_POS) && v->i != FL_ATTR_NONE)
    lua_pushinteger(L, v->i);
  else if (p->kind == FL_P_ENUM) {
    const char *s = p->choices, *end = s + p->choices_len;
    for (int64_t k = v->i; k > 0 && s < end; s++)
      k -= *s == '|';
    const char *e = s;
    while (e < end && *e != '|')
      e++;
    lua_pushlstring(L, s, (size_t)(e - s));
  } else
    lua_pushnil(L);
}

static void set_string(lua_State *L, const char *key, const char *s) {
  lua_pushstring(L, s);
  lua_setfield(L, -2, key);
}

static void set_flag(lua_State *L, const char *key, bool on) {
  lua_pushboolean(L, on);
  lua_setfield(L, -2, key);
}

static void push_param(lua_State *L, const fl_param *p) {
  lua_newtable(L);
  set_string(L, "name", p->name);
  set_string(L, "kind", p->kind == FL_P_TENSOR ? "tensor" : kind_name(p));
  set_string(L, "type", kind_name(p));
  set_flag(L, "optional", p->optional || p->has_default);
  set_flag(L, "variadic", p->variadic);
  set_flag(L, "written", p->written);
  if (p->has_default) {
    push_default(L, p);
    lua_setfield(L, -2, "default");
  }
  if (p->kind == FL_P_ENUM) {
    lua_pushlstring(L, p->choices, (size_t)p->choices_len);
    lua_setfield(L, -2, "choices");
  }
}

static void push_info(lua_State *L, const fll_op *b) {
  const fl_op_info *info = b->info;
  lua_newtable(L);
  set_string(L, "name", info->name);
  set_string(L, "signature", info->signature);
  set_string(L, "doc", info->doc);
  set_string(L, "family", info->family);
  set_flag(L, "differentiable", info->differentiable);
  set_flag(L, "inplace", info->inplace);
  set_flag(L, "view", info->view);
  set_flag(L, "random", info->random);
  set_flag(L, "method", is_method(b));
  lua_pushinteger(L, b->n_ret);
  lua_setfield(L, -2, "returns");
  lua_newtable(L);
  for (int k = 0; k < info->n_params; k++) {
    push_param(L, &info->params[k]);
    lua_rawseti(L, -2, k + 1);
  }
  lua_setfield(L, -2, "params");
  lua_newtable(L);
  for (int k = 0; k < b->n_pos; k++) {
    lua_pushstring(L, info->params[b->pos[k]].name);
    lua_rawseti(L, -2, k + 1);
  }
  lua_setfield(L, -2, "positional");
  lua_newtable(L);
  for (int k = 0; k < info->n_out; k++) {
    lua_pushstring(L, info->out_name[k]);
    lua_rawseti(L, -2, k + 1);
  }
  lua_setfield(L, -2, "results");
  lua_newtable(L);
  for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
    if (strcmp(aliases[i].row, info->name) == 0) {
      lua_pushstring(L, aliases[i].name);
      lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
    }
  lua_setfield(L, -2, "aliases");
}

void fll_op_info(lua_State *L, fl_lua *st, const fl_op *op) {
  fll_op *b = lua_newuserdatauv(L, sizeof *b, 0);
  ops_describe(st, b, op);
  push_info(L, b);
  lua_remove(L, -2);
}

static int list(lua_State *L) {
  fl_lua *st = fll_enter(L);
  lua_newtable(L);
  for (int i = 0; i < st->n_ops; i++) {
    push_info(L, &st->ops[i]);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* In the table on top and in the one below. */
static void set_function(lua_State *L, const fll_op *b, const char *as) {
  if (!b)
    return;
  push_closure(L, ops_function, b);
  lua_pushvalue(L, -1);
  lua_setfield(L, -4, as);
  lua_setfield(L, -2, as);
}

/* core.softmax(x) and core.ops.softmax(x); core.ops() is the list. */
void fll_ops_core(lua_State *L) {
  fl_lua *st = fll_state_of(L);
  lua_createtable(L, 0, st->n_ops);
  for (int i = 0; i < st->n_ops; i++)
    set_function(L, &st->ops[i], st->ops[i].info->name);
  for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
    set_function(L, fll_findop(st, aliases[i].row), aliases[i].name);
  lua_createtable(L, 0, 1);
  fll_pushfunction(L, list);
  lua_setfield(L, -2, "__call");
  lua_setmetatable(L, -2);
  lua_setfield(L, -2, "ops");
  push_extreme(L, st, true);
  lua_setfield(L, -2, "max");
  push_extreme(L, st, false);
  lua_setfield(L, -2, "min");
}
