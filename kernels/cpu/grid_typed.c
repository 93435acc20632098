/* The loops of grid.c for one float type. */
#include "gather.h"
#include "grid.h"

#include <math.h>
#include <string.h>

#if FL_T_IS_F32
#define FLOOR floorf
#define RINT  rintf
#else
#define FLOOR floor
#define RINT  rint
#endif

/* Of BLOCK results along one dim: coordinates in x, how they follow the grid's,
 * and each tap's place (held to those that there are), weight and the weight's
 * derivative. */
typedef struct axis {
  T c[BLOCK], slope[BLOCK];
  T at[4][BLOCK], weight[4][BLOCK], change[4][BLOCK];
} axis;

/* c held to 0 .. last, NaN to 0. */
static inline T held(T c, T last) {
  return c > 0 ? c < last ? c : last : 0;
}

/* c thrown back at low and high; slope changes its sign with it. */
static void reflect(int64_t m, T low, T high, T *restrict c,
                    T *restrict slope) {
  T span = high - low;
#pragma omp simd
  for (int64_t p = 0; p < m; p++) {
    T x = c[p] - low, far = x < 0 ? -x : x;
    T turns = span > 0 ? FLOOR(far / span) : 0;
    T extra = span > 0 ? far - turns * span : 0;
    bool back = turns - 2 * FLOOR(turns / 2) != 0;
    c[p] = span > 0 ? back ? high - extra : extra + low : 0 * c[p];
    slope[p] *= span > 0 ? (x < 0) != back ? -1 : 1 : 0;
  }
}

/* c brought to where there are elements. */
static void inside(const sampling *s, int64_t m, int64_t size, T *restrict c,
                   T *restrict slope) {
  T last = (T)(size - 1);
  if (s->padding == ZEROS)
    return;
  if (s->padding == REFLECTION)
    reflect(m, s->corners ? 0 : (T)-0.5, s->corners ? last : last + (T)0.5, c,
            slope);
#pragma omp simd
  for (int64_t p = 0; p < m; p++) {
    slope[p] = c[p] < 0 || c[p] > last ? 0 : slope[p];
    c[p] = c[p] < 0 ? 0 : c[p] > last ? last : c[p];
  }
}

/* Keys' cubic weights with a = -0.75, and their derivatives, of a distance. */
static inline T near_by(T d) {
  const T a = (T)-0.75;
  return ((a + 2) * d - (a + 3)) * d * d + 1;
}
static inline T near_slope(T d) {
  const T a = (T)-0.75;
  return (3 * (a + 2) * d - 2 * (a + 3)) * d;
}
static inline T far_off(T d) {
  const T a = (T)-0.75;
  return (((d - 5) * d + 8) * d - 4) * a;
}
static inline T far_slope(T d) {
  const T a = (T)-0.75;
  return ((3 * d - 10) * d + 8) * a;
}

/* Places of taps are whole numbers in c's neighbourhood. */
static void taps_of(const sampling *s, int64_t m, axis *r) {
  if (s->mode == NEAREST) {
    for (int64_t p = 0; p < m; p++) {
      r->at[0][p] = RINT(r->c[p]);
      r->weight[0][p] = 1;
      r->change[0][p] = 0;
    }
    return;
  }
#pragma omp simd
  for (int64_t p = 0; p < m; p++) {
    T low = FLOOR(r->c[p]), t = r->c[p] - low, u = 1 - t;
    if (s->mode == LINEAR) {
      r->at[0][p] = low;
      r->at[1][p] = low + 1;
      r->weight[0][p] = u;
      r->weight[1][p] = t;
      r->change[0][p] = -1;
      r->change[1][p] = 1;
    } else {
      r->at[0][p] = low - 1;
      r->at[1][p] = low;
      r->at[2][p] = low + 1;
      r->at[3][p] = low + 2;
      r->weight[0][p] = far_off(t + 1);
      r->weight[1][p] = near_by(t);
      r->weight[2][p] = near_by(u);
      r->weight[3][p] = far_off(u + 1);
      r->change[0][p] = far_slope(t + 1);
      r->change[1][p] = near_slope(t);
      r->change[2][p] = -near_slope(u);
      r->change[3][p] = -far_slope(u + 1);
    }
  }
}

/* `m` results from `first` on of sample b, along dim k. */
static void read_axis(const sampling *s, int64_t b, int64_t first, int64_t m,
                      int k, axis *r) {
  const T *g = (const T *)s->grid + (b * s->results + first) * s->n + k;
  int64_t size = s->size[k], n = s->n;
  T last = (T)(size - 1), by = (s->corners ? last : (T)size) / 2;
  T shift = s->corners ? 0 : (T)0.5;
#pragma omp simd
  for (int64_t p = 0; p < m; p++) {
    r->c[p] = (g[p * n] + 1) * by - shift;
    r->slope[p] = by;
  }
  if (s->mode != CUBIC)
    inside(s, m, size, r->c, r->slope);
  taps_of(s, m, r);
  for (int j = 0; j < s->taps; j++) {
    T *restrict at = r->at[j], *restrict w = r->weight[j];
    T *restrict change = r->change[j], none[BLOCK];
    if (s->mode == CUBIC) {
      inside(s, m, size, at, none);
#pragma omp simd
      for (int64_t p = 0; p < m; p++)
        at[p] = RINT(at[p]);
    }
#pragma omp simd
    for (int64_t p = 0; p < m; p++) {
      T place = held(at[p], last);
      bool out = s->padding == ZEROS && place != at[p];
      at[p] = place;
      w[p] = out ? 0 : w[p];
      change[p] = out ? 0 : change[p];
    }
  }
}

