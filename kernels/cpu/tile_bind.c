/* Buffers of the steps of a plan, and how steps read and write them. */
#include "tile_maker.h"

#include <string.h>

/* --- buffers --- */

int FL_CPU(nest_reads)(const maker *m, const fl_nest_step *s, int *in) {
  const fl_tile *t = m->t;
  switch (s->kind) {
  case FL_NEST_LEAF:
    if (t->leaves[s->what].mask < 0)
      return along_values(m, &m->n->leaf[s->what], in);
    return leaf_values(m, s->what, in);
  case FL_NEST_INSTR:
    for (int j = 0; j < m->p->instrs[s->what].n_in; j++)
      in[j] = read_by_instr(m, s->what, m->p->instrs[s->what].in[j]);
    return m->p->instrs[s->what].n_in;
  case FL_NEST_SPREAD:
    in[0] = s->what;
    return 1;
  case FL_NEST_REDUCE:
    if (s->dot) {
      const fl_leaf *x = &t->leaves[m->n->reduce[s->what].leaf];
      for (int j = 0; j < 2; j++)
        in[j] = m->p->instrs[m->p->out[x->source] - m->first].in[j];
      return 2;
    } /* fall through */
  case FL_NEST_STORE:
    in[0] = s->kind == FL_NEST_STORE
                ? t->stores[s->what].value
                : t->leaves[m->n->reduce[s->what].leaf].source;
    in[0] = m->p->out[in[0]];
    in[0] += vary_block(m, in[0]) != s->vary ? m->values : 0;
    if (s->kind == FL_NEST_STORE)
      return 1 + along_values(m, &m->n->store[s->what], in + 1);
    return 1;
  default:
    return 0;
  }
}

int FL_CPU(nest_gives)(const maker *m, const fl_nest_step *s) {
  switch (s->kind) {
  case FL_NEST_LEAF:
  case FL_NEST_KEPT:
    return s->what;
  case FL_NEST_INSTR:
    return m->first + s->what;
  case FL_NEST_SPREAD:
    return m->values + s->what;
  default:
    return -1;
  }
}

/* Whether a result may lie where input `id` lies: loops go element by element.
 */
static bool may_replace(const maker *m, const fl_nest_step *s, int id) {
  const fl_instr *x = &m->p->instrs[s->what];
  if (s->kind != FL_NEST_INSTR || x->row == FL_ROW_convert)
    return false;
  int v = id < m->values ? id : id - m->values;
  uint8_t vary = id < m->values ? vary_block(m, v) : m->full;
  return vary == s->vary && fl_dtype_size(fl_program_type(m->p, v)) ==
                                fl_dtype_size((fl_dtype)x->result);
}

static void free_slot(maker *m, int id, bool *taken) {
  if (m->slot[id] >= 0)
    taken[m->slot[id]] = false;
  m->slot[id] = -1;
}

/* A store whose value this step computes may be its buffer, unless what it
 * writes over is read later. */
static void find_direct(maker *m, fl_nest_step *s, int at, int end) {
  fl_nest_plan *n = m->n;
  int v = m->first + s->what;
  for (int i = at + 1; i < end && s->store < 0; i++) {
    const fl_nest_step *x = &n->steps[i];
    if (x->kind != FL_NEST_STORE || x->vary != s->vary ||
        m->t->stores[x->what].add || is_position(m, v) ||
        m->p->out[m->t->stores[x->what].value] != v)
      continue;
    bool late = false;
    for (int leaf = 0; leaf < m->p->n_in; leaf++)
      late |= n->over[x->what] >> leaf & 1 && m->last[leaf] > at;
    if (!late)
      s->store = x->what;
  }
}

/* A buffer for what step s gives, which is read last by step `last`. */
static void take_slot(maker *m, fl_nest_step *s, int id, bool *taken) {
  fl_nest_plan *n = m->n;
  int b = 0;
  if (id < 0 || s->kind == FL_NEST_KEPT || s->kept >= 0)
    return;
  while (taken[b])
    b++;
  taken[b] = true;
  s->slot = m->slot[id] = (int16_t)b;
  n->slots = b >= n->slots ? b + 1 : n->slots;
}

