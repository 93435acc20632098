/* The sim backend by itself, over a handful of kernels of its own: order, what
 * is copied when, dependencies between streams and devices, failures that come
 * late, limits. */
#include "check.h"

#include "../../kernels/sim/sim.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

fl_status fl_sim_open(const fl_backend_options *o, fl_backend *cpu,
                      fl_backend **b);

/* --- kernels on int64 vectors --- */

static atomic_bool gate_open;
static atomic_int ran;

static int64_t *values(const fl_view *v) {
  return v->data;
}

static fl_status k_add(const fl_launch *l) { /* in place: x += imm */
  for (int64_t i = 0; i < l->out[0].shape[0]; i++)
    values(&l->out[0])[i] += *values(&l->in[1]) + l->attrs->v[0].i;
  ran++;
  return FL_OK;
}

static fl_status k_double(const fl_launch *l) { /* through scratch */
  int64_t n = l->out[0].shape[0];
  int64_t *a = fl_scratch_get(l, (size_t)n * 8), *b = fl_scratch_get(l, 1);
  if (!a || !b || (uintptr_t)a % FL_ALIGN || (uintptr_t)b % FL_ALIGN)
    return fli_fail(FL_ENOMEM, "scratch");
  memcpy(a, l->in[0].data, (size_t)n * 8);
  for (int64_t i = 0; i < n; i++)
    values(&l->out[0])[i] = 2 * a[i];
  return FL_OK;
}

static fl_status k_gate(const fl_launch *l) {
  (void)l;
  while (!gate_open)
    usleep(100);
  return FL_OK;
}

static fl_status k_fail(const fl_launch *l) {
  return fli_fail(FL_EINDEX, "%s: index 99 is out of range", l->op);
}

static fl_kernel kernel(fl_backend *b, const char *op) {
  (void)b;
  return strcmp(op, "double") == 0 ? k_double
         : strcmp(op, "gate") == 0 ? k_gate
         : strcmp(op, "fail") == 0 ? k_fail
         : strcmp(op, "none") == 0 ? NULL
                                   : k_add;
}

static fl_backend cpu = {.struct_size = sizeof cpu,
                         .name = "cpu",
                         .flags = FL_BACKEND_HOST,
                         .kernel = kernel};

/* --- what the tests do with a device --- */

enum { N = 16 };
static fl_backend *sim;
static uint64_t seq;

static fl_view vector(void *data) {
  return (fl_view){
      .data = data, .dtype = FL_I64, .ndim = 1, .shape = {N}, .stride = {1}};
}

/* Launches op(x, imm = by) -> x; everything passed is gone afterwards. */
static fl_status launch_on(fl_stream *s, int device, const char *op, void *x,
                           int64_t by) {
  fl_view in[5] = {vector(x), {.dtype = FL_I64}, vector(x), vector(x)};
  fl_view out = vector(x);
  fl_attrs attrs = {.v = {{.i = 0}}};
  in[1].data = in[1].imm;
  memcpy(in[1].imm, &by, sizeof by);
  fl_launch l = {.op = op,
                 .n_in = 5,
                 .n_out = 1,
                 .in = in,
                 .out = &out,
                 .attrs = &attrs,
                 .writes = !strcmp(op, "adam_step"),
                 .device = device,
                 .stream = s,
                 .seq = ++seq};
  fl_status status = sim->launch(sim, sim->kernel(sim, op), &l);
  memset(in, 0x55, sizeof in);
  memset(&out, 0x55, sizeof out);
  memset(&attrs, 0x55, sizeof attrs);
  return status;
}

static fl_status launch(int device, const char *op, void *x, int64_t by) {
  return launch_on(NULL, device, op, x, by);
}

static void *device_vector(int device, int64_t value) {
  int64_t v[N];
  void *x = NULL;
  CHECK(sim->alloc(sim, device, sizeof v, &x) == FL_OK);
  for (int i = 0; i < N; i++)
    v[i] = value;
  CHECK(sim->copy(sim, device, NULL, FL_COPY_IN, x, device, v, sizeof v) ==
        FL_OK);
  memset(v, 0x55, sizeof v);
  return x;
}

