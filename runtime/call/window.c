/* Windows: launches are appended, and run at the flush, by a plan of the
 * planner or in their order. Results that nothing holds and nothing reads are
 * never computed; the others get memory right before the launch that makes
 * them and lose it after the last one that reads them. */
#include "window.h"
#include "../tile.h"
#include "../memory/capture.h"
#include "../memory/stream.h"
#include "../ops/number.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW_MOST 65536 /* launches; more are flushed */

/* --- room --- */

bool fli_window_room(fl_runtime *rt, void *array, uint32_t *room, uint32_t need,
                     size_t size) {
  void **old = array;
  if (FLI_LIKELY(need <= *room))
    return true;
  uint32_t n = *room ? 2 * *room : 64;
  while (n < need)
    n *= 2;
  void *more = fli_malloc(rt, n * size);
  if (!more)
    return false;
  if (*old)
    memcpy(more, *old, *room * size);
  fli_mfree(*old);
  *old = more;
  *room = n;
  return true;
}

static inline uint64_t window_mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15u;
  return h ^ h >> 32;
}

/* --- entering --- */

/* Memory that code outside flare may read or write at any time. */
static inline bool window_sees(const fl_storage *s) {
  return !(s->exposed & FLI_EXPOSED) &&
         (s->block || s->pending || s->read_only);
}

bool fli_window_waits(fl_runtime *rt, fl_device d, const fli_entry *e,
                      const fl_operand *in) {
  const fli_window *w = rt->window;
  if (rt->capture && rt->capture->device != d)
    return false; /* to be refused */
  if (rt->watch & FLI_WATCH_RACES || rt->anomaly || e->op->info.collective ||
      e->op->native || w->flushing)
    return false;
  if (w->n ? d != w->device || w->stream != fli_stream(rt, d)
           : !fli_stream(rt, d) && fli_backend(rt, d)->stream_new)
    return false;
  for (int k = 0; k < e->n_in; k++)
    if (in[k].tensor && !window_sees(in[k].tensor->storage))
      return false;
  return true;
}

static bool window_fits(fl_runtime *rt, fl_device d, const fli_entry *e,
                        const fl_operand *in, fl_tensor *const *out) {
  for (int k = 0; k < e->n_out; k++)
    if (!window_sees(out[k]->storage))
      return false;
  return fli_window_waits(rt, d, e, in);
}

static inline int64_t window_place(const fl_tensor *t) {
  return t->offset * ((int64_t)1 << fli_shift(t->meta.dtype));
}

/* Whether t lies before the place that its storage counts from. */
static inline bool window_before(const fli_window *w, const fl_tensor *t) {
  const fl_storage *s = t->storage;
  return s->window == w->epoch && window_place(t) < w->slots[s->slot].base;
}

static bool window_unordered(const fli_window *w, const fli_entry *e,
                             const fl_operand *in, fl_tensor *const *out) {
  for (int k = 0; k < e->n_in; k++)
    if (in[k].tensor && window_before(w, in[k].tensor))
      return true;
  for (int k = 0; k < e->n_out; k++)
    if (window_before(w, out[k]))
      return true;
  return false;
}

/* The launch that is being added has t before another region of its storage:
 * its operands so far, up to a, count from there. */
static void window_rebase(fli_window *w, fli_slot *slot, const fl_tensor *t,
                          const fli_arg *a) {
  int64_t base = window_place(t) / FLI_WINDOW_ALIGN * FLI_WINDOW_ALIGN;
  for (fli_arg *x = &w->args[w->n_args]; x < a; x++)
    if (x->slot == (int)t->storage->slot)
      x->offset += (slot->base - base) >> fli_shift(x->meta.dtype);
  slot->base = base;
}