/* Steps [begin, end) run at once: what they read stays until they have given
 * everything, and what only they read has no buffer. */
static void give_slots_to_run(maker *m, int begin, int end, int all,
                              bool *taken) {
  for (int i = begin; i < end; i++) {
    fl_nest_step *s = &m->n->steps[i];
    int id = FL_CPU(nest_gives)(m, s);
    s->inside = m->last[id] < end && s->kept < 0;
    if (s->inside)
      continue;
    find_direct(m, s, end - 1, all);
    take_slot(m, s, id, taken);
  }
  for (int i = begin; i < end; i++) {
    int in[3], count = FL_CPU(nest_reads)(m, &m->n->steps[i], in);
    for (int j = 0; j < count; j++)
      if (m->last[in[j]] < end)
        free_slot(m, in[j], taken);
  }
}

/* Those of step i, or of the run that begins with it; returns its last one. */
static int give_slots_to(maker *m, int i, int end, bool *taken) {
  fl_nest_step *s = &m->n->steps[i];
  int in[3], count = FL_CPU(nest_reads)(m, s, in),
             id = FL_CPU(nest_gives)(m, s);
  if (s->run) {
    give_slots_to_run(m, i, i + s->run, end, taken);
    return i + s->run - 1;
  }
  for (int j = 0; j < count; j++)
    if (m->last[in[j]] == i && may_replace(m, s, in[j]))
      free_slot(m, in[j], taken);
  if (s->kind == FL_NEST_INSTR)
    find_direct(m, s, i, end);
  take_slot(m, s, id, taken);
  for (int j = 0; j < count; j++)
    if (m->last[in[j]] == i)
      free_slot(m, in[j], taken);
  if (id >= 0 && m->last[id] < i)
    free_slot(m, id, taken);
  return i;
}

static void give_slots(maker *m, int begin, int end) {
  bool taken[2 * FL_PROGRAM_VALUES] = {false};
  const fl_nest_plan *n = m->n;
  int in[3];
  for (int id = 0; id < 2 * m->values; id++)
    m->last[id] = m->slot[id] = -1;
  for (int i = begin; i < end; i++)
    for (int j = FL_CPU(nest_reads)(m, &n->steps[i], in) - 1; j >= 0; j--)
      m->last[in[j]] = (int16_t)i;
  for (int i = begin; i < end; i++)
    i = give_slots_to(m, i, end, taken);
}

/* Leaves that are stored elsewhere than they are loaded are copied first, if
 * something is written over them; and positions, whose values are packed. */
static void find_copied(maker *m) {
  fl_nest_plan *n = m->n;
  uint64_t stored = 0, over = 0;
  for (int k = 0; k < m->t->n_stores; k++) {
    int v = m->p->out[m->t->stores[k].value];
    over |= n->over[k];
    stored |= v < m->p->n_in ? (uint64_t)1 << v : 0;
  }
  n->copied = stored & over;
  for (int v = 0; v < m->p->n_in; v++)
    n->copied |= is_position(m, v) ? (uint64_t)1 << v : 0;
}

/* --- operands --- */

/* Bytes between rows of an operand of this size whose elements lie side by side
 * along Q; 0: they are packed, -1: blocks of it must be gathered. */
static int64_t place_pitch(const fl_nest_plan *n, const fl_nest_place *x,
                           uint8_t vary, size_t size) {
  bool p = vary & FL_VARY_P, q = vary & FL_VARY_Q;
  if (q && x->q != 1)
    return -1;
  if (!p)
    return 0;
  if (!q)
    return x->p == 1 ? 0 : -1;
  if (x->p == n->nq && n->bq == n->nq)
    return 0;
  return n->bq >= BY_ROWS ? x->p * (int64_t)size : -1;
}

static void bind_leaf(const maker *m, fl_nest_step *s) {
  const fl_nest_plan *n = m->n;
  const fl_leaf *leaf = &m->t->leaves[s->what];
  int along[FL_NEST_ALONG];
  s->type = m->p->in_type[s->what];
  if (along_values(m, &n->leaf[s->what], along) || leaf->kind != FL_LEAF_LOAD ||
      leaf->mask >= 0 || n->copied >> s->what & 1 ||
      m->l->in[leaf->operand].dtype != (fl_dtype)s->type)
    return;
  int64_t pitch = place_pitch(n, &n->leaf[s->what], s->vary,
                              fl_dtype_size((fl_dtype)s->type));
  s->in_place = pitch >= 0;
  s->pitch = pitch > 0 ? pitch : 0;
}

