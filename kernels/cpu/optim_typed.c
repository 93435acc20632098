/* The formulas of optimizer steps for one float type. a[0] is the parameter,
 * a[1] its gradient, a[2] ... its state. */
#include "../../runtime/math/math.h"
#include "optim.h"
#include "typed.h"

#define LOOP _Pragma("omp simd") for (int64_t i = 0; i < n; i++)

static void sgd(const recipe *r, int64_t n, void *const *a) {
  T *p = a[0];
  const T *g = a[1];
  T lr = (T)(r->maximize ? -r->lr : r->lr);
  T decay = (T)(r->maximize ? -r->decay : r->decay);
  LOOP p[i] -= lr * (g[i] + decay * p[i]);
}

static void sgd_momentum(const recipe *r, int64_t n, void *const *a) {
  T *p = a[0], *b = a[2];
  const T *g = a[1];
  T lr = (T)r->lr, decay = (T)r->decay, sign = r->maximize ? -1 : 1;
  T momentum = (T)r->momentum, damp = (T)r->damp;
  bool first = r->first, nesterov = r->nesterov;
  LOOP {
    T d = sign * g[i] + decay * p[i];
    T b1 = first ? d : momentum * b[i] + damp * d; /* undamped at first */
    b[i] = b1;
    p[i] -= lr * (nesterov ? d + momentum * b1 : b1);
  }
}

/* Loshchilov and Hutter's decay (decoupled) shrinks the parameter itself. */
static inline void moments(const recipe *r, int64_t n, void *const *a,
                           bool amsgrad) {
  T *p = a[0], *m = a[2], *v = a[3], *most = amsgrad ? a[4] : a[3];
  const T *g = a[1];
  T sign = r->maximize ? -1 : 1, eps = (T)r->eps;
  T decay = r->decoupled ? 0 : (T)r->decay;
  T keep = r->decoupled ? (T)(1 - r->lr * r->decay) : 1;
  T c1 = (T)(1 - r->b1), b2 = (T)r->b2, c2 = (T)(1 - r->b2);
  T rate = (T)r->rate, root = (T)r->root;
  LOOP {
    T w = p[i] * keep, d = sign * g[i] + decay * p[i];
    T m1 = m[i] + c1 * (d - m[i]), v1 = b2 * v[i] + c2 * d * d;
    m[i] = m1;
    v[i] = v1;
    if (amsgrad) {
      T old = most[i];
      v1 = v1 > old || v1 != v1 ? v1 : old;
      most[i] = v1;
    }
    p[i] = w - rate * (m1 / (fl_sqrt(v1) * root + eps));
  }
}

static void adam(const recipe *r, int64_t n, void *const *a) {
  moments(r, n, a, false);
}

static void amsgrad(const recipe *r, int64_t n, void *const *a) {
  moments(r, n, a, true);
}

static void rmsprop(const recipe *r, int64_t n, void *const *a) {
  T *p = a[0], *v = a[2];
  const T *g = a[1];
  T lr = (T)r->lr, decay = (T)r->decay, eps = (T)r->eps;
  T b = (T)r->b1, c = (T)(1 - r->b1);
  LOOP {
    T d = g[i] + decay * p[i], v1 = b * v[i] + c * d * d;
    v[i] = v1;
    p[i] -= lr * (d / (fl_sqrt(v1) + eps));
  }
}

static void rmsprop_momentum(const recipe *r, int64_t n, void *const *a) {
  T *p = a[0], *v = a[2], *m = a[3];
  const T *g = a[1];
  T lr = (T)r->lr, decay = (T)r->decay, eps = (T)r->eps;
  T b = (T)r->b1, c = (T)(1 - r->b1), momentum = (T)r->momentum;
  LOOP {
    T d = g[i] + decay * p[i], v1 = b * v[i] + c * d * d;
    T m1 = momentum * m[i] + d / (fl_sqrt(v1) + eps);
    v[i] = v1;
    m[i] = m1;
    p[i] -= lr * m1;
  }
}

