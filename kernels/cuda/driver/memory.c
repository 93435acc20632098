/* The CUDA backend's memory: segments over reserved addresses, ranges whose
 * memory comes and goes, and pinned memory of the host. */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

static flc_backend *backend_of(fl_backend *b) {
  return (flc_backend *)b;
}

/* --- segments --- */

static CUmemAllocationProp properties(const flc_device *d) {
  CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
  p.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, d->index};
  return p;
}

/* This device, and every other that can reach it. */
static CUresult give_access(flc_device *d, CUdeviceptr at, size_t bytes) {
  CUmemAccessDesc who[FLC_DEVICES];
  size_t n = 0;
  for (int i = 0; i < flc_devices(); i++) {
    int yes = i == d->index;
    if (!yes)
      flc_cu->DeviceCanAccessPeer(&yes, i, d->handle);
    if (yes)
      who[n++] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, i},
                                   CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  }
  return flc_cu->MemSetAccess(at, bytes, who, n);
}

static CUresult map(flc_device *d, flc_segment *g) {
  CUmemAllocationProp p = properties(d);
  CUresult e = flc_cu->MemAddressReserve(&g->at, g->bytes, 0, 0, 0);
  if (e)
    return e;
  e = flc_cu->MemCreate(&g->handle, g->bytes, &p, 0);
  if (e == CUDA_SUCCESS) {
    e = flc_cu->MemMap(g->at, g->bytes, 0, g->handle, 0);
    if (e == CUDA_SUCCESS) {
      e = give_access(d, g->at, g->bytes);
      if (e == CUDA_SUCCESS)
        return e;
      flc_cu->MemUnmap(g->at, g->bytes);
    }
    flc_cu->MemRelease(g->handle);
  }
  flc_cu->MemAddressFree(g->at, g->bytes);
  return e;
}

fl_status flc_memory_get(fl_backend *b, int device, size_t bytes,
                         void **memory) {
  flc_device *d = flc_device_open(device);
  flc_context before;
  if (!d)
    return FL_EDEVICE;
  flc_segment *g = calloc(1, sizeof *g);
  if (!g)
    return fli_fail(FL_ENOMEM, "out of memory: a segment");
  g->bytes = (bytes + FLC_PAGE - 1) / FLC_PAGE * FLC_PAGE;
  fl_status s = flc_enter(d, &before);
  if (s == FL_OK) {
    CUresult e =
        backend_of(b)->direct ? flc_cu->MemAlloc(&g->at, bytes) : map(d, g);
    s = e ? flc_failed(d, e, "a segment of memory") : FL_OK;
    flc_leave(d, before);
  }
  if (s) {
    free(g);
    return s;
  }
  g->next = backend_of(b)->segments;
  backend_of(b)->segments = g;
  *memory = (void *)(uintptr_t)g->at;
  return FL_OK;
}

void flc_memory_put(fl_backend *b, int device, void *memory, size_t bytes) {
  flc_device *d = flc_device_open(device);
  flc_context before;
  (void)bytes;
  for (flc_segment **at = &backend_of(b)->segments; *at; at = &(*at)->next) {
    flc_segment *g = *at;
    if (g->at != (CUdeviceptr)(uintptr_t)memory)
      continue;
    *at = g->next;
    if (flc_enter(d, &before) == FL_OK) {
      bool free_now = flc_settle(backend_of(b), d); /* else it stays for good */
      if (free_now && backend_of(b)->direct)
        flc_cu->MemFree(g->at);
      else if (free_now) {
        flc_cu->MemUnmap(g->at, g->bytes);
        flc_cu->MemRelease(g->handle);
        flc_cu->MemAddressFree(g->at, g->bytes);
      }
      flc_leave(d, before);
    }
    free(g);
    return;
  }
}

/* --- ranges: memory that can get other addresses, part by part --- */

struct flc_addresses {
  CUdeviceptr at;
  size_t bytes, here; /* of the addresses, and of the memory */
  struct flc_addresses *next;
  CUmemGenericAllocationHandle part[];
};

fl_status flc_reserve(fl_backend *b, int device, size_t bytes, void **at) {
  flc_backend *c = backend_of(b);
  flc_device *d = flc_device_open(device);
  flc_context before;
  if (!d)
    return FL_EDEVICE;
  flc_addresses *r = calloc(1, sizeof *r + bytes / FLC_PART * sizeof *r->part);
  if (!r)
    return fli_fail(FL_ENOMEM, "out of memory: a range of addresses");
  r->bytes = bytes;
  fl_status s = flc_enter(d, &before);
  if (s == FL_OK) {
    CUresult e = flc_cu->MemAddressReserve(&r->at, bytes, FLC_PART, 0, 0);
    s = e ? flc_failed(d, e, "a range of addresses") : FL_OK;
    flc_leave(d, before);
  }
  if (s) {
    free(r);
    return s;
  }
  r->next = c->ranges;
  c->ranges = r;
  *at = (void *)(uintptr_t)r->at;
  return FL_OK;
}

static CUmemGenericAllocationHandle *parts_at(const flc_backend *c, void *at,
                                              flc_addresses **of) {
  CUdeviceptr p = (CUdeviceptr)(uintptr_t)at;
  for (flc_addresses *r = c->ranges; at && r; r = r->next)
    if (p >= r->at && p < r->at + r->bytes) {
      *of = r;
      return r->part + (p - r->at) / FLC_PART;
    }
  *of = NULL;
  return NULL;
}

