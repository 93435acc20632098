/* Modes of the runtime as scopes: no_grad, enable_grad, meta, anomaly,
 * autocast, device. Each takes a function (and its arguments), or gives a guard
 * for `local _ <close> = flare.no_grad()`. And scope(f), which closes what f
 * leaves behind. */
#include "fll.h"

typedef enum mode { GRAD, META, ANOMALY, AUTOCAST, DEVICE } mode;

typedef struct guard {
  uint64_t magic; /* of no use to anybody, but 16 bytes are a tensor's size */
  mode mode;
  int was;
  bool active;
} guard;

static int set_mode(fl_lua *st, mode m, int value) {
  int was;
  switch (m) {
  case GRAD:
    return fl_grad_mode(st->rt, value);
  case META:
    st->meta = value;
    return fl_meta_mode(st->rt, value);
  case ANOMALY:
    st->anomaly = value;
    return fl_anomaly_mode(st->rt, value);
  case AUTOCAST:
    return (int)fl_autocast(st->rt, (fl_dtype)value);
  default:
    was = st->device;
    st->device = value;
    return was;
  }
}

/* Calls the function at index f with what lies above it, and undoes the mode
 * whatever happens. Yielding across it is not possible. */
static int with_mode(lua_State *L, fl_lua *st, mode m, int value, int f) {
  int was = set_mode(st, m, value);
  int s = lua_pcall(L, lua_gettop(L) - f, LUA_MULTRET, 0);
  if (st->rt)
    set_mode(st, m, was);
  st->L = L;
  if (s != LUA_OK)
    return lua_error(L);
  return lua_gettop(L) - f + 1;
}

static int push_guard(lua_State *L, fl_lua *st, mode m, int value) {
  guard *g = fll_newobject(L, FLL_GUARD, sizeof *g, 0);
  g->mode = m;
  g->was = set_mode(st, m, value);
  g->active = true;
  return 1;
}

/* f(...) or a guard, from argument i on. */
static int scoped(lua_State *L, mode m, int value, int i, const char *where) {
  fl_lua *st = fll_enter(L);
  if (lua_isnoneornil(L, i))
    return push_guard(L, st, m, value);
  if (!lua_isfunction(L, i) && luaL_getmetafield(L, i, "__call") == LUA_TNIL)
    fll_error(L, "%s: expected a function or nothing, got %s", where,
              fll_typename(L, i));
  if (!lua_isfunction(L, i))
    lua_pop(L, 1); /* a module, say */
  return with_mode(L, st, m, value, i);
}

static int guard_close(lua_State *L) {
  fl_lua *st = fll_peek(L);
  guard *g = fll_checktype(L, 1, FLL_GUARD, sizeof *g);
  if (g->active && st->rt)
    set_mode(st, g->mode, g->was);
  g->active = false;
  return 0;
}

static int no_grad(lua_State *L) {
  return scoped(L, GRAD, 0, 1, "no_grad");
}

static int enable_grad(lua_State *L) {
  return scoped(L, GRAD, 1, 1, "enable_grad");
}

static int grad_enabled(lua_State *L) {
  lua_pushboolean(L, fl_grad_enabled(fll_enter(L)->rt));
  return 1;
}

static int meta(lua_State *L) {
  return scoped(L, META, 1, 1, "meta");
}

/* anomaly(true), anomaly(false), anomaly(f, ...), or a guard. */
static int anomaly(lua_State *L) {
  fl_lua *st = fll_enter(L);
  if (!lua_isboolean(L, 1))
    return scoped(L, ANOMALY, 1, 1, "anomaly");
  lua_pushboolean(L, set_mode(st, ANOMALY, lua_toboolean(L, 1)));
  return 1;
}

/* autocast(dtype, f, ...), or autocast(dtype) for a guard; false: not. */
static int autocast(lua_State *L) {
  fl_dtype d = FL_NODTYPE;
  fll_enter(L);
  if (!lua_isboolean(L, 1) || lua_toboolean(L, 1)) {
    d = fll_checkdtype(L, 1, "autocast");
    if (d != FL_BF16 && d != FL_F16)
      fll_error(L, "autocast: bf16 or f16, not %s", fl_dtype_name(d));
  }
  return scoped(L, AUTOCAST, (int)d, 2, "autocast");
}

