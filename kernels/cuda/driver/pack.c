/* The pack: kernels compiled ahead, in one file that lies beside the library.
 * An index sorted by key, then the images, compressed where zlib is; the file
 * is mapped.
 * `flare kernels --pack sm_80,sm_90a` writes it. */
#define _GNU_SOURCE /* dladdr */
#include "process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef FLARE_HAVE_ZLIB
#include <zlib.h>
#endif

#define MAGIC "flarepk2"

typedef struct head {
  char magic[8];
  uint64_t count;
} head;

typedef struct row {
  uint64_t key[2];
  uint64_t at, stored; /* where the image is, and its bytes there */
  uint64_t bytes;      /* of the image itself; more than stored: compressed */
  uint64_t entry;      /* where its name is */
} row;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *mapped; /* NULL: there is none */
static uint64_t rows;
static char where[600];

static int by_key(const void *a, const void *b) {
  return memcmp(a, b, 2 * sizeof(uint64_t));
}

static bool valid(const char *p, size_t bytes) {
  head h;
  if (bytes < sizeof h)
    return false;
  memcpy(&h, p, sizeof h);
  if (memcmp(h.magic, MAGIC, 8) != 0 ||
      h.count > (bytes - sizeof h) / sizeof(row))
    return false;
  if (p[bytes - 1] != 0) /* names end somewhere */
    return false;
  const row *r = (const row *)(const void *)(p + sizeof h);
  for (uint64_t i = 0; i < h.count; i++)
    if (r[i].at > bytes || r[i].stored > bytes - r[i].at ||
        r[i].bytes > (64u << 20) || r[i].entry >= bytes)
      return false;
  rows = h.count;
  return true;
}

static bool open_pack(const char *path) {
  struct stat st;
  int f = open(path, O_RDONLY | O_CLOEXEC);
  if (f < 0)
    return false;
  void *p = MAP_FAILED;
  if (fstat(f, &st) == 0 && st.st_size > 0)
    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, f, 0);
  close(f);
  if (p == MAP_FAILED)
    return false;
  if (!valid(p, (size_t)st.st_size)) {
    munmap(p, (size_t)st.st_size);
    return false;
  }
  mapped = p;
  snprintf(where, sizeof where, "%s", path);
  return true;
}

/* $FLARE_PACK, or beside this library or program, or where it is installed. */
static void find_pack(void) {
  static const char *const places[] = {"flare.pack", "flare/flare.pack",
                                       "../lib/flare/flare.pack",
                                       "../share/flare/flare.pack"};
  const char *own = getenv("FLARE_PACK");
  Dl_info me;
  char path[600];
  if (own) {
    open_pack(own);
    return;
  }
  if (!dladdr((const void *)find_pack, &me) || !me.dli_fname)
    return;
  char *real =
      realpath(me.dli_fname[0] == '/' ? me.dli_fname : "/proc/self/exe", NULL);
  char *slash = real ? strrchr(real, '/') : NULL;
  for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
    snprintf(path, sizeof path, "%.*s/%s", (int)(slash - real), real,
             places[i]);
    if (open_pack(path))
      break;
  }
  free(real);
}

const char *flc_pack_path(void) {
  pthread_once(&once, find_pack);
  return where;
}

uint64_t flc_pack_count(void) {
  pthread_once(&once, find_pack);
  return rows;
}

static bool pack_unpack(const row *r, flc_binary *b) {
  *b = (flc_binary){.image = mapped + r->at, .bytes = r->bytes};
  if (r->stored == r->bytes)
    return true;
#ifdef FLARE_HAVE_ZLIB
  uLongf n = r->bytes;
  b->image = b->owned = aligned_alloc(64, (r->bytes + 63) / 64 * 64);
  if (b->owned &&
      uncompress(b->owned, &n, (const Bytef *)mapped + r->at, r->stored) ==
          Z_OK &&
      n == r->bytes)
    return true;
  free(b->owned);
#endif
  return false;
}

bool flc_pack_find(const uint64_t key[2], flc_binary *b) {
  pthread_once(&once, find_pack);
  if (!mapped)
    return false;
  const row *r = bsearch(key, mapped + sizeof(head), rows, sizeof(row), by_key);
  if (!r)
    return false;
  if (!pack_unpack(r, b))
    return false;
  snprintf(b->entry, sizeof b->entry, "%s", mapped + r->entry);
  return true;
}

/* --- writing: images, then names --- */

struct flc_pack {
  uint64_t n, room, images, image_room;
  row *rows; /* at: the number of the image; entry: in `names` */
  struct {
    void *memory;
    uint64_t bytes, at; /* as stored */
  } * image;
  char *names;
  uint64_t names_bytes, names_room;
};

flc_pack *flc_pack_new(void) {
  return calloc(1, sizeof(flc_pack));
}

