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
  b->views = b->info->view || b->info->composed;
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
  int row = fl_op_row(st->rt, name);
  return row < 0 ? NULL : &st->ops[row];
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

/* The rows that share a name: for one tensor, along a dim, of two tensors. */
enum { ALL, DIM, TENSOR, OVERLOADED };
typedef struct overload {
  const char *name;
  const fll_op *row[OVERLOADED];
} overload;

/* x:max(), x:max(dim), x:max(y): three operators. Upvalue 3 has them. */
static int ops_overloaded(lua_State *L) {
  fll_enter(L);
  const overload *o = lua_touserdata(L, FLL_OWN);
  int which = ALL;
  if (fll_test(L, 2)) {
    which = TENSOR;
  } else if (lua_istable(L, 2)) {
    if (fll_option(L, 2, "dim") == LUA_TNUMBER)
      which = DIM;
    lua_pop(L, 1);
  } else if (lua_type(L, 2) == LUA_TNUMBER) {
    which = DIM;
  }
  return run_known(L, o->row[which], o->name, false);
}

/* Upvalue 4 is the name. */
static int alias_inplace(lua_State *L) {
  const fll_op *b = fll_enter_op(L);
  return run_known(L, b, lua_tostring(L, lua_upvalueindex(4)), true);
}

/* --- names --- */

/* A name that ends in _ is one of the method in place. */
static const struct {
  const char *name, *row;
} aliases[] = {
#define FL_ALIAS(alias, name) {#alias, #name},
#include "../runtime/ops.def"
};

static const struct {
  const char *name, *row;
  int when;
} overloads[] = {
#define FL_OVERLOAD(alias, name, when) {#alias, #name, when},
#include "../runtime/ops.def"
};

#define N_ALIASES   (sizeof aliases / sizeof aliases[0])
#define N_OVERLOADS (sizeof overloads / sizeof overloads[0])

static bool is_inplace_name(const char *name) {
  return name[strlen(name) - 1] == '_';
}

static bool is_method(const fll_op *b) {
  return b->n_pos && is_input(&b->info->params[b->pos[0]]) && b->variadic < 0 &&
         !b->info->backward;
}

/* Into the table on top: max and min. */
static void set_overloaded(lua_State *L, fl_lua *st) {
  for (size_t i = 0; i < N_OVERLOADS; i++) {
    const char *name = overloads[i].name;
    if (overloads[i].when != ALL)
      continue;
    fll_getkey(L, FLL_STATE);
    fll_getkey(L, FLL_TENSOR);
    overload *o = lua_newuserdatauv(L, sizeof *o, 0);
    *o = (overload){.name = name};
    for (size_t k = 0; k < N_OVERLOADS; k++)
      if (strcmp(overloads[k].name, name) == 0)
        o->row[overloads[k].when] = fll_findop(st, overloads[k].row);
    lua_pushcclosure(L, ops_overloaded, 3);
    lua_setfield(L, -2, name);
  }
}

static void push_alias(lua_State *L, const fll_op *b, const char *name) {
  if (!is_inplace_name(name)) {
    push_closure(L, ops_method, b);
    return;
  }
  fll_getkey(L, FLL_STATE);
  fll_getkey(L, FLL_TENSOR);
  lua_pushlightuserdata(L, (void *)b);
  lua_pushstring(L, name);
  lua_pushcclosure(L, alias_inplace, 4);
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
  for (size_t i = 0; i < N_ALIASES; i++) {
    const fll_op *b = fll_findop(st, aliases[i].row);
    if (!is_method(b))
      continue;
    push_alias(L, b, aliases[i].name);
    lua_setfield(L, -2, aliases[i].name);
  }
  set_overloaded(L, st);
}

void fll_ops_metatable(lua_State *L, fl_lua *st) {
  static const struct {
    const char *event, *row;
  } events[] = {
#define FL_EVENT(name, event) {#event, #name},
#include "../runtime/ops.def"
  };
  for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
    const fll_op *b = fll_findop(st, events[i].row);
    push_closure(L, b->n_in == 2 ? ops_binary : ops_unary, b);
    lua_setfield(L, -2, events[i].event);
  }
}

/* An operator from outside. Upvalue 4 is the function that calls go to instead
 * while there is one. */
static int ops_outside(lua_State *L) {
  if (FLL_LIKELY(lua_isnil(L, lua_upvalueindex(4))))
    return ops_function(L);
  luaL_checkstack(L, 1, NULL);
  lua_pushvalue(L, lua_upvalueindex(4));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

void fll_op_function(lua_State *L, fl_lua *st, const fl_op *op) {
  fll_getkey(L, FLL_STATE);
  fll_getkey(L, FLL_TENSOR);
  ops_describe(st, lua_newuserdatauv(L, sizeof(fll_op), 0), op);
  lua_pushnil(L);
  lua_pushcclosure(L, ops_outside, 4);
}

static const fl_op *row_outside(lua_State *L, int i) {
  luaL_argcheck(L, lua_tocfunction(L, i) == ops_outside, i,
                "a registered operator is expected");
  lua_getupvalue(L, i, 3);
  const fll_op *b = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return b->op;
}

/* core.op_redirect(f, row, g): calls of f go to g, or with nil to its row, if
 * f is a function of the same row as `row`. Returns whether it is, and where
 * they went before. */
static int redirect(lua_State *L) {
  fll_enter(L);
  lua_settop(L, 3);
  bool same = row_outside(L, 1) == row_outside(L, 2);
  lua_pushboolean(L, same);
  lua_getupvalue(L, 1, 4);
  if (same) {
    lua_pushvalue(L, 3);
    lua_setupvalue(L, 1, 4);
  }
  return 2;
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
  set_flag(L, "backward", info->backward);
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
  for (size_t i = 0; i < N_ALIASES; i++)
    if (strcmp(aliases[i].row, info->name) == 0 &&
        !is_inplace_name(aliases[i].name)) {
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
  for (size_t i = 0; i < N_ALIASES; i++)
    if (!is_inplace_name(aliases[i].name))
      set_function(L, fll_findop(st, aliases[i].row), aliases[i].name);
  lua_createtable(L, 0, 1);
  fll_pushfunction(L, list);
  lua_setfield(L, -2, "__call");
  lua_setmetatable(L, -2);
  lua_setfield(L, -2, "ops");
  fll_pushfunction(L, redirect);
  lua_setfield(L, -2, "op_redirect");
  set_overloaded(L, st);
}