/* The slot of t's storage; pending storages are about to be made. */
static fli_slot *window_slot(fli_window *w, const fl_tensor *t) {
  fl_storage *s = t->storage;
  if (s->window != w->epoch) {
    if (!fli_window_room(w->rt, &w->slots, &w->slots_room, w->n_slots + 1,
                         sizeof *w->slots))
      return NULL;
    /* calls by a trace write without asking; they wait for what a mark keeps */
    if (w->whole && s->kept && fli_keep_write(s))
      return NULL;
    bool made = s->pending;
    s->window = w->epoch;
    s->slot = w->n_slots;
    w->slots[w->n_slots++] = (fli_slot){
        .s = s,
        .bytes = s->bytes,
        .made = made,
        .base =
            made ? 0 : window_place(t) / FLI_WINDOW_ALIGN * FLI_WINDOW_ALIGN};
    fli_storage_retain(s);
  }
  w->slots[s->slot].last = w->n;
  return &w->slots[s->slot];
}

static fl_status window_tensor(fli_window *w, const fl_tensor *t, fli_arg *a) {
  const fl_storage *s = t->storage;
  fli_slot *slot = window_slot(w, t);
  if (!slot)
    return FL_ENOMEM;
  if (window_before(w, t))
    window_rebase(w, slot, t, a);
  a->slot = (int)s->slot;
  a->meta.dtype = t->meta.dtype;
  a->meta.ndim = t->meta.ndim;
  a->offset = t->offset - (slot->base >> fli_shift(t->meta.dtype));
  for (int i = 0; i < t->meta.ndim; i++) {
    a->meta.shape[i] = t->meta.shape[i];
    a->stride[i] = t->stride[i];
  }
  return FL_OK;
}

static fl_status window_operand(fli_window *w, const fl_operand *o,
                                fli_arg *a) {
  if (o->tensor)
    return window_tensor(w, o->tensor, a);
  a->slot = o->dtype == FL_NODTYPE ? FLI_ARG_NONE : FLI_ARG_NUMBER;
  a->meta.dtype = o->dtype;
  a->meta.ndim = 0;
  a->operand = *o;
  return FL_OK;
}

static uint64_t window_hash(uint64_t h, const fli_arg *a) {
  h = window_mix(h, (uint64_t)(uint32_t)a->slot << 16 |
                        (uint64_t)a->meta.ndim << 8 | (uint64_t)a->meta.dtype);
  if (a->slot < 0)
    return h;
  h = window_mix(h, (uint64_t)a->offset);
  for (int i = 0; i < a->meta.ndim; i++)
    h = window_mix(h,
                   (uint64_t)a->meta.shape[i] ^ (uint64_t)a->stride[i] << 32);
  return h;
}

/* Entry i, whose operands and attributes are in the arrays, enters the hash. */
static void window_count(fli_window *w, uint32_t i, uint32_t end) {
  const fli_entry *e = &w->entries[i];
  w->hash = window_mix(w->hash, (uint64_t)(uintptr_t)e->op + (uint64_t)e->base);
  for (uint32_t k = e->attrs; k < end; k++)
    w->hash = window_mix(w->hash, w->words[k]);
  for (int k = 0; k < e->n_in + e->n_out; k++)
    w->hash = window_hash(w->hash, &w->args[e->arg + (uint32_t)k]);
}

/* --- following a recording --- */

/* Most runs repeat the launches of an earlier one. While they do, the arrays
 * have them already: a launch is compared in place, and only numbers and lines
 * are written. */

static bool recording_copy(fli_window *w) {
  const fli_recording *r = &w->next;
  fl_runtime *rt = w->rt;
  if (!fli_window_room(rt, &w->entries, &w->room, r->n, sizeof *w->entries) ||
      !fli_window_room(rt, &w->args, &w->args_room, r->n_args,
                       sizeof *w->args) ||
      !fli_window_room(rt, &w->words, &w->words_room, r->n_words,
                       sizeof *w->words))
    return false;
  memcpy(w->entries, r->entries, r->n * sizeof *w->entries);
  memcpy(w->args, r->args, r->n_args * sizeof *w->args);
  memcpy(w->words, r->words, r->n_words * sizeof *w->words);
  return true;
}

