/* The tensor userdata: making and closing handles, its metatable, its fields.
 * Operators as methods are in ops.c, x[...] in index.c. */
#include "provenance.h"
#include "scope.h"

#include <stdio.h>

/* --- handles --- */

void fll_scope_add(lua_State *L) {
  fll_getkey(L, FLL_SCOPES);
  lua_rawgeti(L, -1, (lua_Integer)lua_rawlen(L, -1));
  lua_pushvalue(L, -3);
  lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  lua_pop(L, 2);
}

void fll_push(lua_State *L, fl_lua *st, fl_tensor *t) {
  fll_tensor *h = lua_newuserdatauv(L, sizeof *h, 1);
  fll_born(st, h);
  fll_getkey(L, FLL_TENSOR);
  lua_setmetatable(L, -2);
  if (st->scopes)
    fll_scope_add(L);
  st->fresh--;
  fll_fill(h, fl_tensor_retain(t));
}

fl_tensor *fll_checktensor(lua_State *L, int i, const char *where,
                           const char *param) {
  fll_tensor *h = fll_test(L, i);
  if (!h)
    fll_argerror(L, where, param, "a tensor", i);
  return h->t;
}

static fll_tensor *any_handle(lua_State *L, int i) {
  fll_tensor *h = lua_touserdata(L, i);
  return h && lua_rawlen(L, i) == sizeof *h &&
                 (h->magic == FLL_OPEN || fll_is_closed(L, i))
             ? h
             : NULL;
}

static void drop(fl_lua *st, fll_tensor *h) {
  fl_tensor *t = h->t;
  h->t = NULL;
  if (h->magic == FLL_OPEN)
    h->magic = FLL_CLOSED;
  if (t && st) {
    st->young -= h->turn == st->turn;
    fl_tensor_handle(t, -1);
    fl_tensor_release(t);
  }
}

/* In the middle of an operation (the allocator asked for memory, and a
 * finaliser of the script closes something) the reference stays until the
 * handle goes. */
void fll_close(fl_lua *st, fll_tensor *h, fl_site site) {
  if (h->magic == FLL_OPEN)
    h->magic = FLL_CLOSED | (site <= FLL_BY ? site : 0);
  if (!st->reclaiming)
    drop(st, h);
}

const char *fll_closer(lua_State *L, const fll_tensor *h) {
  fl_lua *st = fll_peek(L);
  fl_site site = h->magic & FLL_BY;
  if (!site || !st->rt)
    return lua_pushliteral(L, "");
  return lua_pushfstring(L, " (%sat %s)",
                         h->fate & FLL_BY_SCOPE ? "by the scope " : "",
                         fl_site_text(st->rt, site));
}

/* __gc: any number of times, on anything, at any time. */
static int tensor_gc(lua_State *L) {
  fl_lua *st = fll_peek(L);
  fll_tensor *h = any_handle(L, 1);
  if (h && h->t)
    drop(st, h);
  return 0;
}

/* x:close(), and `local x <close>`. */
static int tensor_close(lua_State *L) {
  fl_lua *st = fll_peek(L);
  fll_tensor *h = any_handle(L, 1);
  if (!h)
    fll_argerror(L, "close", "x", "a tensor", 1);
  if (h->magic == FLL_OPEN)
    fll_close(st, h, st->rt ? fll_site_here(L, st) : 0);
  return 0;
}

static int tensor_len(lua_State *L) {
  fll_enter(L);
  const fl_meta *m = fl_tensor_meta(fll_checktensor(L, 1, "#", "x"));
  if (m->ndim == 0)
    fll_error(L, "#: a tensor without dimensions has no length");
  lua_pushinteger(L, m->shape[0]);
  return 1;
}

static int tensor_eq(lua_State *L) {
  fll_tensor *a = fll_test(L, 1), *b = fll_test(L, 2);
  lua_pushboolean(L, a && b && fl_tensor_id(a->t) == fl_tensor_id(b->t));
  return 1;
}

static int tensor_order(lua_State *L) {
  fll_enter(L);
  return fll_error(L, "tensors are compared elementwise by methods: x:lt(y), "
                      "x:le(y), x:gt(y), x:ge(y)");
}

static int tensor_concat(lua_State *L) {
  fll_enter(L);
  bool text = lua_isstring(L, 1) || lua_isstring(L, 2);
  return fll_error(L, text ? "..: a tensor is no text: x:item() is its number, "
                             "tostring(x) shows it"
                           : "..: tensors are joined by flare.cat({x, y}, "
                             "dim)");
}

static int tensor_call(lua_State *L) {
  fll_enter(L);
  const char *self = fll_selfhint(L);
  return fll_error(L, "a tensor is not a function%s",
                   self[0] ? self : "; elements are x[i], x[{i, j}]");
}

