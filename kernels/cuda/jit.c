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

static const flc_source *source_of(const char *name) {
  for (const flc_source *s = flc_sources; s->name; s++)
    if (strcmp(s->name, name) == 0)
      return s;
  return NULL;
}

static bool is_header(const flc_source *s) {
  const char *dot = strrchr(s->file, '.');
  return strcmp(dot, ".cu") != 0;
}

/* Of all headers: a change of one is a change of every kernel. */
static uint64_t headers_hash(void) {
  static uint64_t known;
  uint64_t h = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (h)
    return h;
  h = FLC_HASH;
  for (const flc_source *s = flc_sources; s->name; s++)
    if (is_header(s))
      h = flc_hash(h, s->text, s->size);
  __atomic_store_n(&known, h, __ATOMIC_RELAXED);
  return h;
}

void flc_pack_key(const char *arch, const flc_spec *spec, uint64_t key[2]) {
  char file[64], entry[160];
  snprintf(file, sizeof file, "%s.cu", spec->file);
  const flc_source *s = source_of(file);
  flc_spec_text(spec, entry, sizeof entry);
  for (int k = 0; k < 2; k++) {
    uint64_t h = flc_hash(headers_hash() + (uint64_t)k, arch, strlen(arch));
    h = flc_hash(h, entry, strlen(entry));
    h = flc_hash(h, file, strlen(file));
    if (spec->text)
      h = flc_hash(h, spec->text, strlen(spec->text));
    key[k] = s ? flc_hash(h, s->text, s->size) : h;
  }
}

/* --- compiling --- */

static fl_status nvrtc_failed(const flc_compiler *rtc, const char *what,
                              nvrtcProgram p, const char *log) {
  size_t n = strcspn(log ? log : "", "\n");
  if (p)
    rtc->DestroyProgram(&p);
  return fli_fail(FL_EDEVICE, "compiling %s: %.*s", what,
                  (int)(n < 300 ? n : 300), log ? log : "NVRTC failed");
}

/* The line of ptxas about the entry: "Used 30 registers ...", and spills. */
static void resources(const char *text, char *log, size_t room) {
  const char *spill = strstr(text, "bytes stack frame");
  const char *used = strstr(text, "Used ");
  while (spill && spill > text && spill[-1] != '\n')
    spill--;
  while (spill && *spill == ' ')
    spill++;
  snprintf(log, room, "%.*s; %.*s", used ? (int)strcspn(used, "\n") : 0,
           used ? used : "", spill ? (int)strcspn(spill, "\n") : 0,
           spill ? spill : "");
}

#define HEADERS 64

static fl_status create(const flc_compiler *rtc, const flc_spec *spec,
                        const char *file, nvrtcProgram *p) {
  const char *texts[HEADERS], *names[HEADERS];
  const flc_source *s = source_of(file);
  int n = 0;
  if (!s)
    return fli_fail(FL_EDEVICE, "there is no kernel source %s", file);
  for (const flc_source *h = flc_sources; h->name; h++)
    if (is_header(h) && n < HEADERS) {
      texts[n] = h->text;
      names[n++] = h->name;
    }
  size_t prefix = spec->text ? strlen(spec->text) : 0;
  char *whole = malloc(prefix + s->size + 2);
  if (!whole)
    return fli_fail(FL_ENOMEM, "out of memory: source of a kernel");
  memcpy(whole, spec->text ? spec->text : "", prefix);
  whole[prefix] = '\n';
  memcpy(whole + prefix + 1, s->text, s->size + 1);
  nvrtcResult e = rtc->CreateProgram(p, whole, file, n, texts, names);
  free(whole);
  return e ? nvrtc_failed(rtc, file, NULL, NULL) : FL_OK;
}

static fl_status take(const flc_compiler *rtc, nvrtcProgram p,
                      const char *entry, flc_binary *b) {
  const char *name;
  size_t bytes;
  if (rtc->GetLoweredName(p, entry, &name) || rtc->GetCUBINSize(p, &bytes))
    return nvrtc_failed(rtc, entry, p, NULL);
  size_t n = (strlen(name) + 1 + 63) / 64 * 64; /* images want alignment */
  char *memory = aligned_alloc(64, (n + bytes + 63) / 64 * 64);
  if (!memory) {
    rtc->DestroyProgram(&p);
    return fli_fail(FL_ENOMEM, "out of memory: a kernel's image");
  }
  memset(memory, 0, n);
  memcpy(memory, name, strlen(name));
  if (rtc->GetCUBIN(p, memory + n)) {
    free(memory);
    return nvrtc_failed(rtc, entry, p, NULL);
  }
  rtc->DestroyProgram(&p);
  *b = (flc_binary){memory, memory + n, bytes, memory};
  return FL_OK;
}

