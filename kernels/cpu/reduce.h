/* What reduce.c plans, reduce_typed.c and extremes_typed.c compute. A block is
 * `rows` rows of n adjacent elements. */
#ifndef FL_CPU_REDUCE_H
#define FL_CPU_REDUCE_H

#include "cpu.h"

#define MAX_TILE FL_COLUMNS /* results computed together */

/* What is accumulated; the order matters: sums, then maxima. */
enum {
  K_SUM,
  K_ABS_SUM,
  K_COUNT, /* of nonzero elements */
  K_SQUARES,
  K_POWERS, /* |x|^p */
  K_PROD,
  K_MOMENTS,
  K_MAX,
  K_MIN,
  K_ABS_MAX,
  K_ABS_MIN,
  K_LSE
};

enum { /* how a result comes from what was accumulated */
       DONE_VALUE,
       DONE_MIN,
       DONE_MEAN,
       DONE_ROOT,
       DONE_VAR,
       DONE_LSE,
       DONE_ANY,
       DONE_ALL,
       DONE_COUNT
};

typedef union slot {
  double f;
  int64_t i;
} slot;

typedef struct axis {
  int64_t size, in, out; /* strides in elements; out only if kept */
  bool reduced;
} axis;

/* A reduction, planned. The input is seen as outer x tile x run: `tile` is one
 * kept axis and `run` one reduced axis, one of the two with stride 1; a task
 * reduces some segments (blocks of run) of the elements of some tile. */
typedef struct reduce_kernels reduce_kernels;
typedef struct reduce_job {
  const reduce_kernels *typed; /* of `compute` */
  int kind, finish, planes;
  double p; /* exponent, or var's correction */
  double count;
  fl_dtype stored, compute;
  const char *x;
  char *y;
  int n_keep, n_red; /* outer axes */
  axis keep[FL_MAX_DIMS], red[FL_MAX_DIMS];
  axis tile, run;
  bool cols; /* the tile's stride is 1, not the run's */
  int64_t width, tiles, outer;
  int64_t block, blocks, segments, per_piece, pieces;
  int64_t repeats; /* of each element, by reduced dims of stride 0 */
  slot *partial;
} reduce_job;

struct reduce_kernels {
  /* row r goes into a[r]; column j goes into a[j] */
  void (*rows)(const reduce_job *b, const void *x, int64_t rows, int64_t stride,
               int64_t n, slot *a, int64_t w);
  void (*cols)(const reduce_job *b, const void *x, int64_t rows, int64_t stride,
               int64_t n, slot *a, int64_t w);
  /* what comes before the first block; c's into a's; results from a's */
  void (*start)(const reduce_job *b, int64_t n, slot *a, int64_t w);
  void (*merge)(const reduce_job *b, int64_t n, slot *a, slot *c, int64_t w);
  void (*finish)(const reduce_job *b, int64_t n, const slot *a, int64_t w,
                 void *y, int64_t ys);
};
extern const reduce_kernels FL_CPU(reduce_f32), FL_CPU(reduce_f64),
    FL_CPU(reduce_i64);

/* max_dim and its like: an input seen as outer x n x inner. With
 * inner = 1 rows are cut into pieces, else a task is a tile of columns. */
typedef struct extreme {
  bool least;
  const void *x;
  void *values; /* NULL: not wanted */
  int64_t *indices;
  int64_t n, inner, tiles, piece, pieces;
  int base;
  void *best; /* of each piece */
  int64_t *at;
} extreme;

typedef struct extreme_kernels {
  fl_cpu_task rows, cols;
  /* a row in pieces: what each found, into its first */
  void (*merge)(const extreme *e, int64_t row);
} extreme_kernels;
extern const extreme_kernels FL_CPU(extreme_f32), FL_CPU(extreme_f64),
    FL_CPU(extreme_i64);

#endif
