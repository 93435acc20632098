/* FL_COMPILED_CHECK: a plan that computes something else than its launches is
 * found, on every device, and named; one that does not is not. */
#include "check.h"

#include "../../runtime/compile/compile.h"

#include <stdlib.h>
#include <string.h>

static fl_runtime *rt;

static fl_tensor *call(const char *op, fl_tensor *a, fl_operand b,
                       bool inplace) {
  fl_tensor *out = NULL;
  fl_operand in[2] = {{.tensor = a}, b};
  fl_call c = {.op = fl_op_find(rt, op),
               .n_in = 2,
               .in = in,
               .inplace = inplace,
               .site = fl_site_intern(rt, "model.lua", 7),
               .out = &out};
  CHECK(fl_call_run(rt, &c) == FL_OK, "%s", fl_error());
  return out;
}

static fl_operand number(double v) {
  return (fl_operand){.dtype = FL_F64, .f = v};
}

/* y = x * 2 + 1, and x -= y * 0.5; returns how the function ends. */
static fl_status run(fl_compiled *c, fl_tensor *x, float *y0, float *x0) {
  float values[6];
  CHECK(fl_compiled_begin(c) == FL_OK);
  fl_tensor *a = call("mul", x, number(2), false);
  fl_tensor *y = call("add", a, number(1), false);
  fl_tensor *z = call("mul", y, number(0.5), false);
  fl_tensor_release(call("sub", x, (fl_operand){.tensor = z}, true));
  fl_tensor_release(a);
  fl_tensor_release(z);
  fl_status s = fl_compiled_end(c);
  if (s == FL_OK) {
    CHECK(fl_tensor_read(y, values, sizeof values) == FL_OK, "%s", fl_error());
    *y0 = values[0];
    CHECK(fl_tensor_read(x, values, sizeof values) == FL_OK, "%s", fl_error());
    *x0 = values[0];
  }
  fl_tensor_release(y);
  return s;
}

static fli_plan *plan_of(const fl_compiled *c) {
  return c->n_plans == 1 && c->plans[0]->built ? c->plans[0] : NULL;
}

/* The kernel takes the number 1 for 2, wherever it has it. */
static void disturb(fli_plan *p) {
  uint32_t two = UINT32_MAX, one = UINT32_MAX;
  for (uint32_t k = 0; k < p->n_operands; k++) {
    if (p->operands[k].slot >= 0)
      continue;
    double v = p->args[p->operands[k].number].operand.f;
    two = v == 2 ? k : two;
    one = v == 1 ? k : one;
  }
  CHECK(two != UINT32_MAX && one != UINT32_MAX);
  if (two != UINT32_MAX && one != UINT32_MAX)
    p->operands[two].number = p->operands[one].number;
}

static void test_device(const char *name, unsigned flags) {
  fl_device d;
  fl_tensor *x = NULL;
  fl_compiled *c = NULL;
  const float values[6] = {4, 5, 6, 7, 8, 9};
  float y0 = 0, x0 = 0;
  CHECK(fl_device_find(rt, name, &d) == FL_OK, "%s", fl_error());
  CHECK(fl_tensor_new(rt, FL_F32, 1, (const int64_t[]){6}, d, &x) == FL_OK);
  CHECK(fl_tensor_write(x, values, sizeof values) == FL_OK);
  CHECK(fl_compiled_new(rt, FL_COMPILED_CHECK | flags, &c) == FL_OK);
  for (int k = 0; k < 3; k++) {
    CHECK(fl_tensor_write(x, values, sizeof values) == FL_OK);
    CHECK(run(c, x, &y0, &x0) == FL_OK, "%s", fl_error());
    CHECK(y0 == 9 && x0 == -0.5f, "%g %g", (double)y0, (double)x0);
  }
  fli_plan *p = plan_of(c);
  CHECK(p && p->n_steps == 1);
  if (p) {
    disturb(p);
    CHECK(fl_tensor_write(x, values, sizeof values) == FL_OK);
    CHECK(run(c, x, &y0, &x0) == FL_EFAULT);
    CHECK(strstr(fl_error(), "kernel 1 of 1 ("), "%s", fl_error());
    CHECK(strstr(fl_error(), "add at model.lua:7"), "%s", fl_error());
    CHECK(strstr(fl_error(), "6 of 6 elements differ"), "%s", fl_error());
  }
  fl_compiled_free(c);
  fl_tensor_release(x);
}

int main(void) {
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK);
  test_device("cpu", 0);
  test_device("cpu", FL_COMPILED_EXACT);
  test_device("sim:0", 0);
  fl_runtime_close(rt);
  return check_done("plan_check");
}
