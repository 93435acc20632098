/* scope(f, ...): closes the tensors that f made and that neither its results
 * nor an object that keeps tensors (a module, an optimizer) refer to. */
#include "scope.h"

/* Marks in `keep` what the function at i captured. */
static void reach_upvalues(lua_State *L, fl_lua *st, int i, int keep,
                           int depth) {
  for (int k = 1; lua_getupvalue(L, i, k); k++) {
    fll_reach(L, st, lua_gettop(L), keep, depth);
    lua_pop(L, 1);
  }
}

static void mark_seen(lua_State *L, int i, int keep) {
  lua_pushvalue(L, i);
  lua_pushboolean(L, 1);
  lua_rawset(L, keep);
}

void fll_reach(lua_State *L, fl_lua *st, int i, int keep, int depth) {
  bool table = lua_istable(L, i);
  luaL_checkstack(L, 6, NULL);
  st->to_visit--;
  if (fll_test(L, i)) {
    mark_seen(L, i, keep);
    return;
  }
  if (depth == 0 || st->to_visit < 0 ||
      !(table || (lua_isfunction(L, i) && !lua_iscfunction(L, i))))
    return;
  for (int k = keep; k <= keep + 1; k++) {
    lua_pushvalue(L, i);
    bool seen = lua_rawget(L, k) != LUA_TNIL;
    lua_pop(L, 1);
    if (seen)
      return;
  }
  mark_seen(L, i, keep);
  if (!table) {
    reach_upvalues(L, st, i, keep, depth - 1);
    return;
  }
  lua_pushnil(L);
  while (st->to_visit >= 0 && lua_next(L, i)) {
    fll_reach(L, st, lua_gettop(L), keep, depth - 1);
    lua_pop(L, 1);
  }
}

/* Pushes a set of tables that fll_reach passes by: those of the library and of
 * Lua, in which no script keeps tensors. Modules that were loaded since it was
 * filled only cost time. */
static void push_library(lua_State *L, fl_lua *st) {
  enum { OFTEN = 64 };
  static const char lua[] =
      " _G package coroutine table io os string math utf8 "
      "debug ";
  if (fll_getkey(L, FLL_LIBRARY) == LUA_TTABLE && st->reaches++ % OFTEN)
    return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  int set = lua_gettop(L);
  if (lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE) == LUA_TTABLE) {
    lua_pushnil(L);
    while (lua_next(L, set + 1)) {
      const char *name =
          lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
      char word[16] = " ";
      bool ours = strncmp(name, "flare", 5) == 0;
      if (strlen(name) < 12)
        strcat(strcat(word, name), " ");
      if (lua_istable(L, -1) && (ours || strstr(lua, word)))
        mark_seen(L, lua_gettop(L), set);
      lua_pop(L, 1);
    }
  }
  lua_settop(L, set);
  lua_pushvalue(L, set);
  fll_setkey(L, FLL_LIBRARY);
}

int fll_reach_begin(lua_State *L, fl_lua *st, int64_t most) {
  luaL_checkstack(L, 10, NULL);
  st->to_visit = most;
  lua_createtable(L, 0, 64);
  push_library(L, st);
  return lua_gettop(L) - 1;
}

void fll_reach_keepers(lua_State *L, fl_lua *st, int keep, lua_Integer before) {
  int top = lua_gettop(L);
  if (fll_getkey(L, FLL_KEEPERS) == LUA_TTABLE) {
    lua_pushnil(L);
    while (lua_next(L, top + 1)) {
      bool old = lua_tointeger(L, -1) <= before;
      lua_pop(L, 1);
      if (old)
        fll_reach(L, st, top + 2, keep, FLL_REACH);
    }
  }
  lua_settop(L, top);
}

void fll_scope_begin(lua_State *L, fl_lua *st) {
  luaL_checkstack(L, 6, NULL);
  fll_getkey(L, FLL_SCOPES);
  lua_newtable(L);
  lua_createtable(L, 0, 1); /* weak: what is collected before is gone */
  lua_pushliteral(L, "v");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_rawseti(L, -2, st->scopes + 1);
  lua_pop(L, 1);
  st->scopes++;
}

