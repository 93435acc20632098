/* The driver of elementwise kernels. Fast road: operands of the compute type,
 * contiguous or single elements, cut into pieces. Otherwise tiles: the dims of
 * all operands are merged where they can be, and each tile's inputs are
 * gathered and converted into buffers that stay in the L1 cache. */
#include "map.h"

#include "../../runtime/math.h"

#include <string.h>

#define PIECE 16384 /* elements a thread takes at a time */
#define TILE  1024  /* elements gathered at a time */

typedef struct operand {
  char *data;
  fl_dtype dtype;
  size_t size;
  int64_t stride[FL_MAX_DIMS];        /* over the merged dims */
  bool single;                        /* one element */
  bool flat;                          /* contiguous over everything */
  _Alignas(8) unsigned char value[8]; /* of a single one, converted */
} operand;

typedef struct job {
  fl_map_loop loop;
  double p[FL_MAX_ATTRS];
  int bits, n_in, ndim;
  fl_dtype type, out_type; /* of inputs and results of the loop */
  int64_t shape[FL_MAX_DIMS];
  int64_t n;
  operand y, in[FL_MAP_IN];
} job;

/* --- flat --- */

static void flat_piece(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  const void *in[FL_MAP_IN];
  int step[FL_MAP_IN];
  for (int k = 0; k < j->n_in; k++) {
    step[k] = !j->in[k].single;
    in[k] = j->in[k].single ? (const void *)j->in[k].value
                            : j->in[k].data + (size_t)begin * j->in[k].size;
  }
  j->loop(end - begin, j->y.data + (size_t)begin * j->y.size, in, step, j->p,
          j->bits);
}

/* --- tiles --- */

typedef struct walker { /* where in the merged dims an operand stands */
  int64_t at[FL_MAX_DIMS];
} walker;

static void walk_to(walker *w, const job *j, int64_t i) {
  for (int d = j->ndim - 1; d >= 0; d--) {
    w->at[d] = i % j->shape[d];
    i /= j->shape[d];
  }
}

static int64_t offset_of(const walker *w, const job *j, const operand *o) {
  int64_t at = 0;
  for (int d = 0; d < j->ndim; d++)
    at += w->at[d] * o->stride[d];
  return at;
}

static void advance(walker *w, const job *j, int64_t by) {
  int d = j->ndim - 1;
  w->at[d] += by;
  for (; d > 0 && w->at[d] >= j->shape[d]; d--) {
    w->at[d] = 0; /* rows are taken whole, so it is exactly at the end */
    w->at[d - 1]++;
  }
}

/* n elements from w on, row by row, between an operand and a buffer. */
static void move_tile(const job *j, walker w, int64_t n, const operand *o,
                      char *buffer, fl_dtype type, bool store) {
  int last = j->ndim - 1;
  size_t wide = fl_dtype_size(type);
  while (n > 0) {
    int64_t room = j->shape[last] - w.at[last], k = n < room ? n : room;
    char *mine = o->data + offset_of(&w, j, o) * (int64_t)o->size;
    if (store)
      FL_CPU(store_row)(k, o->dtype, mine, o->stride[last], type, buffer);
    else
      FL_CPU(load_row)(k, type, buffer, o->dtype, mine, o->stride[last]);
    buffer += (size_t)k * wide;
    n -= k;
    advance(&w, j, k);
  }
}

