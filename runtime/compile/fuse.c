/* Plans: elementwise launches that follow each other become one kernel, an
 * expression (expr/). Groups are open while later launches may still join;
 * a launch that must come after one of a group closes it. */
#include "compile.h"

#include "../expr/expr.h"

#include <string.h>

#define OPEN     16  /* groups at once */
#define MEMBERS  64  /* launches of a group */
#define DISTANCE 8   /* launches of others that a group lets pass */
#define NODES    384 /* of a group's expression */

typedef struct fuse_value { /* of an operand in a group's expression */
  uint32_t arg;
  fl_value value;
} fuse_value;

typedef struct fuse_group {
  bool open;
  uint32_t age;
  int n, n_in, n_written;
  uint32_t entry[MEMBERS];
  fuse_value in[FL_PROGRAM_IN];
  fuse_value written[MEMBERS];
  fli_graph graph;
} fuse_group;

typedef struct fuse {
  const fl_compiled *c;
  const fli_window *w;
  bool *runs; /* launches whose results are needed */
  fli_plan *p;
  fl_runtime *rt;
  uint32_t room;
  uint32_t *uses;    /* by launches that run, of each slot */
  uint32_t *readers; /* open groups that read the slot, a bit each */
  int8_t *writer;    /* the open group that writes it, -1 */
  fuse_group *groups;
} fuse;

static const fli_arg *arg_of(const fuse *f, uint32_t k) {
  return &f->w->args[k];
}

/* --- steps --- */

static fl_status fuse_step(fuse *f, const fli_step *x) {
  fli_plan *p = f->p;
  if (p->n_steps == f->room) {
    uint32_t room = f->room ? 2 * f->room : 64;
    fli_step *more = fli_malloc(f->rt, room * sizeof *more);
    if (!more)
      return FL_ENOMEM;
    if (p->n_steps)
      memcpy(more, p->steps, p->n_steps * sizeof *more);
    fli_mfree(p->steps);
    p->steps = more;
    f->room = room;
  }
  p->steps[p->n_steps++] = *x;
  return FL_OK;
}

static fl_status fuse_number(fuse *f, uint32_t v) {
  return fli_plan_number(f->rt, f->p, v) ? FL_OK : FL_ENOMEM;
}

/* Launches of the group that touch the slot. */
static uint32_t inner_uses(const fuse *f, const fuse_group *g, int slot) {
  uint32_t n = 0;
  for (int i = 0; i < g->n; i++) {
    const fli_entry *e = &f->w->entries[g->entry[i]];
    bool touches = false;
    for (int k = 0; k < e->n_in + e->n_out; k++)
      touches |= arg_of(f, e->arg + (uint32_t)k)->slot == slot;
    n += touches;
  }
  return n;
}

/* Whether anything outside the group reads what it writes to the slot; `more`
 * further uses are inside. */
static bool stays(const fuse *f, const fuse_group *g, int slot, uint32_t more) {
  return !f->w->slots[slot].made || f->p->held[slot] ||
         f->uses[slot] > inner_uses(f, g, slot) + more;
}

static fl_status emit_alone(fuse *f, uint32_t entry) {
  fli_step x = {.entry = entry};
  return fuse_step(f, &x);
}

static fl_status emit_fused(fuse *f, fuse_group *g) {
  fli_step x = {.entry = g->entry[g->n - 1],
                .n_in = g->n_in,
                .operands = f->p->n_numbers};
  fl_value out[FL_MAX_OUT];
  fl_dtype dtypes[FL_MAX_OUT];
  for (int k = 0; k < g->n_in; k++)
    FLI_TRY(fuse_number(f, g->in[k].arg));
  for (int k = 0; k < g->n_written; k++) {
    const fli_arg *a = arg_of(f, g->written[k].arg);
    if (!stays(f, g, a->slot, 0))
      continue;
    dtypes[x.n_out] = a->meta.dtype;
    out[x.n_out++] = g->written[k].value;
    FLI_TRY(fuse_number(f, g->written[k].arg));
  }
  fli_op_request q = {.name = "fused",
                      .graph = &g->graph,
                      .n_out = x.n_out,
                      .out = out,
                      .out_dtype = dtypes,
                      .separate = f->c->exact};
  FLI_TRY(fli_expr_intern(f->rt, &q, &x.op));
  return x.op->kernel[f->w->device >> 8]
             ? fuse_step(f, &x)
             : fli_fail(FL_EUNSUPPORTED, "the backend runs no expressions");
}