static inline bool follows_operand(fli_window *w, const fl_tensor *t,
                                   const fli_arg *a) {
  const fli_slot *slot = window_slot(w, t);
  if (!slot || a->slot != (int)t->storage->slot ||
      a->meta.dtype != t->meta.dtype || a->meta.ndim != t->meta.ndim ||
      a->offset != t->offset - (slot->base >> fli_shift(t->meta.dtype)))
    return false;
  for (int i = 0; i < t->meta.ndim; i++)
    if (a->meta.shape[i] != t->meta.shape[i] || a->stride[i] != t->stride[i])
      return false;
  return true;
}

/* Whether the launch is the next one of the recording; it has entered the
 * window, then. Otherwise the window may know its storages already. */
static bool window_follows(fli_window *w, const fli_entry *e,
                           const fl_attrs *attrs, const fl_operand *in,
                           fl_tensor *const *out) {
  if (w->n == w->next.n)
    return false;
  fli_entry *x = &w->entries[w->n];
  size_t bytes = offsetof(fl_attrs, list) + attrs->used * sizeof *attrs->list;
  if (x->op != e->op || x->base != e->base || x->n_in != e->n_in ||
      x->n_out != e->n_out || x->common != e->common ||
      memcmp(w->words + x->attrs, attrs, bytes))
    return false;
  fli_arg *a = &w->args[x->arg];
  for (int k = 0; k < e->n_in; k++)
    if (in[k].tensor) {
      if (!follows_operand(w, in[k].tensor, &a[k]))
        return false;
    } else {
      int slot = in[k].dtype == FL_NODTYPE ? FLI_ARG_NONE : FLI_ARG_NUMBER;
      if (a[k].slot != slot || a[k].meta.dtype != in[k].dtype)
        return false;
      a[k].operand = in[k];
    }
  for (int k = 0; k < e->n_out; k++)
    if (!follows_operand(w, out[k], &a[e->n_in + k]))
      return false;
  x->site = e->site;
  x->writes = e->writes;
  w->n_args += (uint32_t)(e->n_in + e->n_out);
  w->n_words += (uint32_t)((bytes + 7) / 8);
  w->n++;
  return true;
}

/* The next launch is another one, or there is none: launches are hashed from
 * now on. */
static void window_leaves(fli_window *w) {
  w->follows = false;
  w->has = 0;
  w->hash = (uint64_t)w->device;
  for (uint32_t i = 0; i < w->n; i++)
    window_count(w, i, i + 1 < w->n ? w->entries[i + 1].attrs : w->n_words);
}

void fli_window_begin(fli_window *w, fl_device d) {
  w->device = d;
  w->stream = fli_stream(w->rt, d);
  w->hash = (uint64_t)d;
  w->follows = w->next.id && (w->has == w->next.id || recording_copy(w));
  w->has = w->follows ? w->next.id : 0;
}

/* --- adding --- */

static fl_status window_flush(fli_window *w);

static fl_status window_note(fli_window *w) {
  if (!fli_window_room(w->rt, &w->notes, &w->notes_room, w->n + 1,
                       sizeof *w->notes))
    return FL_ENOMEM;
  w->notes[w->n] = fli_profile_note(w->rt);
  return FL_OK;
}

static fl_status window_append(fli_window *w, const fli_entry *given,
                               const fl_attrs *attrs, const fl_operand *in,
                               fl_tensor *const *out) {
  fl_runtime *rt = w->rt;
  int n = given->n_in + given->n_out;
  size_t bytes = offsetof(fl_attrs, list) + attrs->used * sizeof *attrs->list;
  uint32_t words = (uint32_t)((bytes + 7) / 8);
  if (!fli_window_room(rt, &w->entries, &w->room, w->n + 1,
                       sizeof *w->entries) ||
      !fli_window_room(rt, &w->args, &w->args_room, w->n_args + (uint32_t)n,
                       sizeof *w->args) ||
      !fli_window_room(rt, &w->words, &w->words_room, w->n_words + words,
                       sizeof *w->words))
    return FL_ENOMEM;
  fli_entry *e = &w->entries[w->n];
  *e = *given;
  e->arg = w->n_args;
  e->attrs = w->n_words;
  w->words[w->n_words + words - 1] = 0;
  fl_attrs_copy((fl_attrs *)(void *)(w->words + w->n_words), attrs);
  fli_arg *a = &w->args[w->n_args];
  for (int k = 0; k < e->n_in; k++)
    FLI_TRY(window_operand(w, &in[k], &a[k]));
  for (int k = 0; k < e->n_out; k++)
    FLI_TRY(window_tensor(w, out[k], &a[e->n_in + k]));
  w->n_args += (uint32_t)n;
  w->n_words += words;
  window_count(w, w->n++, w->n_words);
  return FL_OK;
}

