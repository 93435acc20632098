/* Positions count from 1 in Lua and from 0 in C, and a gradient belongs to the
 * call that it is the gradient of: what goes forward from the one and backward
 * from the other, first and second order, comes out the same bit for bit. */
#include "check.h"

#include <flare/flarelua.h>

#include <lua.h>
#include <math.h>
#include <string.h>

enum { MOST = 64 };

static fl_lua *lua;
static fl_runtime *rt;

static fl_tensor *floats(int ndim, const int64_t *shape) {
  fl_tensor *t = NULL;
  double v[MOST];
  int64_t n = fl_numel(ndim, shape);
  for (int64_t i = 0; i < n; i++)
    v[i] = sin(0.7 * (double)i + 1);
  CHECK(fl_tensor_new(rt, FL_F64, ndim, shape, 0, &t) == FL_OK);
  CHECK(fl_tensor_write(t, v, (size_t)n * 8) == FL_OK);
  return t;
}

static fl_tensor *whole(int ndim, const int64_t *shape, const int64_t *v) {
  fl_tensor *t = NULL;
  CHECK(fl_tensor_new(rt, FL_I64, ndim, shape, 0, &t) == FL_OK);
  CHECK(fl_tensor_write(t, v, (size_t)fl_numel(ndim, shape) * 8) == FL_OK);
  return t;
}

/* --- the operators from C --- */

static fl_tensor *run(const char *name, const fl_attrs *attrs, int n,
                      fl_tensor *a, fl_tensor *b, fl_tensor *c) {
  fl_operand in[3] = {{.tensor = a, .dtype = FL_NODTYPE},
                      {.tensor = b, .dtype = FL_NODTYPE},
                      {.tensor = c, .dtype = FL_NODTYPE}};
  fl_tensor *out[FL_MAX_OUT] = {NULL};
  fl_call call = {.op = fl_op_find(rt, name),
                  .n_in = n,
                  .in = in,
                  .attrs = attrs,
                  .out = out};
  fl_status s = fl_call_run(rt, &call);
  CHECK(s == FL_OK, "%s: %s", name, fl_error());
  for (int k = 1; k < FL_MAX_OUT; k++)
    fl_tensor_release(out[k]);
  return out[0];
}

static fl_attrs defaults(const char *name) {
  return *fl_op_defaults(fl_op_find(rt, name));
}

static fl_tensor *along(const char *name, int64_t dim, fl_tensor *x, int ndim,
                        const int64_t *shape, const int64_t *at,
                        fl_tensor *src) {
  fl_attrs a = defaults(name);
  fl_tensor *index = whole(ndim, shape, at);
  a.v[0].i = dim;
  fl_tensor *y = run(name, &a, src ? 3 : 2, x, index, src);
  fl_tensor_release(index);
  return y;
}

static fl_tensor *embedding(fl_tensor *x) {
  fl_attrs a = defaults("embedding");
  fl_tensor *index = whole(1, (int64_t[]){5}, (int64_t[]){2, 0, 2, 1, 3});
  a.v[0].i = 1; /* padding */
  fl_tensor *y = run("embedding", &a, 2, x, index, NULL);
  fl_tensor_release(index);
  return y;
}

static fl_tensor *gather(fl_tensor *x) {
  return along("gather", 1, x, 2, (int64_t[]){4, 2},
               (int64_t[]){2, 0, 1, 1, 0, 2, 2, 2}, NULL);
}

static fl_tensor *index_select(fl_tensor *x) {
  return along("index_select", 0, x, 1, (int64_t[]){3}, (int64_t[]){3, 0, 3},
               NULL);
}

static fl_tensor *index_copy(fl_tensor *x) {
  fl_tensor *src = floats(2, (int64_t[]){2, 3});
  fl_tensor *y =
      along("index_copy", 0, x, 1, (int64_t[]){2}, (int64_t[]){3, 1}, src);
  fl_tensor_release(src);
  return y;
}

static fl_tensor *scatter(fl_tensor *x) {
  fl_tensor *src = floats(2, (int64_t[]){4, 1});
  fl_tensor *y = along("scatter", 1, x, 2, (int64_t[]){4, 1},
                       (int64_t[]){2, 0, 1, 1}, src);
  fl_tensor_release(src);
  return y;
}

