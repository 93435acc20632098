/* Every allocation of a training step fails once, two in a row and for good, on
 * the CPU and on sim: each time a clear error, nothing leaks, and the next step
 * works as if nothing had been. */
#include "check.h"

#include <flare/flare.h>

#include <string.h>

static fl_runtime *rt;
static fl_device device;

enum { X, W1, W2, G1, G2, M1, M2, KEPT };
static fl_tensor *kept[KEPT];

static fl_tensor *filled(int64_t rows, int64_t columns, float from) {
  float data[64];
  fl_tensor *t = NULL;
  for (int i = 0; i < rows * columns; i++)
    data[i] = from + (float)(i % 7) / 8;
  CHECK(fl_tensor_new(rt, FL_F32, 2, (int64_t[]){rows, columns}, device, &t) ==
        FL_OK);
  CHECK(fl_tensor_write(t, data, (size_t)(rows * columns) * 4) == FL_OK);
  return t;
}

static fl_status run(const char *op, int n, const fl_operand *in,
                     fl_tensor **out) {
  fl_call c = {.op = fl_op_find(rt, op), .n_in = n, .in = in, .out = out};
  return fl_call_run(rt, &c);
}

/* op(a, b) -> *out; takes over a. */
static fl_status then(const char *op, fl_tensor **a, fl_tensor *b) {
  fl_operand in[2] = {{.tensor = *a}, {.tensor = b}};
  fl_tensor *results[FL_MAX_OUT] = {NULL};
  fl_status s = run(op, b ? 2 : 1, in, results);
  fl_tensor_release(*a);
  *a = s ? NULL : results[0];
  return s;
}

/* mean((relu(x w1) w2)^2) forward, backward, and a step with momentum. */
static fl_status step(void) {
  fl_tensor *h = fl_tensor_retain(kept[X]);
  fl_status s = then("matmul", &h, kept[W1]);
  s = s ? s : then("relu", &h, NULL);
  s = s ? s : then("matmul", &h, kept[W2]);
  s = s ? s : then("square", &h, NULL);
  s = s ? s : then("mean", &h, NULL);
  s = s ? s : fl_grad(rt, 1, &h, NULL, 2, &kept[W1], 0, &kept[G1]);
  fl_tensor_release(h);
  if (s)
    return s;
  bool grad = fl_grad_mode(rt, false);
  fl_operand in[7] = {{.dtype = FL_F64, .f = 0.125}};
  for (int i = 0; i < 6; i++)
    in[1 + i].tensor = kept[W1 + i];
  s = run("sgd_step", 7, in, NULL);
  fl_grad_mode(rt, grad);
  fl_tensor_release(kept[G1]);
  fl_tensor_release(kept[G2]);
  kept[G1] = kept[G2] = NULL;
  return s;
}

typedef struct counts {
  uint64_t tensors;
  size_t blocks, live;
} counts;

static counts count(void) {
  fl_memory_stats s;
  fl_memory_get(rt, device, &s);
  return (counts){fl_tensor_count(rt), s.blocks, s.live};
}

static void sweep(const char *name, int64_t in_a_row) {
  CHECK(fl_device_find(rt, name, &device) == FL_OK);
  kept[X] = filled(4, 5, -1);
  kept[W1] = filled(5, 6, -0.5f);
  kept[W2] = filled(6, 3, 0.25f);
  kept[M1] = filled(5, 6, 0);
  kept[M2] = filled(6, 3, 0);
  fl_tensor_require_grad(kept[W1], true);
  fl_tensor_require_grad(kept[W2], true);
  CHECK(step() == FL_OK, "%s", fl_error());
  CHECK(fl_device_sync(rt, device) == FL_OK);
  counts before = count();
  fl_memory_fail(rt, 0, 0);
  CHECK(step() == FL_OK);
  int64_t n = fl_memory_fail(rt, 0, 0);
  CHECK(n > 10, "%lld allocations", (long long)n);
  for (int64_t k = 0; k < n; k++) {
    fl_memory_fail(rt, k, in_a_row);
    fl_status s = step();
    fl_memory_fail(rt, 0, 0);
    CHECK(s == FL_ENOMEM, "allocation %lld: status %d, %s", (long long)k, s,
          fl_error());
    CHECK(strstr(fl_error(), "out of memory"), "%s", fl_error());
    CHECK(fl_device_sync(rt, device) == FL_OK);
    counts after = count();
    CHECK(memcmp(&before, &after, sizeof after) == 0,
          "allocation %lld: %llu tensors, %zu blocks; there were %llu, %zu",
          (long long)k, (unsigned long long)after.tensors, after.blocks,
          (unsigned long long)before.tensors, before.blocks);
    CHECK(fl_grad_enabled(rt));
  }
  CHECK(step() == FL_OK);
  for (int i = 0; i < KEPT; i++) {
    fl_tensor_release(kept[i]);
    kept[i] = NULL;
  }
}

int main(void) {
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK, "%s", fl_error());
  static const char *const names[] = {"cpu", "sim:1"};
  for (int i = 0; i < 2; i++) {
    sweep(names[i], 1);
    sweep(names[i], 2);
    sweep(names[i], -1);
  }
  CHECK(fl_tensor_count(rt) == 0);
  fl_runtime_close(rt);
  return check_done("alloc_sweep");
}
