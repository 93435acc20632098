/* The C part of a call in a compiled function, on one thread: an add of single
 * elements at once, with its kernel; while it waits and is like that of an
 * earlier run; while it waits and is recorded. Results are dropped, so that
 * nothing is launched. Prints a line for each: nanoseconds of the call, of its
 * release and of its part of the function's end; with a tape node, too.
 *   cc -O3 -Ibuild/include bench/recording.c -Lbuild -lflare \
 *     -Wl,-rpath,build -o /tmp/recording && /tmp/recording */
#include <flare/flare.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CALLS  500
#define ROUNDS 400

static fl_runtime *rt;
static fl_tensor *x, *w;

static void check(fl_status s) {
  if (s == FL_OK)
    return;
  fprintf(stderr, "%s\n", fl_error());
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct cost {
  double call, release, end; /* ns */
} cost;

static void least(double *a, double seconds) {
  double ns = seconds * 1e9 / CALLS;
  if (*a == 0 || ns < *a)
    *a = ns;
}

/* One run of calls; c: the compiled function, or NULL. */
static void run(fl_compiled *c, const fl_op *op, fl_tensor *a, cost *to) {
  static fl_tensor *out[CALLS];
  fl_operand in[2] = {{.tensor = a}, {.tensor = x}};
  if (c)
    check(fl_compiled_begin(c));
  double start = now();
  for (int k = 0; k < CALLS; k++) {
    fl_call call = {.op = op, .n_in = 2, .in = in, .out = &out[k]};
    check(fl_call_run(rt, &call));
  }
  double called = now();
  for (int k = 0; k < CALLS; k++)
    fl_tensor_release(out[k]);
  double released = now();
  if (c)
    check(fl_compiled_end(c));
  least(&to->end, now() - released);
  least(&to->release, released - called);
  least(&to->call, called - start);
}

typedef enum how { AT_ONCE, AGAIN, RECORDED } how;

static cost measure(how how, const fl_op *op, fl_tensor *a) {
  cost to = {0, 0, 0};
  fl_compiled *c = NULL;
  for (int r = 0; r < ROUNDS; r++) {
    if (how == RECORDED || (how == AGAIN && !c)) {
      fl_compiled_free(c);
      check(fl_compiled_new(rt, how == AGAIN ? FL_COMPILED_FIRST : 0, &c));
    }
    run(c, op, a, &to);
  }
  fl_compiled_free(c);
  return to;
}

int main(void) {
  static const char *const names[] = {"at once", "waits, known",
                                      "waits, recorded"};
  check(fl_runtime_open(NULL, &rt));
  check(fl_tensor_zeros(rt, FL_F32, 2, (int64_t[]){1, 1}, 0, &x));
  check(fl_tensor_zeros(rt, FL_F32, 2, (int64_t[]){1, 1}, 0, &w));
  check(fl_tensor_require_grad(w, true));
  const fl_op *add = fl_op_find(rt, "add");
  printf("ns a call           call release   end   with a node\n");
  for (int k = AT_ONCE; k <= RECORDED; k++) {
    cost a = measure((how)k, add, x), b = measure((how)k, add, w);
    printf("%-16s %7.1f %7.1f %5.1f %7.1f %7.1f %5.1f\n", names[k], a.call,
           a.release, a.end, b.call, b.release, b.end);
  }
  fl_tensor_release(x);
  fl_tensor_release(w);
  fl_runtime_close(rt);
  return 0;
}
