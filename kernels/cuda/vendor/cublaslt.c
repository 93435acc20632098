/* Matrix products by cuBLASLt where it is: row-major by swapped operands,
 * epilogues where they mean the same as ours. For a shape that comes again,
 * trials (autotune.h) compare the first algorithms of its heuristic and our own
 * kernels. */
#include "cublaslt.h"
#include "../driver/autotune.h"
#include "../driver/backend.h"
#include "../driver/process.h"
#include "../gemm/product.h"
#include "../gemm/gemm.h"

#include "../../../runtime/program.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALGORITHMS 8
#define WORKSPACE  ((size_t)32 << 20) /* bytes of one, at most */
#define ALIGNED    256                /* of it */
/* Multiply-adds below which our own kernels do it without asking. */
#define SMALL ((double)(1 << 21))

/* --- the library --- */

static struct {
  pthread_once_t once;
  bool open;
  char where[512], why[700];
  flc_blas_table table;
  cublasLtHandle_t handles[FLC_DEVICES];
  pthread_mutex_t lock; /* of shapes and their trials */
  bool used;            /* by a product */
} blas = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void cublaslt_find(void) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                      NULL};
  static const char *const symbols[] = {
#define FLC_DL(ret, name, params) #name,
#include "dl_cublaslt.def"
  };
  void *handle = flc_library_open(names, blas.where);
  blas.open =
      handle && flc_library_bind(handle, blas.where, symbols,
                                 sizeof symbols / sizeof *symbols, &blas.table);
  if (!blas.open)
    snprintf(blas.why, sizeof blas.why,
             "%s: products are done by flare's own kernels; "
             "`pip install nvidia-cublas` or a CUDA toolkit brings it",
             fl_error());
}

const flc_blas_table *flc_blas_get(void) {
  pthread_once(&blas.once, cublaslt_find);
  if (blas.open)
    return &blas.table;
  fli_fail(FL_EDEVICE, "%s", blas.why);
  return NULL;
}

const char *flc_blas_path(void) {
  return blas.open ? blas.where : "";
}

/* The handle of the launch's device, NULL if there is none. */
static cublasLtHandle_t handle_of(const fl_launch *l) {
  cublasLtHandle_t *h = &blas.handles[l->device];
  pthread_mutex_lock(&flc_lock);
  if (!*h && blas.table.cublasLtCreate(h) != CUBLAS_STATUS_SUCCESS)
    *h = NULL;
  cublasLtHandle_t found = *h;
  pthread_mutex_unlock(&flc_lock);
  return found;
}

/* --- a product in the library's terms --- */

typedef struct algorithm {
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace;
  bool joint;
} algorithm;

typedef struct shape { /* what is kept of one */
  int seen, found;     /* algorithms; behind them our own kernels */
  bool own;            /* are a candidate */
  algorithm algorithms[2 * ALGORITHMS];
  flc_trials *trials; /* NULL: the first one */
} shape;

typedef struct call {
  const fl_launch *l;
  const flc_product *p;
  cublasLtHandle_t handle;
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t a, b, c; /* of B^T, A^T, C^T by columns */
  int epilogue;
  const void *aux; /* what it writes before the activation, or reads */
  bool inside;     /* the epilogue is all there is to do afterwards */
  bool joint;      /* and does what is behind the product */
  bool biased;     /* the epilogue adds the bias, at least */
  void *to;        /* what the library writes */
  void *trial; /* written instead of a C that is added to, while measuring */
  shape *shape;
} call;

static int type_of(fl_dtype d) {
  return d == FL_F64   ? CUDA_R_64F
         : d == FL_F32 ? CUDA_R_32F
         : d == FL_F16 ? CUDA_R_16F
                       : CUDA_R_16BF;
}

/* As the library wants an operand: lines `ld` apart, not overlapping. */
static bool lines_of(int64_t rows, int64_t k, int64_t down, int64_t along,
                     bool *turned, int64_t *ld) {
  if ((along == 1 || k == 1) && (down >= k || rows == 1)) {
    *turned = false;
    *ld = rows == 1 ? k : down;
    return true;
  }
  *turned = true;
  *ld = k == 1 ? rows : along;
  return (down == 1 || rows == 1) && *ld >= rows;
}

