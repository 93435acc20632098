/* Products of tiles for f32 and integers, where each thread has 4 x 4 or 8 x 8
 * elements of C, and for f64 on tensor cores. Operands may have any strides. */
#pragma once

#include "mma.cuh"

#define FL_SIMT_STEP   16 /* elements of the sum */
#define FL_SIMT_STAGES 3
#define FL_SIMT        256 /* threads */

/* What sums are made in: integers wrap. */
template <int D> struct fl_simt_type { typedef uint32_t W; };
template <> struct fl_simt_type<FL_F64> { typedef double W; };
template <> struct fl_simt_type<FL_F32> { typedef float W; };
template <> struct fl_simt_type<FL_F16> { typedef float W; };
template <> struct fl_simt_type<FL_BF16> { typedef float W; };
template <> struct fl_simt_type<FL_I64> { typedef uint64_t W; };
template <> struct fl_simt_type<FL_BOOL> { typedef uint64_t W; };

template <class W, class S> W fl_simt_get(S s) {
  return (W)s;
}
template <class W> W fl_simt_get(bool8 s) {
  return (W)(s.bits != 0);
}
template <class W> W fl_simt_get(f16 s) {
  return fl_f16_float(s.bits);
}
template <class W> W fl_simt_get(bf16 s) {
  return fl_get<W>(s);
}

/* What elements of A and B add to sums. */
struct fl_simt_product {
  template <class W> static W add(W sum, W a, W b) {
    return sum + a * b;
  }
};
struct fl_simt_square { /* of their difference */
  template <class W> static W add(W sum, W a, W b) {
    W d = a - b;
    return sum + d * d;
  }
};

/* C (SIZE, SIZE), SIZE = 64 * R; a warp has (16 R, 32 R) of it, as R x R pieces
 * of which a lane has 4 x 4. */
template <int D, int R, class Term> struct fl_simt_plain {
  typedef FL_S(D) S;
  typedef typename fl_simt_type<D>::W W;
  static constexpr int SIZE = 64 * R, LINE = SIZE + 4;
  static constexpr int STAGE = 2 * FL_SIMT_STEP * LINE; /* elements */
  W sum[R * 4][R * 4];
  int row, col; /* of its first piece */

  fl_simt_plain() {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    row = (warp & 3) * 16 * R + (lane >> 3) * 4;
    col = (warp >> 2) * 32 * R + (lane & 7) * 4;
#pragma unroll
    for (int i = 0; i < R * 4; i++)
#pragma unroll
      for (int j = 0; j < R * 4; j++)
        sum[i][j] = 0;
  }

  /* C into shared memory, rows of LINE. */
  void put(W *to) {
#pragma unroll
    for (int i = 0; i < R * 4; i++)
#pragma unroll
      for (int j = 0; j < R * 4; j += 4) {
        W *p = to + (row + (i >> 2) * 16 + (i & 3)) * LINE + col + j * 8;
        fl_write(p, fl_vec<W, 4>{sum[i][j], sum[i][j + 1], sum[i][j + 2],
                                 sum[i][j + 3]});
      }
  }

  /* The first N elements of a step. */
  template <int N = FL_SIMT_STEP> void step(const S *at) {
#pragma unroll
    for (int k = 0; k < N; k++) {
      W a[R * 4], b[R * 4];
#pragma unroll
      for (int i = 0; i < R; i++) {
        fl_vec<S, 4> x = fl_read<S, 4>(at + k * LINE + row + i * 16);
        fl_vec<S, 4> y =
            fl_read<S, 4>(at + (FL_SIMT_STEP + k) * LINE + col + i * 32);
#pragma unroll
        for (int e = 0; e < 4; e++) {
          a[i * 4 + e] = fl_simt_get<W>(x.at[e]);
          b[i * 4 + e] = fl_simt_get<W>(y.at[e]);
        }
      }
#pragma unroll
      for (int i = 0; i < R * 4; i++)
#pragma unroll
        for (int j = 0; j < R * 4; j++)
          sum[i][j] = Term::add(sum[i][j], a[i], b[j]);
    }
  }
};

template <int D, int R>
struct fl_simt : fl_simt_plain<D, R, fl_simt_product> {};

