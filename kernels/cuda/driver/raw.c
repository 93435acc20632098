/* Kernels from users' source: compiled by NVRTC with the toolkit's headers (or
 * taken from the disk cache), or images that were compiled before; loaded on
 * each device that they are launched on, launched with arguments as they are.
 */
#define _GNU_SOURCE /* dladdr */
#include "backend.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOM    512
#define OPTIONS 48

enum { CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0 };

struct fl_raw {
  fl_raw *next;
  char *text, *name, *options; /* text NULL: an image */
  flc_binary binary;           /* image NULL: not compiled */
  char arch[16];
  fl_raw_facts facts; /* as the compiler said them */
  struct {
    CUfunction handle;  /* NULL: not loaded there */
    unsigned shared;    /* dynamic shared memory that is allowed already */
    int threads, fixed; /* at most; bytes of its own shared memory */
  } on[FLC_DEVICES];
};

/* --- where the toolkit's headers are --- */

static bool has(const char *folder, const char *file) {
  char path[ROOM + 40];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  return access(path, R_OK) == 0;
}

/* The first folder of a pattern with cuda_fp16.h in it. */
static bool headers_in(const char *pattern, char *folder) {
  glob_t found;
  bool good = false;
  if (glob(pattern, 0, NULL, &found) != 0)
    return false;
  for (size_t i = found.gl_pathc; i-- > 0 && !good;)
    if ((good = has(found.gl_pathv[i], "cuda_fp16.h")))
      snprintf(folder, ROOM, "%s", found.gl_pathv[i]);
  globfree(&found);
  return good;
}

/* Beside the compiler, as toolkits and wheels lay them, else in the usual
 * place. */
static bool find_headers(const flc_compiler *rtc, char *folder) {
  static const char *const beside[] = {
      "../include", "../../include", "../../../include", "../targets/*/include",
      "../../cuda_runtime/include"};
  const char *own = getenv("FLARE_CUDA_PATH");
  char path[ROOM], real[4096];
  Dl_info info;
  void *function;
  for (const char *p = own; p && *p;) {
    size_t n = strcspn(p, ":");
    snprintf(path, sizeof path, "%.*s/include", (int)n, p);
    if (n && headers_in(path, folder))
      return true;
    p += n + (p[n] == ':');
  }
  memcpy(&function, &rtc->Version, sizeof function);
  if (dladdr(function, &info) && realpath(info.dli_fname, real)) {
    *strrchr(real, '/') = 0;
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
      snprintf(path, sizeof path, "%.400s/%s", real, beside[i]);
      if (headers_in(path, folder))
        return true;
    }
  }
  return headers_in("/usr/local/cuda/include", folder) ||
         headers_in("/usr/local/cuda-*/include", folder);
}

/* --- compiling --- */

/* Types that kernels are used to; a source with headers has them from there. */
static const char types[] =
    "typedef signed char int8_t; typedef unsigned char uint8_t; "
    "typedef short int16_t; typedef unsigned short uint16_t; "
    "typedef int int32_t; typedef unsigned uint32_t; "
    "typedef long long int64_t; typedef unsigned long long uint64_t;\n";

typedef struct options {
  const char *at[OPTIONS];
  int n;
  char arch[48], folder[ROOM + 8], cccl[ROOM + 16];
  char *given; /* a copy, cut at its newlines */
} options;

static void raw_add(options *o, const char *text) {
  if (o->n < OPTIONS)
    o->at[o->n++] = text;
}

static fl_status set_options(options *o, const fl_raw *k, const char *arch,
                             const flc_compiler *rtc) {
  char folder[ROOM], *next;
  *o = (options){.n = 0};
  if (!(o->given = strdup(k->options)))
    return fli_fail(FL_ENOMEM, "out of memory: a kernel's options");
  snprintf(o->arch, sizeof o->arch, "--gpu-architecture=%s", arch);
  raw_add(o, o->arch);
  raw_add(o, "--ptxas-options=-v");
  if (!strstr(k->options, "-std="))
    raw_add(o, "--std=c++17");
  if (find_headers(rtc, folder)) {
    snprintf(o->folder, sizeof o->folder, "-I%s", folder);
    raw_add(o, o->folder);
    snprintf(o->cccl, sizeof o->cccl, "-I%s/cccl", folder);
    if (access(o->cccl + 2, R_OK) == 0)
      raw_add(o, o->cccl);
  }
  for (char *p = o->given; *p; p = next) {
    size_t n = strcspn(p, "\n");
    next = p + n + (p[n] == '\n');
    p[n] = 0;
    if (n)
      raw_add(o, p);
  }
  return FL_OK;
}