static void forget_group(fuse *f, int i) {
  fuse_group *g = &f->groups[i];
  for (uint32_t k = 0; k < f->w->n_slots; k++) {
    f->readers[k] &= ~(1u << i);
    if (f->writer[k] == i)
      f->writer[k] = -1;
  }
  fli_graph_close(&g->graph);
  g->open = false;
}

static fl_status close_group(fuse *f, int i) {
  fuse_group *g = &f->groups[i];
  fl_status s = g->n == 1 ? emit_alone(f, g->entry[0]) : emit_fused(f, g);
  forget_group(f, i);
  return s;
}

static fl_status close_groups(fuse *f, uint32_t which) {
  for (int i = 0; i < OPEN; i++)
    if (which >> i & 1)
      FLI_TRY(close_group(f, i));
  return FL_OK;
}

/* --- which launches can be fused --- */

/* The registers of expressions are f32, f64, i64 and bool, so narrower integers
 * would not wrap around. With `exact` 16-bit floats must be rounded each time.
 */
static bool fits_register(const fuse *f, fl_dtype d) {
  if (fl_dtype_kind(d) == FL_KIND_FLOAT)
    return !f->c->exact || fl_dtype_size(d) > 2;
  return d == FL_BOOL || d == FL_I64;
}

/* The number of the input whose value the launch copies; -1: it computes a new
 * value. A kernel that overwrites its result does not read the old one. */
static int moved_input(const fli_entry *e) {
  if (e->op->marks & FLI_MARK_OVERWRITES && e->n_in == 2)
    return 1;
  return e->op->marks & FLI_MARK_IDENTITY && e->n_in == 1 ? 0 : -1;
}

static bool fusable(const fuse *f, const fli_entry *e) {
  const fl_op *op = e->op;
  if (op->id >= FLI_OPS || e->n_out != 1 || e->n_in > 3 ||
      (op->family > FLI_TERNARY && moved_input(e) < 0))
    return false;
  const fli_arg *out = arg_of(f, e->arg + (uint32_t)e->n_in);
  if (!fits_register(f, out->meta.dtype))
    return false;
  for (int k = 0; k < e->n_in; k++) {
    const fli_arg *a = arg_of(f, e->arg + (uint32_t)k);
    if (a->slot == FLI_ARG_NONE || fli_is_complex(a->meta.dtype))
      return false;
  }
  for (int i = 0; i < out->meta.ndim; i++)
    if (out->meta.shape[i] == 0)
      return false;
  return true;
}

/* Open groups that must run before the launch. */
static uint32_t conflicts_of(const fuse *f, const fli_entry *e) {
  uint32_t mask = 0;
  for (int k = 0; k < e->n_in + e->n_out; k++) {
    int slot = arg_of(f, e->arg + (uint32_t)k)->slot;
    if (slot < 0)
      continue;
    if (f->writer[slot] >= 0)
      mask |= 1u << f->writer[slot];
    if (k >= e->n_in ||
        fli_op_writes(e->op, fli_entry_attrs(f->w, e), e->n_in, k))
      mask |= f->readers[slot];
  }
  return mask;
}

/* The node of the group's expression for an operand; NULL: none yet. */
static const fuse_value *value_of(const fuse *f, const fuse_group *g,
                                  const fli_arg *a) {
  for (int k = 0; k < g->n_written; k++)
    if (fli_same_region(arg_of(f, g->written[k].arg), a))
      return &g->written[k];
  for (int k = 0; k < g->n_in && a->slot >= 0; k++)
    if (fli_same_region(arg_of(f, g->in[k].arg), a))
      return &g->in[k];
  return NULL;
}

/* Whether the launch can join the group: regions that one of them writes are
 * the same in the other, and there is room. */
