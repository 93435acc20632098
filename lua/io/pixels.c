/* The tensor that a decoder of images fills, and the arguments of an encoder.
 */
#include "pixels.h"

unsigned char *fll_new_pixels(lua_State *L, fl_lua *st, int64_t height,
                              int64_t width, int64_t bytes) {
  int64_t shape[] = {height, width, bytes};
  bool was = fl_meta_mode(st->rt, false);
  fll_tensor *result = fll_new(L, st, FLL_MT);
  fl_tensor *t = NULL;
  fl_status status = fll_tensor_new(L, st, FL_U8, 3, shape, 0, &t);
  fl_meta_mode(st->rt, was);
  fll_check(L, st, status);
  fll_fill(result, t);
  unsigned char *to = fl_tensor_borrow(t);
  if (!to)
    fll_check(L, st, FL_EFAULT);
  return to;
}

int fll_check_pixels(lua_State *L, fl_lua *st, const char *format,
                     const char *where, int most, int bytes, fll_pixels *p) {
  int64_t width = fll_checkint(L, 2, where, "width");
  int64_t height = fll_checkint(L, 3, where, "height");
  int64_t channels = fll_checkint(L, 4, where, "channels");
  if (width < 1 || height < 1 || width > most || height > most)
    return fll_failed(L, "%s images have 1 to %d rows and columns", format,
                      most);
  if (channels < 1 || channels > 4)
    fll_error(L, "%s: 1 to 4 channels, not %lld", where, (long long)channels);
  size_t n;
  const char *data = fll_piece(L, st, 1, &n, where);
  if (n != (size_t)(width * height * channels * bytes))
    fll_error(L, "%s: %lld x %lld pixels, not %zu bytes", where,
              (long long)width, (long long)height, n);
  *p = (fll_pixels){(int)width, (int)height, (int)channels,
                    (const unsigned char *)data};
  return 0;
}
