/* The road over the host: for factorizations and Fourier transforms where
 * NVIDIA's libraries are not there. Operands are copied to the host, the
 * CPU's kernel runs there on its threads, and the results are copied back: the
 * launch waits. */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

typedef struct block {
  struct block *next;
  _Alignas(FL_ALIGN) unsigned char bytes[];
} block;

typedef struct host {
  fl_scratch scratch;
  block *blocks;
} host;

static void *host_get(fl_scratch *base, size_t bytes) {
  host *h = (host *)base;
  void *p = NULL;
  if (bytes > SIZE_MAX / 2 ||
      posix_memalign(&p, FL_ALIGN, sizeof(block) + bytes)) {
    fli_fail(FL_ENOMEM, "out of memory: the host has no %zu bytes for a kernel",
             bytes);
    return NULL;
  }
  block *b = p;
  b->next = h->blocks;
  h->blocks = b;
  return b->bytes;
}

static void row_major(fl_view *v) {
  int64_t n = 1;
  for (int i = v->ndim - 1; i >= 0; i--) {
    v->stride[i] = n;
    n *= v->shape[i];
  }
}

static size_t bytes_of(const fl_view *v) {
  return (size_t)fl_view_numel(v) * fl_dtype_size(v->dtype);
}

/* The same view over host memory. */
static fl_status host_bring(const fl_launch *l, host *h, const fl_view *from,
                            fl_view *to) {
  fl_view_copy(to, from);
  if (!from->data || flc_is_number(from))
    return FL_OK;
  row_major(to);
  if (!(to->data = host_get(&h->scratch, bytes_of(from))))
    return FL_ENOMEM;
  if (bytes_of(from) == 0)
    return FL_OK;
  const void *flat = flc_input(l, from, from->dtype);
  return flat ? flc_read(l, to->data, flat, bytes_of(from)) : FL_ENOMEM;
}

static fl_status send_back(const fl_launch *l, const fl_view *to,
                           const fl_view *from) {
  if (bytes_of(to) == 0)
    return FL_OK;
  return flc_transfer(&l->stream->backend->base, l->device, l->stream,
                      FL_COPY_IN, to->data, l->device, from->data,
                      bytes_of(to));
}

static fl_status host_run(const fl_launch *l, host *h, fl_view *in,
                          fl_view *out) {
  fl_backend *cpu = l->stream->backend->cpu;
  fl_launch there = *l;
  fl_status s = cpu->stream_new(cpu, 0, &there.stream);
  for (int k = 0; k < l->n_in && s == FL_OK; k++)
    s = host_bring(l, h, &l->in[k], &in[k]);
  for (int k = 0; k < l->n_out && s == FL_OK; k++) {
    fl_view_copy(&out[k], &l->out[k]);
    row_major(&out[k]);
    if (!(out[k].data = host_get(&h->scratch, bytes_of(&l->out[k]))))
      s = FL_ENOMEM;
  }
  there.in = in;
  there.out = out;
  there.device = 0;
  there.scratch = &h->scratch;
  if (s == FL_OK)
    s = cpu->kernel(cpu, l->op)(&there);
  for (int k = 0; k < l->n_out && s == FL_OK; k++)
    s = send_back(l, &l->out[k], &out[k]);
  return s;
}

fl_status flc_on_host(const fl_launch *l) {
  if (l->probe)
    return FL_OK;
  host h = {.scratch = {host_get}};
  fl_view *views = malloc((size_t)(l->n_in + l->n_out) * sizeof *views);
  if (!views)
    return fli_fail(FL_ENOMEM, "out of memory: %s on the host", l->op);
  fl_status s = host_run(l, &h, views, views + l->n_in);
  free(views);
  for (block *b = h.blocks, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  return s;
}
