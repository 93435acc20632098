/* Files held open for reading: file.open(path). A reader that keeps one sees
 * the same file until it is closed, whatever takes its name meanwhile; what
 * opens the path anew for each piece could mix two files. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct handle {
  uint64_t magic;
  int64_t size; /* when it was opened */
  int fd;       /* -1: closed */
  bool opened;  /* fd is set; zeroed memory means descriptor 0 otherwise */
} handle;

static handle *check_handle(lua_State *L, const char *where) {
  handle *h = fll_checktype(L, 1, FLL_FILE, sizeof *h);
  if (!h->opened)
    fll_error(L, "%s: the file is closed", where);
  return h;
}

static const char *path_of(lua_State *L, int i) {
  lua_getiuservalue(L, i, 1); /* stays on the stack, as the text is needed */
  return lua_tostring(L, -1);
}

/* file.open(path) */
int fll_open_handle(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const char *path = fll_path(L, 1), *kind;
  struct stat s;
  lua_settop(L, 1);
  handle *h = fll_newobject(L, FLL_FILE, sizeof *h, 1);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, 2, 1);
  fll_fd *f = fll_newfd(L);
  int64_t ordered = st->fault.count;
  bool ok = fll_open_file(st, path, f, &s, &kind);
  if (!ok && !kind && (errno == EMFILE || errno == ENFILE) &&
      st->fault.count == ordered) {
    lua_gc(L, LUA_GCCOLLECT); /* readers that were dropped without close */
    ok = fll_open_file(st, path, f, &s, &kind);
  }
  if (!ok)
    return fll_file_failed(L, path, kind);
  h->fd = f->fd;
  h->opened = true;
  h->size = s.st_size;
  f->fd = -1;
  lua_settop(L, 2);
  return 1;
}

/* Raises unless a path or an open file is at `i`. */
void fll_check_input(lua_State *L, int i) {
  if (!fll_totype(L, i, FLL_FILE, sizeof(handle)))
    fll_path(L, i);
}

const char *fll_input_path(lua_State *L, int i) {
  return fll_totype(L, i, FLL_FILE, sizeof(handle)) ? path_of(L, i)
                                                    : fll_path(L, i);
}

/* Opens what is at `i`, a path or an open file, for reading; `path` is its
 * name for messages. The descriptor is the caller's either way. */
bool fll_open_input(lua_State *L, fl_lua *st, int i, fll_fd *f, struct stat *s,
                    const char **path, const char **kind) {
  handle *h = fll_totype(L, i, FLL_FILE, sizeof *h);
  *kind = NULL;
  if (!h) {
    *path = fll_path(L, i);
    return fll_open_file(st, *path, f, s, kind);
  }
  *path = path_of(L, i);
  if (!h->opened)
    fll_error(L, "%s: the file is closed", *path);
  f->fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
  return f->fd >= 0 && fstat(f->fd, s) == 0;
}

/* f:read(first, n): bytes counted from 0, fewer at the end. */
static int read_handle(lua_State *L) {
  fl_lua *st = fll_enter(L);
  handle *h = check_handle(L, "read");
  int64_t first = luaL_optinteger(L, 2, 0), n = luaL_optinteger(L, 3, -1);
  struct stat s;
  if (first < 0)
    fll_error(L, "read: first: cannot be negative");
  lua_settop(L, 3);
  const char *path = path_of(L, 1);
  if (fstat(h->fd, &s) < 0 ||
      !fll_push_bytes(L, st, h->fd, s.st_size, first, n))
    return fll_file_failed(L, path, NULL);
  return 1;
}

/* f:map(): its memory, as file.map(path) gives it. */
static int map_handle(lua_State *L) {
  check_handle(L, "map");
  lua_settop(L, 1);
  return fll_map_file(L);
}

/* f:real(): the file's own path, with all symbolic links resolved. It is what
 * was opened, so it cannot change between a check of it and reading. */
static int real_handle(lua_State *L) {
  handle *h = check_handle(L, "real");
  char link[40], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", h->fd);
  ssize_t n = readlink(link, path, sizeof path);
  if (n < 0 || (size_t)n >= sizeof path)
    return fll_failed(L, "%s: where it lies cannot be found out: %s: %s",
                      path_of(L, 1), link,
                      strerror(n < 0 ? errno : ENAMETOOLONG));
  lua_pushlstring(L, path, (size_t)n);
  return 1;
}

static int handle_path(lua_State *L) {
  fll_checktype(L, 1, FLL_FILE, sizeof(handle));
  path_of(L, 1);
  return 1;
}

static int handle_len(lua_State *L) {
  lua_pushinteger(L, check_handle(L, "#")->size);
  return 1;
}

static int close_handle(lua_State *L) {
  handle *h = fll_totype(L, 1, FLL_FILE, sizeof *h);
  if (h && h->opened) {
    h->opened = false;
    close(h->fd);
  }
  return 0;
}

static int show_handle(lua_State *L) {
  handle *h = fll_checktype(L, 1, FLL_FILE, sizeof *h);
  if (h->opened)
    lua_pushfstring(L, "flare.file: %s, %I bytes", path_of(L, 1),
                    (lua_Integer)h->size);
  else
    lua_pushfstring(L, "flare.file: %s, closed", path_of(L, 1));
  return 1;
}

void fll_handle_open(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", close_handle},
                                  {"__close", close_handle},
                                  {"__len", handle_len},
                                  {"__tostring", show_handle},
                                  {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"read", read_handle}, {"map", map_handle},     {"real", real_handle},
      {"path", handle_path}, {"close", close_handle}, {NULL, NULL}};
  fll_newclass(L, FLL_FILE, "flare.file", meta, methods);
}
