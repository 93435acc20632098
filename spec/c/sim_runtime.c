/* A whole runtime on the sim device: failures that arrive late name their line
 * and leave the parameters alone, memory runs out with figures, a fault stays
 * and closing is quiet, random numbers are the CPU's. */
#include "check.h"

#include <flare/flare.h>

#include <stdlib.h>
#include <string.h>

static fl_runtime *rt;
static fl_device sim0, sim1;

static void open_runtime(void) {
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK, "%s", fl_error());
  CHECK(fl_device_find(rt, "sim", &sim0) == FL_OK);
  CHECK(fl_device_find(rt, "sim:1", &sim1) == FL_OK);
}

static fl_status control(const char *what, double value) {
  fl_backend *b = fl_device_backend(rt, sim0);
  return b->control(b, what, value);
}

static fl_tensor *vector(fl_device d, fl_dtype dtype, int64_t n,
                         const void *data) {
  fl_tensor *t = NULL;
  CHECK(fl_tensor_new(rt, dtype, 1, &n, d, &t) == FL_OK, "%s", fl_error());
  CHECK(fl_tensor_write(t, data, (size_t)n * fl_dtype_size(dtype)) == FL_OK);
  return t;
}

static fl_status run(const char *op, int line, int n, const fl_operand *in,
                     fl_tensor **out) {
  fl_call c = {.op = fl_op_find(rt, op),
               .n_in = n,
               .in = in,
               .out = out,
               .site = fl_site_intern(rt, "train.lua", line)};
  return fl_call_run(rt, &c);
}

/* rows of a table of 4 x 2 */
static fl_status look_up(fl_tensor *table, int64_t row, int line) {
  fl_tensor *index = vector(sim0, FL_I64, 1, &row), *out = NULL;
  fl_operand in[2] = {{.tensor = table}, {.tensor = index}};
  fl_status s = run("embedding", line, 2, in, &out);
  if (s == FL_OK)
    fl_tensor_release(out);
  fl_tensor_release(index);
  return s;
}

static fl_tensor *table_of(fl_device d) {
  float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  fl_tensor *t = NULL;
  CHECK(fl_tensor_new(rt, FL_F32, 2, (int64_t[]){4, 2}, d, &t) == FL_OK);
  CHECK(fl_tensor_write(t, data, sizeof data) == FL_OK);
  return t;
}

/* p -= lr * g */
static fl_status step(fl_tensor *p, fl_tensor *g, fl_tensor *m) {
  fl_operand in[4] = {
      {.dtype = FL_F64, .f = 1}, {.tensor = p}, {.tensor = g}, {.tensor = m}};
  fl_tensor *none[FL_MAX_OUT];
  return run("sgd_step", 99, 4, in, none);
}

static void test_late_failure(void) {
  float one[2] = {1, 1}, back[2] = {0};
  open_runtime();
  fl_tensor *table = table_of(sim0), *p = vector(sim0, FL_F32, 2, one);
  fl_tensor *g = vector(sim0, FL_F32, 2, one),
            *m = vector(sim0, FL_F32, 2, one);
  CHECK(control("delay_us", 30000) == FL_OK);
  CHECK(look_up(table, 3, 11) == FL_OK);
  CHECK(look_up(table, 4, 12) == FL_OK); /* the error is not known yet */
  CHECK(step(p, g, m) == FL_OK);
  CHECK(control("delay_us", 0) == FL_OK);
  CHECK(fl_device_sync(rt, sim0) == FL_EINDEX);
  CHECK(strstr(fl_error(), "train.lua:12"), "%s", fl_error());
  CHECK(strstr(fl_error(), "embedding"), "%s", fl_error());
  CHECK(fl_device_sync(rt, sim0) == FL_OK); /* told once */
  CHECK(fl_tensor_read(p, back, sizeof back) == FL_OK);
  CHECK(back[0] == 1 && back[1] == 1, "%g", (double)back[0]);
  CHECK(step(p, g, m) == FL_OK);
  CHECK(fl_tensor_read(p, back, sizeof back) == FL_OK);
  CHECK(back[0] == 0 && back[1] == 0, "%g", (double)back[0]);
  /* the next operation tells, and is not run itself */
  CHECK(look_up(table, -1, 13) == FL_OK);
  fl_backend *b = fl_device_backend(rt, sim0);
  int64_t n = 0;
  fl_status s;
  do
    s = step(p, g, m);
  while (s == FL_OK && ++n < 100000);
  CHECK(s == FL_EINDEX, "%d", s);
  CHECK(strstr(fl_error(), "train.lua:13"), "%s", fl_error());
  CHECK(fl_device_sync(rt, sim0) == FL_OK && b != NULL);
  fl_tensor_release(table);
  fl_tensor_release(p);
  fl_tensor_release(g);
  fl_tensor_release(m);
  fl_memory_stats stats;
  fl_memory_get(rt, sim0, &stats);
  CHECK(stats.blocks == 0, "%zu", stats.blocks);
  fl_runtime_close(rt);
}