static int64_t first_of(int device, void *x) {
  int64_t v[N];
  CHECK(sim->copy(sim, device, NULL, FL_COPY_OUT, v, device, x, sizeof v) ==
        FL_OK);
  for (int i = 1; i < N; i++)
    CHECK(v[i] == v[0]);
  return v[0];
}

static fl_status sync_of(int device, uint64_t *failed) {
  return sim->stream_sync(sim, device, NULL, failed);
}

static void open_sim(void) {
  CHECK(fl_sim_open(&(fl_backend_options){0}, &cpu, &sim) == FL_OK);
  gate_open = false;
  ran = 0;
}

/* --- tests --- */

static void test_order(void) {
  open_sim();
  CHECK(sim->device_count(sim) == 2 && !(sim->flags & FL_BACKEND_HOST));
  CHECK(sim->kernel(sim, "none") == NULL);
  CHECK(sync_of(0, NULL) == FL_OK);
  CHECK(sim->stream_peek(sim, 0, NULL, NULL) == FL_OK);
  void *x = device_vector(0, 1), *y = device_vector(1, 5);
  for (int i = 0; i < 3000; i++) {
    CHECK(launch(0, "add", x, i) == FL_OK);
    CHECK(launch(1, "add", y, 1) == FL_OK);
  }
  CHECK(launch(1, "double", y, 0) == FL_OK);
  CHECK(first_of(0, x) == 1 + 2999 * 3000 / 2);
  CHECK(first_of(1, y) == 2 * 3005);
  CHECK(sync_of(0, NULL) == FL_OK && sync_of(1, NULL) == FL_OK);
  CHECK(ran == 6000);
  sim->release(sim, 0, x, N * 8);
  sim->close(sim); /* y is still there */
}

/* A kernel that has not run leaves its launcher free. */
static void test_asynchronous(void) {
  open_sim();
  void *x = device_vector(0, 1);
  fl_event *e;
  CHECK(sim->event_new(sim, 0, &e) == FL_OK);
  CHECK(sim->event_done(sim, e));
  CHECK(sim->event_wait(sim, e, NULL) == FL_OK); /* never recorded: passes */
  CHECK(launch(0, "gate", x, 0) == FL_OK);
  CHECK(launch(0, "add", x, 1) == FL_OK);
  CHECK(sim->event_record(sim, e, NULL) == FL_OK);
  CHECK(!sim->event_done(sim, e) && ran == 0);
  gate_open = true;
  CHECK(sync_of(0, NULL) == FL_OK);
  CHECK(sim->event_done(sim, e) && ran == 1);
  sim->event_free(sim, e);
  sim->close(sim);
}

/* The host can neither read nor write a device's memory. */
static void test_own_memory(void) {
  open_sim();
  void *x = device_vector(0, 1), *y = device_vector(1, 2);
  int ends[2];
  CHECK(pipe(ends) == 0);
  CHECK(write(ends[1], x, 1) == -1 && errno == EFAULT);
  close(ends[0]);
  close(ends[1]);
  int64_t mine[N] = {0};
  CHECK(launch(0, "add", mine, 1) == FL_EDEVICE);
  CHECK(strstr(fl_error(), "add: input 1 is not in the memory of sim:0"), "%s",
        fl_error());
  CHECK(launch(0, "add", y, 1) == FL_EDEVICE);
  CHECK(sim->copy(sim, 0, NULL, FL_COPY_IN, y, 0, mine, 8) == FL_EDEVICE);
  CHECK(sim->copy(sim, 0, NULL, FL_COPY_OUT, mine, 0, y, 8) == FL_EDEVICE);
  CHECK(sim->copy(sim, 0, NULL, FL_COPY_WITHIN, x, 0, mine, 8) == FL_EDEVICE);
  CHECK(first_of(0, x) == 1 && first_of(1, y) == 2);
  sim->close(sim);
}