/* The storages that a launch has brought before it turned out to be another one
 * than that of the recording. */
static void window_forget_new(fli_window *w, uint32_t first) {
  while (w->n_slots > first) {
    fl_storage *s = w->slots[--w->n_slots].s;
    s->window = 0;
    fli_storage_release(s);
  }
}

fl_status fli_window_add(fl_runtime *rt, fl_device d, const fli_entry *given,
                         const fl_attrs *attrs, const fl_operand *in,
                         fl_tensor *const *out) {
  fli_window *w = rt->window;
  if (rt->profile)
    FLI_TRY(window_note(w));
  if (w->n == 0)
    fli_window_begin(w, d);
  if (FLI_LIKELY(w->follows)) {
    uint32_t slots = w->n_slots;
    if (FLI_LIKELY(window_follows(w, given, attrs, in, out)))
      return FL_OK;
    window_forget_new(w, slots);
    window_leaves(w);
  }
  if (w->n == WINDOW_MOST || window_unordered(w, given, in, out)) {
    FLI_TRY(window_flush(w));
    return fli_window_add(rt, d, given, attrs, in, out);
  }
  return window_append(w, given, attrs, in, out);
}

/* Before a launch that cannot wait the window is flushed, and the launch's
 * results get memory. */
bool fli_window_takes(fl_runtime *rt, fl_device d, const fli_entry *e,
                      const fl_attrs *attrs, const fl_operand *in,
                      fl_tensor *const *out, fl_status *s) {
  if (window_fits(rt, d, e, in, out)) {
    *s = fli_window_add(rt, d, e, attrs, in, out);
    return true;
  }
  *s = fli_window_flush(rt);
  for (int k = 0; k < e->n_out && *s == FL_OK; k++)
    if (out[k]->storage->pending)
      *s = fli_storage_fill(rt, out[k]->storage, e->site);
  return *s != FL_OK;
}

/* --- running --- */

void fli_window_view(const fli_window *w, const fli_arg *a, fl_dtype common,
                     fl_view *v) {
  if (a->slot == FLI_ARG_NUMBER) {
    fli_view_number(&a->operand, common, v);
    return;
  }
  v->dtype = a->meta.dtype;
  v->ndim = a->meta.ndim;
  v->data = NULL;
  if (a->slot == FLI_ARG_NONE)
    return;
  v->data = fli_slot_data(&w->slots[a->slot], a->meta.dtype, a->offset);
  for (int i = 0; i < v->ndim; i++) {
    v->shape[i] = a->meta.shape[i];
    v->stride[i] = a->stride[i];
  }
}

/* Memory for the results of entry i that have none. */
static fl_status window_make(fli_window *w, uint32_t i) {
  const fli_entry *e = &w->entries[i];
  for (int k = 0; k < e->n_out; k++) {
    fl_storage *s = w->slots[w->args[e->arg + (uint32_t)(e->n_in + k)].slot].s;
    if (s->pending)
      FLI_TRY(fli_storage_fill(w->rt, s, e->site));
  }
  return FL_OK;
}

/* A failure of the device is not for now: nothing runs. */
static fl_status window_again(fli_window *w, fl_kernel kernel, fl_launch *l) {
  fl_backend *b = fli_backend(w->rt, w->device);
  l->scratch = &w->again->base;
  l->seq = w->again->seq;
  return b->launch ? b->launch(b, kernel, l) : kernel(l);
}

