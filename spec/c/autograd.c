/* The tape from C: chains, gradients that add up, writes through views, and
 * what is refused. The wide coverage of operators is the Lua specs'. */
#include "check.h"

#include <flare/flare.h>

#include <math.h>
#include <string.h>

static fl_runtime *rt;

static fl_tensor *vector(int n, const float *values, bool grad) {
  fl_tensor *t;
  CHECK(fl_tensor_new(rt, FL_F32, 1, (int64_t[]){n}, 0, &t) == FL_OK);
  CHECK(fl_tensor_write(t, values, (size_t)n * 4) == FL_OK);
  CHECK(fl_tensor_require_grad(t, grad) == FL_OK);
  return t;
}

static fl_tensor *run(const char *name, bool inplace, fl_tensor *a,
                      fl_tensor *b, const fl_attrs *attrs) {
  fl_operand in[2] = {{.tensor = a}, {.tensor = b}};
  fl_tensor *out = NULL;
  fl_call c = {.op = fl_op_find(rt, name), .n_in = b ? 2 : 1, .in = in,
               .attrs = attrs, .inplace = inplace, .out = &out};
  if (fl_call_run(rt, &c) != FL_OK)
    return NULL;
  return out;
}

/* x[i] of a vector, a view */
static fl_tensor *part(fl_tensor *x, int start, int length) {
  fl_attrs a = *fl_op_defaults(fl_op_find(rt, "narrow"));
  a.v[0].i = 0;
  a.v[1].i = start;
  a.v[2].i = length;
  fl_tensor *t = run("narrow", false, x, NULL, &a);
  CHECK(t != NULL);
  return t;
}

static void same(fl_tensor *t, int n, const float *want) {
  float got[8];
  CHECK(t != NULL);
  CHECK(fl_tensor_read(t, got, (size_t)n * 4) == FL_OK);
  for (int i = 0; i < n; i++)
    CHECK(fabsf(got[i] - want[i]) < 1e-6f, "[%d] is %g, not %g", i, got[i],
          want[i]);
}

static fl_tensor *ones;

static void backward(fl_tensor *y) {
  fl_tensor *seed = ones;
  fl_status s = fl_backward(rt, 1, &y, &seed, 0);
  if (s)
    fprintf(stderr, "%s\n", fl_error());
  CHECK(s == FL_OK);
}

static void test_chain(void) {
  fl_tensor *x = vector(3, (float[]){1, 2, 3}, true);
  fl_tensor *y = run("mul", false, x, x, NULL);
  backward(y);
  same(fl_tensor_grad(x), 3, (float[]){2, 4, 6});
  CHECK(fl_backward(rt, 1, &y, &ones, 0) == FL_EAUTOGRAD); /* twice */
  fl_tensor_release(y);
  y = run("mul", false, x, x, NULL);
  backward(y); /* accumulates */
  same(fl_tensor_grad(x), 3, (float[]){4, 8, 12});
  fl_tensor_release(y);
  fl_tensor_release(x);
}

static void test_second_order(void) {
  fl_tensor *x = vector(3, (float[]){1, 2, 3}, true), *g, *gg;
  fl_tensor *y = run("mul", false, x, x, NULL);
  fl_tensor *z = run("mul", false, y, x, NULL); /* x^3 */
  CHECK(fl_grad(rt, 1, &z, &ones, 1, &x, FL_BACKWARD_CREATE, &g) == FL_OK);
  same(g, 3, (float[]){3, 12, 27});
  CHECK(fl_grad(rt, 1, &g, &ones, 1, &x, 0, &gg) == FL_OK);
  same(gg, 3, (float[]){6, 12, 18});
  fl_tensor_release(gg);
  fl_tensor_release(g);
  fl_tensor_release(z);
  fl_tensor_release(y);
  fl_tensor_release(x);
}