static bool set_desc(call *c, int what, const void *value, size_t size) {
  return blas.table.cublasLtMatmulDescSetAttribute(
             &c->desc, what, value, size) == CUBLAS_STATUS_SUCCESS;
}

static bool set_layout(cublasLtMatrixLayoutOpaque_t *m, fl_dtype d,
                       int64_t rows, int64_t cols, int64_t ld, int64_t batch,
                       int64_t step) {
  int32_t count = (int32_t)batch;
  const flc_blas_table *t = &blas.table;
  return t->cublasLtMatrixLayoutInit_internal(m, sizeof *m, type_of(d),
                                              (uint64_t)rows, (uint64_t)cols,
                                              ld) == CUBLAS_STATUS_SUCCESS &&
         (batch == 1 || (t->cublasLtMatrixLayoutSetAttribute(
                             m, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                             sizeof count) == CUBLAS_STATUS_SUCCESS &&
                         t->cublasLtMatrixLayoutSetAttribute(
                             m, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                             &step, sizeof step) == CUBLAS_STATUS_SUCCESS));
}

/* What of bias and activation the library does itself. Its gelu is the tanh
 * form; everything is rounded once, as in our own kernels. */
static void choose_epilogue(call *c) {
  const flc_product *p = c->p;
  bool bias = p->bias && p->bias_dtype == p->dtype && p->dtype != FL_F64 &&
              !p->bias_down;
  c->inside = true;
  c->biased = bias;
  c->to = p->c;
  c->aux = p->pre;
  c->epilogue = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (p->bias && !bias)
    c->inside = false;
  else if (p->act == FLC_ACT_RELU && p->dtype != FL_F64 && !p->pre)
    c->epilogue = bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  else if (p->act == FLC_ACT_GELU_TANH && p->pre && p->n % 8 == 0 &&
           p->dims == 0 && fl_dtype_size(p->dtype) == 2 &&
           flc_aligned(p->pre, 16))
    c->epilogue =
        bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  else if (p->act != FLC_ACT_NONE)
    c->inside = false;
  if (!c->inside && p->pre)
    c->to = p->pre;
}

/* Whether the library's epilogue is the expression behind the product: the
 * gradient of its gelu. */
static bool choose_joint(call *c) {
  const flc_product *p = c->p;
  c->inside = true;
  c->epilogue = CUBLASLT_EPILOGUE_DGELU;
  return !p->c && !p->bias && p->act == FLC_ACT_NONE && p->n % 8 == 0 &&
         p->dims == 0 && fl_dtype_size(p->dtype) == 2 &&
         flc_behind_is(p->behind, FL_ROW_gelu_backward, &c->aux, &c->to) &&
         p->behind->program->instrs->p[0] == 1 && flc_aligned(c->aux, 16) &&
         flc_aligned(c->to, 16);
}

static bool add_epilogue(call *c) {
  const flc_product *p = c->p;
  int e = c->epilogue;
  if (e == CUBLASLT_EPILOGUE_DEFAULT)
    return true;
  bool good = set_desc(c, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e);
  if (e & CUBLASLT_EPILOGUE_BIAS)
    good = good && set_desc(c, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias,
                            sizeof p->bias);
  if (e & 128)
    good =
        good &&
        set_desc(c, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &c->aux,
                 sizeof c->aux) &&
        set_desc(c, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->n, sizeof p->n);
  return good;
}

/* Of the expression behind the product, and where its operands lie. */
static int64_t behind_key(const flc_product *p) {
  const fl_launch *l = p->behind;
  uint64_t h = l ? l->program->hash + (p->c != NULL) : 0;
  for (int k = 0; l && k < l->n_in + l->n_out - l->row_in - l->row_out; k++) {
    int of = k - (l->n_in - l->row_in);
    const fl_view *v =
        of < 0 ? &l->in[l->row_in + k] : &l->out[l->row_out + of];
    h = (h ^ (uint64_t)v->dtype ^ (uint64_t)flc_aligned(v->data, 16) << 8) *
        0x9E3779B97F4A7C15u;
    for (int i = 0; i < v->ndim; i++)
      h = (h ^ (uint64_t)v->stride[i]) * 0x9E3779B97F4A7C15u;
  }
  return (int64_t)h;
}

