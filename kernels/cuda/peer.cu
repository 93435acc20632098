/* Collectives over memory that the GPUs of one host have mapped of each other.
 *
 * Every rank writes its parts, one for all ranks or one for each, into its area
 * and then reads one part of each of some ranks. A block handles its own chunk
 * of the parts and synchronises with the blocks of the same number on the other
 * ranks, by words in their areas. Calls use the two halves of the areas in turn:
 * before a rank writes a half again it has synchronised with all ranks in the
 * call between, and these had then read what they needed of that half. Sums are
 * in the order of ranks and are rounded once (in the ring: from each part's own
 * rank on, at every step), so every run gives the same bits, and the same as on
 * the host. */
#include "peer.cuh"

#include "peer.h"

#define VEC(D)    (16 / (int)sizeof(FL_S(D)))
#define VECTOR(D) fl_vec<FL_S(D), 16 / (int)sizeof(FL_S(D))>

enum { MEAN = 1, MIN, MAX }; /* fl_comm_reduce */
enum { PATIENCE = 4096 };    /* looks at a word between looks at the time */
enum { AHEAD = 4 };          /* vectors that a thread reads before it writes */

/* --- meeting --- */

inline uint32_t *word_of(const peer_args &a, int area, int writer) {
  return (uint32_t *)a.area[area] + blockIdx.x * PEER_ROW + writer;
}

/* Until rank k has come to the phase; false: it is not to be waited for. */
inline bool await(const peer_args &a, int k, uint32_t phase) {
  const uint32_t *word = word_of(a, a.rank, k);
  uint64_t start = 0;
  for (int looks = 0; (int)(fl_word_get(word) - phase) < 0; looks++) {
    if (looks < PATIENCE)
      continue;
    looks = 0;
    uint64_t now = fl_nanoseconds();
    if (!start)
      start = now;
    if (now - start > (uint64_t)a.limit)
      *a.late = 1 + k;
    if (*a.stop || now - start > (uint64_t)a.limit)
      return false;
  }
  return true;
}

/* Says that this block has come so far, and waits for the others. */
inline bool meet(const peer_args &a, int phase) {
  int k = threadIdx.x;
  bool gone = false;
  __syncthreads();
  if (k < a.size && k != a.rank) {
    fl_word_set(word_of(a, k, a.rank), a.phase + phase);
    gone = !await(a, k, a.phase + phase);
  }
  return !__syncthreads_or(gone);
}

/* --- vectors of 16 bytes --- */

/* 16 bytes as one value: compilers would split other types into elements. */
typedef fl_vec<uint32_t, 4> whole;

inline whole fetch(const void *p) {
  return fl_read<uint32_t, 4>((const uint32_t *)p);
}
inline void put(void *p, const whole &v) {
  fl_write<uint32_t, 4>((uint32_t *)p, v);
}

template <int D> VECTOR(D) * peer_stage(const peer_args &a, int k) {
  return (VECTOR(D) *)(a.area[k] + PEER_STAGE + a.half * PEER_HALF);
}

/* Vector i of part k of the operand, with zeros behind its end. */
template <int D> VECTOR(D) peer_take(const peer_args &a, int k, int i) {
  const FL_S(D) *in = (const FL_S(D) *)a.in + k * a.step + (int64_t)i * VEC(D);
  int64_t left = a.n - (int64_t)i * VEC(D);
  if (left >= VEC(D) && ((uintptr_t)in & 15) == 0)
    return fl_read<FL_S(D), VEC(D)>(in);
  VECTOR(D) v;
#pragma unroll
  for (int j = 0; j < VEC(D); j++)
    v.at[j] = j < left ? in[j] : FL_S(D){};
  return v;
}

/* Of part k of the result. */
template <int D>
void peer_give(const peer_args &a, int k, int i, const VECTOR(D) & v) {
  FL_S(D) *out = (FL_S(D) *)a.out + k * a.step + (int64_t)i * VEC(D);
  int64_t left = a.n - (int64_t)i * VEC(D);
  if (left >= VEC(D) && ((uintptr_t)out & 15) == 0)
    return fl_write<FL_S(D), VEC(D)>(out, v);
#pragma unroll
  for (int j = 0; j < VEC(D); j++)
    if (j < left)
      out[j] = v.at[j];
}

