/* What fft.c plans and fft_typed.c computes. */
#ifndef FL_CPU_FFT_H
#define FL_CPU_FFT_H

#include "../../runtime/math/math.h"
#include "tile.h"

#define GRAIN  32768 /* elements worth a thread's while */
#define SHARES 32    /* pieces */
#define ABREAST                                                                \
  16 /* lines across memory: pairs of whole lines of the cache                 \
      */
#define LARGE  (1 << 17) /* elements of a line of which only one is done */
#define SHORT  64        /* elements of a line that is never split */
#define LONG   (1 << 14) /* elements of a line that is two dims of its own */
#define LINES  16        /* side by side, at most */
#define BUFFER (1 << 17) /* elements of them, unless one alone has more */
#define AHEAD  32768     /* bytes fetched before they are wanted, at most */
#define TILE   8         /* elements of a line read or written at once */
#define FEW    7         /* the largest radix that stays in registers */
#define APART  16 /* rows, so that no two planes lie a power of two apart */

typedef struct plan plan;
struct plan {
  int64_t n, far; /* far: from a line's real to its imaginary elements */
  int n_factors, factors[FL_FACTORS];
  const void *roots; /* exp(-2 pi i k / n), or the chirp; pairs */
  const plan *inner; /* Bluestein's smooth transform, or NULL */
  const void *spectrum;
  const plan *low, *across; /* of a line alone, or NULL: n is their product */
  const void *turn;         /* what lies between: cosines, then sines */
};

/* Powers of a root: e is a[e % low] b[e / low], low being 1 << log. */
typedef struct powers {
  int log;
  const double *a, *b; /* pairs */
} powers;

/* Element k of line b is turned by power k b: that of k and the first of lines
 * done together, times the one of k and how many lines after it. */
typedef struct turning {
  powers of;
  int64_t lines;
  const double *cos, *sin; /* (elements, LINES) */
} turning;

enum { PAIRS, REAL, HALF }; /* what goes in */

typedef struct fft_job {
  const plan *plan;
  int kind;
  bool inverse, half;
  int64_t n, lines;     /* n: of the real side, or of the pairs */
  int64_t inner, below; /* lines side by side that go in, and that come out */
  int64_t width, grain;
  double scale;
  const void *x, *roots;
  void *y;
  const turning *turn; /* of what comes out, or NULL */
  tile_slots slots;    /* two buffers of lines each */
} fft_job;

static inline void power(const powers *p, int64_t e, double *y) {
  const double *u = p->a + 2 * (e & (((int64_t)1 << p->log) - 1)),
               *v = p->b + 2 * (e >> p->log);
  y[0] = u[0] * v[0] - u[1] * v[1];
  y[1] = u[0] * v[1] + u[1] * v[0];
}

/* A line that is next comes from memory while this one is transformed: lines
 * often are pages, and the processor looks no further than those. */
static inline void fetch_ahead(const void *x, int64_t bytes) {
  for (int64_t i = 0; i < bytes && i < AHEAD; i += 64)
    __builtin_prefetch((const char *)x + i, 0, 2);
}

typedef struct fft_kernels {
  fl_cpu_task groups; /* of lines side by side */
  void (*chirp_spectrum)(const plan *p, void *room);
} fft_kernels;
extern const fft_kernels FL_CPU(fft_f32), FL_CPU(fft_f64);

#endif
