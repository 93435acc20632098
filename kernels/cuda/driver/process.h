/* What CUDA makes process-wide, behind one owner (process.c): the driver, the
 * devices with their primary contexts, loaded kernels, and faults that stay. */
#ifndef FL_CUDA_PROCESS_H
#define FL_CUDA_PROCESS_H

#include "library.h"

#include <pthread.h>
#include <stdatomic.h>

#define FLC_DEVICES 16

typedef struct flc_function { /* lives as long as the process */
  flc_spec spec;
  uint64_t hash;
  CUfunction handle;
  _Atomic unsigned shared; /* dynamic shared memory that is allowed already */
} flc_function;

#define FLC_RECENT 256 /* functions that are found without the lock */

typedef struct flc_device {
  int index;
  bool open;
  CUdevice handle;
  CUcontext context;
  flc_chip chip;
  size_t memory;            /* bytes in all */
  char name[96], arch[16];  /* "sm_90a" */
  char cause[512];          /* of a fault that stays; "" while all is well */
  CUresult fault;           /* what CUDA called it */
  bool named;               /* its launch has been looked for */
  flc_function **functions; /* open addressing, `room` a power of two */
  size_t room, used;
  flc_function *_Atomic recent[FLC_RECENT]; /* by their hash */
} flc_device;

/* How many devices there are; -1 with a message if CUDA cannot be used. */
int flc_devices(void);
/* Device i with its primary context, opened when first asked for; NULL with a
 * message. */
flc_device *flc_device_open(int i);
extern const flc_driver *flc_cu; /* set once flc_devices has returned >= 0 */

/* CUDA calls are made between these two: the device's context is current, and
 * what was current before comes back. A thread without one keeps ours, as with
 * NVIDIA's own runtime. */
typedef CUcontext flc_context;
fl_status flc_enter(flc_device *d, flc_context *before);
void flc_leave(flc_device *d, flc_context before);

/* A failed call: the message says what was tried and what CUDA says; a fault of
 * the device is remembered, with what was tried as its first cause. */
fl_status flc_failed(flc_device *d, CUresult e, const char *tried);
/* Where a fault of the device came from, once that is known. */
void flc_fault_in(flc_device *d, const char *where);
#define FLC_TRY(d, call, tried)                                                \
  do {                                                                         \
    CUresult flc_e_ = (call);                                                  \
    if (flc_e_ != CUDA_SUCCESS)                                                \
      return flc_failed(d, flc_e_, tried);                                     \
  } while (0)

/* The function of a specialisation, compiled or loaded at need. */
bool flc_spec_same(const flc_spec *a, const flc_spec *b);
bool flc_function_known(flc_device *d, const flc_spec *spec);
/* flc_function_get, where flc_ahead_claim has been asked. */
fl_status flc_function_make(flc_device *d, const flc_spec *spec,
                            flc_function **f);
fl_status flc_function_get(flc_device *d, const flc_spec *spec,
                           flc_function **f);
extern pthread_mutex_t flc_lock; /* of everything process-wide */

/* Texts that live as long as the process, by a hash of what they are. `keep`
 * takes `text` over (from malloc); NULL with a message: out of memory. */
const char *flc_text_find(uint64_t key);
const char *flc_text_keep(uint64_t key, char *text);
/* What the functions in a text of instructions take of math.h: its FL_MATH. */
int flc_math_of(const char *text);

/* --- jit.c --- */

#define FLC_ENTRY 240 /* bytes of a mangled name */
#define FLC_NOTE  200 /* of what ptxas says of a kernel */

typedef struct flc_binary {
  char entry[FLC_ENTRY];
  const void *image; /* cubin, aligned to 64 bytes */
  size_t bytes;
  void *owned; /* to free, or NULL: of the pack */
} flc_binary;

/* From the pack, the disk cache, or the compiler. */
fl_status flc_jit(const char *arch, const flc_spec *spec, flc_binary *b);
/* The compiler alone: n specialisations of one source and text, in one image;
 * `entries` gets their names, `notes` (may be NULL) registers and spills. */
