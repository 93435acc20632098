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

/* framed(f): f as a C function; f itself if it is one. */
static int framed(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  if (lua_iscfunction(L, 1))
    return 1;
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

/* Whether the value at 1 is an object of the class in upvalue 2, or of one that
 * inherits from it: its metatable has that class as __root. The class of a
 * module with a metatable of its own is the __metatable there. */
static bool is_object(lua_State *L) {
  if (!lua_istable(L, 1) || !lua_getmetatable(L, 1))
    return false;
  int at = lua_gettop(L);
  lua_pushliteral(L, "__root");
  if (lua_rawget(L, at) == LUA_TNIL) {
    lua_pushliteral(L, "__metatable");
    if (lua_rawget(L, at) == LUA_TTABLE) {
      lua_pushliteral(L, "__root");
      lua_rawget(L, -2);
    }
  }
  bool yes = lua_rawequal(L, -1, lua_upvalueindex(2));
  lua_settop(L, at - 1);
  return yes;
}

/* What was passed in place of an object: "nothing", "the class Net", ... */
static const char *what_instead(lua_State *L) {
  if (lua_isnoneornil(L, 1))
    return "nothing";
  lua_pushliteral(L, "__name");
  if (lua_istable(L, 1) && lua_rawget(L, 1) == LUA_TSTRING)
    return lua_pushfstring(L, "the class %s: %s() makes an object",
                           lua_tostring(L, -1), lua_tostring(L, -1));
  return fll_typename(L, 1);
}

/* (self, ...) -> f(self, ...). Upvalues: f, the class, the name of the method,
 * and what an object is called. */
static int call_method(lua_State *L) {
  if (!is_object(L)) {
    const char *name = lua_tostring(L, lua_upvalueindex(3));
    const char *word = lua_tostring(L, lua_upvalueindex(4));
    fll_error(L,
              "%s: expected %s %s, got %s; methods are called with ':', as in "
              "%s:%s()",
              name, strchr("aeiou", word[0]) ? "an" : "a", word,
              what_instead(L), word, name);
  }
  return call_framed(L);
}

/* In place of the function at 1, the one inside it that framed or class_method
 * made a C function of. */
static void unwrap(lua_State *L) {
  lua_CFunction f = lua_tocfunction(L, 1);
  if (f != call_framed && f != call_method)
    return;
  lua_getupvalue(L, 1, 1);
  lua_replace(L, 1);
}

/* class_method(f, class, name, word): f as a C function, which refuses a self
 * that is no object of the class, if its first parameter is self. */
static int class_method(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  luaL_checktype(L, 2, LUA_TTABLE);
  luaL_checkstring(L, 3);
  luaL_checkstring(L, 4);
  lua_settop(L, 4);
  unwrap(L);
  lua_pushvalue(L, 1);
  const char *first = lua_getlocal(L, NULL, 1);
  if (!first || strcmp(first, "self") != 0)
    return framed(L);
  lua_settop(L, 4);
  lua_pushcclosure(L, call_method, 4);
  return 1;
}

/* unframed(f): the function inside one that framed or class_method made, or f
 * itself. */
static int unframed(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  unwrap(L);
  return 1;
}

/* from_library(): whether the function that called the one which asks is the
 * library's. */
static int from_library(lua_State *L) {
  lua_Debug ar;
  bool yes = lua_getstack(L, 2, &ar) && lua_getinfo(L, "S", &ar) &&
             fll_is_library(fll_enter(L), ar.source);
  lua_pushboolean(L, yes);
  return 1;
}

bool fll_is_framed(lua_State *L, lua_Debug *ar) {
  lua_getinfo(L, "f", ar);
  lua_CFunction f = lua_tocfunction(L, -1);
  lua_pop(L, 1);
  return f == call_framed || f == call_method;
}

bool fll_is_module_call(lua_State *L, lua_Debug *ar) {
  lua_getinfo(L, "f", ar);
  bool yes = lua_tocfunction(L, -1) == call_module;
  lua_pop(L, 1);
  return yes;
}

void fll_module_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"framed", framed},
                                       {"unframed", unframed},
                                       {"class_method", class_method},
                                       {"from_library", from_library},
                                       {"module_call", module_call},
                                       {NULL, NULL}};
  fll_register(L, functions);
}
