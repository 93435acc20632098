/* A matrix product as a record: what matmul.c and conv.c ask for, and what our
 * own kernels (gemm.c) and the library (cublaslt.c) answer. */
#ifndef FL_CUDA_PRODUCT_H
#define FL_CUDA_PRODUCT_H

#include "../cuda.h"
#include "gemm.h"

#define FLC_BATCH_DIMS 6

struct gemm_map; /* gemm.h */

typedef enum flc_act { /* the order of linear's enum */
                       FLC_ACT_NONE,
                       FLC_ACT_RELU,
                       FLC_ACT_GELU,
                       FLC_ACT_GELU_TANH,
                       FLC_ACT_SILU,
                       FLC_ACT_TANH,
                       FLC_ACT_SIGMOID
} flc_act;

/* C (m, n) = act(A (m, k) B (k, n) + bias (n)) for each matrix of a batch, all
 * of one dtype; C is contiguous, and so is `pre` (or NULL), which gets what the
 * activation is applied to. Strides and steps of the batch are in elements. */
typedef struct flc_product {
  fl_dtype dtype;
  int64_t m, n, k, am, ak, bk, bn;
  const void *a, *b;
  void *c, *pre;
  int dims;
  int64_t size[FLC_BATCH_DIMS], astep[FLC_BATCH_DIMS], bstep[FLC_BATCH_DIMS];
  const void *bias; /* contiguous, or NULL */
  fl_dtype bias_dtype;
  bool bias_down; /* bias (m) is added to rows instead */
  flc_act act;
  bool add; /* to C, which is a float of dtype `sum` */
  fl_dtype sum;
  /* an expression of C comes behind the product: the launch has the kernel
     "epilogue". C has no memory if nothing else reads it */
  const fl_launch *behind;
  bool apart; /* C: how far rows of A are from columns of B, nothing else */
} flc_product;

/* An operand: matrices (rows, cols) with any strides, and a batch of them. */
typedef struct flc_matrices {
  const void *data;
  int64_t rows, cols, down, along;
  int ndim;
  int64_t shape[FL_MAX_DIMS], step[FL_MAX_DIMS];
} flc_matrices;

/* Of a view with at least 2 dims, copied where its dtype or its lines do not
 * suit the kernels. */
fl_status flc_matrices_read(const fl_launch *l, const fl_view *v,
                            fl_dtype dtype, flc_matrices *m);
flc_matrices flc_matrices_transposed(const flc_matrices *m);
/* Sets p to the product of a and b over a batch of `ndim` dims. */
void flc_product_join(flc_product *p, const flc_matrices *a,
                      const flc_matrices *b, int ndim, const int64_t *shape);

/* By our own kernels or the library: whichever is set, or known to be faster
 * for this shape. */
fl_status flc_multiply(const fl_launch *l, flc_product *p);

/* Whether lines of 16-bit elements can be read as they are. */
bool flc_product_lines(int64_t rows, int64_t k, int64_t down, int64_t along);
/* Whether lines run along k. */
bool flc_product_along(int64_t rows, int64_t k, int64_t down, int64_t along);
/* An operand (rows, k) as boxes of 64 by `tile` rows, or by 64 steps of the sum
 * where lines run across it; false: a map cannot describe it. */
bool flc_product_map(const flc_product *p, struct gemm_map *map,
                     const void *data, bool runs, int64_t rows, int64_t k,
                     int64_t ld, const int64_t *step, int tile);
/* Shared memory of gemm.cu's tiles of 16-bit floats: lines of 64 elements of
 * both operands, as many steps as tile.cuh has; or C in float, and a line of
 * bias. */
size_t flc_product_shared(const flc_chip *chip, int size);
/* Copies 16-bit operands whose lines do not begin at multiples of 16 bytes. */
fl_status flc_product_align(const fl_launch *l, flc_product *p);
/* Products of 16-bit matrices of sizes that are no multiples of 8, by copies
 * that are; false: this is none of them, or copies do not pay. */
bool flc_product_padded(const fl_launch *l, const flc_product *p, fl_status *s);
fl_status flc_product_own(const fl_launch *l, const flc_product *p);
/* The product by itself, then the expression behind it; of a probe, the
 * expression. */
fl_status flc_product_first(const fl_launch *l, const flc_product *p);
/* Arguments of kernels, without tiles and splits. */
void flc_product_fill(const flc_product *p, gemm_args *a);
/* Whether few rows or columns make it a matter of reading the other operand
 * (skinny.c), and running it so. */
bool flc_product_skinny(const flc_product *p);
/* Whether that is known to be faster than the library. */
bool flc_product_surely_skinny(const fl_launch *l, const flc_product *p);
fl_status flc_product_run_skinny(const fl_launch *l, const flc_product *p);
/* The arguments of a kernel that is finished by skinny.cuh; the specialisation
 * gets its last number, and the text of what is behind the product. False: that
 * cannot be part of the kernel. */
struct skinny_args;
bool flc_skinny_args(const fl_launch *l, const flc_product *p,
                     struct skinny_args *a, flc_spec *spec);
/* Warps that share k, `chunk` elements at a time: many if there are few blocks,
 * at most `most`, and as many as have the same number of chunks. */
typedef struct skinny_cut {
  int warps, turns;
} skinny_cut;
skinny_cut flc_skinny_cut(const fl_launch *l, int64_t blocks, int64_t k,
                          int64_t chunk, int64_t most);
fl_status fl_cuda_expr(const fl_launch *l);
/* A convolution and the tile behind it, if its kernel finds the moments that
 * the tile needs (moments.c); else *done is false. `operand`: of the tile, the
 * result. */
fl_status flc_conv_moments(const fl_launch *l, const fl_launch *tile,
                           int operand, bool *done);
fl_status flc_product_moments(const fl_launch *l, const flc_product *p,
                              const fl_launch *tile, int operand, bool *done);
/* Sets what is behind the product, if the launch has an expression: an
 * activation alone becomes that of a product that has none. */
void flc_product_take(const fl_launch *l, flc_product *p);
/* The expression behind the product, which has been stored to c. */
fl_status flc_product_behind(const flc_product *p, void *c);
/* Whether the expression behind a product is this row alone, of the result and,
 * if there is a second operand, of elements that lie like those of the result:
 * *aux. What it writes lies like them as well, *to. */
bool flc_behind_is(const fl_launch *behind, int row, const void **aux,
                   void **to);
/* The plain tiles (simt.cuh) of 64 r: shared memory, and the largest r. */
size_t flc_simt_shared(fl_dtype dtype, int r);
int flc_simt_sizes(const flc_chip *chip, fl_dtype dtype);
static inline int64_t flc_product_batch(const flc_product *p) {
  return fl_numel(p->dims, p->size);
}

#endif
