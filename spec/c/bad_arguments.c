/* Every function of the public headers with NULL for each of its pointers, and
 * with numbers out of range: a status that names function and argument, or
 * nothing at all. spec/bad_arguments_spec.lua compares this list with the
 * headers. */
#include "bad_arguments.h"

#include <flare/dlpack.h>
#include <flare/program.h>

static fl_runtime *rt;
static fl_tensor *t, *gone;
static const int64_t shape[FL_MAX_DIMS + 1] = {2, 3};
static fl_tensor *made;

static void test_runtime(void) {
  fl_runtime *other = NULL;
  TAKES(fl_runtime_open(NULL, &other));
  fl_runtime_close(other);
  NEEDS(fl_runtime_open(NULL, NULL), "rt");
  IGNORES(fl_runtime_close(NULL));
  GIVES(fl_runtime_interrupted(NULL), false);
  GIVES(fl_runtime_threads(NULL), 0);
  NEEDS(fl_runtime_set_threads(NULL, 1), "rt");
  REFUSES(fl_runtime_set_threads(rt, 0), FL_EARG);
  REFUSES(fl_runtime_set_threads(rt, -3), FL_EARG);
  GIVES(fl_runtime_generator(NULL), NULL);
  GIVES(fl_runtime_budget(NULL), NULL);
  GIVES(fl_budget_retain(NULL), NULL);
  IGNORES(fl_budget_release(NULL));
  GIVES(fl_budget_take(NULL, 1), false);
  IGNORES(fl_budget_give(NULL, 1));
  GIVES(fl_site_intern(NULL, "a.lua", 1), 0);
  GIVES(fl_site_intern(rt, NULL, 1), 0);
  GIVES(*fl_site_text(NULL, 1), '?');
  GIVES(*fl_site_text(rt, 1u << 30), '?');
  GIVES(fl_dtype_find(NULL), FL_NODTYPE);
  GIVES(*fl_status_name((fl_status)-1), '?');
  GIVES(*fl_status_text((fl_status)1000), 'u');
}

static void test_devices(void) {
  fl_device d, list[4];
  char *text;
  NEEDS(fl_backend_register(NULL, fl_device_backend(rt, 0)), "rt");
  NEEDS(fl_backend_register(rt, NULL), "b");
  NEEDS(fl_backend_load(NULL, "x.so"), "rt");
  NEEDS(fl_backend_load(rt, NULL), "path");
  NEEDS(fl_backend_query(NULL, "cpu", "doctor", NULL, &text), "rt");
  NEEDS(fl_backend_query(rt, NULL, "doctor", NULL, &text), "backend");
  NEEDS(fl_backend_query(rt, "cpu", NULL, NULL, &text), "what");
  NEEDS(fl_backend_query(rt, "cpu", "doctor", NULL, NULL), "text");
  NEEDS(fl_backend_control(NULL, "cpu", "threads", 1), "rt");
  NEEDS(fl_backend_control(rt, NULL, "threads", 1), "backend");
  NEEDS(fl_backend_control(rt, "cpu", NULL, 1), "what");
  NEEDS(fl_device_find(NULL, "cpu", &d), "rt");
  NEEDS(fl_device_find(rt, NULL, &d), "name");
  NEEDS(fl_device_find(rt, "cpu", NULL), "d");
  GIVES(*fl_device_name(NULL, 0), '?');
  GIVES(*fl_device_name(rt, -1), '?');
  GIVES(*fl_device_name(rt, 255 << 8), '?');
  GIVES(fl_device_list(NULL, list, 4), 0);
  IGNORES(fl_device_list(rt, NULL, 4));
  GIVES(fl_device_backend(NULL, 0), NULL);
  GIVES(fl_device_backend(rt, -1), NULL);
  GIVES(fl_device_backend(rt, 255 << 8), NULL);
  NEEDS(fl_device_sync(NULL, 0), "rt");
  REFUSES(fl_device_sync(rt, 7), FL_EARG);
}

static void test_memory(void) {
  static const fl_device bad[] = {-1, 7, 99 << 8};
  fl_memory_stats s;
  const char *held;
  IGNORES(fl_memory_get(NULL, 0, &s));
  IGNORES(fl_memory_get(rt, 0, NULL));
  IGNORES(fl_memory_reset_peak(NULL, 0));
  IGNORES(fl_memory_limit(NULL, 0, 0));
  IGNORES(fl_memory_flush(NULL, 0));
  GIVES(fl_memory_fail(NULL, 0, 0), 0);
  GIVES(*fl_memory_holders(NULL, 0, 3), 0);
  size_t room, all;
  NEEDS(fl_memory_driver(NULL, 0, &room, &all), "rt");
  NEEDS(fl_memory_driver(rt, 0, NULL, &all), "free");
  NEEDS(fl_memory_driver(rt, 0, &room, NULL), "total");
  REFUSES(fl_memory_driver(rt, 7, &room, &all), FL_EARG);
  NEEDS(fl_tensor_memory(NULL, &made), "t");
  NEEDS(fl_tensor_memory(t, NULL), "bytes");
  REFUSES(fl_tensor_memory(gone, &made), FL_ECLOSED);
  NEEDS(fl_tensor_store(NULL, t), "bytes");
  REFUSES(fl_tensor_store(t, NULL), FL_EARG);
  NEEDS(fl_tensor_fetch(NULL, t), "bytes");
  REFUSES(fl_tensor_fetch(t, NULL), FL_EARG);
  NEEDS(fl_tensor_passed(NULL), "bytes");
  NEEDS(fl_tensor_evict(NULL), "bytes");
  REFUSES(fl_tensor_evict(gone), FL_ECLOSED);
  NEEDS(fl_tensor_refill(NULL, 0), "bytes");
  REFUSES(fl_tensor_refill(t, 0), FL_EARG);
  fl_kept *kept = NULL;
  NEEDS(fl_keep(NULL, &kept), "t");
  NEEDS(fl_keep(t, NULL), "k");
  REFUSES(fl_keep(gone, &kept), FL_ECLOSED);
  TAKES(fl_keep(t, &kept));
  NEEDS(fl_kept_restore(NULL, t), "k");
  NEEDS(fl_kept_restore(kept, NULL), "t");
  NEEDS(fl_kept_value(NULL, t, &made), "k");
  NEEDS(fl_kept_value(kept, NULL, &made), "t");
  NEEDS(fl_kept_value(kept, t, NULL), "out");
  GIVES(fl_kept_bytes(NULL), 0);
  IGNORES(fl_kept_release(NULL));
  fl_kept_release(kept);
  IGNORES(fl_memory_trace(NULL, NULL, NULL));
  GIVES(fl_handles_bytes(NULL, NULL), 0);
  IGNORES(fl_handles_bytes(rt, NULL));
  for (volatile int k = 0; k < 3; k++) {
    IGNORES(fl_memory_get(rt, bad[k], &s));
    CHECK(s.live == 0 && s.reserved == 0);
    IGNORES(fl_memory_reset_peak(rt, bad[k]));
    IGNORES(fl_memory_limit(rt, bad[k], 1));
    IGNORES(fl_memory_flush(rt, bad[k]));
    GIVES(*fl_memory_holders(rt, bad[k], 3), 0);
    GIVES(fl_profile_peak(rt, bad[k], &held), 0);
    GIVES(fl_stream_current(rt, bad[k]), 0);
    IGNORES(fl_stream_retain(rt, bad[k], 1));
    IGNORES(fl_stream_release(rt, bad[k], 1));
  }
  GIVES(*fl_memory_holders(rt, 0, -1), 0);
}

