/* The driver of elementwise kernels. Fast road: operands of the compute type,
 * contiguous or single elements, cut into pieces. Otherwise tiles: the dims of
 * all operands are merged where they can be, and each tile's inputs are
 * gathered and converted into buffers that stay in the L1 cache. */
#include "map.h"
#include "tiled.h"

#include "../../runtime/math/math.h"

#include <string.h>

#define PIECE 16384 /* elements a thread takes at a time */
#define TILE  1024  /* elements gathered at a time */
#define FEW   4096  /* elements that one thread does whatever they take */
#define SLOW  6     /* cycles of an element that are many */

typedef struct job {
  fl_map_loop loop;
  double p[FL_MAX_ATTRS];
  int bits, n_in;
  fl_dtype type, out_type; /* of inputs and results of the loop */
  int64_t n, first; /* elements, of which those before `first` are done */
  fl_tiles tiles;
  fl_tiled op[FL_MAP_IN + 1]; /* the result, the inputs */
} job;

/* --- loops whose elements are not a multiple of FL_LANES --- */

/* The rest is at most a vector, whose other elements are copies of the first.
 */
static void pad_vector(size_t size, int64_t rest, void *to, const void *from) {
  uint32_t *to4 = to;
  uint64_t *to8 = to;
  const uint32_t *from4 = from;
  const uint64_t *from8 = from;
  if (size == sizeof *to4)
    for (int64_t i = 0; i < FL_LANES; i++)
      to4[i] = from4[i < rest ? i : 0];
  else
    for (int64_t i = 0; i < FL_LANES; i++)
      to8[i] = from8[i < rest ? i : 0];
}

void FL_CPU(map_padded)(fl_map_loop loop, size_t size, int n_in, int64_t n,
                        void *out, const void *const *in, const int *step,
                        const double *p, int bits) {
  static const int moving[FL_MAP_IN] = {1, 1, 1};
  _Alignas(64) unsigned char pad[FL_MAP_IN + 1][FL_LANES * 8];
  const void *at[FL_MAP_IN] = {NULL};
  bool single = fl_map_single(n_in, step);
  int64_t rest = single ? 1 : n % FL_LANES, whole = single ? 0 : n - rest;
  size_t done = (size_t)whole * size;
  if (whole)
    loop(whole, out, in, step, p, bits);
  for (int k = 0; k < n_in; k++) {
    bool moves = single || n_in == 1 || step[k];
    at[k] = moves ? pad[k] : in[k];
    if (moves)
      pad_vector(size, rest, pad[k], (const char *)in[k] + done);
  }
  loop(FL_LANES, pad[FL_MAP_IN], at, single ? moving : step, p, bits);
  char *to = (char *)out + done;
  if (single)
    for (int64_t k = 0; k < n; k++, to += size)
      memcpy(to, pad[FL_MAP_IN], size);
  else
    memcpy(to, pad[FL_MAP_IN], (size_t)rest * size);
}

/* --- flat --- */

static void flat_piece(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  const fl_tiled *y = &j->op[0], *o = &j->op[1];
  const void *in[FL_MAP_IN];
  int step[FL_MAP_IN];
  begin += j->first;
  end += j->first;
  for (int k = 0; k < j->n_in; k++) {
    step[k] = !o[k].single;
    in[k] = o[k].single ? (const void *)o[k].value
                        : o[k].data + (size_t)begin * o[k].size;
  }
  j->loop(end - begin, y->data + (size_t)begin * y->size, in, step, j->p,
          j->bits);
}

/* How many elements are worth a thread's while: fewer than PIECE where a few,
 * done at once, have taken long. Returns how many are done. */
static int64_t try_few(const fl_launch *l, job *j, int64_t *grain) {
  *grain = PIECE;
#ifdef __x86_64__
  if (j->n < FEW || j->n > 4 * PIECE || !l->stream ||
      fl_cpu_pool_threads((const fl_cpu_pool *)l->stream) == 1)
    return 0;
  uint64_t start = __builtin_ia32_rdtsc();
  flat_piece(j, 0, TILE);
  uint64_t cycles = __builtin_ia32_rdtsc() - start;
  if (cycles > SLOW * TILE)
    *grain = 2 * TILE;
  return TILE;
#else
  (void)l, (void)j;
  return 0;
#endif
}

/* --- tiles --- */

static void tile(const job *j, const fl_walker *w, int64_t begin, int64_t n,
                 unsigned char (*buffers)[TILE * 8]) {
  const fl_tiles *t = &j->tiles;
  const fl_tiled *y = &j->op[0];
  const void *in[FL_MAP_IN];
  int step[FL_MAP_IN];
  for (int k = 0; k < j->n_in; k++) /* unary loops have no step */
    in[k] = fl_tiles_load(t, w, begin, n, &j->op[k + 1], j->type, buffers[k],
                          j->n_in == 1, &step[k]);
  void *direct = fl_tiles_place(t, w, begin, n, y, j->out_type);
  void *out = direct ? direct : buffers[FL_MAP_IN];
  j->loop(n, out, in, step, j->p, j->bits);
  if (!direct)
    fl_tiles_move(t, *w, n, y, out, j->out_type, true);
}

