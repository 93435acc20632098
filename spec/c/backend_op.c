/* Operators of the host program, of a shared library (op_module.c), as an
 * expression and, where there is a GPU, in CUDA C++, by fl_op_register: run,
 * gradient, fingerprint, refusals. */
#include "check.h"

#include <flare/flare.h>

#include <stdlib.h>
#include <string.h>

static fl_status cube(const fl_launch *l) {
  const float *x = l->in[0].data;
  float *y = l->out[0].data;
  for (int64_t i = 0; i < 4; i++)
    y[i] = x[i] * x[i] * x[i];
  return FL_OK;
}

static fl_status flat_shape(void *context, int n_in, const fl_meta *const *in,
                            const fl_attrs *attrs, int n_out, fl_meta *out) {
  (void)context, (void)n_in, (void)attrs, (void)n_out;
  out->ndim = 1;
  out->shape[0] = fl_numel(in[0]->ndim, in[0]->shape);
  return FL_OK;
}

static fl_tensor *run(fl_runtime *rt, const fl_op *op, fl_tensor *x) {
  fl_tensor *y = NULL;
  fl_operand in = {.tensor = x};
  fl_call c = {.op = op, .n_in = 1, .in = &in, .out = &y};
  CHECK(fl_call_run(rt, &c) == FL_OK);
  return y;
}

static fl_status blocks(void *context, const fl_launch *l, fl_raw_call *c) {
  const fl_view *y = &l->out[0];
  int64_t n = fl_numel(y->ndim, y->shape);
  ++*(int *)context;
  c->block[0] = 32;
  c->grid[0] = (unsigned)((n + 31) / 32);
  return FL_OK;
}

static fl_status announced(void *context, const char *name, uint64_t print) {
  *(int *)context += 100;
  return print && strcmp(name, "twice") == 0 ? FL_OK
                                             : fli_fail(FL_EARG, "not me");
}

static float first_of(fl_tensor *x) {
  fl_tensor *y;
  float values[2] = {0};
  CHECK(fl_tensor_to(x, 0, FL_NODTYPE, &y) == FL_OK);
  CHECK(fl_tensor_read(y, values, sizeof values) == FL_OK);
  fl_tensor_release(y);
  return values[0];
}

/* y and its gradient at x = {3, 4} on a device. */
static void check_twice(fl_runtime *rt, const fl_op *op, fl_device d) {
  const float values[2] = {3, 4};
  const int64_t shape[1] = {2};
  fl_tensor *host, *x, *y, *seed;
  CHECK(fl_tensor_zeros(rt, FL_F32, 1, shape, 0, &host) == FL_OK);
  memcpy(fl_tensor_data(host), values, sizeof values);
  CHECK(fl_tensor_to(host, d, FL_NODTYPE, &x) == FL_OK);
  CHECK(fl_tensor_to(host, d, FL_NODTYPE, &seed) == FL_OK);
  CHECK(fl_tensor_require_grad(x, true) == FL_OK);
  y = run(rt, op, x);
  CHECK(first_of(y) == 6);
  CHECK(fl_backward(rt, 1, &y, &seed, 0) == FL_OK);
  CHECK(first_of(fl_tensor_grad(x)) == 6);
  fl_tensor_release(y);
  fl_tensor_release(seed);
  fl_tensor_release(x);
  fl_tensor_release(host);
}

/* An expression everywhere, and a kernel of its own where there is a GPU. */
static void expression(fl_runtime *rt) {
  static const char text[] =
      "__global__ void twice(const float *x, float *y, double by, long long n) "
      "{ long long i = blockIdx.x * 32ll + threadIdx.x; "
      "if (i < n) y[i] = x[i] * (float)by; }";
  fl_native_kernel kernels[1] = {{FL_F32, NULL}};
  const fl_op *op, *same;
  fl_device d;
  char *log;
  int calls = 0;
  fl_op_spec s = {.struct_size = sizeof s,
                  .name = "twice",
                  .signature = "x:float, by:real=2 -> y:x",
                  .expression = "y = x * by",
                  .gradient = "gx = gy * by",
                  .start = announced,
                  .context = &calls};
  CHECK(fl_op_register(rt, &s, &op) == FL_OK && calls == 100);
  check_twice(rt, op, 0);
  s.expression = s.gradient = NULL;
  s.native = kernels;
  CHECK(fl_op_register(rt, &s, &same) == FL_EARG);
  CHECK(strstr(fl_error(), "twice has no kernel") != NULL);
  if (fl_device_find(rt, "cuda", &d) != FL_OK)
    return;
  fl_raw_source source = {.text = text, .name = "twice"};
  CHECK(fl_raw_new(rt, "cuda", &source, &kernels[0].kernel, &log) == FL_OK);
  s.n_native = 1;
  free(log);
  s.configure = blocks;
  CHECK(fl_op_register(rt, &s, &same) == FL_OK && same == op && calls == 200);
  check_twice(rt, op, d);
  CHECK(calls == 201);
  check_twice(rt, op, 0);
}

int main(int argc, char **argv) {
  fl_runtime *rt;
  const fl_op *op = NULL, *same = NULL;
  char library[512];
  (void)argc;
  snprintf(library, sizeof library, "%s", argv[0]);
  strcpy(strrchr(library, '/'), "/op_module.so");
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK);
  fl_op_spec s = {.struct_size = sizeof s,
                  .name = "cube",
                  .signature = "x:float -> y:x",
                  .kernel = cube,
                  .shape = flat_shape};
  CHECK(fl_op_register(rt, &s, &op) == FL_OK);
  CHECK(fl_op_find(rt, "cube") == op);
  const float values[4] = {1, 2, 3, 4};
  const int64_t shape[2] = {2, 2};
  fl_tensor *x, *y;
  CHECK(fl_tensor_zeros(rt, FL_F32, 2, shape, 0, &x) == FL_OK);
  memcpy(fl_tensor_data(x), values, sizeof values);
  y = run(rt, op, x);
  CHECK(fl_tensor_meta(y)->ndim == 1 && fl_tensor_meta(y)->shape[0] == 4);
  CHECK(((const float *)fl_tensor_data(y))[3] == 64);
  fl_tensor_release(y);

  s.fingerprint = fl_op_fingerprint(op);
  CHECK(fl_op_register(rt, &s, &same) == FL_OK && same == op);
  s.fingerprint++;
  CHECK(fl_op_register(rt, &s, &same) == FL_EARG);
  s.fingerprint = 0;
  s.signature = "x:float, by:real=1 -> y:x";
  CHECK(fl_op_register(rt, &s, &same) == FL_OK && same != op);
  CHECK(fl_op_find(rt, s.name) == same);

  fl_op_spec outside = {.struct_size = sizeof outside,
                        .name = "outside_scale",
                        .signature = "x:float, by:real=2 -> y:x",
                        .library = library,
                        .symbol = "scale",
                        .init = "scale_init"};
  CHECK(fl_op_register(rt, &outside, &op) == FL_OK);
  y = run(rt, op, x);
  CHECK(((const float *)fl_tensor_data(y))[3] == 9);
  fl_tensor_release(y);
  outside.name = "inside";
  CHECK(fl_op_register(rt, &outside, &op) == FL_EARG);
  fl_tensor_release(x);
  expression(rt);
  fl_runtime_close(rt);
  return check_done("op");
}