static void tile(const job *j, const walker *w, int64_t begin, int64_t n,
                 unsigned char (*buffers)[TILE * 8]) {
  const void *in[FL_MAP_IN];
  int step[FL_MAP_IN], last = j->ndim - 1;
  bool row = w->at[last] + n <= j->shape[last];
  for (int k = 0; k < j->n_in; k++) {
    const operand *o = &j->in[k];
    step[k] = !o->single;
    if (o->single)
      in[k] = o->value;
    else if (o->flat && o->dtype == j->type)
      in[k] = o->data + (size_t)begin * o->size;
    else if (row && o->stride[last] == 1 && o->dtype == j->type)
      in[k] = o->data + offset_of(w, j, o) * (int64_t)o->size;
    else if (row && o->stride[last] == 0 && j->n_in > 1) {
      /* the same element all along; unary loops have no step */
      FL_CPU(convert)
      (1, j->type, buffers[k], o->dtype,
       o->data + offset_of(w, j, o) * (int64_t)o->size);
      in[k] = buffers[k];
      step[k] = 0;
    } else {
      move_tile(j, *w, n, o, (char *)buffers[k], j->type, false);
      in[k] = buffers[k];
    }
  }
  const operand *y = &j->y;
  bool direct =
      y->dtype == j->out_type && (y->flat || (row && y->stride[last] == 1));
  void *out = buffers[FL_MAP_IN];
  if (direct)
    out = y->flat ? y->data + (size_t)begin * y->size
                  : y->data + offset_of(w, j, y) * (int64_t)y->size;
  j->loop(n, out, in, step, j->p, j->bits);
  if (!direct)
    move_tile(j, *w, n, y, out, j->out_type, true);
}

static void tiled_piece(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  _Alignas(64) unsigned char buffers[FL_MAP_IN + 1][TILE * 8];
  int last = j->ndim - 1;
  walker w;
  walk_to(&w, j, begin);
  while (begin < end) {
    /* long rows one at a time, so that they are used where they lie */
    int64_t n = end - begin < TILE ? end - begin : TILE;
    int64_t room = j->shape[last] - w.at[last];
    if (room < n && j->shape[last] >= 64)
      n = room;
    tile(j, &w, begin, n, buffers);
    begin += n;
    while (n > 0) {
      int64_t k = j->shape[last] - w.at[last];
      k = n < k ? n : k;
      advance(&w, j, k);
      n -= k;
    }
  }
}

/* --- setting up --- */

static int type_of(const fl_launch *l, const fl_map *m) {
  bool f64 = false, floats = false;
  for (int k = 0; k < l->n_in; k++) {
    if (!l->in[k].data)
      continue;
    f64 = f64 || l->in[k].dtype == FL_F64;
    floats = floats || l->in[k].dtype <= FL_BF16;
  }
  if (!m->loop[0])
    return 2;
  if (!floats && m->loop[2])
    return 2;
  return f64 || l->out[0].dtype == FL_F64;
}

static void bind(operand *o, const fl_view *v, const fl_launch *l,
                 fl_dtype type) {
  const fl_view *y = &l->out[0];
  int skip = y->ndim - v->ndim;
  o->data = v->data;
  o->dtype = v->dtype;
  o->size = fl_dtype_size(v->dtype);
  o->single = fl_view_numel(v) == 1;
  for (int i = 0; i < y->ndim; i++)
    o->stride[i] =
        i < skip || v->shape[i - skip] == 1 ? 0 : v->stride[i - skip];
  if (o->single)
    FL_CPU(convert)(1, type, o->value, v->dtype, v->data);
}

static bool merges(const operand *o, int a, int b, int64_t size) {
  return o->single || o->stride[a] == o->stride[b] * size;
}

/* Dims a and a + 1 become one where every operand allows it. */
static void merge_dims(job *j) {
  int k = -1;
  for (int i = 0; i < j->ndim; i++) {
    if (j->shape[i] == 1)
      continue;
    bool one = k >= 0 && merges(&j->y, k, i, j->shape[i]);
    for (int n = 0; n < j->n_in && one; n++)
      one = merges(&j->in[n], k, i, j->shape[i]);
    if (one)
      j->shape[k] *= j->shape[i];
    else
      j->shape[++k] = j->shape[i];
    j->y.stride[k] = j->y.stride[i];
    for (int n = 0; n < j->n_in; n++)
      j->in[n].stride[k] = j->in[n].stride[i];
  }
  j->ndim = k + 1;
  if (k >= 0)
    return;
  j->ndim = 1;
  j->shape[0] = 1;
  j->y.stride[0] = 1;
  for (int n = 0; n < j->n_in; n++)
    j->in[n].stride[0] = 1;
}