static void test_streams(void) {
  int stream;
  intptr_t handle;
  fl_tensor *none[1] = {NULL};
  NEEDS(fl_stream_new(NULL, 0, &stream), "rt");
  NEEDS(fl_stream_new(rt, 0, NULL), "stream");
  REFUSES(fl_stream_new(rt, -1, &stream), FL_EARG);
  REFUSES(fl_stream_new(rt, 99 << 8, &stream), FL_EARG);
  IGNORES(fl_stream_retain(NULL, 0, 0));
  IGNORES(fl_stream_retain(rt, 0, -1));
  IGNORES(fl_stream_release(NULL, 0, 0));
  IGNORES(fl_stream_release(rt, 0, 1000));
  NEEDS(fl_stream_use(NULL, 0, 0), "rt");
  REFUSES(fl_stream_use(rt, 0, -1), FL_EARG);
  REFUSES(fl_stream_use(rt, 0, 1000), FL_EARG);
  REFUSES(fl_stream_use(rt, 99 << 8, 0), FL_EARG);
  GIVES(fl_stream_current(NULL, 0), 0);
  NEEDS(fl_stream_handle(NULL, 0, 0, &handle), "rt");
  NEEDS(fl_stream_handle(rt, 0, 0, NULL), "handle");
  REFUSES(fl_stream_handle(rt, -1, 0, &handle), FL_EARG);
  NEEDS(fl_stream_adopt(NULL, 0, 1, &stream), "rt");
  NEEDS(fl_stream_adopt(rt, 0, 1, NULL), "stream");
  REFUSES(fl_stream_adopt(rt, 99 << 8, 1, &stream), FL_EARG);
  NEEDS(fl_stream_promise(NULL, 0, 0, 1, &t), "rt");
  NEEDS(fl_stream_promise(rt, 0, 0, 1, NULL), "of");
  REFUSES(fl_stream_promise(rt, 0, 0, 1, none), FL_EARG);
  REFUSES(fl_stream_promise(rt, 0, 0, -1, &t), FL_EARG);
  REFUSES(fl_stream_promise(rt, 0, 5, 1, &t), FL_EARG);
  NEEDS(fl_stream_sync(NULL, 0, 0), "rt");
  REFUSES(fl_stream_sync(rt, 0, 1000), FL_EARG);
  REFUSES(fl_stream_sync(rt, -1, 0), FL_EARG);
  GIVES(fl_stream_races(NULL, true), false);
}

static void test_marks(void) {
  fl_mark *m = NULL;
  double us;
  CHECK(fl_mark_new(rt, 0, &m) == FL_OK);
  NEEDS(fl_mark_new(NULL, 0, &m), "rt");
  NEEDS(fl_mark_new(rt, 0, NULL), "m");
  REFUSES(fl_mark_new(rt, 99 << 8, &m), FL_EARG);
  IGNORES(fl_mark_free(NULL));
  GIVES(fl_mark_device(NULL), -1);
  NEEDS(fl_mark_record(NULL, 0), "m");
  REFUSES(fl_mark_record(m, -1), FL_EARG);
  REFUSES(fl_mark_record(m, 1000), FL_EARG);
  NEEDS(fl_mark_wait(NULL, 0, 0), "m");
  REFUSES(fl_mark_wait(m, 99 << 8, 0), FL_EARG);
  REFUSES(fl_mark_wait(m, 0, 1000), FL_EARG);
  NEEDS(fl_mark_sync(NULL), "m");
  GIVES(fl_mark_passed(NULL), true);
  NEEDS(fl_mark_elapsed(NULL, m, &us), "from");
  NEEDS(fl_mark_elapsed(m, NULL, &us), "to");
  NEEDS(fl_mark_elapsed(m, m, NULL), "us");
  fl_mark_free(m);
}