/* The rows whose positions a kernel looks at, each as a launch of its own. */
static fl_status note_positions(fli_window *w, const fl_launch *l) {
  fl_runtime *rt = w->rt;
  for (int k = 0; l->tile && k < l->tile->n_positions; k++) {
    const fl_position *x = &l->tile->positions[k];
    fli_note_launch(rt, x->op, w->entries[x->entry].site, ++rt->seq, 0, NULL);
    if (rt->capture)
      FLI_TRY(fli_capture_launch(rt, w->device, x->op));
  }
  return FL_OK;
}

fl_status fli_window_send(fli_window *w, const fli_entry *e, const fl_op *op,
                          fl_launch *l, const fl_meta *const *metas) {
  fl_runtime *rt = w->rt;
  fli_scratch s;
  l->op = op->info.name;
  l->program = op->program ? op->program : l->program;
  l->base = e->base;
  l->device = w->device & 255;
  l->stream = w->stream;
  if (w->again)
    return window_again(w, op->kernel[w->device >> 8], l);
  FLI_TRY(note_positions(w, l));
  fli_scratch_open(&s, rt, w->device, e->site);
  l->scratch = &s.base;
  l->seq = ++rt->seq;
  fli_note_launch(rt, l->op, e->site, l->seq, l->n_in, metas);
  fl_status status = rt->watch ? fli_stream_note(rt, w->device) : FL_OK;
  if (rt->capture && status == FL_OK)
    status = fli_capture_launch(rt, w->device, l->op);
  if (status == FL_OK)
    status = rt->profile
                 ? fli_window_timed(w, e, op, l)
                 : fli_send(rt, w->device, op->kernel[w->device >> 8], l);
  fli_scratch_close(&s);
  return status;
}

#define FEW_VIEWS 16

fl_status fli_window_run(fli_window *w, uint32_t i) {
  const fli_entry *e = &w->entries[i];
  const fli_arg *a = &w->args[e->arg];
  int n = e->n_in + e->n_out;
  fl_view few[FEW_VIEWS], *v = few;
  const fl_meta *metas[2] = {NULL, NULL};
  if (n > FEW_VIEWS && !(v = fli_malloc(w->rt, (size_t)n * sizeof *v)))
    return FL_ENOMEM;
  for (int k = 0; k < n; k++)
    fli_window_view(w, &a[k], e->common, &v[k]);
  for (int k = 0; k < 2 && k < e->n_in; k++)
    metas[k] = a[k].slot == FLI_ARG_NONE ? NULL : &a[k].meta;
  if (e->op->marks & FLI_MARK_POINTWISE)
    fli_views_by_memory(e->n_in, v, e->n_out, v + e->n_in);
  fl_launch l = {.n_in = e->n_in,
                 .n_out = e->n_out,
                 .in = v,
                 .out = v + e->n_in,
                 .attrs = fli_entry_attrs(w, e),
                 .writes = e->writes};
  fl_status s = fli_window_send(w, e, e->op, &l, metas);
  if (v != few)
    fli_mfree(v);
  return s;
}

/* Whether launch i has a visible effect: it writes a storage that is older than
 * the window, that is held, or that a later launch needs. `needed` has a flag
 * for each slot, set by the later launches. */
static bool window_needs(const fli_window *w, uint32_t i, bool *needed) {
  const fli_entry *e = &w->entries[i];
  const fli_arg *a = &w->args[e->arg];
  bool needs = e->writes;
  for (int k = 0; k < e->n_out && !needs; k++)
    needs = needed[a[e->n_in + k].slot];
  for (int k = 0; k < e->n_in && needs; k++)
    if (a[k].slot >= 0)
      needed[a[k].slot] = true;
  return needs;
}

static void window_forget(fli_window *w, uint32_t slot) {
  fl_storage *s = w->slots[slot].s;
  w->slots[slot].s = NULL;
  if (s)
    fli_storage_release(s);
}

