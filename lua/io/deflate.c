/* Strings in and out of the deflate format, and its archives' checksum, through
 * zlib: what a zip file needs (stdlib/flare/io/zip.lua). */
#include "file.h"

#include <stdlib.h>
#include <zlib.h>

#define PIECE ((size_t)1 << 20)
#define MOST  ((size_t)1 << 30) /* zlib counts in unsigned int */

static uInt deflate_some(size_t n) {
  return (uInt)(n < MOST ? n : MOST);
}

static void end_inflate(void *p) {
  inflateEnd(p);
  free(p);
}

static void end_deflate(void *p) {
  deflateEnd(p);
  free(p);
}

static z_stream *new_stream(lua_State *L, void (*end)(void *)) {
  fll_box *b = fll_newbox(L, end);
  z_stream *z = calloc(1, sizeof *z);
  if (!z)
    luaL_error(L, "out of memory");
  b->p = (char *)z;
  return z;
}

/* inflate(text, size): what `text`, a bare deflate stream, holds, which must be
 * `size` bytes; nil and a message. */
int fll_inflate(lua_State *L) {
  fll_enter(L);
  size_t have;
  const char *in = luaL_checklstring(L, 1, &have);
  int64_t size = fll_checkint(L, 2, "inflate", "size");
  if (size < 0)
    fll_error(L, "inflate: size: cannot be negative");
  fll_box *out = fll_newbox(L, NULL);
  z_stream *z = new_stream(L, end_inflate);
  if (inflateInit2(z, -MAX_WBITS) != Z_OK)
    return luaL_error(L, "out of memory");
  z->next_in = (unsigned char *)(uintptr_t)in;
  int r = Z_OK;
  /* memory comes as it fills: a size that is not true costs nothing */
  while (r == Z_OK) {
    size_t left = have - (size_t)((const char *)z->next_in - in);
    size_t room = (size_t)size - out->n;
    room = room < PIECE ? room + 1 : PIECE; /* one more shows what is longer */
    z->avail_in = deflate_some(left);
    z->next_out = (unsigned char *)fll_boxroom(L, out, room);
    z->avail_out = (uInt)room;
    r = inflate(z, Z_NO_FLUSH);
    out->n += room - z->avail_out;
    if (out->n > (size_t)size)
      return fll_failed(L, "more than %lld bytes come out", (long long)size);
  }
  if (r != Z_STREAM_END)
    return fll_failed(L, "%s",
                      r == Z_BUF_ERROR ? "the data end too early"
                      : z->msg         ? z->msg
                                       : "damaged");
  if (out->n != (size_t)size)
    return fll_failed(L, "%zu bytes come out, not %lld", out->n,
                      (long long)size);
  if (z->next_in != (const unsigned char *)in + have)
    return fll_failed(L, "something follows the data");
  lua_pushlstring(L, out->p ? out->p : "", out->n);
  fll_emptybox(out);
  return 1;
}

/* deflate(piece, ...): strings and tensors, one after the other, as one bare
 * deflate stream; and their CRC-32 and number of bytes. */
int fll_deflate(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int last = lua_gettop(L);
  size_t total = 0;
  uLong crc = crc32(0, NULL, 0);
  fll_box *out = fll_newbox(L, NULL);
  z_stream *z = new_stream(L, end_deflate);
  if (deflateInit2(z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    return luaL_error(L, "out of memory");
  for (int i = 1; i <= last + 1; i++) {
    size_t n = 0;
    const char *p = i <= last ? fll_piece(L, st, i, &n, "deflate") : "";
    crc = crc32_z(crc, (const unsigned char *)p, n);
    total += n;
    z->next_in = (unsigned char *)(uintptr_t)p;
    do {
      size_t left = n - (size_t)((const char *)z->next_in - p);
      z->avail_in = deflate_some(left);
      z->next_out = (unsigned char *)fll_boxroom(L, out, PIECE);
      z->avail_out = (uInt)PIECE;
      deflate(z, i <= last ? Z_NO_FLUSH : Z_FINISH);
      out->n += PIECE - z->avail_out;
    } while (z->avail_out == 0 || (const char *)z->next_in < p + n);
    lua_settop(L, last + 2);
  }
  lua_pushlstring(L, out->p, out->n);
  fll_emptybox(out);
  lua_pushinteger(L, (lua_Integer)crc);
  lua_pushinteger(L, (lua_Integer)total);
  return 3;
}

/* crc32(piece, before): zip's checksum; `before` is that of what came before.
 */
int fll_crc32(lua_State *L) {
  fl_lua *st = fll_enter(L);
  uLong before = (uLong)(luaL_optinteger(L, 2, 0) & 0xffffffff);
  size_t n;
  const char *p = fll_piece(L, st, 1, &n, "crc32");
  lua_pushinteger(L, (lua_Integer)crc32_z(before, (const unsigned char *)p, n));
  return 1;
}