static void test_memory(void) {
  open_runtime();
  fl_tensor *t, *u;
  fl_memory_stats s;
  fl_memory_limit(rt, sim0, 1000000);
  CHECK(fl_tensor_new(rt, FL_F32, 1, (int64_t[]){200000}, sim0, &t) == FL_OK);
  CHECK(fl_tensor_new(rt, FL_F32, 1, (int64_t[]){200000}, sim0, &u) ==
        FL_ENOMEM);
  CHECK(strstr(fl_error(), "sim:0: asked for 800 KB; live 800 KB"), "%s",
        fl_error());
  CHECK(fl_tensor_new(rt, FL_F32, 1, (int64_t[]){200000}, sim1, &u) == FL_OK);
  fl_memory_get(rt, sim1, &s);
  CHECK(s.live == 800000 && s.limit == 0);
  fl_tensor_release(u);
  fl_tensor_release(t);
  CHECK(fl_tensor_new(rt, FL_F32, 1, (int64_t[]){240000}, sim0, &t) == FL_OK);
  fl_tensor_release(t);
  /* the device itself may be too small */
  fl_memory_flush(rt, sim1);
  CHECK(control("memory_limit", 500000) == FL_OK);
  CHECK(fl_tensor_new(rt, FL_F32, 1, (int64_t[]){200000}, sim1, &t) ==
        FL_ENOMEM);
  CHECK(fl_tensor_new(rt, FL_F32, 1, (int64_t[]){100000}, sim1, &t) == FL_OK);
  fl_tensor_release(t);
  fl_runtime_close(rt);
}

static void test_fault(void) {
  float data[2] = {1, 2};
  open_runtime();
  fl_tensor *x = vector(sim0, FL_F32, 2, data), *y = NULL;
  fl_tensor *other = vector(sim1, FL_F32, 2, data);
  fl_operand in = {.tensor = x};
  CHECK(control("fault", 0) == FL_OK);
  fl_status s = run("exp", 21, 1, &in, &y);
  CHECK(s == FL_OK);
  fl_tensor_release(y);
  for (int i = 0; i < 3; i++) {
    CHECK(fl_device_sync(rt, sim0) == FL_EFAULT);
    CHECK(strstr(fl_error(), "exp") && strstr(fl_error(), "train.lua:21"), "%s",
          fl_error());
    CHECK(run("exp", 22, 1, &in, &y) == FL_EFAULT);
    CHECK(strstr(fl_error(), "train.lua:21"), "%s", fl_error());
    CHECK(fl_tensor_read(x, data, sizeof data) == FL_EFAULT);
  }
  CHECK(fl_tensor_read(other, data, sizeof data) == FL_OK && data[1] == 2);
  fl_tensor_release(x);
  fl_runtime_close(rt); /* with `other` still held */
  fl_tensor_release(other);
}

/* y = exp(x), then x = x + x. In the test each allocation fails once.
 */
