/* Convolutions by cuDNN 9 where it is, through its backend interface: a graph
 * of one operation, engines by its heuristics without those that lose
 * precision. For a shape that comes again the first plans and our own kernels
 * are measured once. */
#include "../driver/autotune.h"
#include "../conv/convolve.h"
#include "cudnn.h"
#include "../gemm/gemm.h"
#include "../driver/process.h"
#include "../gemm/product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLANS     10                 /* of a heuristic, that are measured */
#define FEW       3                  /* where ours are most often faster */
#define CONFIGS   40                 /* that are asked for */
#define PARTS     96                 /* descriptors of a graph */
#define WORKSPACE ((int64_t)1 << 30) /* bytes that a plan may ask for */
/* Multiply-adds below which our own kernels do it without asking. */
#define SMALL ((double)(1 << 22))

typedef cudnnBackendDescriptor_t part;

/* --- the library --- */

static struct {
  pthread_once_t once;
  bool open;
  char where[512], why[700];
  flc_dnn_table table;
  pthread_mutex_t lock; /* of handles, their streams, and plans */
  cudnnHandle_t handles[FLC_DEVICES];
} dnn = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void cudnn_find(void) {
  static const char *const names[] = {"libcudnn.so.9", NULL};
  static const char *const symbols[] = {
#define FLC_DL(ret, name, params) #name,
#include "dl_cudnn.def"
  };
  void *handle = flc_library_open(names, dnn.where);
  dnn.open =
      handle && flc_library_bind(handle, dnn.where, symbols,
                                 sizeof symbols / sizeof *symbols, &dnn.table);
  if (!dnn.open)
    snprintf(dnn.why, sizeof dnn.why,
             "%s: convolutions are done by flare's own kernels; "
             "`pip install nvidia-cudnn-cu13` brings it",
             fl_error());
}

const flc_dnn_table *flc_dnn_get(void) {
  pthread_once(&dnn.once, cudnn_find);
  if (dnn.open)
    return &dnn.table;
  fli_fail(FL_EDEVICE, "%s", dnn.why);
  return NULL;
}

const char *flc_dnn_path(void) {
  return dnn.open ? dnn.where : "";
}

/* Under the lock. */
static cudnnHandle_t handle_of(const fl_launch *l) {
  cudnnHandle_t *h = &dnn.handles[l->device];
  if (!*h && dnn.table.cudnnCreate(h) != CUDNN_STATUS_SUCCESS)
    *h = NULL;
  return *h;
}

/* --- descriptors --- */

/* What is made on the way to plans; all is destroyed in the end. */
typedef struct builder {
  cudnnHandle_t handle;
  int n;
  part parts[PARTS];
  bool failed; /* from then on nothing happens */
} builder;

static part cudnn_make(builder *b, int type) {
  part d = NULL;
  if (b->failed || b->n == PARTS ||
      dnn.table.cudnnBackendCreateDescriptor(type, &d) !=
          CUDNN_STATUS_SUCCESS) {
    b->failed = true;
    return NULL;
  }
  return b->parts[b->n++] = d;
}

static void cudnn_set(builder *b, part d, int name, int type, int64_t n,
                      const void *values) {
  if (!b->failed && dnn.table.cudnnBackendSetAttribute(
                        d, name, type, n, values) != CUDNN_STATUS_SUCCESS)
    b->failed = true;
}

