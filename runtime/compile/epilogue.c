/* Expressions behind a product: elementwise launches that read the result of a
 * row with FL_EPILOGUE run in its kernel, which gives them what it has computed
 * before it is stored. So do tiles of rows that are the channels of the result
 * of a row with FL_MOMENTS, and tiles without reductions behind a row with
 * FL_TAIL. The result itself is stored if something else reads it.
 */
#include "fuse.h"
#include "rows.h"

#include <string.h>

#define REACH 8 /* steps that a product lets pass */

/* --- which --- */

static const fli_entry *step_launch(const fuse *f, uint32_t s) {
  const fuse_step *x = &f->steps[s];
  return x->group ? NULL : &f->w->entries[f->parts[x->entry].origin];
}

/* Whether step s touches the slot; with `writes` whether it writes it. */
static bool step_touches(const fuse *f, uint32_t s, int slot, bool writes) {
  const fuse_group *g = f->steps[s].group;
  const fli_entry *e = step_launch(f, s);
  for (int k = 0; e && k < e->n_in + e->n_out; k++)
    if (fli_fuse_arg(f, e->arg + (uint32_t)k)->slot == slot &&
        (!writes || fli_fuse_writes(f, e, k)))
      return true;
  for (int k = 0; g && k < g->n_leaves && !writes; k++)
    if (g->leaves[k].slot == slot)
      return true;
  for (int k = 0; g && k < g->n_written; k++)
    if (g->written[k].slot == slot)
      return true;
  return false;
}

/* Whether the launch of step k could as well run right before step s. */
static bool step_waits(const fuse *f, uint32_t k, uint32_t s) {
  const fli_entry *e = step_launch(f, k);
  for (uint32_t i = k + 1; i < s; i++)
    for (int j = 0; j < e->n_in + e->n_out; j++) {
      int slot = fli_fuse_arg(f, e->arg + (uint32_t)j)->slot;
      if (slot >= 0 && step_touches(f, i, slot, j < e->n_in))
        return false;
    }
  return true;
}

/* Whether kernels of the row take what the group computes. A tile behind a norm
 * writes beside what the norm reads, so not with a cap of memory: a kernel of
 * its own writes over the norm's result. */
static bool row_takes(const fuse *f, const fl_op *op, const fuse_group *g) {
  if (g->inner)
    return fli_row_moments(op);
  return fli_row_epilogue(op) ||
         (fli_row_tail(op) && f->w->device != 0 && f->tiles && !f->c->memory);
}

/* Whether the step is a launch whose kernel takes an expression: its result is
 * new memory, and what the expression writes is no operand of it. */
static bool step_leads(const fuse *f, uint32_t k, const fuse_group *g) {
  const fli_entry *e = step_launch(f, k);
  if (!e || f->parts[f->steps[k].entry].role != FUSE_LAUNCH || e->writes ||
      !row_takes(f, e->op, g))
    return false;
  const fli_arg *y = fli_fuse_arg(f, e->arg + (uint32_t)e->n_in);
  if (!f->w->slots[y->slot].made || !fli_is_float(y->meta.dtype))
    return false;
  for (int j = 0; j < e->n_in + e->n_out; j++)
    for (int i = 0; i < g->n_written; i++)
      if (fli_fuse_arg(f, e->arg + (uint32_t)j)->slot == g->written[i].slot)
        return false;
  return true;
}

/* The step before s, at most REACH, that is launch `entry` of the planner's. */
static int step_of(const fuse *f, uint32_t s, uint32_t entry) {
  for (uint32_t k = s; k-- > 0 && k + REACH >= s;)
    if (!f->steps[k].group && f->steps[k].entry == entry)
      return (int)k;
  return -1;
}

int fli_fuse_leader(const fuse *f, uint32_t s) {
  const fuse_group *g = f->steps[s].group;
  int best = -1;
  if (!f->epilogues || f->c->exact || (g->inner && !g->tall))
    return -1;
  for (int i = 0; i < g->n_leaves; i++) {
    const fuse_leaf *x = &g->leaves[i];
    uint32_t def = x->kind != FL_LEAF_LOAD || x->mask >= 0 || x->slot < 0
                       ? FUSE_NONE
                       : fli_fuse_before(f, x->slot, x->time);
    if (def == FUSE_NONE)
      continue;
    const fli_entry *e = &f->entries[f->entry_of[def]];
    int k = step_of(f, s, f->entry_of[def]);
    if (k > best && def == e->arg + (uint32_t)e->n_in &&
        step_leads(f, (uint32_t)k, g) && step_waits(f, (uint32_t)k, s))
      best = k;
  }
  return best;
}

bool fli_fuse_in_product(const fuse *f, const fuse_group *g) {
  if (!f->epilogues || f->c->exact || f->w->device == 0 || g->n != 1 ||
      !fli_row_in_product(f->entries[g->entry[0]].op))
    return false;
  for (int i = 0; i < g->n_leaves; i++) {
    const fuse_leaf *x = &g->leaves[i];
    uint32_t def = x->kind == FL_LEAF_LOAD && x->mask < 0 && x->slot >= 0
                       ? fli_fuse_before(f, x->slot, x->time)
                       : FUSE_NONE;
    if (def != FUSE_NONE && fli_row_epilogue(f->entries[f->entry_of[def]].op))
      return true;
  }
  return false;
}

/* --- a step of both --- */

static void operand_of(const fli_arg *a, fli_fused_operand *o) {
  o->slot = a->slot;
  o->number = FUSE_NONE;
  o->meta = a->meta;
  o->offset = a->offset;
  memcpy(o->stride, a->stride, sizeof o->stride);
}

