/* PNG images in and out of bytes of (height, width, channels), by libpng. What
 * they mean, and other formats, are in stdlib/flare/data/images.lua. */
#include "pixels.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct png_state {
  png_structp png;
  png_infop info;
  const unsigned char *in; /* what is left to read */
  size_t left;
  unsigned char *out; /* what has been written */
  size_t n, room;
  bool writes;
  char message[160];
} png_state;

static void end_png(void *p) {
  png_state *s = p;
  if (s->writes)
    png_destroy_write_struct(&s->png, &s->info);
  else
    png_destroy_read_struct(&s->png, &s->info, NULL);
  free(s->out);
  free(s);
}

/* libpng's way back: every function here that calls it sets png_jmpbuf. */
static void fail_png(png_structp png, png_const_charp message) {
  png_state *s = png_get_error_ptr(png);
  snprintf(s->message, sizeof s->message, "%s", message);
  png_longjmp(png, 1);
}

static void ignore_warning(png_structp png, png_const_charp message) {
  (void)png, (void)message;
}

static void read_some(png_structp png, png_bytep to, png_size_t n) {
  png_state *s = png_get_io_ptr(png);
  if (n > s->left)
    png_error(png, "the data end too early");
  memcpy(to, s->in, n);
  s->in += n;
  s->left -= n;
}

static void write_some(png_structp png, png_bytep from, png_size_t n) {
  png_state *s = png_get_io_ptr(png);
  if (n > s->room - s->n) {
    size_t room = s->room + s->room / 2 + n + 4096;
    unsigned char *p = realloc(s->out, room);
    if (!p)
      png_error(png, "out of memory");
    s->out = p;
    s->room = room;
  }
  memcpy(s->out + s->n, from, n);
  s->n += n;
}

static void flush_nothing(png_structp png) {
  (void)png;
}

static png_state *new_png(lua_State *L, bool writes) {
  fll_box *b = fll_newbox(L, end_png);
  png_state *s = calloc(1, sizeof *s);
  if (!s)
    luaL_error(L, "out of memory");
  b->p = (char *)s;
  s->writes = writes;
  s->png = writes ? png_create_write_struct(PNG_LIBPNG_VER_STRING, s, fail_png,
                                            ignore_warning)
                  : png_create_read_struct(PNG_LIBPNG_VER_STRING, s, fail_png,
                                           ignore_warning);
  s->info = s->png ? png_create_info_struct(s->png) : NULL;
  if (!s->info)
    luaL_error(L, "out of memory, or a libpng that is older than its header");
  return s;
}

typedef struct png_size {
  png_uint_32 width, height;
  int channels, depth;
} png_size;

/* Reads up to the pixels, and asks for whole samples: colours for positions in
 * a palette, 8 bits for fewer, an alpha channel for a transparent colour. */
static bool read_head(png_state *s, png_size *size) {
  if (setjmp(png_jmpbuf(s->png)))
    return false;
  png_set_read_fn(s->png, s, read_some);
  png_set_user_limits(s->png, 0x7fffffff, 0x7fffffff);
  png_set_chunk_malloc_max(s->png, 1 << 24);
  png_read_info(s->png, s->info);
  png_set_expand(s->png);
  png_set_interlace_handling(s->png);
  size->width = png_get_image_width(s->png, s->info);
  size->height = png_get_image_height(s->png, s->info);
  png_read_update_info(s->png, s->info);
  size->channels = png_get_channels(s->png, s->info);
  size->depth = png_get_bit_depth(s->png, s->info);
  return true;
}

static bool read_pixels(png_state *s, const png_size *size, unsigned char *to) {
  if (setjmp(png_jmpbuf(s->png)))
    return false;
  size_t row = png_get_rowbytes(s->png, s->info);
  int passes =
      png_get_interlace_type(s->png, s->info) == PNG_INTERLACE_ADAM7 ? 7 : 1;
  for (int pass = 0; pass < passes; pass++)
    for (size_t y = 0; y < size->height; y++)
      png_read_row(s->png, to + y * row, NULL);
  png_read_end(s->png, s->info);
  return true;
}

/* png_decode(text, limit): an u8 tensor (height, width, bytes of a pixel) with
 * samples of 16 bits in big-endian order, the bits of a sample, and the EXIF
 * block or nil; nil and a message. `limit`: pixels at most. */
int fll_png_decode(lua_State *L) {
  fl_lua *st = fll_enter(L);
  size_t have;
  const char *text = luaL_checklstring(L, 1, &have);
  int64_t limit = fll_checkint(L, 2, "png_decode", "limit");
  png_state *s = new_png(L, false);
  png_size size = {0};
  s->in = (const unsigned char *)text;
  s->left = have;
  if (!read_head(s, &size))
    return fll_failed(L, "%s", s->message);
  int64_t pixels = (int64_t)size.width * size.height;
  if (pixels > limit)
    return fll_failed(L, "%u x %u pixels are more than the limit of %lld",
                      size.width, size.height, (long long)limit);
  /* deflate makes at most 1032 bytes out of one, and a byte holds at most 8
   * pixels: a size that is not true costs nothing */
  if ((uint64_t)pixels / 8 / 1032 > have)
    return fll_failed(L, "the data end too early");
  unsigned char *to = fll_new_pixels(L, st, size.height, size.width,
                                     (int64_t)size.channels * (size.depth / 8));
  if (!read_pixels(s, &size, to))
    return fll_failed(L, "%s", s->message);
  lua_pushinteger(L, size.depth);
  png_uint_32 n = 0;
  png_bytep exif = NULL;
  if (png_get_eXIf_1(s->png, s->info, &n, &exif))
    lua_pushlstring(L, (const char *)exif, n);
  else
    lua_pushnil(L);
  return 3;
}

static bool write_all(png_state *s, const fll_pixels *p, int depth, int level) {
  static const int types[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                              PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
  if (setjmp(png_jmpbuf(s->png)))
    return false;
  png_set_write_fn(s->png, s, write_some, flush_nothing);
  png_set_compression_level(s->png, level);
  png_set_IHDR(s->png, s->info, (png_uint_32)p->width, (png_uint_32)p->height,
               depth, types[p->channels], PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(s->png, s->info);
  size_t row = png_get_rowbytes(s->png, s->info);
  for (size_t y = 0; y < (size_t)p->height; y++)
    png_write_row(s->png, p->data + y * row);
  png_write_end(s->png, NULL);
  return true;
}

/* png_encode(tensor, width, height, channels, bits, level): the file's bytes;
 * nil and a message. The tensor is as png_decode gives it. */
int fll_png_encode(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int64_t depth = fll_checkint(L, 5, "png_encode", "bits");
  int64_t level = fll_checkint(L, 6, "png_encode", "level");
  if ((depth != 8 && depth != 16) || level < 0 || level > 9)
    fll_error(L, "png_encode: 8 or 16 bits, level 0 to 9");
  fll_pixels p;
  int failed =
      fll_check_pixels(L, st, "PNG", "png_encode", 1000000, (int)depth / 8, &p);
  if (failed)
    return failed;
  png_state *s = new_png(L, true);
  if (!write_all(s, &p, (int)depth, (int)level))
    return fll_failed(L, "%s", s->message);
  lua_pushlstring(L, (const char *)s->out, s->n);
  return 1;
}
