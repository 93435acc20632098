/* What flare.h says about the runtime itself: threads and runtimes that must
 * not be mixed, the names of outcomes, wrong calls from C, the ring of launches
 * and the event that a gradient is complete. */
#include "check.h"

#include <flare/flare.h>

#include <pthread.h>
#include <string.h>

static fl_runtime *rt;

static fl_tensor *ones(fl_runtime *of, int64_t n) {
  fl_tensor *t = NULL;
  float values[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  CHECK(fl_tensor_new(of, FL_F32, 1, &n, 0, &t) == FL_OK, "%s", fl_error());
  CHECK(fl_tensor_write(t, values, (size_t)n * 4) == FL_OK);
  return t;
}

static fl_status run(const char *op, int n, const fl_operand *in,
                     fl_tensor **out) {
  fl_call c = {.op = fl_op_find(rt, op), .n_in = n, .in = in, .out = out};
  return fl_call_run(rt, &c);
}

static bool says(fl_status got, fl_status want, const char *part) {
  bool right = got == want && strstr(fl_error(), part);
  if (!right)
    fprintf(stderr, "%s: %s\n", fl_status_name(got), fl_error());
  return right;
}

static void test_names(void) {
  CHECK(strcmp(fl_status_name(FL_ESHAPE), "ESHAPE") == 0);
  CHECK(strcmp(fl_status_text(FL_ESHAPE), "shapes do not match") == 0);
  CHECK(strcmp(fl_status_name((fl_status)999), "?") == 0);
  CHECK(strcmp(fl_status_text((fl_status)999), "unknown status") == 0);
  CHECK(fl_api_version() == FL_API_VERSION);
  CHECK(fl_runtime_threads(rt) >= 1);
}

static void *elsewhere(void *x) {
  fl_tensor *t = x, *out = NULL;
  fl_operand in = {.tensor = t};
  float value;
  CHECK(says(run("neg", 1, &in, &out), FL_EOWNER, "another thread"));
  CHECK(says(fl_backward(rt, 1, &t, NULL, 0), FL_EOWNER, "another thread"));
  CHECK(says(fl_tensor_read(t, &value, 4), FL_EOWNER, "another thread"));
  CHECK(says(fl_backend_load(rt, "none"), FL_EOWNER, "another thread"));
  return NULL;
}

/* Errors are each thread's own. */
static void test_owner(void) {
  pthread_t thread;
  fl_tensor *t = ones(rt, 1), *out = NULL;
  CHECK(says(run("neg", 0, NULL, &out), FL_EARG, "neg takes 1 input, not"));
  CHECK(pthread_create(&thread, NULL, elsewhere, t) == 0);
  int joined = pthread_join(thread, NULL); /* before CHECK counts again */
  CHECK(joined == 0);
  CHECK(strstr(fl_error(), "neg takes 1 input, not"));
  fl_tensor_release(t);
}

static void test_two(void) {
  fl_runtime *other;
  CHECK(fl_runtime_open(NULL, &other) == FL_OK);
  fl_tensor *a = ones(rt, 2), *b = ones(other, 2), *out = NULL;
  fl_operand in[2] = {{.tensor = a}, {.tensor = b}};
  CHECK(says(run("add", 2, in, &out), FL_EOWNER,
             "add: input 2 belongs to another runtime"));
  fl_runtime_close(other);
  CHECK(fl_tensor_closed(b));
  CHECK(says(run("add", 2, in, &out), FL_ECLOSED,
             "add: tensor is closed (input 2)"));
  CHECK(says(fl_tensor_write(b, &out, 8), FL_ECLOSED, "closed"));
  fl_tensor_release(a);
  fl_tensor_release(b);
}

static void test_wrong_calls(void) {
  fl_tensor *t = ones(rt, 2), *out = NULL;
  fl_operand in[2] = {{.tensor = t}, {.dtype = FL_NODTYPE}};
  int64_t negative = -1, many[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  CHECK(says(run("add", 2, in, &out), FL_EARG, "misses input 2"));
  CHECK(fl_op_find(rt, "no_such") == NULL);
  CHECK(strstr(fl_error(), "there is no operator \"no_such\""));
  CHECK(says(fl_tensor_new(rt, (fl_dtype)99, 0, NULL, 0, &out), FL_EARG,
             "no dtype number 99"));
  CHECK(says(fl_tensor_wrap(rt, many, (fl_dtype)99, 0, NULL, NULL, NULL, &out),
             FL_EARG, "no dtype number 99"));
  CHECK(says(fl_tensor_wrap(rt, NULL, FL_F32, 1, many, NULL, NULL, &out),
             FL_EARG, "no memory"));
  CHECK(says(
      fl_tensor_wrap(rt, (char *)many + 2, FL_F32, 1, many, NULL, NULL, &out),
      FL_EARG, "not aligned to elements of 4 bytes"));
  CHECK(says(fl_tensor_new(rt, FL_F32, 1, &negative, 0, &out), FL_ESHAPE,
             "negative"));
  for (fl_device wrong = -1; wrong < 1 << 20; wrong += 77777) {
    CHECK(says(fl_tensor_new(rt, FL_F32, 1, many, wrong, &out), FL_EARG,
               "no device number"));
    CHECK(says(fl_tensor_zeros(rt, FL_F32, 1, many, wrong, &out), FL_EARG,
               "no device number"));
    CHECK(says(fl_tensor_to(t, wrong, FL_NODTYPE, &out), FL_EARG,
               "no device number"));
  }
  CHECK(says(fl_tensor_new(rt, FL_F32, 9, many, 0, &out), FL_ESIZE,
             "at most 8 dims"));
  CHECK(says(fl_tensor_write(t, many, 4), FL_ESIZE, "8"));
  fl_call c = {.op = fl_op_find(rt, "add"),
               .n_in = 2,
               .inplace = true,
               .in = (fl_operand[]){{.dtype = FL_I64, .i = 1}, {.tensor = t}},
               .out = &out};
  CHECK(says(fl_call_run(rt, &c), FL_EARG, "first input must be a tensor"));
  CHECK(says(run("no_such", 2, in, &out), FL_EARG, "has no operator"));
  fl_device d;
  CHECK(says(fl_device_find(rt, "sim:x", &d), FL_EARG, "write name:index"));
  fl_tensor_release(t);
}

static void test_launches(void) {
  fl_tensor *t = ones(rt, 3), *out = NULL;
  fl_operand in = {.tensor = t};
  fl_call c = {.op = fl_op_find(rt, "tanh"),
               .n_in = 1,
               .in = &in,
               .out = &out,
               .site = fl_site_intern(rt, "train.lua", 41)};
  CHECK(fl_call_run(rt, &c) == FL_OK);
  const char *text = fl_launches_text(rt, 1);
  CHECK(strstr(text, "tanh train.lua:41 (3)"), "%s", text);
  CHECK(fl_launches_text(rt, 0)[0] == 0);
  CHECK(fl_launches_text(rt, -7)[0] == 0);
  fl_tensor_release(out);
  fl_tensor_release(t);
}

/* Numbers that are inputs of structured rows keep their dtypes. */
static void test_numbers(void) {
  fl_operand in = {.dtype = FL_BOOL, .i = 1};
  fl_tensor *out = NULL;
  fl_attrs a = *fl_op_defaults(fl_op_find(rt, "repeat"));
  CHECK(fl_attrs_list(&a, 0, 1, (int64_t[]){3}) == FL_OK);
  fl_call c = {.op = fl_op_find(rt, "repeat"),
               .n_in = 1,
               .in = &in,
               .attrs = &a,
               .out = &out};
  CHECK(fl_call_run(rt, &c) == FL_OK, "%s", fl_error());
  unsigned char got[3];
  CHECK(fl_tensor_meta(out)->dtype == FL_BOOL);
  CHECK(fl_tensor_read(out, got, 3) == FL_OK);
  CHECK(got[0] == 1 && got[1] == 1 && got[2] == 1);
  fl_tensor_release(out);
}

static fl_status ready(void *context, fl_tensor *leaf) {
  float got;
  uint64_t *ids = context;
  if (!leaf) {
    ids[3] = ids[0]; /* the end, after both */
    return FL_OK;
  }
  CHECK(fl_tensor_grad(leaf) != NULL);
  CHECK(fl_tensor_read(fl_tensor_grad(leaf), &got, 4) == FL_OK);
  CHECK(got == 2);
  ids[++ids[0]] = fl_tensor_id(leaf);
  return FL_OK;
}

/* Each leaf is reported once, with its whole gradient, in order of the pass. */
static void test_ready(void) {
  uint64_t ids[4] = {0};
  fl_tensor *a = ones(rt, 1), *b = ones(rt, 1), *two, *y;
  CHECK(fl_tensor_require_grad(a, true) == FL_OK);
  CHECK(fl_tensor_require_grad(b, true) == FL_OK);
  fl_operand in[2] = {{.tensor = a}, {.tensor = a}};
  CHECK(run("add", 2, in, &two) == FL_OK); /* a + a */
  in[0].tensor = two, in[1].tensor = b;
  CHECK(run("mul", 2, in, &y) == FL_OK); /* (a + a) b */
  fl_tape_on_ready(rt, ready, ids);
  CHECK(fl_backward(rt, 1, &y, NULL, 0) == FL_OK, "%s", fl_error());
  fl_tape_on_ready(rt, NULL, NULL);
  CHECK(ids[0] == 2 && ids[3] == 2);
  CHECK(ids[1] == fl_tensor_id(b) && ids[2] == fl_tensor_id(a));
  fl_tensor_release(a);
  fl_tensor_release(b);
  fl_tensor_release(two);
  fl_tensor_release(y);
}

int main(void) {
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK);
  test_names();
  test_owner();
  test_two();
  test_wrong_calls();
  test_launches();
  test_numbers();
  CHECK(FL_NODTYPE == 255 && fl_dtype_count() < FL_MAX_DTYPES);
  CHECK(fl_dtype_find("bf16") == FL_BF16);
  CHECK(fl_dtype_find("float") == FL_NODTYPE);
  CHECK(fl_dtype_find(NULL) == FL_NODTYPE);
  test_ready();
  CHECK(fl_tensor_count(rt) == 0);
  fl_runtime_close(rt);
  return check_done("runtime");
}
