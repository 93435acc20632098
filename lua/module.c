/* Calls of modules, and functions of the library as C functions. For
 * `return f(x)` Lua drops the frame of the caller where f is a Lua function,
 * and its line with it, but not where f is a C function. */
#include "fll.h"

/* skip: values at the bottom of the stack that are no results */
static int finish_call(lua_State *L, int status, lua_KContext skip) {
  (void)status;
  return lua_gettop(L) - (int)skip;
}

static int call_framed(lua_State *L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_callk(L, lua_gettop(L) - 1, LUA_MULTRET, 0, finish_call);
  return lua_gettop(L);
}

/* framed(f): f as a C function. */
static int framed(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  lua_pushcclosure(L, call_framed, 1);
  return 1;
}

/* (self, ...) -> self:forward(...), or what upvalue 1 makes of it if the module
 * has hooks or calls are watched. self stays at 1, for the path in errors. */
static int call_module(lua_State *L) {
  const bool *watched = lua_touserdata(L, lua_upvalueindex(2));
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_pushliteral(L, "_hooks");
  if (*watched || (lua_rawget(L, 1), lua_toboolean(L, -1))) {
    lua_pop(L, 1);
    lua_pushvalue(L, lua_upvalueindex(1));
  } else {
    lua_pop(L, 1);
    lua_getfield(L, 1, "forward");
  }
  lua_pushvalue(L, 1);
  lua_rotate(L, 2, 2);
  lua_callk(L, lua_gettop(L) - 2, LUA_MULTRET, 1, finish_call);
  return lua_gettop(L) - 1;
}

static int watch_modules(lua_State *L) {
  bool *watched = lua_touserdata(L, lua_upvalueindex(1));
  *watched = lua_toboolean(L, 1);
  return 0;
}

/* module_call(other): the metamethod __call of modules; and a function that
 * says whether to call other(self, ...) for modules without hooks, too. */
static int module_call(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  *(bool *)lua_newuserdatauv(L, sizeof(bool), 0) = false;
  lua_pushvalue(L, 2);
  lua_insert(L, 1);
  lua_pushcclosure(L, call_module, 2);
  lua_insert(L, 1);
  lua_pushcclosure(L, watch_modules, 1);
  return 2;
}

bool fll_is_module_call(lua_State *L, lua_Debug *ar) {
  lua_getinfo(L, "f", ar);
  bool yes = lua_tocfunction(L, -1) == call_module;
  lua_pop(L, 1);
  return yes;
}

void fll_module_core(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"framed", framed}, {"module_call", module_call}, {NULL, NULL}};
  fll_register(L, functions);
}
