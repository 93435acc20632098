/* Replaces the files of lua/text/ in builds without PCRE2 or utf8proc. */
#include "../../fll.h"

static int missing(lua_State *L) {
  fll_error(L, "this flare was built without PCRE2 or utf8proc, which "
               "tokenizers need: install libpcre2-dev and libutf8proc-dev and "
               "build again");
}

void fll_text_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"new", missing},
                                       {"grammar", missing},
                                       {"vocabulary", missing},
                                       {NULL, NULL}};
  lua_newtable(L);
  fll_register(L, functions);
  lua_setfield(L, -2, "text");
}
