/* Replaces lua/io/deflate.c in builds without zlib. */
#include "../file.h"

static int missing(lua_State *L) {
  return fll_failed(L, "this flare was built without zlib, which .npz and .gz "
                       "files need: install zlib1g-dev and build again");
}

int fll_inflate(lua_State *L) {
  return missing(L);
}

int fll_deflate(lua_State *L) {
  return missing(L);
}

int fll_crc32(lua_State *L) {
  return missing(L);
}