void flc_pack_free(flc_pack *p) {
  if (!p)
    return;
  for (uint64_t i = 0; i < p->images; i++)
    free(p->image[i].memory);
  free(p->image);
  free(p->rows);
  free(p->names);
  free(p);
}

/* Room for `more` beyond n elements of `size` bytes; false: no memory. */
static bool make_room(void *list, uint64_t n, uint64_t more, uint64_t *room,
                      size_t size) {
  void *old, *bigger;
  if (n + more <= *room)
    return true;
  memcpy(&old, list, sizeof old);
  uint64_t want = (n + more) * 2;
  if (!(bigger = realloc(old, want * size)))
    return false;
  memcpy(list, &bigger, sizeof bigger);
  *room = want;
  return true;
}

/* Replaces an image by its compressed form, if that is smaller. */
static void compress_image(void **image, uint64_t *stored) {
#ifdef FLARE_HAVE_ZLIB
  uLongf n = compressBound(*stored);
  void *small = malloc(n);
  if (small && compress2(small, &n, *image, *stored, 9) == Z_OK &&
      n < *stored) {
    free(*image);
    *image = small;
    *stored = n;
  } else
    free(small);
#else
  (void)image, (void)stored;
#endif
}

static fl_status pack_add(flc_pack *p, const char *arch, const flc_spec *specs,
                          int n, void *image, uint64_t stored, size_t bytes,
                          char (*entries)[FLC_ENTRY]) {
  if (!make_room(&p->image, p->images, 1, &p->image_room, sizeof *p->image)) {
    free(image);
    return fli_fail(FL_ENOMEM, "out of memory: a pack");
  }
  p->image[p->images].memory = image;
  p->image[p->images++].bytes = stored;
  for (int i = 0; i < n; i++) {
    size_t length = strlen(entries[i]) + 1;
    if (!make_room(&p->rows, p->n, 1, &p->room, sizeof(row)) ||
        !make_room(&p->names, p->names_bytes, length, &p->names_room, 1))
      return fli_fail(FL_ENOMEM, "out of memory: a pack");
    row *r = &p->rows[p->n++];
    *r = (row){.at = p->images - 1,
               .stored = stored,
               .bytes = bytes,
               .entry = p->names_bytes};
    flc_pack_key(arch, &specs[i], r->key);
    memcpy(p->names + p->names_bytes, entries[i], length);
    p->names_bytes += length;
  }
  return FL_OK;
}

fl_status flc_pack_add(flc_pack *p, const char *arch, const flc_spec *specs,
                       int n, void *image, size_t bytes,
                       char (*entries)[FLC_ENTRY]) {
  uint64_t stored = bytes;
  compress_image(&image, &stored);
  pthread_mutex_lock(&flc_lock);
  fl_status s = pack_add(p, arch, specs, n, image, stored, bytes, entries);
  pthread_mutex_unlock(&flc_lock);
  return s;
}

static bool write_parts(FILE *f, const flc_pack *p, uint64_t start) {
  static const char zeros[64];
  head h = {.count = p->n};
  memcpy(h.magic, MAGIC, 8);
  size_t pad = start - sizeof h - p->n * sizeof(row);
  bool good = fwrite(&h, sizeof h, 1, f) == 1 &&
              fwrite(p->rows, sizeof(row), p->n, f) == p->n &&
              fwrite(zeros, 1, pad, f) == pad;
  for (uint64_t i = 0; i < p->images && good; i++) {
    size_t n = p->image[i].bytes, fill = (64 - n % 64) % 64;
    good = fwrite(p->image[i].memory, 1, n, f) == n &&
           fwrite(zeros, 1, fill, f) == fill;
  }
  return good && fwrite(p->names, 1, p->names_bytes, f) == p->names_bytes;
}

fl_status flc_pack_write(flc_pack *p, const char *path, uint64_t *bytes) {
  char part[640];
  uint64_t start = (sizeof(head) + p->n * sizeof(row) + 63) / 64 * 64;
  uint64_t at = start;
  for (uint64_t i = 0; i < p->images; i++) {
    p->image[i].at = at;
    at += (p->image[i].bytes + 63) / 64 * 64;
  }
  for (uint64_t i = 0; i < p->n; i++) {
    p->rows[i].at = p->image[p->rows[i].at].at;
    p->rows[i].entry += at;
  }
  qsort(p->rows, p->n, sizeof(row), by_key);
  snprintf(part, sizeof part, "%s.part", path);
  FILE *f = fopen(part, "wb");
  bool good = f && write_parts(f, p, start);
  good = f && fclose(f) == 0 && good && rename(part, path) == 0;
  if (!good) {
    remove(part);
    return fli_fail(FL_EFILE, "%s cannot be written", path);
  }
  *bytes = at + p->names_bytes;
  return FL_OK;
}