bool fli_window_changes(const fli_window *w, uint32_t i) {
  const fli_entry *e = &w->entries[i];
  const fli_arg *a = &w->args[e->arg];
  bool changes = e->writes;
  for (int k = 0; k < e->n_out && !changes; k++)
    changes = !w->slots[a[e->n_in + k].slot].made;
  return changes;
}

/* In the order of the calls. After a failure launches that make tensors run, as
 * on a device that reports late; without memory none can. */
static fl_status window_interpret(fli_window *w, const bool *runs) {
  fl_status first = FL_OK;
  for (uint32_t i = 0; i < w->n; i++) {
    fl_status s = FL_OK;
    if (runs[i] && !(first && fli_window_changes(w, i)) &&
        !(s = window_make(w, i)))
      s = fli_window_run(w, i);
    if (s && !first)
      first = s;
    if (s == FL_ENOMEM)
      return first;
    const fli_entry *e = &w->entries[i];
    for (int k = 0; k < e->n_in + e->n_out; k++) {
      int slot = w->args[e->arg + (uint32_t)k].slot;
      if (slot >= 0 && w->slots[slot].last == i)
        window_forget(w, (uint32_t)slot);
    }
  }
  return first;
}

void fli_window_runs(const fli_window *w, bool *needed, bool *runs) {
  for (uint32_t i = w->n; i-- > 0;)
    runs[i] = window_needs(w, i, needed);
}

/* The graph that is captured uses what the launches refer to. */
static fl_status window_captured(const fli_window *w) {
  for (uint32_t i = 0; i < w->n; i++) {
    const fli_entry *e = &w->entries[i];
    for (int k = 0; k < e->n_in + e->n_out; k++) {
      int slot = w->args[e->arg + (uint32_t)k].slot;
      if (slot >= 0 && !w->slots[slot].s->pending)
        FLI_TRY(fli_capture_uses(w->slots[slot].s, k >= e->n_in || e->writes));
    }
  }
  return FL_OK;
}

/* On a device with several streams the window's one waits for the blocks that
 * it uses. */
static fl_status window_order(const fli_window *w) {
  if (!(fli_backend(w->rt, w->device)->flags & FL_BACKEND_ASYNC))
    return FL_OK;
  for (uint32_t k = 0; k < w->n_slots; k++)
    if (w->slots[k].s->block)
      FLI_TRY(fli_stream_uses(w->rt, w->device, w->slots[k].s->block));
  return FL_OK;
}

static fl_status window_launch(fli_window *w) {
  fl_status s;
  if (w->rt->watch & FLI_WATCH_STREAMS)
    FLI_TRY(window_order(w));
  if (w->rt->capture)
    FLI_TRY(window_captured(w));
  for (uint32_t k = 0; k < w->n_slots; k++)
    w->slots[k].held = fli_slot_held(&w->slots[k]);
  if (w->owner && w->rt->up->plan(w, &s))
    return s;
  bool *flags = fli_malloc(w->rt, w->n_slots + w->n);
  if (!flags)
    return FL_ENOMEM;
  for (uint32_t k = 0; k < w->n_slots; k++)
    flags[k] = !w->slots[k].made || w->slots[k].held;
  fli_window_runs(w, flags, flags + w->n_slots);
  s = window_interpret(w, flags + w->n_slots);
  fli_mfree(flags);
  return s;
}

static fl_status window_flush(fli_window *w) {
  fl_runtime *rt = w->rt;
  if (w->flushing || w->n == 0)
    return FL_OK;
  w->flushing = true;
  if (w->follows && w->n < w->next.n)
    window_leaves(w);
  if (w->follows)
    w->hash = w->next.hash;
  w->next.id = 0;
  fl_status s = window_launch(w);
  char *message = NULL;
  if (s) /* releasing may say something else */
    message = strdup(fl_error());
  for (uint32_t k = 0; k < w->n_slots; k++)
    window_forget(w, k);
  w->n = w->n_args = w->n_words = w->n_slots = 0;
  w->epoch = ++rt->epochs;
  w->flushing = w->follows = false;
  if (w->step) { /* of a launch that was refused */
    fli_mfree(w->step);
    w->step = NULL;
  }
  if (s && message)
    s = fli_fail(s, "%s", message);
  free(message);
  return s;
}