/* y = 2 x; y[1..2] *= w; dy/dx is 2 outside and 2 w inside, dy/dw 2 x. */
static void test_write_through_view(void) {
  fl_tensor *x = vector(3, (float[]){1, 2, 3}, true);
  fl_tensor *w = vector(2, (float[]){5, 7}, true);
  fl_tensor *y = run("add", false, x, x, NULL);
  fl_tensor *v = part(y, 1, 2);
  fl_tensor *same_v = run("mul", true, v, w, NULL);
  CHECK(same_v == v);
  same(y, 3, (float[]){2, 20, 42});
  backward(y);
  same(fl_tensor_grad(x), 3, (float[]){2, 10, 14});
  same(fl_tensor_grad(w), 2, (float[]){4, 6});
  fl_tensor_release(same_v);
  fl_tensor_release(v);
  fl_tensor_release(y);
  fl_tensor_release(w);
  fl_tensor_release(x);
}

/* A view made before its base is written sees the new history. */
static void test_view_before_write(void) {
  fl_tensor *x = vector(3, (float[]){1, 2, 3}, true);
  fl_tensor *y = run("add", false, x, x, NULL);
  fl_tensor *v = part(y, 0, 3);
  fl_tensor *t = run("mul", true, y, y, NULL); /* (2x)^2 */
  CHECK(t == y);
  backward(v);
  same(fl_tensor_grad(x), 3, (float[]){8, 16, 24});
  fl_tensor_release(t);
  fl_tensor_release(v);
  fl_tensor_release(y);
  fl_tensor_release(x);
}

/* A tensor without history gets one by a write through its view. */
static void test_write_gives_history(void) {
  fl_tensor *x = vector(3, (float[]){1, 2, 3}, false);
  fl_tensor *w = vector(1, (float[]){5}, true);
  fl_tensor *v = part(x, 1, 1);
  fl_tensor *t = run("mul", true, v, w, NULL);
  CHECK(t != NULL);
  CHECK(fl_tensor_requires_grad(x));
  backward(x);
  same(fl_tensor_grad(w), 1, (float[]){2});
  fl_tensor_release(t);
  fl_tensor_release(v);
  fl_tensor_release(w);
  fl_tensor_release(x);
}

static void test_refusals(void) {
  fl_tensor *x = vector(3, (float[]){1, 2, 3}, true);
  fl_tensor *v = part(x, 0, 2), *y, *z;
  CHECK(run("neg", true, x, NULL, NULL) == NULL);
  CHECK(strstr(fl_error(), "leaf") != NULL);
  CHECK(run("neg", true, v, NULL, NULL) == NULL);
  y = run("add", false, x, x, NULL);
  z = run("mul", false, y, y, NULL);
  fl_tensor *t = run("neg", true, y, NULL, NULL);
  CHECK(t == y);
  CHECK(fl_backward(rt, 1, &z, &ones, 0) == FL_EAUTOGRAD);
  CHECK(strstr(fl_error(), "changed in place") != NULL);
  fl_tensor_release(t);
  fl_tensor_release(z);
  fl_tensor_release(y);
  fl_tensor_release(v);
  fl_tensor_release(x);
}

static void test_long_chain(void) {
  fl_tensor *x = vector(3, (float[]){1, 2, 3}, true);
  fl_tensor *y = run("add", false, x, x, NULL);
  for (int i = 0; i < 1000000; i++) {
    fl_tensor *next = run("neg", false, y, NULL, NULL);
    fl_tensor_release(y);
    y = next;
  }
  backward(y);
  same(fl_tensor_grad(x), 3, (float[]){2, 2, 2});
  fl_tensor_release(y);
  fl_tensor_release(x);
}

int main(void) {
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK);
  ones = vector(3, (float[]){1, 1, 1}, false);
  test_chain();
  test_second_order();
  test_write_through_view();
  test_view_before_write();
  test_write_gives_history();
  test_refusals();
  test_long_chain();
  fl_tensor_release(ones);
  CHECK(fl_tensor_count(rt) == 0);
  fl_runtime_close(rt);
  return check_done("autograd");
}
