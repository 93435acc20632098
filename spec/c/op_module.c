/* A shared library with operators for fl_op_register: y = x * by + add of f32
 * and f64, its gradient, sums of squares of rows, an init hook that knows whom
 * it serves; and the first two on a GPU, by NVIDIA's driver alone. */
#include <flare/flare.h>

#include <dlfcn.h>
#include <string.h>

FL_API fl_status scale_init(const char *name, uint64_t fingerprint);
FL_API fl_status scale_refuse(const char *name, uint64_t fingerprint);
FL_API fl_status scale(const fl_launch *l);
FL_API fl_status scale_backward(const fl_launch *l);
FL_API fl_status row_squares(const fl_launch *l);
FL_API fl_status scale_cuda_init(const char *name, uint64_t fingerprint);
FL_API fl_status scale_cuda(const fl_launch *l);
FL_API fl_status scale_cuda_backward(const fl_launch *l);

static float add;

fl_status scale_init(const char *name, uint64_t fingerprint) {
  add = 1;
  return fingerprint && strncmp(name, "outside_", 8) == 0
             ? FL_OK
             : fli_fail(FL_EARG, "scale: made for others than %s", name);
}

fl_status scale_refuse(const char *name, uint64_t fingerprint) {
  (void)fingerprint;
  return fli_fail(FL_EDEVICE, "%s: not on this machine", name);
}

static double at(const fl_view *v, int64_t i) {
  int64_t offset = 0;
  for (int d = v->ndim - 1; d >= 0; d--) {
    offset += i % v->shape[d] * v->stride[d];
    i /= v->shape[d];
  }
  return v->dtype == FL_F64 ? ((const double *)v->data)[offset]
                            : (double)((const float *)v->data)[offset];
}

static void put(const fl_view *v, int64_t i, double value) {
  if (v->dtype == FL_F64)
    ((double *)v->data)[i] = value;
  else
    ((float *)v->data)[i] = (float)value;
}

static fl_status check(const fl_launch *l) {
  fl_dtype d = l->in[0].dtype;
  return d == FL_F32 || d == FL_F64
             ? FL_OK
             : fli_fail(FL_EDTYPE, "%s: x is %s, but must be f32 or f64", l->op,
                        fl_dtype_name(d));
}

fl_status scale(const fl_launch *l) {
  const fl_view *y = &l->out[0];
  int64_t n = fl_numel(y->ndim, y->shape);
  fl_status s = check(l);
  for (int64_t i = 0; i < n && s == FL_OK; i++)
    put(y, i, at(&l->in[0], i) * l->attrs->v[0].f + (double)add);
  return s;
}

/* x, y, dy -> dx */
fl_status scale_backward(const fl_launch *l) {
  const fl_view *dx = &l->out[0];
  int64_t n = fl_numel(dx->ndim, dx->shape);
  for (int64_t i = 0; i < n; i++)
    put(dx, i, at(&l->in[2], i) * l->attrs->v[0].f);
  return FL_OK;
}

/* x: rows of `size` -> y: one number each */
fl_status row_squares(const fl_launch *l) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  int64_t n = fl_numel(y->ndim, y->shape), size = x->shape[x->ndim - 1];
  fl_status s = check(l);
  for (int64_t i = 0; i < n && s == FL_OK; i++) {
    double sum = 0;
    for (int64_t k = 0; k < size; k++)
      sum += at(x, i * size + k) * at(x, i * size + k);
    put(y, i, sum);
  }
  return s;
}

/* --- on a GPU: the driver's functions, found by the init hook --- */

static int (*load)(void **module, const void *image);
static int (*function)(void **f, void *module, const char *name);
static int (*run)(void *f, unsigned x, unsigned y, unsigned z, unsigned bx,
                  unsigned by, unsigned bz, unsigned shared, void *stream,
                  void **args, void **extra);
static void *kernel[2]; /* f32, f64; in the context of the first launch */

/* y[i] = x[where i lies] * a + b: for each dim, the innermost first, its size
 * and stride. */
/* clang-format off */
#define DIMS 4
#define SIZES(k) ", .param .u32 s" #k ", .param .u64 t" #k
#define PLACE(k) \
  "ld.param.u32 %r6, [s" #k "];\nld.param.u64 %a5, [t" #k "];\n" \
  "rem.u32 %r7, %r5, %r6;\ndiv.u32 %r5, %r5, %r6;\n" \
  "cvt.u64.u32 %a6, %r7;\nmad.lo.s64 %a3, %a6, %a5, %a3;\n"
