/* The one road of built-in kernels: a specialisation is looked up in the pack,
 * then in the disk cache, then compiled by NVRTC to a cubin. (What is loaded
 * already, process.c knows.) */
#include "process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t flc_hash(uint64_t h, const void *p, size_t n) {
  const unsigned char *c = p;
  for (size_t i = 0; i < n; i++)
    h = (h ^ c[i]) * 0x100000001b3u;
  return h;
}

/* "forward<3, 4>", as C++ writes it. */
void flc_spec_text(const flc_spec *s, char *out, size_t room) {
  size_t at = (size_t)snprintf(out, room, "%s", s->entry);
  for (int i = 0; i < s->n && at < room; i++)
    at +=
        (size_t)snprintf(out + at, room - at, "%s%d", i ? ", " : "<", s->t[i]);
  if (s->n && at < room)
    snprintf(out + at, room - at, ">");
}

static const flc_source *find_source(const char *name) {
  for (const flc_source *s = flc_sources; s->name; s++)
    if (strcmp(s->name, name) == 0)
      return s;
  return NULL;
}

/* The key of a compiled kernel: the chip, the entry, and the digest of its
 * source with the headers that this includes. Other headers do not count. */
void flc_pack_key(const char *arch, const flc_spec *spec, uint64_t key[2]) {
  char entry[160];
  const flc_source *s = find_source(spec->file);
  flc_spec_text(spec, entry, sizeof entry);
  for (int k = 0; k < 2; k++) {
    uint64_t h = flc_hash(FLC_HASH + (uint64_t)k, arch, strlen(arch));
    h = flc_hash(h, entry, strlen(entry));
    h = flc_hash(h, spec->file, strlen(spec->file));
    if (spec->text)
      h = flc_hash(h, spec->text, strlen(spec->text));
    key[k] = s ? flc_hash(h, s->digest, strlen(s->digest)) : h;
  }
}

/* --- compiling --- */

static fl_status nvrtc_failed(const flc_compiler *rtc, const char *what,
                              nvrtcProgram p, const char *log) {
  /* warnings may stand before the error */
  const char *at = log ? strstr(log, ": error") : NULL;
  while (at && at > log && at[-1] != '\n')
    at--;
  log = at ? at : log;
  size_t n = strcspn(log ? log : "", "\n");
  if (p)
    rtc->DestroyProgram(&p);
  return fli_fail(FL_EDEVICE, "compiling %s: %.*s", what,
                  (int)(n < 300 ? n : 300), log ? log : "NVRTC failed");
}

/* What ptxas says of an entry: registers, stack and spills. */
static void note_of(const char *text, const char *entry, char *note) {
  char title[FLC_ENTRY + 40];
  snprintf(title, sizeof title, "entry function '%s'", entry);
  const char *at = strstr(text, title);
  const char *stack = at ? strstr(at, "bytes stack frame") : NULL;
  const char *used = at ? strstr(at, "Used ") : NULL;
  while (stack && stack > at && stack[-1] != '\n' && stack[-1] != ':')
    stack--;
  while (stack && *stack == ' ')
    stack++;
  snprintf(note, FLC_NOTE, "%.*s; %.*s", used ? (int)strcspn(used, "\n") : 0,
           used ? used : "", stack ? (int)strcspn(stack, "\n") : 0,
           stack ? stack : "");
}

static fl_status create_program(const flc_compiler *rtc, const flc_spec *spec,
                                nvrtcProgram *p) {
  const flc_source *s = find_source(spec->file);
  if (!s)
    return fli_fail(FL_EDEVICE, "there is no kernel source %s.cu", spec->file);
  size_t prefix = spec->text ? strlen(spec->text) : 0;
  char *whole = malloc(prefix + s->size + 2);
  if (!whole)
    return fli_fail(FL_ENOMEM, "out of memory: source of a kernel");
  memcpy(whole, spec->text ? spec->text : "", prefix);
  whole[prefix] = '\n';
  memcpy(whole + prefix + 1, s->text, s->size + 1);
  nvrtcResult e = rtc->CreateProgram(p, whole, s->file, s->count,
                                     s->header_texts, s->headers);
  free(whole);
  return e ? nvrtc_failed(rtc, s->file, NULL, NULL) : FL_OK;
}

