/* Expressions on one thread beside a loop written by hand for the same work and
 * beside the operators one by one, at 4 MiB. Prints a line for each.
 *   cc -O3 -march=native -fno-math-errno -fno-trapping-math \
 *     -Ibuild/include bench/expr.c -Lbuild -lflare -Wl,-rpath,build -lm \
 *     -o /tmp/expr && /tmp/expr */
#include <flare/flare.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define N      1048576
#define ROUNDS 15
#define TIMES  20

static fl_runtime *rt;
static fl_tensor *x, *y, *w;

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

static fl_tensor *run(const fl_op *op, int n, const fl_operand *in) {
  fl_tensor *out;
  fl_call c = {.op = op, .n_in = n, .in = in, .out = &out};
  check(fl_call_run(rt, &c));
  return out;
}

static fl_tensor *two(const char *op, fl_operand a, fl_operand b) {
  return run(fl_op_find(rt, op), 2, (fl_operand[]){a, b});
}

#define TENSOR(t) ((fl_operand){.tensor = (t)})
#define REAL(v)   ((fl_operand){.dtype = FL_F64, .f = (v)})

/* --- the work, by hand and by operators --- */

static void loop_fma(const float *a, const float *b, const float *c, float *z) {
  (void)c;
  for (int i = 0; i < N; i++)
    z[i] = a[i] * b[i] + 1;
}
static fl_tensor *ops_fma(void) {
  fl_tensor *t = two("mul", TENSOR(x), TENSOR(y));
  fl_tensor *z = two("add", TENSOR(t), REAL(1));
  fl_tensor_release(t);
  return z;
}

static void loop_mix(const float *a, const float *b, const float *c, float *z) {
  for (int i = 0; i < N; i++) {
    float d = a[i] - b[i];
    z[i] = d * d * 0.5f + c[i] * fabsf(d) - 0.25f * a[i];
  }
}
static fl_tensor *ops_mix(void) {
  fl_tensor *t[7];
  t[0] = two("sub", TENSOR(x), TENSOR(y));
  t[1] = two("mul", TENSOR(t[0]), TENSOR(t[0]));
  t[2] = two("mul", TENSOR(t[1]), REAL(0.5));
  t[3] = run(fl_op_find(rt, "abs"), 1, (fl_operand[]){TENSOR(t[0])});
  t[4] = two("mul", TENSOR(w), TENSOR(t[3]));
  t[5] = two("add", TENSOR(t[2]), TENSOR(t[4]));
  t[6] = two("mul", TENSOR(x), REAL(0.25));
  fl_tensor *z = two("sub", TENSOR(t[5]), TENSOR(t[6]));
  for (int k = 0; k < 7; k++)
    fl_tensor_release(t[k]);
  return z;
}

static void loop_choose(const float *a, const float *b, const float *c,
                        float *z) {
  for (int i = 0; i < N; i++) {
    float t = a[i] * b[i] - c[i];
    z[i] = t > 0 ? t : 0.1f * t;
  }
}
static fl_tensor *ops_choose(void) {
  fl_tensor *t[4];
  t[0] = two("mul", TENSOR(x), TENSOR(y));
  t[1] = two("sub", TENSOR(t[0]), TENSOR(w));
  t[2] = two("gt", TENSOR(t[1]), REAL(0));
  t[3] = two("mul", TENSOR(t[1]), REAL(0.1));
  fl_tensor *z = run(fl_op_find(rt, "where"), 3,
                     (fl_operand[]){TENSOR(t[2]), TENSOR(t[1]), TENSOR(t[3])});
  for (int k = 0; k < 4; k++)
    fl_tensor_release(t[k]);
  return z;
}

static const struct {
  const char *text;
  void (*loop)(const float *a, const float *b, const float *c, float *z);
  fl_tensor *(*ops)(void);
} works[] = {
    {"z = x * y + 1", loop_fma, ops_fma},
    {"T d = x - y; z = d * d * 0.5 + w * abs(d) - 0.25 * x", loop_mix, ops_mix},
    {"T t = x * y - w; z = t > 0 ? t : 0.1 * t", loop_choose, ops_choose}};

/* --- measuring: the best of rounds that take turns --- */

static double time_of(int what, int k, const fl_op *op, float *z) {
  fl_operand in[3] = {TENSOR(x), TENSOR(y), TENSOR(w)};
  double start = now();
  for (int i = 0; i < TIMES; i++)
    if (what == 0)
      fl_tensor_release(run(op, 3, in));
    else if (what == 1)
      works[k].loop(fl_tensor_data(x), fl_tensor_data(y), fl_tensor_data(w), z);
    else
      fl_tensor_release(works[k].ops());
  return (now() - start) / TIMES;
}

static fl_tensor *filled(int seed) {
  fl_tensor *t;
  check(fl_tensor_new(rt, FL_F32, 1, (int64_t[]){N}, 0, &t));
  float *p = fl_tensor_data(t);
  for (int i = 0; i < N; i++)
    p[i] = (float)((i * 7 + seed) % 1013) / 500 - 1;
  return t;
}

int main(void) {
  fl_runtime_options o = {.struct_size = sizeof o, .threads = 1};
  check(fl_runtime_open(&o, &rt));
  x = filled(1), y = filled(2), w = filled(3);
  float *z = aligned_alloc(64, N * sizeof *z);
  for (int k = 0; k < 3; k++) {
    fl_operand in[3] = {TENSOR(x), TENSOR(y), TENSOR(w)};
    double best[3] = {1, 1, 1};
    fl_expr *e;
    const fl_op *op;
    check(fl_expr_new(rt, "T x, T y, T w", "T z", works[k].text, NULL, &e));
    check(fl_expr_op(e, 3, in, &op));
    for (int r = 0; r < ROUNDS; r++)
      for (int what = 0; what < 3; what++) {
        double t = time_of(what, k, op, z);
        best[what] = t < best[what] ? t : best[what];
      }
    fl_tensor *mine = run(op, 3, in), *steps = works[k].ops();
    const float *a = fl_tensor_data(mine), *b = fl_tensor_data(steps);
    for (int i = 0; i < N; i++)
      if (fabsf(a[i] - z[i]) > 1e-5f || fabsf(b[i] - z[i]) > 1e-5f) {
        fprintf(stderr, "%s: %g, %g, %g at %d\n", works[k].text, (double)a[i],
                (double)z[i], (double)b[i], i);
        return 1;
      }
    printf(
        "%s: kernel %.0f us, loop by hand %.0f us (%.2fx), operators %.0f us "
        "(%.2fx)\n",
        works[k].text, best[0] * 1e6, best[1] * 1e6, best[1] / best[0],
        best[2] * 1e6, best[2] / best[0]);
    fl_tensor_release(mine);
    fl_tensor_release(steps);
    fl_expr_free(e);
  }
  free(z);
  fl_tensor_release(x);
  fl_tensor_release(y);
  fl_tensor_release(w);
  fl_runtime_close(rt);
  return 0;
}
