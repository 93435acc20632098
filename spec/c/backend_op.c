/* Operators of the host program and of a shared library (op_module.c), by
 * fl_op_register: run, gradient, fingerprint, refusals. */
#include "check.h"

#include <flare/flare.h>

#include <string.h>

static fl_status cube(const fl_launch *l) {
  const float *x = l->in[0].data;
  float *y = l->out[0].data;
  for (int64_t i = 0; i < 4; i++)
    y[i] = x[i] * x[i] * x[i];
  return FL_OK;
}

static fl_status flat_shape(int n_in, const fl_meta *const *in,
                            const fl_attrs *attrs, int n_out, fl_meta *out) {
  (void)n_in, (void)attrs, (void)n_out;
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
  CHECK(fl_op_register(rt, &s, &same) == FL_EARG);
  CHECK(strstr(fl_error(), "there is a cube already") != NULL);

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
  fl_runtime_close(rt);
  return check_done("op");
}