static int number_before(const char *text, const char *what) {
  const char *at = text ? strstr(text, what) : NULL;
  if (!at)
    return 0;
  while (at > text && at[-1] == ' ')
    at--;
  while (at > text && at[-1] >= '0' && at[-1] <= '9')
    at--;
  return atoi(at);
}

/* Registers and memory, as ptxas says them of an entry. */
static void read_facts(fl_raw *k, const char *log) {
  char title[FLC_ENTRY + 40];
  snprintf(title, sizeof title, "entry function '%s'", k->binary.entry);
  const char *at = log ? strstr(log, title) : NULL;
  const char *used = at ? strstr(at, "Used ") : NULL;
  char line[ROOM] = "";
  if (used)
    snprintf(line, sizeof line, "%.*s", (int)strcspn(used, "\n"), used);
  k->facts.registers = used ? number_before(line, " registers") : -1;
  k->facts.shared = used ? number_before(line, " bytes smem") : -1;
  k->facts.local = at ? number_before(at, " bytes stack frame") : -1;
  k->facts.threads = -1;
}

static char *log_of(const flc_compiler *rtc, nvrtcProgram p) {
  size_t room = 0;
  char *text = NULL;
  if (rtc->GetProgramLogSize(p, &room) == 0 && (text = calloc(1, room + 1)))
    rtc->GetProgramLog(p, text);
  return text;
}

static fl_status raw_take(fl_raw *k, const flc_compiler *rtc, nvrtcProgram p) {
  const char *entry;
  flc_binary *b = &k->binary;
  if (rtc->GetLoweredName(p, k->name, &entry) || strlen(entry) >= FLC_ENTRY)
    return fli_fail(FL_EARG, "the source has no kernel %s", k->name);
  snprintf(b->entry, sizeof b->entry, "%s", entry);
  if (rtc->GetCUBINSize(p, &b->bytes) ||
      !(b->owned = aligned_alloc(64, (b->bytes + 63) / 64 * 64)))
    return fli_fail(FL_ENOMEM, "out of memory: a kernel's image");
  b->image = b->owned;
  return rtc->GetCUBIN(p, b->owned)
             ? fli_fail(FL_EDEVICE, "NVRTC gives no image of %s", k->name)
             : FL_OK;
}

static fl_status create(const fl_raw *k, const flc_compiler *rtc,
                        nvrtcProgram *p) {
  const char *before = strstr(k->text, "#include") ? "" : types;
  size_t room = strlen(before) + strlen(k->text) + 32;
  char *whole = malloc(room);
  if (!whole)
    return fli_fail(FL_ENOMEM, "out of memory: a kernel's source");
  snprintf(whole, room, "%s#line 1\n%s", before, k->text);
  nvrtcResult e = rtc->CreateProgram(p, whole, "kernel", 0, NULL, NULL);
  free(whole);
  return e ? fli_fail(FL_EDEVICE, "NVRTC: %s", rtc->GetErrorString(e)) : FL_OK;
}

static fl_status raw_compile(fl_raw *k, const char *arch, char **log) {
  const flc_compiler *rtc = flc_compiler_get();
  nvrtcProgram p;
  options o;
  if (!rtc)
    return FL_EDEVICE;
  fl_status s = create(k, rtc, &p);
  if (s)
    return s;
  s = set_options(&o, k, arch, rtc);
  if (s == FL_OK && rtc->AddNameExpression(p, k->name))
    s = fli_fail(FL_EARG, "%s is not the name of a kernel", k->name);
  flc_precompile_wait(true);
  nvrtcResult e = s ? 0 : rtc->CompileProgram(p, o.n, o.at);
  flc_precompile_wait(false);
  *log = log_of(rtc, p);
  if (e)
    s = fli_fail(FL_EARG, "%s does not compile for %s", k->name, arch);
  if (s == FL_OK)
    s = raw_take(k, rtc, p);
  if (s == FL_OK) {
    snprintf(k->arch, sizeof k->arch, "%s", arch);
    read_facts(k, *log);
  }
  rtc->DestroyProgram(&p);
  free(o.given);
  return s;
}

/* Whether the source says all: files beside it may change. */
static bool is_whole(const fl_raw *k) {
  return k->text && !strstr(k->options, "-I") &&
         !strstr(k->text, "#include \"");
}

