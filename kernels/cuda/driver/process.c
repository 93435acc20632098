/* The one owner of what CUDA makes process-wide. Nothing here is ever freed:
 * other runtimes of the process, and PyTorch beside us, use the same primary
 * contexts. */
#include "process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t flc_lock = PTHREAD_MUTEX_INITIALIZER;
const flc_driver *flc_cu;
static int count = -2; /* not asked yet */
static char why[512];
static flc_device devices[FLC_DEVICES];

static int attribute(const flc_driver *cu, CUdevice d, int what) {
  int value = 0;
  cu->DeviceGetAttribute(&value, what, d);
  return value;
}

/* Whether one of n devices is new enough; if none is, what the first one is. */
static bool process_usable(const flc_driver *cu, int n) {
  for (int i = 0; i < n; i++) {
    CUdevice d;
    if (cu->DeviceGet(&d, i) != CUDA_SUCCESS)
      continue;
    int major = attribute(cu, d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    int minor = attribute(cu, d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    char name[96] = "the GPU";
    if (major >= 8)
      return true;
    cu->DeviceGetName(name, sizeof name, d);
    if (!why[0])
      snprintf(why, sizeof why,
               "%s has compute capability %d.%d, 8.0 is needed", name, major,
               minor);
  }
  return false;
}

int flc_devices(void) {
  pthread_mutex_lock(&flc_lock);
  if (count == -2) {
    const flc_driver *cu = flc_driver_get();
    int n = -1;
    count = -1;
    if (!cu)
      snprintf(why, sizeof why, "%s", fl_error());
    else if (cu->DeviceGetCount(&n) != CUDA_SUCCESS || n < 1)
      snprintf(why, sizeof why, "the driver sees no GPU%s",
               getenv("CUDA_VISIBLE_DEVICES") ? " (CUDA_VISIBLE_DEVICES is set)"
                                              : "");
    else if (process_usable(cu, n)) {
      count = n < FLC_DEVICES ? n : FLC_DEVICES;
      flc_cu = cu;
    }
  }
  int n = count;
  pthread_mutex_unlock(&flc_lock);
  if (n < 0)
    fli_fail(FL_EDEVICE, "cuda: %s", why);
  return n;
}

static fl_status open_device(flc_device *d, int i) {
  d->index = i;
  FLC_TRY(d, flc_cu->DeviceGet(&d->handle, i), "opening the device");
  FLC_TRY(d, flc_cu->DevicePrimaryCtxRetain(&d->context, d->handle),
          "opening the device");
  flc_cu->DeviceGetName(d->name, sizeof d->name, d->handle);
  flc_cu->DeviceTotalMem(&d->memory, d->handle);
  d->chip = (flc_chip){
      attribute(flc_cu, d->handle,
                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
      attribute(flc_cu, d->handle,
                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
      attribute(flc_cu, d->handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
      attribute(flc_cu, d->handle, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
      attribute(flc_cu, d->handle,
                CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)};
  if (d->chip.major < 8)
    return fli_fail(FL_EDEVICE,
                    "cuda:%d: %s has compute capability %d.%d, 8.0 is needed",
                    i, d->name, d->chip.major, d->chip.minor);
  /* the chip's own instructions (wgmma) exist under the "a" name only */
  snprintf(d->arch, sizeof d->arch, "sm_%d%d%s", d->chip.major, d->chip.minor,
           d->chip.major >= 9 ? "a" : "");
  d->room = 1024;
  d->functions = calloc(d->room, sizeof *d->functions);
  if (!d->functions)
    return fli_fail(FL_ENOMEM, "out of memory: a table of kernels");
  d->open = true;
  return FL_OK;
}

flc_device *flc_device_open(int i) {
  int n = flc_devices();
  if (n < 0)
    return NULL;
  if (i < 0 || i >= n) {
    fli_fail(FL_EDEVICE, "there is no cuda:%d: there are %d", i, n);
    return NULL;
  }
  flc_device *d = &devices[i];
  pthread_mutex_lock(&flc_lock);
  fl_status s = d->open ? FL_OK : open_device(d, i);
  pthread_mutex_unlock(&flc_lock);
  return s ? NULL : d;
}

/* --- contexts --- */

fl_status flc_enter(flc_device *d, flc_context *before) {
  *before = d->context;
  flc_cu->CtxGetCurrent(before);
  if (*before == d->context)
    return FL_OK;
  FLC_TRY(d, flc_cu->CtxSetCurrent(d->context), "entering the context");
  return FL_OK;
}

void flc_leave(flc_device *d, flc_context before) {
  if (before && before != d->context)
    flc_cu->CtxSetCurrent(before);
}

/* --- failures --- */

/* What leaves the context unusable, as the driver's manual says. */
static bool stays(CUresult e) {
  return (e >= CUDA_ERROR_ILLEGAL_ADDRESS && e <= CUDA_ERROR_LAUNCH_FAILED &&
          e != CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES && e != 704 && e != 705 &&
          e != 708 && e != 711 && e != 712 && e != 713) ||
         e == 214 || e == 220 || e == 226 || e == 999;
}

void flc_fault_in(flc_device *d, const char *where) {
  const char *text = NULL;
  flc_cu->GetErrorString(d->fault, &text);
  snprintf(d->cause, sizeof d->cause,
           "cuda:%d: %s (%d)%s; CUDA cannot be used any more in this process: "
           "start it again",
           d->index, text ? text : "?", d->fault, where);
}

fl_status flc_failed(flc_device *d, CUresult e, const char *tried) {
  const char *text = NULL;
  char seen[200];
  flc_cu->GetErrorString(e, &text);
  if (e == CUDA_ERROR_OUT_OF_MEMORY)
    return fli_fail(FL_ENOMEM, "cuda:%d: out of memory: %s", d->index, tried);
  if (!stays(e))
    return fli_fail(FL_EDEVICE, "cuda:%d: %s: %s (%d)", d->index, tried,
                    text ? text : "?", e);
  snprintf(seen, sizeof seen, ", seen in %s", tried);
  pthread_mutex_lock(&flc_lock);
  if (!d->cause[0]) {
    d->fault = e;
    flc_fault_in(d, seen);
  }
  pthread_mutex_unlock(&flc_lock);
  return fli_fail(FL_EFAULT, "%s", d->cause);
}

/* --- functions --- */

static uint64_t hash_of(const flc_spec *s) {
  uint64_t h = (uintptr_t)s->file * 0x9E3779B97F4A7C15u;
  h = (h ^ (uintptr_t)s->entry) * 0x9E3779B97F4A7C15u;
  h = (h ^ (uintptr_t)s->text) * 0x9E3779B97F4A7C15u;
  for (int i = 0; i < s->n; i++)
    h = (h ^ (unsigned)s->t[i]) * 0x9E3779B97F4A7C15u;
  return h ^ h >> 29;
}

bool flc_spec_same(const flc_spec *a, const flc_spec *b) {
  if (a->file != b->file || a->entry != b->entry || a->text != b->text ||
      a->n != b->n)
    return false;
  for (int i = 0; i < a->n; i++)
    if (a->t[i] != b->t[i])
      return false;
  return true;
}

static flc_function **place_of(flc_function **table, size_t room,
                               const flc_spec *s, uint64_t hash) {
  size_t i = hash & (room - 1);
  while (table[i] &&
         (table[i]->hash != hash || !flc_spec_same(&table[i]->spec, s)))
    i = (i + 1) & (room - 1);
  return &table[i];
}

static fl_status process_grow(flc_device *d) {
  size_t room = d->room * 2;
  flc_function **table = calloc(room, sizeof(flc_function *));
  if (!table)
    return fli_fail(FL_ENOMEM, "out of memory: a table of kernels");
  for (size_t i = 0; i < d->room; i++)
    if (d->functions[i])
      *place_of(table, room, &d->functions[i]->spec, d->functions[i]->hash) =
          d->functions[i];
  free(d->functions);
  d->functions = table;
  d->room = room;
  return FL_OK;
}

static fl_status process_load(flc_device *d, const flc_spec *spec,
                              CUfunction *f) {
  flc_binary b;
  CUmodule module;
  fl_status s = flc_jit(d->arch, spec, &b);
  if (s)
    return s;
  CUresult e = flc_cu->ModuleLoadData(&module, b.image);
  if (e == CUDA_SUCCESS)
    e = flc_cu->ModuleGetFunction(f, module, b.entry);
  free(b.owned);
  return e ? flc_failed(d, e, spec->entry) : FL_OK;
}

/* Adds a loaded function to the table. If another thread has added one for the
 * same spec since, the caller gets that one. The caller holds the lock. */
static fl_status process_keep(flc_device *d, const flc_spec *spec,
                              uint64_t hash, CUfunction handle,
                              flc_function **f) {
  if (d->used * 2 >= d->room && process_grow(d) != FL_OK)
    return FL_ENOMEM;
  flc_function **place = place_of(d->functions, d->room, spec, hash);
  if (!*place) {
    flc_function *made = malloc(sizeof *made);
    if (!made)
      return fli_fail(FL_ENOMEM, "out of memory: a table of kernels");
    *made = (flc_function){*spec, hash, handle, 0};
    *place = made;
    d->used++;
  }
  *f = *place;
  return FL_OK;
}

bool flc_function_known(flc_device *d, const flc_spec *spec) {
  pthread_mutex_lock(&flc_lock);
  bool known = *place_of(d->functions, d->room, spec, hash_of(spec));
  pthread_mutex_unlock(&flc_lock);
  return known;
}

/* Whether it is in the table. */
static bool process_find(flc_device *d, const flc_spec *spec, uint64_t hash,
                         flc_function **f) {
  pthread_mutex_lock(&flc_lock);
  *f = *place_of(d->functions, d->room, spec, hash);
  pthread_mutex_unlock(&flc_lock);
  return *f;
}

fl_status flc_function_make(flc_device *d, const flc_spec *spec,
                            flc_function **f) {
  uint64_t hash = hash_of(spec);
  CUfunction handle;
  if (process_find(d, spec, hash, f))
    return FL_OK;
  fl_status s = process_load(d, spec, &handle);
  if (s)
    return s;
  pthread_mutex_lock(&flc_lock);
  s = process_keep(d, spec, hash, handle, f);
  pthread_mutex_unlock(&flc_lock);
  return s;
}

fl_status flc_function_get(flc_device *d, const flc_spec *spec,
                           flc_function **f) {
  uint64_t hash = hash_of(spec);
  flc_function *_Atomic *recent = &d->recent[hash % FLC_RECENT];
  *f = atomic_load_explicit(recent, memory_order_acquire);
  if (*f && (*f)->hash == hash && flc_spec_same(&(*f)->spec, spec))
    return FL_OK;
  if (!process_find(d, spec, hash, f)) {
    flc_ahead_claim(d, spec);
    fl_status s = flc_function_make(d, spec, f);
    if (s)
      return s;
  }
  atomic_store_explicit(recent, *f, memory_order_release);
  return FL_OK;
}

/* --- texts of kernels --- */

static struct kept {
  uint64_t key;
  char *text; /* NULL: an empty place */
} * texts;
static size_t text_room, text_count;

static struct kept *text_place(struct kept *table, size_t room, uint64_t key) {
  size_t i = key * 0x9E3779B97F4A7C15u >> 20 & (room - 1);
  while (table[i].text && table[i].key != key)
    i = (i + 1) & (room - 1);
  return &table[i];
}

const char *flc_text_find(uint64_t key) {
  pthread_mutex_lock(&flc_lock);
  const char *found = texts ? text_place(texts, text_room, key)->text : NULL;
  pthread_mutex_unlock(&flc_lock);
  return found;
}

static bool texts_grow(void) {
  size_t room = text_room ? text_room * 2 : 64;
  struct kept *table = calloc(room, sizeof *table);
  if (!table)
    return false;
  for (size_t i = 0; i < text_room; i++)
    if (texts[i].text)
      *text_place(table, room, texts[i].key) = texts[i];
  free(texts);
  texts = table;
  text_room = room;
  return true;
}

const char *flc_text_keep(uint64_t key, char *text) {
  pthread_mutex_lock(&flc_lock);
  bool room = text_count * 2 < text_room || texts_grow();
  struct kept *p = room ? text_place(texts, text_room, key) : NULL;
  if (p && !p->text) {
    *p = (struct kept){key, text};
    text_count++;
  } else
    free(text);
  const char *kept = p ? p->text : NULL;
  pthread_mutex_unlock(&flc_lock);
  if (!kept)
    fli_fail(FL_ENOMEM, "out of memory: the text of a kernel");
  return kept;
}
