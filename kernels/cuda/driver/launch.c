/* What kernels' host code calls: launching a specialisation on the stream, and
 * small facts about launches and views. */
#include "backend.h"

#include "../../../runtime/math/math.h"

#include <string.h>

/* Lets a function have so much dynamic shared memory. */
static fl_status allow(flc_device *d, flc_function *f, unsigned shared) {
  CUresult e = CUDA_SUCCESS;
  pthread_mutex_lock(&flc_lock);
  if (shared > f->shared)
    e = flc_cu->FuncSetAttribute(
        f->handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        (int)shared);
  if (e == CUDA_SUCCESS && shared > f->shared)
    f->shared = shared;
  pthread_mutex_unlock(&flc_lock);
  return e ? flc_failed(d, e, f->spec.entry) : FL_OK;
}

static unsigned launch_attributes(const flc_chip *chip, const flc_grid *g,
                                  CUlaunchAttribute *to) {
  unsigned n = 0;
  if (g->cluster > 1) {
    to[n].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    to[n].value.clusterDim.x = g->cluster;
    to[n].value.clusterDim.y = to[n].value.clusterDim.z = 1;
    n++;
  } else if (g->together) {
    to[n].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    to[n++].value.cooperative = 1;
  }
  if (g->early && chip->major >= 9) {
    to[n].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    to[n++].value.programmaticStreamSerializationAllowed = 1;
  }
  return n;
}

fl_status flc_run(const fl_launch *l, const flc_spec *spec, flc_grid g,
                  const void *args, size_t bytes) {
  flc_device *d = l->stream->device;
  flc_function *f;
  if (l->probe)
    return flc_run_soon(l, spec);
  if (!flc_fits(&d->chip, g.shared))
    return fli_fail(
        FL_EDEVICE,
        "%s: its kernel %s needs %u bytes of shared memory, cuda:%d "
        "has %d for a block",
        l->op, spec->entry, g.shared, d->index, d->chip.shared);
  fl_status s = flc_function_get(d, spec, &f);
  if (s)
    return s;
  /* without it 48 KiB are allowed, less what the kernel has of its own */
  if (g.shared > f->shared && (s = allow(d, f, g.shared)) != FL_OK)
    return s;
  /* one parameter, wherever its alignment has put it; its size the driver knows
   * from the image */
  void *params[] = {(void *)(uintptr_t)args};
  unsigned x = g.x ? g.x : 1, y = g.y ? g.y : 1, z = g.z ? g.z : 1;
  flc_node node = {.f = f,
                   .x = x,
                   .y = y,
                   .z = z,
                   .block = g.block,
                   .shared = g.shared,
                   .bytes = bytes};
  if (l->stream->update)
    return flc_update_node(l->stream->update, &node, args);
  CUresult e;
  CUlaunchAttribute attributes[2];
  unsigned n = launch_attributes(&d->chip, &g, attributes);
  if (n) {
    CUlaunchConfig config = {
        x, y, z, g.block, 1, 1, g.shared, l->stream->handle, attributes, n};
    e = flc_cu->LaunchKernelEx(&config, f->handle, params, NULL);
  } else
    e = flc_cu->LaunchKernel(f->handle, x, y, z, g.block, 1, 1, g.shared,
                             l->stream->handle, params, NULL);
  if (e == CUDA_SUCCESS && l->stream->capture)
    return flc_capture_node(l->stream->capture, &node, args);
  return e ? flc_failed(d, e, l->op) : FL_OK;
}

fl_status flc_run_soon(const fl_launch *l, const flc_spec *spec) {
  flc_device *d = l->stream->device;
  bool waits = false;
  fl_status s =
      flc_function_known(d, spec) ? FL_OK : flc_ahead_want(d, spec, &waits);
  l->stream->unready = l->stream->unready || waits;
  return s;
}

int flc_soon(const fl_launch *l,
             fl_status (*launch)(const fl_launch *l, const void *what),
             const void *what) {
  fl_launch probe = *l;
  fl_stream *s = l->stream;
  int mark = fl_scratch_mark(l);
  bool before = s->unready;
  probe.probe = true;
  s->unready = false;
  fl_status status = launch(&probe, what);
  int ready = status ? -1 : !s->unready;
  s->unready = before;
  fl_scratch_release(l, mark);
  return ready;
}

fl_status flc_prepare(fl_backend *b, fl_kernel k, const fl_launch *l,
                      bool *ready) {
  fl_stream *s =
      flc_stream_find((flc_backend *)(void *)b, l->device, l->stream);
  fl_launch probe = *l;
  if (!s)
    return FL_EDEVICE;
  probe.stream = s;
  s->unready = false;
  fl_status status = k(&probe);
  *ready = !s->unready;
  return status;
}

/* A probe of it, by `prepare`: ready if the stream's launches behind number
 * l->seq have run by kernels that are not compared with others any more. */
FLC_KERNEL(settled) {
  l->stream->unready = l->stream->unsettled > l->seq;
  return FL_OK;
}

const flc_chip *flc_chip_of(const fl_launch *l) {
  return &l->stream->device->chip;
}

/* The launch does what is no kernel of flc_run; a graph that is being changed
 * must not have it. */
static fl_status launch_other(const fl_launch *l) {
  if (l->stream->update)
    return flc_update_fails(l->stream->update);
  if (l->stream->capture)
    flc_capture_fix(l->stream->capture);
  return FL_OK;
}

CUstream flc_stream_of(const fl_launch *l) {
  launch_other(l);
  return l->stream->handle;
}

flc_fault flc_fault_of(const fl_launch *l) {
  return (flc_fault){(void *)(uintptr_t)l->stream->word, l->seq, l->base};
}

fl_status flc_copy(const fl_launch *l, void *to, const void *from,
                   size_t bytes) {
  fl_status s = bytes && !l->probe ? launch_other(l) : FL_OK;
  if (s || bytes == 0 || l->probe)
    return s;
  FLC_TRY(l->stream->device,
          flc_cu->MemcpyDtoDAsync((uintptr_t)to, (uintptr_t)from, bytes,
                                  l->stream->handle),
          l->op);
  return FL_OK;
}

fl_status flc_zero(const fl_launch *l, void *p, size_t bytes) {
  fl_status s = bytes && !l->probe ? launch_other(l) : FL_OK;
  if (s || bytes == 0 || l->probe)
    return s;
  FLC_TRY(l->stream->device,
          flc_cu->MemsetD8Async((uintptr_t)p, 0, bytes, l->stream->handle),
          l->op);
  return FL_OK;
}

fl_status flc_read(const fl_launch *l, void *to, const void *from,
                   size_t bytes) {
  if (l->probe)
    return FL_EUNSUPPORTED;
  fl_status s = flc_capture_waits(l->stream, l->op);
  if (s)
    return s;
  return flc_transfer(&l->stream->backend->base, l->device, l->stream,
                      FL_COPY_OUT, to, l->device, from, bytes);
}

double flc_number(const fl_view *v) {
  float f;
  double d;
  int64_t i;
  switch (v->dtype) {
  case FL_F32:
    memcpy(&f, v->imm, sizeof f);
    return f;
  case FL_F64:
    memcpy(&d, v->imm, sizeof d);
    return d;
  default:
    memcpy(&i, v->imm, sizeof i);
    return (double)i;
  }
}

int64_t flc_number_int(const fl_view *v) {
  int64_t i;
  if (v->dtype == FL_F32 || v->dtype == FL_F64)
    return fl_to_int(flc_number(v));
  memcpy(&i, v->imm, sizeof i);
  return i;
}