void flc_unreserve(fl_backend *b, int device, void *at, size_t bytes) {
  flc_addresses **all = &backend_of(b)->ranges;
  flc_device *d = flc_device_open(device);
  flc_context before;
  while (*all && (*all)->at != (CUdeviceptr)(uintptr_t)at)
    all = &(*all)->next;
  flc_addresses *r = *all;
  if (!r)
    return;
  *all = r->next;
  /* what is still there stays for good: the device may be using it */
  if (r->here == 0 && flc_enter(d, &before) == FL_OK) {
    flc_cu->MemAddressFree(r->at, bytes);
    flc_leave(d, before);
  }
  free(r);
}

static void parts_release(size_t n, CUmemGenericAllocationHandle *part) {
  for (size_t i = 0; i < n; i++)
    flc_cu->MemRelease(part[i]);
}

static CUresult parts_new(flc_device *d, size_t n,
                          CUmemGenericAllocationHandle *part) {
  CUmemAllocationProp p = properties(d);
  for (size_t i = 0; i < n; i++) {
    CUresult e = flc_cu->MemCreate(&part[i], FLC_PART, &p, 0);
    if (e) {
      parts_release(i, part);
      return e;
    }
  }
  return CUDA_SUCCESS;
}

static void parts_unmap(CUdeviceptr at, size_t n) {
  for (size_t i = 0; i < n; i++)
    flc_cu->MemUnmap(at + i * FLC_PART, FLC_PART);
}

static CUresult parts_map(flc_device *d, CUdeviceptr at, size_t n,
                          const CUmemGenericAllocationHandle *part) {
  CUresult e = CUDA_SUCCESS;
  size_t i = 0;
  while (i < n && e == CUDA_SUCCESS)
    if (!(e = flc_cu->MemMap(at + i * FLC_PART, FLC_PART, 0, part[i], 0)))
      i++;
  if (e == CUDA_SUCCESS)
    e = give_access(d, at, n * FLC_PART);
  if (e)
    parts_unmap(at, i);
  return e;
}

/* Memory has its new addresses before it loses the old ones, so that a failure
 * leaves it where it was. */
static CUresult parts_move(flc_backend *c, flc_device *d, void *to, void *from,
                           size_t n) {
  flc_addresses *there, *here;
  CUmemGenericAllocationHandle *new = parts_at(c, to, &there),
                               *old = parts_at(c, from, &here);
  CUresult e = CUDA_SUCCESS;
  if (to && !from)
    e = parts_new(d, n, new);
  else if (to)
    memcpy(new, old, n * sizeof *new);
  if (to && e == CUDA_SUCCESS) {
    e = parts_map(d, (CUdeviceptr)(uintptr_t)to, n, new);
    if (e && !from)
      parts_release(n, new);
  }
  if (e)
    return e;
  if (from)
    parts_unmap((CUdeviceptr)(uintptr_t)from, n);
  if (from && !to)
    parts_release(n, old);
  if (there)
    there->here += n * FLC_PART;
  if (here)
    here->here -= n * FLC_PART;
  return e;
}

fl_status flc_remap(fl_backend *b, int device, void *to, void *from,
                    size_t bytes) {
  flc_device *d = flc_device_open(device);
  flc_context before;
  if (!d)
    return FL_EDEVICE;
  fl_status s = flc_enter(d, &before);
  if (s)
    return s;
  if (from && !flc_settle(backend_of(b), d))
    s = fli_fail(FL_ENOMEM, "cuda:%d: its memory may be in use", device);
  if (s == FL_OK) {
    CUresult e = parts_move(backend_of(b), d, to, from, bytes / FLC_PART);
    s = e ? flc_failed(d, e, "memory at other addresses") : FL_OK;
  }
  flc_leave(d, before);
  return s;
}

fl_status flc_memory_info(fl_backend *b, int device, size_t *free_bytes,
                          size_t *total) {
  flc_device *d = flc_device_open(device);
  flc_context before;
  (void)b;
  if (!d)
    return FL_EDEVICE;
  fl_status s = flc_enter(d, &before);
  if (s)
    return s;
  CUresult e = flc_cu->MemGetInfo(free_bytes, total);
  flc_leave(d, before);
  return e ? flc_failed(d, e, "asking for free memory") : FL_OK;
}

/* --- pinned memory --- */

/* Any context pins it for all of them; the first device's is as good as any. */
fl_status flc_host_alloc(fl_backend *b, size_t bytes, void **memory) {
  flc_device *d = flc_device_open(0);
  flc_context before;
  (void)b;
  if (!d)
    return FL_EDEVICE;
  fl_status s = flc_enter(d, &before);
  if (s)
    return s;
  CUresult e = flc_cu->MemHostAlloc(memory, bytes, CU_MEMHOSTALLOC_PORTABLE);
  flc_leave(d, before);
  return e ? flc_failed(d, e, "pinned memory") : FL_OK;
}

void flc_host_free(fl_backend *b, void *memory) {
  flc_device *d = flc_device_open(0);
  flc_context before;
  (void)b;
  if (!d || flc_enter(d, &before))
    return;
  flc_cu->MemFreeHost(memory);
  flc_leave(d, before);
}