static void set_part(builder *b, part d, int name, part value) {
  cudnn_set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void cudnn_finish(builder *b, part d) {
  if (!b->failed && dnn.table.cudnnBackendFinalize(d) != CUDNN_STATUS_SUCCESS)
    b->failed = true;
}

static void cudnn_destroy(builder *b) {
  while (b->n > 0)
    dnn.table.cudnnBackendDestroyDescriptor(b->parts[--b->n]);
}

/* --- the graph --- */

static int type_of(fl_dtype d) {
  return d == FL_F64   ? CUDNN_DATA_DOUBLE
         : d == FL_F32 ? CUDNN_DATA_FLOAT
         : d == FL_F16 ? CUDNN_DATA_HALF
                       : CUDNN_DATA_BFLOAT16;
}

typedef struct layout { /* as the library wants it */
  int n;
  int64_t size[5], stride[5], alignment;
} layout;

static int64_t alignment_of(const void *p) {
  int64_t a = 16;
  while (a > 1 && !flc_aligned(p, (size_t)a))
    a /= 2;
  return a;
}

/* Dims of size 1 get the strides that they would have; false: elements that
 * repeat. */
static bool close_layout(layout *y) {
  bool last = y->stride[1] == 1 && y->size[1] > 1;
  for (int i = y->n - 1; i >= 0; i--) {
    if (y->size[i] == 1) {
      bool inner = i == y->n - 1;
      y->stride[i] =
          inner ? (last ? y->size[1] : 1) : y->stride[i + 1] * y->size[i + 1];
    } else if (y->stride[i] <= 0)
      return false;
  }
  return true;
}

static bool planes_layout(const flc_conv *c, const flc_planes *p, layout *y) {
  int spatial = c->spatial > 2 ? 3 : 2;
  *y = (layout){.n = 2 + spatial, .alignment = alignment_of(p->data)};
  y->size[0] = p->images;
  y->size[1] = p->channels;
  y->stride[0] = p->image;
  y->stride[1] = p->channel;
  for (int i = 0; i < spatial; i++) {
    y->size[2 + i] = p->size[3 - spatial + i];
    y->stride[2 + i] = p->place[3 - spatial + i];
  }
  return close_layout(y);
}

/* Of weights at w; `last`: inputs innermost. */
static void weight_layout(const flc_conv *c, const void *w, layout *y,
                          bool last) {
  int spatial = c->spatial > 2 ? 3 : 2;
  int64_t step = last ? c->inputs : 1;
  *y = (layout){.n = 2 + spatial, .alignment = alignment_of(w)};
  y->size[0] = c->outputs;
  y->size[1] = c->inputs;
  for (int i = 0; i < spatial; i++)
    y->size[2 + i] = c->kernel[3 - spatial + i];
  for (int i = y->n - 1; i >= 0; i--) {
    bool inner = last && i == 1;
    y->stride[i] = inner ? 1 : step;
    step *= inner ? 1 : y->size[i];
  }
}

static part cudnn_tensor(builder *b, const layout *y, fl_dtype dtype,
                         int64_t id) {
  int type = type_of(dtype);
  part d = cudnn_make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  cudnn_set(b, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  cudnn_set(b, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, y->n,
            y->size);
  cudnn_set(b, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, y->n, y->stride);
  cudnn_set(b, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  cudnn_set(b, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
            &y->alignment);
  cudnn_finish(b, d);
  return d;
}

static part cudnn_window(builder *b, const flc_conv *c) {
  int64_t spatial = c->spatial > 2 ? 3 : 2, from = 3 - spatial;
  int compute = c->dtype == FL_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  int mode = CUDNN_CROSS_CORRELATION;
  part d = cudnn_make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  cudnn_set(b, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
            &compute);
  cudnn_set(b, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
            1, &mode);
  cudnn_set(b, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1,
            &spatial);
  cudnn_set(b, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, spatial,
            c->dilation + from);
  cudnn_set(b, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64,
            spatial, c->stride + from);
  cudnn_set(b, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64,
            spatial, c->pad + from);
  cudnn_set(b, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64,
            spatial, c->pad + from);
  cudnn_finish(b, d);
  return d;
}

static part operation(builder *b, const flc_conv *c, const layout y[3]) {
  /* by kind: descriptor, then attributes alpha, beta, window, x, w, y */
  static const int names[][7] = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
  const int *name = names[c->kind];
  const double one64 = 1, zero64 = 0;
  const float one = 1, zero = 0;
  bool wide = c->dtype == FL_F64;
  int type = wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
  part d = cudnn_make(b, name[0]);
  cudnn_set(b, d, name[1], type, 1, wide ? (const void *)&one64 : &one);
  cudnn_set(b, d, name[2], type, 1, wide ? (const void *)&zero64 : &zero);
  set_part(b, d, name[3], cudnn_window(b, c));
  for (int i = 0; i < 3; i++)
    set_part(b, d, name[4 + i], cudnn_tensor(b, &y[i], c->dtype, i + 1));
  cudnn_finish(b, d);
  return d;
}

/* --- plans --- */

typedef struct plan { /* what is kept for a shape, under the lock */
  part made;          /* NULL: our own kernels do it */
  int64_t bytes;
  bool packed; /* channels innermost, by copies */
  bool measured;
} plan;

/* Whether an engine computes as we promise: f32 is f32, sums are made in float,
 * and, if that is asked for, in the same order every time. */
static bool exact(const flc_conv *c, part config) {
  const flc_dnn_table *t = &dnn.table;
  int notes[32];
  int64_t n = 0, one = 0;
  part engine = NULL;
  if (t->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR,
                                      &engine) != CUDNN_STATUS_SUCCESS)
    return false;
  bool good =
      t->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one,
                                  &engine) == CUDNN_STATUS_SUCCESS &&
      t->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                  CUDNN_TYPE_NUMERICAL_NOTE, 32, &n,
                                  notes) == CUDNN_STATUS_SUCCESS;
  for (int64_t i = 0; i < n && i < 32 && good; i++) {
    if (notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
        (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC &&
         flc_deterministic()))
      good = false;
    if (c->dtype == FL_F32 && !flc_setting_of(FLC_TF32) &&
        (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE ||
         notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
      good = false;
  }
  t->cudnnBackendDestroyDescriptor(engine);
  return good;
}

static bool finish_plan(cudnnHandle_t handle, part config, plan *p) {
  const flc_dnn_table *t = &dnn.table;
  int64_t n = 0;
  part d = NULL;
  if (t->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                                      &d) != CUDNN_STATUS_SUCCESS)
    return false;
  if (t->cudnnBackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                  CUDNN_TYPE_HANDLE, 1,
                                  &handle) == CUDNN_STATUS_SUCCESS &&
      t->cudnnBackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                  &config) == CUDNN_STATUS_SUCCESS &&
      t->cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS &&
      t->cudnnBackendGetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                  CUDNN_TYPE_INT64, 1, &n,
                                  &p->bytes) == CUDNN_STATUS_SUCCESS &&
      p->bytes <= WORKSPACE) {
    p->made = d;
    return true;
  }
  t->cudnnBackendDestroyDescriptor(d);
  return false;
}

