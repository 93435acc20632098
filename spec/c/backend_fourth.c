/* A backend from a shared object outside the library: loaded, registered, used
 * by everything that runs on a device. The same for sim: both give bit for bit
 * what the CPU gives, forward and backward. */
#include "check.h"

#include <flare/flare.h>

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char module[4096];

static fl_tensor *tensor_of(fl_runtime *rt, fl_device d, fl_dtype dtype,
                            int ndim, const int64_t *shape, const void *data) {
  fl_tensor *t = NULL;
  CHECK(fl_tensor_new(rt, dtype, ndim, shape, d, &t) == FL_OK, "%s",
        fl_error());
  size_t bytes = (size_t)fl_numel(ndim, shape) * fl_dtype_size(dtype);
  CHECK(fl_tensor_write(t, data, bytes) == FL_OK, "%s", fl_error());
  return t;
}

static void *bytes_of(fl_tensor *t, size_t *bytes) {
  *bytes = (size_t)fl_tensor_numel(t) * fl_dtype_size(fl_tensor_meta(t)->dtype);
  void *p = calloc(1, *bytes + 1);
  CHECK(fl_tensor_read(t, p, *bytes) == FL_OK, "%s", fl_error());
  return p;
}

static bool same(fl_tensor *a, fl_tensor *b) {
  size_t n, m;
  if (!a || !b)
    return a == b;
  void *p = bytes_of(a, &n), *q = bytes_of(b, &m);
  const fl_meta *x = fl_tensor_meta(a), *y = fl_tensor_meta(b);
  bool yes =
      x->dtype == y->dtype && x->ndim == y->ndim && n == m &&
      memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape) == 0 &&
      memcmp(p, q, n) == 0;
  free(p);
  free(q);
  return yes;
}

/* out: the operator's results and then the gradients of the float inputs for
 * ones; returns the status of the call. */
static fl_status run(fl_runtime *rt, const fl_op *op, int n,
                     fl_tensor *const *x, fl_tensor **out) {
  const fl_op_info *info = fl_op_get(op);
  fl_operand in[4];
  for (int i = 0; i < n; i++)
    in[i] = (fl_operand){.tensor = x[i]};
  fl_call c = {.op = op, .n_in = n, .in = in, .out = out};
  fl_status s = fl_call_run(rt, &c);
  if (s) /* no results then */
    memset(out, 0, sizeof(fl_tensor *) * FL_MAX_OUT);
  if (s || !out[0] || !fl_tensor_requires_grad(out[0]))
    return s;
  fl_tensor *ones = NULL, *seed[1];
  const fl_meta *m = fl_tensor_meta(out[0]);
  fl_operand fill[2] = {{0}, {.dtype = FL_F64, .f = 1}};
  CHECK(fl_tensor_zeros(rt, m->dtype, m->ndim, m->shape,
                        fl_tensor_device(out[0]), &ones) == FL_OK);
  fill[0].tensor = ones;
  fl_call f = {.op = fl_op_find(rt, "fill"),
               .n_in = 2,
               .in = fill,
               .inplace = true,
               .out = seed};
  s = fl_call_run(rt, &f);
  CHECK(s == FL_OK, "%s", fl_error());
  if (s) {
    fl_tensor_release(ones);
    return s;
  }
  s = fl_grad(rt, 1, out, seed, n, x, FL_BACKWARD_UNUSED, out + info->n_out);
  fl_tensor_release(seed[0]);
  fl_tensor_release(ones);
  return s;
}

enum { MOST = FL_MAX_OUT + 4 };

/* The operator on the CPU and on the device, from the same numbers. */
static void compare(fl_runtime *rt, fl_device d, const char *name, int n,
                    const fl_dtype *dtype, const int *ndim,
                    int64_t shape[][4]) {
  const fl_op *op = fl_op_find(rt, name);
  fl_tensor *a[4], *b[4], *left[MOST] = {0}, *right[MOST] = {0};
  CHECK(op != NULL, "%s", name);
  for (int i = 0; i < n; i++) {
    int64_t numel = fl_numel(ndim[i], shape[i]);
    float *data = calloc((size_t)numel + 1, 8);
    int64_t *whole = (int64_t *)data;
    for (int64_t k = 0; k < numel; k++)
      if (dtype[i] == FL_F32)
        data[k] = sinf((float)(k * 3 + i)) + 0.25f;
      else
        whole[k] = (k * 5 + i) % 4;
    a[i] = tensor_of(rt, 0, dtype[i], ndim[i], shape[i], data);
    b[i] = tensor_of(rt, d, dtype[i], ndim[i], shape[i], data);
    if (dtype[i] == FL_F32) {
      fl_tensor_require_grad(a[i], true);
      fl_tensor_require_grad(b[i], true);
    }
    free(data);
  }
  fl_status x = run(rt, op, n, a, left), y = run(rt, op, n, b, right);
  CHECK(x == y, "%s: %d on the cpu, %d on %s: %s", name, x, y,
        fl_device_name(rt, d), fl_error());
  for (int i = 0; i < MOST; i++) {
    CHECK(same(left[i], right[i]), "%s on %s: result %d differs", name,
          fl_device_name(rt, d), i);
    CHECK(!right[i] || fl_tensor_device(right[i]) == d, "%s", name);
    fl_tensor_release(left[i]);
    fl_tensor_release(right[i]);
  }
  for (int i = 0; i < n; i++) {
    fl_tensor_release(a[i]);
    fl_tensor_release(b[i]);
  }
}

