/* Steps of linear algebra over cuSOLVER, cuBLAS and the kernels of linalg.cu:
 * copies that the libraries may overwrite, triangles, LU. */
#include "linalg_steps.h"

#include <stdlib.h>

#define ALIGNED     256 /* bytes, of the libraries' memory */
#define SMALL_SIDES 64  /* rows, up to which right-hand sides are not turned */

fl_status flc_linalg_checked(const flc_linalg *c, int e) {
  return e ? fli_fail(FL_EDEVICE, "%s: cuSOLVER failed with status %d",
                      c->l->op, e)
           : FL_OK;
}

void *flc_linalg_at(const flc_linalg *c, const void *p, int64_t elements) {
  return (char *)(uintptr_t)p + elements * (int64_t)c->size;
}

void *flc_linalg_get(const flc_linalg *c, int64_t elements) {
  return fl_scratch_get(c->l, (size_t)(elements + 1) * c->size);
}

/* Working memory as the library has asked for it, kept from matrix to matrix.
 */
fl_status flc_linalg_rooms(flc_linalg *c, size_t device, size_t host) {
  if (!c->room || device > c->room_bytes) {
    char *room = fl_scratch_get(c->l, device + ALIGNED);
    if (!room)
      return FL_ENOMEM;
    c->room = room + (ALIGNED - (uintptr_t)room % ALIGNED) % ALIGNED;
    c->room_bytes = device;
  }
  if (host > c->host_bytes) {
    free(c->host);
    c->host_bytes = 0;
    if (!(c->host = malloc(host)))
      return fli_fail(FL_ENOMEM, "out of memory: %s on the host", c->l->op);
    c->host_bytes = host;
  }
  return FL_OK;
}

/* --- own kernels --- */

flc_grid flc_linalg_over(int64_t n) {
  int64_t blocks = fl_ceil_div(n, 256);
  return (flc_grid){.x = (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20),
                    .block = 256};
}

/* The batch as (batch, rows, cols) with strides. */
fl_view flc_linalg_strided(const flc_linalg *c, const void *p, int64_t rows,
                           int64_t cols, int64_t step, int64_t down,
                           int64_t along) {
  return (fl_view){.data = (void *)(uintptr_t)p,
                   .dtype = c->dtype,
                   .ndim = 3,
                   .shape = {c->batch, rows, cols},
                   .stride = {step, down, along}};
}

fl_view flc_linalg_by_rows(const flc_linalg *c, const void *p, int64_t rows,
                           int64_t cols) {
  return flc_linalg_strided(c, p, rows, cols, rows * cols, cols, 1);
}

fl_status flc_linalg_move(const flc_linalg *c, fl_view to, fl_view from) {
  return flc_move(c->l, &to, &from);
}

fl_status flc_linalg_copy(const flc_linalg *c, void *to, const void *from,
                          int64_t elements) {
  return flc_copy(c->l, to, from, (size_t)elements * c->size);
}

static fl_status linalg_steps_mark(const flc_linalg *c, const char *entry,
                                   matrices_args *a) {
  flc_spec spec = FLC_SPEC("linalg", entry, c->dtype);
  a->pieces = fl_ceil_div(a->rows * a->cols, 256 * 16);
  a->pieces = a->pieces < 1024 ? a->pieces : 1024;
  while (a->batch * a->pieces > INT32_MAX)
    a->pieces = fl_ceil_div(a->pieces, 2);
  flc_grid grid = {.x = (unsigned)(a->batch * a->pieces), .block = 256};
  return FLC_RUN(c->l, spec, grid, *a);
}

/* Fills `strange`; of the input, in which `triangle` counts. */
fl_status flc_linalg_survey(flc_linalg *c, int triangle) {
  size_t bytes = (size_t)c->many * sizeof(int);
  matrices_args a = {.x = c->in,
                     .code = c->strange,
                     .batch = c->many,
                     .rows = c->m,
                     .cols = c->n,
                     .triangle = triangle};
  TRY(flc_zero(c->l, c->strange, bytes));
  return linalg_steps_mark(c, "survey", &a);
}

/* A copy of the matrices that the library may write to; those that are strange
 * are zeros there. `turned`: column by column. */
