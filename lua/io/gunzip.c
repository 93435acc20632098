/* Reading .gz files, through zlib: all members one after the other, into one
 * string, up to a limit. */
#include "../embed.h"
#include "file.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#define PIECE ((size_t)1 << 18)

static void gunzip_end(void *p) {
  inflateEnd(p);
  free(p);
}

typedef struct gunzip {
  z_stream *z;
  fll_box *out;
  size_t limit;
  bool ended; /* a member has ended and no other has begun */
} gunzip;

/* Takes in what z->next_in has; a message, or NULL. */
static const char *inflate_some(lua_State *L, gunzip *g) {
  while (g->z->avail_in > 0) {
    if (g->ended && inflateReset(g->z) != Z_OK)
      return "damaged";
    g->ended = false;
    g->z->next_out = (unsigned char *)fll_boxroom(L, g->out, PIECE);
    g->z->avail_out = (uInt)PIECE;
    int r = inflate(g->z, Z_NO_FLUSH);
    g->out->n += PIECE - g->z->avail_out;
    if (g->out->n > g->limit)
      return "larger than the limit";
    if (r == Z_STREAM_END)
      g->ended = true;
    else if (r != Z_OK && r != Z_BUF_ERROR)
      return g->z->msg ? g->z->msg : "damaged";
    else if (r == Z_BUF_ERROR && g->z->avail_in > 0)
      return "damaged";
  }
  return NULL;
}

/* gunzip(path or open file, {limit = bytes}): the contents, or nil and a
 * message. */
int fll_gunzip(lua_State *L) {
  static const char *const options[] = {"limit", NULL};
  fl_lua *st = fll_enter(L);
  const char *path, *kind, *message = NULL;
  struct stat s;
  fll_check_input(L, 1);
  lua_settop(L, 2);
  fll_checkoptions(L, 2, "gunzip", options);
  gunzip g = {.limit = (size_t)1 << 32, .ended = false};
  if (fll_option(L, 2, "limit") != LUA_TNIL)
    g.limit = (size_t)fll_checkint(L, -1, "gunzip", "limit");
  fll_fd *f = fll_newfd(L);
  fll_box *z = fll_newbox(L, gunzip_end);
  g.out = fll_newbox(L, NULL);
  if (!fll_open_input(L, st, 1, f, &s, &path, &kind))
    return fll_file_failed(L, path, kind);
  g.z = calloc(1, sizeof *g.z);
  if (!g.z || inflateInit2(g.z, 16 + MAX_WBITS) != Z_OK) {
    free(g.z);
    return luaL_error(L, "out of memory");
  }
  z->p = (char *)g.z;
  unsigned char *in = fll_scratch(L, PIECE);
  for (off_t at = 0;;) {
    ssize_t n = fll_file_fault_due(st) ? -1 : pread(f->fd, in, PIECE, at);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return fll_file_failed(L, path, NULL);
    if (n == 0)
      break;
    at += n;
    g.z->next_in = in;
    g.z->avail_in = (uInt)n;
    message = inflate_some(L, &g);
    if (message)
      return fll_failed(L, "%s: not a good gzip file: %s", path, message);
  }
  if (!g.ended)
    return fll_failed(L, "%s: not a good gzip file: it ends too early", path);
  lua_pushlstring(L, g.out->p ? g.out->p : "", g.out->n);
  fll_emptybox(g.out);
  fll_emptybox(z);
  return 1;
}

/* A text that was compressed at build time. */
void fll_push_text(lua_State *L, const fll_module *m) {
  luaL_Buffer b;
  if (m->packed >= m->size) {
    lua_pushlstring(L, m->text, m->size);
    return;
  }
  z_stream z = {.next_in = (unsigned char *)(uintptr_t)m->text,
                .avail_in = (uInt)m->packed,
                .avail_out = (uInt)m->size};
  z.next_out = (unsigned char *)luaL_buffinitsize(L, &b, m->size);
  bool done = inflateInit2(&z, 15 + 16) == Z_OK; /* as in a .gz file */
  done = done && inflate(&z, Z_FINISH) == Z_STREAM_END;
  inflateEnd(&z);
  if (!done)
    luaL_error(L, "out of memory: the text of %s", m->file);
  luaL_pushresultsize(&b, m->size);
}