static void test_operators(fl_runtime *rt, fl_device d) {
  static const fl_dtype f[] = {FL_F32, FL_F32, FL_F32}, i[] = {FL_I64, FL_I64};
  int two[] = {2, 2, 2}, one[] = {2, 1, 1};
  int64_t plain[][4] = {{5, 7}, {5, 7}, {5, 7}}, wide[][4] = {{5, 7}, {1, 7}};
  for (int k = 0; k < fl_op_count(rt); k++) {
    const fl_op_info *o = fl_op_get(fl_op_at(rt, k));
    bool unary = strcmp(o->family, "unary") == 0;
    bool binary =
        strcmp(o->family, "binary") == 0 || strcmp(o->family, "compare") == 0;
    if (unary || binary) {
      compare(rt, d, o->name, o->n_in, f, two, plain);
      compare(rt, d, o->name, o->n_in, i, two, wide);
    }
  }
  int64_t product[][4] = {{5, 7}, {7, 3}}, norm[][4] = {{5, 7}, {7}, {7}};
  int64_t rows[][4] = {{4, 7}, {6}}, images[][4] = {{2, 3, 8, 8}, {4, 3, 3, 3}};
  int four[] = {4, 4};
  compare(rt, d, "matmul", 2, f, two, product);
  compare(rt, d, "softmax", 1, f, two, plain);
  compare(rt, d, "sum", 1, f, two, plain);
  compare(rt, d, "layer_norm", 3, f, one, norm);
  compare(rt, d, "conv", 2, f, four, images);
  compare(rt, d, "embedding", 2, (fl_dtype[]){FL_F32, FL_I64}, one, rows);
  compare(rt, d, "sort", 1, f, two, plain);
}

static void test_moving(fl_runtime *rt, fl_device d) {
  float data[6] = {1, 2, 3, 4, 5, 6}, back[6] = {0};
  fl_tensor *x = tensor_of(rt, 0, FL_F32, 2, (int64_t[]){2, 3}, data), *y, *z;
  CHECK(fl_tensor_to(x, d, FL_F64, &y) == FL_OK, "%s", fl_error());
  CHECK(fl_tensor_device(y) == d && fl_tensor_meta(y)->dtype == FL_F64);
  CHECK(fl_tensor_data(y) == NULL); /* the host has no business there */
  CHECK(fl_tensor_to(y, 0, FL_F32, &z) == FL_OK, "%s", fl_error());
  CHECK(fl_tensor_read(z, back, sizeof back) == FL_OK);
  CHECK(memcmp(data, back, sizeof data) == 0);
  fl_operand in[2] = {{.tensor = x}, {.tensor = y}};
  fl_tensor *out;
  fl_call c = {.op = fl_op_find(rt, "add"), .n_in = 2, .in = in, .out = &out};
  CHECK(fl_call_run(rt, &c) == FL_EDEVICE);
  fl_tensor_release(x);
  fl_tensor_release(y);
  fl_tensor_release(z);
}

static void test_refusals(fl_runtime *rt) {
  CHECK(fl_backend_load(rt, "./no/such/file.so") == FL_EFILE);
  CHECK(fl_backend_load(rt, "libm.so.6") == FL_EARG);
  CHECK(strstr(fl_error(), "flare_backend_open"), "%s", fl_error());
  CHECK(fl_backend_load(rt, module) == FL_EARG); /* there already */
  CHECK(strstr(fl_error(), "fourth"), "%s", fl_error());
}

/* Without fl_backend_load: what a host does that has the table already. */
static void test_register(void) {
  fl_runtime *rt;
  fl_device d;
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK);
  void *object = dlopen(module, RTLD_NOW);
  CHECK(object != NULL, "%s", dlerror());
  fl_backend *(*open)(fl_backend *) =
      (fl_backend * (*)(fl_backend *)) dlsym(object, "flare_backend_open");
  fl_backend *b = open(fl_device_backend(rt, 0));
  b->struct_size--;
  CHECK(fl_backend_register(rt, b) == FL_EARG);
  b->struct_size++;
  CHECK(fl_backend_register(rt, b) == FL_OK);
  CHECK(fl_device_find(rt, "fourth:0", &d) == FL_OK);
  CHECK(fl_device_find(rt, "fourth:1", &d) == FL_EARG);
  CHECK(fl_device_find(rt, "fourth", &d) == FL_OK);
  test_moving(rt, d);
  fl_runtime_close(rt);
  b->close(b);
  dlclose(object);
}

int main(int argc, char **argv) {
  fl_runtime *rt;
  fl_device d;
  const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
  snprintf(module, sizeof module, "%.*s/backend_fourth_module.so",
           slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".");
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK, "%s", fl_error());
  CHECK(fl_backend_load(rt, module) == FL_OK, "%s", fl_error());
  static const char *const names[] = {"fourth:0", "sim:0", "sim:1"};
  for (int i = 0; i < 3; i++) {
    CHECK(fl_device_find(rt, names[i], &d) == FL_OK, "%s", fl_error());
    test_operators(rt, d);
    test_moving(rt, d);
    fl_memory_stats s;
    fl_memory_get(rt, d, &s);
    CHECK(s.blocks == 0 && s.allocations > 0, "%s: %zu blocks", names[i],
          s.blocks);
  }
  test_refusals(rt);
  fl_runtime_close(rt);
  test_register();
  return check_done("backend_fourth");
}