/* False: the library cannot do it. */
static bool cublaslt_describe(call *c, int64_t *key) {
  const flc_product *p = c->p;
  bool ta, tb;
  int64_t lda, ldb, batch = flc_product_batch(p);
  if (p->dims > 1 || batch > INT32_MAX ||
      fl_dtype_kind(p->dtype) != FL_KIND_FLOAT ||
      (p->add && p->sum != p->dtype && p->sum != FL_F32))
    return false;
  if (!lines_of(p->m, p->k, p->am, p->ak, &ta, &lda) ||
      !lines_of(p->n, p->k, p->bn, p->bk, &tb, &ldb))
    return false;
  int64_t as = p->dims ? p->astep[0] : 0, bs = p->dims ? p->bstep[0] : 0;
  if (as < 0 || bs < 0)
    return false;
  int compute = p->dtype == FL_F64 ? CUBLAS_COMPUTE_64F
                : p->dtype == FL_F32 && flc_setting_of(FLC_TF32)
                    ? CUBLAS_COMPUTE_32F_FAST_TF32
                    : CUBLAS_COMPUTE_32F;
  /* lines along k are columns of k: the first operand turned, the second not */
  int op_a = tb ? CUBLAS_OP_N : CUBLAS_OP_T,
      op_b = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
  if (!c->joint)
    choose_epilogue(c);
  else if (!choose_joint(c))
    return false;
  bool good = blas.table.cublasLtMatmulDescInit_internal(
                  &c->desc, sizeof c->desc, compute,
                  p->dtype == FL_F64 ? CUDA_R_64F : CUDA_R_32F) ==
                  CUBLAS_STATUS_SUCCESS &&
              set_desc(c, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a) &&
              set_desc(c, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b) &&
              add_epilogue(c) &&
              set_layout(&c->a, p->dtype, tb ? p->n : p->k, tb ? p->k : p->n,
                         ldb, batch, bs) &&
              set_layout(&c->b, p->dtype, ta ? p->m : p->k, ta ? p->k : p->m,
                         lda, batch, as) &&
              set_layout(&c->c, p->add ? p->sum : p->dtype, p->n, p->m, p->n,
                         batch, p->m * p->n);
  int64_t facts[] = {1,
                     c->l->device,
                     p->dtype,
                     p->m,
                     p->n,
                     p->k,
                     batch,
                     lda,
                     ldb,
                     as,
                     bs,
                     ta,
                     tb,
                     compute,
                     c->epilogue,
                     p->act,
                     p->add ? 2 + p->sum : p->bias != NULL,
                     flc_aligned(p->a, 16),
                     flc_aligned(p->b, 16),
                     flc_aligned(c->to, 16),
                     flc_aligned(p->bias, 16),
                     behind_key(p)};
  memset(key, 0, FLC_KEY * sizeof *key);
  memcpy(key, facts, sizeof facts);
  return good;
}

/* --- running it --- */

