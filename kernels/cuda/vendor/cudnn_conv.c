/* Convolutions by cuDNN or by our own kernels. The first calls of a shape run
 * the heuristic's first plan; meanwhile a thread makes others and loads their
 * kernels, and trials (autotune.h) compare them on later calls. */
#include "../driver/autotune.h"
#include "../driver/backend.h"
#include "../gemm/gemm.h"
#include "../gemm/product.h"
#include "cudnn_plan.h"

#include <stdlib.h>
#include <string.h>

#define PLANS 8 /* of a heuristic, that are tried */
#define FEW   3 /* where ours are most often faster */
/* Multiply-adds below which our own kernels do it without asking. */
#define SMALL ((double)(1 << 22))

typedef struct shape { /* what is kept of one, under the lock */
  int seen;
  bool asked, own, ours; /* our kernels are a candidate; the first one */
  int found;             /* plans */
  flc_dnn_plan plans[2 * PLANS];
  flc_trials *trials; /* of plans 0 ... found - 1, and ours; NULL: not yet */
} shape;

typedef struct call {
  const fl_launch *l;
  const flc_conv *c;
  bool last;     /* all operands have channels innermost as they lie */
  void *weights; /* as the library reads or writes them where it is so, or
                    contiguous */
  flc_dnn_layout layout[3];
  shape *shape;
  flc_conv
      packed; /* c on copies with channels innermost, once they are there */
  void *x, *y_room, *w; /* the copies that are made, or results */
} call;

typedef struct job { /* plans of a shape that a thread is to make */
  flc_device *device;
  shape *to;
  flc_conv plain, packed;
  bool may_pack, may_plain;
  bool has_first, first_packed; /* the shape has a plan already */
  int most;
  flc_dnn_layout layout[2][3]; /* plain, packed */
  void *at[2][3];
  struct job *next;
} job;

static struct {
  pthread_mutex_t lock; /* of handles, their streams, shapes and jobs */
  cudnnHandle_t handles[FLC_DEVICES];
  bool working;
  job *jobs;
  /* of the thread: */
  cudnnHandle_t builders[FLC_DEVICES];
  CUstream loaders[FLC_DEVICES];
} conv = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Under the lock. */
static cudnnHandle_t handle_of(const fl_launch *l) {
  cudnnHandle_t *h = &conv.handles[l->device];
  return *h ? *h : (*h = flc_dnn_open());
}

/* --- running it --- */

/* Adds the bias to what is in memory: rows are channels, or places. */
static fl_status add_bias(const fl_launch *l, const flc_conv *c) {
  int64_t places = flc_volume(c->y.size);
  bool down = c->y.channel != 1 || c->outputs == 1;
  gemm_args a = {.a = c->y.data,
                 .c = c->y.data,
                 .bias = c->bias,
                 .bias_dtype = c->bias_dtype,
                 .bias_down = down,
                 .m = down ? c->outputs : c->y.images * places,
                 .n = down ? places : c->outputs,
                 .batch = down ? c->y.images : 1};
  int width = (int)(16 / fl_dtype_size(c->dtype));
  a.wide = a.n % width == 0 && flc_aligned(a.c, 16);
  flc_spec spec = FLC_SPEC("gemm", "apply", (int16_t)c->dtype, (int16_t)a.wide);
  int64_t blocks = fl_ceil_div(a.m * a.n * a.batch, 256 * (a.wide ? width : 1));
  flc_grid grid = {.x = (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20),
                   .block = 256};
  return FLC_RUN(l, spec, grid, a);
}

/* --- channels innermost, by copies: most engines want it so --- */

static bool can_pack(const flc_conv *c) {
  const flc_planes *to = c->kind == FLC_CONV_FORWARD ? &c->y
                         : c->kind == FLC_CONV_INPUT ? &c->x
                                                     : NULL;
  int64_t places = !to || flc_conv_packed(to, 1) ? 8 : flc_volume(to->size);
  return fl_dtype_size(c->dtype) == 2 && c->groups == 1 &&
         c->x.channels % 8 == 0 && c->y.channels % 8 == 0 && places % 8 == 0;
}

static bool lies_packed(const flc_conv *c) {
  return flc_conv_packed(&c->x, 1) && flc_conv_packed(&c->y, 1);
}

