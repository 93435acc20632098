/* Arguments of the kernels in reduce.cu, and functions of reduce.c that other
 * families call. */
#ifndef FL_CUDA_REDUCE_H
#define FL_CUDA_REDUCE_H

enum reduce_kind { /* what is accumulated */
                   REDUCE_SUM,
                   REDUCE_MEAN,   /* sum of integers as doubles */
                   REDUCE_COUNT,  /* of nonzero elements */
                   REDUCE_POWERS, /* |x|^p in double: no overflow on the way */
                   REDUCE_PROD,
                   REDUCE_EXTREME,
                   REDUCE_LSE,
                   REDUCE_MOMENTS,
                   REDUCE_PRODUCTS, /* sums of x and of x (x2 - shift) */
                   REDUCE_PLACE,    /* of the extreme element */
                   REDUCE_KINDS
};

enum reduce_done {             /* how a result comes from it */
                   DONE_VALUE, /* for powers: the root */
                   DONE_MEAN,
                   DONE_VAR,
                   DONE_MOMENTS, /* y mean, y2 variance, as doubles */
                   DONE_ANY,
                   DONE_ALL,
                   DONE_COUNT
};

#define REDUCE_NARROW(dtype)                                                   \
  (dtype == FL_I16 || dtype == FL_I8 || dtype == FL_U8 || dtype == FL_BOOL)
/* Blocks of a processor that run at once: what the registers allow. */
#define REDUCE_ROW_BLOCKS(kind, dtype)                                         \
  (kind == REDUCE_POWERS || (kind == REDUCE_LSE && dtype == FL_F64) ? 2        \
   : kind >= REDUCE_LSE || dtype == FL_F64 || REDUCE_NARROW(dtype)  ? 3        \
                                                                    : 4)
#define REDUCE_COLUMN_BLOCKS(kind)                                             \
  (kind == REDUCE_POWERS || kind >= REDUCE_LSE ? 2 : 3)

#define REDUCE_AXES 8

typedef struct reduce_axis {
  int64_t size, in, out; /* strides in elements; out only if kept */
} reduce_axis;

/* The input is seen as rows (the innermost axis is reduced) or as columns (it
 * is kept). Every result is reduced in `pieces`; with more than one, each
 * leaves what it accumulated in partial[piece][result]. */
typedef struct reduce_args {
  const void *x, *x2, *shift;
  void *y, *y2, *partial;
  double p; /* exponent, or var's correction */
  double count;
  int64_t results, repeats; /* of `run` in the other reduced axes */
  int64_t run, run_in;
  int64_t block, blocks; /* pieces of run that a turn takes (rows) */
  int64_t per_piece;     /* turns (rows), or lines (columns) */
  int64_t tiles;         /* of a line (columns) */
  int64_t shift_each;    /* results that share a shift */
  int64_t base;
  int n_keep, n_red, pieces;
  int lanes, turn_lanes; /* threads of a result, of a turn (rows) */
  int bx, by, bz;        /* threads along a line, lines, outer (columns) */
  int vector;            /* 16-byte accesses (rows) */
  int absolute, least;   /* of |x|; the least of extremes, not the largest */
  int finish;
  reduce_axis keep[REDUCE_AXES], red[REDUCE_AXES]; /* innermost first */
} reduce_args;

#ifndef __CUDACC_RTC__
/* Mean and variance of x over the dims in mask `reduced`, as doubles. */
fl_status flc_moments(const fl_launch *l, const fl_view *x, unsigned reduced,
                      double *mean, double *var);
/* Sums of dy and of dy (x - mean) over the dims in `reduced`, as doubles. Both
 * are contiguous, of one dtype and x's shape; `each` results in a row share a
 * mean, which has the wide type. */
fl_status flc_products(const fl_launch *l, const fl_view *x, const void *dy,
                       const void *mean, int64_t each, unsigned reduced,
                       double *s1, double *s2);
#endif
#endif
