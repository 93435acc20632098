/* The kernel "tile": fused kernels with reductions. tile_plan.c has found how;
 * here the steps of a plan run on blocks that stay in the L1 cache. */
#include "tile_run.h"

#include <stdlib.h>
#include <string.h>

#define PIECE        16384 /* elements a thread takes at a time */
#define PIECE_CYCLES 5000  /* that are worth a thread's while */
#define PARTED       64    /* rows that columns sum in their own type */

static void set_block(nest_run *r) {
  r->count[0] = 1;
  r->count[FL_VARY_P] = r->pn;
  r->count[FL_VARY_Q] = r->qn;
  r->count[FL_VARY_BLOCK] = r->pn * r->qn;
}

/* --- steps --- */

static void *instr_place(const nest_run *r, const fl_nest_step *s) {
  if (s->kept >= 0)
    return r->kept + (size_t)s->kept * r->kept_room + (size_t)r->done * s->size;
  if (s->store >= 0)
    return store_place(r, s->store);
  return r->buffers + (size_t)s->slot * r->room;
}

/* Row by row: inputs that have one element for each row are spread by the loop
 * itself. */
static void run_by_rows(const nest_run *r, const fl_nest_step *s, void *to) {
  const fl_instr *x = &r->e->p->instrs[s->what];
  const void *in[3];
  int step[3];
  int64_t move[3], next = s->pitch ? s->pitch : s->size * r->qn;
  char *out = to;
  for (int j = 0; j < 3; j++) {
    in[j] = r->value[s->in[j]];
    step[j] = s->read[j] & FL_READ_STEP;
    move[j] = s->row[j] < 0 ? -s->row[j] * r->qn : s->row[j];
  }
  for (int64_t k = 0; k < r->pn; k++, out += next) {
    if (s->loop)
      s->loop(r->qn, out, in, step, x->p, 64);
    else
      FL_CPU(convert)
    (r->qn, (fl_dtype)s->type, out, (fl_dtype)x->type, in[0]);
    for (int j = 0; j < 3; j++)
      in[j] = (const char *)in[j] + move[j];
  }
}

static void run_instr(nest_run *r, const fl_nest_step *s) {
  const nest *e = r->e;
  const fl_instr *x = &e->p->instrs[s->what];
  void *out = instr_place(r, s);
  int64_t n = r->count[s->vary];
  if (s->by_rows) {
    run_by_rows(r, s, out);
  } else if (s->loop) {
    const void *in[3] = {r->value[s->in[0]], r->value[s->in[1]],
                         r->value[s->in[2]]};
    const int step[3] = {s->read[0], s->read[1], s->read[2]};
    s->loop(n, out, in, step, x->p, 64);
  } else {
    FL_CPU(convert)
    (n, (fl_dtype)s->type, out, (fl_dtype)x->type, r->value[s->in[0]]);
  }
  r->value[e->first + s->what] = out;
}

/* --- runs of instructions with code --- */