static void test_copies(void) {
  open_sim();
  size_t bytes = (size_t)3 << 20;
  unsigned char *from = malloc(bytes), *to = malloc(bytes);
  void *x, *y;
  CHECK(sim->alloc(sim, 0, bytes, &x) == FL_OK);
  CHECK(sim->alloc(sim, 0, bytes, &y) == FL_OK);
  for (size_t n = bytes; n > 1000; n /= 8) { /* staged and not */
    memset(from, (int)(n % 251), n);
    CHECK(sim->copy(sim, 0, NULL, FL_COPY_IN, x, 0, from, n) == FL_OK);
    memset(from, 0, n);
    CHECK(sim->copy(sim, 0, NULL, FL_COPY_WITHIN, y, 0, x, n) == FL_OK);
    CHECK(sim->copy(sim, 0, NULL, FL_COPY_OUT, to, 0, y, n) == FL_OK);
    CHECK(to[0] == n % 251 && to[n - 1] == n % 251);
  }
  free(from);
  free(to);
  sim->close(sim);
}

/* Between devices the copy comes after what made the source, and before what
 * overwrites it. */
static void test_peers(void) {
  open_sim();
  void *x = device_vector(0, 1), *y = device_vector(1, 0);
  CHECK(launch(0, "gate", x, 0) == FL_OK);
  CHECK(launch(0, "add", x, 41) == FL_OK);
  CHECK(sim->copy(sim, 1, NULL, FL_COPY_PEER, y, 0, x, N * 8) == FL_OK);
  CHECK(launch(0, "add", x, 1000) == FL_OK);
  CHECK(launch(1, "add", y, 100) == FL_OK);
  gate_open = true;
  CHECK(first_of(1, y) == 142);
  CHECK(first_of(0, x) == 1042);
  gate_open = false; /* and when the destination is late */
  CHECK(launch(1, "gate", y, 0) == FL_OK);
  CHECK(sim->copy(sim, 1, NULL, FL_COPY_PEER, y, 0, x, N * 8) == FL_OK);
  CHECK(launch(0, "add", x, 1) == FL_OK);
  gate_open = true;
  CHECK(first_of(0, x) == 1043 && first_of(1, y) == 1042);
  sim->close(sim);
}

static void test_events(void) {
  open_sim();
  void *x = device_vector(0, 0);
  fl_stream *a, *b;
  fl_event *e;
  CHECK(sync_of(0, NULL) == FL_OK);
  CHECK(sim->stream_new(sim, 0, &a) == FL_OK);
  CHECK(sim->stream_new(sim, 0, &b) == FL_OK);
  CHECK(sim->event_new(sim, 0, &e) == FL_OK);
  for (int i = 0; i < 200; i++) {
    gate_open = false;
    CHECK(launch_on(a, 0, "gate", x, 0) == FL_OK);
    CHECK(launch_on(a, 0, "add", x, 1) == FL_OK);
    CHECK(sim->event_record(sim, e, a) == FL_OK);
    CHECK(sim->event_wait(sim, e, b) == FL_OK);
    CHECK(launch_on(b, 0, "double", x, 0) == FL_OK);
    CHECK(sim->event_record(sim, e, b) == FL_OK);
    CHECK(sim->event_wait(sim, e, a) == FL_OK);
    CHECK(launch_on(a, 0, "add", x, -3) == FL_OK); /* 2 (x + 1) - 3 */
    gate_open = true;
    CHECK(sim->stream_sync(sim, 0, a, NULL) == FL_OK);
    CHECK(sim->stream_sync(sim, 0, b, NULL) == FL_OK);
    CHECK(first_of(0, x) == 2 * i - 1);
    CHECK(launch_on(b, 0, "add", x, i + 1 - (2 * i - 1)) == FL_OK);
    CHECK(sim->stream_sync(sim, 0, b, NULL) == FL_OK);
  }
  CHECK(sim->event_record(sim, e, b) == FL_OK);
  sim->event_free(sim, e);
  sim->stream_free(sim, a);
  sim->close(sim); /* b is still there */
}

