/* The file choke point: whole files in, whole files out, atomically. Faults can
 * be ordered for every system call here. The world's failures are returned as
 * nil and a message with the path; nothing is raised but misuse. Open files
 * are in handle.c, mapped ones in mmap.c, compressed ones in gunzip.c. */
#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* --- system calls, with faults to order --- */

bool fll_file_fault_due(fl_lua *st) {
  fll_file_fault *f = &st->fault;
  f->asked++;
  if (f->count == 0)
    return false;
  if (f->skip > 0) {
    f->skip--;
    return false;
  }
  if (f->count > 0)
    f->count--;
  errno = f->error;
  return true;
}

#define CALL(st, call) (fll_file_fault_due(st) ? -1 : (call))

/* file.fail(skip, count, "ENOSPC"): after `skip` more calls the next `count`
 * fail (-1: all); returns how many there were since. */
static int fail(lua_State *L) {
  static const struct {
    const char *name;
    int code;
  } errors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT},
                {"EACCES", EACCES}, {"EROFS", EROFS},   {"EMFILE", EMFILE}};
  fl_lua *st = fll_enter(L);
  const char *name = luaL_optstring(L, 3, "EIO");
  int code = 0;
  for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
    if (strcmp(name, errors[i].name) == 0)
      code = errors[i].code;
  if (!code)
    fll_error(L, "file.fail: there is no error '%s' to order", name);
  lua_pushinteger(L, st->fault.asked);
  st->fault = (fll_file_fault){luaL_optinteger(L, 1, 0),
                               luaL_optinteger(L, 2, 0), 0, code};
  return 1;
}

/* --- descriptors that an error closes --- */

static void close_fd(void *p) {
  fll_fd *f = p;
  if (f->fd >= 0)
    close(f->fd);
  if (f->temp[0])
    unlink(f->temp);
  free(f);
}

fll_fd *fll_newfd(lua_State *L) {
  fll_box *b = fll_newbox(L, close_fd);
  fll_fd *f = calloc(1, sizeof *f);
  if (!f)
    luaL_error(L, "out of memory");
  f->fd = -1;
  b->p = (char *)f;
  return f;
}

static const char *kind_of(mode_t m) {
  return S_ISREG(m)    ? "file"
         : S_ISDIR(m)  ? "directory"
         : S_ISFIFO(m) ? "FIFO"
         : S_ISSOCK(m) ? "socket"
                       : "device";
}

/* Opens an ordinary file for reading; NULL with errno or, for what is not a
 * file, with `kind` set. */