fl_status flc_compile(const char *arch, const flc_spec *spec, flc_binary *b,
                      char *log, size_t room) {
  const flc_compiler *rtc = flc_compiler_get();
  char file[64], entry[160], target[48], what[240];
  nvrtcProgram p;
  if (!rtc)
    return FL_EDEVICE;
  snprintf(file, sizeof file, "%s.cu", spec->file);
  flc_spec_text(spec, entry, sizeof entry);
  snprintf(what, sizeof what, "%s %s", file, entry);
  snprintf(target, sizeof target, "--gpu-architecture=%s", arch);
  fl_status s = create(rtc, spec, file, &p);
  if (s)
    return s;
  const char *options[] = {
      target, "--std=c++17", "--device-as-default-execution-space",
      "--extra-device-vectorization", "--ptxas-options=-v"};
  int n = sizeof options / sizeof *options - (log ? 0 : 1);
  rtc->AddNameExpression(p, entry);
  nvrtcResult e = rtc->CompileProgram(p, n, options);
  size_t bytes = 0;
  char *text = NULL;
  if ((e || log) && rtc->GetProgramLogSize(p, &bytes) == 0 &&
      (text = calloc(1, bytes + 1)))
    rtc->GetProgramLog(p, text);
  if (log)
    resources(text ? text : "", log, room);
  s = e ? nvrtc_failed(rtc, what, p, text ? text : rtc->GetErrorString(e))
        : take(rtc, p, entry, b);
  free(text);
  return s;
}

/* --- the disk cache: one file an entry --- */

/* $FLARE_CACHE ("off": none), else flare/ in the user's cache folder. */
static bool cache_path(const char *arch, const uint64_t key[2], char *out,
                       size_t room) {
  const char *own = getenv("FLARE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
             *home = getenv("HOME");
  char folder[400];
  int major = 0, minor = 0;
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
  const flc_compiler *rtc = flc_compiler_get();
  if (rtc)
    rtc->Version(&major, &minor);
  return snprintf(out, room, "%s/%016llx%016llx-%s-%d.%d.cubin", folder,
                  (unsigned long long)key[0], (unsigned long long)key[1], arch,
                  major, minor) < (int)room;
}

static void make_folders(char *path) {
  for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
    *p = 0;
    mkdir(path, 0700);
    *p = '/';
  }
}

/* A file that cannot be written is no failure: the kernel is there. */
static void cache_write(char *path, const flc_binary *b) {
  char temporary[560];
  size_t head = (size_t)((const char *)b->image - b->entry);
  make_folders(path);
  snprintf(temporary, sizeof temporary, "%s.%ld.part", path, (long)getpid());
  FILE *f = fopen(temporary, "wb");
  if (!f)
    return;
  uint64_t sizes[2] = {head, b->bytes};
  uint64_t sum = flc_hash(FLC_HASH, b->entry, head + b->bytes);
  bool good = fwrite(sizes, sizeof sizes, 1, f) == 1 &&
              fwrite(&sum, sizeof sum, 1, f) == 1 &&
              fwrite(b->entry, head + b->bytes, 1, f) == 1;
  good = fclose(f) == 0 && good;
  if (!good || rename(temporary, path) != 0)
    remove(temporary);
}

static bool cache_read(const char *path, flc_binary *b) {
  FILE *f = fopen(path, "rb");
  uint64_t sizes[2], sum;
  char *memory = NULL;
  if (!f)
    return false;
  bool good = fread(sizes, sizeof sizes, 1, f) == 1 &&
              fread(&sum, sizeof sum, 1, f) == 1 && sizes[0] % 64 == 0 &&
              sizes[0] > 0 && sizes[0] < 4096 && sizes[1] < (64u << 20);
  if (good) {
    size_t n = sizes[0] + sizes[1];
    memory = aligned_alloc(64, (n + 63) / 64 * 64);
    good = memory && fread(memory, n, 1, f) == 1 &&
           flc_hash(FLC_HASH, memory, n) == sum && memory[sizes[0] - 1] == 0;
  }
  fclose(f);
  if (good)
    *b = (flc_binary){memory, memory + sizes[0], sizes[1], memory};
  else
    free(memory);
  return good;
}

fl_status flc_jit(const char *arch, const flc_spec *spec, flc_binary *b) {
  uint64_t key[2];
  char path[512];
  flc_pack_key(arch, spec, key);
  if (flc_pack_find(key, b))
    return FL_OK;
  bool cached = cache_path(arch, key, path, sizeof path);
  if (cached && cache_read(path, b))
    return FL_OK;
  fl_status s = flc_compile(arch, spec, b, NULL, 0);
  if (s == FL_OK && cached)
    cache_write(path, b);
  return s;
}