static fl_status jit_take(const flc_compiler *rtc, nvrtcProgram p,
                          const flc_spec *specs, int n, void **image,
                          size_t *bytes, char (*entries)[FLC_ENTRY]) {
  char entry[160];
  const char *name;
  for (int i = 0; i < n; i++) {
    flc_spec_text(&specs[i], entry, sizeof entry);
    if (rtc->GetLoweredName(p, entry, &name) || strlen(name) >= FLC_ENTRY)
      return nvrtc_failed(rtc, entry, p, NULL);
    snprintf(entries[i], FLC_ENTRY, "%s", name);
  }
  if (rtc->GetCUBINSize(p, bytes))
    return nvrtc_failed(rtc, specs->file, p, NULL);
  *image = aligned_alloc(64, (*bytes + 63) / 64 * 64);
  if (!*image) {
    rtc->DestroyProgram(&p);
    return fli_fail(FL_ENOMEM, "out of memory: a kernel's image");
  }
  nvrtcResult e = rtc->GetCUBIN(p, *image);
  if (e) {
    free(*image);
    return nvrtc_failed(rtc, specs->file, p, NULL);
  }
  rtc->DestroyProgram(&p);
  return FL_OK;
}

fl_status flc_compile(const char *arch, const flc_spec *specs, int n,
                      void **image, size_t *bytes, char (*entries)[FLC_ENTRY],
                      char (*notes)[FLC_NOTE]) {
  const flc_compiler *rtc = flc_compiler_get();
  char file[64], entry[160], target[48], what[240];
  nvrtcProgram p;
  if (!rtc)
    return FL_EDEVICE;
  snprintf(file, sizeof file, "%s.cu", specs->file);
  snprintf(target, sizeof target, "--gpu-architecture=%s", arch);
  fl_status s = create_program(rtc, specs, &p);
  if (s)
    return s;
  int major = 0, minor = 0;
  rtc->Version(&major, &minor);
  const char *options[] = {
      target, "--std=c++17", "--device-as-default-execution-space",
      "--extra-device-vectorization",
      /* without the toolkit's own types: 2 ms less of each compilation */
      major >= 13 ? "--minimal" : "--std=c++17",
      /* 4 of 45 ms; loops are unrolled as ever */
      major >= 13 && specs->soon ? "--Ofast-compile=min" : "--std=c++17",
      "--ptxas-options=-v"};
  for (int i = 0; i < n; i++) {
    flc_spec_text(&specs[i], entry, sizeof entry);
    rtc->AddNameExpression(p, entry);
  }
  snprintf(what, sizeof what, "%s %s", file, entry);
  nvrtcResult e = rtc->CompileProgram(
      p, sizeof options / sizeof *options - (notes ? 0 : 1), options);
  size_t room = 0;
  char *text = NULL;
  if ((e || notes) && rtc->GetProgramLogSize(p, &room) == 0 &&
      (text = calloc(1, room + 1)))
    rtc->GetProgramLog(p, text);
  s = e ? nvrtc_failed(rtc, what, p,
                       text && *text ? text : rtc->GetErrorString(e))
        : jit_take(rtc, p, specs, n, image, bytes, entries);
  for (int i = 0; i < n && notes && s == FL_OK; i++)
    note_of(text ? text : "", entries[i], notes[i]);
  free(text);
  return s;
}

/* --- the disk cache: one file an entry --- */

/* $FLARE_CACHE ("off": none), else flare/ in the user's cache folder. A name
 * has the driver's version, not the compiler's: that would have to be loaded,
 * which takes longer than a program with all kernels in the cache. */
