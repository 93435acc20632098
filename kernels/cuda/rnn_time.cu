/* An LSTM over time in one launch (Diamos et al. 2016, "Persistent RNNs").
 * Every block keeps its columns of the weight in shared memory; blocks exchange
 * a step's results word by word, so none waits for a whole step. A warp
 * computes U groups of four columns for S sequences, its lanes divide the inner
 * dim. Forward, the four columns are one unit's gates; backward they are four
 * units. Sums are in float and in a fixed order. The lowest bit of exchanged
 * states and gradients marks the turn in which they were written. */
#include "device/mailbox.cuh"

#include "rnn_time.h"

#define FOR(i, n) _Pragma("unroll") for (int i = 0; i < (n); i++)

/* One turn's words, and their lowest bit. */
struct posting {
  uint32_t *slot;
  uint32_t bit;

  bool missing(const fl_words &v, int left) const {
    bool some = false;
    FOR(j, 4) {
      some |= j < left && (v.at[j] & 1) != bit;
    }
    return some;
  }
};

template <int D, int U, int S> struct worker {
  enum {
    N = U * 4 * S,
    PER = N < 32 ? 1 : N / 32,
    TWICE = N < 32 ? 32 / N : 1
  };
  typedef fl_vec<FL_S(D), 4> four;
  typedef fl_vec<float, 4> plane;

  const rnn_time_args &a;
  plane *staged; /* (tall S / 4, chunk): of four sequences each */
  four *weight;  /* (groups, depth) */
  int lane, group, block_group, first, block_first;
  bool works; /* other warps only help to stage */
  float sum[N];

  worker(const rnn_time_args &args, void *room)
      : a(args), staged((plane *)room), lane(threadIdx.x % 32) {
    int warp = threadIdx.x / 32;
    works = warp < a.wide * a.tall;
    weight = (four *)(staged + a.tall * (S / 4) * a.chunk);
    block_group = blockIdx.x % a.parts * a.wide * U;
    group = warp % a.wide * U;
    block_first = blockIdx.x / a.parts * a.tall * S;
    first = warp / a.wide * S;
  }

  /* Column c of group g of the block, at k of the sum: of weight (4 n, n). */
  template <bool FORWARD> void keep(const void *from) {
    const FL_S(D) *w = (const FL_S(D) *)from;
    int64_t n = a.n;
    for (int i = threadIdx.x; i < a.wide * U * a.depth; i += blockDim.x) {
      int g = block_group + i / a.depth, k = i % a.depth;
      four v;
      FOR(c, 4) {
        int unit = FORWARD ? g : g * 4 + c;
        int64_t at = FORWARD ? (c * n + unit) * n + k : k * n + unit;
        v.at[c] = unit < n ? w[at] : fl_put<FL_S(D)>(0.0f);
      }
      weight[i] = v;
    }
  }

  /* Sequences beyond the last are read where the last one is. */
  int sequence(int i) const {
    int s = block_first + i;
    return s < a.batch ? s : a.batch - 1;
  }

  /* `count` elements from k on of each sequence, out of the state it begins
   * with. */
  void stage(const FL_S(D) * state, int k, int count) {
    int all = a.tall * (S / 4) * count;
    for (int i = threadIdx.x; i < all; i += blockDim.x) {
      int p = i / count, at = i - p * count;
      plane v;
      FOR(j, 4) {
        v.at[j] = fl_get<float>(
            state[(int64_t)sequence(p * 4 + j) * a.depth + k + at]);
      }
      staged[p * a.chunk + at] = v;
    }
  }

  /* The same of what was posted, as soon as it is there. The first of a thread
   * is looked for alone: what is asked for in vain keeps others from posting.
   */
  void stage(const posting &from, int k, int count) {
    enum { AHEAD = U * S > 16 ? 4 : 8 };
    int all = a.tall * (S / 4) * count, threads = blockDim.x;
    for (int i = threadIdx.x; i < all; i += AHEAD * threads) {
      const uint32_t *word[AHEAD];
      int left[AHEAD]; /* sequences there are of the four */
      fl_words v[AHEAD];
      bool missing;
      FOR(u, AHEAD) {
        int e = i + u * threads, p = e / count, first = block_first + p * 4;
        left[u] = e < all ? a.batch - first : 0;
        word[u] =
            from.slot + ((int64_t)first * a.depth + (k + e - p * count) * 4);
        v[u] = {};
      }
      do
        v[0] = left[0] > 0 ? fl_peek(word[0]) : v[0];
      while (from.missing(v[0], left[0]));
      FOR(u, AHEAD) {
        if (u > 0 && left[u] > 0)
          v[u] = fl_peek(word[u]);
      }
      do {
        missing = false;
        FOR(u, AHEAD) {
          if (from.missing(v[u], left[u])) {
            v[u] = fl_peek(word[u]);
            missing = true;
          }
        }
      } while (missing);
      FOR(u, AHEAD) {
        int e = i + u * threads;
        if (e < all) {
          int p = e / count;
          plane x;
          FOR(j, 4) {
            x.at[j] = fl_posted(v[u].at[j]);
          }
          staged[p * a.chunk + e - p * count] = x;
        }
      }
    }
  }

  void add(int k, int count) {
    const four *w = weight + (int64_t)group * a.depth + k;
    const plane *x = staged + first / 4 * a.chunk;
#pragma unroll 2
    for (int i = lane; i < count; i += 32) {
      plane s[S / 4];
      FOR(p, S / 4) {
        s[p] = fl_read<float, 4>(x[p * a.chunk + i].at);
      }
      FOR(u, U) {
        four v = fl_read<FL_S(D), 4>(w[u * a.depth + i].at);
        FOR(c, 4) {
          FOR(j, S) {
            sum[(u * 4 + c) * S + j] +=
                fl_get<float>(v.at[c]) * s[j / 4].at[j % 4];
          }
        }
      }
    }
  }

  /* The lanes' shares together: element i is then sum[i % PER] of lane
   * i / PER * TWICE. */
  void meet() {
    int half = N / 2;
    FOR(step, 5) {
      int m = 16 >> step;
      bool up = lane & m;
      if (half == 0)
        sum[0] += __shfl_xor_sync(0xffffffff, sum[0], m);
      FOR(i, N / 2) {
        if (i < half) {
          float mine = up ? sum[i + half] : sum[i];
          float other = up ? sum[i] : sum[i + half];
          sum[i] = mine + __shfl_xor_sync(0xffffffff, other, m);
        }
      }
      half /= 2;
    }
  }

  float element(int i) const {
    float x = 0;
    FOR(k, PER) {
      float y = __shfl_sync(0xffffffff, sum[k], i / PER * TWICE);
      x = i % PER == k ? y : x;
    }
    return x;
  }

  template <class From> void product(From from) {
    FOR(i, N) {
      sum[i] = 0;
    }
    for (int k = 0; k < a.depth; k += a.chunk) {
      int count = a.depth - k < a.chunk ? a.depth - k : a.chunk;
      __syncthreads();
      stage(from, k, count);
      __syncthreads();
      if (works)
        add(k, count);
    }
    if (works)
      meet();
  }

  int64_t step(int k) const { /* (time, batch) as rows: the first of step k's */
    return (int64_t)(a.reverse ? a.time - 1 - k : k) * a.batch;
  }

  /* What is posted at the turn: two of them share the memory alternately. A
   * block that posts one has received all of the one before, whose writers had
   * read what was there. (planes of four sequences, depth, 4). */
  posting at(int turn) const {
    int64_t size = (int64_t)(a.batch + 3) / 4 * 4 * a.depth;
    return {a.posted + (turn & 1) * size, (uint32_t)(~turn >> 1 & 1)};
  }

  static float load(const void *p, int64_t i) {
    return p ? fl_get<float>(((const FL_S(D) *)p)[i]) : 0;
  }

  static void save(void *p, int64_t i, float x) {
    ((FL_S(D) *)p)[i] = fl_put<FL_S(D)>(x);
  }

  void post(const posting &to, int64_t row, int64_t column, float x) {
    int64_t plane = row / 4 * 4;
    fl_post(to.slot + plane * a.depth + column * 4 + row % 4, x, to.bit);
  }
};

