/* Replaces lua/io/gunzip.c in builds without zlib. */
#include "../../embed.h"
#include "../file.h"

int fll_gunzip(lua_State *L) {
  return fll_failed(L,
                    "%s: this flare was built without zlib, which reads .gz "
                    "files: install zlib1g-dev and build again",
                    fll_input_path(L, 1));
}

void fll_push_text(lua_State *L, const fll_module *m) {
  lua_pushlstring(L, m->text, m->size);
}
