/* Copies between host and devices. Host memory is pageable in general, so bytes
 * go through two pinned buffers of the stream in turn: the host's memory is
 * free when we return, and the device copies while we fill the other buffer. */
#include "backend.h"

#include <string.h>

#define STAGE ((size_t)4 << 20)

fl_status flc_stages_open(fl_stream *s) {
  for (int i = 0; i < 2 && !s->stage[i].memory; i++) {
    void *p;
    FLC_TRY(s->device,
            flc_cu->EventCreate(&s->stage[i].free, CU_EVENT_DISABLE_TIMING),
            "an event for transfers");
    FLC_TRY(s->device,
            flc_cu->MemHostAlloc(&p, STAGE, CU_MEMHOSTALLOC_PORTABLE),
            "pinned memory for transfers");
    s->stage[i].memory = p;
  }
  return FL_OK;
}

void flc_stages_close(fl_stream *s) {
  for (int i = 0; i < 2; i++) {
    if (s->stage[i].memory)
      flc_cu->MemFreeHost(s->stage[i].memory);
    if (s->stage[i].free)
      flc_cu->EventDestroy(s->stage[i].free);
  }
}

static fl_status copy_in(fl_stream *s, CUdeviceptr to, const char *from,
                         size_t bytes) {
  for (size_t at = 0; at < bytes; at += STAGE) {
    size_t n = bytes - at < STAGE ? bytes - at : STAGE;
    flc_stage *g = &s->stage[s->turn++ % 2];
    fl_status status = flc_wait_event(s, g->free);
    if (status)
      return status;
    memcpy(g->memory, from + at, n);
    FLC_TRY(s->device,
            flc_cu->MemcpyHtoDAsync(to + at, g->memory, n, s->handle),
            "copying to it");
    FLC_TRY(s->device, flc_cu->EventRecord(g->free, s->handle),
            "copying to it");
  }
  return FL_OK;
}

/* Waits for what is before, so that an interruption finds no copy under way. */
static fl_status copy_out(fl_stream *s, char *to, CUdeviceptr from,
                          size_t bytes) {
  size_t asked = 0, done = 0;
  unsigned first = s->turn;
  if (bytes > STAGE) {
    fl_status status = flc_wait(s);
    if (status)
      return status;
  }
  while (done < bytes) {
    while (asked < bytes && asked - done < 2 * STAGE) {
      size_t n = bytes - asked < STAGE ? bytes - asked : STAGE;
      flc_stage *g = &s->stage[s->turn++ % 2];
      FLC_TRY(s->device,
              flc_cu->MemcpyDtoHAsync(g->memory, from + asked, n, s->handle),
              "copying from it");
      FLC_TRY(s->device, flc_cu->EventRecord(g->free, s->handle),
              "copying from it");
      asked += n;
    }
    size_t n = bytes - done < STAGE ? bytes - done : STAGE;
    flc_stage *g = &s->stage[first++ % 2];
    fl_status status =
        bytes <= STAGE ? flc_wait(s) : flc_wait_event(s, g->free);
    if (status)
      return status;
    memcpy(to + done, g->memory, n);
    done += n;
  }
  return FL_OK;
}

/* The source's streams wait for the copy: their memory may be used again. */
static fl_status copy_peer(flc_backend *c, fl_stream *s, CUdeviceptr to,
                           int from_device, CUdeviceptr from, size_t bytes) {
  flc_device *d = flc_device_open(from_device);
  CUevent done;
  if (!d)
    return FL_EDEVICE;
  FLC_TRY(s->device,
          flc_cu->MemcpyPeerAsync(to, s->device->context, from, d->context,
                                  bytes, s->handle),
          "copying between devices");
  FLC_TRY(s->device, flc_cu->EventCreate(&done, CU_EVENT_DISABLE_TIMING),
          "copying between devices");
  CUresult e = flc_cu->EventRecord(done, s->handle);
  for (fl_stream *k = c->streams; k && e == CUDA_SUCCESS; k = k->next)
    if (k->device == d)
      e = flc_cu->StreamWaitEvent(k->handle, done, 0);
  flc_cu->EventDestroy(done);
  return e ? flc_failed(s->device, e, "copying between devices") : FL_OK;
}

fl_status flc_transfer(fl_backend *b, int device, fl_stream *s,
                       fl_copy_kind kind, void *to, int from_device,
                       const void *from, size_t bytes) {
  flc_backend *c = (flc_backend *)b;
  flc_context before;
  if (!(s = flc_stream_find(c, device, s)))
    return FL_EDEVICE;
  fl_status status =
      kind == FL_COPY_WITHIN ? FL_OK : flc_capture_waits(s, NULL);
  if (status == FL_OK)
    status = flc_enter(s->device, &before);
  if (status)
    return status;
  CUdeviceptr there = (uintptr_t)to, here = (uintptr_t)from;
  status = flc_stages_open(s);
  if (status == FL_OK)
    switch (kind) {
    case FL_COPY_IN:
      status = copy_in(s, there, from, bytes);
      break;
    case FL_COPY_OUT:
      status = copy_out(s, to, here, bytes);
      break;
    case FL_COPY_IN_PINNED: {
      CUresult e = flc_cu->MemcpyHtoDAsync(there, from, bytes, s->handle);
      status = e ? flc_failed(s->device, e, "copying to it") : FL_OK;
      break;
    }
    case FL_COPY_OUT_PINNED: {
      CUresult e = flc_cu->MemcpyDtoHAsync(to, here, bytes, s->handle);
      status = e ? flc_failed(s->device, e, "copying from it") : FL_OK;
      break;
    }
    case FL_COPY_PEER:
      if (from_device != device) {
        status = copy_peer(c, s, there, from_device, here, bytes);
        break;
      } /* fall through */
    default: {
      CUresult e = flc_cu->MemcpyDtoDAsync(there, here, bytes, s->handle);
      status = e ? flc_failed(s->device, e, "copying within it") : FL_OK;
    }
    }
  flc_leave(s->device, before);
  return status == FL_EFAULT ? flc_tell_fault(s, NULL) : status;
}
