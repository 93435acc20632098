/* Declarations that the rows of linear algebra share on a GPU: a launch as
 * batches of matrices, memory for the libraries, and steps that several rows
 * take. */
#ifndef FL_CUDA_LINALG_STEPS_H
#define FL_CUDA_LINALG_STEPS_H

#include "driver/backend.h"
#include "vendor/cusolver.h"

#include "linalg.h"

#define FLC_SMALL_LU 256 /* rows, to which many at once are worth while */

typedef struct flc_linalg {
  const fl_launch *l;
  flc_solver s;
  fl_dtype dtype; /* F32 or F64, of what is computed */
  bool wide;
  int type; /* the library's */
  size_t size;
  int64_t batch, m, n, k;
  int lead;       /* dims of the batch */
  const void *in; /* the matrices, contiguous */
  int64_t many;   /* of them: the batch, or 1 that all share */
  void *out[3];
  int *info, *strange; /* of each matrix */
  void *host, *room;   /* the library's */
  size_t host_bytes, room_bytes;
} flc_linalg;

#define TRY(step)                                                              \
  do {                                                                         \
    fl_status s_ = (step);                                                     \
    if (s_)                                                                    \
      return s_;                                                               \
  } while (0)
/* A call of the libraries, in the call's precision. */
#define S(name)  (c->s.t->cusolverDn##name)
#define CHECK(e) TRY(flc_linalg_checked(c, (e)))
#define BY(lib, prefix, name, ...)                                             \
  (c->wide ? c->s.lib->prefix##D##name(__VA_ARGS__)                            \
           : c->s.lib->prefix##S##name(__VA_ARGS__))
#define SOLVER(name, ...) CHECK(BY(t, cusolverDn, name, __VA_ARGS__))
#define ROOMS             c->room, device, c->host, host
#define BLAS(name, ...)   CHECK(BY(blas, cublas, name, __VA_ARGS__))

fl_status flc_linalg_checked(const flc_linalg *c, int e);
void *flc_linalg_at(const flc_linalg *c, const void *p, int64_t elements);
void *flc_linalg_get(const flc_linalg *c, int64_t elements);
/* Working memory as the library has asked for it, kept from matrix to matrix.
 */
fl_status flc_linalg_rooms(flc_linalg *c, size_t device, size_t host);
flc_grid flc_linalg_over(int64_t n);
/* The batch as (batch, rows, cols) with strides. */
fl_view flc_linalg_strided(const flc_linalg *c, const void *p, int64_t rows,
                           int64_t cols, int64_t step, int64_t down,
                           int64_t along);
fl_view flc_linalg_by_rows(const flc_linalg *c, const void *p, int64_t rows,
                           int64_t cols);
fl_status flc_linalg_move(const flc_linalg *c, fl_view to, fl_view from);
fl_status flc_linalg_copy(const flc_linalg *c, void *to, const void *from,
                          int64_t elements);
/* Fills `strange`; of the input, in which `triangle` counts. */
fl_status flc_linalg_survey(flc_linalg *c, int triangle);
/* A copy of the matrices that the library may write to; those that are strange
 * are zeros there. `turned`: column by column. */
fl_status flc_linalg_tame(flc_linalg *c, int triangle, bool turned, void **to);
fl_status flc_linalg_triangle(const flc_linalg *c, void *y, int64_t rows,
                              bool upper);
fl_status flc_linalg_identity(const flc_linalg *c, void *y, int64_t n);
fl_status flc_linalg_diagonal(const flc_linalg *c, const void *x, int64_t batch,
                              bool zero);
/* What `info` says, if that is `kind`, and what is strange, if that is wrong.
 */
fl_status flc_linalg_verdict(const flc_linalg *c, int64_t batch,
                             fl_matrix_fault kind, bool strange);
/* Pointers to matrices `step` elements apart, in device memory. */
void *flc_linalg_pointers(const flc_linalg *c, const void *base, int64_t step,
                          int64_t n);
/* y (n x k) becomes Y with op(A) Y = y, `upper` being A's triangle in row-major
 * order; y and Y are column-major if `columns`. */
fl_status flc_linalg_by_triangle(flc_linalg *c, const void *a, void *y,
                                 int64_t k, bool upper, bool transposed,
                                 bool unit, bool columns);
/* Whether right-hand sides are turned for it: it is quicker so. */
bool flc_linalg_columns(const flc_linalg *c, int64_t k);
/* `many` matrices in `lu` become their factors. Exchanges are i64 (`wide`) or
 * i32. */
fl_status flc_linalg_factor(flc_linalg *c, void *lu, void **exchanges,
                            bool *wide);
/* The factors of the input, and their exchanges. */
fl_status flc_linalg_factors(flc_linalg *c, lu_args *a);
/* x (n x k of each), row by row, becomes X with A X = y by A's factors; y lies
 * as flc_linalg_columns says, and is lost. */
fl_status flc_linalg_by_factors(flc_linalg *c, lu_args *a, void *y, int64_t k,
                                void *x);

#endif
