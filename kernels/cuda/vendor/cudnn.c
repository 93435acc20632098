/* cuDNN 9 where it is, through its backend interface: a graph of one operation,
 * and plans by the engines of its heuristic, without those that lose precision.
 * Which of them computes a convolution is in cudnn_conv.c. */
#include "../driver/autotune.h"
#include "../driver/process.h"
#include "cudnn_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIGS   40                 /* that are asked for */
#define PARTS     96                 /* descriptors of a graph */
#define WORKSPACE ((int64_t)1 << 30) /* bytes that a plan may ask for */

typedef cudnnBackendDescriptor_t part;

/* --- the library --- */

static struct {
  pthread_once_t once;
  bool open;
  char where[512], why[700];
  flc_dnn_table table;
} dnn = {.once = PTHREAD_ONCE_INIT};

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

cudnnHandle_t flc_dnn_open(void) {
  cudnnHandle_t h = NULL;
  return dnn.table.cudnnCreate(&h) == CUDNN_STATUS_SUCCESS ? h : NULL;
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

static int64_t alignment_of(const void *p) {
  int64_t a = 16;
  while (a > 1 && !flc_aligned(p, (size_t)a))
    a /= 2;
  return a;
}

/* Dims of size 1 get the strides that they would have; false: elements that
 * repeat. */
static bool close_layout(flc_dnn_layout *y) {
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

bool flc_dnn_planes(const flc_conv *c, const flc_planes *p, flc_dnn_layout *y) {
  int spatial = c->spatial > 2 ? 3 : 2;
  *y = (flc_dnn_layout){.n = 2 + spatial, .alignment = alignment_of(p->data)};
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

void flc_dnn_weights(const flc_conv *c, const void *w, flc_dnn_layout *y,
                     bool last) {
  int spatial = c->spatial > 2 ? 3 : 2;
  int64_t step = last ? c->inputs : 1;
  *y = (flc_dnn_layout){.n = 2 + spatial, .alignment = alignment_of(w)};
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

static part cudnn_tensor(builder *b, const flc_dnn_layout *y, fl_dtype dtype,
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

static part operation(builder *b, const flc_conv *c,
                      const flc_dnn_layout y[3]) {
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

static bool finish_plan(cudnnHandle_t handle, part config, flc_dnn_plan *p) {
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

int flc_dnn_plans(cudnnHandle_t handle, const flc_conv *c,
                  const flc_dnn_layout y[3], bool packed, int most,
                  flc_dnn_plan *plans) {
  const int mode = CUDNN_HEUR_MODE_A;
  builder b = {.handle = handle};
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
        finish_plan(b.handle, configs[i], &plans[found])) {
      plans[found].kept = false;
      plans[found++].packed = packed;
    }
  cudnn_destroy(&b);
  return found;
}

void flc_dnn_drop(flc_dnn_plan *p) {
  if (p->made && !p->kept)
    dnn.table.cudnnBackendDestroyDescriptor(p->made);
  p->made = NULL;
}

int flc_dnn_run(cudnnHandle_t handle, CUstream stream, const flc_dnn_plan *p,
                void *const at[3], void *room) {
  builder b = {.handle = handle};
  const int64_t ids[] = {1, 2, 3};
  part pack = cudnn_make(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  cudnn_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3,
            ids);
  cudnn_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
            CUDNN_TYPE_VOID_PTR, 3, at);
  cudnn_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
            &room);
  cudnn_finish(&b, pack);
  int e = b.failed ? -1 : dnn.table.cudnnSetStream(handle, stream);
  if (e == CUDNN_STATUS_SUCCESS)
    e = dnn.table.cudnnBackendExecute(handle, p->made, pack);
  cudnn_destroy(&b);
  return e;
}