fl_status flc_linalg_tame(flc_linalg *c, int triangle, bool turned, void **to) {
  int64_t size = c->m * c->n;
  matrices_args a = {
      .code = c->strange, .batch = c->batch, .rows = c->m, .cols = c->n};
  TRY(flc_linalg_survey(c, triangle));
  if (!(a.y = *to = flc_linalg_get(c, c->batch * size)))
    return FL_ENOMEM;
  TRY(turned ? flc_linalg_move(
                   c, flc_linalg_strided(c, *to, c->m, c->n, size, 1, c->m),
                   flc_linalg_by_rows(c, c->in, c->m, c->n))
             : flc_linalg_copy(c, *to, c->in, c->batch * size));
  return linalg_steps_mark(c, "blank", &a);
}

fl_status flc_linalg_triangle(const flc_linalg *c, void *y, int64_t rows,
                              bool upper) {
  matrices_args a = {.y = y,
                     .batch = c->batch,
                     .rows = rows,
                     .cols = c->n,
                     .triangle = upper ? 1 : -1};
  flc_spec spec = FLC_SPEC("linalg", "triangle", c->dtype);
  return FLC_RUN(c->l, spec, flc_linalg_over(c->batch * rows * c->n), a);
}

fl_status flc_linalg_identity(const flc_linalg *c, void *y, int64_t n) {
  matrices_args a = {.y = y, .batch = c->batch, .rows = n, .cols = n};
  flc_spec spec = FLC_SPEC("linalg", "identity", c->dtype);
  return FLC_RUN(c->l, spec, flc_linalg_over(c->batch * n * n), a);
}

fl_status flc_linalg_diagonal(const flc_linalg *c, const void *x, int64_t batch,
                              bool zero) {
  matrices_args a = {.x = x, .code = c->info, .batch = batch, .cols = c->n};
  flc_spec spec = FLC_SPEC("linalg", "diagonal", c->dtype, zero);
  flc_grid grid = {.x = (unsigned)fl_ceil_div(batch, 4), .block = 128};
  return FLC_RUN(c->l, spec, grid, a);
}

/* What `info` says, if that is `kind`, and what is strange, if that is wrong.
 */
fl_status flc_linalg_verdict(const flc_linalg *c, int64_t batch,
                             fl_matrix_fault kind, bool strange) {
  verdict_args a = {.code = c->info,
                    .strange = strange ? c->strange : NULL,
                    .batch = batch,
                    .kind = (int)kind,
                    .strange_kind = FL_MATRIX_STRANGE,
                    .fault = flc_fault_of(c->l)};
  flc_spec spec = FLC_SPEC("linalg", "verdict", 0);
  flc_grid grid = {.x = 1, .block = 256};
  return FLC_RUN(c->l, spec, grid, a);
}

/* Pointers to matrices `step` elements apart, in device memory. */
void *flc_linalg_pointers(const flc_linalg *c, const void *base, int64_t step,
                          int64_t n) {
  pointers_args a = {.base = flc_linalg_at(c, base, 0),
                     .step = step * (int64_t)c->size,
                     .n = n,
                     .p = fl_scratch_get(c->l, (size_t)n * sizeof(void *))};
  flc_spec spec = FLC_SPEC("linalg", "pointers", 0);
  return a.p && FLC_RUN(c->l, spec, flc_linalg_over(n), a) == FL_OK ? a.p
                                                                    : NULL;
}

/* --- steps over the libraries --- */

bool flc_linalg_columns(const flc_linalg *c, int64_t k) {
  return k > 1 && c->n > SMALL_SIDES;
}

/* The library has A turned round. Of rows, Y^T op(A)^T = y^T is solved. */
fl_status flc_linalg_by_triangle(flc_linalg *c, const void *a, void *y,
                                 int64_t k, bool upper, bool transposed,
                                 bool unit, bool columns) {
  static const float one = 1;
  static const double one_wide = 1;
  const void *alpha = c->wide ? (const void *)&one_wide : &one;
  columns |= k == 1; /* one column is both */
  int n = (int)c->n, rows = columns ? n : (int)k, cols = columns ? (int)k : n;
  int64_t step = c->many == 1 ? 0 : c->n * c->n;
  int side = columns ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT,
      fill = upper ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER,
      op = transposed == columns ? CUBLAS_OP_N : CUBLAS_OP_T,
      diag = unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
  if (c->batch > 2 && n <= FLC_SMALL_LU && c->batch <= INT32_MAX) {
    void *as = flc_linalg_pointers(c, a, step, c->batch);
    void *ys = flc_linalg_pointers(c, y, c->n * k, c->batch);
    if (!as || !ys)
      return FL_ENOMEM;
    BLAS(trsmBatched, c->s.blas_handle, side, fill, op, diag, rows, cols, alpha,
         as, n, ys, rows, (int)c->batch);
    return FL_OK;
  }
  for (int64_t b = 0; b < c->batch; b++)
    BLAS(trsm_v2, c->s.blas_handle, side, fill, op, diag, rows, cols, alpha,
         flc_linalg_at(c, a, b * step), n, flc_linalg_at(c, y, b * c->n * k),
         rows);
  return FL_OK;
}

