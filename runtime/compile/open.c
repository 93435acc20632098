/* Opened launches: a row with bodies (rows.h) becomes a launch for each of
 * them, over operands that are seen with the dims of its loops, so that the
 * planner fuses each with what comes before and after it. */
#include "fuse.h"
#include "rows.h"

#include <string.h>

typedef struct opening { /* a launch of the window */
  fuse *f;
  uint32_t origin;
  const fli_entry *e;
  const fli_row_facts *row;
  fl_meta space; /* of its loops */
  uint32_t reduced;
  int64_t groups; /* of channels; 0: dims are those of the operands */
} opening;

static const fli_arg *opened_arg(const opening *o, int k) {
  return &o->f->args[o->e->arg + (uint32_t)k];
}

static const char *result_name(const opening *o, int k) {
  const char *name = o->e->op->info.out_name[k];
  return name[0] ? name : "result";
}

/* --- operands by the dims of the loops --- */

/* (N, C, ...) as (N, groups, C / groups, ...). */
static bool see_groups(const opening *o, fli_arg *a) {
  int64_t size = a->meta.shape[1] / o->groups, stride = a->stride[1];
  if (a->meta.ndim == FL_MAX_DIMS)
    return false;
  for (int i = a->meta.ndim++; i > 2; i--) {
    a->meta.shape[i] = a->meta.shape[i - 1];
    a->stride[i] = a->stride[i - 1];
  }
  a->meta.shape[1] = o->groups;
  a->stride[1] = stride * size;
  a->meta.shape[2] = size;
  a->stride[2] = stride;
  return true;
}

/* (C) as (groups, C / groups, 1, ...). */
static void see_channels(const opening *o, fli_arg *a) {
  int64_t size = a->meta.shape[0] / o->groups, stride = a->stride[0];
  a->meta.ndim = o->space.ndim - 1;
  for (int i = 0; i < a->meta.ndim; i++) {
    a->meta.shape[i] = i == 0 ? o->groups : i == 1 ? size : 1;
    a->stride[i] = i == 0 ? stride * size : i == 1 ? stride : 0;
  }
}

/* One element for each row, as if the reduced dims were kept. */
static bool see_rows(const opening *o, fli_arg *a) {
  fli_arg y = *a;
  int d = 0;
  y.meta.ndim = o->space.ndim;
  for (int i = 0; i < o->space.ndim; i++) {
    y.meta.shape[i] = 1;
    y.stride[i] = 0;
    if (o->reduced >> i & 1 || o->space.shape[i] == 1)
      continue;
    while (d < a->meta.ndim && a->meta.shape[d] == 1)
      d++;
    if (d == a->meta.ndim || a->meta.shape[d] != o->space.shape[i])
      return false;
    y.meta.shape[i] = a->meta.shape[d];
    y.stride[i] = a->stride[d++];
  }
  *a = y;
  return true;
}

static bool same_as_x(const opening *o, const fli_arg *a) {
  return fli_same_shape(&opened_arg(o, 0)->meta, &a->meta);
}

static bool see_input(const opening *o, int k, fli_arg *a) {
  if (a->slot < 0)
    return a->slot == FLI_ARG_NONE;
  if (fli_row_lists(o->row->by_row, fli_row_input(o->e->op, k)))
    return see_rows(o, a);
  if (!o->groups)
    return true;
  if (same_as_x(o, a))
    return see_groups(o, a);
  if (a->meta.ndim != 1 || a->meta.shape[0] % o->groups)
    return false;
  see_channels(o, a);
  return true;
}

static bool see_result(const opening *o, fli_arg *a) {
  if (!same_as_x(o, a))
    return see_rows(o, a);
  return !o->groups || see_groups(o, a);
}

/* --- launches --- */

static bool opening_begin(opening *o) {
  const fl_attrs *attrs = fli_entry_attrs(o->f->w, o->e);
  fli_arg x = *opened_arg(o, 0);
  if (x.slot < 0 || fl_dtype_kind(x.meta.dtype) != FL_KIND_FLOAT)
    return false;
  if (o->row->over == FLI_OVER_GROUPS) {
    const fl_op *op = o->e->op;
    for (int k = 0; k < op->info.n_params; k++)
      if (op->info.params[k].kind == FL_P_INT)
        o->groups = attrs->v[op->info.params[k].slot].i;
    if (x.meta.ndim < 2 || o->groups < 1 || x.meta.shape[1] % o->groups ||
        !see_groups(o, &x))
      return false;
  }
  o->space = x.meta;
  o->reduced = fli_row_reduced(o->e->op, attrs, &o->space);
  int64_t inner = 1;
  for (int i = 0; i < x.meta.ndim; i++) {
    inner *= o->reduced >> i & 1 ? x.meta.shape[i] : 1;
    if (x.meta.shape[i] == 0)
      return false;
  }
  return inner > 1;
}

/* Adds an operand behind those of the window. */
static fli_arg *add_arg(opening *o, const fli_arg *a) {
  fli_arg *y = &o->f->args[o->f->n_args++];
  *y = *a;
  return y;
}