/* write(i, read(i)) for from..to - 1. What is written may be what is read next,
 * for all that a compiler knows: so some are read by name. */
template <class R, class W> void peer_each(int from, int to, R read, W write) {
  int step = blockDim.x;
  for (int i = from + threadIdx.x; i < to; i += AHEAD * step) {
    whole v[AHEAD];
#pragma unroll
    for (int j = 0; j < AHEAD; j++)
      if (i + j * step < to)
        v[j] = read(i + j * step);
#pragma unroll
    for (int j = 0; j < AHEAD; j++)
      if (i + j * step < to)
        write(i + j * step, v[j]);
  }
}

template <int D>
void peer_combine(const peer_args &a, FL_W(D) * sum, const VECTOR(D) & v) {
#pragma unroll
  for (int j = 0; j < VEC(D); j++) {
    FL_W(D) x = fl_get<FL_W(D)>(v.at[j]);
    sum[j] = a.reduce == MIN   ? fl_min_of()(sum[j], x)
             : a.reduce == MAX ? fl_max_of()(sum[j], x)
                               : sum[j] + x;
  }
}

template <int D>
VECTOR(D)
peer_rounded(const peer_args &a, FL_W(D) * sum, bool last) {
  VECTOR(D) v;
#pragma unroll
  for (int j = 0; j < VEC(D); j++) {
    if (a.reduce == MEAN && last)
      sum[j] /= (FL_W(D))a.size;
    v.at[j] = fl_put<FL_S(D)>(sum[j]);
  }
  return v;
}

/* Vector i of all ranks, reduced. N: at least as many as there are. */
template <int D, int N> VECTOR(D) peer_folded(const peer_args &a, int i) {
  VECTOR(D) v[N];
  FL_W(D) sum[VEC(D)];
#pragma unroll
  for (int k = 0; k < N; k++)
    if (k < a.size)
      v[k] = peer_stage<D>(a, k)[i];
#pragma unroll
  for (int j = 0; j < VEC(D); j++)
    sum[j] = fl_get<FL_W(D)>(v[0].at[j]);
#pragma unroll
  for (int k = 1; k < N; k++)
    if (k < a.size)
      peer_combine<D>(a, sum, v[k]);
  return peer_rounded<D>(a, sum, true);
}

/* --- the block's chunk: vectors from..to - 1 of a part's `all`; in shares,
 * one for each rank, where ranks work for each other --- */

struct chunk {
  int from, to, all, share;
};

template <int D> chunk chunk_of(const peer_args &a) {
  int64_t all = (a.n + VEC(D) - 1) / VEC(D);
  chunk c;
  c.all = (int)all;
  c.from = (int)(all * blockIdx.x / gridDim.x);
  c.to = (int)(all * (blockIdx.x + 1) / gridDim.x);
  c.share = (c.to - c.from + a.size - 1) / a.size;
  return c;
}

/* Up to here the chunk's vectors are whole ones of this part of an operand, on
 * 16 bytes. */
template <int D>
int whole_to(const peer_args &a, const chunk &c, const void *part) {
  return (uintptr_t)part & 15 ? c.from : min(c.to, (int)(a.n / VEC(D)));
}

template <int D> void peer_bring(const peer_args &a, const chunk &c) {
  if (threadIdx.x == 0 && blockIdx.x == 0)
    *a.begun = a.phase + 1;
  VECTOR(D) *mine = peer_stage<D>(a, a.rank);
  for (int k = 0; k < a.parts; k++, mine += c.all) {
    const FL_S(D) *in = (const FL_S(D) *)a.in + k * a.step;
    int until = whole_to<D>(a, c, in);
    peer_each(
        c.from, until, [&](int i) { return fetch(in + (int64_t)i * VEC(D)); },
        [&](int i, const whole &v) { put(mine + i, v); });
    for (int i = until + threadIdx.x; i < c.to; i += blockDim.x)
      mine[i] = peer_take<D>(a, k, i);
  }
}

/* Share k: its first vector, and the one behind its last. */
inline int first_of(const chunk &c, int k) {
  return c.from + k * c.share;
}
inline int last_of(const chunk &c, int k) {
  return min(c.to, first_of(c, k + 1));
}

/* --- the algorithms --- */