static void test_failures(void) {
  open_sim();
  void *x = device_vector(0, 0), *y = device_vector(0, 0);
  uint64_t failed = 0, first;
  CHECK(launch(0, "adam_step", y, 1) == FL_OK);
  CHECK(launch(0, "fail", x, 0) == FL_OK);
  first = seq;
  CHECK(launch(0, "fail", x, 0) == FL_OK);
  CHECK(launch(0, "add", x, 7) == FL_OK);
  CHECK(launch(0, "adam_step", y, 10) == FL_OK); /* writes: does nothing */
  CHECK(first_of(0, x) == 7 && first_of(0, y) == 1);
  CHECK(sim->stream_peek(sim, 0, NULL, &failed) == FL_EINDEX);
  CHECK(failed == first);
  failed = 0;
  CHECK(sync_of(0, &failed) == FL_EINDEX && failed == first);
  CHECK(strcmp(fl_error(), "fail: index 99 is out of range") == 0);
  CHECK(sync_of(0, &failed) == FL_OK); /* told once */
  CHECK(sim->stream_peek(sim, 0, NULL, NULL) == FL_OK);
  CHECK(sync_of(1, NULL) == FL_OK);
  CHECK(launch(0, "adam_step", y, 10) == FL_OK);
  CHECK(first_of(0, y) == 11);
  sim->close(sim);
}

static void test_fault(void) {
  open_sim();
  void *x = device_vector(0, 0), *y = device_vector(1, 0);
  uint64_t failed = 0;
  CHECK(sim->control(sim, "fault", 2) == FL_OK);
  for (int i = 0; i < 5; i++)
    CHECK(launch(0, "add", x, 1) == FL_OK);
  uint64_t third = seq - 2;
  for (int i = 0; i < 3; i++) { /* and again, the first cause */
    CHECK(sync_of(0, &failed) == FL_EFAULT && failed == third);
    CHECK(strstr(fl_error(), "sim:0: device fault in add"), "%s", fl_error());
    CHECK(launch(0, "fail", x, 1) == FL_OK);
    CHECK(sim->stream_peek(sim, 0, NULL, &failed) == FL_EFAULT);
  }
  CHECK(ran == 2);
  CHECK(launch(1, "add", y, 1) == FL_OK); /* the other one works on */
  CHECK(first_of(1, y) == 1 && sync_of(1, NULL) == FL_OK);
  CHECK(sim->control(sim, "revive", 0) == FL_OK);
  CHECK(sync_of(0, NULL) == FL_OK && first_of(0, x) == 2);
  CHECK(sim->control(sim, "volume", 11) == FL_EARG);
  CHECK(strstr(fl_error(), "memory_limit"), "%s", fl_error());
  CHECK(fl_sim_control(&cpu, "fault", 0) == FL_EARG);
  sim->close(sim);
}

static void *open_gate(void *context) {
  (void)context;
  usleep(20000);
  gate_open = true;
  return NULL;
}

static void test_graphs(void) {
  open_sim();
  void *x = device_vector(0, 1);
  fl_graph_exec *e = NULL;
  fl_event *event;
  uint64_t failed = 0;
  CHECK(sim->event_new(sim, 0, &event) == FL_OK);
  CHECK(sim->capture_end(sim, 0, NULL, &e) == FL_EARG);
  CHECK(sim->capture_begin(sim, 0, NULL) == FL_OK);
  CHECK(launch(0, "add", x, 2) == FL_OK);
  CHECK(launch(0, "double", x, 0) == FL_OK);
  CHECK(launch(0, "fail", x, 0) == FL_OK);
  uint64_t failing = seq;
  CHECK(launch(0, "adam_step", x, 100) == FL_OK); /* writes: not after that */
  CHECK(sim->capture_end(sim, 0, NULL, &e) == FL_OK && e);
  CHECK(ran == 0 && first_of(0, x) == 1); /* nothing has run */
  CHECK(sim->exec_launch(sim, e, ++seq) == FL_OK);
  CHECK(sync_of(0, &failed) == FL_EINDEX && failed == failing);
  CHECK(first_of(0, x) == 6);
  CHECK(launch(0, "add", x, 1) == FL_OK); /* in the order of the stream */
  CHECK(sim->exec_launch(sim, e, ++seq) == FL_OK);
  CHECK(sync_of(0, NULL) == FL_EINDEX && first_of(0, x) == 18);
  sim->exec_free(sim, e);
  /* what a capture does not take makes it fail */
  CHECK(sim->capture_begin(sim, 0, NULL) == FL_OK);
  CHECK(sim->capture_begin(sim, 0, NULL) == FL_EUNSUPPORTED);
  CHECK(sync_of(0, NULL) == FL_EUNSUPPORTED);
  CHECK(sim->event_record(sim, event, NULL) == FL_EUNSUPPORTED);
  CHECK(sim->event_wait(sim, event, NULL) == FL_EUNSUPPORTED);
  CHECK(sim->copy(sim, 0, NULL, FL_COPY_OUT, &failed, 0, x, 8) ==
        FL_EUNSUPPORTED);
  CHECK(sim->capture_end(sim, 0, NULL, &e) == FL_EUNSUPPORTED);
  CHECK(launch(0, "add", x, 1) == FL_OK && first_of(0, x) == 19);
  /* one that is dropped; a fault in the middle of another */
  CHECK(sim->capture_begin(sim, 0, NULL) == FL_OK);
  CHECK(launch(0, "add", x, 1) == FL_OK);
  CHECK(sim->capture_end(sim, 0, NULL, NULL) == FL_OK);
  CHECK(sim->capture_begin(sim, 0, NULL) == FL_OK);
  CHECK(launch(0, "add", x, 1) == FL_OK);
  CHECK(launch(0, "add", x, 1) == FL_OK);
  failing = seq;
  CHECK(sim->capture_end(sim, 0, NULL, &e) == FL_OK);
  CHECK(sim->control(sim, "fault", 3) == FL_OK);
  CHECK(sim->exec_launch(sim, e, ++seq) == FL_OK);
  CHECK(sync_of(0, NULL) == FL_OK);
  CHECK(sim->exec_launch(sim, e, ++seq) == FL_OK);
  CHECK(sync_of(0, &failed) == FL_EFAULT && failed == failing);
  sim->exec_free(sim, e);
  sim->event_free(sim, event);
  sim->close(sim);
}

