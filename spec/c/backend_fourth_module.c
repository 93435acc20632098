/* A backend from outside: a shared object that knows <flare/backend.h> and
 * nothing else, loaded by fl_backend_load. Its device is synchronous and has
 * memory that the host cannot address; each segment lies between canaries,
 * which are looked at after every launch and copy. The kernels are the CPU's.
 */
#include <flare/backend.h>

#include <stdlib.h>
#include <string.h>

FL_API fl_backend *flare_backend_open(fl_backend *cpu);

#define SHIFT  ((uintptr_t)1 << 54) /* no user address has this bit */
#define CANARY 4096                 /* bytes before and behind */
#define MARK   0xc5

typedef struct segment {
  struct segment *next;
  unsigned char *real; /* after the first canary */
  size_t bytes;
} segment;

typedef struct fourth {
  fl_backend table;
  fl_backend *cpu;
  segment *segments;
} fourth;

static bool intact(const unsigned char *canary) {
  return canary[0] == MARK && memcmp(canary, canary + 1, CANARY - 1) == 0;
}

static fl_status check(fourth *f, const char *op) {
  for (segment *s = f->segments; s; s = s->next)
    if (!intact(s->real - CANARY) || !intact(s->real + s->bytes))
      return fli_fail(FL_EFAULT, "%s wrote outside the memory of fourth:0", op);
  return FL_OK;
}

static unsigned char *real_of(fourth *f, const void *p) {
  unsigned char *real = (unsigned char *)((uintptr_t)p ^ SHIFT);
  segment *s = (uintptr_t)p & SHIFT ? f->segments : NULL;
  while (s && (real < s->real || real > s->real + s->bytes))
    s = s->next;
  return s ? real : NULL;
}

/* --- memory --- */

static fl_status take(fl_backend *b, int device, size_t bytes, void **memory) {
  fourth *f = b->state;
  segment *s = malloc(sizeof *s);
  void *p = NULL;
  (void)device;
  if (!s || posix_memalign(&p, CANARY, bytes + 2 * CANARY)) {
    free(s);
    return fli_fail(FL_ENOMEM, "fourth:0: no %zu bytes", bytes);
  }
  *s = (segment){f->segments, (unsigned char *)p + CANARY, bytes};
  memset(s->real - CANARY, MARK, CANARY);
  memset(s->real + bytes, MARK, CANARY);
  f->segments = s;
  *memory = (void *)((uintptr_t)s->real | SHIFT);
  return FL_OK;
}

static void release(fl_backend *b, int device, void *memory, size_t bytes) {
  fourth *f = b->state;
  unsigned char *real = real_of(f, memory);
  (void)device, (void)bytes;
  for (segment **at = &f->segments; *at; at = &(*at)->next)
    if ((*at)->real == real) {
      segment *gone = *at;
      *at = gone->next;
      free(gone->real - CANARY);
      free(gone);
      return;
    }
}

static fl_status copy(fl_backend *b, int device, fl_stream *stream,
                      fl_copy_kind kind, void *to, int from_device,
                      const void *from, size_t bytes) {
  fourth *f = b->state;
  (void)device, (void)stream, (void)from_device;
  if (kind != FL_COPY_OUT)
    to = real_of(f, to);
  if (kind != FL_COPY_IN)
    from = real_of(f, from);
  if (!to || !from)
    return fli_fail(FL_EDEVICE, "copy: not in the memory of fourth:0");
  memmove(to, from, bytes);
  return check(f, "copy");
}

/* --- launches --- */

typedef struct piece {
  struct piece *next;
  _Alignas(FL_ALIGN) unsigned char bytes[];
} piece;

typedef struct scratch {
  fl_scratch base;
  piece *pieces;
} scratch;

static void *scratch_get(fl_scratch *base, size_t bytes) {
  scratch *s = (scratch *)base;
  void *p = NULL;
  if (posix_memalign(&p, FL_ALIGN, sizeof(piece) + bytes)) {
    fli_fail(FL_ENOMEM, "fourth:0: no %zu bytes of scratch", bytes);
    return NULL;
  }
  piece *q = p;
  q->next = s->pieces;
  s->pieces = q;
  return q->bytes;
}

static fl_status launch(fl_backend *b, fl_kernel k, const fl_launch *l) {
  fourth *f = b->state;
  int n = l->n_in + l->n_out;
  fl_view *views = malloc((size_t)(n ? n : 1) * sizeof *views);
  fl_status status = FL_OK;
  if (!views)
    return fli_fail(FL_ENOMEM, "fourth:0: no memory for a launch");
  for (int i = 0; i < n && !status; i++) {
    const fl_view *from = i < l->n_in ? &l->in[i] : &l->out[i - l->n_in];
    fl_view_copy(&views[i], from);
    if (!from->data || views[i].data == views[i].imm)
      continue;
    if (!(views[i].data = real_of(f, from->data)))
      status = fli_fail(FL_EDEVICE,
                        "%s: operand %d is not in the memory of "
                        "fourth:0",
                        l->op, i + 1);
  }
  scratch s = {.base = {scratch_get}};
  fl_launch here = *l;
  here.in = views;
  here.out = views + l->n_in;
  here.scratch = &s.base;
  here.stream = NULL;
  if (!status)
    status = k(&here);
  for (piece *p = s.pieces, *next; p; p = next) {
    next = p->next;
    free(p);
  }
  free(views);
  return status ? status : check(f, l->op);
}

/* --- the table --- */

static int device_count(fl_backend *b) {
  (void)b;
  return 1;
}

static fl_kernel kernel(fl_backend *b, const char *op) {
  fourth *f = b->state;
  return f->cpu->kernel(f->cpu, op);
}

static void close_fourth(fl_backend *b) {
  fourth *f = b->state;
  while (f->segments)
    release(b, 0, (void *)((uintptr_t)f->segments->real | SHIFT), 0);
  free(f);
}

fl_backend *flare_backend_open(fl_backend *cpu) {
  fourth *f = calloc(1, sizeof *f);
  if (!f) {
    fli_fail(FL_ENOMEM, "out of memory: the fourth backend");
    return NULL;
  }
  f->cpu = cpu;
  f->table = (fl_backend){.struct_size = sizeof(fl_backend),
                          .name = "fourth",
                          .state = f,
                          .device_count = device_count,
                          .kernel = kernel,
                          .launch = launch,
                          .alloc = take,
                          .release = release,
                          .copy = copy,
                          .close = close_fourth};
  return &f->table;
}
