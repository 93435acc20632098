/* The string and table functions of flare's own states beside Lua's: runs
 * spec/support/strings_fuzz.lua, which compares them, or another file. A host's
 * state keeps Lua's. Arguments: how many cases, a seed, the file. */
#include <flare/flarelua.h>

#include <lauxlib.h>
#include <lualib.h>

#include <stdio.h>
#include <stdlib.h>

static const char *const names[] = {"find", "gsub", "rep", "upper"};

/* A state that a host has made keeps the functions that are in it. */
static int check_host(void) {
  lua_State *L = luaL_newstate();
  lua_CFunction before[4];
  fl_lua *f;
  int changed = 0;
  luaL_openlibs(L);
  lua_getglobal(L, "string");
  for (int k = 0; k < 4; k++) {
    lua_getfield(L, -1, names[k]);
    before[k] = lua_tocfunction(L, -1);
    lua_pop(L, 1);
  }
  if (fl_lua_attach(L, NULL, &f) != FL_OK)
    changed++;
  for (int k = 0; k < 4; k++) {
    lua_getfield(L, -1, names[k]);
    changed += !before[k] || lua_tocfunction(L, -1) != before[k];
    lua_pop(L, 1);
  }
  lua_close(L);
  if (changed)
    fprintf(stderr, "%d functions of a host's state have changed\n", changed);
  return changed;
}

/* No thread outlives its state because it is in a match. */
static int check_threads(void) {
  fl_lua *f;
  static const char text[] =
      "local flare = require 'flare' t = flare.spawn("
      "[[('a'):rep(60):find(('a*'):rep(40) .. 'b')]]) t:join(0.2)";
  if (fl_lua_open(NULL, &f) != FL_OK || fl_lua_run(f, text, NULL) != FL_OK) {
    fprintf(stderr, "%s\n", fl_error());
    return 1;
  }
  fl_lua_close(f);
  if (fl_threads_left() > 0)
    fprintf(stderr, "a thread is left\n");
  return fl_threads_left();
}

/* Lua's own libraries, as new tables, and strings keep their methods. */
static void push_stock(lua_State *L) {
  lua_createtable(L, 0, 2);
  lua_pushliteral(L, "");
  lua_getmetatable(L, -1);
  lua_getfield(L, -1, "__index");
  lua_pushcfunction(L, luaopen_string);
  lua_call(L, 0, 1);
  lua_setfield(L, -5, "string");
  lua_setfield(L, -2, "__index");
  lua_pop(L, 2);
  lua_pushcfunction(L, luaopen_table);
  lua_call(L, 0, 1);
  lua_setfield(L, -2, "table");
}

/* A match that takes too long is given up. */
static bool is_long(void *context) {
  int *asked = context;
  return ++*asked > 0 && *asked % 100 == 0;
}

static int restart(lua_State *L) {
  *(int *)lua_touserdata(L, lua_upvalueindex(1)) =
      (int)luaL_optinteger(L, 1, 0);
  return 0;
}

int main(int argc, char **argv) {
  fl_lua *f;
  int asked = 0;
  fl_runtime_options r = {
      .struct_size = sizeof r, .interrupted = is_long, .context = &asked};
  fl_lua_options o = {.struct_size = sizeof o, .runtime = &r};
  if (fl_lua_open(&o, &f) != FL_OK) {
    fprintf(stderr, "%s\n", fl_error());
    return 1;
  }
  lua_State *L = fl_lua_state(f);
  lua_sethook(L, NULL, 0, 0); /* of is_long, which is for C alone */
  lua_pushlightuserdata(L, &asked);
  lua_pushcclosure(L, restart, 1);
  lua_setglobal(L, "restart");
  push_stock(L);
  lua_setglobal(L, "stock");
  lua_pushstring(L, argc > 1 ? argv[1] : "50000");
  lua_setglobal(L, "cases");
  lua_pushstring(L, argc > 2 ? argv[2] : "1");
  lua_setglobal(L, "seed");
  int status = check_host() + check_threads() > 0;
  if (luaL_dofile(L, argc > 3 ? argv[3] : "spec/support/strings_fuzz.lua")) {
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    status = 1;
  }
  lua_settop(L, 0);
  fl_lua_close(f);
  return status;
}