/* The variance may come out below 0 by rounding; its root is then 0. */
static void rmsprop_centered(const recipe *r, int64_t n, void *const *a) {
  bool moving = r->momentum != 0;
  T *p = a[0], *v = a[2], *mean = a[3], *m = moving ? a[4] : NULL;
  const T *g = a[1];
  T lr = (T)r->lr, decay = (T)r->decay, eps = (T)r->eps;
  T b = (T)r->b1, c = (T)(1 - r->b1), momentum = (T)r->momentum;
  for (int64_t i = 0; i < n; i++) {
    T d = g[i] + decay * p[i], v1 = b * v[i] + c * d * d;
    T mean1 = mean[i] + c * (d - mean[i]), var = v1 - mean1 * mean1;
    T by = d / (fl_sqrt(var < 0 ? 0 : var) + eps);
    v[i] = v1;
    mean[i] = mean1;
    if (moving)
      by = m[i] = momentum * m[i] + by;
    p[i] -= lr * by;
  }
}

static void adagrad(const recipe *r, int64_t n, void *const *a) {
  T *p = a[0], *v = a[2];
  const T *g = a[1];
  T lr = (T)r->lr, decay = (T)r->decay, eps = (T)r->eps;
  LOOP {
    T d = g[i] + decay * p[i], v1 = v[i] + d * d;
    v[i] = v1;
    p[i] -= lr * (d / (fl_sqrt(v1) + eps));
  }
}

static void lion(const recipe *r, int64_t n, void *const *a) {
  T *p = a[0], *m = a[2];
  const T *g = a[1];
  T lr = (T)r->lr, keep = (T)(1 - r->lr * r->decay);
  T b1 = (T)r->b1, c1 = (T)(1 - r->b1), b2 = (T)r->b2, c2 = (T)(1 - r->b2);
  LOOP {
    T u = b1 * m[i] + c1 * g[i];
    m[i] = b2 * m[i] + c2 * g[i];
    p[i] = p[i] * keep - lr * (u > 0 ? 1 : u < 0 ? -1 : u);
  }
}

static void lerp(const recipe *r, int64_t n, void *const *a) {
  T *p = a[0], weight = (T)r->lr;
  const T *to = a[1];
  if (weight == 1) /* exactly: p may be infinite where `to` is not */
    LOOP p[i] = to[i];
  else
    LOOP p[i] += weight * (to[i] - p[i]);
}

static void scale(const recipe *r, int64_t n, void *const *a) {
  T *p = a[0], by = (T)r->lr;
  LOOP p[i] *= by;
}

/* `so_far` and what n elements add to it before the root is taken. */
static double norm(double p, int64_t n, const void *values, double so_far) {
  const T *x = values;
  double s = 0;
  if (p == 2) {
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++)
      s += (double)x[i] * (double)x[i];
  } else if (p == 1) {
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++)
      s += fl_abs((double)x[i]);
  } else if (p == INFINITY) {
    T most = 0;
    int odd = 0;
#pragma omp simd reduction(max : most) reduction(| : odd)
    for (int64_t i = 0; i < n; i++) {
      T v = fl_abs(x[i]);
      most = v > most ? v : most;
      odd |= v != v;
    }
    return odd ? (double)NAN : fl_maximum(so_far, (double)most);
  } else {
    for (int64_t i = 0; i < n; i++)
      s += p == 0 ? (double)(x[i] != 0) : fl_pow(fl_abs((double)x[i]), p);
  }
  return so_far + s;
}

#undef LOOP

const optim_kernels FL_TYPED(optim) = {
    .step = {[STEP_SGD] = sgd,
             [STEP_SGD_MOMENTUM] = sgd_momentum,
             [STEP_ADAM] = adam,
             [STEP_AMSGRAD] = amsgrad,
             [STEP_RMSPROP] = rmsprop,
             [STEP_RMSPROP_MOMENTUM] = rmsprop_momentum,
             [STEP_RMSPROP_CENTERED] = rmsprop_centered,
             [STEP_ADAGRAD] = adagrad,
             [STEP_LION] = lion,
             [STEP_LERP] = lerp,
             [STEP_SCALE] = scale},
    .norm = norm};