static void tiled_piece(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  _Alignas(64) unsigned char buffers[FL_MAP_IN + 1][TILE * 8];
  fl_walker w;
  fl_tiles_start(&w, &j->tiles, begin);
  while (begin < end) {
    int64_t n = fl_tiles_take(&w, &j->tiles, end - begin, TILE);
    tile(j, &w, begin, n, buffers);
    begin += n;
    fl_tiles_next(&w, &j->tiles, n);
  }
}

/* --- setting up --- */

/* Which loop: floats are computed in the type to which the inputs promote. Of
 * floats, those without dims count if there are no others. */
static int type_of(const fl_launch *l, const fl_map *m) {
  bool f64[2] = {false, false}, floats[2] = {false, false};
  for (int k = 0; k < l->n_in; k++) {
    int single = l->in[k].ndim == 0;
    if (!l->in[k].data)
      continue;
    f64[single] |= l->in[k].dtype == FL_F64;
    floats[single] |= fl_dtype_is_float(l->in[k].dtype);
  }
  if (!m->loop[0])
    return 2;
  if (!floats[0] && !floats[1] && m->loop[2])
    return 2;
  return f64[0] || (f64[1] && !floats[0]) || l->out[0].dtype == FL_F64;
}

/* Everything of the compute type, contiguous or one element: no dims needed. */
static bool set_flat(job *j, const fl_launch *l) {
  const fl_view *y = &l->out[0];
  if (y->dtype != j->out_type || !fl_contiguous(y))
    return false;
  for (int k = 0; k < j->n_in; k++) {
    const fl_view *v = &l->in[k];
    fl_tiled *o = &j->op[k + 1];
    if (v->ndim == 0 || !fl_same_shape(v, y)) {
      if (fl_view_numel(v) != 1)
        return false;
      FL_CPU(convert)(1, j->type, o->value, v->dtype, v->data);
      o->single = true;
      continue;
    }
    if (v->dtype != j->type || !fl_contiguous(v))
      return false;
    o->single = false;
    o->data = v->data;
    o->size = fl_dtype_size(v->dtype);
  }
  j->op[0].data = y->data;
  j->op[0].size = fl_dtype_size(y->dtype);
  return true;
}

/* A call that the dispatcher knows to be flat, and small: the loop at once. */
static void run_flat(const fl_launch *l, const fl_map *m, int64_t n) {
  const void *in[FL_MAP_IN];
  int step[FL_MAP_IN];
  double p[4];
  fl_formula_params(l, m->params, p);
  for (int k = 0; k < l->n_in; k++) {
    in[k] = l->in[k].data;
    step[k] = l->in[k].data != (const void *)l->in[k].imm;
  }
  m->loop[l->in[0].dtype == FL_F64](n, l->out[0].data, in, step, p, 64);
}

fl_status FL_CPU(map)(const fl_launch *l, const fl_map *m) {
  static const fl_dtype types[3] = {FL_F32, FL_F64, FL_I64};
  if (l->flat) {
    int64_t n = fl_view_numel(&l->out[0]);
    if (n < FEW) {
      if (n) /* a loop reads its first elements unasked */
        run_flat(l, m, n);
      return FL_OK;
    }
  }
  job j;
  int type = type_of(l, m);
  j.loop = m->loop[type];
  j.type = types[type];
  j.out_type = m->test ? FL_BOOL : j.type;
  j.bits = l->out[0].dtype == FL_BOOL ? 1 : 64;
  j.n_in = l->n_in;
  while (j.n_in > 0 && !l->in[j.n_in - 1].data)
    j.n_in--; /* a saved operand that the row does not need */
  j.n = fl_view_numel(&l->out[0]);
  j.first = 0;
  fl_formula_params(l, m->params, j.p);
  if (j.n == 0)
    return FL_OK;
  if (set_flat(&j, l)) {
    int64_t grain, done = try_few(l, &j, &grain);
    j.first = done;
    if (j.n - done > grain)
      return fl_cpu_stoppable(l, j.n - done, grain, flat_piece, &j);
    flat_piece(&j, 0, j.n - done);
    return FL_OK;
  }
  fl_tiles *t = &j.tiles;
  t->op = j.op;
  t->n = j.n_in + 1;
  t->ndim = l->out[0].ndim;
  memcpy(t->shape, l->out[0].shape, (size_t)t->ndim * sizeof t->shape[0]);
  fl_tiled_bind(&j.op[0], &l->out[0], t->ndim, j.out_type);
  j.op[0].single = false;
  for (int k = 0; k < j.n_in; k++)
    fl_tiled_bind(&j.op[k + 1], &l->in[k], t->ndim, j.type);
  fl_tiles_merge(t);
  return fl_cpu_stoppable(l, j.n, PIECE, tiled_piece, &j);
}