/* for i, row in pairs(x) */
static int tensor_next(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const fl_meta *m = fl_tensor_meta(fll_checktensor(L, 1, "pairs", "x"));
  lua_Integer i = luaL_optinteger(L, 2, 0) + 1;
  if (m->ndim == 0 || i > m->shape[0])
    return 0;
  lua_settop(L, 1);
  lua_pushinteger(L, i);
  fll_select(L, st, fll_test(L, 1), i);
  return 2;
}

static int tensor_pairs(lua_State *L) {
  fll_enter(L);
  const fl_meta *m = fl_tensor_meta(fll_checktensor(L, 1, "pairs", "x"));
  if (m->ndim == 0)
    fll_error(L, "pairs: a tensor without dimensions has no rows");
  fll_pushfunction(L, tensor_next);
  lua_pushvalue(L, 1);
  lua_pushinteger(L, 0);
  return 3;
}

/* What to print is the library's business; without it, the outline. */
int fll_tostring(lua_State *L) {
  fl_lua *st = fll_peek(L);
  fll_tensor *h = any_handle(L, 1);
  if (!h)
    fll_argerror(L, "tostring", "x", "a tensor", 1);
  if (h->magic != FLL_OPEN || fl_tensor_closed(h->t)) {
    lua_pushliteral(L, "flare.Tensor (closed)");
    return 1;
  }
  lua_getglobal(L, "require");
  if (lua_isfunction(L, -1)) {
    lua_pushliteral(L, "flare.print");
    if (lua_pcall(L, 1, 1, 0) == LUA_OK) {
      if (lua_istable(L, -1))
        lua_getfield(L, -1, "format");
      if (lua_isfunction(L, -1)) {
        lua_pushvalue(L, 1);
        lua_call(L, 1, 1);
        return 1;
      }
    }
  }
  const fl_meta *m = fl_tensor_meta(h->t);
  lua_pushfstring(L, "flare.Tensor %s %s %s", fl_dtype_name(m->dtype),
                  fli_shape_text(m->ndim, m->shape),
                  fl_device_name(st->rt, fl_tensor_device(h->t)));
  return 1;
}

/* --- shapes: tables that count from 1 and say so --- */

void fll_pushshape(lua_State *L, int n, const int64_t *v) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, v[i]);
    lua_rawseti(L, -2, i + 1);
  }
  fll_getkey(L, FLL_SHAPE);
  lua_setmetatable(L, -2);
}