static void test_making(void) {
  static float values[6];
  int64_t below[2] = {2, -1};
  NEEDS(fl_tensor_new(NULL, FL_F32, 2, shape, 0, &made), "rt");
  NEEDS(fl_tensor_new(rt, FL_F32, 2, shape, 0, NULL), "t");
  REFUSES(fl_tensor_new(rt, FL_F32, 2, NULL, 0, &made), FL_EARG);
  REFUSES(fl_tensor_new(rt, FL_F32, -1, shape, 0, &made), FL_ESIZE);
  REFUSES(fl_tensor_new(rt, FL_F32, FL_MAX_DIMS + 1, shape, 0, &made),
          FL_ESIZE);
  REFUSES(fl_tensor_new(rt, FL_F32, 2, below, 0, &made), FL_ESHAPE);
  REFUSES(fl_tensor_new(rt, FL_NODTYPE, 2, shape, 0, &made), FL_EARG);
  REFUSES(fl_tensor_new(rt, (fl_dtype)-1, 2, shape, 0, &made), FL_EARG);
  REFUSES(fl_tensor_new(rt, FL_F32, 2, shape, -1, &made), FL_EARG);
  REFUSES(fl_tensor_new(rt, FL_F32, 2, shape, 99 << 8, &made), FL_EARG);
  NEEDS(fl_tensor_zeros(NULL, FL_F32, 2, shape, 0, &made), "rt");
  NEEDS(fl_tensor_zeros(rt, FL_F32, 2, shape, 0, NULL), "t");
  REFUSES(fl_tensor_zeros(rt, FL_F32, 2, NULL, 0, &made), FL_EARG);
  REFUSES(fl_tensor_zeros(rt, FL_NODTYPE, 2, shape, 0, &made), FL_EARG);
  REFUSES(fl_tensor_zeros(rt, FL_F32, -1, shape, 0, &made), FL_ESIZE);
  REFUSES(fl_tensor_zeros(rt, FL_F32, 2, shape, 7, &made), FL_EARG);
  NEEDS(fl_tensor_wrap(NULL, values, FL_F32, 2, shape, NULL, NULL, &made),
        "rt");
  NEEDS(fl_tensor_wrap(rt, values, FL_F32, 2, shape, NULL, NULL, NULL), "t");
  REFUSES(fl_tensor_wrap(rt, NULL, FL_F32, 2, shape, NULL, NULL, &made),
          FL_EARG);
  REFUSES(fl_tensor_wrap(rt, values, FL_F32, 2, NULL, NULL, NULL, &made),
          FL_EARG);
  REFUSES(fl_tensor_wrap(rt, values, FL_F32, 99, shape, NULL, NULL, &made),
          FL_ESIZE);
  NEEDS(fl_tensor_new_pinned(NULL, FL_F32, 2, shape, &made), "rt");
  NEEDS(fl_tensor_new_pinned(rt, FL_F32, 2, shape, NULL), "t");
  REFUSES(fl_tensor_new_pinned(rt, FL_F32, 2, NULL, &made), FL_EARG);
  REFUSES(fl_tensor_new_pinned(rt, FL_F32, 99, shape, &made), FL_ESIZE);
}

static void test_questions(void) {
  GIVES(fl_tensor_retain(NULL), NULL);
  IGNORES(fl_tensor_release(NULL));
  GIVES(fl_tensor_meta(NULL), NULL);
  GIVES(fl_tensor_strides(NULL), NULL);
  GIVES(fl_tensor_offset(NULL), 0);
  GIVES(fl_tensor_numel(NULL), 0);
  GIVES(fl_tensor_device(NULL), -1);
  GIVES(fl_tensor_id(NULL), 0);
  GIVES(fl_tensor_runtime(NULL), NULL);
  GIVES(fl_tensor_contiguous(NULL), false);
  GIVES(fl_tensor_version(NULL), 0);
  GIVES(fl_tensor_made(NULL), 0);
  GIVES(fl_tensor_closed(NULL), true);
  GIVES(fl_tensor_shares(NULL, t), false);
  GIVES(fl_tensor_shares(t, NULL), false);
  IGNORES(fl_tensor_protect(NULL));
  IGNORES(fl_tensor_handle(NULL, 1));
  GIVES(fl_tensor_data(NULL), NULL);
  GIVES(fl_tensor_pinned(NULL), false);
  GIVES(fl_tensor_count(NULL), 0);
  GIVES(fl_tensor_newest(NULL), NULL);
  GIVES(fl_tensor_held(NULL), false);
  GIVES(fl_meta_mode(NULL, true), false);
  GIVES(fl_anomaly_mode(NULL, true), false);
  GIVES(fl_autocast(NULL, FL_F16), FL_NODTYPE);
  GIVES(fl_autocast_now(NULL), FL_NODTYPE);
  GIVES(fl_grad_mode(NULL, false), false);
  GIVES(fl_grad_site(NULL, 0), 0);
  GIVES(fl_grad_enabled(NULL), false);
}

static void test_values(void) {
  float values[6] = {0};
  double f;
  int64_t i;
  NEEDS(fl_tensor_read(NULL, values, sizeof values), "t");
  NEEDS(fl_tensor_read(t, NULL, sizeof values), "to");
  REFUSES(fl_tensor_read(t, values, 3), FL_ESIZE);
  NEEDS(fl_tensor_write(NULL, values, sizeof values), "t");
  NEEDS(fl_tensor_write(t, NULL, sizeof values), "from");
  NEEDS(fl_tensor_item(NULL, &f, &i), "t");
  REFUSES(fl_tensor_item(t, NULL, NULL), FL_ESHAPE);
  REFUSES(fl_tensor_item(t, &f, NULL), FL_ESHAPE);
  REFUSES(fl_tensor_item(t, NULL, &i), FL_ESHAPE);
  NEEDS(fl_tensor_lay_like(NULL, t), "t");
  NEEDS(fl_tensor_lay_like(t, NULL), "like");
  NEEDS(fl_tensor_detach(NULL, &made), "t");
  NEEDS(fl_tensor_detach(t, NULL), "out");
  NEEDS(fl_tensor_to(NULL, 0, FL_NODTYPE, &made), "t");
  NEEDS(fl_tensor_to(t, 0, FL_NODTYPE, NULL), "out");
  REFUSES(fl_tensor_to(t, 99 << 8, FL_NODTYPE, &made), FL_EARG);
  REFUSES(fl_tensor_to(t, 0, (fl_dtype)100, &made), FL_EARG);
  REFUSES(fl_tensor_to(t, 0, (fl_dtype)-1, &made), FL_EARG);
  NEEDS(fl_tensor_to_async(NULL, 0, FL_NODTYPE, 0, &made), "t");
  NEEDS(fl_tensor_to_async(t, 0, FL_NODTYPE, 0, NULL), "out");
  REFUSES(fl_tensor_to_async(t, -1, FL_NODTYPE, 0, &made), FL_EARG);
}