/* A warp has 2 R x 4 R pieces of 8 x 8. */
template <int R> struct fl_simt<FL_F64, R> {
  typedef double S, W;
  static constexpr int SIZE = 64 * R, LINE = SIZE + 4;
  static constexpr int STAGE = 2 * FL_SIMT_STEP * LINE; /* elements */
  double sum[R * 2][R * 4][2];
  int lane, row, col;

  fl_simt() {
    int warp = threadIdx.x >> 5;
    lane = threadIdx.x & 31;
    row = (warp & 3) * 16 * R;
    col = (warp >> 2) * 32 * R;
#pragma unroll
    for (int i = 0; i < R * 2; i++)
#pragma unroll
      for (int j = 0; j < R * 4; j++)
        sum[i][j][0] = sum[i][j][1] = 0;
  }

  void step(const double *at) {
    at += lane % 4 * LINE + lane / 4;
#pragma unroll
    for (int k = 0; k < FL_SIMT_STEP; k += 4) {
      double a[R * 2], b[R * 4];
#pragma unroll
      for (int i = 0; i < R * 2; i++)
        a[i] = at[k * LINE + row + i * 8];
#pragma unroll
      for (int j = 0; j < R * 4; j++)
        b[j] = at[(FL_SIMT_STEP + k) * LINE + col + j * 8];
#pragma unroll
      for (int i = 0; i < R * 2; i++)
#pragma unroll
        for (int j = 0; j < R * 4; j++)
          fl_mma(sum[i][j], a[i], b[j]);
    }
  }

  void put(double *to) {
#pragma unroll
    for (int i = 0; i < R * 2; i++)
#pragma unroll
      for (int j = 0; j < R * 4; j++)
        fl_write(to + (row + i * 8 + lane / 4) * LINE + col + j * 8 +
                     lane % 4 * 2,
                 fl_vec<double, 2>{sum[i][j][0], sum[i][j][1]});
  }
};

/* One element into shared memory, zero if not `valid`; `from` is an address all
 * the same. */
template <class S> void fl_copy_one(S *to, const S *from, bool valid) {
  if constexpr (sizeof(S) >= 4) {
    fl_copy_part<sizeof(S)>(fl_shared(to), from, valid ? sizeof(S) : 0);
  } else {
    S zero = {};
    *to = valid ? *from : zero;
  }
}

template <class Tile, class A, class B>
void fl_simt_multiply(Tile &t, A &a, B &b, int64_t begin, int64_t end,
                      typename Tile::S *shared) {
  constexpr int HALF = FL_SIMT_STEP * Tile::LINE;
#pragma unroll
  for (int s = 0; s < FL_SIMT_STAGES - 1; s++) {
    if (begin + s < end) {
      a.load(shared + s * Tile::STAGE, begin + s);
      b.load(shared + s * Tile::STAGE + HALF, begin + s);
    }
    fl_copy_commit();
  }
  int read = 0, write = FL_SIMT_STAGES - 1;
  for (int64_t step = begin; step < end; step++) {
    fl_copy_wait<FL_SIMT_STAGES - 2>();
    __syncthreads();
    int64_t next = step + FL_SIMT_STAGES - 1;
    if (next < end) {
      a.load(shared + write * Tile::STAGE, next);
      b.load(shared + write * Tile::STAGE + HALF, next);
    }
    fl_copy_commit();
    t.step(shared + read * Tile::STAGE);
    read = read + 1 == FL_SIMT_STAGES ? 0 : read + 1;
    write = write + 1 == FL_SIMT_STAGES ? 0 : write + 1;
  }
  fl_copy_wait<0>();
}

/* An operand (rows, k) with any strides; lanes run along k, or across it. */
template <class Tile, bool ALONG> struct fl_simt_matrix {
  typedef typename Tile::S S;
  const S *p;
  int64_t down, along, k;
  int rows;

  fl_simt_matrix(const void *at, int64_t skip, int64_t down, int64_t along,
                 int64_t left, int64_t k)
      : p((const S *)at + skip * down), down(down), along(along), k(k),
        rows(left < Tile::SIZE ? (int)left : Tile::SIZE) {
  }

  void load(S *to, int64_t step) {
    constexpr int EACH = Tile::SIZE * FL_SIMT_STEP / FL_SIMT;
    int64_t first = step * FL_SIMT_STEP;
    int steps = k - first < FL_SIMT_STEP ? (int)(k - first) : FL_SIMT_STEP;
    if (ALONG) {
      int q = threadIdx.x % FL_SIMT_STEP, r = threadIdx.x / FL_SIMT_STEP;
      const S *from = p + (first + q) * along + r * down;
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        constexpr int STRIDE = FL_SIMT / FL_SIMT_STEP;
        bool valid = q < steps && r + i * STRIDE < rows;
        fl_copy_one(to + q * Tile::LINE + r + i * STRIDE,
                    valid ? from + i * STRIDE * down : p, valid);
      }
    } else {
      int r = threadIdx.x % Tile::SIZE, q = threadIdx.x / Tile::SIZE;
      const S *from = p + (first + q) * along + r * down;
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        constexpr int STRIDE = FL_SIMT / Tile::SIZE;
        bool valid = r < rows && q + i * STRIDE < steps;
        fl_copy_one(to + (q + i * STRIDE) * Tile::LINE + r,
                    valid ? from + i * STRIDE * along : p, valid);
      }
    }
  }
};
