/* A host in the locale of its environment that runs a script, whose path is the
 * first argument: in a state of flare's own and, without help from flare's
 * functions that run scripts, in one of its own. 77: the locale has a decimal
 * point. */
#include "check.h"

#include <flare/flarelua.h>

#include <lauxlib.h>
#include <locale.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <string.h>

/* The leak sanitizer calls this, if it is linked: newlocale of glibc loses what
 * it has made of the variable LOCPATH. */
__attribute__((visibility("default"))) const char *
__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
  return "leak:__argz_add_sep";
}

int main(int argc, char **argv) {
  const char *locale = setlocale(LC_ALL, "");
  const char *wanted = argc > 2 ? argv[2] : ",";
  if (argc < 2 || !locale || strcmp(localeconv()->decimal_point, wanted) != 0)
    return 77;
  fl_lua *f;
  const char *const own[] = {"own"};
  CHECK(fl_lua_open(NULL, &f) == FL_OK);
  if (fl_lua_run_file(f, argv[1], 1, own) != FL_OK) {
    fprintf(stderr, "%s\n%s\n", fl_error(), fl_lua_traceback(f));
    return 1;
  }
  fl_lua_close(f);
  CHECK(strcmp(localeconv()->decimal_point, wanted) == 0);

  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  CHECK(fl_lua_attach(L, NULL, &f) == FL_OK);
  lua_pushliteral(L, "attached");
  lua_setglobal(L, "mode");
  if (luaL_dofile(L, argv[1])) {
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    return 1;
  }
  lua_close(L);
  return 0;
}