static bool planes_last(const flc_planes *p) {
  int64_t step = p->channels;
  for (int i = 2; i >= 0; step *= p->size[i--])
    if (p->size[i] != 1 && p->place[i] != step)
      return false;
  return p->channels > 1 && p->channel == 1;
}

/* Kernels of one tap, or of one input, have both layouts. */
static bool lies_last(const flc_conv *c) {
  return planes_last(&c->x) && planes_last(&c->y) &&
         (!c->w || c->inputs == 1 || flc_volume(c->kernel) == 1);
}

/* Room for p packed; p as it will be there. */
static bool make_room(const fl_launch *l, flc_planes *p, void **room) {
  int64_t step = p->channels;
  for (int i = 2; i >= 0; step *= p->size[i--])
    p->place[i] = step;
  p->image = step;
  p->channel = 1;
  *room = p->data = fl_scratch_get(l, (size_t)(p->images * step) * 2);
  return *room != NULL;
}

static bool cudnn_prepare(call *k) {
  flc_conv *c = &k->packed;
  int64_t n = k->c->outputs * k->c->inputs * flc_volume(k->c->kernel);
  *c = *k->c;
  c->w = k->w = c->w_last ? c->w_last : fl_scratch_get(k->l, (size_t)n * 2);
  return k->w && (flc_conv_packed(&c->x, 1) || make_room(k->l, &c->x, &k->x)) &&
         (flc_conv_packed(&c->y, 1) || make_room(k->l, &c->y, &k->y_room));
}

static fl_status pack_inputs(call *k) {
  const flc_conv *c = k->c;
  flc_planes x = c->x, y = c->y;
  int64_t padded;
  fl_status s = FL_OK;
  if (k->x && c->kind != FLC_CONV_INPUT)
    s = flc_conv_pack(k->l, c, &x, &padded, k->x);
  if (s == FL_OK && k->y_room && c->kind != FLC_CONV_FORWARD)
    s = flc_conv_pack(k->l, c, &y, &padded, k->y_room);
  if (s == FL_OK && c->kind != FLC_CONV_WEIGHT && !c->w_last)
    s = flc_conv_turn_weights(k->l, c, c->w, k->w, false);
  return s;
}

static fl_status unpack_result(call *k) {
  const flc_conv *c = k->c;
  switch (c->kind) {
  case FLC_CONV_FORWARD:
    return k->y_room
               ? flc_conv_turn(k->l, c, c->y.images, flc_volume(c->y.size),
                               c->y.channels, k->y_room, c->y.data)
               : FL_OK;
  case FLC_CONV_INPUT:
    return k->x ? flc_conv_turn(k->l, c, c->x.images, flc_volume(c->x.size),
                                c->x.channels, k->x, c->x.data)
                : FL_OK;
  case FLC_CONV_WEIGHT:
    break;
  }
  return flc_conv_turn_weights(k->l, c, k->w, c->w, true);
}

/* Under the lock. */
static fl_status execute(call *k, flc_dnn_plan *p) {
  const flc_conv *c = p->packed ? &k->packed : k->c;
  if (p->packed && !k->w && !cudnn_prepare(k))
    return FL_ENOMEM;
  fl_status s = p->packed ? pack_inputs(k) : FL_OK;
  if (s)
    return s;
  void *room = p->bytes ? fl_scratch_get(k->l, (size_t)p->bytes) : NULL;
  if (p->bytes && !room)
    return FL_ENOMEM;
  void *at[] = {c->x.data, p->packed ? c->w : k->weights, c->y.data};
  p->kept |= !flc_may_measure(k->l);
  int e = flc_dnn_run(handle_of(k->l), flc_stream_of(k->l), p, at, room);
  if (e)
    return fli_fail(FL_EDEVICE, "%s: cuDNN failed with status %d", k->l->op, e);
  if (p->packed && (s = unpack_result(k)))
    return s;
  return c->bias ? add_bias(k->l, k->c) : FL_OK;
}

/* Products of matrices are cuBLASLt's, or our own kernels'. */
static fl_status by_ours(const fl_launch *l, const flc_conv *c) {
  flc_product p;
  return flc_conv_product(c, &p) ? flc_multiply(l, &p) : flc_conv_native(l, c);
}

/* Under the lock, which others have while our own kernels are launched: plan i,
 * or our own kernels behind the last one. Scratch memory that one run takes is
 * not there in the next. */
