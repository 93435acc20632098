/* FL_COMPILED_CHECK: a window runs as it was called, then by its plan on the
 * same memory, and the results are compared. Both runs have the same random
 * numbers, which are operands. */
#include "compile.h"

#include "../memory/stream.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct checking {
  fli_window *w;
  const fli_plan *p;
  bool exact;
  uint32_t n; /* slots */
  /* of each slot that is compared; NULL elsewhere */
  fl_storage **storage;
  char **before, **want, **got; /* on the host; before: of older memory */
  uint8_t *filled;              /* it had no memory before the first run */
  bool *runs;                   /* of each launch */
} checking;

/* --- memory --- */

static fl_status check_copy(const checking *c, fl_storage *s, char *host,
                            bool out) {
  fl_runtime *rt = c->w->rt;
  if (fli_backend(rt, s->device)->flags & FL_BACKEND_HOST) {
    memcpy(out ? host : s->data, out ? s->data : host, s->bytes);
    return FL_OK;
  }
  fl_status status =
      fli_copy(rt, s->device, out ? FL_COPY_OUT : FL_COPY_IN,
               out ? host : s->data, s->device, out ? s->data : host, s->bytes);
  return status ? status : fli_stream_finish(rt, s->device);
}

static fl_status check_read(const checking *c, uint32_t k, char **to) {
  fl_storage *s = c->storage[k];
  *to = fli_malloc(c->w->rt, s->bytes + 1);
  return *to ? check_copy(c, s, *to, true) : FL_ENOMEM;
}

/* So that what a run leaves out is not what the other one has left: NaN. */
static fl_status check_spoil(const checking *c, fl_storage *s) {
  char *nan = fli_malloc(c->w->rt, s->bytes + 1);
  if (!nan)
    return FL_ENOMEM;
  memset(nan, 0xff, s->bytes);
  fl_status status = check_copy(c, s, nan, false);
  fli_mfree(nan);
  return status;
}

static bool check_writes(const checking *c, const fli_entry *e, int k) {
  return k >= e->n_in ||
         (e->writes &&
          fli_op_writes(e->op, fli_entry_attrs(c->w, e), e->n_in, k));
}

/* Finds the slots to compare: older memory that is written, and new memory that
 * something holds. */
static fl_status check_begin(checking *c, bool *needed) {
  fli_window *w = c->w;
  for (uint32_t k = 0; k < c->n; k++)
    needed[k] = !w->slots[k].made || w->slots[k].held;
  fli_window_runs(w, needed, c->runs);
  for (uint32_t i = 0; i < w->n; i++) {
    const fli_entry *e = &w->entries[i];
    for (int k = 0; k < e->n_in + e->n_out && c->runs[i]; k++) {
      int at = w->args[e->arg + (uint32_t)k].slot;
      if (at < 0 || !check_writes(c, e, k) || c->storage[at] ||
          (w->slots[at].made && !w->slots[at].held))
        continue;
      c->storage[at] = w->slots[at].s;
      fli_storage_retain(c->storage[at]);
      if (!c->storage[at]->pending)
        FLI_TRY(check_read(c, (uint32_t)at, &c->before[at]));
    }
  }
  return FL_OK;
}

/* --- the run without a plan --- */

static fl_status check_make(checking *c, const fli_entry *e) {
  for (int k = 0; k < e->n_out; k++) {
    int at = c->w->args[e->arg + (uint32_t)(e->n_in + k)].slot;
    fl_storage *s = c->w->slots[at].s;
    if (!s->pending)
      continue;
    FLI_TRY(fli_storage_fill(c->w->rt, s, e->site));
    FLI_TRY(check_spoil(c, s));
    c->filled[at] = 1;
  }
  return FL_OK;
}

static fl_status check_plain(checking *c) {
  fl_status s = FL_OK;
  for (uint32_t i = 0; i < c->w->n && s == FL_OK; i++)
    if (c->runs[i] && !(s = check_make(c, &c->w->entries[i])))
      s = fli_window_run(c->w, i);
  if (s == FL_OK)
    s = fli_stream_finish(c->w->rt, c->w->device);
  for (uint32_t k = 0; k < c->n && s == FL_OK; k++)
    if (c->storage[k])
      s = check_read(c, k, &c->want[k]);
  return s;
}

/* All memory is again as it was before the run, but for what it has filled. */
static fl_status check_restore(const checking *c) {
  fl_status first = FL_OK;
  for (uint32_t k = 0; k < c->n; k++) {
    fl_status s = c->before[k]
                      ? check_copy(c, c->storage[k], c->before[k], false)
                  : c->filled[k] ? check_spoil(c, c->w->slots[k].s)
                                 : FL_OK;
    first = first ? first : s;
  }
  return first;
}

