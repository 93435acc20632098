/* Kernels before they are launched, which a backend may have to compile. Those
 * of a plan take longer than many calls: windows run without it meanwhile.
 * Those of a window that is new are compiled beside each other while its
 * launches run, in their order. */
#include "chunk.h"
#include "fuse.h"
#include "../ops/number.h"

#include <string.h>

/* Where operands will lie, as far as it is known: slots are apart, and aligned
 * as the slot's start will be. */
static void prepare_view(const fli_step *x, const fli_fused_operand *o,
                         fl_view *v) {
  fl_operand number = {.dtype = o->meta.dtype};
  if (o->slot == FLI_ARG_NUMBER)
    fli_view_number(&number, FL_NODTYPE, v);
  v->dtype = o->meta.dtype;
  v->ndim = 0;
  if (o->slot == FLI_ARG_NUMBER)
    return;
  v->data = (void *)((uintptr_t)(o->slot + 3) << 12);
  if (x->tile)
    return;
  v->data = (char *)v->data + o->offset * (int64_t)fl_dtype_size(v->dtype);
  v->ndim = o->meta.ndim;
  for (int i = 0; i < v->ndim; i++) {
    v->shape[i] = o->meta.shape[i];
    v->stride[i] = o->stride[i];
  }
}

/* The launch of an entry, which may be one that is repeated: those become
 * entries of the window when the plan runs. */
static const fli_entry *entry_of(const fli_plan *p, const fli_window *w,
                                 uint32_t e) {
  while (e >= w->n)
    e = p->repeats[e - w->n].entry;
  return &w->entries[e];
}

static void prepare_arg(const fli_step *x, const fli_entry *e, const fli_arg *a,
                        fl_view *v) {
  fli_fused_operand o = {.slot = a->slot, .meta = a->meta, .offset = a->offset};
  memcpy(o.stride, a->stride, sizeof o.stride);
  if (a->slot == FLI_ARG_NUMBER)
    fli_view_number(&a->operand, e->common, v);
  else
    prepare_view(x, &o, v);
  if (a->slot == FLI_ARG_NONE)
    v->data = NULL;
}

static void *no_scratch(fl_scratch *s, size_t bytes) {
  (void)s, (void)bytes;
  return NULL;
}

/* Of a step with a leader: its operands, and those of the expression behind a
 * result that lies as the expression reads it. */
static fl_status prepare_epilogue(const fli_plan *p, const fli_window *w,
                                  const fli_step *x, bool *ready) {
  fl_view views[FL_MAX_PARAMS + FL_PROGRAM_IN + 2 * FL_MAX_OUT], *v = views;
  fl_backend *b = fli_backend(w->rt, w->device);
  const fl_program *f = x->op->program;
  int n_in = x->tile ? x->tile->n_in : f->n_in,
      n_out = x->tile ? x->tile->n_out : f->n_out;
  fli_step own = *x; /* whose operands have shapes */
  const fli_fused_operand *o = p->operands + x->operands;
  const fli_entry *e = entry_of(p, w, x->leader - 1);
  const fli_arg *a = &w->args[e->arg];
  fl_scratch none = {.get = no_scratch};
  const fl_op *op;
  FLI_TRY(fli_epilogue_op(w->rt, &op));
  own.tile = NULL;
  for (int k = 0; k < e->n_in; k++)
    prepare_arg(&own, e, &a[k], v++);
  for (int k = 0; k < n_in; k++)
    prepare_view(x, &o[k], v++);
  for (int k = e->n_in; k < e->n_in + e->n_out; k++)
    prepare_arg(&own, e, &a[k], v++);
  for (int k = 0; k < n_out; k++)
    prepare_view(x, &o[x->n_in + k], v++);
  fl_launch l = {.op = op->info.name,
                 .n_in = e->n_in + n_in,
                 .n_out = e->n_out + n_out,
                 .in = views,
                 .out = views + e->n_in + n_in,
                 .attrs = fli_entry_attrs(w, e),
                 .program = f,
                 .tile = x->tile,
                 .row = e->op->kernel[w->device >> 8],
                 .row_in = e->n_in,
                 .row_out = e->n_out,
                 .row_result = x->result,
                 .scratch = &none,
                 .device = w->device & 255,
                 .stream = fli_stream(w->rt, w->device),
                 .probe = true};
  return b->prepare(b, op->kernel[w->device >> 8], &l, ready);
}

/* --- rows --- */

static void *some_scratch(fl_scratch *s, size_t bytes) {
  (void)s, (void)bytes;
  return (void *)((uintptr_t)1 << 12);
}

/* Where the operand lies, or could, if its storage has no memory yet. */
static void prepare_operand(const fli_window *w, const fli_entry *e,
                            const fli_arg *a, fl_view *v) {
  static const fli_step plain;
  const fl_storage *s = a->slot < 0 ? NULL : w->slots[a->slot].s;
  if (s && !s->pending)
    fli_window_view(w, a, e->common, v);
  else
    prepare_arg(&plain, e, a, v);
}