static fl_status capture(fl_tensor *x, fl_graph **g, fl_tensor **y) {
  fl_operand in = {.tensor = x}, both[2] = {{.tensor = x}, {.tensor = x}};
  fl_tensor *same = NULL;
  fl_call c = {.op = fl_op_find(rt, "add"),
               .n_in = 2,
               .in = both,
               .inplace = true,
               .out = &same};
  *g = NULL;
  *y = NULL;
  fl_status s = fl_graph_begin(rt, sim0, g);
  if (s == FL_OK)
    s = run("exp", 30, 1, &in, y);
  if (s == FL_OK && (s = fl_call_run(rt, &c)) == FL_OK)
    fl_tensor_release(same);
  if (s == FL_OK)
    s = fl_graph_end(*g, 1, y);
  return s;
}

static void test_graphs(void) {
  float data[2] = {0, 0.5f}, out[2];
  fl_graph *g, *open;
  fl_graph_stats stats;
  fl_tensor *y;
  open_runtime();
  fl_tensor *x = vector(sim0, FL_F32, 2, data);
  int64_t failing = 0;
  for (fl_status s = FL_ENOMEM; s == FL_ENOMEM && failing < 100; failing++) {
    fl_memory_fail(rt, failing, 1);
    s = capture(x, &g, &y);
    fl_memory_fail(rt, 0, 0);
    CHECK(s == FL_OK || s == FL_ENOMEM, "%s", fl_error());
    if (s == FL_OK)
      break;
    fl_tensor_release(y);
    fl_graph_free(g);
    CHECK(fl_tensor_read(x, out, sizeof out) == FL_OK && out[1] == 0.5f);
  }
  CHECK(failing > 3 && failing < 100, "%lld", (long long)failing);
  fl_graph_get(g, &stats);
  CHECK(stats.launches == 2 && stats.runs == 0 && stats.bytes > 0);
  CHECK(fl_graph_run(g, 0) == FL_OK && fl_graph_run(g, 0) == FL_OK);
  CHECK(fl_tensor_read(y, out, sizeof out) == FL_OK);
  CHECK(out[0] == 1 && out[1] > 2.71f && out[1] < 2.72f, "%g", out[1]);
  CHECK(fl_tensor_read(x, out, sizeof out) == FL_OK && out[1] == 2);
  /* closed with a graph, a result and a capture */
  CHECK(fl_graph_begin(rt, sim0, &open) == FL_OK);
  fl_runtime_close(rt);
  CHECK(fl_graph_run(g, 0) == FL_ECLOSED);
  CHECK(fl_graph_end(open, 0, NULL) == FL_ECLOSED);
  fl_graph_get(g, &stats);
  CHECK(stats.launches == 0);
  fl_graph_free(g);
  fl_graph_free(open);
  fl_tensor_release(x);
  fl_tensor_release(y);
}

static void test_random(void) {
  float a[1000], b[1000];
  open_runtime();
  fl_device device[2] = {0, sim1};
  for (int i = 0; i < 2; i++) {
    fl_attrs attrs = *fl_op_defaults(fl_op_find(rt, "randn"));
    fl_tensor *t = NULL;
    fl_generator g = {.seed = 7};
    CHECK(fl_attrs_list(&attrs, 0, 1, (int64_t[]){1000}) == FL_OK);
    fl_operand drawn[2] = {{.dtype = FL_NODTYPE}, {.dtype = FL_NODTYPE}};
    fl_call c = {.op = fl_op_find(rt, "randn"),
                 .n_in = 2,
                 .in = drawn,
                 .attrs = &attrs,
                 .device = device[i],
                 .generator = &g,
                 .out = &t};
    CHECK(fl_call_run(rt, &c) == FL_OK, "%s", fl_error());
    CHECK(fl_tensor_read(t, i ? b : a, sizeof a) == FL_OK);
    fl_tensor_release(t);
  }
  CHECK(memcmp(a, b, sizeof a) == 0);
  fl_runtime_close(rt);
}

int main(void) {
  test_late_failure();
  test_memory();
  test_fault();
  test_graphs();
  test_random();
  return check_done("sim_runtime");
}
