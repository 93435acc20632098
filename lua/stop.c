/* What ends Lua code that is asked to stop: a count hook that raises, and
 * versions of some functions of Lua's libraries that would keep it from doing
 * so. Asking is fl_runtime_interrupted. */
#include "stop.h"

static fl_lua *state_of(lua_State *L) {
  fll_getkey(L, FLL_STATE);
  fl_lua *st = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return st;
}

static bool should_stop(lua_State *L) {
  fl_lua *st = state_of(L);
  return st && st->rt && fl_runtime_interrupted(st->rt);
}

/* Once it is asked for, every instruction raises, so that a loop around pcall
 * ends too; the prompt takes the request back. */
static void stop_hook(lua_State *L, lua_Debug *ar) {
  (void)ar;
  fl_lua *st = state_of(L);
  if (!st || !st->rt)
    return;
  bool now = fl_runtime_interrupted(st->rt);
  int count = lua_gethookcount(L);
  if (now != (count == 1))
    lua_sethook(L, stop_hook, LUA_MASKCOUNT, now ? 1 : FLL_HOOK_COUNT);
  if (now)
    luaL_error(L, "interrupted!");
}

void fll_stop_hook(lua_State *L, int count) {
  lua_sethook(L, stop_hook, LUA_MASKCOUNT, count);
}

/* --- xpcall --- */

/* Lua runs a message handler on top of the hook that raised, and no hook
 * meanwhile: a handler that does not end would never be stopped. So handlers
 * are not called any more. The guard is a tail call: a handler sees the levels
 * of the stack that it sees elsewhere. */
static const char guards[] =
    "local stopped = ...\n"
    "local function handler(f)\n"
    "  return function(...)\n"
    "    if stopped() then return ... end\n"
    "    return f(...)\n"
    "  end\n"
    "end\n"
    "local function hook(f, counts)\n"
    "  return function(event, line)\n"
    "    if stopped() then error('interrupted!', 2) end\n"
    "    if counts or event ~= 'count' then return f(event, line) end\n"
    "  end\n"
    "end\n"
    "return handler, hook\n";

static int stopped(lua_State *L) {
  lua_pushboolean(L, should_stop(L));
  return 1;
}

/* Pushes the functions that guard handlers and hooks. */
static void push_guards(lua_State *L) {
  if (luaL_loadbufferx(L, guards, sizeof guards - 1, "=stop", "t") != LUA_OK)
    lua_error(L);
  lua_pushcfunction(L, stopped);
  lua_call(L, 1, 2);
}

static int finish_xpcall(lua_State *L, int status, lua_KContext before) {
  if (status == LUA_OK || status == LUA_YIELD)
    return lua_gettop(L) - (int)before;
  lua_pushboolean(L, false);
  lua_pushvalue(L, -2);
  return 2;
}

/* xpcall(f, handler, ...). Upvalue 1 is the guard. */
static int guarded_xpcall(lua_State *L) {
  int n = lua_gettop(L);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushvalue(L, 2);
  lua_call(L, 1, 1);
  lua_replace(L, 2);
  lua_pushboolean(L, true);
  lua_pushvalue(L, 1);
  lua_rotate(L, 3, 2);
  int status = lua_pcallk(L, n - 2, LUA_MULTRET, 2, 2, finish_xpcall);
  return finish_xpcall(L, status, 2);
}

/* Replaces Lua's own xpcall; a host may have another, or none. */
static void guard_xpcall(lua_State *L) {
  lua_getglobal(L, "xpcall");
  lua_CFunction was = lua_tocfunction(L, -1);
  lua_pop(L, 1);
  if (!was || was == guarded_xpcall)
    return;
  push_guards(L);
  lua_pop(L, 1);
  lua_pushcclosure(L, guarded_xpcall, 1);
  lua_setglobal(L, "xpcall");
}

void fll_interruptible(lua_State *L, fl_lua *st, bool on) {
  lua_Hook hook = on ? stop_hook : NULL;
  int mask = on ? LUA_MASKCOUNT : 0;
  lua_sethook(L, hook, mask, FLL_HOOK_COUNT);
  if (st->main != L)
    lua_sethook(st->main, hook, mask, FLL_HOOK_COUNT);
  if (on)
    guard_xpcall(L);
}

/* --- in worker threads --- */

/* coroutine.create and wrap, with a hook for the coroutine from the start: a
 * loop in one takes twice as long. Upvalue 1 is Lua's own function. */
static int hooked_coroutine(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, 1, 1);
  lua_State *co = lua_tothread(L, -1);
  if (!co && lua_getupvalue(L, -1, 1)) { /* the function that wrap makes */
    co = lua_tothread(L, -1);
    lua_pop(L, 1);
  }
  if (co)
    fll_stop_hook(co, FLL_HOOK_COUNT);
  return 1;
}

static void hook_coroutines(lua_State *L) {
  static const char *const names[] = {"create", "wrap"};
  lua_getglobal(L, "coroutine");
  for (int k = 0; k < 2; k++) {
    lua_getfield(L, -1, names[k]);
    lua_pushcclosure(L, hooked_coroutine, 1);
    lua_setfield(L, -2, names[k]);
  }
  lua_pop(L, 1);
}

/* debug.sethook([thread,] f, mask, count). Where a hook goes, the one that
 * stops comes back; the main coroutine gets it from outside. Upvalues: Lua's
 * own function and the guard. */
static int guarded_sethook(lua_State *L) {
  int arg = lua_isthread(L, 1) ? 1 : 0;
  lua_State *of = arg ? lua_tothread(L, 1) : L;
  bool clears = lua_isnoneornil(L, arg + 1);
  lua_settop(L, arg + 3);
  if (!clears) {
    luaL_checktype(L, arg + 1, LUA_TFUNCTION);
    lua_Integer count = luaL_optinteger(L, arg + 3, 0);
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_pushvalue(L, arg + 1);
    lua_pushboolean(L, count > 0);
    lua_call(L, 2, 1);
    lua_replace(L, arg + 1);
    lua_pushinteger(L, count > 0 ? count : FLL_HOOK_COUNT);
    lua_replace(L, arg + 3);
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, arg + 3, 0);
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
  bool stop = should_stop(L);
  if (stop || (clears && of != lua_tothread(L, -1)))
    fll_stop_hook(of, stop ? 1 : FLL_HOOK_COUNT);
  return 0;
}

void fll_stop_guards(lua_State *L) {
  hook_coroutines(L);
  guard_xpcall(L);
  lua_getglobal(L, "debug");
  lua_getfield(L, -1, "sethook");
  push_guards(L);
  lua_remove(L, -2);
  lua_pushcclosure(L, guarded_sethook, 2);
  lua_setfield(L, -2, "sethook");
  lua_pop(L, 1);
}