static fl_status run_candidate(void *context, int i) {
  call once = *(call *)context;
  if (i < once.shape->found)
    return execute(&once, &once.shape->plans[i]);
  pthread_mutex_unlock(&conv.lock);
  fl_status s = by_ours(once.l, once.c);
  pthread_mutex_lock(&conv.lock);
  return s;
}

/* --- what is compared --- */

static fl_status probe_own(const fl_launch *l, const void *c) {
  return flc_conv_native(l, c);
}

/* The copies around a plan whose operands have channels innermost. */
static fl_status probe_packed(const fl_launch *l, const void *context) {
  call once = *(const call *)context;
  once.l = l;
  if (!once.w && !cudnn_prepare(&once))
    return FL_ENOMEM;
  fl_status s = pack_inputs(&once);
  return s ? s : unpack_result(&once);
}

static int is_ready(void *context, int i) {
  const call *k = context;
  flc_product p;
  if (i < k->shape->found && k->shape->plans[i].packed)
    return flc_soon(k->l, probe_packed, k);
  return i < k->shape->found || flc_conv_product(k->c, &p)
             ? 1
             : flc_soon(k->l, probe_own, k->c);
}

/* The plan's kernels are loaded by a capture, which does not run. */
static void load_plan(cudnnHandle_t h, CUstream s, const flc_dnn_plan *p,
                      void *const at[3]) {
  CUgraph g = NULL;
  if (flc_cu->StreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED) !=
      CUDA_SUCCESS)
    return;
  flc_dnn_run(h, s, p, at, at[0]);
  flc_cu->StreamEndCapture(s, &g);
  if (g)
    flc_cu->GraphDestroy(g);
}

/* Those of one layout, without the one that the shape has already. */
static int job_plans(const job *j, cudnnHandle_t h, bool packed,
                     flc_dnn_plan *plans) {
  int n = flc_dnn_plans(h, packed ? &j->packed : &j->plain, j->layout[packed],
                        packed, j->most, plans);
  if (n && j->has_first && packed == j->first_packed) {
    flc_dnn_drop(&plans[0]);
    memmove(plans, plans + 1, (size_t)--n * sizeof *plans);
  }
  return n;
}

/* Under the lock: the shape gets its candidates, those of the layout as it is
 * and ours apart from the packed ones. */
static void job_end(const job *j, int packed, int plain, flc_dnn_plan *plans) {
  shape *x = j->to;
  int first = x->ours ? packed + plain : 0;
  if (x->trials) { /* it could not wait */
    for (int i = 0; i < packed + plain; i++)
      flc_dnn_drop(&plans[i]);
    return;
  }
  memcpy(x->plans + x->found, plans, (size_t)(packed + plain) * sizeof *plans);
  x->found += packed + plain;
  x->trials =
      flc_trials_new(x->found + x->own, first, (packed ? plain : 0) + x->own);
}

static void job_do(const job *j, cudnnHandle_t h, CUstream loader,
                   bool locked) {
  flc_dnn_plan plans[2 * PLANS];
  int packed = h && j->may_pack ? job_plans(j, h, true, plans) : 0;
  int plain = h && (j->may_plain || !packed)
                  ? job_plans(j, h, false, plans + packed)
                  : 0;
  for (int i = 0; loader && i < packed + plain; i++)
    load_plan(h, loader, &plans[i], j->at[plans[i].packed]);
  if (!locked)
    pthread_mutex_lock(&conv.lock);
  job_end(j, packed, plain, plans);
  if (!locked)
    pthread_mutex_unlock(&conv.lock);
}

/* A thread makes the plans of the next shape. */
static void job_next(void *unused) {
  (void)unused;
  flc_context before;
  pthread_mutex_lock(&conv.lock);
  job *j = conv.jobs;
  conv.jobs = j->next;
  pthread_mutex_unlock(&conv.lock);
  int d = j->device->index;
  if (flc_enter(j->device, &before) == FL_OK) {
    if (!conv.builders[d])
      conv.builders[d] = flc_dnn_open();
    if (!conv.loaders[d] &&
        flc_cu->StreamCreate(&conv.loaders[d], CU_STREAM_NON_BLOCKING) !=
            CUDA_SUCCESS)
      conv.loaders[d] = NULL;
    job_do(j, conv.builders[d], conv.loaders[d], false);
    flc_leave(j->device, before);
  }
  free(j);
  pthread_mutex_lock(&conv.lock);
  conv.working = conv.jobs && flc_ahead_do(job_next, NULL);
  pthread_mutex_unlock(&conv.lock);
}

