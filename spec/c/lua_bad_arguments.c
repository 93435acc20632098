/* Every function of flarelua.h with NULL for each of its pointers: see
 * bad_arguments.c. */
#include "bad_arguments.h"

#include <flare/flarelua.h>

#include <lauxlib.h>
#include <lualib.h>

static fl_lua *f;

static void test_opening(void) {
  fl_lua *other = NULL;
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  TAKES(fl_lua_open(NULL, &other));
  fl_lua_close(other);
  NEEDS(fl_lua_open(NULL, NULL), "f");
  TAKES(fl_lua_attach(L, NULL, &other));
  NEEDS(fl_lua_attach(NULL, NULL, &other), "L");
  NEEDS(fl_lua_attach(L, NULL, NULL), "f");
  fl_runtime_options runtime = {.threads = 1};
  fl_lua_options none = {.interruptible = true},
                 o = {.struct_size = sizeof o, .runtime = &runtime};
  REFUSES(fl_lua_open(&none, &other), FL_EARG);
  CHECK(strstr(fl_error(), "fl_lua_open: struct_size of fl_lua_options is 0"));
  REFUSES(fl_lua_attach(L, &none, &other), FL_EARG);
  CHECK(strstr(fl_error(), "fl_lua_attach: struct_size of fl_lua_options"));
  REFUSES(fl_lua_open(&o, &other), FL_EARG);
  CHECK(strstr(fl_error(), "sizeof(fl_runtime_options)"));
  REFUSES(fl_lua_attach(L, &o, &other), FL_EARG);
  CHECK(strstr(fl_error(), "sizeof(fl_runtime_options)"));
  lua_close(L);
  IGNORES(fl_lua_close(NULL));
  GIVES(fl_lua_of(NULL), NULL);
  GIVES(fl_lua_state(NULL), NULL);
  GIVES(fl_lua_coroutine(NULL), NULL);
  GIVES(fl_lua_runtime(NULL), NULL);
  IGNORES(fl_lua_interrupt(NULL));
  IGNORES(fl_lua_resume(NULL));
  GIVES(*fl_lua_traceback(NULL), 0);
}

static void test_running(void) {
  int64_t value = 0;
  fl_tensor *t = NULL;
  NEEDS(fl_lua_run(NULL, "x = 1", "=x"), "f");
  NEEDS(fl_lua_run(f, NULL, "=x"), "text");
  TAKES(fl_lua_run(f, "x = 1", NULL));
  NEEDS(fl_lua_run_file(NULL, "a.lua", 0, NULL), "f");
  NEEDS(fl_lua_run_file(f, NULL, 0, NULL), "path");
  NEEDS(fl_lua_run_file(f, "a.lua", 1, NULL), "argv");
  NEEDS(fl_lua_call(NULL, "print", ""), "f");
  NEEDS(fl_lua_call(f, NULL, ""), "path");
  NEEDS(fl_lua_call(f, "print", NULL), "types");
  NEEDS(fl_lua_get(NULL, "x", 'i', &value), "f");
  NEEDS(fl_lua_get(f, NULL, 'i', &value), "path");
  NEEDS(fl_lua_get(f, "x", 'i', NULL), "value");
  NEEDS(fl_lua_set(NULL, "x", t), "f");
  NEEDS(fl_lua_set(f, NULL, t), "name");
  NEEDS(fl_lua_set(f, "x", NULL), "t");
}

static int raises_null(lua_State *L) {
  fl_lua_push(L, NULL);
  return 0;
}

static void test_pushing(void) {
  lua_State *L = fl_lua_state(f);
  IGNORES(fl_lua_push(NULL, NULL));
  GIVES(fl_lua_tensor(NULL, 1), NULL);
  IGNORES(fl_lua_check(NULL, FL_OK));
  lua_pushcfunction(L, raises_null);
  CHECK(lua_pcall(L, 0, 0, 0) == LUA_ERRRUN);
  CHECK(strstr(lua_tostring(L, -1), "NULL is no tensor") != NULL);
  lua_pop(L, 1);
}

int main(void) {
  CHECK(fl_lua_open(NULL, &f) == FL_OK);
  catch_signals();
  test_opening();
  test_running();
  test_pushing();
  fl_lua_close(f);
  return check_done("lua_bad_arguments");
}