fl_status flc_compile(const char *arch, const flc_spec *specs, int n,
                      void **image, size_t *bytes, char (*entries)[FLC_ENTRY],
                      char (*notes)[FLC_NOTE]);
/* The disk cache: a kernel's file (false: there is none), reading and writing
 * it. */
bool flc_cache_path(const char *arch, const uint64_t key[2], char *out,
                    size_t room);
bool flc_cache_read(const char *path, flc_binary *b);
void flc_cache_write(char *path, const flc_binary *b);
/* Makes the folder of such a path; whether files can be written there. */
bool flc_cache_open(char *path);
void flc_spec_text(const flc_spec *s, char *out, size_t room);
/* FNV-1a over bytes, to be continued. */
uint64_t flc_hash(uint64_t h, const void *p, size_t n);
#define FLC_HASH 0xcbf29ce484222325u
void flc_pack_key(const char *arch, const flc_spec *spec, uint64_t key[2]);
/* --- precompile.c: compiling ahead, beside the program --- */

void flc_precompile_open(void); /* and close: around a backend's life */
void flc_precompile_close(void);
/* At a device's first stream; `more`: after a kernel had to be compiled. */
void flc_precompile_start(const char *arch, bool more);
void flc_precompile_stop(void);
/* Around a compilation that a caller waits for. */
void flc_precompile_wait(bool begins);
/* What core.def calls a specialisation. */
uint32_t flc_core_key(const flc_spec *s);
/* Whether the disk cache may have a kernel by now; waits for one that is being
 * compiled. Otherwise the caller compiles it. */
bool flc_precompile_claim(const uint64_t key[2]);

/* --- ahead.c: kernels of plans, beside the program --- */

/* Launches will ask for the kernel: threads compile and load it. `waits`: it is
 * not there yet; a failure says why it will never be. */
fl_status flc_ahead_want(flc_device *d, const flc_spec *spec, bool *waits);
/* A launch needs it now: waits if a thread has begun with it. Otherwise the
 * caller makes it. */
void flc_ahead_claim(flc_device *d, const flc_spec *spec);
/* A thread calls it soon; at the program's exit it may not be called any more.
 * False: there is no thread. */
bool flc_ahead_do(void (*work)(void *context), void *context);
void flc_ahead_stop(void);

/* --- pack.c --- */

bool flc_pack_find(const uint64_t key[2], flc_binary *b);
const char *flc_pack_path(void); /* "" without one */
uint64_t flc_pack_count(void);
typedef struct flc_pack flc_pack; /* one that is being made */
flc_pack *flc_pack_new(void);
void flc_pack_free(flc_pack *p);
/* An image (taken over) with n entries; from any thread. */
fl_status flc_pack_add(flc_pack *p, const char *arch, const flc_spec *specs,
                       int n, void *image, size_t bytes,
                       char (*entries)[FLC_ENTRY]);
fl_status flc_pack_write(flc_pack *p, const char *path, uint64_t *bytes);

/* --- report.c --- */

/* Text for `flare kernels` and `flare doctor`, to be freed. */
fl_status flc_query(fl_backend *b, const char *what, const char *argument,
                    char **text);

/* --- raw.c: kernels from users' source --- */

fl_status flc_range(fl_backend *b, const char *name); /* nvtx.c */
fl_status flc_raw_new(fl_backend *b, const fl_raw_source *s, fl_raw **k,
                      char **log);
fl_status flc_raw_facts(fl_backend *b, fl_raw *k, int device,
                        fl_raw_facts *facts);

/* --- cuda_sources.c, made by cmake/embed_kernels.cmake --- */

typedef struct flc_source { /* a .cu file with all headers that it includes */
  const char *name, *file, *text; /* "gemm", its path, its text */
  const char *digest;             /* of its text and those headers' */
  const char *const *headers;     /* their names, and their texts */
  const char *const *header_texts;
  size_t size; /* of its text */
  int count;   /* of the headers */
} flc_source;
extern const flc_source flc_sources[]; /* ends with a row without a name */

/* --- families.c --- */

void flc_visit_all(flc_visitor *v);
fl_kernel flc_kernel_find(const char *op);

#endif
