/* What the files that touch the file system share. */
#ifndef FLL_FILE_H
#define FLL_FILE_H

#include "../fll.h"

#include <limits.h>
#include <sys/stat.h>

/* An open file that an error closes, and a temporary one that it removes. */
typedef struct fll_fd {
  int fd;
  char temp[PATH_MAX];
} fll_fd;

fll_fd *fll_newfd(lua_State *L);           /* pushes what owns it */
const char *fll_path(lua_State *L, int i); /* the path at i */
/* Counts a system call; true: it is to fail, errno is set. */
bool fll_file_fault_due(fl_lua *st);
/* Opens an ordinary file for reading; false with errno or, for something that
 * is no file, its kind. */
bool fll_open_file(fl_lua *st, const char *path, fll_fd *f, struct stat *s,
                   const char **kind);
void fll_check_input(lua_State *L, int i); /* a path or an open file */
/* Its path; may push a value. */
const char *fll_input_path(lua_State *L, int i);
/* As a file that is opened, or one that is open already (file.open) at `i`. */
bool fll_open_input(lua_State *L, fl_lua *st, int i, fll_fd *f, struct stat *s,
                    const char **path, const char **kind);
/* Pushes bytes [first, first + n) of a file of `size` bytes, n < 0: all that
 * follow; fewer at the end. false with errno: it cannot be read. */
bool fll_push_bytes(lua_State *L, fl_lua *st, int fd, int64_t size,
                    int64_t first, int64_t n);
/* nil, "path: why" */
int fll_file_failed(lua_State *L, const char *path, const char *kind);
/* The bytes of a string or tensor at i; may push a copy. */
const char *fll_piece(lua_State *L, fl_lua *st, int i, size_t *n,
                      const char *where);

int fll_open_handle(lua_State *L);
void fll_handle_open(lua_State *L);
int fll_map_file(lua_State *L);
void fll_map_open(lua_State *L);
int fll_gunzip(lua_State *L);
int fll_inflate(lua_State *L);
int fll_deflate(lua_State *L);
int fll_crc32(lua_State *L);
int fll_protobuf(lua_State *L);
int fll_crc32c(lua_State *L);
int fll_xxh64(lua_State *L);
int fll_png_decode(lua_State *L);
int fll_png_encode(lua_State *L);
int fll_jpeg_decode(lua_State *L);
int fll_jpeg_encode(lua_State *L);
int fll_resize_bytes(lua_State *L);

#endif