/* device(): the default one; device(name) sets it; device(name, f, ...). */
static int device(lua_State *L) {
  fl_lua *st = fll_enter(L);
  if (!lua_isnoneornil(L, 1)) {
    fl_device d = fll_checkdevice(L, st, 1, "device");
    if (lua_gettop(L) > 1)
      return scoped(L, DEVICE, d, 2, "device");
    st->device = d;
  }
  lua_pushstring(L, fl_device_name(st->rt, st->device));
  return 1;
}

/* --- scope(f, ...): tensors that f makes and does not return are closed --- */

/* Marks handles among the value at i, and inside tables, in the table at
 * `keep`. */
static void mark(lua_State *L, int i, int keep, int depth) {
  luaL_checkstack(L, 6, NULL);
  if (fll_test(L, i)) {
    lua_pushvalue(L, i);
    lua_pushboolean(L, 1);
    lua_rawset(L, keep);
  } else if (lua_istable(L, i) && depth > 0) {
    lua_pushvalue(L, i);
    if (lua_rawget(L, keep) == LUA_TNIL) {
      lua_pushvalue(L, i);
      lua_pushboolean(L, 1);
      lua_rawset(L, keep);
      lua_pushnil(L);
      while (lua_next(L, i)) {
        mark(L, lua_gettop(L), keep, depth - 1);
        lua_pop(L, 1);
      }
    }
    lua_pop(L, 1);
  }
}

/* Takes the innermost list off, closes its handles except those in `keep` (0:
 * none), which go to the list outside. */
static void end_scope(lua_State *L, fl_lua *st, int keep) {
  fll_getkey(L, FLL_SCOPES);
  int scopes = lua_gettop(L);
  lua_rawgeti(L, scopes, st->scopes);
  lua_pushnil(L);
  lua_rawseti(L, scopes, st->scopes);
  st->scopes--;
  lua_pushnil(L);
  while (lua_next(L, scopes + 1)) {
    bool kept = false;
    fll_tensor *h = fll_test(L, -1);
    if (h && keep) {
      lua_pushvalue(L, -1);
      kept = lua_rawget(L, keep) != LUA_TNIL;
      lua_pop(L, 1);
    }
    if (kept && st->scopes)
      fll_scope_add(L);
    else if (h && !kept)
      fll_close(L, st, h);
    lua_pop(L, 1);
  }
  lua_settop(L, scopes - 1);
}

static int scope(lua_State *L) {
  fl_lua *st = fll_enter(L);
  luaL_checktype(L, 1, LUA_TFUNCTION);
  luaL_checkstack(L, 20, NULL);
  fll_getkey(L, FLL_SCOPES);
  lua_newtable(L);
  lua_createtable(L, 0, 1); /* weak: what is collected before is gone */
  lua_pushliteral(L, "v");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_rawseti(L, -2, st->scopes + 1);
  lua_pop(L, 1);
  st->scopes++;
  int s = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
  st->L = L;
  if (!st->rt)
    return s == LUA_OK ? lua_gettop(L) : lua_error(L);
  if (s != LUA_OK) {
    end_scope(L, st, 0);
    return lua_error(L);
  }
  int n = lua_gettop(L);
  lua_newtable(L);
  for (int i = 1; i <= n; i++)
    mark(L, i, n + 1, 8);
  end_scope(L, st, n + 1);
  lua_settop(L, n);
  return n;
}

void fll_modes_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"no_grad", no_grad},
                                       {"enable_grad", enable_grad},
                                       {"grad_enabled", grad_enabled},
                                       {"meta", meta},
                                       {"anomaly", anomaly},
                                       {"autocast", autocast},
                                       {"device", device},
                                       {"set_default_device", device},
                                       {"scope", scope},
                                       {NULL, NULL}};
  static const luaL_Reg type[] = {{"__close", guard_close}, {NULL, NULL}};
  fll_newtype(L, FLL_GUARD, "flare.guard", type);
  lua_createtable(L, 0, 1);
  fll_pushfunction(L, guard_close);
  lua_setfield(L, -2, "close");
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  fll_register(L, functions);
}