static bool can_join(const fuse *f, int i, const fli_entry *e) {
  const fuse_group *g = &f->groups[i];
  const fli_arg *out = arg_of(f, e->arg + (uint32_t)e->n_in);
  const fli_entry *first = &f->w->entries[g->entry[0]];
  int n_in = g->n_in, n_out = 0;
  if (g->n == MEMBERS || g->graph.n > NODES ||
      !fli_same_shape(&out->meta,
                      &arg_of(f, first->arg + (uint32_t)first->n_in)->meta))
    return false;
  for (int k = 0; k < e->n_in; k++) {
    const fli_arg *a = arg_of(f, e->arg + (uint32_t)k);
    const fuse_value *v = value_of(f, g, a);
    if (a->slot >= 0 && f->writer[a->slot] == i &&
        !(v && v->value.dtype == FLI_NODE && v >= g->written &&
          v < g->written + g->n_written))
      return false; /* another region of what the group writes */
    if (!v)
      n_in++;
  }
  for (int k = 0; k < g->n_in; k++) {
    const fli_arg *a = arg_of(f, g->in[k].arg);
    if (a->slot == out->slot && !fli_same_region(a, out))
      return false;
  }
  bool again = false;
  for (int k = 0; k < g->n_written; k++) {
    const fli_arg *a = arg_of(f, g->written[k].arg);
    if (a->slot == out->slot && !fli_same_region(a, out))
      return false;
    again |= a->slot == out->slot;
    bool inside = a->slot == out->slot;
    for (int j = 0; j < e->n_in; j++)
      inside |= arg_of(f, e->arg + (uint32_t)j)->slot == a->slot;
    n_out += stays(f, g, a->slot, inside);
  }
  if (!again)
    n_out++;
  return n_in <= FL_PROGRAM_IN && n_out <= FL_MAX_OUT;
}

/* Whether the launch reads the storage of its result as another region than it
 * writes. */
static bool overlaps(const fuse *f, const fli_entry *e) {
  const fli_arg *out = arg_of(f, e->arg + (uint32_t)e->n_in);
  for (int k = 0; k < e->n_in; k++) {
    const fli_arg *a = arg_of(f, e->arg + (uint32_t)k);
    if (a->slot == out->slot && !fli_same_region(a, out) && k >= moved_input(e))
      return true;
  }
  return false;
}

/* --- building a group --- */

static fl_status group_operand(fuse *f, fuse_group *g, uint32_t k,
                               fl_value *v) {
  const fli_arg *a = arg_of(f, k);
  const fuse_value *old = value_of(f, g, a);
  if (old) {
    *v = old->value;
    return FL_OK;
  }
  int weak = a->slot < 0         ? FLI_NUMBER
             : a->meta.ndim == 0 ? FLI_TENSOR_0D
                                 : FLI_TENSOR;
  FLI_TRY(fli_graph_input(&g->graph, a->meta.dtype, weak, v));
  g->in[g->n_in++] = (fuse_value){k, *v};
  return FL_OK;
}

/* The value of the launch's result; *fits is false if the expression's dtype
 * would not be the launch's. */
static fl_status group_value(fuse *f, fuse_group *g, const fli_entry *e,
                             fl_value *y, bool *fits) {
  fl_value in[3];
  const fli_arg *out = arg_of(f, e->arg + (uint32_t)e->n_in);
  int moved = moved_input(e);
  for (int k = moved > 0 ? moved : 0; k < e->n_in; k++)
    FLI_TRY(group_operand(f, g, e->arg + (uint32_t)k, &in[k]));
  *fits = true;
  if (moved >= 0)
    return fli_graph_cast(&g->graph, in[moved], out->meta.dtype, y);
  FLI_TRY(fli_graph_apply(&g->graph, e->op->id, fli_entry_attrs(f->w, e),
                          e->n_in, in, y));
  bool test = e->op->family == FLI_TEST || e->op->family == FLI_COMPARE;
  fl_dtype d = fli_graph_dtype(&g->graph, *y);
  *fits = y->dtype == FLI_NODE && d == (test ? FL_BOOL : e->common) &&
          fits_register(f, d);
  if (*fits && d != out->meta.dtype)
    return fli_graph_cast(&g->graph, *y, out->meta.dtype, y);
  return FL_OK;
}