static job *job_new(call *k) {
  job *j = calloc(1, sizeof *j);
  if (!j)
    return NULL;
  bool packs = !k->last && can_pack(k->c) && (k->w || cudnn_prepare(k));
  const flc_conv *c = &k->packed;
  *j = (job){.device = k->l->stream->device,
             .to = k->shape,
             .plain = *k->c,
             .may_plain = k->last || !lies_packed(k->c),
             .has_first = k->shape->found,
             .first_packed = k->shape->found && k->shape->plans[0].packed,
             .most = k->shape->ours ? FEW : PLANS};
  memcpy(j->layout[0], k->layout, sizeof k->layout);
  j->at[0][0] = k->c->x.data;
  j->at[0][1] = k->weights;
  j->at[0][2] = k->c->y.data;
  if (packs && flc_dnn_planes(c, &c->x, &j->layout[1][0]) &&
      flc_dnn_planes(c, &c->y, &j->layout[1][2])) {
    flc_dnn_weights(c, c->w, &j->layout[1][1], true);
    j->packed = *c;
    j->may_pack = true;
    j->at[1][0] = c->x.data;
    j->at[1][1] = c->w;
    j->at[1][2] = c->y.data;
  }
  return j;
}

/* Under the lock: asks for the shape's other plans; `now`: makes them. */
static void ask(call *k, bool now) {
  call once = *k;
  int mark = fl_scratch_mark(k->l);
  job *j = job_new(&once), **at = &conv.jobs;
  fl_scratch_release(k->l, mark);
  if (!j)
    return;
  k->shape->asked = true;
  if (now) {
    job_do(j, handle_of(k->l), NULL, true);
    free(j);
    return;
  }
  while (*at)
    at = &(*at)->next;
  *at = j;
  conv.working = conv.working || flc_ahead_do(job_next, NULL);
}

/* Depthwise: the library's engines reach a hundredth of the memory's rate
 * (NVIDIA H200), and each plan takes long. Products: cuBLASLt takes 40 % less
 * time for those of ResNet-50 than the library's engines (NVIDIA H200). */
static bool ours_first(const flc_conv *c) {
  flc_product p;
  return flc_conv_product(c, &p) ||
         (flc_conv_few(c) && c->inputs == 1 && c->outputs <= 4 * c->groups);
}

/* The heuristic's first plan. */
static int first_plan(call *k, flc_dnn_plan *plan) {
  cudnnHandle_t h = handle_of(k->l);
  flc_dnn_layout last[3];
  int found = 0;
  if (h && !k->last && lies_packed(k->c) && can_pack(k->c) &&
      cudnn_prepare(k) && flc_dnn_planes(k->c, &k->packed.x, &last[0]) &&
      flc_dnn_planes(k->c, &k->packed.y, &last[2])) {
    flc_dnn_weights(&k->packed, k->packed.w, &last[1], true);
    found = flc_dnn_plans(h, &k->packed, last, true, 1, plan);
  }
  return found || !h ? found
                     : flc_dnn_plans(h, k->c, k->layout, false, 1, plan);
}

static shape *shape_of(call *k, flc_tuned *place, bool own) {
  shape *x = place->plan;
  if (x)
    return x;
  place->plan = x = calloc(1, sizeof *x);
  if (!x) {
    fli_fail(FL_ENOMEM, "out of memory: a table of shapes");
    return NULL;
  }
  x->own = own;
  x->ours = own && ours_first(k->c); /* until others are faster */
  x->found = x->ours ? 0 : first_plan(k, x->plans);
  x->asked = !x->ours && !x->found && (k->last || !can_pack(k->c));
  return x;
}

/* The others are not run any more. */
static void drop_others(shape *x, int best) {
  for (int i = 0; i < x->found; i++)
    if (i != best)
      flc_dnn_drop(&x->plans[i]);
}

/* Under the lock. By the candidate whose turn it is; if that fails, by the best
 * so far. */