static fl_tensor *cross_entropy(fl_tensor *x) {
  fl_attrs a = defaults("cross_entropy");
  fl_tensor *target = whole(1, (int64_t[]){4}, (int64_t[]){2, 0, -100, 1});
  a.v[0].i = -100; /* ignored, whatever the base */
  a.v[1].f = 0.1;
  fl_tensor *y = run("cross_entropy", &a, 3, x, target, NULL);
  fl_tensor_release(target);
  return y;
}

static fl_tensor *nll_loss(fl_tensor *x) {
  fl_attrs a = defaults("nll_loss");
  fl_tensor *target = whole(1, (int64_t[]){4}, (int64_t[]){2, 0, 2, 1});
  fl_tensor *y = run("nll_loss", &a, 3, x, target, NULL);
  fl_tensor_release(target);
  return y;
}

/* These make positions, and find them again going backward. */
static fl_tensor *max_dim(fl_tensor *x) {
  fl_attrs a = defaults("max_dim");
  a.v[0].i = 0;
  return run("max_dim", &a, 1, x, NULL, NULL);
}

static fl_tensor *sort(fl_tensor *x) {
  fl_attrs a = defaults("sort");
  a.v[0].i = 1;
  return run("sort", &a, 1, x, NULL, NULL);
}

static fl_tensor *topk(fl_tensor *x) {
  fl_attrs a = defaults("topk");
  a.v[0].i = 2;
  a.v[1].i = 1;
  return run("topk", &a, 1, x, NULL, NULL);
}

static fl_tensor *max_pool(fl_tensor *x) {
  fl_attrs a = defaults("max_pool");
  CHECK(fl_attrs_list(&a, 0, 1, (int64_t[]){2}) == FL_OK);
  CHECK(fl_attrs_list(&a, 1, 1, (int64_t[]){1}) == FL_OK);
  return run("max_pool", &a, 1, x, NULL, NULL);
}

/* x is (4, 3). */
static const struct {
  const char *name;
  fl_tensor *(*forward)(fl_tensor *x);
  const char *text; /* the same in Lua */
} cases[] = {
    {"embedding", embedding,
     "core.embedding(x, index{3, 1, 3, 2, 4}, {padding = 2})"},
    {"gather", gather, "x:gather(2, index{{3, 1}, {2, 2}, {1, 3}, {3, 3}})"},
    {"index_select", index_select, "x:index_select(1, index{4, 1, 4})"},
    {"index_copy", index_copy, "x:index_copy(1, index{4, 2}, floats(2, 3))"},
    {"scatter", scatter,
     "x:scatter(2, index{{3}, {1}, {2}, {2}}, floats(4, 1))"},
    {"cross_entropy", cross_entropy,
     "core.cross_entropy(x, index{3, 1, -100, 2}, {ignore_index = -100, "
     "label_smoothing = 0.1})"},
    {"nll_loss", nll_loss, "core.nll_loss(x, index{3, 1, 3, 2})"},
    {"max_dim", max_dim, "(core.max_dim(x, 1))"},
    {"sort", sort, "(core.sort(x, 2))"},
    {"topk", topk, "(core.topk(x, 2, 2))"},
    {"max_pool", max_pool, "core.max_pool(x, {kernel = {2}, stride = {1}})"},
};

static const char *const library =
    "core = require 'flare.core'\n"
    "function index(list) return core.tensor(list, {dtype = 'i64'}) end\n"
    "function floats(...)\n"
    "  local n, list = 1, {}\n"
    "  for _, size in ipairs {...} do n = n * size end\n"
    "  for i = 0, n - 1 do list[i + 1] = math.sin(0.7 * i + 1) end\n"
    "  return core.tensor(list, {dtype = 'f64'}):view(...)\n"
    "end\n"
    "function backward(y, seed) y:backward(seed) end\n"
    "function second(y, x, seed)\n"
    "  local g = core.grad(y, {x}, {gradient = seed, create_graph = true})\n"
    "  if g.requires_grad then (g * g):sum():backward() end\n"
    "end\n"
    "forward = {}\n";

/* --- four ways --- */