static void test_operators(void) {
  const fl_op *op = fl_op_find(rt, "add"), *found;
  fl_op_spec spec = {.struct_size = sizeof spec};
  fl_attrs a = *fl_op_defaults(op);
  int64_t list[FL_MAX_LIST + 1] = {0};
  fl_program empty = {0};
  char text[8];
  GIVES(fl_op_find(NULL, "add"), NULL);
  GIVES(fl_op_find(rt, NULL), NULL);
  GIVES(fl_op_count(NULL), 0);
  GIVES(fl_op_at(NULL, 0), NULL);
  GIVES(fl_op_row(NULL, "add"), -1);
  GIVES(fl_op_row(rt, NULL), -1);
  GIVES(fl_op_at(rt, -1), NULL);
  GIVES(fl_op_at(rt, 1 << 30), NULL);
  GIVES(fl_op_get(NULL), NULL);
  GIVES(fl_op_has_kernel(NULL, 0), false);
  GIVES(fl_op_has_kernel(op, -1), false);
  GIVES(fl_op_has_kernel(op, 255 << 8), false);
  GIVES(fl_op_defaults(NULL), NULL);
  GIVES(fl_op_fingerprint(NULL), 0);
  GIVES(fl_op_source(NULL, text, sizeof text), 0);
  GIVES(fl_op_source(op, NULL, 100), 0);
  GIVES(fl_program_source(NULL, text, sizeof text), 0);
  GIVES(fl_program_source(&empty, NULL, 100), 0);
  NEEDS(fl_op_register(NULL, &spec, &found), "rt");
  NEEDS(fl_op_register(rt, NULL, &found), "spec");
  NEEDS(fl_op_register(rt, &spec, NULL), "op");
  REFUSES(fl_op_register(rt, &spec, &found), FL_EARG);
  NEEDS(fl_attrs_list(NULL, 0, 1, list), "a");
  NEEDS(fl_attrs_list(&a, 0, 1, NULL), "v");
  TAKES(fl_attrs_list(&a, 0, 0, NULL));
  REFUSES(fl_attrs_list(&a, -1, 1, list), FL_ESIZE);
  REFUSES(fl_attrs_list(&a, FL_MAX_ATTRS, 1, list), FL_ESIZE);
  REFUSES(fl_attrs_list(&a, 0, FL_MAX_LIST + 1, list), FL_ESIZE);
  REFUSES(fl_attrs_list(&a, 0, -1, list), FL_ESIZE);
}

static void test_calls(void) {
  fl_operand in[4] = {{.tensor = t}, {.tensor = t}};
  fl_operand none[2] = {{.tensor = t}, {.dtype = FL_NODTYPE}};
  fl_operand strange[2] = {{.tensor = t}, {.dtype = (fl_dtype)100}};
  fl_operand closed[2] = {{.tensor = t}, {.tensor = gone}};
  const fl_call good = {
      .op = fl_op_find(rt, "add"), .n_in = 2, .in = in, .out = &made};
  fl_call c = good;
  NEEDS(fl_call_run(NULL, &c), "rt");
  NEEDS(fl_call_run(rt, NULL), "c");
  c.op = NULL;
  REFUSES(fl_call_run(rt, &c), FL_EARG);
  c = good, c.in = NULL;
  REFUSES(fl_call_run(rt, &c), FL_EARG);
  c = good, c.out = NULL;
  REFUSES(fl_call_run(rt, &c), FL_EARG);
  for (volatile int n = -1; n < 5; n++) {
    c = good, c.n_in = n;
    if (n != 2)
      REFUSES(fl_call_run(rt, &c), FL_EARG);
  }
  c = good, c.in = none;
  REFUSES(fl_call_run(rt, &c), FL_EARG);
  c = good, c.in = strange;
  REFUSES(fl_call_run(rt, &c), FL_EARG);
  c = good, c.in = closed;
  REFUSES(fl_call_run(rt, &c), FL_ECLOSED);
  c = good, c.op = fl_op_find(rt, "assign"), c.n_in = 0;
  REFUSES(fl_call_run(rt, &c), FL_EARG);
  c = good, c.op = fl_op_find(rt, "rand"), c.n_in = 0, c.device = 99 << 8;
  CHECK(fl_call_run(rt, &c) != FL_OK);
}

static void test_expressions(void) {
  fl_expr *e = NULL, *kernel = NULL;
  fl_operand in[20] = {{.tensor = t}};
  fl_tensor *args[20], *none[1] = {NULL};
  const fl_op *op;
  CHECK(fl_expr_new(rt, "T x", "T z", "z = x", NULL, &e) == FL_OK);
  CHECK(fl_expr_new(rt, NULL, NULL, NULL, NULL, &kernel) == FL_OK);
  NEEDS(fl_expr_new(NULL, "T x", "T z", "z = x", NULL, &e), "rt");
  NEEDS(fl_expr_new(rt, NULL, "T z", "z = x", NULL, &e), "inputs");
  NEEDS(fl_expr_new(rt, "T x", NULL, "z = x", NULL, &e), "outputs");
  NEEDS(fl_expr_new(rt, "T x", "T z", "z = x", NULL, NULL), "e");
  IGNORES(fl_expr_free(NULL));
  GIVES(*fl_expr_name(NULL), 0);
  GIVES(*fl_expr_signature(NULL), 0);
  GIVES(fl_expr_inputs(NULL), 0);
  NEEDS(fl_expr_op(NULL, 1, in, &op), "e");
  NEEDS(fl_expr_op(e, 1, NULL, &op), "in");
  NEEDS(fl_expr_op(e, 1, in, NULL), "op");
  REFUSES(fl_expr_op(e, 2, in, &op), FL_EARG);
  REFUSES(fl_expr_op(e, -1, in, &op), FL_EARG);
  REFUSES(fl_expr_op(kernel, 20, in, &op), FL_EARG);
  NEEDS(fl_trace_begin(NULL, 1, in, args), "e");
  NEEDS(fl_trace_begin(kernel, 1, NULL, args), "in");
  NEEDS(fl_trace_begin(kernel, 1, in, NULL), "args");
  REFUSES(fl_trace_begin(kernel, -1, in, args), FL_EARG);
  REFUSES(fl_trace_begin(kernel, 20, in, args), FL_ESIZE);
  CHECK(fl_trace_begin(kernel, 1, in, args) == FL_OK);
  NEEDS(fl_trace_end(NULL, 1, args, &op), "e");
  NEEDS(fl_trace_end(kernel, 1, NULL, &op), "results");
  NEEDS(fl_trace_end(kernel, 1, args, NULL), "op");
  REFUSES(fl_trace_end(kernel, 1, none, &op), FL_EARG);
  fl_tensor_release(args[0]);
  REFUSES(fl_trace_end(kernel, 1, args, &op), FL_EARG); /* it is over */
  fl_expr_free(e);
  fl_expr_free(kernel);
}