bool flc_cache_path(const char *arch, const uint64_t key[2], char *out,
                    size_t room) {
  const char *own = getenv("FLARE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
             *home = getenv("HOME");
  char folder[400];
  const flc_driver *cu = flc_driver_get();
  int driver = 0;
  if (own && strcmp(own, "off") == 0)
    return false;
  if (own && *own)
    snprintf(folder, sizeof folder, "%s", own);
  else if (xdg && *xdg)
    snprintf(folder, sizeof folder, "%s/flare", xdg);
  else if (home && *home)
    snprintf(folder, sizeof folder, "%s/.cache/flare", home);
  else
    return false;
  if (cu)
    cu->DriverGetVersion(&driver);
  return snprintf(out, room, "%s/%016llx%016llx-%s-%d.cubin", folder,
                  (unsigned long long)key[0], (unsigned long long)key[1], arch,
                  driver) < (int)room;
}

static void make_folders(char *path) {
  for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
    *p = 0;
    mkdir(path, 0700);
    *p = '/';
  }
}

bool flc_cache_open(char *path) {
  make_folders(path);
  char *slash = strrchr(path, '/');
  *slash = 0;
  bool good = access(path, W_OK) == 0;
  *slash = '/';
  return good;
}

typedef struct cached { /* what a file begins with */
  uint64_t bytes, sum;
  char entry[FLC_ENTRY];
} cached;

/* A file that cannot be written is no failure: the kernel is there. */
void flc_cache_write(char *path, const flc_binary *b) {
  static _Atomic unsigned turn;
  char part[560];
  cached c = {b->bytes, flc_hash(FLC_HASH, b->image, b->bytes), {0}};
  snprintf(c.entry, sizeof c.entry, "%s", b->entry);
  make_folders(path);
  snprintf(part, sizeof part, "%s.%ld.%u.part", path, (long)getpid(), turn++);
  FILE *f = fopen(part, "wb");
  if (!f)
    return;
  bool good =
      fwrite(&c, sizeof c, 1, f) == 1 && fwrite(b->image, b->bytes, 1, f) == 1;
  good = fclose(f) == 0 && good;
  if (!good || rename(part, path) != 0)
    remove(part);
}

bool flc_cache_read(const char *path, flc_binary *b) {
  FILE *f = fopen(path, "rb");
  cached c;
  void *memory = NULL;
  if (!f)
    return false;
  bool good = fread(&c, sizeof c, 1, f) == 1 && c.bytes < (64u << 20) &&
              c.entry[sizeof c.entry - 1] == 0;
  if (good) {
    memory = aligned_alloc(64, (c.bytes + 63) / 64 * 64);
    good = memory && fread(memory, c.bytes, 1, f) == 1 &&
           flc_hash(FLC_HASH, memory, c.bytes) == c.sum;
  }
  fclose(f);
  if (!good) {
    free(memory);
    return false;
  }
  *b = (flc_binary){.image = memory, .bytes = c.bytes, .owned = memory};
  memcpy(b->entry, c.entry, sizeof b->entry);
  return true;
}

fl_status flc_jit(const char *arch, const flc_spec *spec, flc_binary *b) {
  uint64_t key[2];
  char path[512];
  flc_pack_key(arch, spec, key);
  if (flc_pack_find(key, b))
    return FL_OK;
  bool cache = flc_cache_path(arch, key, path, sizeof path);
  if (cache && (flc_cache_read(path, b) ||
                (flc_precompile_claim(key) && flc_cache_read(path, b))))
    return FL_OK;
  if (!flc_compiler_get()) {
    char name[FLC_ENTRY], why[1024];
    snprintf(why, sizeof why, "%s", fl_error());
    flc_spec_text(spec, name, sizeof name);
    return fli_fail(FL_EDEVICE, "the kernel %s: %s", name, why);
  }
  flc_precompile_wait(true);
  fl_status s =
      flc_compile(arch, spec, 1, &b->owned, &b->bytes, &b->entry, NULL);
  flc_precompile_wait(false);
  if (s)
    return s;
  b->image = b->owned;
  if (cache) {
    flc_cache_write(path, b);
    flc_precompile_start(arch, true);
  }
  return FL_OK;
}