#ifdef __AVX512F__
static uint64_t mask_of(int64_t count) {
  return ((uint64_t)1 << count % 16) - 1;
}
#else
static uint64_t mask_of(int64_t count) {
  static const int32_t words[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return (uint64_t)(uintptr_t)(words + 8 - count % 8);
}
#endif

static void run_code(nest_run *r, const fl_nest_step *s) {
  const nest *e = r->e;
  const fl_nest_code *x = (const void *)(e->code + s->code);
  char *place[FL_NEST_OPERANDS];
  int64_t move[FL_NEST_OPERANDS], rows = x->rows ? r->pn : 1,
                                  count = x->rows ? r->qn : r->pn * r->qn;
  for (int k = 0; k < x->n; k++) {
    const fl_nest_operand *o = &x->op[k];
    move[k] = o->row < 0 ? -o->row * count : o->row;
    if (o->step >= 0) {
      const fl_nest_step *of = &e->n->steps[o->step];
      place[k] = instr_place(r, of);
      r->value[e->first + of->what] = place[k];
    } else
      place[k] = (char *)(uintptr_t)(o->value < 0 ? (const void *)x->constant
                                                  : r->value[o->value]);
  }
  fl_nest_entry entry;
  const void *at = (const char *)x + x->entry;
  memcpy(&entry, &at, sizeof entry); /* no cast from data to functions */
  entry(rows, count, place, move, mask_of(count));
}

static const fl_nest_typed *typed_of(fl_dtype d) {
  return d == FL_F64 ? &FL_CPU(nest_f64) : &FL_CPU(nest_f32);
}

/* n elements equal to the first of a reduction, in its own type. */
static void fill_first(const fl_nest_reduction *x, int64_t n, void *to) {
  for (int64_t i = 0; i < n; i++)
    if (x->type == FL_F64)
      ((double *)to)[i] = x->first.f;
    else
      ((float *)to)[i] = (float)x->first.f;
}

static char *direct_place(const nest_run *r, const fl_nest_reduction *x) {
  const fl_nest_plan *n = r->e->n;
  return r->rows + (size_t)n->row_slot[x->leaf] * n->row_room;
}

static fl_nest_fold fold_of(const fl_nest_reduction *x) {
  return FL_CPU(nest_fold)(x->reduction, (fl_dtype)x->type);
}

static fl_acc *acc_of(const fl_nest_plan *n, int k, fl_acc *acc) {
  return acc + n->reduce[k].acc * n->width;
}

/* Columns that have been summed in their own type go on in a wider one, before
 * they have summed so much that they lose digits. */
static void flush_part(nest_run *r, int k) {
  const fl_nest_plan *n = r->e->n;
  void *part = r->part + (size_t)k * n->row_room;
  if (!r->parted[k])
    return;
  fold_of (&n->reduce[k])(1, 1, n->width, acc_of(n, k, r->acc), part);
  r->parted[k] = 0;
}

static void reduce_columns(nest_run *r, const fl_nest_step *s,
                           const char *from) {
  const fl_nest_plan *n = r->e->n;
  const fl_nest_reduction *x = &n->reduce[s->what];
  const fl_nest_typed *typed = typed_of((fl_dtype)x->type);
  int k = s->what;
  void *to = x->direct ? direct_place(r, x) : r->part + (size_t)k * n->row_room;
  if (x->direct || r->parted[k] == 0)
    fill_first(x, n->width, to);
  if (s->in_pitch[0])
    for (int64_t p = 0; p < r->pn; p++, from += s->in_pitch[0])
      typed->columns[x->reduction](1, r->qn, to, from);
  else
    typed->columns[x->reduction](r->pn, r->qn, to, from);
  if (x->direct)
    return;
  r->parted[k] += r->pn;
  if (r->parted[k] >= PARTED)
    flush_part(r, k);
}

static void reduce_rows(nest_run *r, const fl_nest_step *s, const char *from) {
  const fl_nest_plan *n = r->e->n;
  const fl_nest_reduction *x = &n->reduce[s->what];
  const fl_nest_typed *typed = typed_of((fl_dtype)x->type);
  int k = s->what;
  int64_t row = r->qn * s->size, pitch = s->in_pitch[0] ? s->in_pitch[0] : row;
  char *to = x->direct ? direct_place(r, x) : r->part + (size_t)k * n->row_room;
  if (s->dot)
    typed->dot(r->pn, r->qn, to, from, pitch, r->value[s->in[1]],
               s->in_pitch[1] ? s->in_pitch[1] : row);
  else
    typed->rows[x->reduction](r->pn, r->qn, to, from, pitch);
  if (!x->direct)
    fold_of(x)(1, 1, r->pn, acc_of(n, k, r->acc), to);
}

static void run_reduce(nest_run *r, const fl_nest_step *s) {
  const fl_nest_plan *n = r->e->n;
  const fl_nest_reduction *x = &n->reduce[s->what];
  const char *from = r->value[s->in[0]];
  fl_acc *to = acc_of(n, s->what, r->acc);
  int cells = fl_nest_moments(x->reduction) ? FL_NEST_MOMENTS : 1;
  if (x->typed) {
    if (n->across)
      reduce_columns(r, s, from);
    else
      reduce_rows(r, s, from);
    return;
  }
  fl_nest_fold fold = fold_of(x);
  if (s->in_pitch[0])
    for (int64_t p = 0; p < r->pn; p++, from += s->in_pitch[0])
      fold(1, n->across ? 1 : r->qn, n->across ? r->qn : 1,
           to + (n->across ? 0 : p * cells), from);
  else if (n->across)
    fold(1, r->pn, r->qn, to, from);
  else
    fold(r->pn, r->qn, 1, to, from);
}

static void run_steps(nest_run *r, const fl_nest_list *list) {
  const nest *e = r->e;
  const fl_nest_step *s = &e->n->steps[list->begin],
                     *end = &e->n->steps[list->end];
  for (; s < end; s++)
    switch (s->kind) {
    case FL_NEST_LEAF:
      FL_CPU(nest_load)(r, s);
      break;
    case FL_NEST_INSTR:
      if (s->run) {
        run_code(r, s);
        s += s->run - 1;
      } else
        run_instr(r, s);
      break;
    case FL_NEST_SPREAD:
      FL_CPU(nest_spread)(r, s);
      break;
    case FL_NEST_KEPT:
      r->value[s->what] =
          r->kept + (size_t)s->kept * r->kept_room + (size_t)r->done * s->size;
      break;
    case FL_NEST_REDUCE:
      run_reduce(r, s);
      break;
    default:
      FL_CPU(nest_store)(r, s);
    }
}

/* --- chunks --- */

static void nest_start(nest_run *r, const nest *e, char *cache) {
  const fl_nest_plan *n = e->n;
  r->e = e;
  r->slots = r->arena;
  r->spare = r->slots + (size_t)n->slots * n->room;
  r->rows = r->spare + n->room;
  r->acc = (fl_acc *)(void *)(r->rows + (size_t)n->rows * n->row_room);
  r->part = r->rows + (size_t)(n->rows + n->n_acc) * n->row_room;
  r->kept = cache;
  r->kept_room = (size_t)(n->passes * n->bp * n->bq);
  for (int k = 0; k < n->n_reduce; k++) {
    r->parted[k] = 0;
    if (n->reduce[k].direct)
      r->value[n->reduce[k].leaf] = direct_place(r, &n->reduce[k]);
  }
  for (int k = 0; k < e->p->n_const; k++)
    r->value[e->p->n_in + k] = &n->cell[k];
  r->p0 = r->q0 = 0;
  r->pn = r->qn = 1;
  memset(r->at, 0, sizeof r->at);
  set_block(r);
  r->buffers = r->rows;
  r->room = n->row_room;
  run_steps(r, &n->once);
}

static int64_t least_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* The rows of a chunk. */
static void seek_chunk(nest_run *r, int64_t chunk) {
  const fl_nest_plan *n = r->e->n;
  int64_t tile = chunk % n->outer_tiles;
  chunk /= n->outer_tiles;
  r->p0 = r->q0 = 0;
  if (!n->inner) {
    r->p0 = tile / n->row_tiles * n->bp;
    r->q0 = tile % n->row_tiles * n->bq;
    r->qn = least_of(n->nq - r->q0, n->bq);
    r->pn = least_of(n->np - r->p0, n->bp);
  } else if (n->across) {
    r->q0 = tile * n->bq;
    r->qn = least_of(n->nq - r->q0, n->bq);
  } else {
    r->p0 = tile * n->bp;
    r->pn = least_of(n->np - r->p0, n->bp);
  }
  for (int k = n->n_outer - 1; k >= 0; k--) {
    r->at[k] = chunk % n->loop[k];
    chunk /= n->loop[k];
  }
  for (int k = n->n_outer; k < n->n_loops; k++)
    r->at[k] = 0;
  set_block(r);
}

static void run_row(nest_run *r, int phase) {
  const fl_nest_plan *n = r->e->n;
  if (n->row[phase].begin == n->row[phase].end)
    return;
  r->buffers = r->rows; /* which stay for all blocks */
  r->room = n->row_room;
  run_steps(r, &n->row[phase]);
}

static void run_blocks(nest_run *r, int phase, int64_t begin, int64_t end) {
  const fl_nest_plan *n = r->e->n;
  int64_t size = n->across ? n->np : n->nq, cut = n->across ? n->bp : n->bq,
          *from = n->across ? &r->p0 : &r->q0,
          *count = n->across ? &r->pn : &r->qn;
  if (n->block[phase].begin == n->block[phase].end)
    return;
  r->buffers = r->slots;
  r->room = n->room;
  r->done = 0;
  if (!n->inner) {
    run_steps(r, &n->block[phase]);
    return;
  }
  for (int64_t i = begin; i < end; i++) {
    int64_t pass = n->passes == n->tiles ? 0 : i / n->tiles;
    *from = (i - pass * n->tiles) * cut;
    *count = size - *from < cut ? size - *from : cut;
    set_block(r);
    for (int k = n->n_loops - 1; k >= n->n_outer; k--) {
      r->at[k] = pass % n->loop[k];
      pass /= n->loop[k];
    }
    run_steps(r, &n->block[phase]);
    r->done += r->pn * r->qn;
  }
  for (int k = 0; k < n->n_reduce; k++)
    flush_part(r, k);
}

/* Accumulators of what this phase's blocks reduce. */
static void clear_acc(const nest *e, int phase, fl_acc *acc) {
  const fl_nest_plan *n = e->n;
  for (int k = 0; k < n->n_reduce && !n->all_direct; k++) {
    const fl_nest_reduction *x = &n->reduce[k];
    int64_t cells = fl_nest_moments(x->reduction) ? FL_NEST_MOMENTS : 1;
    if (!x->direct && x->phase == phase + 1)
      for (int64_t i = 0; i < cells * n->width; i++)
        acc_of(n, k, acc)[i] = x->first;
  }
}

/* Moment `which` of n rows as values of a leaf. */
static void take_moment(nest_run *r, const fl_nest_reduction *x, int leaf,
                        int64_t n, const fl_acc *acc) {
  const fl_nest_plan *plan = r->e->n;
  int which = r->e->t->leaves[leaf].reduction == FL_REDUCE_MEAN ? 1 : 2;
  char *to = r->rows + (size_t)plan->row_slot[leaf] * plan->row_room;
  for (int64_t i = 0; i < n; i++)
    if (x->to == FL_F64)
      ((double *)(void *)to)[i] = acc[FL_NEST_MOMENTS * i + which].f;
    else
      ((float *)(void *)to)[i] = (float)acc[FL_NEST_MOMENTS * i + which].f;
  r->value[leaf] = to;
}

/* The reductions that this phase begins with become values. */
static void take_acc(nest_run *r, int phase, fl_acc *acc) {
  const fl_nest_plan *n = r->e->n;
  for (int k = 0; k < n->n_reduce && !n->all_direct; k++) {
    const fl_nest_reduction *x = &n->reduce[k];
    if (x->direct || x->phase != phase)
      continue;
    int64_t rows = n->across ? r->qn : r->pn;
    if (fl_nest_moments(x->reduction)) {
      take_moment(r, x, x->leaf, rows, acc_of(n, k, acc));
      if (x->twin >= 0)
        take_moment(r, x, x->twin, rows, acc_of(n, k, acc));
      continue;
    }
    char *to = direct_place(r, x);
    FL_CPU(convert)
    (rows, (fl_dtype)x->to, to,
     fl_dtype_is_float((fl_dtype)x->type) ? FL_F64 : FL_I64, acc_of(n, k, acc));
    r->value[x->leaf] = to;
  }
}

static void run_last(nest_run *r) {
  const fl_nest_list *last = &r->e->n->last;
  if (last->begin != last->end)
    run_steps(r, last);
}

static uint64_t clock_cycles(void) {
#ifdef __x86_64__
  return __builtin_ia32_rdtsc();
#else
  return 0;
#endif
}

/* Keeps the least that a chunk has taken, for the launches to come. */
static void note_cycles(const nest *e, uint64_t begun, int64_t chunks) {
  uint32_t *known = (uint32_t *)(uintptr_t)&e->n->cycles,
           old = __atomic_load_n(known, __ATOMIC_RELAXED);
  uint64_t took = (clock_cycles() - begun) / (uint64_t)chunks + 1;
  if (begun && took < UINT32_MAX && (!old || took < old))
    __atomic_store_n(known, (uint32_t)took, __ATOMIC_RELAXED);
}

/* Chunks that are worth a thread's while; if there is little to do, as many for
 * each thread. */
static int64_t chunk_grain(const nest *e) {
  const fl_nest_plan *n = e->n;
  const fl_cpu_pool *pool = (const fl_cpu_pool *)e->l->stream;
  int64_t threads = pool ? fl_cpu_pool_threads(pool) : 1,
          cost = n->passes * n->bp * n->bq, grain = PIECE / (cost ? cost : 1);
  uint32_t cycles = __atomic_load_n(&n->cycles, __ATOMIC_RELAXED);
  if (cycles) {
    double all = (double)cycles * (double)n->chunks / PIECE_CYCLES;
    int64_t pieces = all > 1 ? all < 4e9 ? (int64_t)all : INT32_MAX : 1;
    if (pieces > threads && pieces < 4 * threads)
      pieces = threads;
    grain = fl_ceil_div(n->chunks, pieces);
  }
  return grain > 1 ? grain : 1;
}

/* `cells`: of the piece that the chunks belong to, or NULL. */
static void run_chunks(const nest *e, double *cells, int64_t begin,
                       int64_t end) {
  nest_run r;
  char cache[e->n->cache + 64];
  uint64_t begun = clock_cycles();
  nest_start(&r, e, cache + (-(uintptr_t)cache & 63));
  r.cells = cells;
  for (int64_t chunk = begin; chunk < end; chunk++) {
    seek_chunk(&r, chunk);
    for (int phase = 0; phase < e->n->phases; phase++) {
      take_acc(&r, phase, r.acc);
      run_row(&r, phase);
      clear_acc(e, phase, r.acc);
      run_blocks(&r, phase, 0, e->n->passes);
    }
    run_last(&r);
  }
  note_cycles(e, begun, end - begin);
}

static void whole_chunks(void *context, int64_t begin, int64_t end) {
  run_chunks(context, ((const nest *)context)->columns->cells, begin, end);
}

static void some_pieces(void *context, int64_t begin, int64_t end) {
  const nest *e = context;
  const fl_nest_columns *x = e->columns;
  for (int64_t i = begin; i < end; i++) {
    int64_t from = e->n->chunks * i / x->pieces,
            to = e->n->chunks * (i + 1) / x->pieces;
    if (from < to)
      run_chunks(e, x->cells + i * x->n, from, to);
  }
}

/* --- chunks in segments, phase by phase --- */

static fl_acc *partial_of(const nest *e, int64_t chunk, int64_t segment) {
  return e->partials +
         (chunk * e->n->segments + segment) * (e->n->n_acc * e->n->width);
}

/* Everything that a chunk has once its phases before are reduced. */
static void enter_phase(nest_run *r, int64_t chunk, int phase) {
  seek_chunk(r, chunk);
  for (int k = 0; k <= phase; k++) {
    take_acc(r, k, partial_of(r->e, chunk, 0));
    run_row(r, k);
  }
}

static void some_segments(void *context, int64_t begin, int64_t end) {
  const nest *e = context;
  const fl_nest_plan *n = e->n;
  nest_run r;
  nest_start(&r, e, NULL);
  for (int64_t task = begin; task < end; task++) {
    int64_t chunk = task / n->segments, segment = task % n->segments;
    int64_t from = segment * n->segment, to = from + n->segment;
    fl_acc *acc = partial_of(e, chunk, segment);
    enter_phase(&r, chunk, e->phase);
    clear_acc(e, e->phase, r.acc);
    run_blocks(&r, e->phase, from, to < n->passes ? to : n->passes);
    for (int k = 0; k < n->n_reduce; k++)
      if (n->reduce[k].phase == e->phase + 1)
        memcpy(acc_of(n, k, acc), acc_of(n, k, r.acc),
               (size_t)((n->reduce[k + 1].acc - n->reduce[k].acc) * n->width) *
                   sizeof *acc);
  }
}

/* The segments' accumulators into those of the first, in order. */
static void combine_segments(const nest *e) {
  const fl_nest_plan *n = e->n;
  for (int64_t chunk = 0; chunk < n->chunks; chunk++)
    for (int k = 0; k < n->n_reduce; k++) {
      const fl_nest_reduction *x = &n->reduce[k];
      fl_nest_fold fold = FL_CPU(nest_fold)(
          x->reduction, fl_dtype_is_float((fl_dtype)x->type) ? FL_F64 : FL_I64);
      for (int64_t s = 1; s < n->segments && x->phase == e->phase + 1; s++) {
        fl_acc *to = acc_of(n, k, partial_of(e, chunk, 0)),
               *from = acc_of(n, k, partial_of(e, chunk, s));
        if (fl_nest_moments(x->reduction))
          FL_CPU(nest_join_moments)(n->width, to, from);
        else
          fold(1, 1, n->width, to, from);
      }
    }
}

static fl_status in_segments(nest *e) {
  const fl_nest_plan *n = e->n;
  int64_t tasks = n->chunks * n->segments;
  if (n->n_reduce &&
      !(e->partials = fl_scratch_get(
            e->l, (size_t)(tasks * n->n_acc * n->width) * sizeof(fl_acc))))
    return FL_ENOMEM;
  for (e->phase = 0; e->phase < n->phases; e->phase++) {
    if (n->block[e->phase].begin == n->block[e->phase].end)
      continue;
    fl_cpu_parallel(e->l, tasks, 1, some_segments, e);
    combine_segments(e);
  }
  if (n->last.begin == n->last.end)
    return FL_OK;
  nest_run r;
  nest_start(&r, e, NULL);
  for (int64_t chunk = 0; chunk < n->chunks; chunk++) {
    enter_phase(&r, chunk, n->phases - 1);
    run_last(&r);
  }
  return FL_OK;
}

/* --- the kernel --- */

static fl_status run_part(const fl_launch *l, const fl_tile *t,
                          const fl_nest_plan *n, const fl_code *code,
                          const fl_nest_columns *x) {
  fl_nest_fault fault = {0};
  nest e = {.l = l,
            .t = t,
            .p = t->body,
            .n = n,
            .code = code->at,
            .fault = &fault,
            .columns = x};
  bool sums = false;
  fl_status s = FL_OK;
  e.first = e.p->n_in + e.p->n_const;
  e.values = e.first + e.p->n_instr;
  for (int k = 0; k < t->n_stores; k++) {
    e.out_size[k] = (int64_t)fl_dtype_size(l->out[t->stores[k].operand].dtype);
    sums = sums || t->stores[k].add == FL_STORE_ADD;
  }
  if (n->segments > 1)
    s = in_segments(&e);
  else if (sums) /* in the order of the positions, as the rows do */
    whole_chunks(&e, 0, n->chunks);
  else if (x->cells)
    fl_cpu_parallel(l, x->pieces, 1, some_pieces, &e);
  else
    fl_cpu_parallel(l, n->chunks, chunk_grain(&e), whole_chunks, &e);
  return s == FL_OK && fault.taken ? FL_CPU(nest_refused)(l, &fault) : s;
}

FL_KERNEL(tile) {
  const fl_tile *t = l->tile;
  fl_nest_parts *parts;
  bool own;
  for (int i = 0; i < t->n_dims - t->n_inner; i++)
    if (t->shape[i] == 0)
      return FL_OK;
  if (!t->n_stores)
    return FL_OK;
  fl_nest_columns columns = {0};
  fl_status s = FL_CPU(nest_find_parts)(l, &parts, &own);
  if (s == FL_OK && !l->probe)
    s = FL_CPU(columns_begin)(l, &columns);
  for (int k = 0; s == FL_OK && !l->probe && k < parts->n; k++) {
    const char *at = (const char *)parts;
    s = run_part(l, parts->whole ? t : (const fl_tile *)(at + parts->tile[k]),
                 (const fl_nest_plan *)(at + parts->plan[k]), &parts->code,
                 &columns);
  }
  if (s == FL_OK && !l->probe)
    FL_CPU(columns_end)(l, &columns);
  if (own)
    parts->base.close(&parts->base);
  return s;
}