static void test_sources(void) {
  fl_raw *k = (fl_raw *)&made; /* no backend here reads one */
  fl_raw_source s = {0};
  fl_raw_facts facts;
  fl_raw_call call = {0};
  fl_raw_arg arg = {.tensor = t}, empty = {0}, closed = {.tensor = gone};
  char *log;
  NEEDS(fl_raw_new(NULL, "cpu", &s, &k, &log), "rt");
  NEEDS(fl_raw_new(rt, NULL, &s, &k, &log), "backend");
  NEEDS(fl_raw_new(rt, "cpu", NULL, &k, &log), "s");
  NEEDS(fl_raw_new(rt, "cpu", &s, NULL, &log), "k");
  NEEDS(fl_raw_new(rt, "cpu", &s, &k, NULL), "log");
  NEEDS(fl_raw_about(NULL, "cpu", k, 0, &facts), "rt");
  NEEDS(fl_raw_about(rt, NULL, k, 0, &facts), "backend");
  NEEDS(fl_raw_about(rt, "cpu", NULL, 0, &facts), "k");
  NEEDS(fl_raw_about(rt, "cpu", k, 0, NULL), "facts");
  NEEDS(fl_raw_run(NULL, "k", 0, &call, 1, &arg), "rt");
  NEEDS(fl_raw_run(rt, NULL, 0, &call, 1, &arg), "name");
  NEEDS(fl_raw_run(rt, "k", 0, NULL, 1, &arg), "call");
  NEEDS(fl_raw_run(rt, "k", 0, &call, 1, NULL), "args");
  REFUSES(fl_raw_run(rt, "k", 0, &call, -1, &arg), FL_EARG);
  REFUSES(fl_raw_run(rt, "k", 0, &call, 1000, &arg), FL_ESIZE);
  REFUSES(fl_raw_run(rt, "k", 0, &call, 1, &empty), FL_EARG);
  REFUSES(fl_raw_run(rt, "k", 0, &call, 1, &closed), FL_ECLOSED);
}

static void test_vmap(void) {
  fl_tensor *one;
  NEEDS(fl_vmap_open(NULL, 2), "rt");
  REFUSES(fl_vmap_open(rt, 0), FL_EARG);
  REFUSES(fl_vmap_open(rt, -5), FL_EARG);
  IGNORES(fl_vmap_close(NULL));
  IGNORES(fl_vmap_close(rt)); /* none is open */
  REFUSES(fl_vmap_in(rt, t, &one), FL_EARG);
  CHECK(fl_vmap_open(rt, 2) == FL_OK);
  NEEDS(fl_vmap_in(NULL, t, &one), "rt");
  NEEDS(fl_vmap_in(rt, NULL, &one), "t");
  NEEDS(fl_vmap_in(rt, t, NULL), "one");
  REFUSES(fl_vmap_in(rt, gone, &one), FL_ECLOSED);
  NEEDS(fl_vmap_out(NULL, t, &one), "rt");
  NEEDS(fl_vmap_out(rt, NULL, &one), "t");
  NEEDS(fl_vmap_out(rt, t, NULL), "all");
  REFUSES(fl_vmap_out(rt, gone, &one), FL_ECLOSED);
  fl_vmap_close(rt);
}

static fl_status each_saved(void *context, fl_tensor *bytes) {
  (void)context, (void)bytes;
  return FL_OK;
}

static void test_gradients(void) {
  fl_tensor *none[1] = {NULL}, *grads[1], *leaf = NULL;
  CHECK(fl_tensor_zeros(rt, FL_F32, 2, shape, 0, &leaf) == FL_OK);
  CHECK(fl_tensor_require_grad(leaf, true) == FL_OK);
  NEEDS(fl_tensor_require_grad(NULL, true), "t");
  GIVES(fl_tensor_requires_grad(NULL), false);
  GIVES(fl_tensor_is_leaf(NULL), false);
  GIVES(fl_tensor_node_name(NULL), NULL);
  GIVES(fl_tensor_node_site(NULL), 0);
  GIVES(fl_tensor_grad(NULL), NULL);
  NEEDS(fl_tensor_set_grad(NULL, t), "t");
  TAKES(fl_tensor_set_grad(leaf, NULL));
  REFUSES(fl_tensor_set_grad(gone, NULL), FL_ECLOSED);
  REFUSES(fl_tensor_set_grad(leaf, gone), FL_ECLOSED);
  NEEDS(fl_tensor_place(NULL, t, 0), "t");
  NEEDS(fl_tensor_place(t, NULL, 0), "flat");
  REFUSES(fl_tensor_place(t, leaf, -1), FL_ESHAPE);
  NEEDS(fl_tensor_place_grad(NULL, t, 0), "t");
  TAKES(fl_tensor_place_grad(leaf, NULL, 0));
  NEEDS(fl_tensor_retain_grad(NULL), "t");
  NEEDS(fl_tensor_lend(NULL, 1), "flat");
  REFUSES(fl_tensor_lend(gone, 1), FL_ECLOSED);
  NEEDS(fl_tensor_stand_in(NULL, leaf), "t");
  NEEDS(fl_tensor_stand_in(t, NULL), "leaf");
  NEEDS(fl_tensor_root(NULL, &made), "t");
  NEEDS(fl_tensor_root(t, NULL), "root");
  NEEDS(fl_tensor_add_hook(NULL, 1), "t");
  IGNORES(fl_tensor_drop_hook(NULL, 1));
  NEEDS(fl_backward(NULL, 1, &leaf, NULL, 0), "rt");
  NEEDS(fl_backward(rt, 1, NULL, NULL, 0), "roots");
  REFUSES(fl_backward(rt, 1, none, NULL, 0), FL_EARG);
  REFUSES(fl_backward(rt, -1, &leaf, NULL, 0), FL_EARG);
  REFUSES(fl_backward(rt, 1, &gone, NULL, 0), FL_ECLOSED);
  REFUSES(fl_backward(rt, 1, &leaf, &gone, 0), FL_ECLOSED);
  NEEDS(fl_backward_each(NULL, 1, &leaf, NULL, 0, NULL, NULL), "rt");
  NEEDS(fl_backward_each(rt, 1, NULL, NULL, 0, NULL, NULL), "roots");
  NEEDS(fl_grad(NULL, 1, &leaf, NULL, 1, &leaf, 0, grads), "rt");
  NEEDS(fl_grad(rt, 1, NULL, NULL, 1, &leaf, 0, grads), "roots");
  NEEDS(fl_grad(rt, 1, &leaf, NULL, 1, NULL, 0, grads), "inputs");
  NEEDS(fl_grad(rt, 1, &leaf, NULL, 1, &leaf, 0, NULL), "grads");
  REFUSES(fl_grad(rt, 1, &leaf, NULL, 1, none, 0, grads), FL_EARG);
  REFUSES(fl_grad(rt, 1, &leaf, NULL, -1, &leaf, 0, grads), FL_EARG);
  REFUSES(fl_grad(rt, 1, &leaf, NULL, 1, &gone, 0, grads), FL_ECLOSED);
  fl_tensor_release(leaf);
}

