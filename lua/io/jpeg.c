/* JPEG images in and out of bytes of (height, width, channels), by
 * libjpeg-turbo. What they mean is in stdlib/flare/data/images.lua. */
#include "pixels.h"

#include <limits.h>
#include <turbojpeg.h>

static void end_handle(void *p) {
  tjDestroy(p);
}

static void end_buffer(void *p) {
  tjFree(p);
}

static tjhandle new_handle(lua_State *L, bool writes) {
  fll_box *b = fll_newbox(L, end_handle);
  tjhandle h = writes ? tjInitCompress() : tjInitDecompress();
  if (!h)
    luaL_error(L, "out of memory");
  b->p = h;
  return h;
}

static const struct {
  int format, channels;
} of_space[] = {[TJCS_RGB] = {TJPF_RGB, 3},
                [TJCS_YCbCr] = {TJPF_RGB, 3},
                [TJCS_GRAY] = {TJPF_GRAY, 1},
                [TJCS_CMYK] = {TJPF_CMYK, 4},
                [TJCS_YCCK] = {TJPF_CMYK, 4}};

/* jpeg_decode(text, limit, room): an u8 tensor (height, width, channels), 1
 * grey, 3 red, green, blue or 4 as the file has cyan, magenta, yellow, black;
 * and what libjpeg warns of, or nil. nil and a message. `limit`: pixels at
 * most, `room`: what the text can hold; a size that is not true costs nothing.
 */
int fll_jpeg_decode(lua_State *L) {
  fl_lua *st = fll_enter(L);
  size_t have;
  const char *text = luaL_checklstring(L, 1, &have);
  const unsigned char *in = (const unsigned char *)text;
  int64_t limit = fll_checkint(L, 2, "jpeg_decode", "limit");
  int64_t room = fll_checkint(L, 3, "jpeg_decode", "room");
  tjhandle h = new_handle(L, false);
  int width = 0, height = 0, sampling, space = -1;
  int r = tjDecompressHeader3(h, in, have, &width, &height, &sampling, &space);
  /* it also fails where subsampling has no name, and has the rest then */
  if (width < 1 || height < 1 || space < 0)
    return fll_failed(L, "%s",
                      r ? tjGetErrorStr2(h) : "there are no pixels in it");
  if ((int64_t)width * height > limit)
    return fll_failed(L, "%d x %d pixels are more than the limit of %lld",
                      width, height, (long long)limit);
  if ((int64_t)width * height > room)
    return fll_failed(L, "the data end too early");
  int channels = of_space[space].channels;
  unsigned char *to = fll_new_pixels(L, st, height, width, channels);
  r = tjDecompress2(h, in, have, to, width, width * channels, height,
                    of_space[space].format,
                    TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS);
  if (r && tjGetErrorCode(h) != TJERR_WARNING)
    return fll_failed(L, "%s", tjGetErrorStr2(h));
  if (r)
    lua_pushstring(L, tjGetErrorStr2(h));
  else
    lua_pushnil(L);
  return 2;
}

/* jpeg_encode(tensor, width, height, channels, quality, sampling): the file's
 * bytes; nil and a message. 1 or 3 channels; sampling of the colours: "4:4:4",
 * "4:2:2" or "4:2:0". */
int fll_jpeg_encode(lua_State *L) {
  static const char *const names[] = {"4:4:4", "4:2:2", "4:2:0", NULL};
  static const int samplings[] = {TJSAMP_444, TJSAMP_422, TJSAMP_420};
  fl_lua *st = fll_enter(L);
  int64_t quality = fll_checkint(L, 5, "jpeg_encode", "quality");
  int sampling = samplings[luaL_checkoption(L, 6, NULL, names)];
  fll_pixels p;
  int failed = fll_check_pixels(L, st, "JPEG", "jpeg_encode", 65500, 1, &p);
  if (failed)
    return failed;
  bool grey = p.channels == 1;
  if ((!grey && p.channels != 3) || quality < 1 || quality > 100)
    fll_error(L, "jpeg_encode: 1 or 3 channels, quality 1 to 100");
  tjhandle h = new_handle(L, true);
  fll_box *b = fll_newbox(L, end_buffer);
  unsigned char *out = NULL;
  unsigned long size = 0;
  int r = tjCompress2(
      h, p.data, p.width, 0, p.height, grey ? TJPF_GRAY : TJPF_RGB, &out, &size,
      grey ? TJSAMP_GRAY : sampling, (int)quality, TJFLAG_ACCURATEDCT);
  b->p = (char *)out;
  if (r)
    return fll_failed(L, "%s", tjGetErrorStr2(h));
  lua_pushlstring(L, (const char *)out, size);
  return 1;
}
