/* Kernels of one's own from C: as text and recorded, called as operators, with
 * a gradient; the operator outlives what made it. */
#include "check.h"

#include <flare/flare.h>
#include <flare/program.h>

#include <string.h>

static fl_runtime *rt;

static fl_tensor *vector(int n, const float *values, bool grad) {
  fl_tensor *t;
  CHECK(fl_tensor_new(rt, FL_F32, 1, (int64_t[]){n}, 0, &t) == FL_OK);
  CHECK(fl_tensor_write(t, values, (size_t)n * 4) == FL_OK);
  CHECK(fl_tensor_require_grad(t, grad) == FL_OK);
  return t;
}

static void expect(fl_tensor *t, int n, const float *want) {
  float got[8] = {0};
  CHECK(t && fl_tensor_read(t, got, (size_t)n * 4) == FL_OK, "%s", fl_error());
  for (int k = 0; k < n; k++)
    CHECK(got[k] == want[k], "%d: %g, not %g", k, (double)got[k],
          (double)want[k]);
}

static fl_tensor *run(const fl_op *op, int n, const fl_operand *in,
                      const fl_attrs *attrs) {
  fl_tensor *out = NULL;
  fl_call c = {.op = op, .n_in = n, .in = in, .attrs = attrs, .out = &out};
  CHECK(op && fl_call_run(rt, &c) == FL_OK, "%s", fl_error());
  return out;
}

static void text(void) {
  fl_tensor *x = vector(3, (float[]){1, 2, 3}, true);
  fl_operand in[2] = {{.tensor = x}, {.dtype = FL_F64, .f = 0.5}};
  fl_expr *e;
  const fl_op *op = NULL, *again = NULL;
  char source[1000];
  CHECK(fl_expr_new(rt, "T x, T a", "T z", "z = x * x + a", NULL, &e) == FL_OK,
        "%s", fl_error());
  CHECK(fl_expr_inputs(e) == 2);
  CHECK(strcmp(fl_expr_name(e), "elementwise") == 0);
  CHECK(fl_expr_op(e, 2, in, &op) == FL_OK);
  CHECK(fl_expr_op(e, 2, in, &again) == FL_OK && again == op);
  CHECK(fl_op_source(op, source, sizeof source) == strlen(source));
  CHECK(strstr(source, "a * b + c") != NULL, "%s", source);
  fl_expr_free(e);
  fl_tensor *z = run(op, 2, in, NULL);
  expect(z, 3, (float[]){1.5f, 4.5f, 9.5f});
  fl_tensor *seed = vector(3, (float[]){1, 1, 1}, false);
  CHECK(fl_backward(rt, 1, &z, &seed, 0) == FL_OK, "%s", fl_error());
  expect(fl_tensor_grad(x), 3, (float[]){2, 4, 6});
  fl_tensor_release(seed);
  fl_tensor_release(z);
  fl_tensor_release(x);
}

static void reduction(void) {
  fl_tensor *x = vector(4, (float[]){1, 2, 3, 4}, false);
  fl_operand in = {.tensor = x};
  fl_expr *e;
  const fl_op *op = NULL;
  fl_expr_options o = {.struct_size = sizeof o, .reduce = "sum"};
  CHECK(fl_expr_new(rt, "T x", "T z", "x * x", &o, &e) == FL_OK, "%s",
        fl_error());
  CHECK(fl_expr_op(e, 1, &in, &op) == FL_OK);
  fl_attrs attrs = *fl_op_defaults(op);
  CHECK(fl_attrs_list(&attrs, 0, 1, (int64_t[]){-1}) == FL_OK);
  attrs.v[1].i = true;
  fl_tensor *z = run(op, 1, &in, &attrs);
  CHECK(z && fl_tensor_meta(z)->ndim == 1);
  expect(z, 1, (float[]){30});
  fl_tensor_release(z);
  fl_tensor_release(x);
  fl_expr_free(e);
}

static void recorded(void) {
  fl_tensor *x = vector(2, (float[]){3, -4}, false), *stand, *y = NULL;
  fl_operand in = {.tensor = x};
  const fl_op *op = NULL, *again = NULL;
  fl_expr *e;
  CHECK(fl_expr_new(rt, NULL, NULL, NULL, NULL, &e) == FL_OK);
  CHECK(fl_expr_op(e, 1, &in, &op) == FL_OK && !op);
  CHECK(fl_trace_begin(e, 1, &in, &stand) == FL_OK);
  fl_operand inner = {.tensor = stand};
  y = run(fl_op_find(rt, "abs"), 1, &inner, NULL);
  fl_tensor *none = NULL;
  fl_call sum = {
      .op = fl_op_find(rt, "sum"), .n_in = 1, .in = &inner, .out = &none};
  CHECK(fl_call_run(rt, &sum) == FL_EUNSUPPORTED);
  CHECK(strstr(fl_error(), "sum is not elementwise") != NULL);
  CHECK(fl_trace_end(e, 1, &y, &op) == FL_OK && op, "%s", fl_error());
  CHECK(fl_expr_op(e, 1, &in, &again) == FL_OK && again == op);
  fl_tensor_release(y);
  fl_tensor_release(stand);
  y = run(op, 1, &in, NULL);
  expect(y, 2, (float[]){3, 4});
  fl_tensor_release(y);
  CHECK(fl_trace_end(e, -1, NULL, NULL) == FL_EARG);
  CHECK(fl_trace_begin(e, 1, &in, &stand) == FL_OK);
  fl_tensor_release(stand);
  CHECK(fl_trace_end(e, -1, NULL, NULL) == FL_OK);
  fl_tensor_release(x);
  fl_expr_free(e);
}

static void wrong(void) {
  fl_expr *e = NULL;
  const fl_op *op;
  fl_tensor *x = vector(1, (float[]){1}, false);
  fl_expr_options o = {.struct_size = sizeof o, .reduce = "mean"};
  CHECK(fl_expr_new(rt, "T x", "T z", "z = y", NULL, &e) == FL_EARG);
  CHECK(strcmp(fl_error(),
               "elementwise: y is not declared\n  z = y\n      ^") == 0,
        "%s", fl_error());
  CHECK(fl_expr_new(rt, "T x", "T z", "x", &o, &e) == FL_EARG && !e);
  CHECK(fl_expr_new(rt, "i64 x", "i64 z", "z = x", NULL, &e) == FL_OK);
  CHECK(fl_expr_op(e, 1, &(fl_operand){.tensor = x}, &op) == FL_EDTYPE);
  CHECK(fl_expr_op(e, 0, NULL, &op) == FL_EARG);
  fl_expr_free(e);
  fl_expr_free(NULL);
  fl_tensor_release(x);
}

int main(void) {
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK);
  text();
  reduction();
  recorded();
  wrong();
  CHECK(fl_tensor_count(rt) == 0);
  fl_runtime_close(rt);
  return check_done("expr");
}