/* The rest, of what the library has written. */
static fl_status cublaslt_apply(const fl_launch *l, const flc_product *p,
                                void *from, bool biased) {
  void *to = p->c ? p->c : from; /* what is behind the product reads it there */
  int width = (int)(16 / fl_dtype_size(p->dtype));
  gemm_args a = {.a = from,
                 .bias = biased ? NULL : p->bias,
                 .bias_dtype = p->bias_dtype,
                 .bias_down = p->bias_down,
                 .act = (int)p->act,
                 .c = to,
                 .pre = from == p->pre && (biased || !p->bias) ? NULL : p->pre,
                 .m = p->m,
                 .n = p->n,
                 .batch = flc_product_batch(p)};
  a.wide = p->n % width == 0 && flc_aligned(from, 16) && flc_aligned(to, 16);
  if (a.wide && !a.bias && !a.pre) {
    flc_spec only = FLC_SPEC("gemm", "activation", p->dtype, p->act);
    flc_grid g = {.x = (unsigned)fl_ceil_div(a.m * a.n * a.batch,
                                             256 * 4 * (int64_t)width),
                  .block = 256};
    return FLC_RUN(l, only, g, a);
  }
  flc_spec spec = FLC_SPEC("gemm", "apply", (int16_t)p->dtype, (int16_t)a.wide);
  int64_t blocks = fl_ceil_div(a.m * a.n * a.batch, 256 * (a.wide ? width : 1));
  flc_grid grid = {.x = (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20),
                   .block = 256};
  return FLC_RUN(l, spec, grid, a);
}

static fl_status cublaslt_run(call *c, const algorithm *by) {
  static const float one = 1, zero = 0;
  static const double one64 = 1, zero64 = 0;
  const flc_product *p = c->p;
  bool wide = p->dtype == FL_F64;
  void *to = c->to;
  if (!to &&
      !(to = fl_scratch_get(c->l, (size_t)(p->m * p->n * flc_product_batch(p)) *
                                      fl_dtype_size(p->dtype))))
    return FL_ENOMEM;
  const void *alpha = wide ? (const void *)&one64 : &one;
  const void *beta = p->add ? alpha : wide ? (const void *)&zero64 : &zero;
  char *room = NULL;
  if (by->workspace) {
    if (!(room = fl_scratch_get(c->l, by->workspace + ALIGNED)))
      return FL_ENOMEM;
    room += (ALIGNED - (uintptr_t)room % ALIGNED) % ALIGNED;
  }
  int e = blas.table.cublasLtMatmul(
      c->handle, &c->desc, alpha, p->b, &c->a, p->a, &c->b, beta, to, &c->c, to,
      &c->c, &by->algorithm, room, by->workspace, flc_stream_of(c->l));
  if (e != CUBLAS_STATUS_SUCCESS)
    return fli_fail(FL_EDEVICE, "%s: cuBLASLt failed with status %d", c->l->op,
                    e);
  fl_status s = c->inside ? FL_OK : cublaslt_apply(c->l, p, to, c->biased);
  return s || !p->behind || c->joint ? s : flc_product_behind(p, to);
}

/* The same product with an epilogue of the library for what is behind it;
 * false: there is none. */
static bool describe_joint(const call *c, call *joint) {
  int64_t key[FLC_KEY];
  *joint = (call){.l = c->l,
                  .p = c->p,
                  .handle = c->handle,
                  .shape = c->shape,
                  .joint = true};
  return c->p->behind && cublaslt_describe(joint, key);
}

/* `by`: NULL: our own kernels. */
static fl_status run_by(const call *c, const algorithm *by) {
  call once = *c;
  flc_product product = *c->p;
  if (c->trial)
    once.to = product.c = c->trial;
  once.p = &product;
  if (!by)
    return flc_product_own(c->l, &product);
  if (!by->joint)
    return cublaslt_run(&once, by);
  return describe_joint(c, &once)
             ? cublaslt_run(&once, by)
             : fli_fail(FL_EUNSUPPORTED, "%s: no such epilogue", c->l->op);
}

static fl_status run_candidate(void *context, int i) {
  const call *c = context;
  return run_by(c, i < c->shape->found ? &c->shape->algorithms[i] : NULL);
}

static uint32_t alignment(const void *p) {
  uint32_t a = p ? 256 : FL_ALIGN; /* NULL: scratch memory */
  while (a > 1 && !flc_aligned(p, a))
    a /= 2;
  return a;
}