static fl_status run_shape(call *k) {
  shape *x = k->shape;
  bool timed = false, settled = false, may = flc_may_measure(k->l);
  int best = x->ours ? x->found : 0, i;
  x->seen++;
  if (may && (flc_setting_of(FLC_SETTLE) ? !x->trials && (x->found || x->ours)
                                         : !x->asked && x->seen > 1))
    ask(k, flc_setting_of(FLC_SETTLE));
  if (!x->trials) {
    if (may && x->asked && (x->found || x->ours))
      k->l->stream->unsettled = k->l->seq;
    return run_candidate(k, best);
  }
  if (flc_setting_of(FLC_SETTLE))
    flc_trials_settle(x->trials, k->l, run_candidate, k);
  i = flc_trials_next(x->trials, k->l, is_ready, k, &timed);
  fl_status s = run_candidate(k, i);
  if (timed)
    flc_trials_end(x->trials, k->l, s == FL_OK);
  best = flc_trials_best(x->trials, &settled);
  if (settled)
    drop_others(x, best);
  return s && timed && i != best ? run_candidate(k, best) : s;
}

static void key_of(const fl_launch *l, const flc_conv *c,
                   const flc_dnn_layout y[3], int by, bool last, int64_t *key) {
  int64_t *at = key;
  memset(key, 0, FLC_KEY * sizeof *key);
  *at++ = 2 + c->kind;
  *at++ = l->device * 16 + by * 4 + flc_deterministic() * 2 +
          flc_setting_of(FLC_TF32);
  *at++ = c->dtype * 1024 + y[0].alignment * 64 + y[1].alignment * 8 +
          y[2].alignment;
  *at++ = c->groups * 8 + c->spatial * 2 + last;
  memcpy(at, y[0].size, sizeof y[0].size);
  memcpy(at + 5, y[1].size, sizeof y[1].size);
  at += 10;
  /* y's sizes follow from these */
  for (int i = 0; i < 3; i++)
    *at++ = c->stride[i] << 42 ^ c->pad[i] << 21 ^ c->dilation[i];
  for (int i = 0; i < 5; i++)
    *at++ = y[0].stride[i];
  for (int i = 0; i < 5; i++)
    *at++ = y[2].stride[i];
}

/* Of a probe: our kernels beside the library's first plan. */
static fl_status probe_first(call *k) {
  if (ours_first(k->c))
    return by_ours(k->l, k->c);
  fl_status s = FL_OK;
  if (!k->last && lies_packed(k->c) && can_pack(k->c))
    s = probe_packed(k->l, k);
  return s == FL_OK && k->c->bias ? add_bias(k->l, k->c) : s;
}

/* With weights contiguous or, where lies_last says so, as they lie. */
static fl_status convolve(const fl_launch *l, const flc_conv *c) {
  int by = flc_setting_of(FLC_CONV);
  double work = (double)c->y.images * (double)flc_volume(c->y.size) *
                (double)c->outputs * (double)c->inputs *
                (double)flc_volume(c->kernel);
  call k = {.l = l, .c = c, .last = lies_last(c)};
  int64_t key[FLC_KEY];
  if (by == FLC_OWN || work == 0 || (by == FLC_AUTO && work < SMALL))
    return flc_conv_native(l, c);
  if (!flc_dnn_planes(c, &c->x, &k.layout[0]) ||
      !flc_dnn_planes(c, &c->y, &k.layout[2]) || !flc_dnn_get())
    return by_ours(l, c);
  k.weights = c->w ? c->w : c->w_last;
  if (l->probe)
    return probe_first(&k);
  flc_dnn_weights(c, k.weights, &k.layout[1], k.last);
  key_of(l, c, k.layout, by, k.last, key);
  flc_tuned *place = flc_tuned_of(key);
  if (!place)
    return FL_ENOMEM;
  pthread_mutex_lock(&conv.lock);
  k.shape = shape_of(&k, place, by == FLC_AUTO);
  fl_status s = k.shape ? run_shape(&k) : FL_ENOMEM;
  pthread_mutex_unlock(&conv.lock);
  return s;
}

fl_status flc_convolve(const fl_launch *l, const flc_conv *c) {
  flc_conv plain = *c;
  if (c->w || lies_last(c))
    return convolve(l, c);
  if (flc_conv_weights(l, &plain) != FL_OK)
    return FL_ENOMEM;
  if (c->kind != FLC_CONV_WEIGHT)
    return convolve(l, &plain);
  plain.w_last = NULL;
  fl_status s = convolve(l, &plain);
  return s == FL_OK ? flc_conv_put_weights(l, &plain, c) : s;
}