/* Each rank reduces the part that is its result; without a result, nothing. */
template <int D, int N>
__global__ void __launch_bounds__(PEER_THREADS)
    one_shot(const __grid_constant__ peer_args a) {
  chunk c = chunk_of<D>(a);
  peer_bring<D>(a, c);
  if (!meet(a, 1) || a.to == 0)
    return;
  for (int i = c.from + threadIdx.x; i < c.to; i += blockDim.x)
    peer_give<D>(a, 0, i, peer_folded<D, N>(a, a.part * c.all + i));
}

/* Each rank gets the parts of the ranks from..to - 1, side by side. If these are
 * all ranks, each begins with a different one: a GPU that all others read at
 * once serves each of them slowly. */
template <int D>
__global__ void __launch_bounds__(PEER_THREADS)
    moved(const __grid_constant__ peer_args a) {
  chunk c = chunk_of<D>(a);
  peer_bring<D>(a, c);
  if (!meet(a, 1))
    return;
  int length = c.to - c.from, n = a.to - a.from;
  auto part_of = [&](int i) { return (i / length + a.rank) % n; };
  peer_each(
      0, length * n,
      [&](int i) {
        return fetch(peer_stage<D>(a, a.from + part_of(i)) + a.part * c.all +
                     c.from + i % length);
      },
      [&](int i, const whole &v) {
        VECTOR(D) bytes;
        memcpy(&bytes, &v, sizeof v);
        peer_give<D>(a, part_of(i), c.from + i % length, bytes);
      });
}

/* Each rank reduces its share in place, and then reads all shares, beginning
 * with its own. */
template <int D, int N>
__global__ void __launch_bounds__(PEER_THREADS)
    two_shot(const __grid_constant__ peer_args a) {
  chunk c = chunk_of<D>(a);
  peer_bring<D>(a, c);
  if (!meet(a, 1))
    return;
  VECTOR(D) *mine = peer_stage<D>(a, a.rank);
  for (int i = first_of(c, a.rank) + threadIdx.x; i < last_of(c, a.rank);
       i += blockDim.x)
    mine[i] = peer_folded<D, N>(a, i);
  if (!meet(a, 2))
    return;
  int until = whole_to<D>(a, c, a.out), length = until - c.from;
  int first = min(first_of(c, a.rank), until);
  auto place_of = [&](int i) {
    int at = first + i;
    return at < until ? at : at - length;
  };
  auto there = [&](int i) { return peer_stage<D>(a, (i - c.from) / c.share) + i; };
  peer_each(
      0, length, [&](int i) { return fetch(there(place_of(i))); },
      [&](int i, const whole &v) {
        put((FL_S(D) *)a.out + (int64_t)place_of(i) * VEC(D), v);
      });
  for (int i = until + threadIdx.x; i < c.to; i += blockDim.x)
    peer_give<D>(a, 0, i, *there(i));
}

/* Shares go around, each summed from its own rank on, and around again whole.
 */
template <int D>
__global__ void __launch_bounds__(PEER_THREADS)
    ring(const __grid_constant__ peer_args a) {
  chunk c = chunk_of<D>(a);
  int n = a.size, left = (a.rank + n - 1) % n, phase = 1;
  VECTOR(D) *mine = peer_stage<D>(a, a.rank);
  const VECTOR(D) *theirs = peer_stage<D>(a, left);
  peer_bring<D>(a, c);
  for (int t = 0; t < n - 1; t++) {
    if (!meet(a, phase++))
      return;
    int k = (left + n - t) % n;
    for (int i = first_of(c, k) + threadIdx.x; i < last_of(c, k);
         i += blockDim.x) {
      FL_W(D) sum[VEC(D)];
      VECTOR(D) v = theirs[i];
#pragma unroll
      for (int j = 0; j < VEC(D); j++)
        sum[j] = fl_get<FL_W(D)>(v.at[j]);
      peer_combine<D>(a, sum, mine[i]);
      mine[i] = peer_rounded<D>(a, sum, t == n - 2);
    }
  }
  for (int t = 0; t < n - 1; t++) {
    if (!meet(a, phase++))
      return;
    int k = (a.rank + n - t) % n;
    for (int i = first_of(c, k) + threadIdx.x; i < last_of(c, k);
         i += blockDim.x)
      mine[i] = theirs[i];
  }
  __syncthreads();
  for (int i = c.from + threadIdx.x; i < c.to; i += blockDim.x)
    peer_give<D>(a, 0, i, mine[i]);
}