static void test_tape(void) {
  fl_tensor *none[1] = {NULL};
  IGNORES(fl_tape_set_host(NULL, NULL));
  IGNORES(fl_tape_set_host(rt, NULL));
  IGNORES(fl_tape_on_ready(NULL, NULL, NULL));
  IGNORES(fl_tape_on_ready(rt, NULL, NULL));
  NEEDS(fl_tape_custom(NULL, "f", 1, 0, 1, &t, 1, &t), "rt");
  NEEDS(fl_tape_custom(rt, NULL, 1, 0, 1, &t, 1, &t), "name");
  NEEDS(fl_tape_custom(rt, "f", 1, 0, 1, NULL, 1, &t), "ins");
  NEEDS(fl_tape_custom(rt, "f", 1, 0, 1, &t, 1, NULL), "outs");
  REFUSES(fl_tape_custom(rt, "f", 1, 0, 1, &t, 1, none), FL_EARG);
  REFUSES(fl_tape_custom(rt, "f", 1, 0, 1, &gone, 1, &t), FL_ECLOSED);
  REFUSES(fl_tape_custom(rt, "f", 1, 0, -1, &t, 1, &t), FL_EARG);
  REFUSES(fl_tape_custom(rt, "f", 1, 0, 1, &t, -1, &t), FL_EARG);
  GIVES(fl_tape_now(NULL), 0);
  NEEDS(fl_tape_saved(NULL, 0, 0, each_saved, NULL), "t");
  NEEDS(fl_tape_saved(t, 0, 0, NULL, NULL), "each");
  TAKES(fl_tape_saved(t, 0, 0, each_saved, NULL));
  GIVES(*fl_tape_text(NULL, 3), 0);
  IGNORES(fl_tape_text(t, -3));
  GIVES(*fl_launches_text(NULL, 3), 0);
  GIVES(*fl_launches_text(rt, -1), 0);
}

static void test_profile(void) {
  const fl_profile_row *rows;
  fl_profile_part part = {0, 0};
  size_t n;
  uint64_t lost;
  const char *held;
  NEEDS(fl_profile_start(NULL, 0, 0), "rt");
  REFUSES(fl_profile_stop(rt, &rows, &n, &lost), FL_EARG);
  CHECK(fl_profile_start(rt, 0, 0) == FL_OK);
  GIVES(fl_profile_push(NULL, "a", 0).module, 0);
  GIVES(fl_profile_push(rt, NULL, 0).module, 0);
  IGNORES(fl_profile_pop(NULL, part));
  NEEDS(fl_profile_stop(NULL, &rows, &n, &lost), "rt");
  NEEDS(fl_profile_stop(rt, NULL, &n, &lost), "rows");
  NEEDS(fl_profile_stop(rt, &rows, NULL, &lost), "n");
  NEEDS(fl_profile_stop(rt, &rows, &n, NULL), "lost");
  CHECK(fl_profile_stop(rt, &rows, &n, &lost) == FL_OK);
  GIVES(fl_profile_peak(NULL, 0, &held), 0);
  GIVES(fl_profile_peak(rt, 0, NULL), 0);
  IGNORES(fl_copy_site(NULL, 0));
}

static void test_graphs(void) {
  fl_graph *g = NULL;
  fl_graph_stats s = {.runs = 5};
  fl_device sim;
  fl_tensor *none = NULL;
  CHECK(fl_device_find(rt, "sim:0", &sim) == FL_OK);
  NEEDS(fl_graph_begin(NULL, sim, &g), "rt");
  NEEDS(fl_graph_begin(rt, sim, NULL), "out");
  REFUSES(fl_graph_begin(rt, -1, &g), FL_EARG);
  REFUSES(fl_graph_begin(rt, 0, &g), FL_EUNSUPPORTED);
  NEEDS(fl_graph_end(NULL, 0, NULL), "g");
  NEEDS(fl_graph_run(NULL, 0), "g");
  IGNORES(fl_graph_free(NULL));
  IGNORES(fl_graph_get(NULL, NULL));
  IGNORES(fl_graph_get(NULL, &s));
  CHECK(s.runs == 0);
  NEEDS(fl_graph_rehearse(NULL, true), "rt");
  TAKES(fl_graph_rehearse(rt, true));
  TAKES(fl_graph_rehearse(rt, true));
  CHECK(fl_graph_begin(rt, sim, &g) == FL_OK);
  REFUSES(fl_graph_rehearse(rt, false), FL_EUNSUPPORTED);
  REFUSES(fl_graph_begin(rt, sim, &g), FL_EARG);
  REFUSES(fl_graph_run(g, 0), FL_EUNSUPPORTED);
  NEEDS(fl_graph_end(g, 1, NULL), "results");
  REFUSES(fl_graph_end(g, -1, &none), FL_EARG);
  fl_graph_free(g); /* while it is captured */
  CHECK(fl_graph_begin(rt, sim, &g) == FL_OK);
  TAKES(fl_graph_end(g, 1, &none));
  REFUSES(fl_graph_end(g, 0, NULL), FL_EARG);
  TAKES(fl_graph_run(g, 0));
  IGNORES(fl_graph_get(g, NULL));
  fl_graph_get(g, &s);
  CHECK(s.runs == 1 && s.launches == 0);
  fl_graph_free(g);
}

static void test_pure(fl_compiled *c) {
  fl_compiled_call call = {.n_in = 1};
  fl_tensor *const *results;
  const char *why = "";
  bool fits = true;
  int n = 3;
  NEEDS(fl_compiled_note(NULL, &call), "c");
  NEEDS(fl_compiled_note(c, NULL), "call");
  NEEDS(fl_compiled_note(c, &call), "call->in");
  NEEDS(fl_compiled_enter(NULL, 0, 0, NULL, &fits), "c");
  NEEDS(fl_compiled_enter(c, 0, 0, NULL, NULL), "fits");
  NEEDS(fl_compiled_enter(c, 0, 1, NULL, &fits), "in");
  CHECK(fl_compiled_enter(c, 7, 0, NULL, &fits) == FL_OK && !fits);
  NEEDS(fl_compiled_feed(NULL, 0, 0), "c");
  CHECK(fl_compiled_feed(c, 0, 0) == FL_EUNSUPPORTED);
  NEEDS(fl_compiled_results(NULL, &n, &results), "c");
  NEEDS(fl_compiled_results(c, NULL, &results), "n");
  NEEDS(fl_compiled_results(c, &n, NULL), "list");
  CHECK(fl_compiled_results(c, &n, &results) == FL_OK && n == 0);
  CHECK(fl_compiled_traced(NULL, &why) == -1 && !why);
  CHECK(fl_compiled_traced(c, NULL) == -1);
  CHECK(fl_compiled_position(NULL) == -1);
}