/* `many` matrices in `lu` become their factors. Exchanges are i64 (`wide`) or
 * i32. */
fl_status flc_linalg_factor(flc_linalg *c, void *lu, void **exchanges,
                            bool *wide) {
  size_t device = 0, host = 0;
  int64_t n = c->n, size = n * n;
  *wide = c->many == 1 || n > FLC_SMALL_LU || c->many > INT32_MAX;
  *exchanges = fl_scratch_get(c->l, (size_t)(c->many * n) * 8);
  if (!*exchanges)
    return FL_ENOMEM;
  if (!*wide) {
    void *p = flc_linalg_pointers(c, lu, size, c->many);
    if (!p)
      return FL_ENOMEM;
    BLAS(getrfBatched, c->s.blas_handle, (int)n, p, (int)n, *exchanges, c->info,
         (int)c->many);
    return FL_OK;
  }
  CHECK(S(Xgetrf_bufferSize)(c->s.handle, c->s.params, n, n, c->type, lu, n,
                             c->type, &device, &host));
  TRY(flc_linalg_rooms(c, device, host));
  for (int64_t b = 0; b < c->many; b++)
    CHECK(S(Xgetrf)(
        c->s.handle, c->s.params, n, n, c->type, flc_linalg_at(c, lu, b * size),
        n, (int64_t *)*exchanges + b * n, c->type, ROOMS, c->info + b));
  return FL_OK;
}

/* The factors of the input, and their exchanges. */
fl_status flc_linalg_factors(flc_linalg *c, lu_args *a) {
  int64_t size = c->many * c->n * c->n;
  void *lu = flc_linalg_get(c, size), *exchanges;
  if (!lu)
    return FL_ENOMEM;
  TRY(flc_linalg_copy(c, lu, c->in, size));
  TRY(flc_linalg_factor(c, lu, &exchanges, &a->wide));
  a->lu = lu;
  a->pivots = exchanges;
  a->n = c->n;
  return FL_OK;
}

fl_status flc_linalg_by_factors(flc_linalg *c, lu_args *a, void *y, int64_t k,
                                void *x) {
  bool columns = flc_linalg_columns(c, k);
  a->code = c->info;
  a->strange = c->strange;
  a->order = fl_scratch_get(c->l, (size_t)(c->many * c->n) * sizeof(int));
  if (!a->order)
    return FL_ENOMEM;
  flc_spec end = FLC_SPEC("linalg", "lu_end", c->dtype, true);
  flc_grid each = {.x = (unsigned)c->many,
                   .block = 128,
                   .shared = (unsigned)c->n * sizeof(int)};
  TRY(FLC_RUN(c->l, end, each, *a));
  /* A^T = P L U, so U^T L^T P^T X = y */
  TRY(flc_linalg_by_triangle(c, a->lu, y, k, false, false, false, columns));
  TRY(flc_linalg_by_triangle(c, a->lu, y, k, true, false, true, columns));
  if (columns) {
    void *rows = flc_linalg_get(c, c->batch * c->n * k);
    if (!rows)
      return FL_ENOMEM;
    TRY(flc_linalg_move(c, flc_linalg_by_rows(c, rows, c->n, k),
                        flc_linalg_strided(c, y, c->n, k, c->n * k, 1, c->n)));
    y = rows;
  }
  reorder_args r = {.x = y,
                    .y = x,
                    .order = a->order,
                    .code = a->code,
                    .n = c->n,
                    .k = k,
                    .batch = c->batch,
                    .one = c->many == 1};
  flc_spec spec = FLC_SPEC("linalg", "reorder", c->dtype);
  return FLC_RUN(c->l, spec, flc_linalg_over(c->batch * c->n * k), r);
}