#define ENTRY(name, bytes, load, store) \
  ".visible .entry " name "(.param .u64 px, .param .u64 py, " \
  ".param .f64 pa, .param .f64 pb, .param .u32 pn" \
  SIZES(0) SIZES(1) SIZES(2) SIZES(3) ") {\n" \
  ".reg .pred %p<2>;\n.reg .f32 %f<2>;\n.reg .f64 %d<5>;\n" \
  ".reg .b32 %r<9>;\n.reg .b64 %a<8>;\n" \
  "ld.param.u64 %a1, [px];\nld.param.u64 %a2, [py];\n" \
  "ld.param.f64 %d1, [pa];\nld.param.f64 %d2, [pb];\n" \
  "ld.param.u32 %r1, [pn];\nmov.u32 %r2, %ctaid.x;\n" \
  "mov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\n" \
  "mad.lo.s32 %r5, %r2, %r3, %r4;\nsetp.ge.u32 %p1, %r5, %r1;\n" \
  "@%p1 bra DONE;\nmov.u32 %r8, %r5;\nmov.u64 %a3, 0;\n" \
  PLACE(0) PLACE(1) PLACE(2) PLACE(3) \
  "mad.lo.s64 %a1, %a3, " bytes ", %a1;\n" load \
  "fma.rn.f64 %d3, %d3, %d1, %d2;\n" \
  "mul.wide.u32 %a4, %r8, " bytes ";\nadd.s64 %a2, %a2, %a4;\n" store \
  "DONE: ret;\n}\n"

static const char text[] =
  ".version 7.0\n.target sm_80\n.address_size 64\n"
  ENTRY("scale_f32", "4", "ld.global.f32 %f1, [%a1];\ncvt.f64.f32 %d3, %f1;\n",
        "cvt.rn.f32.f64 %f1, %d3;\nst.global.f32 [%a2], %f1;\n")
  ENTRY("scale_f64", "8", "ld.global.f64 %d3, [%a1];\n",
        "st.global.f64 [%a2], %d3;\n");
/* clang-format on */

static bool find(void *driver, const char *name, void *place) {
  void *symbol = dlsym(driver, name);
  memcpy(place, &symbol, sizeof symbol);
  return symbol != NULL;
}

fl_status scale_cuda_init(const char *name, uint64_t fingerprint) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!fingerprint || !driver || !find(driver, "cuModuleLoadData", &load) ||
      !find(driver, "cuModuleGetFunction", &function) ||
      !find(driver, "cuLaunchKernel", &run))
    return fli_fail(FL_EDEVICE, "%s: there is no driver", name);
  return FL_OK;
}

static fl_status load_kernels(const char *op) {
  void *module;
  if (kernel[1] || (load(&module, text) == 0 &&
                    function(&kernel[0], module, "scale_f32") == 0 &&
                    function(&kernel[1], module, "scale_f64") == 0))
    return FL_OK;
  return fli_fail(FL_EDEVICE, "%s: its kernels do not load", op);
}

/* y = x * a + b on the launch's stream */
static fl_status launch(const fl_launch *l, const fl_view *x, double a,
                        double b) {
  const fl_view *y = &l->out[0];
  unsigned n = (unsigned)fl_numel(y->ndim, y->shape), size[DIMS];
  int64_t stride[DIMS];
  void *args[5 + 2 * DIMS] = {(void *)(uintptr_t)&x->data,
                              (void *)(uintptr_t)&y->data, &a, &b, &n};
  fl_status s = check(l);
  if (s == FL_OK && x->ndim > DIMS)
    s = fli_fail(FL_ESIZE, "%s: x has more than %d dims", l->op, DIMS);
  if (s == FL_OK)
    s = load_kernels(l->op);
  if (s)
    return s;
  for (int k = 0, d = x->ndim - 1; k < DIMS; k++, d--) {
    size[k] = d < 0 ? 1 : (unsigned)x->shape[d];
    stride[k] = d < 0 ? 0 : x->stride[d];
    args[5 + 2 * k] = &size[k];
    args[6 + 2 * k] = &stride[k];
  }
  if (n && run(kernel[x->dtype == FL_F64], (n + 127) / 128, 1, 1, 128, 1, 1, 0,
               l->handle, args, NULL))
    return fli_fail(FL_EDEVICE, "%s: its kernel is not launched", l->op);
  return FL_OK;
}

fl_status scale_cuda(const fl_launch *l) {
  return launch(l, &l->in[0], l->attrs->v[0].f, 1);
}

fl_status scale_cuda_backward(const fl_launch *l) {
  return launch(l, &l->in[2], l->attrs->v[0].f, 0);
}