/* The operands of the row beside those of the expression, its result last; as
 * many of them are inputs. */
static int leader_operands(const fuse *f, const fli_entry *e,
                           fli_fused_operand *o, int *n_in) {
  int n = 0;
  *n_in = 0;
  for (int k = 0; k <= e->n_in + e->n_out; k++) {
    bool last = k == e->n_in + e->n_out;
    const fli_arg *a = fli_fuse_arg(f, e->arg + (uint32_t)(last ? e->n_in : k));
    if ((k == e->n_in && !last) || a->slot < 0)
      continue;
    operand_of(a, &o[n++]);
    *n_in += k < e->n_in;
  }
  return n;
}

fl_status fli_fuse_lead(fuse *f, uint32_t origin, int result, fli_step *x) {
  fli_plan *p = f->p;
  const fli_entry *e = &f->w->entries[origin];
  fli_fused_operand own[FL_MAX_PARAMS + FL_MAX_OUT];
  uint32_t at = p->n_steps;
  int n_in, n = leader_operands(f, e, own, &n_in);
  while (p->steps[at - 1].entry != origin || p->steps[at - 1].op)
    at--;
  FLI_TRY(fli_fuse_operands(f, p->n_operands + (uint32_t)n));
  fli_fused_operand *to = p->operands + x->operands;
  memmove(to + x->n_in + n_in, to + x->n_in, (size_t)x->n_out * sizeof *to);
  memcpy(to + x->n_in, own, (size_t)n_in * sizeof *to);
  memcpy(to + x->n_in + n_in + x->n_out, own + n_in,
         (size_t)(n - n_in) * sizeof *to);
  to[result].slot = FLI_ARG_NONE;
  p->n_operands += (uint32_t)n;
  x->n_in += n_in;
  x->n_out += n - n_in;
  x->leader = origin + 1;
  x->result = result;
  x->apart = p->steps[at - 1].apart;
  x->from = p->steps[at - 1].from;
  memmove(&p->steps[at - 1], &p->steps[at],
          (p->n_steps - at) * sizeof *p->steps);
  p->n_steps--;
  return fli_explain_leader(f, origin, x);
}

void fli_fuse_lead_finish(fuse *f) {
  fli_plan *p = f->p;
  for (uint32_t i = 0; i < p->n_steps; i++) {
    fli_step *x = &p->steps[i];
    if (!x->leader)
      continue;
    int slot = p->operands[(int)x->operands + x->n_in + x->n_out - 1].slot;
    /* a kernel that runs one after the other needs memory for it, which a cap
       would not know of */
    bool alone = !f->c->memory && !fli_fuse_stays(f, slot);
    for (uint32_t k = 0; k < p->n_steps && alone; k++)
      for (int j = fli_fuse_step_operands(f, &p->steps[k]); j-- > 0 && alone;) {
        bool writes;
        alone = k == i ||
                fli_fuse_step_operand(f, &p->steps[k], j, &writes) != slot;
      }
    x->n_out -= alone;
  }
}

/* --- running it --- */

/* The row's result as the expression reads it: without memory. */
static void result_view(const fli_fused_operand *o, fl_view *v) {
  v->dtype = o->meta.dtype;
  v->ndim = o->meta.ndim;
  v->data = NULL;
  memcpy(v->shape, o->meta.shape, (size_t)v->ndim * sizeof *v->shape);
  memcpy(v->stride, o->stride, (size_t)v->ndim * sizeof *v->stride);
}

fl_status fli_plan_epilogue(fli_window *w, const fli_plan *p,
                            const fli_step *x) {
  const fli_entry *e = &w->entries[x->leader - 1];
  const fl_program *program = x->op->program;
  int n_in = x->tile ? x->tile->n_in : program->n_in,
      n_out = x->tile ? x->tile->n_out : program->n_out;
  const fli_fused_operand *in = p->operands + x->operands, *out = in + x->n_in;
  const fli_arg *a = &w->args[e->arg];
  fl_view views[FL_MAX_PARAMS + FL_PROGRAM_IN + 2 * FL_MAX_OUT], *v = views;
  const fl_meta *metas[2] = {NULL, NULL};
  const fl_op *op;
  FLI_TRY(fli_epilogue_op(w->rt, &op));
  bool kept = x->n_out == n_out + e->n_out;
  for (int k = 0; k < e->n_in; k++)
    fli_window_view(w, &a[k], e->common, v++);
  for (int k = 0; k < n_in; k++)
    if (k == x->result)
      result_view(&in[k], v++);
    else
      fli_plan_view(w, &in[k], v++);
  for (int k = e->n_in; k < e->n_in + e->n_out; k++)
    fli_window_view(w, &a[k], e->common, v++);
  for (int k = 0; k < n_out; k++)
    fli_plan_view(w, &out[k], v++);
  for (int k = 0; k < 2 && k < e->n_in; k++)
    metas[k] = a[k].slot == FLI_ARG_NONE ? NULL : &a[k].meta;
  fl_launch l = {.n_in = e->n_in + n_in,
                 .n_out = e->n_out + n_out,
                 .in = views,
                 .out = views + e->n_in + n_in,
                 .attrs = fli_entry_attrs(w, e),
                 .program = program,
                 .tile = x->tile,
                 .row = e->op->kernel[w->device >> 8],
                 .row_in = e->n_in,
                 .row_out = e->n_out,
                 .row_result = x->result};
  if (!kept)
    views[l.n_in].data = NULL;
  return fli_window_send(w, e, op, &l, metas);
}