fl_status fli_window_flush(fl_runtime *rt) {
  fli_window *w = rt->window;
  if (!w || w->flushing || w->n == 0)
    return FL_OK;
  if (w->whole)
    return fli_fail(FL_EUNSUPPORTED,
                    "a function compiled with {pure = true} has to end before "
                    "its launches run: read values, wait, change streams and "
                    "call collectives after it");
  return window_flush(w);
}

/* --- opening and closing --- */

/* A compiled function is called where launches wait without a plan. */
static fl_status window_adopt(fli_window *w, struct fl_compiled *owner,
                              struct fli_window **of_owner) {
  FLI_TRY(window_flush(w));
  w->around = w->depth;
  w->depth = 1;
  w->owner = owner;
  w->of_owner = of_owner;
  *of_owner = w;
  w->next.id = 0;
  w->epoch = ++w->rt->epochs;
  return FL_OK;
}

fl_status fli_window_open(fl_runtime *rt, struct fl_compiled *owner,
                          struct fli_window **of_owner) {
  fli_window *w = rt->window;
  if (w && owner && !w->owner)
    return window_adopt(w, owner, of_owner);
  if (w) {
    w->depth++;
    return FL_OK;
  }
  if (!(w = rt->spare_window)) {
    if (!(w = fli_malloc(rt, sizeof *w)))
      return FL_ENOMEM;
    memset(w, 0, sizeof *w);
    w->rt = rt;
    rt->spare_window = w;
  }
  w->owner = owner;
  w->of_owner = of_owner;
  w->next.id = 0;
  w->whole = false;
  w->around = 0;
  if (of_owner)
    *of_owner = w;
  w->epoch = ++rt->epochs;
  w->depth = 1;
  rt->window = w;
  rt->modes |= 1u << FLI_MODE_WINDOW;
  return FL_OK;
}

fl_status fli_window_close(fl_runtime *rt) {
  fli_window *w = rt->window;
  if (!w || --w->depth)
    return FL_OK;
  fl_status s = window_flush(w);
  if (w->of_owner)
    *w->of_owner = NULL;
  w->owner = NULL;
  w->of_owner = NULL;
  w->depth = w->around;
  w->around = 0;
  if (w->depth) /* the launches around the function wait */
    return s;
  rt->window = NULL;
  rt->modes &= ~(1u << FLI_MODE_WINDOW);
  return s;
}

fl_status fl_defer_begin(fl_runtime *rt) {
  FLI_NEED(rt, "rt");
  FLI_TRY(fli_check_owner(rt));
  return fli_window_open(rt, NULL, NULL);
}

fl_status fl_defer_end(fl_runtime *rt) {
  FLI_NEED(rt, "rt");
  FLI_TRY(fli_check_owner(rt));
  return fli_window_close(rt);
}

size_t fl_deferred_bytes(fl_runtime *rt) {
  FLI_NEED_OR(rt, "rt", 0);
  const fli_window *w = rt->window;
  size_t bytes = 0;
  for (uint32_t k = 0; w && k < w->n_slots; k++)
    if (w->slots[k].s && w->slots[k].s->pending && !w->slots[k].s->away)
      bytes += w->slots[k].bytes;
  return bytes;
}

void fli_window_free(fl_runtime *rt) {
  fli_window *w = rt->spare_window;
  if (!w)
    return;
  if (rt->window && w->of_owner)
    *w->of_owner = NULL;
  rt->window = rt->spare_window = NULL;
  for (uint32_t k = 0; k < w->n_slots; k++)
    window_forget(w, k);
  fli_mfree(w->entries);
  fli_mfree(w->args);
  fli_mfree(w->words);
  fli_mfree(w->slots);
  fli_mfree(w->notes);
  fli_mfree(w);
}

bool fli_mode_window(fl_runtime *rt, const fl_call *c, fl_status *status) {
  return c->op->flat && !rt->window->flushing && fli_flat_wait(rt, c, status);
}
