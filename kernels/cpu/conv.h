/* What conv.c plans and conv_typed.c computes. */
#ifndef FL_CPU_CONV_H
#define FL_CPU_CONV_H

#include "tile.h"

#if defined(__AVX512F__)
#define CONV_MR 8
#define CONV_NV 3
#else
#define CONV_MR 6
#define CONV_NV 2
#endif
#define CONV_TASKS  16        /* worth having, if there is work for them */
#define CONV_CACHE  (1 << 16) /* elements that a tile may take of a cache */
#define CONV_GATHER 320       /* rows of gathered columns */

/* (batch, channels, depth, height, width); missing dims have size 1 */
typedef struct conv_data {
  char *data;
  fl_dtype dtype;
  int64_t size; /* of an element */
  int64_t shape[5], stride[5];
} conv_data;

/* One dim of the planes: index i of phase p is source position
 * i * step + p + lo. */
typedef struct conv_axis {
  int64_t from, step, lo;
  int64_t span;   /* largest shift of a tap, in indices */
  int64_t extent; /* indices of a plane */
  int64_t phases;
  int64_t *phase; /* those that taps use */
} conv_axis;

/* Results first, first + every, ... of the destination share their taps. */
typedef struct conv_sub {
  int64_t first[3], count[3];
  int64_t k;         /* source channels * taps */
  int64_t tap, taps; /* among conv.tap_number */
  int64_t *off;      /* k offsets into planes */
  int64_t reach;     /* the largest of them */
  int64_t weights;   /* where its packed weights are */
} conv_sub;

typedef struct conv {
  const fl_launch *l;
  conv_data from, to;
  fl_view result;     /* gradient of weights: contiguous */
  const void *weight; /* contiguous, of the type computed in */
  const void *bias;   /* the same, or NULL */
  bool flipped;       /* the gradient: weights are (source, destination) */
  int64_t images, groups, cs, cd; /* channels of one group */
  int64_t kernel[3], taps;
  conv_axis axis[3];
  int64_t every[3], most[3]; /* of results; most[i] of any sub */
  int64_t plane, channel;    /* elements: one plane, one source channel */
  int cut;                   /* the dim that strips cut */
  int64_t strip, strips;     /* results of a strip, strips */
  int64_t images_once;       /* of a task */
  bool direct;               /* planes are the source's own memory */
  bool dense;                /* columns are gathered */
  int64_t depth;             /* rows of k done at once */
  int64_t columns;           /* room for results of one task and channel */
  int64_t n_subs;
  conv_sub *subs;
  int64_t *tap_number; /* which tap of the kernel, by sub */
  void *packed;        /* weights: (group, sub, block of rows, k, row) */
  tile_slots slots;
  /* the gradient of weights only */
  bool dots;      /* few channels of dy: products run along results */
  bool copied;    /* planes must be copies */
  int64_t split;  /* source channels of a task */
  int64_t pieces; /* of all images and strips, with sums of their own */
  int64_t ldw;    /* channels of dy, padded; packed is (piece, group, k, ldw) */
} conv;

/* A box of results in planes: `pitch` elements from row to row, `layer` from
 * depth to depth. */
typedef struct conv_span {
  int64_t count[3], pitch, layer;
} conv_span;

static inline int64_t conv_floor_div(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}

static inline int64_t conv_flat(const conv *c, const int64_t count[3]) {
  const conv_axis *a = c->axis;
  return ((count[0] - 1) * a[1].extent + count[1] - 1) * a[2].extent + count[2];
}

static inline int64_t conv_volume(const int64_t v[3]) {
  return v[0] * v[1] * v[2];
}

/* All but the weights. stride, padding, dilation are attributes at, at + 1,
 * at + 2, groups the one after. */
bool FL_CPU(conv_plan)(conv *c, int at, int spatial, fl_dtype dtype);

typedef struct conv_kernels {
  fl_status (*run)(conv *c, int at, int spatial, const fl_view *w,
                   const fl_view *bias);
  fl_status (*weights)(conv *c, int at, int spatial);
} conv_kernels;
extern const conv_kernels FL_CPU(conv_f32), FL_CPU(conv_f64);

#endif
