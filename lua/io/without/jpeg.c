/* Replaces lua/io/jpeg.c in builds without libjpeg-turbo. */
#include "../file.h"

int fll_jpeg_decode(lua_State *L) {
  return fll_failed(L, "this flare was built without libjpeg-turbo, which "
                       "reads and writes JPEG images: install "
                       "libturbojpeg0-dev and build again");
}

int fll_jpeg_encode(lua_State *L) {
  return fll_jpeg_decode(L);
}
