/* Replaces lua/io/png.c in builds without libpng. */
#include "../file.h"

int fll_png_decode(lua_State *L) {
  return fll_failed(L, "this flare was built without libpng, which reads and "
                       "writes PNG images: install libpng-dev and build again");
}

int fll_png_encode(lua_State *L) {
  return fll_png_decode(L);
}