static void group_wrote(fuse *f, int i, const fli_entry *e, fl_value y) {
  fuse_group *g = &f->groups[i];
  uint32_t k = e->arg + (uint32_t)e->n_in;
  int slot = arg_of(f, k)->slot, at = 0;
  while (at < g->n_written && arg_of(f, g->written[at].arg)->slot != slot)
    at++;
  g->written[at] = (fuse_value){k, y};
  if (at == g->n_written)
    g->n_written++;
  f->writer[slot] = (int8_t)i;
  for (int j = 0; j < e->n_in; j++) {
    int in = arg_of(f, e->arg + (uint32_t)j)->slot;
    if (in >= 0)
      f->readers[in] |= 1u << i;
  }
}

/* *joined: false leaves the group as it was. */
static fl_status join(fuse *f, int i, uint32_t entry, bool *joined) {
  fuse_group *g = &f->groups[i];
  const fli_entry *e = &f->w->entries[entry];
  int n = g->graph.n, graph_in = g->graph.n_in, n_in = g->n_in;
  fl_value y;
  FLI_TRY(group_value(f, g, e, &y, joined));
  if (!*joined) {
    g->graph.n = n;
    g->graph.n_in = graph_in;
    g->n_in = n_in;
    return FL_OK;
  }
  g->entry[g->n++] = entry;
  g->age = 0;
  group_wrote(f, i, e, y);
  return FL_OK;
}

static fl_status new_group(fuse *f, uint32_t entry) {
  int i = 0, oldest = 0;
  for (; i < OPEN && f->groups[i].open; i++)
    if (f->groups[i].age > f->groups[oldest].age)
      oldest = i;
  if (i == OPEN)
    FLI_TRY(close_group(f, i = oldest));
  fuse_group *g = &f->groups[i];
  g->open = true;
  g->age = 0;
  g->n = g->n_in = g->n_written = 0;
  fli_graph_open(&g->graph, f->rt);
  bool joined;
  FLI_TRY(join(f, i, entry, &joined));
  if (joined)
    return FL_OK;
  forget_group(f, i);
  return emit_alone(f, entry);
}

/* An open group that the launch can join: one that has to run before it
 * otherwise, or one that reads an input of the launch; -1: none. */
static int partner(const fuse *f, const fli_entry *e, uint32_t conflicts) {
  uint32_t readers = 0;
  for (int k = 0; k < e->n_in; k++) {
    int slot = arg_of(f, e->arg + (uint32_t)k)->slot;
    readers |= slot >= 0 ? f->readers[slot] : 0;
  }
  for (int i = OPEN; i-- > 0;)
    if (conflicts >> i & 1 && can_join(f, i, e))
      return i;
  for (int i = OPEN; i-- > 0;)
    if (readers >> i & 1 && can_join(f, i, e))
      return i;
  return -1;
}

static fl_status add_fusable(fuse *f, uint32_t i) {
  const fli_entry *e = &f->w->entries[i];
  uint32_t conflicts = conflicts_of(f, e);
  int g = partner(f, e, conflicts);
  bool joined = false;
  if (g >= 0) {
    FLI_TRY(close_groups(f, conflicts & ~(1u << g)));
    FLI_TRY(join(f, g, i, &joined));
    if (joined)
      return FL_OK;
    FLI_TRY(close_group(f, g));
    conflicts = 0;
  }
  FLI_TRY(close_groups(f, conflicts));
  return new_group(f, i);
}

static fl_status add_other(fuse *f, uint32_t i) {
  FLI_TRY(close_groups(f, conflicts_of(f, &f->w->entries[i])));
  FLI_TRY(emit_alone(f, i));
  uint32_t old = 0;
  for (int k = 0; k < OPEN; k++)
    if (f->groups[k].open && ++f->groups[k].age > DISTANCE)
      old |= 1u << k;
  return close_groups(f, old);
}

/* --- memory --- */

/* Calls visit(slot) for what a step touches in memory. */
static void step_slots(const fuse *f, const fli_step *x, uint32_t *slots,
                       int *n) {
  const fli_entry *e = &f->w->entries[x->entry];
  int count = x->op ? x->n_in + x->n_out : e->n_in + e->n_out;
  *n = 0;
  for (int k = 0; k < count; k++) {
    uint32_t arg =
        x->op ? f->p->numbers[x->operands + (uint32_t)k] : e->arg + (uint32_t)k;
    int slot = arg_of(f, arg)->slot;
    if (slot >= 0)
      slots[(*n)++] = (uint32_t)slot;
  }
}

