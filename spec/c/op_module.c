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
static void *kernel; /* in the context of the first launch */

static const char text[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry scale(.param .u64 px, .param .u64 py, .param .f32 pa, "
    ".param .f32 pb, .param .u32 pn) {\n"
    ".reg .pred %p<2>;\n.reg .f32 %f<4>;\n.reg .b32 %r<6>;\n.reg .b64 %d<6>;\n"
    "ld.param.u64 %d1, [px];\nld.param.u64 %d2, [py];\n"
    "ld.param.f32 %f1, [pa];\nld.param.f32 %f2, [pb];\n"
    "ld.param.u32 %r1, [pn];\n"
    "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\n"
    "mad.lo.s32 %r5, %r2, %r3, %r4;\nsetp.ge.u32 %p1, %r5, %r1;\n"
    "@%p1 bra DONE;\n"
    "mul.wide.u32 %d3, %r5, 4;\nadd.s64 %d4, %d1, %d3;\n"
    "ld.global.f32 %f3, [%d4];\nfma.rn.f32 %f3, %f3, %f1, %f2;\n"
    "add.s64 %d5, %d2, %d3;\nst.global.f32 [%d5], %f3;\n"
    "DONE: ret;\n}\n";

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

/* y = x * a + b on the launch's stream */
static fl_status launch(const fl_launch *l, const fl_view *x, float a,
                        float b) {
  const fl_view *y = &l->out[0];
  unsigned n = (unsigned)fl_numel(y->ndim, y->shape);
  void *module, *args[] = {(void *)(uintptr_t)&x->data,
                           (void *)(uintptr_t)&y->data, &a, &b, &n};
  int64_t expect = 1;
  for (int d = x->ndim - 1; d >= 0; d--) {
    if (x->shape[d] != 1 && x->stride[d] != expect)
      return fli_fail(FL_EARG, "%s: x must be contiguous", l->op);
    expect *= x->shape[d];
  }
  if (x->dtype != FL_F32)
    return fli_fail(FL_EDTYPE, "%s: x is %s, but must be f32", l->op,
                    fl_dtype_name(x->dtype));
  if (!kernel && (load(&module, text) || function(&kernel, module, "scale")))
    return fli_fail(FL_EDEVICE, "%s: its kernel does not load", l->op);
  if (n &&
      run(kernel, (n + 127) / 128, 1, 1, 128, 1, 1, 0, l->handle, args, NULL))
    return fli_fail(FL_EDEVICE, "%s: its kernel is not launched", l->op);
  return FL_OK;
}

fl_status scale_cuda(const fl_launch *l) {
  return launch(l, &l->in[0], (float)l->attrs->v[0].f, 1);
}

fl_status scale_cuda_backward(const fl_launch *l) {
  return launch(l, &l->in[2], (float)l->attrs->v[0].f, 0);
}