static int shape_index(lua_State *L) {
  fll_enter(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  if (lua_isinteger(L, 2)) {
    lua_Integer i = lua_tointeger(L, 2);
    if (i == 0)
      fll_error(L, "shape[0]: positions count from 1; shape[1] is the first "
                   "size, shape[-1] the last");
    if (i < 0) {
      lua_rawgeti(L, 1, (lua_Integer)lua_rawlen(L, 1) + 1 + i);
      return 1;
    }
  }
  lua_pushnil(L);
  return 1;
}

static int shape_tostring(lua_State *L) {
  luaL_Buffer b;
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
  luaL_buffinit(L, &b);
  luaL_addchar(&b, '(');
  for (lua_Integer i = 1; i <= n; i++) {
    if (i > 1)
      luaL_addstring(&b, ", ");
    lua_rawgeti(L, 1, i);
    luaL_tolstring(L, -1, NULL);
    lua_remove(L, -2);
    luaL_addvalue(&b);
  }
  luaL_addchar(&b, ')');
  luaL_pushresult(&b);
  return 1;
}

static int shape_eq(lua_State *L) {
  bool same = lua_istable(L, 1) && lua_istable(L, 2) &&
              lua_rawlen(L, 1) == lua_rawlen(L, 2);
  lua_Integer n = same ? (lua_Integer)lua_rawlen(L, 1) : 0;
  for (lua_Integer i = 1; same && i <= n; i++) {
    lua_rawgeti(L, 1, i);
    lua_rawgeti(L, 2, i);
    same = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
  }
  lua_pushboolean(L, same);
  return 1;
}

static int shape_concat(lua_State *L) {
  luaL_tolstring(L, 1, NULL);
  luaL_tolstring(L, 2, NULL);
  lua_concat(L, 2);
  return 1;
}

/* --- fields --- */

enum {
  F_SHAPE = 1,
  F_DTYPE,
  F_DEVICE,
  F_NDIM,
  F_GRAD,
  F_REQUIRES,
  F_LEAF,
  F_ID,
  F_T,
  F_NODE,
  F_SITE,
  F_MADE,
  F_VERSION,
  F_CLOSED
};

static const struct {
  const char *name;
  int id;
} fields[] = {
    {"shape", F_SHAPE},   {"dtype", F_DTYPE}, {"device", F_DEVICE},
    {"ndim", F_NDIM},     {"grad", F_GRAD},   {"requires_grad", F_REQUIRES},
    {"is_leaf", F_LEAF},  {"id", F_ID},       {"T", F_T},
    {"grad_fn", F_NODE},  {"site", F_SITE},   {"version", F_VERSION},
    {"closed", F_CLOSED}, {"made", F_MADE}};

static int push_transposed(lua_State *L, fl_lua *st) {
  lua_settop(L, 1);
  const fl_meta *m = fl_tensor_meta(fll_test(L, 1)->t);
  if (m->ndim < 2)
    return 1;
  for (int d = m->ndim; d > 0; d--)
    lua_pushinteger(L, d);
  return fll_run(L, st, fll_findop(st, "permute"), false);
}

static int push_field(lua_State *L, fl_lua *st, fll_tensor *h, int id) {
  fl_tensor *t = h->t;
  const fl_meta *m = fl_tensor_meta(t);
  switch (id) {
  case F_SHAPE:
    fll_pushshape(L, m->ndim, m->shape);
    break;
  case F_DTYPE:
    lua_pushstring(L, fl_dtype_name(m->dtype));
    break;
  case F_DEVICE:
    lua_pushstring(L, fl_device_name(st->rt, fl_tensor_device(t)));
    break;
  case F_NDIM:
    lua_pushinteger(L, m->ndim);
    break;
  case F_GRAD: {
    fll_tensor *g = fl_tensor_grad(t) ? fll_new(L, st, FLL_MT) : NULL;
    if (g && h->t && fl_tensor_grad(h->t)) /* making g may run finalisers */
      fll_fill(g, fl_tensor_retain(fl_tensor_grad(h->t)));
    else
      lua_pushnil(L);
    break;
  }
  case F_REQUIRES:
    lua_pushboolean(L, fl_tensor_requires_grad(t));
    break;
  case F_LEAF:
    lua_pushboolean(L, fl_tensor_is_leaf(t));
    break;
  case F_ID:
    lua_pushinteger(L, (lua_Integer)fl_tensor_id(t));
    break;
  case F_T:
    return push_transposed(L, st);
  case F_NODE:
    lua_pushstring(L, fl_tensor_node_name(t));
    break;
  case F_SITE:
    lua_pushstring(L, fl_tensor_node_name(t)
                          ? fl_site_text(st->rt, fl_tensor_node_site(t))
                          : NULL);
    break;
  case F_MADE: {
    fl_site site = fll_made(t);
    lua_pushstring(L, site ? fl_site_text(st->rt, site) : NULL);
    break;
  }
  case F_VERSION:
    lua_pushinteger(L, fl_tensor_version(t));
    break;
  default: /* F_CLOSED */
    lua_pushboolean(L, 0);
  }
  return 1;
}

/* --- x.name, x[...] --- */

static const char *listed(const void *list, int i) {
  return ((const char *const *)list)[i];
}

/* Unknown names: nil for those with an underscore in front, so that code may
 * ask whether something is a module; else an error that knows better. */
static int no_field(lua_State *L) {
  const char *name = lua_tostring(L, 2);
  if (!any_handle(L, 1))
    fll_argerror(L, name, "x", "a tensor", 1);
  if (name[0] == '_') {
    lua_pushnil(L);
    return 1;
  }
  int n = 0, all = 0;
  for (lua_pushnil(L); lua_next(L, FLL_OWN); lua_pop(L, 1))
    all++;
  const char **list = fll_scratch(L, (size_t)all * sizeof *list);
  for (lua_pushnil(L); lua_next(L, FLL_OWN); lua_pop(L, 1))
    list[n++] = lua_tostring(L, -2);
  const char *near = fll_nearest(name, n, listed, list);
  const char *self = fll_selfhint(L);
  if (near && !self[0])
    fll_error(L, "tensors have no '%s'; did you mean '%s'?", name, near);
  fll_error(L, "tensors have no '%s'%s", name, self);
}

static int tensor_index(lua_State *L) {
  int type = LUA_TNONE;
  if (lua_type(L, 2) == LUA_TSTRING) {
    lua_pushvalue(L, 2);
    type = lua_rawget(L, FLL_OWN);
    if (FLL_LIKELY(type == LUA_TFUNCTION))
      return 1;
  }
  fl_lua *st = fll_peek(L);
  fll_tensor *h = fll_test(L, 1);
  if (type != LUA_TNONE) {
    if (type == LUA_TNUMBER) {
      int id = (int)lua_tointeger(L, -1);
      if (id == F_CLOSED) {
        lua_pushboolean(L, !h || fl_tensor_closed(h->t));
        return 1;
      }
      if (!h || fl_tensor_closed(h->t))
        fll_argerror(L, lua_tostring(L, 2), "x", "a tensor", 1);
      lua_settop(L, 2);
      return push_field(L, st, h, id);
    }
    return no_field(L);
  }
  if (!h)
    fll_argerror(L, "x[...]", "x", "a tensor", 1);
  if (FLL_LIKELY(lua_isinteger(L, 2)))
    return fll_select(L, st, h, lua_tointeger(L, 2));
  return fll_index_get(L, st);
}

static int tensor_newindex(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_tensor *h = fll_test(L, 1);
  if (!h)
    fll_argerror(L, "x[...]", "x", "a tensor", 1);
  if (lua_type(L, 2) != LUA_TSTRING)
    return fll_index_set(L, st);
  const char *name = lua_tostring(L, 2);
  if (strcmp(name, "grad") == 0) {
    fl_tensor *g =
        lua_isnil(L, 3) ? NULL : fll_checktensor(L, 3, "grad", "value");
    fll_check(L, st, fl_tensor_set_grad(h->t, g));
    if (g && fl_tensor_requires_grad(g) && !fl_tensor_is_leaf(g))
      fll_warn_cycle(L, st, "x.grad = a gradient that has a graph");
  } else if (strcmp(name, "requires_grad") == 0) {
    if (!lua_isboolean(L, 3))
      fll_error(L, "requires_grad: expected true or false, got %s",
                fll_typename(L, 3));
    fll_check(L, st, fl_tensor_require_grad(h->t, lua_toboolean(L, 3)));
  } else {
    fll_error(L,
              "'%s' of a tensor cannot be set; 'grad' and 'requires_grad' "
              "can, and elements: x[i] = value",
              name);
  }
  return 0;
}

/* core.methods(): names of methods and fields, for completion;
 * core.method(name, f): adds one written in Lua. */
static int methods(lua_State *L) {
  fll_enter(L);
  fll_getkey(L, FLL_METHODS);
  lua_newtable(L);
  lua_pushnil(L);
  while (lua_next(L, -3)) {
    lua_pushvalue(L, -2);
    lua_pushstring(L, lua_type(L, -2) == LUA_TNUMBER ? "field" : "method");
    lua_rawset(L, -5);
    lua_pop(L, 1);
  }
  return 1;
}

static int method(lua_State *L) {
  fll_enter(L);
  luaL_checkstring(L, 1);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  fll_getkey(L, FLL_METHODS);
  lua_pushvalue(L, 1);
  if (lua_rawget(L, 3) != LUA_TNIL)
    fll_error(L, "method: tensors have '%s' already", lua_tostring(L, 1));
  lua_pop(L, 1);
  lua_insert(L, 1);
  lua_rawset(L, 1);
  return 0;
}

void fll_tensor_open(lua_State *L, fl_lua *st) {
  static const luaL_Reg meta[] = {{"__gc", tensor_gc},
                                  {"__close", tensor_close},
                                  {"__len", tensor_len},
                                  {"__eq", tensor_eq},
                                  {"__lt", tensor_order},
                                  {"__le", tensor_order},
                                  {"__concat", tensor_concat},
                                  {"__call", tensor_call},
                                  {"__pairs", tensor_pairs},
                                  {"__tostring", fll_tostring},
                                  {"__newindex", tensor_newindex},
                                  {NULL, NULL}};
  static const luaL_Reg shape[] = {{"__index", shape_index},
                                   {"__tostring", shape_tostring},
                                   {"__eq", shape_eq},
                                   {"__concat", shape_concat},
                                   {NULL, NULL}};
  static const luaL_Reg own[] = {{"close", tensor_close}, {NULL, NULL}};
  fll_newtype(L, FLL_SHAPE, "flare.shape", shape);
  lua_pop(L, 1);
  fll_newtype(L, FLL_TENSOR, "flare.tensor", meta);
  fll_ops_metatable(L, st);
  lua_newtable(L);
  lua_pushvalue(L, -1);
  fll_setkey(L, FLL_METHODS);
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
    lua_pushinteger(L, fields[i].id);
    lua_setfield(L, -2, fields[i].name);
  }
  fll_ops_methods(L, st);
  fll_register(L, own);
  fll_register(L, fll_convert_methods);
  fll_register(L, fll_contract_methods);
  fll_register(L, fll_stream_methods);
  fll_register(L, fll_dlpack_methods);
  fll_convert_methods_more(L);
  fll_register(L, fll_random_methods);
  fll_register(L, fll_autograd_methods);
  fll_getkey(L, FLL_STATE);
  lua_pushvalue(L, -3);
  lua_pushvalue(L, -3);
  lua_pushcclosure(L, tensor_index, 3);
  lua_setfield(L, -3, "__index");
  lua_pop(L, 2);
}

void fll_tensor_core(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"methods", methods}, {"method", method}, {NULL, NULL}};
  fll_register(L, functions);
}