static fl_tensor *forward(int k, bool from_lua, fl_tensor *x) {
  fl_tensor *y = NULL;
  if (!from_lua)
    return cases[k].forward(x);
  char path[64];
  snprintf(path, sizeof path, "forward.%s", cases[k].name);
  CHECK(fl_lua_call(lua, path, "t>t", x, &y) == FL_OK, "%s", fl_error());
  return y;
}

static void backward(bool from_lua, int order, fl_tensor *y, fl_tensor *x,
                     fl_tensor *seed) {
  if (order == 1 && from_lua)
    CHECK(fl_lua_call(lua, "backward", "tt", y, seed) == FL_OK, "%s",
          fl_error());
  else if (order == 1)
    CHECK(fl_backward(rt, 1, &y, &seed, 0) == FL_OK, "%s", fl_error());
  else if (from_lua)
    CHECK(fl_lua_call(lua, "second", "ttt", y, x, seed) == FL_OK, "%s",
          fl_error());
  else {
    fl_tensor *g = NULL;
    CHECK(fl_grad(rt, 1, &y, &seed, 1, &x, FL_BACKWARD_CREATE, &g) == FL_OK,
          "%s", fl_error());
    if (fl_tensor_requires_grad(g)) {
      fl_tensor *square = run("mul", NULL, 2, g, g, NULL);
      fl_tensor *sum = run("sum", NULL, 1, square, NULL, NULL);
      CHECK(fl_backward(rt, 1, &sum, NULL, 0) == FL_OK, "%s", fl_error());
      fl_tensor_release(sum);
      fl_tensor_release(square);
    }
    fl_tensor_release(g);
  }
}

/* Results and gradients of one way; returns how many numbers. */
static int way(int k, int order, bool forth, bool back, double *out) {
  fl_tensor *x = floats(2, (int64_t[]){4, 3});
  CHECK(fl_tensor_require_grad(x, true) == FL_OK);
  fl_tensor *y = forward(k, forth, x);
  if (!y)
    return 0;
  const fl_meta *m = fl_tensor_meta(y);
  fl_tensor *seed = floats(m->ndim, m->shape);
  int n = (int)fl_tensor_numel(y), at = n;
  CHECK(fl_tensor_read(y, out, (size_t)n * 8) == FL_OK);
  /* what is linear in x has a second gradient by what flows back */
  CHECK(fl_tensor_require_grad(seed, order == 2) == FL_OK);
  backward(back, order, y, x, seed);
  fl_tensor *g = fl_tensor_grad(x), *h = fl_tensor_grad(seed);
  CHECK((order == 1 ? g : h) != NULL, "%s has no gradient", cases[k].name);
  if (g) {
    CHECK(fl_tensor_read(g, out + at, 12 * 8) == FL_OK);
    at += 12;
  }
  if (h) {
    CHECK(fl_tensor_read(h, out + at, (size_t)n * 8) == FL_OK);
    at += n;
  }
  fl_tensor_release(seed);
  fl_tensor_release(y);
  fl_tensor_release(x);
  return at;
}

int main(void) {
  CHECK(fl_lua_open(NULL, &lua) == FL_OK);
  rt = fl_lua_runtime(lua);
  CHECK(fl_lua_run(lua, library, "=library") == FL_OK, "%s", fl_error());
  int count = (int)(sizeof cases / sizeof *cases);
  for (int k = 0; k < count; k++) {
    char text[300];
    snprintf(text, sizeof text, "function forward.%s(x) return %s end",
             cases[k].name, cases[k].text);
    CHECK(fl_lua_run(lua, text, "=case") == FL_OK, "%s", fl_error());
    for (int order = 1; order <= 2; order++) {
      double want[2 * MOST], got[2 * MOST];
      int n = way(k, order, false, false, want);
      CHECK(n > 0);
      for (int w = 1; w < 4; w++) {
        int m = way(k, order, w & 1, w & 2, got);
        CHECK(m == n && memcmp(want, got, (size_t)n * 8) == 0,
              "%s, order %d: forward from %s, backward from %s", cases[k].name,
              order, w & 1 ? "Lua" : "C", w & 2 ? "Lua" : "C");
      }
    }
  }
  fl_lua_close(lua);
  return check_done("lua_index_base");
}