/* Lists the slots that get memory before each step, and those that lose it
 * after it. */
static fl_status plan_memory(fuse *f) {
  fli_plan *p = f->p;
  int most = 1, n;
  for (uint32_t i = 0; i < p->n_steps; i++) {
    const fli_entry *e = &f->w->entries[p->steps[i].entry];
    int count =
        p->steps[i].op ? FL_PROGRAM_IN + FL_MAX_OUT : e->n_in + e->n_out;
    most = count > most ? count : most;
  }
  uint32_t *last = fli_malloc(f->rt, f->w->n_slots * sizeof *last +
                                         (size_t)most * sizeof *last);
  if (!last)
    return FL_ENOMEM;
  uint32_t *slots = last + f->w->n_slots;
  for (uint32_t i = 0; i < p->n_steps; i++) {
    step_slots(f, &p->steps[i], slots, &n);
    for (int k = 0; k < n; k++)
      last[slots[k]] = i;
  }
  fl_status s = FL_OK;
  for (uint32_t i = 0; i < p->n_steps && s == FL_OK; i++) {
    fli_step *x = &p->steps[i];
    step_slots(f, x, slots, &n);
    x->made = p->n_numbers;
    for (int k = 0; k < n && s == FL_OK; k++)
      if (f->w->slots[slots[k]].made)
        s = fuse_number(f, slots[k]);
    x->n_made = p->n_numbers - x->made;
    x->last = p->n_numbers;
    for (int k = 0; k < n && s == FL_OK; k++)
      if (last[slots[k]] == i) {
        s = fuse_number(f, slots[k]);
        last[slots[k]] = UINT32_MAX; /* once */
      }
    x->n_last = p->n_numbers - x->last;
  }
  fli_mfree(last);
  return s;
}

/* --- the plan --- */

static void count_uses(fuse *f) {
  for (uint32_t i = 0; i < f->w->n; i++) {
    const fli_entry *e = &f->w->entries[i];
    for (int k = 0; f->runs[i] && k < e->n_in + e->n_out; k++) {
      int slot = arg_of(f, e->arg + (uint32_t)k)->slot;
      bool before = slot < 0;
      for (int j = 0; j < k && !before; j++)
        before = arg_of(f, e->arg + (uint32_t)j)->slot == slot;
      if (!before)
        f->uses[slot]++;
    }
  }
}

static fl_status fuse_all(fuse *f) {
  count_uses(f);
  for (uint32_t i = 0; i < f->w->n; i++) {
    const fli_entry *e = &f->w->entries[i];
    if (f->runs[i])
      FLI_TRY(fusable(f, e) && !overlaps(f, e) ? add_fusable(f, i)
                                               : add_other(f, i));
  }
  for (int i = 0; i < OPEN; i++)
    if (f->groups[i].open)
      FLI_TRY(close_group(f, i));
  return plan_memory(f);
}

fl_status fli_plan_build(fl_compiled *c, fli_plan *p, const fli_window *w) {
  fuse f = {.c = c, .w = w, .p = p, .rt = w->rt};
  size_t slots = w->n_slots;
  f.uses = fli_malloc(w->rt, slots * (2 * sizeof(uint32_t) + 2) + w->n);
  f.groups = fli_malloc(w->rt, OPEN * sizeof *f.groups);
  fl_status s = f.uses && f.groups ? FL_OK : FL_ENOMEM;
  if (s == FL_OK) {
    f.readers = f.uses + slots;
    f.writer = (int8_t *)(f.readers + slots);
    memset(f.uses, 0, 2 * slots * sizeof *f.uses);
    memset(f.writer, -1, slots);
    bool *needed = (bool *)(f.writer + slots);
    for (size_t k = 0; k < slots; k++)
      needed[k] = !p->made[k] || p->held[k];
    fli_window_runs(w, needed, f.runs = needed + slots);
    for (int i = 0; i < OPEN; i++)
      f.groups[i].open = false;
    s = fuse_all(&f);
    for (int i = 0; i < OPEN; i++)
      if (f.groups[i].open)
        fli_graph_close(&f.groups[i].graph);
  }
  fli_mfree(f.uses);
  fli_mfree(f.groups);
  return s;
}
