/* cuFFT where it is found: the last PLANS plans are kept, and run on the
 * launch's stream with their work area in its scratch. */
#include "../driver/process.h"
#include "cufft.h"

#include "../fft.h"

#include <string.h>

#define PLANS   64
#define ALIGNED 256 /* bytes, of the library's memory */

typedef struct plan {
  flc_fft_lines of;
  cufftHandle handle;
  size_t room;
  uint64_t used; /* when; 0: nothing is here */
} plan;

static struct {
  pthread_once_t once;
  flc_shared found;
  flc_fft_table table;
  pthread_mutex_t lock; /* of all plans */
  plan plans[PLANS];
  uint64_t turn;
} lib = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void cufft_find(void) {
  static const char *const names[] = {"libcufft.so.12", "libcufft.so.11", NULL};
  static const char *const symbols[] = {
#define FLC_DL(ret, name, params) #name,
#include "dl_cufft.def"
  };
  flc_shared_find(&lib.found, names, symbols, sizeof symbols / sizeof *symbols,
                  &lib.table,
                  "Fourier transforms are done on the host; "
                  "`pip install nvidia-cufft` or a CUDA toolkit brings it");
}

const flc_fft_table *flc_fft_get(void) {
  pthread_once(&lib.once, cufft_find);
  if (lib.found.open)
    return &lib.table;
  fli_fail(FL_EDEVICE, "%s", lib.found.why);
  return NULL;
}

const char *flc_fft_path(void) {
  return lib.found.open ? lib.found.where : "";
}

/* --- plans, under the lock --- */

static bool cufft_make(const flc_fft_lines *of, plan *p) {
  const flc_fft_table *t = &lib.table;
  long long size[FLC_FFT_DIMS], n = of->size[of->dims - 1], half = n / 2 + 1,
                                in = of->kind == FFT_HALF ? half : n,
                                out = of->kind == FFT_REAL ? half : n;
  for (int k = 0; k < of->dims; k++)
    size[k] = of->size[k];
  /* NULL for the layout means adjacent elements: a faster plan */
  long long *in_size = of->stride == 1 ? NULL : &in,
            *out_size = of->stride == 1 ? NULL : &out;
  int pair = of->wide ? CUDA_C_64F : CUDA_C_32F,
      one = of->wide ? CUDA_R_64F : CUDA_R_32F;
  if (t->cufftCreate(&p->handle))
    return false;
  if (t->cufftSetAutoAllocation(p->handle, 0) == 0 &&
      t->cufftXtMakePlanMany(
          p->handle, (int)of->dims, size, in_size, of->stride, of->in_step,
          of->kind == FFT_REAL ? one : pair, out_size, of->stride, of->out_step,
          of->kind == FFT_HALF ? one : pair, of->batch, &p->room, pair) == 0) {
    p->of = *of;
    return true;
  }
  t->cufftDestroy(p->handle);
  return false;
}

/* NULL: the library cannot. The plan that was used longest ago makes room. */
static plan *plan_of(const flc_fft_lines *of) {
  plan *oldest = lib.plans;
  for (plan *p = lib.plans; p < lib.plans + PLANS; p++) {
    if (p->used && memcmp(&p->of, of, sizeof *of) == 0) {
      p->used = ++lib.turn;
      return p;
    }
    if (p->used < oldest->used)
      oldest = p;
  }
  if (oldest->used)
    lib.table.cufftDestroy(oldest->handle);
  oldest->used = cufft_make(of, oldest) ? ++lib.turn : 0;
  return oldest->used ? oldest : NULL;
}

fl_status flc_fft_execute(const fl_launch *l, const flc_fft_lines *of,
                          bool inverse, flc_fft_batch b) {
  const flc_fft_table *t = &lib.table;
  const char *x = b.x;
  char *y = b.y;
  if (l->probe)
    return FL_OK;
  pthread_mutex_lock(&lib.lock);
  plan *p = plan_of(of);
  fl_status s = p ? FL_OK : FL_EUNSUPPORTED;
  char *room = p ? fl_scratch_get(l, p->room + ALIGNED) : NULL;
  if (p && !room)
    s = FL_ENOMEM;
  if (s == FL_OK) {
    room += (ALIGNED - (uintptr_t)room % ALIGNED) % ALIGNED;
    int e = t->cufftSetStream(p->handle, flc_stream_of(l));
    e = e ? e : t->cufftSetWorkArea(p->handle, room);
    for (int64_t i = 0; i < b.count && e == 0; i++, x += b.in, y += b.out)
      e = t->cufftXtExec(p->handle, (void *)(uintptr_t)x, y,
                         inverse ? CUFFT_INVERSE : CUFFT_FORWARD);
    if (e)
      s = fli_fail(FL_EDEVICE, "%s: cuFFT failed with status %d", l->op, e);
  }
  pthread_mutex_unlock(&lib.lock);
  return s;
}