/* The heuristic's first `wanted`. */
static int ask(call *c, int wanted, algorithm *algorithms) {
  cublasLtMatmulHeuristicResult_t results[ALGORITHMS];
  const flc_blas_table *t = &blas.table;
  cublasLtMatmulPreferenceOpaque_t pref;
  size_t most = WORKSPACE;
  /* no sums in place: their order would differ from run to run */
  uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const void *at[] = {c->p->b, c->p->a, c->to, c->to};
  int found = 0;
  t->cublasLtMatmulPreferenceInit_internal(&pref, sizeof pref);
  t->cublasLtMatmulPreferenceSetAttribute(
      &pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
  t->cublasLtMatmulPreferenceSetAttribute(
      &pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme,
      sizeof scheme);
  for (int i = 0; i < 4; i++) {
    uint32_t a = alignment(at[i]);
    t->cublasLtMatmulPreferenceSetAttribute(
        &pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, &a, sizeof a);
  }
  if (t->cublasLtMatmulAlgoGetHeuristic(c->handle, &c->desc, &c->a, &c->b,
                                        &c->c, &c->c, &pref, wanted, results,
                                        &found) != CUBLAS_STATUS_SUCCESS)
    return 0;
  int good = 0;
  for (int i = 0; i < found; i++)
    if (results[i].state == CUBLAS_STATUS_SUCCESS)
      algorithms[good++] = (algorithm){.algorithm = results[i].algo,
                                       .workspace = results[i].workspaceSize,
                                       .joint = c->joint};
  return good;
}

/* --- which one --- */

static fl_status probe_own(const fl_launch *l, const void *p) {
  return flc_product_own(l, p);
}

static int is_ready(void *context, int i) {
  const call *c = context;
  return i < c->shape->found ? 1 : flc_soon(c->l, probe_own, c->p);
}

/* Under the lock: all candidates. Those with an epilogue for what is behind the
 * product come first, since they read and write its result once less. */
static void find_candidates(call *c, shape *x) {
  call joint;
  int more = describe_joint(c, &joint) ? ask(&joint, ALGORITHMS, x->algorithms)
                                       : 0,
      plain = ask(c, ALGORITHMS, x->algorithms + more);
  x->found = more + plain;
  x->trials =
      flc_trials_new(x->found + x->own, 0, more ? plain + x->own : x->own);
}

/* Under the lock. The first time the heuristic's first algorithm runs. */
static shape *shape_of(call *c, flc_tuned *place, bool own) {
  shape *x = place->plan;
  blas.used = true;
  if (!x) {
    if (!(x = calloc(1, sizeof *x))) {
      fli_fail(FL_ENOMEM, "out of memory: a table of shapes");
      return NULL;
    }
    x->own = own;
    x->found = ask(c, 1, x->algorithms);
    place->plan = x;
  }
  x->seen++;
  if (x->found && !x->trials && (x->seen > 1 || flc_setting_of(FLC_SETTLE)) &&
      flc_may_measure(c->l))
    find_candidates(c, x);
  return x;
}

/* The work is about to be captured. A product that is added to C is measured on
 * other memory. */
static void settle(call *c) {
  size_t bytes = (size_t)(c->p->m * c->p->n * flc_product_batch(c->p)) *
                 fl_dtype_size(c->p->sum);
  int mark = fl_scratch_mark(c->l);
  c->trial = c->p->add ? fl_scratch_get(c->l, bytes) : NULL;
  if (c->trial || !c->p->add)
    flc_trials_settle(c->shape->trials, c->l, run_candidate, c);
  c->trial = NULL;
  fl_scratch_release(c->l, mark);
}

/* By the candidate whose turn it is; one that refuses has another in its place.
 */
static fl_status run_shape(call *c, flc_tuned *place, bool own) {
  bool timed = false;
  int i = 0;
  pthread_mutex_lock(&blas.lock);
  shape *x = c->shape = shape_of(c, place, own);
  if (x && x->trials && flc_setting_of(FLC_SETTLE))
    settle(c);
  if (x && x->trials)
    i = flc_trials_next(x->trials, c->l, is_ready, c, &timed);
  bool ours = x && i >= x->found;
  algorithm by = x ? x->algorithms[ours ? 0 : i] : (algorithm){.workspace = 0};
  pthread_mutex_unlock(&blas.lock);
  if (!x)
    return FL_ENOMEM;
  fl_status s = run_by(c, ours ? NULL : &by);
  if (timed) {
    pthread_mutex_lock(&blas.lock);
    flc_trials_end(x->trials, c->l, s == FL_OK);
    by = x->algorithms[0];
    pthread_mutex_unlock(&blas.lock);
  }
  return s == FL_OK ? s : ours && !timed ? s : run_by(c, ours ? &by : NULL);
}

/* --- ahead of the first call: a thread asks the heuristic, which loads what it
 * needs to answer, and is quick when the call asks again --- */

typedef struct job {
  flc_device *device;
  flc_tuned *place;
  call c;
  flc_product p;
} job;

static void job_do(void *context) {
  job *j = context;
  flc_context before;
  algorithm first[ALGORITHMS];
  pthread_mutex_lock(&blas.lock);
  bool known = j->place->plan;
  pthread_mutex_unlock(&blas.lock);
  if (!known && flc_enter(j->device, &before) == FL_OK) {
    ask(&j->c, 1, first);
    flc_leave(j->device, before);
  }
  atomic_store(&j->place->ahead, FLC_AHEAD_DONE);
  free(j);
}

/* Of a probe: `unready` until the heuristic has been asked. Before the first
 * product of the program it is not, as that would wait for the same locks. */
static void ask_ahead(const call *c, flc_tuned *place) {
  int seen = FLC_AHEAD_NOT;
  pthread_mutex_lock(&blas.lock);
  bool known = place->plan || !blas.used;
  pthread_mutex_unlock(&blas.lock);
  if (known || atomic_load(&place->ahead) == FLC_AHEAD_DONE)
    return;
  if (atomic_compare_exchange_strong(&place->ahead, &seen, FLC_AHEAD_BUSY)) {
    job *j = malloc(sizeof *j);
    if (j) {
      *j = (job){
          .device = c->l->stream->device, .place = place, .c = *c, .p = *c->p};
      j->c.p = &j->p;
      j->c.l = NULL;
    }
    if (!j || !flc_ahead_do(job_do, j)) {
      free(j);
      atomic_store(&place->ahead, FLC_AHEAD_DONE);
      return;
    }
  }
  c->l->stream->unready = true;
}

/* Of a product with something behind it: all kernels that a measurement may
 * run, and the one behind the library's. */
static fl_status multiply_probe(const fl_launch *l, const flc_product *p) {
  call c = {.l = l, .p = p};
  fl_status s = flc_product_skinny(p) ? flc_product_run_skinny(l, p) : FL_OK;
  choose_epilogue(&c);
  if (!s && !c.inside && flc_blas_get())
    s = cublaslt_apply(l, p, c.to, c.biased);
  return s ? s : flc_product_first(l, p);
}

fl_status flc_multiply(const fl_launch *l, flc_product *p) {
  int by = flc_setting_of(FLC_MATMUL);
  double work =
      (double)p->m * (double)p->n * (double)p->k * (double)flc_product_batch(p);
  call c = {.l = l, .p = p};
  int64_t key[FLC_KEY];
  if (work == 0 || (by != FLC_LIBRARY && flc_product_surely_skinny(l, p)))
    return flc_product_own(l, p);
  if (l->probe && l->row)
    return multiply_probe(l, p);
  fl_status s;
  if (flc_product_padded(l, p, &s) || (s = flc_product_align(l, p)))
    return s;
  if (by == FLC_OWN || (by == FLC_AUTO && work < SMALL) || !flc_blas_get() ||
      !(c.handle = handle_of(l)) || !cublaslt_describe(&c, key))
    return flc_product_own(l, p);
  key[FLC_KEY - 1] = by * 2 + flc_deterministic();
  flc_tuned *place = flc_tuned_of(key);
  if (!place)
    return FL_ENOMEM;
  if (l->probe) {
    ask_ahead(&c, place);
    return c.inside ? FL_OK : cublaslt_apply(l, p, c.to, c.biased);
  }
  return run_shape(&c, place, by == FLC_AUTO);
}