void fll_scope_end(lua_State *L, fl_lua *st, int keep, bool all, fl_site site) {
  luaL_checkstack(L, 8, NULL);
  if (all && st->scopes == 1) {
    fll_scope_drop(L, st, 0);
    return;
  }
  fll_getkey(L, FLL_SCOPES);
  int scopes = lua_gettop(L);
  lua_rawgeti(L, scopes, st->scopes);
  lua_pushnil(L);
  lua_rawseti(L, scopes, st->scopes);
  st->scopes--;
  lua_pushnil(L);
  while (lua_next(L, scopes + 1)) {
    bool kept = all;
    fll_tensor *h = fll_test(L, -1);
    if (h && !all) {
      lua_pushvalue(L, -1);
      kept = lua_rawget(L, keep) != LUA_TNIL;
      lua_pop(L, 1);
    }
    if (kept && st->scopes) {
      fll_scope_add(L);
    } else if (h && !kept && !(h->fate & FLL_KEPT)) {
      h->fate |= FLL_BY_SCOPE;
      fll_close(st, h, site);
    }
    lua_pop(L, 1);
  }
  lua_settop(L, scopes - 1);
}

/* Whether the innermost scope has made a tensor that is open still. */
static bool has_open(lua_State *L, fl_lua *st) {
  int top = lua_gettop(L);
  fll_getkey(L, FLL_SCOPES);
  lua_rawgeti(L, -1, st->scopes);
  lua_pushnil(L);
  bool open = false;
  while (!open && lua_next(L, top + 2)) {
    open = fll_test(L, -1);
    lua_pop(L, 1);
  }
  lua_settop(L, top);
  return open;
}

void fll_scope_drop(lua_State *L, fl_lua *st, int n) {
  fll_getkey(L, FLL_SCOPES);
  for (; st->scopes > n; st->scopes--) {
    lua_pushnil(L);
    lua_rawseti(L, -2, st->scopes);
  }
  lua_pop(L, 1);
}

/* After an error of f there are no results, only the error's value. */
static int scope(lua_State *L) {
  fl_lua *st = fll_enter(L);
  luaL_checktype(L, 1, LUA_TFUNCTION);
  luaL_checkstack(L, 20, NULL);
  fl_site site = fll_site_here(L, st);
  lua_Integer before = st->keepers;
  fll_scope_begin(L, st);
  int s = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
  st->L = L;
  if (!st->rt)
    return s == LUA_OK ? lua_gettop(L) : lua_error(L);
  int n = lua_gettop(L), keep = fll_reach_begin(L, st, INT64_MAX);
  if (has_open(L, st)) {
    for (int i = 1; i <= n; i++)
      fll_reach(L, st, i, keep, FLL_REACH);
    fll_reach_keepers(L, st, keep, before);
  }
  fll_scope_end(L, st, keep, false, site);
  lua_settop(L, n);
  return s == LUA_OK ? n : lua_error(L);
}

/* keeper(object): scopes that are begun later leave the tensors open that the
 * object leads to. For classes that have `__keeps`, see class.lua. */
static int keeper(lua_State *L) {
  fl_lua *st = fll_enter(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  fll_getkey(L, FLL_KEEPERS);
  lua_pushvalue(L, 1);
  lua_pushinteger(L, ++st->keepers);
  lua_rawset(L, -3);
  lua_settop(L, 1);
  return 1;
}

/* keep(value): scopes leave the tensors in it open. For what a library keeps
 * and no object of a class with `__keeps` leads to. Returns it. */
static int keep(lua_State *L) {
  fl_lua *st = fll_enter(L);
  lua_settop(L, 1);
  if (!st->scopes)
    return 1;
  int found = fll_reach_begin(L, st, INT64_MAX);
  fll_reach(L, st, 1, found, FLL_REACH);
  lua_pushnil(L);
  while (lua_next(L, found)) {
    fll_tensor *h = fll_test(L, -2);
    if (h)
      h->fate |= FLL_KEPT;
    lua_pop(L, 1);
  }
  lua_settop(L, 1);
  return 1;
}

void fll_scope_core(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"scope", scope}, {"keeper", keeper}, {"keep", keep}, {NULL, NULL}};
  fll_register(L, functions);
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  fll_setkey(L, FLL_KEEPERS);
}
