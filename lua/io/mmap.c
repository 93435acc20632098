/* Files mapped into memory, and tensors over them without copying. The mapping
 * is private: writing to such a tensor does not change the file. It lives until
 * the object and the last tensor over it are gone. A file must not be cut short
 * while it is mapped: touching what is missing ends the process, so what may
 * change is better read than mapped. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct mapping {
  atomic_int rc;
  char *p;
  size_t n;
} mapping;

typedef struct map {
  uint64_t magic;
  mapping *m; /* NULL: closed */
  uint64_t more;
} map;

static void mmap_release(mapping *m) {
  if (!m || atomic_fetch_sub(&m->rc, 1) != 1)
    return;
  if (m->p)
    munmap(m->p, m->n);
  free(m);
}

static void tensor_done(void *context, void *data) {
  (void)data;
  mmap_release(context);
}

static map *mmap_check(lua_State *L, const char *where) {
  map *f = fll_checktype(L, 1, FLL_MAP, sizeof *f);
  if (!f->m)
    fll_error(L, "%s: the mapped file is closed", where);
  return f;
}

/* file.map(path), or of an open file */
int fll_map_file(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const char *path, *kind;
  struct stat s;
  fll_check_input(L, 1);
  map *f = fll_newobject(L, FLL_MAP, sizeof *f, 0);
  fll_fd *fd = fll_newfd(L);
  int top = lua_gettop(L);
  if (!fll_open_input(L, st, 1, fd, &s, &path, &kind))
    return fll_file_failed(L, path, kind);
  mapping *m = calloc(1, sizeof *m);
  if (!m)
    return luaL_error(L, "out of memory");
  atomic_init(&m->rc, 1);
  f->m = m;
  m->n = (size_t)s.st_size;
  if (m->n) {
    void *p = fll_file_fault_due(st) ? MAP_FAILED
                                     : mmap(NULL, m->n, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE, fd->fd, 0);
    if (p == MAP_FAILED)
      return fll_file_failed(L, path, NULL);
    m->p = p;
  }
  close(fd->fd);
  fd->fd = -1;
  lua_settop(L, top - 1);
  return 1;
}

static size_t check_range(lua_State *L, const map *f, int64_t offset,
                          uint64_t bytes, const char *where) {
  if (offset < 0 || (uint64_t)offset > f->m->n ||
      bytes > f->m->n - (uint64_t)offset)
    fll_error(L, "%s: bytes %lld to %llu are not in a file of %zu", where,
              (long long)offset, (unsigned long long)((uint64_t)offset + bytes),
              f->m->n);
  return (size_t)bytes;
}

/* m:bytes(offset, n): a string; offsets count from 0. */
static int map_bytes(lua_State *L) {
  fll_enter(L);
  map *f = mmap_check(L, "bytes");
  int64_t offset = luaL_optinteger(L, 2, 0);
  int64_t n = luaL_optinteger(L, 3, (lua_Integer)f->m->n - offset);
  if (n < 0)
    fll_error(L, "bytes: n: cannot be negative");
  check_range(L, f, offset, (uint64_t)n, "bytes");
  lua_pushlstring(L, f->m->n ? f->m->p + offset : "", (size_t)n);
  return 1;
}

/* m:tensor(offset, dtype, shape): over the file's memory; a copy where the
 * offset is not a multiple of the element's size. */
static int map_tensor(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int dims;
  int64_t sizes[FL_MAX_DIMS];
  map *f = mmap_check(L, "tensor");
  int64_t offset = fll_checkint(L, 2, "tensor", "offset");
  fl_dtype d = fll_checkdtype(L, 3, "tensor");
  fll_checksizes(L, 4, "tensor", &dims, sizes);
  uint64_t bytes = fl_dtype_size(d);
  for (int k = 0; k < dims; k++)
    if (__builtin_mul_overflow(bytes, (uint64_t)sizes[k], &bytes))
      fll_error(L, "tensor: the size of %s overflows",
                fli_shape_text(dims, sizes));
  check_range(L, f, offset, bytes, "tensor");
  fll_tensor *h = fll_new(L, st, FLL_MT);
  f = mmap_check(L, "tensor");
  fl_tensor *t = NULL;
  char *p = f->m->p + offset;
  if (bytes > 0 && (uint64_t)offset % fl_dtype_size(d) == 0) {
    atomic_fetch_add(&f->m->rc, 1);
    fl_status s =
        fl_tensor_wrap(st->rt, p, d, dims, sizes, tensor_done, f->m, &t);
    if (s != FL_OK)
      mmap_release(f->m);
    fll_check(L, st, s);
    fll_fill(h, t);
    return 1;
  }
  fll_check(L, st, fll_tensor_new(L, st, d, dims, sizes, 0, &t));
  fll_fill(h, t);
  if (bytes)
    fll_check(L, st, fl_tensor_write(t, p, bytes));
  return 1;
}

static int map_len(lua_State *L) {
  fll_peek(L);
  lua_pushinteger(L, (lua_Integer)mmap_check(L, "#")->m->n);
  return 1;
}

static int map_close(lua_State *L) {
  map *f = fll_totype(L, 1, FLL_MAP, sizeof *f);
  if (f) {
    mapping *m = f->m;
    f->m = NULL;
    mmap_release(m);
  }
  return 0;
}

void fll_map_open(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", map_close},
                                  {"__close", map_close},
                                  {"__len", map_len},
                                  {NULL, NULL}};
  static const luaL_Reg methods[] = {{"tensor", map_tensor},
                                     {"bytes", map_bytes},
                                     {"close", map_close},
                                     {NULL, NULL}};
  fll_newclass(L, FLL_MAP, "flare.map", meta, methods);
}