static bool is_flat(const job *j, const operand *o) {
  int64_t expect = 1;
  for (int i = j->ndim - 1; i >= 0; i--) {
    if (o->stride[i] != expect)
      return false;
    expect *= j->shape[i];
  }
  return true;
}

static void set_params(double *p, const fl_launch *l, const fl_map *m) {
  if (!m->sig[0] || !strchr(m->sig, '=')) /* no attributes */
    return;
  bool choice = strstr(m->sig, ":enum(") != NULL;
  for (int k = 0; k < 4; k++)
    p[k] = choice ? (double)l->attrs->v[k].i : l->attrs->v[k].f;
}

static bool same_shape(const fl_view *a, const fl_view *b) {
  if (a->ndim != b->ndim)
    return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->shape[i] != b->shape[i])
      return false;
  return true;
}

static inline bool contiguous(const fl_view *v) {
  int64_t expect = 1;
  for (int i = v->ndim - 1; i >= 0; i--) {
    if (v->shape[i] != 1 && v->stride[i] != expect)
      return false;
    expect *= v->shape[i];
  }
  return true;
}

/* Everything of the compute type, contiguous or one element: no dims needed. */
static bool set_flat(job *j, const fl_launch *l) {
  const fl_view *y = &l->out[0];
  if (y->dtype != j->out_type || !contiguous(y))
    return false;
  for (int k = 0; k < j->n_in; k++) {
    const fl_view *v = &l->in[k];
    operand *o = &j->in[k];
    if (v->ndim == 0 || !same_shape(v, y)) {
      if (fl_view_numel(v) != 1)
        return false;
      FL_CPU(convert)(1, j->type, o->value, v->dtype, v->data);
      o->single = true;
      continue;
    }
    if (v->dtype != j->type || !contiguous(v))
      return false;
    o->single = false;
    o->data = v->data;
    o->size = fl_dtype_size(v->dtype);
  }
  j->y.data = y->data;
  j->y.size = fl_dtype_size(y->dtype);
  return true;
}

/* A call that the dispatcher knows to be flat, and small: the loop at once. */
static void run_flat(const fl_launch *l, const fl_map *m, int64_t n) {
  const void *in[FL_MAP_IN];
  int step[FL_MAP_IN];
  double p[4];
  set_params(p, l, m);
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
    if (n <= PIECE) {
      if (n) /* a loop reads its first elements unasked */
        run_flat(l, m, n);
      return FL_OK;
    }
  }
  job j;
  int t = type_of(l, m);
  j.loop = m->loop[t];
  j.type = types[t];
  j.out_type = m->test ? FL_BOOL : j.type;
  j.bits = l->out[0].dtype == FL_BOOL ? 1 : 64;
  j.n_in = l->n_in;
  while (j.n_in > 0 && !l->in[j.n_in - 1].data)
    j.n_in--; /* a saved operand that the row does not need */
  j.n = fl_view_numel(&l->out[0]);
  set_params(j.p, l, m);
  if (j.n == 0)
    return FL_OK;
  if (set_flat(&j, l)) {
    if (j.n <= PIECE)
      flat_piece(&j, 0, j.n);
    else
      fl_cpu_parallel(l, j.n, PIECE, flat_piece, &j);
    return FL_OK;
  }
  j.ndim = l->out[0].ndim;
  memcpy(j.shape, l->out[0].shape, (size_t)j.ndim * sizeof j.shape[0]);
  bind(&j.y, &l->out[0], l, j.out_type);
  j.y.single = false;
  for (int k = 0; k < j.n_in; k++)
    bind(&j.in[k], &l->in[k], l, j.type);
  merge_dims(&j);
  j.y.flat = is_flat(&j, &j.y);
  for (int k = 0; k < j.n_in; k++)
    j.in[k].flat = !j.in[k].single && is_flat(&j, &j.in[k]);
  fl_cpu_parallel(l, j.n, PIECE, tiled_piece, &j);
  return FL_OK;
}
