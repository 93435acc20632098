/* Methods that a class lacks: obj:paramters() says which class has no such
 * method, and what was probably meant. Fields that are nil stay nil: the
 * instruction that asks distinguishes a method call from a read. */
#include "fll.h"

enum { OP_SELF = 20, MOST = 512, DEEPEST = 64, MOST_INDEXES = 4 };

/* Whether a Lua function is an __index that was called with the key at 2. */
static bool looks_up_key(lua_State *L, const lua_Debug *ar) {
  if (!lua_getlocal(L, ar, 2))
    return false;
  bool same = lua_rawequal(L, 2, -1);
  lua_pop(L, 1);
  return same;
}

/* Pushes the object whose method is looked up; false if the script reads a
 * field instead. Between this function and the one that calls the method there
 * may be __index functions of classes, which ask their parents for the key.
 * Records of calls are read as fll_site_here does. */
static bool push_receiver(lua_State *L, const fl_lua *st) {
  lua_Debug ar;
  if (!st || !st->site_cache)
    return false;
  for (int level = 1; level <= MOST_INDEXES && lua_getstack(L, level, &ar);
       level++) {
    const char *record = (const char *)ar.i_ci;
    if (record[62] & 2)
      return false;
    const char *pc = ((char *const *)(const void *)record)[4];
    uint32_t instruction = fll_word(pc - 4);
    if ((instruction & 0x7f) == OP_SELF)
      return lua_getlocal(L, &ar, (int)(instruction >> 16 & 0xff) + 1) != NULL;
    if (!looks_up_key(L, &ar))
      return false;
  }
  return false;
}

/* Replaces the object at the top by its class; modules have metatables of their
 * own, whose __metatable is the class. */
static bool push_class(lua_State *L) {
  if (!lua_istable(L, -1) || !lua_getmetatable(L, -1))
    return false;
  lua_pushliteral(L, "__metatable");
  if (lua_rawget(L, -2) != LUA_TTABLE)
    lua_pop(L, 1);
  lua_replace(L, 3);
  lua_settop(L, 3);
  return true;
}

/* missing(class, key): the __index of classes without a parent. */
static int missing_method(lua_State *L) {
  const char *names[MOST], *class_name;
  int n = 0, depth = 0;
  bool ends = false;
  const fl_lua *st = lua_touserdata(L, lua_upvalueindex(1));
  lua_settop(L, 2);
  if (lua_type(L, 2) != LUA_TSTRING || !push_receiver(L, st) || !push_class(L))
    return 0;
  lua_pushliteral(L, "__name");
  lua_rawget(L, 3);
  class_name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "object";
  luaL_checkstack(L, DEEPEST + 10, NULL);
  for (lua_pushvalue(L, 3); lua_istable(L, -1) && depth < DEEPEST; depth++) {
    int cls = lua_gettop(L);
    ends = lua_rawequal(L, cls, 1);
    for (lua_pushnil(L); lua_next(L, cls); lua_pop(L, 1))
      if (n < MOST && lua_isfunction(L, -1) && lua_type(L, -2) == LUA_TSTRING)
        names[n++] = lua_tostring(L, -2); /* the class keeps it */
    lua_pushliteral(L, "parent");
    lua_rawget(L, cls);
  }
  if (!ends) /* another table that has the class as its __index */
    return 0;
  const char *key = lua_tostring(L, 2);
  const char *hint = fll_hint_of(lua_pushfstring(L, "(method '%s')", key));
  if (hint)
    fll_error(L, "%s has no method '%s' (%s)", class_name, key, hint);
  const char *near = fll_nearest(key, n, fll_name_at, names);
  if (near)
    fll_error(L, "%s has no method '%s' (did you mean '%s'?)", class_name, key,
              near);
  fll_error(L, "%s has no method '%s'", class_name, key);
}

void fll_missing_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"missing", missing_method},
                                       {NULL, NULL}};
  fll_register(L, functions);
}
