/* Replaces lua/io/protobuf.c in builds without nanopb. */
#include "../file.h"

int fll_protobuf(lua_State *L) {
  return fll_failed(L,
                    "%s: this flare was built without nanopb, which reads "
                    "protobuf files: install libnanopb-dev and build again",
                    luaL_tolstring(L, 1, NULL));
}