/* gates, weight, h, c -> y, cs, act */
template <int D, int U, int S>
__global__ void __launch_bounds__(RNN_TIME_WARPS(U, S) * 32)
    forward(const __grid_constant__ rnn_time_args a) {
  extern __shared__ uint4 room[];
  worker<D, U, S> w(a, room);
  w.template keep<true>(a.in[1]);
  int pair = w.lane < U * S ? w.lane : 0, u = pair / S, s = pair % S;
  int64_t n = a.n, unit = w.block_group + w.group + u,
          row = w.block_first + w.first + s;
  bool mine = w.works && w.lane < U * S && unit < n && row < a.batch;
  float c = mine ? w.load(a.in[3], row * n + unit) : 0;
  for (int k = 0; k < a.time; k++) {
    int64_t at = (w.step(k) + row) * n + unit;
    int64_t gates = (w.step(k) + row) * 4 * n + unit;
    float g[4];
    FOR(i, 4) {
      g[i] = mine ? w.load(a.in[0], gates + i * n) : 0;
    }
    if (k == 0)
      w.product((const FL_S(D) *)a.in[2]);
    else
      w.product(w.at(k - 1));
    FOR(i, 4) {
      g[i] += w.element((u * 4 + i) * S + s);
    }
    if (mine) {
      FOR(i, 4) {
        g[i] = i == 2 ? fl_tanh(g[i]) : fl_sigmoid(g[i]);
      }
      c = g[1] * c + g[0] * g[2];
      float h = g[3] * fl_tanh(c);
      w.post(w.at(k), row, unit, h);
      w.save(a.out[0], at, h);
      w.save(a.out[1], at, c);
      FOR(i, 4) {
        w.save(a.out[2], gates + i * n, g[i]);
      }
    }
  }
}

