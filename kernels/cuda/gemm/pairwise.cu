/* How far rows of A are from columns of B, in the place of their products: sums
 * of squares of differences in the plain tiles, then roots. Digits that rows
 * have in common cost nothing, as they do where |a|^2 + |b|^2 - 2 a b is taken.
 */
#define FL_MATH 2
#include "gemm.cuh"

/* Roots outside are those of squares that were lost or too large. */
template <class W> bool lost(W root);
template <> inline bool lost(float root) {
  return root < 0x1p-50f || root > 0x1.fffffep127f;
}
template <> inline bool lost(double root) {
  return root < 0x1p-480 || root > 0x1.fffffffffffffp1023;
}

/* By the largest difference. All lanes come here, and with the same rows. */
template <class W, class S>
W far(int64_t k, const S *a, int64_t ak, const S *b, int64_t bk) {
  int64_t lane = threadIdx.x & 31;
  W most = 0, sum = 0;
  if (a == b && ak == bk) /* a row and itself */
    return 0;
#pragma unroll 1
  for (int64_t i = lane; i < k; i += 32) {
    W d = fl_get<W>(a[i * ak]) - fl_get<W>(b[i * bk]);
    d = d < 0 ? -d : d;
    most = d > most ? d : most;
  }
  most = fl_warp_reduce(most, fl_max_of());
  if (most == 0 || most - most != 0)
    return most;
#pragma unroll 1
  for (int64_t i = lane; i < k; i += 32) {
    W d = (fl_get<W>(a[i * ak]) - fl_get<W>(b[i * bk])) / most;
    sum += d * d;
  }
  return most * fl_sqrt(fl_warp_reduce(sum, fl_sum_of()));
}

/* The root of a sum of squares, of row `row` and column `col` of matrices that
 * begin at `a` and `b`, to element `at` of C. All lanes come here, `there` if
 * they have one. */
template <int D>
void root(const gemm_args &g, FL_W(D) sum, bool there, int64_t a, int64_t b,
          int64_t at) {
  typedef FL_S(D) S;
  typedef FL_W(D) W;
  W y = fl_sqrt(sum);
  for (uint32_t left = __ballot_sync(0xffffffff, there && lost(y)); left;
       left &= left - 1) {
    int which = __ffs(left) - 1;
    int64_t from = __shfl_sync(0xffffffff, a, which),
            to = __shfl_sync(0xffffffff, b, which);
    W d = far<W>(g.k, (const S *)g.a + from, g.ak, (const S *)g.b + to, g.bk);
    if ((threadIdx.x & 31) == which)
      y = d;
  }
  if (there)
    ((S *)g.c)[at] = fl_put<S>(y);
}

/* Steps of which but a few elements are there, as of points in space, have no
 * more than those. */
template <int D, int R> struct squares : fl_simt_plain<D, R, fl_simt_square> {
  typedef fl_simt_plain<D, R, fl_simt_square> plain;
  bool few;
  void step(const typename plain::S *at) {
    if (few)
      plain::template step<4>(at);
    else
      plain::step(at);
  }
};

template <int D, int R, int AK, int BK>
__global__ void __launch_bounds__(FL_SIMT)
    simt(const __grid_constant__ gemm_args a) {
  typedef squares<D, R> Tile;
  typedef typename Tile::W W;
  extern __shared__ __align__(1024) unsigned char shared[];
  Tile tile;
  tile.few = a.k <= 4;
  place p = simt_tile<AK, BK>(a, tile, shared);
  const W *c = (const W *)shared;
  int64_t first = p.matrix * a.m * a.n;
  W *part = (W *)a.part + p.split * a.batch * a.m * a.n;
  __syncthreads();
  for (int i = threadIdx.x; i < Tile::SIZE * Tile::SIZE; i += FL_SIMT) {
    int64_t row = p.row + i / Tile::SIZE, col = p.col + i % Tile::SIZE;
    W sum = c[i / Tile::SIZE * Tile::LINE + i % Tile::SIZE];
    int64_t at = first + row * a.n + col;
    bool there = row < a.m && col < a.n;
    if (!a.part)
      root<D>(a, sum, there, p.a + row * a.am, p.b + col * a.bn, at);
    else if (there)
      part[at] = sum;
  }
}

/* The sums of pieces. */
template <int D>
__global__ void __launch_bounds__(256)
    gather(const __grid_constant__ gemm_args a) {
  int64_t all = a.batch * a.m * a.n;
  for (int64_t at = fl_thread(); at - (threadIdx.x & 31) < all;
       at += fl_threads()) {
    FL_W(D) sum = 0;
    bool there = at < all;
    for (int s = 0; there && s < a.splits; s++)
      sum += ((const FL_W(D) *)a.part)[s * all + at];
    int64_t from, to;
    matrices_of(a, at / (a.m * a.n), &from, &to);
    root<D>(a, sum, there, from + at / a.n % a.m * a.am, to + at % a.n * a.bn,
            at);
  }
}