/* --- comparing --- */

static double check_element(fl_dtype d, const char *at, int64_t *bits) {
  union {
    double d;
    float f;
    uint16_t h;
    int64_t l;
    int32_t w;
    int16_t s;
    int8_t c;
    uint8_t u;
  } v;
  memset(&v, 0, sizeof v);
  memcpy(&v, at, fl_dtype_size(d));
  *bits = v.l;
  switch (d) {
  case FL_F64:
    return v.d;
  case FL_F32:
    return (double)v.f;
  case FL_F16:
  case FL_BF16:
    return fli_half_value(d, v.h);
  case FL_I64:
    return (double)v.l;
  case FL_I32:
    return (double)v.w;
  case FL_I16:
    return (double)v.s;
  case FL_I8:
    return (double)v.c;
  case FL_BOOL:
    return v.u != 0;
  default:
    return (double)v.u;
  }
}

/* How far results may be apart, as part of their largest: what the coarsest
 * floats of the window have, since they may not be rounded in a kernel. */
static double check_slack(const checking *c) {
  double most = 0;
  for (uint32_t k = 0; k < c->w->n_args && !c->exact; k++) {
    fl_dtype d = c->w->args[k].meta.dtype;
    double unit = d == FL_BF16  ? 0.05
                  : d == FL_F16 ? 0.01
                  : d == FL_F64 ? 1e-9
                                : 1e-3;
    if (c->w->args[k].slot >= 0 && unit > most &&
        fl_dtype_kind(d) >= FL_KIND_FLOAT)
      most = unit;
  }
  return most;
}

typedef struct difference {
  int64_t count, elements; /* that differ at all; of the result */
  double most, largest;    /* difference, value */
  double want, got;        /* where it is largest */
} difference;

/* Compares a region: complex numbers as pairs of real ones. */
static void check_region(const checking *c, const fli_arg *a, difference *d) {
  const char *want = c->want[a->slot] + c->w->slots[a->slot].base,
             *got = c->got[a->slot] + c->w->slots[a->slot].base;
  fl_dtype dtype = a->meta.dtype;
  int parts = 1;
  if (fli_is_complex(dtype)) {
    parts = 2;
    dtype = fl_dtype_size(dtype) == 16 ? FL_F64 : FL_F32;
  }
  int64_t n = fl_numel(a->meta.ndim, a->meta.shape);
  d->elements = n * parts;
  for (int64_t i = 0; i < n * parts; i++) {
    int64_t left = i / parts, at = a->offset, x, y;
    for (int k = a->meta.ndim; k-- > 0; left /= a->meta.shape[k])
      at += left % a->meta.shape[k] * a->stride[k];
    size_t byte = (size_t)(at * parts + i % parts) * fl_dtype_size(dtype);
    double u = check_element(dtype, want + byte, &x),
           v = check_element(dtype, got + byte, &y), apart = fabs(u - v);
    if (isfinite(u) && fabs(u) > d->largest)
      d->largest = fabs(u);
    if (x == y || u == v || (isnan(u) && isnan(v)))
      continue;
    apart = isnan(apart) ? INFINITY : apart;
    if (d->count++ == 0 || apart > d->most) {
      d->most = apart;
      d->want = u;
      d->got = v;
    }
  }
}

static bool check_beyond(const checking *c, fl_dtype d,
                         const difference *found) {
  if (found->count == 0 || c->exact)
    return found->count > 0;
  if (fl_dtype_kind(d) < FL_KIND_FLOAT) /* rounding may turn comparisons */
    return found->count > 1 + found->elements / 100;
  return found->most > check_slack(c) * (1e-3 + found->largest);
}

/* --- the message --- */

/* The step that writes the slot last. */
static uint32_t check_step(const checking *c, int slot) {
  const fli_plan *p = c->p;
  for (uint32_t i = p->n_steps; i-- > 0;) {
    const fli_step *x = &p->steps[i];
    const fli_entry *e = &c->w->entries[x->entry];
    int first = x->op ? x->n_in : 0, n = x->op ? x->n_out : e->n_in + e->n_out;
    for (int k = first; k < first + n; k++)
      if (x->op ? p->operands[x->operands + (uint32_t)k].slot == slot
                : c->w->args[e->arg + (uint32_t)k].slot == slot &&
                      check_writes(c, e, k))
        return i;
  }
  return 0;
}

