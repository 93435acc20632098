/* Replaces lua/io/http.c in builds without libmicrohttpd's header. */
#include "../../fll.h"

static int missing_library(lua_State *L) {
  return fll_failed(L, "this flare was built without the header of "
                       "libmicrohttpd, which serves HTTP: install "
                       "libmicrohttpd-dev and build again");
}

void fll_http_core(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"serve", missing_library}, {"here", missing_library}, {NULL, NULL}};
  lua_newtable(L);
  fll_register(L, functions);
  lua_setfield(L, -2, "http");
}
