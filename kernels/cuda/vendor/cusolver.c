/* cuSOLVER and cuBLAS where they are: found when a factorization first runs,
 * one handle of each for a device, which work on the launch's stream and in
 * memory that is flare's. What is done with them is in linalg.c. */
#include "cusolver.h"
#include "../driver/process.h"

#include <stdio.h>

#define WORKSPACE ((size_t)32 << 20) /* bytes, of cuBLAS */
#define ALIGNED   256                /* of it */
#define HINT                                                                   \
  "factorizations are done by LAPACK on the host; "                            \
  "`pip install nvidia-cusolver nvidia-cublas` or a CUDA toolkit brings it"

static struct {
  pthread_once_t once;
  flc_shared found;
  flc_cublas_table table;
  cublasHandle_t handles[FLC_DEVICES];
} blas = {.once = PTHREAD_ONCE_INIT};

static struct {
  pthread_once_t once;
  flc_shared found;
  flc_cusolver_table table;
  cusolverDnHandle_t handles[FLC_DEVICES];
  cusolverDnParams_t params;
  gesvdjInfo_t jacobi;
  pthread_mutex_t lock; /* of both libraries' handles and their streams */
} lib = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void find_blas(void) {
  static const char *const names[] = {"libcublas.so.13", "libcublas.so.12",
                                      NULL};
  static const char *const symbols[] = {
#define FLC_DL(ret, name, params) #name,
#include "dl_cublas.def"
  };
  flc_shared_find(&blas.found, names, symbols, sizeof symbols / sizeof *symbols,
                  &blas.table, HINT);
}

static void cusolver_find(void) {
  static const char *const names[] = {"libcusolver.so.12", "libcusolver.so.11",
                                      NULL};
  static const char *const symbols[] = {
#define FLC_DL(ret, name, params) #name,
#include "dl_cusolver.def"
  };
  flc_shared_find(&lib.found, names, symbols, sizeof symbols / sizeof *symbols,
                  &lib.table, HINT);
}

const flc_cublas_table *flc_cublas_get(void) {
  pthread_once(&blas.once, find_blas);
  if (blas.found.open)
    return &blas.table;
  fli_fail(FL_EDEVICE, "%s", blas.found.why);
  return NULL;
}

const flc_cusolver_table *flc_cusolver_get(void) {
  pthread_once(&lib.once, cusolver_find);
  if (lib.found.open)
    return &lib.table;
  fli_fail(FL_EDEVICE, "%s", lib.found.why);
  return NULL;
}

const char *flc_cublas_path(void) {
  return blas.found.open ? blas.found.where : "";
}

const char *flc_cusolver_path(void) {
  return lib.found.open ? lib.found.where : "";
}

/* --- handles --- */

static bool handles_of(int device, flc_solver *s) {
  cusolverDnHandle_t *h = &lib.handles[device];
  cublasHandle_t *b = &blas.handles[device];
  if (!*h && s->t->cusolverDnCreate(h))
    *h = NULL;
  if (!*b && s->blas->cublasCreate_v2(b))
    *b = NULL;
  if (!lib.params && s->t->cusolverDnCreateParams(&lib.params))
    lib.params = NULL;
  if (!lib.jacobi && s->t->cusolverDnCreateGesvdjInfo(&lib.jacobi))
    lib.jacobi = NULL;
  s->handle = *h;
  s->blas_handle = *b;
  s->params = lib.params;
  s->jacobi = lib.jacobi;
  return *h && *b && lib.params && lib.jacobi;
}

fl_status flc_solver_open(const fl_launch *l, flc_solver *s) {
  if (l->probe)
    return FL_EUNSUPPORTED;
  if (!(s->t = flc_cusolver_get()) || !(s->blas = flc_cublas_get()))
    return FL_EDEVICE;
  char *room = fl_scratch_get(l, WORKSPACE + ALIGNED);
  if (!room)
    return FL_ENOMEM;
  room += (ALIGNED - (uintptr_t)room % ALIGNED) % ALIGNED;
  pthread_mutex_lock(&lib.lock);
  if (handles_of(l->device, s) &&
      s->t->cusolverDnSetStream(s->handle, flc_stream_of(l)) == 0 &&
      s->blas->cublasSetStream_v2(s->blas_handle, flc_stream_of(l)) == 0 &&
      s->blas->cublasSetWorkspace_v2(s->blas_handle, room, WORKSPACE) == 0)
    return FL_OK;
  pthread_mutex_unlock(&lib.lock);
  return fli_fail(FL_ENOMEM, "%s: cuSOLVER does not start: too little memory?",
                  l->op);
}

void flc_solver_close(void) {
  pthread_mutex_unlock(&lib.lock);
}
