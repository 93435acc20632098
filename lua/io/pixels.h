/* What the codecs of images share. */
#ifndef FLL_PIXELS_H
#define FLL_PIXELS_H

#include "file.h"

typedef struct fll_pixels {
  int width, height, channels;
  const unsigned char *data;
} fll_pixels;

/* Pushes a new u8 tensor (height, width, bytes of a pixel). */
unsigned char *fll_new_pixels(lua_State *L, fl_lua *st, int64_t height,
                              int64_t width, int64_t bytes);
/* An encoder's first arguments: tensor, width, height, channels. `most`: what
 * the format allows of rows and columns, `bytes`: those of a sample. 0, or how
 * many results say why the file cannot be. May push a value. */
int fll_check_pixels(lua_State *L, fl_lua *st, const char *format,
                     const char *where, int most, int bytes, fll_pixels *p);

#endif