bool fll_open_file(fl_lua *st, const char *path, fll_fd *f, struct stat *s,
                   const char **kind) {
  *kind = NULL;
  f->fd = CALL(st, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (f->fd < 0 || CALL(st, fstat(f->fd, s)) < 0)
    return false;
  if (S_ISREG(s->st_mode))
    return true;
  *kind = kind_of(s->st_mode);
  return false;
}

int fll_file_failed(lua_State *L, const char *path, const char *kind) {
  if (!*path)
    return fll_failed(L, "\"\": the path is empty");
  if (kind)
    return fll_failed(L, "%s: is a %s, not a file", path, kind);
  return fll_failed(L, "%s: %s", path, strerror(errno));
}

/* --- reading --- */

static int64_t read_all(fl_lua *st, int fd, char *to, size_t n, off_t at) {
  size_t done = 0;
  while (done < n) {
    ssize_t k = CALL(st, pread(fd, to + done, n - done, at + (off_t)done));
    if (k < 0 && errno == EINTR)
      continue;
    if (k < 0)
      return -1;
    if (k == 0)
      break;
    done += (size_t)k;
  }
  return (int64_t)done;
}

const char *fll_path(lua_State *L, int i) {
  if (lua_type(L, i) != LUA_TSTRING)
    fll_error(L, "a path is a string, got %s", fll_typename(L, i));
  size_t n;
  const char *path = lua_tolstring(L, i, &n);
  if (strlen(path) != n) /* else another file than the one that was meant */
    fll_error(L, "a path has no zero bytes: \"%s\\0...\"", path);
  return path;
}

/* Files without a size (/proc) are read until they end. */
static int64_t read_to_end(lua_State *L, fl_lua *st, int fd, int64_t first,
                           int64_t n) {
  enum { PIECE = 1 << 16 };
  fll_box *b = fll_newbox(L, NULL);
  int64_t k = 1;
  int error = 0;
  while (k > 0 && (n < 0 || (int64_t)b->n < n)) {
    size_t want = n >= 0 && n - (int64_t)b->n < PIECE
                      ? (size_t)(n - (int64_t)b->n)
                      : PIECE;
    char *p = fll_boxroom(L, b, want);
    k = read_all(st, fd, p, want, first + (int64_t)b->n);
    error = errno;
    b->n += k > 0 ? (size_t)k : 0;
  }
  lua_pushlstring(L, b->n ? b->p : "", b->n);
  fll_emptybox(b);
  errno = error;
  return k;
}

bool fll_push_bytes(lua_State *L, fl_lua *st, int fd, int64_t size,
                    int64_t first, int64_t n) {
  if (size == 0)
    return read_to_end(L, st, fd, first, n) >= 0;
  int64_t rest = size > first ? size - first : 0;
  if (n < 0 || n > rest)
    n = rest;
  luaL_Buffer b;
  char *p = luaL_buffinitsize(L, &b, (size_t)n);
  int64_t got = read_all(st, fd, p, (size_t)n, first);
  int error = errno;
  luaL_pushresultsize(&b, got < 0 ? 0 : (size_t)got);
  errno = error;
  return got >= 0;
}

/* file.read(path): all of it; file.read(path, first, length): bytes counted
 * from 0, fewer at the end. */
static int read_file(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const char *path, *kind;
  int64_t first = luaL_optinteger(L, 2, 0), length = luaL_optinteger(L, 3, -1);
  struct stat s;
  if (first < 0)
    fll_error(L, "file.read: first: cannot be negative");
  fll_check_input(L, 1);
  fll_fd *f = fll_newfd(L);
  if (!fll_open_input(L, st, 1, f, &s, &path, &kind))
    return fll_file_failed(L, path, kind);
  bool ok = fll_push_bytes(L, st, f->fd, s.st_size, first, length);
  int error = errno;
  close(f->fd);
  f->fd = -1;
  errno = error;
  return ok ? 1 : fll_file_failed(L, path, NULL);
}

/* --- writing --- */

typedef struct output {
  fl_lua *st;
  fll_fd *f;
  size_t wrote, total;
} output;

static bool write_all(output *o, const char *p, size_t n) {
  while (n > 0) {
    size_t most = n < ((size_t)1 << 26) ? n : (size_t)1 << 26;
    ssize_t k = CALL(o->st, write(o->f->fd, p, most));
    if (k < 0 && errno == EINTR)
      continue;
    if (k < 0)
      return false;
    p += k;
    n -= (size_t)k;
    o->wrote += (size_t)k;
  }
  return true;
}

/* The bytes of a piece at i: a string, or a tensor's memory (a copy of it where
 * it is not contiguous or on a device; the copy is pushed). */
const char *fll_piece(lua_State *L, fl_lua *st, int i, size_t *n,
                      const char *where) {
  if (lua_type(L, i) == LUA_TSTRING)
    return lua_tolstring(L, i, n);
  fl_tensor *t = fll_checktensor(L, i, where, "piece");
  *n = (size_t)fl_tensor_numel(t) * fl_dtype_size(fl_tensor_meta(t)->dtype);
  if (fl_tensor_contiguous(t)) {
    const char *p = fl_tensor_borrow(t);
    if (p)
      return p;
  }
  char *copy = fll_scratch(L, *n + 1);
  t = fll_checktensor(L, i, where, "piece");
  fll_check(L, st, fl_tensor_read(t, copy, *n));
  return copy;
}

/* Writes the pieces at [first, last], tables among them in order. */
static bool write_pieces(lua_State *L, output *o, int first, int last) {
  for (int i = first; i <= last; i++) {
    int top = lua_gettop(L);
    if (lua_istable(L, i)) {
      lua_Integer n = (lua_Integer)lua_rawlen(L, i);
      for (lua_Integer k = 1; k <= n; k++) {
        lua_rawgeti(L, i, k);
        if (!write_pieces(L, o, top + 1, top + 1))
          return false;
        lua_settop(L, top);
      }
      continue;
    }
    size_t n;
    const char *p = fll_piece(L, o->st, i, &n, "file.write_atomic");
    if (!write_all(o, p, n))
      return false;
    lua_settop(L, top);
  }
  return true;
}

static size_t piece_bytes(lua_State *L, int i, int depth) {
  size_t n = 0;
  if (lua_istable(L, i)) {
    if (depth > 4)
      fll_error(L, "file.write_atomic: pieces are nested too deep");
    lua_Integer count = (lua_Integer)lua_rawlen(L, i);
    luaL_checkstack(L, 4, NULL);
    for (lua_Integer k = 1; k <= count; k++) {
      lua_rawgeti(L, i, k);
      n += piece_bytes(L, lua_gettop(L), depth + 1);
      lua_pop(L, 1);
    }
    return n;
  }
  if (lua_type(L, i) == LUA_TSTRING)
    return lua_rawlen(L, i);
  fl_tensor *t = fll_checktensor(L, i, "file.write_atomic", "piece");
  return (size_t)fl_tensor_numel(t) * fl_dtype_size(fl_tensor_meta(t)->dtype);
}

static bool sync_folder(fl_lua *st, const char *path) {
  char folder[PATH_MAX];
  const char *slash = strrchr(path, '/');
  size_t n = slash ? (size_t)(slash - path) : 0;
  if (!slash)
    strcpy(folder, ".");
  else if (n == 0)
    strcpy(folder, "/");
  else {
    memcpy(folder, path, n);
    folder[n] = 0;
  }
  int fd = CALL(st, open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd < 0)
    return false;
  bool ok = CALL(st, fsync(fd)) == 0;
  int error = errno;
  close(fd);
  errno = error;
  /* some file systems cannot: then there is nothing to wait for */
  return ok || error == EINVAL;
}

/* A new file beside `path`, with the mode of the one that is there. */
static bool open_temp(fl_lua *st, const char *path, fll_fd *f) {
  struct stat s;
  bool there = stat(path, &s) == 0;
  for (int k = 0; k < 100; k++) {
    char temp[PATH_MAX];
    int n =
        snprintf(temp, sizeof temp, "%s.tmp-%ld-%d", path, (long)getpid(), k);
    if (n < 0 || n >= (int)sizeof temp) {
      errno = ENAMETOOLONG;
      return false;
    }
    f->fd = CALL(st, open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (f->fd >= 0) {
      strcpy(f->temp, temp);
      return !there || CALL(st, fchmod(f->fd, s.st_mode & 07777)) == 0;
    }
    if (errno != EEXIST)
      return false;
  }
  return false;
}

static bool finish_temp(fl_lua *st, const char *path, fll_fd *f) {
  if (CALL(st, fsync(f->fd)) < 0)
    return false;
  if (fll_file_fault_due(st))
    return false;
  int r = close(f->fd);
  f->fd = -1;
  if (r < 0 || CALL(st, rename(f->temp, path)) < 0)
    return false;
  f->temp[0] = 0;
  return true;
}

static void drop_temp(fll_fd *f) {
  int error = errno;
  if (f->fd >= 0)
    close(f->fd);
  f->fd = -1;
  if (f->temp[0])
    unlink(f->temp);
  f->temp[0] = 0;
  errno = error;
}

/* file.write_atomic(path, piece, ...): strings, tensors (their bytes) and
 * tables of them, written beside `path`, made durable, then put in its place.
 */
static int write_atomic(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const char *given = fll_path(L, 1);
  char path[PATH_MAX];
  int last = lua_gettop(L);
  output o = {.st = st};
  for (int i = 2; i <= last; i++)
    o.total += piece_bytes(L, i, 0);
  struct stat s;
  if (!*given) {
    errno = ENOENT;
    return fll_file_failed(L, given, NULL);
  }
  if (strlen(given) >= sizeof path - 32) {
    errno = ENAMETOOLONG;
    return fll_file_failed(L, given, NULL);
  }
  /* through a symbolic link: what it points to is replaced */
  if (lstat(given, &s) != 0 || !S_ISLNK(s.st_mode) || !realpath(given, path))
    strcpy(path, given);
  if (stat(path, &s) == 0 && !S_ISREG(s.st_mode)) /* no device is replaced */
    return fll_file_failed(L, given, kind_of(s.st_mode));
  o.f = fll_newfd(L);
  bool ok = open_temp(st, path, o.f) && write_pieces(L, &o, 2, last) &&
            finish_temp(st, path, o.f);
  if (!ok) {
    drop_temp(o.f);
    int error = errno;
    bool kept = stat(path, &s) == 0;
    return fll_failed(L, "%s: %s, wrote %zu of %zu bytes%s", given,
                      strerror(error), o.wrote, o.total,
                      kept ? "; what was there before is kept" : "");
  }
  if (!sync_folder(st, path))
    return fll_failed(L,
                      "%s: %s, wrote all %zu bytes, but the folder may "
                      "forget the new name if the machine stops",
                      given, strerror(errno), o.total);
  lua_pushboolean(L, 1);
  return 1;
}

/* --- names --- */

static int done(lua_State *L, bool ok, const char *path) {
  if (!ok)
    return fll_file_failed(L, path, NULL);
  lua_pushboolean(L, 1);
  return 1;
}

/* file.mkdir(path): with all folders on the way; true if it is there already.
 */
static int make_folder(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const char *given = fll_path(L, 1);
  char path[PATH_MAX];
  struct stat s;
  if (strlen(given) >= sizeof path) {
    errno = ENAMETOOLONG;
    return done(L, false, given);
  }
  strcpy(path, given);
  for (char *p = path + 1; *p; p++) {
    if (*p != '/')
      continue;
    *p = 0;
    if (stat(path, &s) != 0 && CALL(st, mkdir(path, 0777)) < 0 &&
        errno != EEXIST)
      return done(L, false, given);
    *p = '/';
  }
  bool ok = CALL(st, mkdir(path, 0777)) == 0;
  if (!ok && errno == EEXIST && stat(path, &s) == 0 && S_ISDIR(s.st_mode))
    ok = true;
  return done(L, ok, given);
}

/* file.list(path): the names in a folder, sorted. */
static int list_folder(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const char *path = fll_path(L, 1);
  fll_box *names = fll_newbox(L, NULL);
  DIR *d = fll_file_fault_due(st) ? NULL : opendir(path);
  if (!d)
    return fll_file_failed(L, path, NULL);
  bool room = true;
  for (struct dirent *e; room && (e = readdir(d));) {
    size_t n = strlen(e->d_name) + 1;
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
      continue;
    if (names->room - names->n < n) { /* no Lua call while the folder is open */
      size_t more = 2 * names->room + n + 1024;
      char *p = realloc(names->p, more);
      room = p != NULL;
      if (room) {
        names->p = p;
        names->room = more;
      }
    }
    if (room) {
      memcpy(names->p + names->n, e->d_name, n);
      names->n += n;
    }
  }
  closedir(d);
  if (!room)
    return luaL_error(L, "out of memory");
  lua_newtable(L);
  lua_Integer k = 0;
  for (size_t at = 0; at < names->n; at += strlen(names->p + at) + 1) {
    lua_pushstring(L, names->p + at);
    lua_rawseti(L, -2, ++k);
  }
  fll_emptybox(names);
  lua_getglobal(L, "table");
  lua_getfield(L, -1, "sort");
  lua_pushvalue(L, -3);
  lua_call(L, 1, 0);
  lua_pop(L, 1);
  return 1;
}

/* file.exists(path): "file", "directory" ..., or nil. */
static int exists(lua_State *L) {
  struct stat s;
  if (stat(fll_path(L, 1), &s) == 0)
    lua_pushstring(L, kind_of(s.st_mode));
  else
    lua_pushnil(L);
  return 1;
}

/* file.stat(path): {size =, modified =, kind =, mode =} */
static int stat_file(lua_State *L) {
  struct stat s;
  const char *path = fll_path(L, 1);
  if (stat(path, &s) != 0)
    return fll_file_failed(L, path, NULL);
  lua_createtable(L, 0, 4);
  lua_pushinteger(L, s.st_size);
  lua_setfield(L, -2, "size");
  lua_pushinteger(L, s.st_mtime);
  lua_setfield(L, -2, "modified");
  lua_pushinteger(L, s.st_mode & 07777);
  lua_setfield(L, -2, "mode");
  lua_pushstring(L, kind_of(s.st_mode));
  lua_setfield(L, -2, "kind");
  return 1;
}

/* file.real(path): the absolute path, with all symbolic links resolved. */
static int real_path(lua_State *L) {
  char real[PATH_MAX];
  const char *path = fll_path(L, 1);
  if (!realpath(path, real))
    return fll_file_failed(L, path, NULL);
  lua_pushstring(L, real);
  return 1;
}

/* file.remove(path): a file or an empty folder. */
static int remove_file(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const char *path = fll_path(L, 1);
  return done(L, CALL(st, remove(path)) == 0, path);
}

static int rename_file(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const char *from = fll_path(L, 1), *to = fll_path(L, 2);
  bool ok = CALL(st, rename(from, to)) == 0 && sync_folder(st, to);
  return done(L, ok, from);
}

void fll_file_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"read", read_file},
                                       {"open", fll_open_handle},
                                       {"real", real_path},
                                       {"write_atomic", write_atomic},
                                       {"map", fll_map_file},
                                       {"mkdir", make_folder},
                                       {"list", list_folder},
                                       {"exists", exists},
                                       {"stat", stat_file},
                                       {"remove", remove_file},
                                       {"rename", rename_file},
                                       {"fail", fail},
                                       {NULL, NULL}};
  static const luaL_Reg around[] = {{"gunzip", fll_gunzip},
                                    {"inflate", fll_inflate},
                                    {"deflate", fll_deflate},
                                    {"crc32", fll_crc32},
                                    {"protobuf", fll_protobuf},
                                    {"crc32c", fll_crc32c},
                                    {"xxh64", fll_xxh64},
                                    {"png_decode", fll_png_decode},
                                    {"resize_bytes", fll_resize_bytes},
                                    {"png_encode", fll_png_encode},
                                    {"jpeg_decode", fll_jpeg_decode},
                                    {"jpeg_encode", fll_jpeg_encode},
                                    {NULL, NULL}};
  fll_register(L, around);
  lua_newtable(L);
  fll_register(L, functions);
  lua_setfield(L, -2, "file");
  fll_map_open(L);
  fll_handle_open(L);
}
