/* Products of groups on any chip, a block for each tile; ROWS: rows are cut
 * into groups, else the sum is. */
#include "gemm.cuh"
#include "../device/tile.cuh"
#include "grouped.cuh"

/* The block's tile as one of an ordinary product, `a`; false if there is
 * nothing to do. */
template <int ROWS>
bool grouped_tile(const grouped_args &h, int m, int n, gemm_args *a,
                  place *p) {
  span s;
  if (!(ROWS ? rows_place(h, blockIdx.x, m, n, p, &s)
             : sums_place(h, blockIdx.x, m, n, p, &s)))
    return false;
  if (ROWS) {
    a->m = s.to;
    p->a = 0;
    p->b = p->matrix * h.bstep;
    p->matrix = 0;
  } else {
    a->k = s.to - s.from;
    p->a = s.from * a->ak;
    p->b = s.from * a->bk;
  }
  return s.to > s.from;
}

template <int D, int SIZE, int ROWS, int AK, int BK, int FIT>
__global__ void __launch_bounds__(fl_size<SIZE>::THREADS)
    product(const __grid_constant__ grouped_args h) {
  constexpr int M = fl_size<SIZE>::M, N = fl_size<SIZE>::N;
  constexpr int THREADS = fl_size<SIZE>::THREADS, LD = N + 8;
  extern __shared__ __align__(1024) unsigned char shared[];
  gemm_args a = h.g;
  place p;
  if (!grouped_tile<ROWS>(h, M, N, &a, &p))
    return;
  fl_matrix<M, THREADS, AK, FIT> am((const uint16_t *)a.a + p.a, p.row,
                                    AK ? a.am : a.ak, a.m - p.row, a.k);
  fl_matrix<N, THREADS, BK, FIT> bm((const uint16_t *)a.b + p.b, p.col,
                                    BK ? a.bn : a.bk, a.n - p.col, a.k);
  fl_tile_of<D, SIZE, AK, BK> tile;
  fl_multiply<fl_size<SIZE>::STAGES>(tile, am, bm, 0,
                                     (int)((a.k + FL_STEP - 1) / FL_STEP),
                                     fl_shared(shared));
  float *c = (float *)shared;
  tile.template put<LD>(c);
  gemm_store<D, M, N, LD, THREADS>(a, p, c);
}

template <int D, int R, int ROWS, int AK, int BK>
__global__ void __launch_bounds__(FL_SIMT)
    simt(const __grid_constant__ grouped_args h) {
  typedef fl_simt<D, R> Tile;
  typedef typename Tile::W W;
  extern __shared__ __align__(1024) unsigned char shared[];
  gemm_args a = h.g;
  place p;
  Tile tile;
  if (!grouped_tile<ROWS>(h, Tile::SIZE, Tile::SIZE, &a, &p))
    return;
  a.steps = (int)((a.k + FL_SIMT_STEP - 1) / FL_SIMT_STEP);
  simt_tile_at<AK, BK>(a, p, tile, shared);
  gemm_store<D, Tile::SIZE, Tile::SIZE, Tile::LINE, FL_SIMT>(a, p, (W *)shared);
}

/* --- what no tile writes: zeros, and a look at the ends --- */

inline void look_at_end(const grouped_args &h, int group) {
  int64_t end = h.ends[group];
  if (end < (group ? h.ends[group - 1] : 0) || end > h.total)
    fl_report(h.fault, end - 1, h.total);
}

/* Rows behind the last group. */
template <int D>
__global__ void __launch_bounds__(256)
    clear_rows(const __grid_constant__ grouped_args h) {
  int64_t at = fl_thread(), first = span_of(h, h.groups - 1).to * h.g.n;
  for (int64_t i = at; i < h.groups; i += fl_threads())
    look_at_end(h, (int)i);
  for (int64_t i = first + at; i < h.total * h.g.n; i += fl_threads())
    ((FL_S(D) *)h.g.c)[i] = FL_S(D){};
}

/* The matrices of empty groups; a block's x is its group. */
template <int D>
__global__ void __launch_bounds__(256)
    clear_sums(const __grid_constant__ grouped_args h) {
  int group = (int)blockIdx.x;
  int64_t size = h.g.m * h.g.n, step = (int64_t)gridDim.y * blockDim.x;
  span s = span_of(h, group);
  if (threadIdx.x == 0 && blockIdx.y == 0)
    look_at_end(h, group);
  if (s.to > s.from)
    return;
  for (int64_t i = (int64_t)blockIdx.y * blockDim.x + threadIdx.x; i < size;
       i += step)
    ((FL_S(D) *)h.g.c)[group * size + i] = FL_S(D){};
}