static bool part_inputs(opening *o, fli_entry *to, fuse_part *part) {
  to->arg = o->f->n_args;
  for (int k = 0; k < o->e->n_in; k++)
    if (!see_input(o, k, add_arg(o, opened_arg(o, k))))
      return false;
  for (int k = 0; k < o->e->n_out && part->text == o->row->each; k++) {
    if (!fli_row_assigns(o->row->body, result_name(o, k)))
      continue;
    fli_arg *a = add_arg(o, opened_arg(o, o->e->n_in + k));
    if (!see_result(o, a) || fl_dtype_size(a->meta.dtype) < 4)
      return false; /* it is read again: rounded */
    part->more[part->n_more++] = (int8_t)k;
    to->n_in++;
  }
  return true;
}

static bool part_results(opening *o, fli_entry *to, fuse_part *part) {
  const fl_attrs *attrs = fli_entry_attrs(o->f->w, o->e);
  to->n_out = 0;
  for (int k = 0; k < o->e->n_out; k++) {
    if (!fli_row_assigns(part->text, result_name(o, k)))
      continue;
    fli_arg *a = add_arg(o, opened_arg(o, o->e->n_in + k));
    if (a->slot < 0 || !see_result(o, a))
      return false;
    part->writes[to->n_out++] = (int8_t)k;
  }
  for (int k = 0; k < o->e->n_in && part->text == o->row->body; k++) {
    if (!fli_op_writes(o->e->op, attrs, o->e->n_in, k) ||
        opened_arg(o, k)->slot < 0)
      continue;
    if (to->n_out == FL_MAX_OUT ||
        !see_input(o, k, add_arg(o, opened_arg(o, k))))
      return false;
    part->writes[to->n_out++] = (int8_t)(-1 - k);
  }
  return to->n_out > 0;
}

static bool open_part(opening *o, const char *text) {
  fuse *f = o->f;
  fli_entry *to = &f->entries[f->n];
  fuse_part *part = &f->parts[f->n];
  *to = *o->e;
  to->writes = false;
  *part = (fuse_part){
      .origin = o->origin, .role = FUSE_BODY, .text = text, .count = 1};
  part->reduced = text == o->row->body ? o->reduced : 0;
  for (int i = 0; i < o->space.ndim; i++)
    part->count *= o->reduced >> i & 1 ? o->space.shape[i] : 1;
  if (!part_inputs(o, to, part) || !part_results(o, to, part))
    return false;
  f->n++;
  return true;
}

/* False: it stays one launch. */
static bool open_entry(fuse *f, uint32_t i) {
  const fli_entry *e = &f->w->entries[i];
  opening o = {.f = f, .origin = i, .e = e, .row = fli_row_facts_of(e->op)};
  uint32_t n = f->n, n_args = f->n_args;
  if (!f->tiles || f->c->exact || f->closed[fli_fuse_origin(f, i)] ||
      !o.row->body || (e->writes && !o.row->each) || !opening_begin(&o))
    return false;
  bool good = open_part(&o, o.row->body) &&
              (!o.row->each || open_part(&o, o.row->each));
  if (!good) {
    f->n = n;
    f->n_args = n_args;
    return false;
  }
  for (uint32_t k = n; k < f->n; k++)
    f->parts[k].parts = (int)(f->n - n);
  return true;
}

/* Room for the operands of parts. */
static bool open_room(fuse *f, uint32_t *launches) {
  const fli_window *w = f->w;
  size_t args = w->n_args;
  *launches = w->n;
  for (uint32_t i = 0; i < w->n; i++) {
    const fli_entry *e = &w->entries[i];
    fli_indexing x;
    if (!fli_row_facts_of(e->op)->body &&
        !fli_row_indexes(e->op, fli_entry_attrs(w, e), &x))
      continue;
    args += 2 * (size_t)(e->n_in + e->n_out + FL_MAX_OUT);
    *launches += 1;
  }
  fli_arg *more = fli_malloc(f->rt, args * sizeof *more + 1);
  if (!more)
    return false;
  memcpy(more, f->args, w->n_args * sizeof *more);
  fli_mfree(f->args);
  f->args = more;
  f->n_args = w->n_args;
  return true;
}

fl_status fli_fuse_open(fuse *f) {
  uint32_t launches;
  if (!open_room(f, &launches))
    return FL_ENOMEM;
  uint32_t *order = fli_malloc(f->rt, f->w->n * sizeof *order + 1);
  fl_status s = order ? fli_fuse_early(f, order) : FL_ENOMEM;
  f->entries =
      fli_malloc(f->rt, launches * (sizeof *f->entries + sizeof *f->parts) + 1);
  bool *runs = fli_malloc(f->rt, launches + 1);
  if (s || !f->entries || !runs) {
    fli_mfree(runs);
    fli_mfree(order);
    return s ? s : FL_ENOMEM;
  }
  f->parts = (fuse_part *)(void *)(f->entries + launches);
  for (uint32_t k = 0; k < f->w->n; k++) {
    uint32_t i = order[k], first = f->n;
    if (!f->runs[i] || !(open_entry(f, i) || fli_fuse_open_sum(f, i))) {
      f->entries[f->n] = f->w->entries[i];
      f->parts[f->n++] = (fuse_part){.origin = i, .parts = 1};
    }
    for (uint32_t part = first; part < f->n; part++)
      runs[part] = f->runs[i];
  }
  fli_mfree(order);
  fli_mfree(f->runs);
  f->runs = runs;
  return FL_OK;
}
