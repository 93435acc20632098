/* Running sums. */
#include "device/line.h"

#include "scan.h"

#define THREADS 256
#define LEAST   4096 /* elements of a line that are worth a piece */

/* Elements of a line that a thread takes at once. */
static int lot_of(fl_dtype d) {
  int lot = flc_lot(d);
  return lot > 8 ? 8 : lot;
}

/* At most 1024, since each piece sums up those before it. */
static fl_status set_pieces(const fl_launch *l, int64_t busy, int64_t least,
                            scan_args *a) {
  int64_t pieces = a->lines < busy ? busy / a->lines : 1;
  pieces = pieces < 1024 ? pieces : 1024;
  if (pieces > fl_ceil_div(a->n, least))
    pieces = fl_ceil_div(a->n, least);
  a->piece = fl_ceil_div(fl_ceil_div(a->n, pieces), 64) * 64;
  a->pieces = (int)fl_ceil_div(a->n, a->piece);
  if (a->pieces == 1)
    return FL_OK;
  size_t tasks = (size_t)a->lines * (size_t)a->pieces;
  a->sums = fl_scratch_get(l, tasks * sizeof(double));
  return a->sums ? FL_OK : FL_ENOMEM;
}

static fl_status lines(const fl_launch *l, fl_dtype d, scan_args *a) {
  int vec = lot_of(d);
  if (a->n % vec || !flc_aligned(a->x, 16))
    vec = 1;
  bool block = a->n > 32 * vec * 4;
  flc_spec sums = FLC_SPEC("scan", "sums", d);
  flc_spec spec = FLC_SPEC("scan", "lines", d, vec, block);
  a->piece = a->n;
  a->pieces = 1;
  a->lanes = flc_power(fl_ceil_div(a->n, vec), 32);
  flc_grid grid = {.x = (unsigned)fl_ceil_div(a->lines * a->lanes, THREADS),
                   .block = THREADS};
  fl_status s = FL_OK;
  if (block) {
    s = set_pieces(l, flc_chip_of(l)->processors * 8, LEAST, a);
    grid.x = (unsigned)(a->lines * a->pieces);
    if (s == FL_OK && a->pieces > 1)
      s = FLC_RUN(l, sums, grid, *a);
  }
  return s == FL_OK ? FLC_RUN(l, spec, grid, *a) : s;
}

static fl_status scan_columns(const fl_launch *l, fl_dtype d, scan_args *a) {
  int64_t busy = (int64_t)flc_chip_of(l)->processors * 1024;
  flc_spec sums = FLC_SPEC("scan", "column_sums", d);
  flc_spec spec = FLC_SPEC("scan", "columns", d);
  fl_status s = set_pieces(l, busy, 64, a);
  flc_grid grid = {.x = (unsigned)fl_ceil_div(a->lines, 128),
                   .y = (unsigned)a->pieces,
                   .block = 128};
  if (s == FL_OK && a->pieces > 1)
    s = FLC_RUN(l, sums, grid, *a);
  return s == FL_OK ? FLC_RUN(l, spec, grid, *a) : s;
}

FLC_KERNEL(cumsum) {
  const fl_view *v = &l->in[0];
  scan_args a = {.n = 1, .inner = 1, .y = l->out[0].data};
  int dim = v->ndim ? (int)l->attrs->v[FL_ATTR_cumsum_dim].i : 0;
  int64_t total = fl_view_numel(v);
  if (total == 0)
    return FL_OK;
  if (v->ndim)
    a.n = v->shape[dim];
  for (int k = dim + 1; k < v->ndim; k++)
    a.inner *= v->shape[k];
  a.lines = total / a.n;
  a.x = flc_input(l, v, v->dtype);
  if (!a.x)
    return FL_ENOMEM;
  return a.inner > 1 ? scan_columns(l, v->dtype, &a) : lines(l, v->dtype, &a);
}

void flc_visit_scan(flc_visitor *v) {
  static const char *const others[] = {"sums", "column_sums", "columns"};
  FL_EACH_DTYPE(d, fl_dtype_is_real) {
    bool quick = d == FL_BF16;
    for (int k = 0; k < 4; k++) {
      flc_spec s = FLC_SPEC("scan", "lines", d, k % 2 ? 1 : lot_of(d), k / 2);
      v->spec(v, &s, quick && k == 2);
    }
    for (int k = 0; k < 3; k++) {
      flc_spec s = FLC_SPEC("scan", others[k], d);
      v->spec(v, &s, quick);
    }
  }
}