#define LINES 6

/* The launches that write the slot, and those whose results they read and the
 * step does not: they are parts of its kernel. */
static void check_lines(const checking *c, int slot, const fli_step *x,
                        char *text, size_t room) {
  const fli_window *w = c->w;
  int todo[LINES] = {slot}, n = 1, lines = 0;
  size_t at = 0;
  for (int done = 0; done < n; done++)
    for (uint32_t i = x->entry + 1; i-- > 0 && lines < LINES;) {
      const fli_entry *e = &w->entries[i];
      bool writes = false;
      for (int k = 0; k < e->n_out; k++)
        writes |= w->args[e->arg + (uint32_t)(e->n_in + k)].slot == todo[done];
      if (!writes || !c->runs[i])
        continue;
      at += (size_t)snprintf(text + at, room - at, "%s%s%s%s",
                             lines++ ? ", " : "", e->op->info.name,
                             e->site ? " at " : "",
                             e->site ? fl_site_text(w->rt, e->site) : "");
      at = at < room ? at : room - 1;
      for (int k = 0; k < e->n_in && x->op; k++) {
        int of = w->args[e->arg + (uint32_t)k].slot;
        bool known = of < 0 || !w->slots[of].made || n == LINES;
        for (int j = 0; j < n; j++)
          known |= todo[j] == of;
        for (int j = 0; j < x->n_in; j++)
          known |= c->p->operands[x->operands + (uint32_t)j].slot == of;
        if (!known)
          todo[n++] = of;
      }
    }
}

static fl_status check_differs(const checking *c, int slot, const fli_arg *a,
                               const difference *d) {
  uint32_t i = check_step(c, slot);
  char lines[640] = "";
  check_lines(c, slot, &c->p->steps[i], lines, sizeof lines);
  return fli_fail(
      FL_EFAULT,
      "compile: kernel %u of %u (%s) gives other values of %s than its "
      "operators one by one: %.9g for %.9g, %lld of %lld elements differ",
      i + 1, c->p->n_steps, lines, fl_dtype_name(a->meta.dtype), d->got,
      d->want, (long long)d->count, (long long)d->elements);
}

/* What was written to the slots, launch by launch; the memory is as the last
 * one has left it. */
static fl_status check_compare(checking *c) {
  for (uint32_t k = 0; k < c->n; k++)
    if (c->storage[k])
      FLI_TRY(check_read(c, k, &c->got[k]));
  for (uint32_t i = 0; i < c->w->n; i++) {
    const fli_entry *e = &c->w->entries[i];
    for (int k = 0; k < e->n_in + e->n_out && c->runs[i]; k++) {
      const fli_arg *a = &c->w->args[e->arg + (uint32_t)k];
      difference d = {0};
      if (a->slot < 0 || !c->storage[a->slot] || !check_writes(c, e, k))
        continue;
      check_region(c, a, &d);
      if (check_beyond(c, a->meta.dtype, &d))
        return check_differs(c, a->slot, a, &d);
    }
  }
  return FL_OK;
}

/* --- all of it --- */

static void check_close(checking *c) {
  for (uint32_t k = 0; k < c->n; k++) {
    fli_mfree(c->before[k]);
    fli_mfree(c->want[k]);
    fli_mfree(c->got[k]);
    if (c->storage[k])
      fli_storage_release(c->storage[k]);
  }
}

fl_status fli_plan_check(fli_window *w, const fli_plan *p, bool exact,
                         fl_status (*run)(fli_window *, const fli_plan *)) {
  size_t n = w->n_slots, bytes = n * (4 * sizeof(char *) + 2) + w->n;
  char **room = fli_malloc(w->rt, bytes);
  if (!room)
    return FL_ENOMEM;
  memset(room, 0, bytes);
  checking c = {.w = w, .p = p, .exact = exact, .n = w->n_slots};
  c.storage = (fl_storage **)(void *)room;
  c.before = room + n;
  c.want = c.before + n;
  c.got = c.want + n;
  c.filled = (uint8_t *)(c.got + n);
  c.runs = (bool *)(c.filled + 2 * n);
  fl_status s = check_begin(&c, (bool *)(c.filled + n));
  if (s == FL_OK) {
    fl_status plain = check_plain(&c);
    s = check_restore(&c);
    if (s == FL_OK)
      s = run(w, p);
    if (s == FL_OK && (s = plain) == FL_OK)
      s = check_compare(&c);
  }
  check_close(&c);
  fli_mfree(room);
  return s;
}