/* A launch of a row; what it fails with is for the launch to say. */
static void prepare_row(const fli_window *w, const fli_entry *e, bool *ready) {
  fl_backend *b = fli_backend(w->rt, w->device);
  fl_kernel kernel = e->op->kernel[w->device >> 8];
  int n = e->n_in + e->n_out;
  if (!(b->flags & FL_BACKEND_PROBES) || !kernel || e->op->native ||
      e->op->id >= FLI_OPS)
    return;
  fl_view *v = fli_malloc(w->rt, (size_t)n * sizeof *v);
  fl_scratch some = {.get = some_scratch};
  if (!v)
    return;
  for (int k = 0; k < n; k++)
    prepare_operand(w, e, &w->args[e->arg + (uint32_t)k], &v[k]);
  if (e->op->marks & FLI_MARK_POINTWISE)
    fli_views_by_memory(e->n_in, v, e->n_out, v + e->n_in);
  fl_launch l = {.op = e->op->info.name,
                 .n_in = e->n_in,
                 .n_out = e->n_out,
                 .in = v,
                 .out = v + e->n_in,
                 .attrs = fli_entry_attrs(w, e),
                 .base = e->base,
                 .writes = e->writes,
                 .scratch = &some,
                 .device = w->device & 255,
                 .stream = fli_stream(w->rt, w->device),
                 .probe = true};
  bool there = true;
  if (b->prepare(b, kernel, &l, &there) == FL_OK && !there)
    *ready = false;
  fli_mfree(v);
}

void fli_window_prepare(const fli_window *w) {
  bool ready; /* they are not waited for */
  fl_backend *b = fli_backend(w->rt, w->device);
  if (!b->prepare || !(b->flags & FL_BACKEND_PROBES) || w->rt->capture)
    return;
  bool *flags = fli_malloc(w->rt, w->n_slots + w->n);
  if (!flags)
    return;
  for (uint32_t k = 0; k < w->n_slots; k++)
    flags[k] = !w->slots[k].made || w->slots[k].held;
  fli_window_runs(w, flags, flags + w->n_slots);
  for (uint32_t i = 0; i < w->n; i++)
    if (flags[w->n_slots + i])
      prepare_row(w, &w->entries[i], &ready);
  fli_mfree(flags);
}

/* --- steps --- */

static fl_status prepare_step(const fli_plan *p, const fli_window *w,
                              const fli_step *x, bool *ready) {
  fl_view v[FL_TILE_OPERANDS];
  fl_backend *b = fli_backend(w->rt, w->device);
  for (int k = 0; k < x->n_in + x->n_out; k++)
    prepare_view(x, &p->operands[x->operands + (uint32_t)k], &v[k]);
  fl_launch l = {.op = x->op->info.name,
                 .n_in = x->n_in,
                 .n_out = x->n_out,
                 .in = v,
                 .out = v + x->n_in,
                 .attrs = &x->op->defaults,
                 .program = x->op->program,
                 .tile = x->tile,
                 .device = w->device & 255,
                 .stream = fli_stream(w->rt, w->device),
                 .probe = true};
  return b->prepare(b, x->op->kernel[w->device >> 8], &l, ready);
}

/* One that needs scratch memory is made when it is launched. */
static void prepare_list(const fli_plan *p, const fli_window *w,
                         const fli_step *x, bool *ready) {
  fl_view v[2 * FLI_LIST_MOST];
  fl_backend *b = fli_backend(w->rt, w->device);
  const fli_fused_operand *o = &p->operands[x->operands];
  fl_scratch none = {.get = no_scratch};
  for (int k = 0; k < x->n_in; k++) {
    prepare_view(x, &o[x->n_in + k], &v[k]);
    prepare_view(x, &o[k], &v[x->n_in + k]);
  }
  fl_launch l = {.op = x->op->info.name,
                 .n_in = 2 * x->n_in,
                 .in = v,
                 .attrs = &x->op->defaults,
                 .scratch = &none,
                 .device = w->device & 255,
                 .stream = fli_stream(w->rt, w->device),
                 .probe = true};
  if (b->prepare(b, x->op->kernel[w->device >> 8], &l, ready))
    *ready = true;
}

static fl_status prepare_any(const fli_plan *p, const fli_window *w,
                             const fli_step *x, bool *ready) {
  if (x->loop)
    return fli_loop_prepare(x->loop, ready);
  if (x->leader)
    return prepare_epilogue(p, w, x, ready);
  if (x->list)
    prepare_list(p, w, x, ready);
  else if (x->tile || (x->op && x->op->program))
    return prepare_step(p, w, x, ready);
  else if (!x->op)
    prepare_row(w, entry_of(p, w, x->entry), ready);
  return FL_OK;
}

fl_status fli_plan_prepare(fli_plan *p, const fli_window *w) {
  bool all = true;
  if (!fli_backend(w->rt, w->device)->prepare) {
    p->prepared = p->n_steps;
    return FL_OK;
  }
  for (uint32_t i = p->prepared; i < p->n_steps; i++) {
    fli_step *x = &p->steps[i];
    bool ready = true;
    if (!x->ready)
      FLI_TRY(prepare_any(p, w, x, &ready));
    x->ready = ready;
    all = all && ready;
    p->prepared += all;
  }
  return FL_OK;
}