/* dy, dcs, dact, weight, c, cs, act -> dgates, dh, dc */
template <int D, int U, int S>
__global__ void __launch_bounds__(RNN_TIME_WARPS(U, S) * 32)
    backward(const __grid_constant__ rnn_time_args a) {
  extern __shared__ uint4 room[];
  typedef worker<D, U, S> W;
  W w(a, room);
  w.template keep<false>(a.in[3]);
  int64_t n = a.n, unit[W::PER], row[W::PER];
  bool mine[W::PER];
  float dc[W::PER];
  FOR(i, W::PER) {
    int e = w.lane / W::TWICE * W::PER + i;
    unit[i] = (w.block_group + w.group) * 4 + e / S;
    row[i] = w.block_first + w.first + e % S;
    mine[i] =
        w.works && w.lane % W::TWICE == 0 && unit[i] < n && row[i] < a.batch;
    dc[i] = 0;
  }
  FOR(i, W::N) {
    w.sum[i] = 0;
  }
  for (int k = a.time - 1; k >= 0; k--) {
    float dh[W::PER], c[W::PER], c2[W::PER], act[W::PER][4], more[W::PER][4];
    FOR(i, W::PER) {
      if (mine[i]) {
        int64_t at = (w.step(k) + row[i]) * n + unit[i];
        int64_t gates = (w.step(k) + row[i]) * 4 * n + unit[i];
        dh[i] = w.load(a.in[0], at);
        dc[i] += w.load(a.in[1], at);
        c[i] = k ? w.load(a.in[5], (w.step(k - 1) + row[i]) * n + unit[i])
                 : w.load(a.in[4], row[i] * n + unit[i]);
        c2[i] = w.load(a.in[5], at);
        FOR(j, 4) {
          more[i][j] = w.load(a.in[2], gates + j * n);
          act[i][j] = w.load(a.in[6], gates + j * n);
        }
      }
    }
    int turn = a.time - 1 - k;
    if (turn > 0)
      w.product(w.at(turn - 1));
    FOR(i, W::PER) {
      if (mine[i]) {
        int64_t gates = (w.step(k) + row[i]) * 4 * n + unit[i];
        float *g = act[i], *m = more[i];
        float t = fl_tanh(c2[i]), d = dh[i] + w.sum[i];
        float x = dc[i] + d * g[3] * (1 - t * t);
        m[0] = (x * g[2] + m[0]) * g[0] * (1 - g[0]);
        m[1] = (x * c[i] + m[1]) * g[1] * (1 - g[1]);
        m[2] = (x * g[0] + m[2]) * (1 - g[2] * g[2]);
        m[3] = (d * t + m[3]) * g[3] * (1 - g[3]);
        FOR(j, 4) {
          w.post(w.at(turn), row[i], j * n + unit[i], m[j]);
        }
        FOR(j, 4) {
          w.save(a.out[0], gates + j * n, m[j]);
        }
        dc[i] = x * g[1];
      }
    }
  }
  w.product(w.at(a.time - 1));
  FOR(i, W::PER) {
    if (mine[i]) {
      w.save(a.out[1], row[i] * n + unit[i], w.sum[i]);
      w.save(a.out[2], row[i] * n + unit[i], dc[i]);
    }
  }
}