/* From the disk cache, else compiled. Sources with files of their own beside
 * them are compiled every time: those may have changed. The toolkit's headers
 * are those of the compiler's version. */
static fl_status raw_get(fl_raw *k, const char *arch, char **log) {
  uint64_t key[2];
  char path[ROOM];
  int version[2] = {0, 0};
  const flc_compiler *rtc =
      strstr(k->text, "#include") ? flc_compiler_get() : NULL;
  if (rtc)
    rtc->Version(&version[0], &version[1]);
  for (int i = 0; i < 2; i++) {
    uint64_t h = flc_hash(FLC_HASH + (uint64_t)i, arch, strlen(arch));
    h = flc_hash(h, version, sizeof version);
    h = flc_hash(h, k->name, strlen(k->name) + 1);
    h = flc_hash(h, k->options, strlen(k->options) + 1);
    key[i] = flc_hash(h, k->text, strlen(k->text));
  }
  bool cache = is_whole(k) && flc_cache_path(arch, key, path, sizeof path);
  free(k->binary.owned);
  k->binary = (flc_binary){0};
  if (cache && flc_devices() > 0 && flc_cache_read(path, &k->binary)) {
    snprintf(k->arch, sizeof k->arch, "%s", arch);
    return FL_OK;
  }
  fl_status s = raw_compile(k, arch, log);
  if (s == FL_OK && cache)
    flc_cache_write(path, &k->binary);
  return s;
}

static void raw_drop(fl_raw *k) {
  free(k->text);
  free(k->name);
  free(k->options);
  free(k->binary.owned);
  free(k);
}

/* A cubin or a fat binary; which chips it is for the driver finds out. */
static fl_status take_image(fl_raw *k, const fl_raw_source *s) {
  static const unsigned char fat[] = {0x50, 0xed, 0x55, 0xba};
  flc_binary *b = &k->binary;
  if (s->bytes < 64 || (memcmp(s->image, "\177ELF", 4) != 0 &&
                        memcmp(s->image, fat, sizeof fat) != 0))
    return fli_fail(FL_EARG, "%s: the image is no cubin", s->name);
  if (strlen(s->name) >= FLC_ENTRY)
    return fli_fail(FL_ESIZE, "%.60s...: the name is too long", s->name);
  if (!(b->owned = aligned_alloc(64, (s->bytes + 63) / 64 * 64)))
    return fli_fail(FL_ENOMEM, "out of memory: a kernel's image");
  memcpy(b->owned, s->image, s->bytes);
  b->image = b->owned;
  b->bytes = s->bytes;
  strcpy(b->entry, s->name);
  return FL_OK;
}

/* All of them. A source that was compiled before is the same kernel. */
static fl_raw *kept;

static fl_raw *find_equal(const fl_raw *k) {
  pthread_mutex_lock(&flc_lock);
  fl_raw *r = is_whole(k) ? kept : NULL;
  while (r && !(is_whole(r) && r->binary.image && !strcmp(r->text, k->text) &&
                !strcmp(r->name, k->name) && !strcmp(r->options, k->options)))
    r = r->next;
  pthread_mutex_unlock(&flc_lock);
  return r;
}

static void raw_keep(fl_raw *k) {
  pthread_mutex_lock(&flc_lock);
  k->next = kept;
  kept = k;
  pthread_mutex_unlock(&flc_lock);
}

fl_status flc_raw_new(fl_backend *b, const fl_raw_source *source, fl_raw **out,
                      char **log) {
  fl_raw *k = calloc(1, sizeof *k);
  (void)b;
  *log = NULL;
  if (!k)
    return fli_fail(FL_ENOMEM, "out of memory: a kernel");
  k->text = source->image ? NULL : strdup(source->text);
  k->name = strdup(source->name);
  k->options = strdup(source->options ? source->options : "");
  k->facts =
      (fl_raw_facts){.registers = -1, .shared = -1, .local = -1, .threads = -1};
  fl_status s = (k->text || source->image) && k->name && k->options
                    ? FL_OK
                    : fli_fail(FL_ENOMEM, "out of memory: a kernel");
  flc_device *d = flc_devices() > 0 ? flc_device_open(0) : NULL;
  const char *arch = d ? d->arch : source->arch ? source->arch : "sm_80";
  fl_raw *same = s == FL_OK ? find_equal(k) : NULL;
  if (same && strcmp(same->arch, arch) == 0) {
    raw_drop(k);
    *out = same;
    return FL_OK;
  }
  if (s == FL_OK && source->image)
    s = take_image(k, source);
  else if (s == FL_OK && (d || flc_compiler_get()))
    s = raw_get(k, arch, log);
  if (s) {
    raw_drop(k);
    return s;
  }
  raw_keep(k);
  *out = k;
  return FL_OK;
}