static void test_deferred(void) {
  NEEDS(fl_defer_begin(NULL), "rt");
  NEEDS(fl_defer_end(NULL), "rt");
  GIVES(fl_deferred_bytes(NULL), 0);
  TAKES(fl_defer_begin(rt));
  GIVES(fl_deferred_bytes(rt), 0);
  TAKES(fl_defer_end(rt));
  TAKES(fl_defer_end(rt)); /* there is none */
}

static void test_compiled(void) {
  fl_compiled *c = NULL;
  fl_compiled_stats s = {.windows = 5};
  CHECK(fl_compiled_new(rt, 0, &c) == FL_OK);
  NEEDS(fl_compiled_new(NULL, 0, &c), "rt");
  NEEDS(fl_compiled_new(rt, 0, NULL), "out");
  NEEDS(fl_compiled_chunk(NULL, 0), "c");
  NEEDS(fl_compiled_memory(NULL, 0), "c");
  NEEDS(fl_compiled_begin(NULL), "c");
  test_pure(c);
  CHECK(!fl_compiled_waits(NULL));
  NEEDS(fl_compiled_end(NULL), "c");
  IGNORES(fl_compiled_get(c, NULL));
  IGNORES(fl_compiled_get(NULL, &s));
  CHECK(s.windows == 0);
  CHECK(fl_compiled_begin(c) == FL_OK && fl_compiled_end(c) == FL_OK);
  CHECK(fl_compiled_end(c) == FL_OK); /* none is open */
  IGNORES(fl_compiled_free(NULL));
  GIVES(fl_tensor_borrow(NULL), 0);
  CHECK(fl_compiled_begin(c) == FL_OK);
  fl_tensor *y = NULL;
  fl_operand in[2] = {{.tensor = t}, {.tensor = t}};
  fl_call call = {.op = fl_op_find(rt, "add"), .n_in = 2, .in = in, .out = &y};
  CHECK(fl_call_run(rt, &call) == FL_OK);
  fl_compiled_free(c); /* while it is open: what waits runs */
  CHECK(fl_tensor_data(y) != NULL);
  fl_tensor_release(y);
}

static void test_ranks(void) {
  unsigned char ticket[FL_COMM_TICKET];
  const int *ranks, first[1] = {0}, other[1] = {9};
  fl_comm_options o = {.struct_size = sizeof o, .rank = 3, .size = 2};
  fl_board *board;
  int rank, size, group, lane;
  uint64_t seq;
  NEEDS(fl_comm_open(NULL, &o), "rt");
  NEEDS(fl_comm_open(rt, NULL), "o");
  REFUSES(fl_comm_open(rt, &o), FL_EARG);
  IGNORES(fl_comm_close(NULL));
  NEEDS(fl_comm_reset(NULL, 1, false), "rt");
  REFUSES(fl_comm_reset(rt, 1, false), FL_EARG);
  GIVES(fl_comm_groups(NULL), 0);
  GIVES(fl_comm_behind(NULL), false);
  NEEDS(fl_comm_group(NULL, 1, first, &group), "rt");
  NEEDS(fl_comm_group(rt, 1, NULL, &group), "ranks");
  NEEDS(fl_comm_group(rt, 1, first, NULL), "group");
  REFUSES(fl_comm_group(rt, -1, first, &group), FL_EARG);
  REFUSES(fl_comm_group(rt, 1, other, &group), FL_EARG);
  NEEDS(fl_comm_members(NULL, 0, &rank, &size, &ranks), "rt");
  NEEDS(fl_comm_members(rt, 0, NULL, &size, &ranks), "rank");
  NEEDS(fl_comm_members(rt, 0, &rank, NULL, &ranks), "size");
  NEEDS(fl_comm_members(rt, 0, &rank, &size, NULL), "ranks");
  REFUSES(fl_comm_members(rt, 9, &rank, &size, &ranks), FL_EARG);
  REFUSES(fl_comm_members(rt, -1, &rank, &size, &ranks), FL_EARG);
  NEEDS(fl_comm_ticket(NULL, "host", ticket), "rt");
  NEEDS(fl_comm_ticket(rt, NULL, ticket), "engine");
  NEEDS(fl_comm_ticket(rt, "host", NULL), "ticket");
  NEEDS(fl_comm_attach(NULL, 0, "host", 0, ticket), "rt");
  NEEDS(fl_comm_attach(rt, 0, NULL, 0, ticket), "engine");
  NEEDS(fl_comm_attach(rt, 0, "host", 0, NULL), "ticket");
  REFUSES(fl_comm_attach(rt, 0, "host", 99 << 8, ticket), FL_EARG);
  NEEDS(fl_comm_load(NULL, "x.so"), "rt");
  NEEDS(fl_comm_load(rt, NULL), "path");
  GIVES(fl_comm_engine(NULL, 0, 0), NULL);
  GIVES(fl_comm_engine(rt, 9, 0), NULL);
  GIVES(fl_comm_engine(rt, 0, -1), NULL);
  NEEDS(fl_comm_last(NULL, 0, 0, &lane, &seq), "rt");
  NEEDS(fl_comm_last(rt, 0, 0, NULL, &seq), "lane");
  NEEDS(fl_comm_last(rt, 0, 0, &lane, NULL), "seq");
  NEEDS(fl_comm_wait(NULL, 0, 0, 0, 1), "rt");
  REFUSES(fl_comm_wait(rt, 9, 0, 0, 1), FL_EARG);
  REFUSES(fl_comm_wait(rt, 0, 99 << 8, 0, 1), FL_EARG);
  GIVES(fl_comm_done(NULL, 0, 0, 0, 1), true);
  GIVES(fl_comm_done(rt, 0, -1, 99, 1), true);
  GIVES(*fl_comm_verdict(NULL), 0);
  IGNORES(fl_comm_fail(NULL, "why"));
  IGNORES(fl_comm_fail(rt, NULL));
  NEEDS(fl_comm_watch(NULL, 2, &board), "key");
  NEEDS(fl_comm_watch("00", 2, NULL), "b");
  REFUSES(fl_comm_watch("00", -1, &board), FL_EARG);
}