/* A store that is the buffer of its value; not if that is impossible. */
static void bind_direct(const maker *m, fl_nest_step *s) {
  const fl_store *x = &m->t->stores[s->store < 0 ? 0 : s->store];
  if (s->store < 0)
    return;
  int64_t pitch =
      s->kept >= 0 || m->l->out[x->operand].dtype != (fl_dtype)s->type
          ? -1
          : place_pitch(m->n, &m->n->store[s->store], s->vary, s->size);
  if (pitch < 0 || (pitch && !s->loop))
    s->store = -1;
  else
    s->pitch = pitch;
}

static void bind_read(const maker *m, fl_nest_step *s, int j, int id,
                      const int64_t *pitch) {
  int v = id < m->values ? id : id - m->values;
  uint8_t vary = id < m->values ? vary_block(m, id) : s->vary;
  int64_t size = (int64_t)fl_dtype_size(fl_program_type(m->p, v));
  s->in[j] = (int16_t)id;
  s->read[j] = vary ? FL_READ_ALL : FL_READ_ONE;
  s->in_pitch[j] = vary ? pitch[id] : 0;
  s->row[j] = -1;
  if (vary && vary != s->vary) {
    s->by_rows = true;
    s->read[j] = vary & FL_VARY_P ? FL_READ_ROWS : FL_READ_LINE;
  } else if (s->in_pitch[j])
    s->by_rows = true;
  if (s->read[j] != FL_READ_ALL)
    s->row[j] = s->read[j] == FL_READ_ROWS ? size : 0;
  else if (s->in_pitch[j])
    s->row[j] = s->in_pitch[j];
  else
    s->row[j] = -size; /* times the elements of a row */
}

/* What tile.c needs to know of each step. */
static void bind_steps(maker *m) {
  fl_nest_plan *n = m->n;
  int64_t pitch[2 * FL_PROGRAM_VALUES] = {0};
  for (int i = 0; i < n->n_steps; i++) {
    fl_nest_step *s = &n->steps[i];
    int in[3] = {0}, count = 0, gives = FL_CPU(nest_gives)(m, s);
    if (s->kind == FL_NEST_LEAF) {
      bind_leaf(m, s);
    } else if (s->kind == FL_NEST_INSTR) {
      const fl_instr *x = &m->p->instrs[s->what];
      s->type = x->result;
      s->loop = FL_CPU(machine_loop)(m->p, x);
    } else {
      int v = s->kind == FL_NEST_REDUCE
                  ? m->p->out[m->t->leaves[n->reduce[s->what].leaf].source]
              : s->kind == FL_NEST_STORE
                  ? m->p->out[m->t->stores[s->what].value]
                  : s->what;
      s->type = (uint8_t)fl_program_type(m->p, v);
    }
    s->size = (uint8_t)fl_dtype_size((fl_dtype)s->type);
    if (s->kind == FL_NEST_INSTR)
      bind_direct(m, s);
    if (s->kind != FL_NEST_LEAF && s->kind != FL_NEST_KEPT)
      count = FL_CPU(nest_reads)(m, s, in);
    for (int j = 0; j < 3 && count; j++)
      /* loops may look at inputs they do not use */
      bind_read(m, s, j, in[j < count ? j : 0], pitch);
    s->by_rows |= s->pitch != 0;
    if (gives >= 0)
      pitch[gives] = s->pitch;
  }
}

void FL_CPU(nest_bind)(maker *m) {
  fl_nest_plan *n = m->n;
  find_copied(m);
  n->slots = 0;
  if (m->whole)
    give_slots(m, n->block[0].begin, n->block[n->phases - 1].end);
  else
    for (int k = 0; k < n->phases; k++)
      give_slots(m, n->block[k].begin, n->block[k].end);
  bind_steps(m);
}