/* --- on a device --- */

static int attribute(CUfunction f, int what) {
  int value = -1;
  flc_cu->FuncGetAttribute(&value, what, f);
  return value;
}

static fl_status raw_load(fl_raw *k, flc_device *d) {
  CUmodule module;
  CUfunction f;
  char *log = NULL;
  fl_status s = FL_OK;
  if (k->text && (!k->binary.image || strcmp(k->arch, d->arch) != 0))
    s = raw_get(k, d->arch, &log);
  free(log);
  if (s)
    return s;
  CUresult e = flc_cu->ModuleLoadData(&module, k->binary.image);
  if (e == CUDA_SUCCESS)
    e = flc_cu->ModuleGetFunction(&f, module, k->binary.entry);
  if (e)
    return flc_failed(d, e, k->name);
  k->on[d->index].threads =
      attribute(f, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  k->on[d->index].fixed = attribute(f, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  k->on[d->index].handle = f;
  return FL_OK;
}

fl_status flc_raw_facts(fl_backend *b, fl_raw *k, int device,
                        fl_raw_facts *facts) {
  flc_context before;
  (void)b;
  *facts = k->facts;
  memcpy(facts->arch, k->arch, sizeof facts->arch);
  facts->entry = k->binary.entry;
  facts->image = k->binary.image;
  facts->bytes = k->binary.bytes;
  if (device < 0)
    return FL_OK;
  flc_device *d = flc_device_open(device);
  if (!d)
    return FL_EDEVICE;
  fl_status s = flc_enter(d, &before);
  if (s)
    return s;
  if (!k->on[device].handle)
    s = raw_load(k, d);
  if (s == FL_OK) {
    CUfunction f = k->on[device].handle;
    facts->registers = attribute(f, CU_FUNC_ATTRIBUTE_NUM_REGS);
    facts->shared = k->on[device].fixed;
    facts->local = attribute(f, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
    facts->threads = k->on[device].threads;
  }
  flc_leave(d, before);
  return s;
}

static fl_status raw_check(const fl_launch *l, const fl_raw *k,
                           const flc_device *d, uint64_t threads) {
  const fl_raw_call *c = l->raw;
  if ((int64_t)threads > k->on[d->index].threads)
    return fli_fail(FL_EARG,
                    "%s: blocks of %llu threads; with its registers it can run "
                    "%d",
                    l->op, (unsigned long long)threads,
                    k->on[d->index].threads);
  if (c->shared + (size_t)k->on[d->index].fixed > (size_t)d->chip.shared)
    return fli_fail(FL_EARG,
                    "%s: %zu bytes of shared memory (%d of its own) are more "
                    "than the %d that %s gives a block",
                    l->op, c->shared + (size_t)k->on[d->index].fixed,
                    k->on[d->index].fixed, d->chip.shared, d->name);
  return FL_OK;
}

FLC_KERNEL(raw) {
  const fl_raw_call *c = l->raw;
  fl_raw *k = c->kernel;
  flc_device *d = l->stream->device;
  const unsigned *g = c->grid, *t = c->block;
  fl_status s =
      flc_name_launch(l->stream, &(flc_name){l->seq, k->name, 0, true});
  if (s == FL_OK && !k->on[d->index].handle)
    s = raw_load(k, d);
  if (s == FL_OK)
    s = raw_check(l, k, d, (uint64_t)t[0] * t[1] * t[2]);
  if (s)
    return s;
  CUfunction f = k->on[d->index].handle;
  if (c->shared > 48u << 10 && c->shared > k->on[d->index].shared) {
    FLC_TRY(
        d,
        flc_cu->FuncSetAttribute(
            f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)c->shared),
        l->op);
    k->on[d->index].shared = (unsigned)c->shared;
  }
  FLC_TRY(d,
          flc_cu->LaunchKernel(f, g[0], g[1], g[2], t[0], t[1], t[2],
                               (unsigned)c->shared, l->stream->handle, c->args,
                               NULL),
          l->op);
  return FL_OK;
}