static void test_dlpack(void) {
  struct DLManagedTensorVersioned *m = NULL, empty;
  struct DLManagedTensor *old = NULL, blank;
  fl_dlpack_options o = {.struct_size = sizeof o};
  memset(&empty, 0, sizeof empty);
  memset(&blank, 0, sizeof blank);
  empty.version.major = 1;
  NEEDS(fl_tensor_to_dlpack(NULL, &o, &m), "t");
  NEEDS(fl_tensor_to_dlpack(t, &o, NULL), "m");
  TAKES(fl_tensor_to_dlpack(t, NULL, &m));
  m->deleter(m);
  REFUSES(fl_tensor_to_dlpack(gone, NULL, &m), FL_ECLOSED);
  NEEDS(fl_tensor_to_dlpack_old(NULL, &o, &old), "t");
  NEEDS(fl_tensor_to_dlpack_old(t, &o, NULL), "m");
  TAKES(fl_tensor_to_dlpack_old(t, NULL, &old));
  old->deleter(old);
  NEEDS(fl_tensor_from_dlpack(NULL, &empty, &o, &made), "rt");
  NEEDS(fl_tensor_from_dlpack(rt, NULL, &o, &made), "m");
  NEEDS(fl_tensor_from_dlpack(rt, &empty, &o, NULL), "t");
  REFUSES(fl_tensor_from_dlpack(rt, &empty, NULL, &made), FL_EDTYPE);
  NEEDS(fl_tensor_from_dlpack_old(NULL, &blank, &o, &made), "rt");
  NEEDS(fl_tensor_from_dlpack_old(rt, NULL, &o, &made), "m");
  NEEDS(fl_tensor_from_dlpack_old(rt, &blank, &o, NULL), "t");
  REFUSES(fl_tensor_from_dlpack_old(rt, &blank, NULL, &made), FL_EDTYPE);
}

/* A tensor whose runtime is closed. */
static void test_closed(void) {
  float values[6];
  double f;
  REFUSES(fl_tensor_read(gone, values, sizeof values), FL_ECLOSED);
  REFUSES(fl_tensor_write(gone, values, sizeof values), FL_ECLOSED);
  REFUSES(fl_tensor_item(gone, &f, NULL), FL_ECLOSED);
  REFUSES(fl_tensor_detach(gone, &made), FL_ECLOSED);
  REFUSES(fl_tensor_to(gone, 0, FL_F64, &made), FL_ECLOSED);
  REFUSES(fl_tensor_to_async(gone, 0, FL_F64, 0, &made), FL_ECLOSED);
  REFUSES(fl_tensor_require_grad(gone, true), FL_ECLOSED);
  REFUSES(fl_tensor_retain_grad(gone), FL_ECLOSED);
  REFUSES(fl_tensor_add_hook(gone, 1), FL_ECLOSED);
  REFUSES(fl_tensor_place(gone, t, 0), FL_ECLOSED);
  REFUSES(fl_tensor_place_grad(t, gone, 0), FL_ECLOSED);
  REFUSES(fl_tensor_stand_in(t, gone), FL_ECLOSED);
  REFUSES(fl_tensor_root(gone, &made), FL_ECLOSED);
  REFUSES(fl_stream_promise(rt, 0, 0, 1, &gone), FL_ECLOSED);
  GIVES(fl_tensor_data(gone), NULL);
  GIVES(fl_tensor_device(gone), 0);
  GIVES(fl_tensor_grad(gone), NULL);
  GIVES(*fl_tape_text(gone, 3), 0);
  IGNORES(fl_tensor_protect(gone));
  IGNORES(fl_tensor_drop_hook(gone, 1));
}

/* Options whose struct_size the caller forgot would be ignored as a whole. */
static void test_sizes(void) {
  fl_runtime *other = NULL;
  fl_runtime_options runtime = {.threads = 1};
  fl_comm_options ranks = {.rank = 0, .size = 1};
  fl_dlpack_options stream = {0};
  fl_expr_options text = {.reduce = "sum"};
  fl_op_spec spec = {.name = "a", .signature = "x:any -> x"};
  const fl_op *op;
  fl_expr *e;
  struct DLManagedTensorVersioned *m = NULL, empty = {.version.major = 1};
  REFUSES(fl_runtime_open(&runtime, &other), FL_EARG);
  CHECK(strstr(fl_error(), "fl_runtime_open: struct_size of "
                           "fl_runtime_options is 0; set it to "
                           "sizeof(fl_runtime_options)"));
  REFUSES(fl_comm_open(rt, &ranks), FL_EARG);
  CHECK(strstr(fl_error(), "sizeof(fl_comm_options)"));
  REFUSES(fl_tensor_to_dlpack(t, &stream, &m), FL_EARG);
  CHECK(strstr(fl_error(), "sizeof(fl_dlpack_options)"));
  REFUSES(fl_tensor_from_dlpack(rt, &empty, &stream, &made), FL_EARG);
  CHECK(strstr(fl_error(), "sizeof(fl_dlpack_options)"));
  REFUSES(fl_expr_new(rt, "T x", "T z", "z = x", &text, &e), FL_EARG);
  CHECK(strstr(fl_error(), "sizeof(fl_expr_options)"));
  REFUSES(fl_op_register(rt, &spec, &op), FL_EARG);
  CHECK(strstr(fl_error(), "sizeof(fl_op_spec)"));
}

int main(void) {
  fl_runtime *other = NULL;
  CHECK(fl_runtime_open(NULL, &other) == FL_OK);
  CHECK(fl_tensor_zeros(other, FL_F32, 2, shape, 0, &gone) == FL_OK);
  fl_runtime_close(other);
  CHECK(fl_runtime_open(NULL, &rt) == FL_OK);
  CHECK(fl_tensor_zeros(rt, FL_F32, 2, shape, 0, &t) == FL_OK);
  catch_signals();
  test_runtime();
  test_sizes();
  test_devices();
  test_memory();
  test_streams();
  test_marks();
  test_making();
  test_questions();
  test_values();
  test_operators();
  test_calls();
  test_expressions();
  test_sources();
  test_vmap();
  test_gradients();
  test_tape();
  test_profile();
  test_ranks();
  test_deferred();
  test_compiled();
  test_graphs();
  test_dlpack();
  test_closed();
  fl_tensor_release(t);
  fl_tensor_release(gone);
  fl_runtime_close(rt);
  return check_done("bad_arguments");
}