static void test_memory(void) {
  open_sim();
  void *x, *y;
  size_t room, total;
  CHECK(sim->control(sim, "memory_limit", 1000) == FL_OK);
  CHECK(sim->alloc(sim, 0, 600, &x) == FL_OK);
  CHECK(sim->alloc(sim, 0, 600, &y) == FL_ENOMEM);
  CHECK(strstr(fl_error(), "600 of 1000"), "%s", fl_error());
  CHECK(sim->alloc(sim, 1, 600, &y) == FL_OK);
  CHECK(sim->memory_info(sim, 0, &room, &total) == FL_OK);
  CHECK(room == 400 && total == 1000);
  /* memory in use goes back only when the work is done */
  pthread_t thread;
  CHECK(launch(0, "gate", x, 0) == FL_OK);
  CHECK(launch(0, "add", x, 1) == FL_OK);
  CHECK(pthread_create(&thread, NULL, open_gate, NULL) == 0);
  sim->release(sim, 0, x, 600);
  CHECK(ran == 1);
  pthread_join(thread, NULL);
  CHECK(sim->alloc(sim, 0, 1000, &x) == FL_OK);
  CHECK(sim->control(sim, "memory_limit", 0) == FL_OK);
  CHECK(sim->memory_info(sim, 0, &room, &total) == FL_OK && room > 1000);
  sim->close(sim);
}

static void test_options(void) {
  setenv("FLARE_SIM_DEVICES", "3", 1);
  setenv("FLARE_SIM_MEMORY", "5000", 1);
  setenv("FLARE_SIM_DELAY_US", "100", 1);
  open_sim();
  CHECK(sim->device_count(sim) == 3);
  void *x = device_vector(2, 1);
  CHECK(launch(2, "add", x, 1) == FL_OK);
  CHECK(first_of(2, x) == 2);
  CHECK(sim->alloc(sim, 2, 5000, &x) == FL_ENOMEM);
  sim->close(sim);
  setenv("FLARE_SIM_DEVICES", "nonsense", 1);
  unsetenv("FLARE_SIM_MEMORY");
  unsetenv("FLARE_SIM_DELAY_US");
  open_sim();
  CHECK(sim->device_count(sim) == 2);
  sim->close(sim);
}

int main(void) {
  test_order();
  test_asynchronous();
  test_own_memory();
  test_copies();
  test_peers();
  test_events();
  test_failures();
  test_fault();
  test_graphs();
  test_memory();
  test_options();
  return check_done("sim_streams");
}
