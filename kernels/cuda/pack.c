/* The pack: kernels compiled ahead, in one file that lies beside the library.
 * An index sorted by key, then the images; the file is mapped, never copied.
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

#define MAGIC "flarepk1"

typedef struct head {
  char magic[8];
  uint64_t count;
} head;

typedef struct row {
  uint64_t key[2];
  uint64_t at, entry_bytes, image_bytes; /* from the file's start */
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
  const row *r = (const row *)(const void *)(p + sizeof h);
  for (uint64_t i = 0; i < h.count; i++)
    if (r[i].at > bytes || r[i].entry_bytes > bytes - r[i].at ||
        r[i].entry_bytes == 0 || p[r[i].at + r[i].entry_bytes - 1] != 0 ||
        r[i].image_bytes > bytes - r[i].at - r[i].entry_bytes)
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

bool flc_pack_find(const uint64_t key[2], flc_binary *b) {
  pthread_once(&once, find_pack);
  if (!mapped)
    return false;
  const row *r = bsearch(key, mapped + sizeof(head), rows, sizeof(row), by_key);
  if (!r)
    return false;
  const char *entry = mapped + r->at;
  *b = (flc_binary){entry, entry + r->entry_bytes, r->image_bytes, NULL};
  return true;
}

/* --- writing --- */

struct flc_pack {
  uint64_t n, room;
  row *rows;
  flc_binary *binaries;
};

flc_pack *flc_pack_new(void) {
  return calloc(1, sizeof(flc_pack));
}

void flc_pack_free(flc_pack *p) {
  for (uint64_t i = 0; p && i < p->n; i++)
    free(p->binaries[i].owned);
  if (p) {
    free(p->rows);
    free(p->binaries);
  }
  free(p);
}

/* Takes the binary over. */
fl_status flc_pack_add(flc_pack *p, const uint64_t key[2],
                       const flc_binary *b) {
  if (p->n == p->room) {
    uint64_t room = p->room ? p->room * 2 : 256;
    row *r = realloc(p->rows, room * sizeof *r);
    if (r)
      p->rows = r;
    flc_binary *more = realloc(p->binaries, room * sizeof *more);
    if (more)
      p->binaries = more;
    if (!r || !more) {
      free(b->owned);
      return fli_fail(FL_ENOMEM, "out of memory: a pack");
    }
    p->room = room;
  }
  /* `at` is the binary's number until the file is laid out */
  p->rows[p->n] = (row){{key[0], key[1]},
                        p->n,
                        (uint64_t)((const char *)b->image - b->entry),
                        b->bytes};
  p->binaries[p->n++] = *b;
  return FL_OK;
}

fl_status flc_pack_write(flc_pack *p, const char *path, uint64_t *bytes) {
  static const char zeros[64];
  char part[640];
  head h = {.count = p->n};
  memcpy(h.magic, MAGIC, 8);
  qsort(p->rows, p->n, sizeof(row), by_key);
  uint64_t start = sizeof h + p->n * sizeof(row), at = (start + 63) / 64 * 64;
  uint64_t *order = malloc((p->n + 1) * sizeof *order);
  if (!order)
    return fli_fail(FL_ENOMEM, "out of memory: a pack");
  uint64_t pad = at - start;
  for (uint64_t i = 0; i < p->n; i++) {
    row *r = &p->rows[i];
    order[i] = r->at;
    r->at = at;
    at = (at + r->entry_bytes + r->image_bytes + 63) / 64 * 64;
  }
  snprintf(part, sizeof part, "%s.part", path);
  FILE *f = fopen(part, "wb");
  bool good = f && fwrite(&h, sizeof h, 1, f) == 1 &&
              fwrite(p->rows, sizeof(row), p->n, f) == p->n &&
              fwrite(zeros, 1, pad, f) == pad;
  for (uint64_t i = 0; i < p->n && good; i++) {
    const row *r = &p->rows[i];
    size_t n = r->entry_bytes + r->image_bytes, fill = (64 - n % 64) % 64;
    good = fwrite(p->binaries[order[i]].entry, 1, n, f) == n &&
           fwrite(zeros, 1, fill, f) == fill;
  }
  free(order);
  good = f && fclose(f) == 0 && good && rename(part, path) == 0;
  if (!good) {
    remove(part);
    return fli_fail(FL_EFILE, "%s cannot be written", path);
  }
  *bytes = at;
  return FL_OK;
}