/* The block that unit u is: sample, first result, number. */
static int64_t block_of(const sampling *s, int64_t u, int64_t *b,
                        int64_t *first) {
  *b = u / s->cuts;
  *first = u % s->cuts * s->cut;
  return s->results - *first < s->cut ? s->results - *first : s->cut;
}

/* Place and weight of read_piece r, which takes tap r / taps^k % taps along dim
 * k. */
static void read_of(const sampling *s, const axis *axes, int r, int64_t m,
                    int32_t *restrict at, T *restrict weight) {
  for (int k = 0; k < s->n; k++, r /= s->taps) {
    const T *restrict place = axes[k].at[r % s->taps];
    const T *restrict w = axes[k].weight[r % s->taps];
    int32_t step = (int32_t)s->step[k];
    if (k == 0)
#pragma omp simd
      for (int64_t p = 0; p < m; p++) {
        at[p] = (int32_t)place[p];
        weight[p] = w[p];
      }
    else
#pragma omp simd
      for (int64_t p = 0; p < m; p++) {
        at[p] += (int32_t)place[p] * step;
        weight[p] *= w[p];
      }
  }
}

static void find(void *context, int64_t begin, int64_t end) {
  const sampling *s = context;
  axis axes[3];
  for (int64_t u = begin; u < end; u++) {
    int64_t b, first, m = block_of(s, u, &b, &first);
    for (int k = 0; k < s->n; k++)
      read_axis(s, b, first, m, k, &axes[k]);
    for (int r = 0; r < s->reads; r++) {
      int64_t to = (b * s->reads + r) * s->results + first;
      read_of(s, axes, r, m, s->at + to, (T *)s->weight + to);
    }
  }
}

static void read_piece(void *context, int64_t begin, int64_t end) {
  const sampling *s = context;
  for (int64_t u = begin; u < end; u++) {
    int64_t b, first, m = block_of(s, u, &b, &first);
    int64_t to = b / s->channels * s->reads * s->results + first;
    const T *restrict x = (const T *)s->x + b * s->plane;
    T *restrict y = (T *)s->y + b * s->results + first;
    gather(m, s->reads, s->results, (const T *)s->weight + to, s->at + to, x,
           false, y);
  }
}

/* Planes of dx. */
static void spread(void *context, int64_t begin, int64_t end) {
  const sampling *s = context;
  for (int64_t u = begin; u < end; u++) {
    T *dx = (T *)s->dx + u * s->plane;
    const T *dy = (const T *)s->dy + u * s->results;
    int64_t from = u / s->channels * s->reads * s->results;
    for (int r = 0; r < s->reads; r++, from += s->results) {
      const int32_t *at = s->at + from;
      const T *w = (const T *)s->weight + from;
      for (int64_t p = 0; p < s->results; p++)
        dx[at[p]] += w[p] * dy[p];
    }
  }
}

/* Along each dim: the sum over reads of what flows to their weight, times how
 * this follows the coordinate. */
static void slopes(void *context, int64_t begin, int64_t end) {
  const sampling *s = context;
  axis axes[3];
  T flow[BLOCK];
  for (int64_t u = begin; u < end; u++) {
    int64_t b, first, m = block_of(s, u, &b, &first);
    T *dgrid = (T *)s->dgrid + (b * s->results + first) * s->n;
    for (int k = 0; k < s->n; k++)
      read_axis(s, b, first, m, k, &axes[k]);
    for (int r = 0; r < s->reads; r++) {
      const int32_t *restrict at =
          s->at + (b * s->reads + r) * s->results + first;
      memset(flow, 0, sizeof flow);
      for (int64_t c = b * s->channels; c < (b + 1) * s->channels; c++) {
        const T *restrict x = (const T *)s->x + c * s->plane;
        const T *restrict dy = (const T *)s->dy + c * s->results + first;
        gather(m, 1, 0, dy, at, x, true, flow);
      }
      for (int k = 0; k < s->n; k++)
        for (int64_t p = 0; p < m; p++) {
          T by = axes[k].slope[p];
          for (int i = 0, tap = r; i < s->n; i++, tap /= s->taps)
            by *= i == k ? axes[i].change[tap % s->taps][p]
                         : axes[i].weight[tap % s->taps][p];
          dgrid[p * s->n + k] += flow[p] * by;
        }
    }
  }
}

const grid_kernels FL_TYPED(grid) = {
    .find = find, .read = read_piece, .spread = spread, .slopes = slopes};
