/* A step of Adam whose moments are codes of 8 bits (arXiv:2110.02861): blocks
 * of elements have a scale, and a code picks one of 256 numbers in [-1, 1]. All
 * of a block's moments come before the first is put into codes again, since
 * that needs the largest. Formulas are those of optim_typed.c. */
#include "../../runtime/math/math.h"
#include "cpu.h"

#include <math.h>

#define CHUNK 256 /* elements computed at once */
#define CODES 256

typedef struct eighth {
  fl_dtype type; /* of p and g: F32 or F64 */
  void *p;
  const void *g;
  uint8_t *codes[2];           /* of the mean, of the mean square */
  float *scales[2];            /* one for each block */
  const float *map[2];         /* ascending */
  float middles[2][CODES - 1]; /* between neighbours */
  int64_t n, block;
  double keep, decay, b1, b2, eps, rate, root;
} eighth;

/* The new moments of n elements from `at` on; their sizes enter `most`. With
 * `p`, parameters are updated. */
#define ADVANCE(T, name)                                                       \
  static void name(const eighth *w, int64_t at, int64_t n, const float *scale, \
                   float(*new)[CHUNK], bool p) {                               \
    T *x = (T *)w->p + at;                                                     \
    const T *g = (const T *)w->g + at;                                         \
    const uint8_t *m = w->codes[0] + at, *v = w->codes[1] + at;                \
    T c1 = (T)(1 - w->b1), b2 = (T)w->b2, c2 = (T)(1 - w->b2);                 \
    T keep = (T)w->keep, decay = (T)w->decay, eps = (T)w->eps;                 \
    T rate = (T)w->rate, root = (T)w->root;                                    \
    for (int64_t i = 0; i < n; i++) {                                          \
      T first = (T)(w->map[0][m[i]] * scale[0]);                               \
      T second = (T)(w->map[1][v[i]] * scale[1]);                              \
      T d = g[i] + decay * x[i];                                               \
      first += c1 * (d - first);                                               \
      second = b2 * second + c2 * d * d;                                       \
      new[0][i] = (float)first;                                                \
      new[1][i] = (float)second;                                               \
      if (p)                                                                   \
        x[i] = x[i] * keep - rate * (first / (fl_sqrt(second) * root + eps));  \
    }                                                                          \
  }

ADVANCE(float, advance_f32)
ADVANCE(double, advance_f64)

/* The nearest number's: how many middles are below x; NaN: all. */
static inline uint8_t code_of(const float *middles, float x) {
  int low = 0;
  for (int step = CODES / 2; step > 0; step /= 2)
    low += !(middles[low + step - 1] >= x) * step;
  return (uint8_t)low;
}

static void adam8_block(const eighth *w, int64_t b) {
  void (*advance)(const eighth *, int64_t, int64_t, const float *,
                  float(*)[CHUNK], bool) =
      w->type == FL_F64 ? advance_f64 : advance_f32;
  int64_t from = b * w->block, left = w->n - from;
  int64_t n = left < w->block ? left : w->block;
  float new[2][CHUNK], old[2] = {w->scales[0][b], w->scales[1][b]};
  float most[2] = {0, 0};
  for (int64_t k = 0; k < n; k += CHUNK) {
    int64_t some = n - k < CHUNK ? n - k : CHUNK;
    advance(w, from + k, some, old, new, false);
    for (int s = 0; s < 2; s++)
      for (int64_t i = 0; i < some; i++)
        most[s] = fl_maximum(most[s], fl_abs(new[s][i]));
  }
  for (int64_t k = 0; k < n; k += CHUNK) {
    int64_t some = n - k < CHUNK ? n - k : CHUNK;
    advance(w, from + k, some, old, new, true);
    for (int s = 0; s < 2; s++)
      for (int64_t i = 0; i < some; i++)
        w->codes[s][from + k + i] =
            code_of(w->middles[s], new[s][i] / (most[s] == 0 ? 1 : most[s]));
  }
  for (int s = 0; s < 2; s++)
    w->scales[s][b] = most[s];
}

static void adam8_task(void *context, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; b++)
    adam8_block(context, b);
}

/* Memory of an operand that is written, contiguous. */
static void *adam8_memory(const fl_launch *l, int k, fl_dtype dtype) {
  return (void *)(uintptr_t)FL_CPU(input)(l, &l->in[k], dtype);
}

FL_KERNEL(adam8_step) {
  static const int written[] = {FL_IN_adam8_step_mean, FL_IN_adam8_step_square,
                                FL_IN_adam8_step_mean_scales,
                                FL_IN_adam8_step_square_scales};
  const fl_attr *a = l->attrs->v;
  const fl_view *p = &l->in[FL_IN_adam8_step_p];
  double t = fl_cpu_scalar(&l->in[FL_IN_adam8_step_step]);
  double lr = fl_cpu_scalar(&l->in[FL_IN_adam8_step_lr]);
  double decay = a[FL_ATTR_adam8_step_weight_decay].f;
  bool decoupled = a[FL_ATTR_adam8_step_decoupled].i;
  eighth w = {.type = fl_cpu_wide(p->dtype),
              .n = fl_view_numel(p),
              .block = a[FL_ATTR_adam8_step_block].i,
              .keep = decoupled ? 1 - lr * decay : 1,
              .decay = decoupled ? 0 : decay,
              .b1 = a[FL_ATTR_adam8_step_beta1].f,
              .b2 = a[FL_ATTR_adam8_step_beta2].f,
              .eps = a[FL_ATTR_adam8_step_eps].f};
  if (w.n == 0)
    return FL_OK;
  w.rate = lr / (1 - pow(w.b1, t));
  w.root = 1 / sqrt(1 - pow(w.b2, t));
  w.p = adam8_memory(l, FL_IN_adam8_step_p, w.type);
  w.g = FL_CPU(input)(l, &l->in[FL_IN_adam8_step_g], w.type);
  const float *map = FL_CPU(input)(l, &l->in[FL_IN_adam8_step_maps], FL_F32);
  for (int s = 0; s < 2; s++) {
    w.codes[s] = adam8_memory(l, written[s], FL_U8);
    w.scales[s] = adam8_memory(l, written[2 + s], FL_F32);
    w.map[s] = map + CODES * s;
  }
  if (!w.p || !w.g || !map || !w.codes[0] || !w.codes[1] || !w.scales[0] ||
      !w.scales[1])
    return FL_ENOMEM;
  for (int s = 0; s < 2; s++)
    for (int i = 0; i < CODES - 1; i++)
      w.middles[s][i] = (w.map[s][i] + w.map[s][i + 1]) / 2;
  fl_cpu_parallel(l, fl_ceil_div(w.n, w.block), 4096 / w.block + 1, adam8_task,
                  &w);
  FL_CPU(finish)(l, p, w.type, w.p);
  for (int s = 0; s < 2; s++) {
    FL_CPU(finish)(l, &l->in[written[s]], FL_U8, w.codes[s]);
    FL_CPU(finish)(l, &l->in[written[2 + s]], FL_F32, w.scales[s]);
  }
  return FL_OK;
}
