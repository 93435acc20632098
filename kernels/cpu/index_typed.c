/* What index.c does where several values may land in one place, for one type
 * that it computes in. */
#include "../../runtime/math/math.h"
#include "index.h"
#include "typed.h"

/* y[index[k]] += src[k], or src[0] if `single`. */
static void add_singly(const insertion *c, T *y, const T *f) {
  const int64_t *index = c->index;
  int64_t n = c->n, skip = c->skip;
  bool single = c->single;
  for (int64_t k = 0; k < n; k++)
    if (index[k] != skip)
      y[index[k]] += f[single ? 0 : k];
}

static void add_slices(void *context, int64_t begin, int64_t end) {
  const insertion *c = context;
  for (int64_t u = begin; u < end; u++) {
    int64_t o = u / c->cuts, start = u % c->cuts * c->cut, step = !c->single;
    int64_t n = c->inner - start < c->cut ? c->inner - start : c->cut;
    T *y = (T *)c->y + (o * c->bound - c->base) * c->inner + start;
    const T *f = (const T *)c->src + step * (o * c->n * c->inner + start);
    if (c->inner == 1) {
      add_singly(c, y, f);
      continue;
    }
    for (int64_t k = 0; k < c->n; k++, f += step * c->inner) {
      T *t = y + c->index[k] * c->inner;
      if (c->index[k] == c->skip)
        continue;
      if (c->single)
        for (int64_t i = 0; i < n; i++)
          t[i] += f[0];
      else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
          t[i] += f[i];
      }
    }
  }
}

static void add_line(const picking *c, const pick_line *p) {
  const int64_t *index = c->index + p->index;
  T *t = (T *)c->y + p->y;
  const T *f = (const T *)c->src + p->src;
  int64_t along = p->y_dim, line = p->y_line, step = p->src_line;
  for (int64_t i = 0; i < p->n; i++)
    t[index[i] * along + i * line] += f[i * step];
}

#define COMBINE(name, value)                                                   \
  static void name(const picking *c, const pick_line *p) {                     \
    const int64_t *index = c->index + p->index;                                \
    T *t = (T *)c->y + p->y;                                                   \
    const T *f = (const T *)c->src + p->src;                                   \
    int64_t along = p->y_dim, line = p->y_line, step = p->src_line;            \
    for (int64_t i = 0; i < p->n; i++) {                                       \
      T *at = t + index[i] * along + i * line, a = *at, b = f[i * step];       \
      *at = value;                                                             \
    }                                                                          \
  }
COMBINE(mul_line, a *b)
COMBINE(max_line, fl_maximum(a, b))
COMBINE(min_line, fl_minimum(a, b))

const index_kernels FL_TYPED(index) = {.add_slices = add_slices,
                                       .line = {[PICK_ADD] = add_line,
                                                [PICK_MUL] = mul_line,
                                                [PICK_MAX] = max_line,
                                                [PICK_MIN] = min_line}};
