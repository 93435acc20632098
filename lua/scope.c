/* scope(f, ...): closes the tensors that f leaves behind. */
#include "fll.h"

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

void fll_scope_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"scope", scope}, {NULL, NULL}};
  fll_register(L, functions);
}