/* Up to `most` plans, the most promising first; how many. */
static int cudnn_build(const fl_launch *l, const flc_conv *c, const layout y[3],
                       bool packed, int mode, int most, plan *plans) {
  builder b = {.handle = handle_of(l)};
  part configs[CONFIGS];
  int found = 0;
  int64_t n = 0;
  if (!b.handle)
    return 0;
  part op = operation(&b, c, y);
  part graph = cudnn_make(&b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set_part(&b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, op);
  cudnn_set(&b, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
            &b.handle);
  cudnn_finish(&b, graph);
  part heuristic = cudnn_make(&b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set_part(&b, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  cudnn_set(&b, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
            &mode);
  cudnn_finish(&b, heuristic);
  for (int i = 0; i < CONFIGS; i++)
    configs[i] = cudnn_make(&b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (!b.failed && dnn.table.cudnnBackendGetAttribute(
                       heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                       CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, &n,
                       configs) != CUDNN_STATUS_SUCCESS)
    n = 0;
  for (int64_t i = 0; i < n && i < CONFIGS && found < most; i++)
    if (exact(c, configs[i]) &&
        finish_plan(b.handle, configs[i], &plans[found]))
      plans[found++].packed = packed;
  cudnn_destroy(&b);
  return found;
}

/* --- running it --- */

typedef struct call {
  const fl_launch *l;
  const flc_conv *c;
  bool last;     /* all operands have channels innermost as they lie */
  void *weights; /* as the library reads or writes them where it is so, or
                    contiguous */
  int found;
  plan plans[3 * PLANS];
  flc_conv
      packed; /* c on copies with channels innermost, once they are there */
  void *x, *y, *w; /* the copies that are made, or results */
  void *room;      /* the library's workspace */
  int64_t bytes;
} call;

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
         (flc_conv_packed(&c->y, 1) || make_room(k->l, &c->y, &k->y));
}

static fl_status pack_inputs(call *k) {
  const flc_conv *c = k->c;
  flc_planes x = c->x, y = c->y;
  int64_t padded;
  fl_status s = FL_OK;
  if (k->x && c->kind != FLC_CONV_INPUT)
    s = flc_conv_pack(k->l, c, &x, &padded, k->x);
  if (s == FL_OK && k->y && c->kind != FLC_CONV_FORWARD)
    s = flc_conv_pack(k->l, c, &y, &padded, k->y);
  if (s == FL_OK && c->kind != FLC_CONV_WEIGHT && !c->w_last)
    s = flc_conv_turn_weights(k->l, c, c->w, k->w, false);
  return s;
}

static fl_status unpack_result(call *k) {
  const flc_conv *c = k->c;
  switch (c->kind) {
  case FLC_CONV_FORWARD:
    return k->y ? flc_conv_turn(k->l, c, c->y.images, flc_volume(c->y.size),
                                c->y.channels, k->y, c->y.data)
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
static fl_status execute(call *k, const plan *p) {
  const flc_conv *c = p->packed ? &k->packed : k->c;
  builder b = {.handle = handle_of(k->l)};
  const int64_t ids[] = {1, 2, 3};
  if (p->packed && !k->w && !cudnn_prepare(k))
    return FL_ENOMEM;
  fl_status s = p->packed ? pack_inputs(k) : FL_OK;
  if (s)
    return s;
  if (p->bytes > k->bytes) {
    k->room = fl_scratch_get(k->l, (size_t)p->bytes);
    k->bytes = k->room ? p->bytes : 0;
    if (!k->room)
      return FL_ENOMEM;
  }
  void *at[] = {c->x.data, p->packed ? c->w : k->weights, c->y.data};
  part pack = cudnn_make(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  cudnn_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3,
            ids);
  cudnn_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
            CUDNN_TYPE_VOID_PTR, 3, at);
  cudnn_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
            &k->room);
  cudnn_finish(&b, pack);
  int e =
      b.failed ? -1 : dnn.table.cudnnSetStream(b.handle, flc_stream_of(k->l));
  if (e == CUDNN_STATUS_SUCCESS)
    e = dnn.table.cudnnBackendExecute(b.handle, p->made, pack);
  cudnn_destroy(&b);
  if (e != CUDNN_STATUS_SUCCESS)
    return fli_fail(FL_EDEVICE, "%s: cuDNN failed with status %d", k->l->op, e);
  if (p->packed && (s = unpack_result(k)))
    return s;
  return c->bias ? add_bias(k->l, k->c) : FL_OK;
}

static fl_status run_candidate(void *context, int i) {
  call *k = context;
  if (i == k->found)
    return flc_conv_native(k->l, k->c);
  call once = *k; /* scratch memory taken by one run is not there in the next */
  return execute(&once, &k->plans[i]);
}

static int build_packed(call *k, int most, plan *plans) {
  layout last[3];
  if (!can_pack(k->c) || !(k->w || cudnn_prepare(k)) ||
      !planes_layout(k->c, &k->packed.x, &last[0]) ||
      !planes_layout(k->c, &k->packed.y, &last[2]))
    return 0;
  weight_layout(&k->packed, k->packed.w, &last[1], true);
  int n =
      cudnn_build(k->l, &k->packed, last, true, CUDNN_HEUR_MODE_A, most, plans);
  if (most > 1) /* what a slower heuristic knows as well */
    n += cudnn_build(k->l, &k->packed, last, true, CUDNN_HEUR_MODE_B, most,
                     plans + n);
  return n;
}

/* Depthwise: the library's engines reach a hundredth of the memory's
 * rate (NVIDIA H200), and each plan takes long to measure. */
static bool ours_first(const flc_conv *c) {
  return flc_conv_few(c) && c->inputs == 1 && c->outputs <= 4 * c->groups;
}

/* Puts the best of several plans into p, which has the first. */
static void cudnn_measure(call *k, const layout y[3], bool own, plan *p) {
  int most = own && ours_first(k->c) ? FEW : PLANS;
  k->found = k->last ? 0 : build_packed(k, most, k->plans);
  if (!k->found || !lies_packed(k->c))
    k->found += cudnn_build(k->l, k->c, y, false, CUDNN_HEUR_MODE_A, most,
                            k->plans + k->found);
  if (k->last)
    k->found += cudnn_build(k->l, k->c, y, false, CUDNN_HEUR_MODE_B, most,
                            k->plans + k->found);
  int best = flc_fastest(k->l, k->found + own, FLC_MANY, run_candidate, k);
  p->measured = true;
  if (best >= 0) {
    if (p->made)
      dnn.table.cudnnBackendDestroyDescriptor(p->made);
    p->made = NULL;
  }
  if (best >= 0 && best < k->found) {
    p->made = k->plans[best].made;
    p->bytes = k->plans[best].bytes;
    p->packed = k->plans[best].packed;
    k->plans[best].made = NULL;
  }
  for (int i = 0; i < k->found; i++)
    if (k->plans[i].made)
      dnn.table.cudnnBackendDestroyDescriptor(k->plans[i].made);
}

/* The plan of a shape, made or measured when it is time; NULL: none. */
static const plan *plan_of(call *k, flc_tuned *place, const layout y[3],
                           bool own) {
  if (flc_tuned_made(place) < 0) {
    plan *p = calloc(1, sizeof *p);
    if (!p)
      return NULL;
    bool ours = own && ours_first(k->c); /* until it is measured */
    int found =
        !ours && !k->last && lies_packed(k->c) ? build_packed(k, 1, p) : 0;
    if (!found && !ours)
      found = cudnn_build(k->l, k->c, y, false, CUDNN_HEUR_MODE_A, 1, p);
    p->measured = !ours && !found && (k->last || !can_pack(k->c));
    flc_tuned_make(place, 0, p); /* the lock makes us the first */
  }
  plan *p = place->plan;
  if (!p->measured && flc_may_measure(k->l) && ++place->seen > 2)
    cudnn_measure(k, y, own, p);
  return p;
}

static void key_of(const fl_launch *l, const flc_conv *c, const layout y[3],
                   int by, bool last, int64_t *key) {
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

/* With weights contiguous or, where lies_last says so, as they lie. */
static fl_status convolve(const fl_launch *l, const flc_conv *c) {
  int by = flc_setting_of(FLC_CONV);
  double work = (double)c->y.images * (double)flc_volume(c->y.size) *
                (double)c->outputs * (double)c->inputs *
                (double)flc_volume(c->kernel);
  call k = {.l = l, .c = c, .last = lies_last(c)};
  layout y[3];
  int64_t key[FLC_KEY];
  if (by == FLC_OWN || work == 0 || (by == FLC_AUTO && work < SMALL) ||
      !planes_layout(c, &c->x, &y[0]) || !planes_layout(c, &c->y, &y[2]) ||
      !flc_dnn_get())
    return flc_conv_native(l, c);
  k.weights = c->w ? c->w : c->w_last;
  weight_layout(c, k.weights, &y[1], k.last);
  key_of(l, c, y, by, k.last, key);
  flc_tuned *place = flc_tuned_of(key);
  if (!place)
    return FL_ENOMEM;
  pthread_mutex_lock(&dnn.lock);
  const plan *p = plan_of(&k, place, y, by == FLC_AUTO);
  bool made = p && p->made;
  fl_status s = made ? execute(&k, p) : FL_OK;
  pthread_mutex_unlock(&dnn.lock);
  return made ? s : flc_conv_native(l, c);
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
