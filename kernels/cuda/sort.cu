/* sort and topk. Comparisons are of keys made from the elements, which order as
 * the values do (NaN greatest, -0 equal to 0); equal keys keep the order of
 * their positions. Short rows: bitonic networks in shared memory. A few
 * elements of long rows: selection digit by digit, in pieces. Long rows: radix
 * sort from the lowest byte, one kernel a pass. */
#include "device/divisor.cuh"
#include "sort.h"

#define SIZE(D) ((int)sizeof(FL_S(D)))
#define BITS(D) FL_BITS(SIZE(D))
#define KEY(D)  FL_BITS(SIZE(D) == 8 ? 8 : 4)

/* The bits of key and sign: as many as the element has. */
template <int D> KEY(D) key_of(BITS(D) u, int down) {
  typedef KEY(D) K;
  const K sign = K(1) << (8 * SIZE(D) - 1), all = sign | (sign - 1);
  K k = u;
  if (D == FL_F64 || D == FL_F32 || D == FL_F16 || D == FL_BF16) {
    const K inf = D == FL_F64   ? K(0x7ffull << 52)
                  : D == FL_F32 ? K(0x7f800000)
                  : D == FL_F16 ? K(0x7c00)
                                : K(0x7f80);
    bool nan = (k & (sign - 1)) > inf;
    k = k == sign ? 0 : k;
    k = nan ? all : k & sign ? k ^ all : k | sign;
  } else if (D == FL_BOOL) {
    k = k != 0;
  } else if (D != FL_U8) {
    k ^= sign;
  }
  return down ? k ^ all : k;
}

/* A key and the position that decides between equal ones. */
template <class K> struct word;
template <> struct word<uint32_t> {
  uint64_t v;
  void set(uint32_t key, uint32_t at) {
    v = (uint64_t)key << 32 | at;
  }
  uint32_t at() const {
    return (uint32_t)v;
  }
  bool operator<(const word &o) const {
    return v < o.v;
  }
};
template <> struct word<uint64_t> {
  uint64_t key, low;
  void set(uint64_t k, uint32_t at) {
    key = k, low = at;
  }
  uint32_t at() const {
    return (uint32_t)low;
  }
  bool operator<(const word &o) const {
    return key < o.key || (key == o.key && low < o.low);
  }
};

template <int D> __global__ void rows(const __grid_constant__ rows_args a) {
  typedef word<KEY(D)> W;
  extern __shared__ __align__(16) unsigned char shared[];
  W *w = (W *)shared;
  const BITS(D) *x = (const BITS(D) *)a.x, *origin = (const BITS(D) *)a.origin;
  int all = a.room * a.per, mask = a.room - 1, shift = 31 - __clz(a.room);
  int64_t first = (int64_t)blockIdx.x * a.per;
  for (int i = threadIdx.x; i < all; i += blockDim.x) {
    int64_t row = first + (i >> shift), c = i & mask;
    W one;
    one.set(~KEY(D)(0), ~0u); /* behind everything */
    if (row < a.rows && c < a.n)
      one.set(key_of<D>(x[row * a.n + c], a.down),
              a.from ? a.from[row * a.n + c] : (uint32_t)c);
    w[i] = one;
  }
  for (int size = 2; size <= a.room; size *= 2)
    for (int j = size / 2; j > 0; j /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < all / 2; i += blockDim.x) {
        int low = 2 * i - (i & (j - 1)), high = low + j;
        bool up = (low & size & mask) == 0;
        W u = w[low], v = w[high];
        if ((v < u) == up) {
          w[low] = v;
          w[high] = u;
        }
      }
    }
  __syncthreads();
  for (int i = threadIdx.x; i < all; i += blockDim.x) {
    int64_t row = first + (i >> shift), c = i & mask;
    if (row >= a.rows || c >= a.k)
      continue;
    uint32_t at = w[i].at();
    if (a.values)
      ((BITS(D) *)a.values)[row * a.k + c] = origin[row * a.whole + at];
    a.indices[row * a.k + c] = at + a.base;
  }
}

/* Which digit the wanted element number `need` (from 1) has, how many are in
 * lower ones and how many have it; by one warp. */
struct found {
  int digit, below, here;
};
inline void find_digit(const uint32_t *count, int need, found *f) {
  int lane = threadIdx.x, mine = 0;
  for (int i = 0; i < 8; i++)
    mine += count[lane * 8 + i];
  int sum = mine;
#pragma unroll
  for (int k = 1; k < 32; k *= 2) {
    int other = __shfl_up_sync(0xffffffff, sum, k);
    sum += lane >= k ? other : 0;
  }
  int below = sum - mine;
  if (below >= need || sum < need)
    return; /* exactly one lane goes on */
  int d = lane * 8;
  while (below + (int)count[d] < need)
    below += count[d++];
  f->digit = d;
  f->below = below;
  f->here = count[d];
}

/* Digits of keys from the highest, then those of positions, until what shares
 * the digits so far is exactly what is wanted. */
template <int D> __global__ void select(const __grid_constant__ select_args a) {
  const int THREADS = 512, ITEMS = SORT_PIECE / THREADS;
  __shared__ uint32_t count[SORT_DIGITS];
  __shared__ found f;
  __shared__ unsigned kept;
  typedef KEY(D) K;
  int64_t row = blockIdx.x / a.pieces, piece = blockIdx.x % a.pieces;
  int64_t begin = a.n * piece / a.pieces, end = a.n * (piece + 1) / a.pieces;
  const BITS(D) *x = (const BITS(D) *)a.x + row * a.n;
  const uint32_t *from = a.from ? a.from + row * a.n : nullptr;
  K key[ITEMS];
  uint32_t alive = 0, chosen = 0;
#pragma unroll
  for (int j = 0; j < ITEMS; j++) {
    int64_t i = begin + j * THREADS + threadIdx.x;
    bool in = i < end;
    key[j] = key_of<D>(in ? x[i] : BITS(D)(0), a.down);
    alive |= (uint32_t)in << j;
  }
  int need = a.k;
  if (threadIdx.x == 0)
    kept = 0;
  for (int pass = 0;; pass++) {
    int low = 8 * (SIZE(D) + 3 - pass); /* shift of positions, when >= 0 */
    auto digit = [&](int j) -> uint32_t {
      if (pass < SIZE(D))
        return (uint32_t)(key[j] >> (low - 32)) & 255;
      int64_t i = begin + j * THREADS + threadIdx.x;
      return ((from ? from[i] : (uint32_t)i) >> low) & 255;
    };
    if (threadIdx.x < SORT_DIGITS)
      count[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ITEMS; j++)
      if (alive >> j & 1)
        atomicAdd(&count[digit(j)], 1u);
    __syncthreads();
    if (threadIdx.x < 32)
      find_digit(count, need, &f);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
      if (!(alive >> j & 1))
        continue;
      int d = digit(j);
      chosen |= (uint32_t)(d < f.digit) << j;
      alive ^= (uint32_t)(d != f.digit) << j;
    }
    need -= f.below;
    if (f.here == need)
      break;
    __syncthreads(); /* f is still read */
  }
  chosen |= alive;
#pragma unroll
  for (int j = 0; j < ITEMS; j++) {
    if (!(chosen >> j & 1))
      continue;
    int64_t i = begin + j * THREADS + threadIdx.x;
    int64_t to = (int64_t)blockIdx.x * a.k + atomicAdd(&kept, 1u);
    ((BITS(D) *)a.to)[to] = x[i];
    a.at[to] = from ? from[i] : (uint32_t)i;
  }
}

/* --- radix sort --- */

/* How often each digit comes in each row, for all passes at once. */
template <int D>
__global__ void __launch_bounds__(SORT_THREADS)
    count(const __grid_constant__ radix_args a) {
  const int EACH = 8;
  __shared__ uint32_t part[SIZE(D)][SORT_DIGITS];
  int t = threadIdx.x;
  int64_t row = blockIdx.x / a.chunks, chunk = blockIdx.x % a.chunks;
  int64_t begin = a.n * chunk / a.chunks, end = a.n * (chunk + 1) / a.chunks;
  const BITS(D) *x = (const BITS(D) *)a.x + row * a.n;
  for (int p = 0; p < SIZE(D); p++)
    part[p][t] = 0;
  __syncthreads();
#pragma unroll 1
  for (int64_t first = begin + t; first < end; first += EACH * SORT_THREADS) {
    BITS(D) v[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      int64_t i = first + j * SORT_THREADS;
      v[j] = x[i < end ? i : begin];
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      KEY(D) key = key_of<D>(v[j], a.down);
      if (first + j * SORT_THREADS < end)
#pragma unroll
        for (int p = 0; p < SIZE(D); p++)
          if (p < a.passes)
            atomicAdd(&part[p][(key >> 8 * p) & 255], 1u);
    }
  }
  __syncthreads();
  for (int p = 0; p < a.passes; p++)
    if (part[p][t])
      atomicAdd(&a.totals[(p * a.rows + row) * SORT_DIGITS + t], part[p][t]);
}

/* Sums of what is before, over all threads of the block; `total` gets the sum
 * of all. `part` has room for 32. */
inline uint32_t block_before(uint32_t v, uint32_t *part, uint32_t *total) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  uint32_t sum = v;
#pragma unroll
  for (int k = 1; k < 32; k *= 2) {
    uint32_t other = __shfl_up_sync(0xffffffff, sum, k);
    sum += lane >= k ? other : 0;
  }
  __syncthreads();
  if (lane == 31)
    part[warp] = sum;
  __syncthreads();
  uint32_t before = 0, all = 0;
  for (int w = 0; w < warps; w++) {
    before += w < warp ? part[w] : 0;
    all += part[w];
  }
  *total = all;
  return before + sum - v;
}

/* The word that a tile publishes for a digit: its count in the tile, or in all
 * tiles up to it. Words of earlier passes are less than those. */
inline uint64_t published(int pass, bool all, uint32_t count) {
  return (uint64_t)(2 * pass + 1 + all) << 56 | count;
}

/* The count of this thread's digit in the tiles of the row before `tile`; also
 * publishes the count up to this tile. `words` are the row's. */
inline uint32_t look_back(uint64_t *words, int64_t tile, int pass,
                          uint32_t here) {
  volatile uint64_t *word = words + threadIdx.x;
  uint32_t before = 0;
  for (int64_t k = tile - 1; k >= 0; k--) {
    uint64_t w;
    do
      w = word[k * SORT_DIGITS];
    while (w < published(pass, false, 0));
    before += (uint32_t)w;
    if (w >= published(pass, true, 0))
      break;
  }
  word[tile * SORT_DIGITS] = published(pass, true, before + here);
  return before;
}

/* How many of the warp's elements with this lane's digit come before it.
 * `count` has those of earlier rounds, and gets this round's. */
inline uint32_t rank_in_warp(uint32_t *count, uint32_t digit, bool in) {
  int lane = threadIdx.x & 31;
  uint32_t first = 0, peers = __ballot_sync(0xffffffff, in);
#pragma unroll
  for (int b = 0; b < 8; b++) {
    uint32_t with = __ballot_sync(0xffffffff, digit >> b & 1);
    peers &= digit >> b & 1 ? with : ~with;
  }
  int leader = peers ? __ffs(peers) - 1 : lane;
  if (in && lane == leader) {
    first = count[digit];
    count[digit] = first + __popc(peers);
  }
  __syncwarp();
  return __shfl_sync(0xffffffff, first, leader) +
         __popc(peers & ((1u << lane) - 1));
}

/* Ranks within the tile are stable: a warp has consecutive elements and takes
 * 32 of them at a time. The tile is put in order in shared memory first, so
 * that writes go out in runs. Blocks take tiles in order, so what a block waits
 * for is under way (Merrill and Garland 2016; Adinets and Merrill 2022). */
template <int D>
__global__ void __launch_bounds__(SORT_THREADS, 4)
    spread(const __grid_constant__ radix_args a) {
  const int WARPS = SORT_THREADS / 32, TILE = SORT_TILE(SIZE(D));
  const int ITEMS = TILE / SORT_THREADS;
  __shared__ uint32_t part[WARPS][SORT_DIGITS]; /* then: place of a warp's */
  __shared__ uint32_t target[SORT_DIGITS];      /* less the place in the tile */
  __shared__ uint32_t scan[32];
  __shared__ BITS(D) value[TILE];
  __shared__ uint32_t at[TILE];
  __shared__ uint32_t ticket;
  int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  if (t == 0)
    ticket = atomicAdd(&a.tickets[a.pass], 1u);
  __syncthreads();
  int64_t row = ticket / a.tiles, tile = ticket % a.tiles;
  uint64_t *words = a.words + row * a.tiles * SORT_DIGITS;
  int shift = 8 * a.pass;
  int64_t begin = row * a.n + tile * TILE;
  int n = (int)min((int64_t)TILE, a.n - tile * TILE);
  const BITS(D) *x = (const BITS(D) *)a.x + begin;
  BITS(D) v[ITEMS];
  uint32_t rank[ITEMS]; /* and the digit, above 16 bits */
  for (int w = 0; w < WARPS; w++)
    part[w][t] = 0;
#pragma unroll
  for (int j = 0; j < ITEMS; j++) {
    int i = warp * (32 * ITEMS) + j * 32 + lane;
    v[j] = i < n ? x[i] : BITS(D)(0);
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < ITEMS; j++) {
    uint32_t digit = (key_of<D>(v[j], a.down) >> shift) & 255;
    bool in = warp * (32 * ITEMS) + j * 32 + lane < n;
    rank[j] = rank_in_warp(part[warp], digit, in) + (digit << 16);
  }
  __syncthreads();
  uint32_t sum = 0, total;
  for (int w = 0; w < WARPS; w++) {
    uint32_t here = part[w][t];
    part[w][t] = sum;
    sum += here;
  }
  *(volatile uint64_t *)&words[tile * SORT_DIGITS + t] =
      published(a.pass, tile == 0, sum);
  uint32_t start = block_before(sum, scan, &total);
  for (int w = 0; w < WARPS; w++)
    part[w][t] += start;
  uint32_t base = block_before(
      a.totals[(a.pass * a.rows + row) * SORT_DIGITS + t], scan, &total);
  __syncthreads();
#pragma unroll
  for (int j = 0; j < ITEMS; j++) {
    int i = warp * (32 * ITEMS) + j * 32 + lane;
    if (i >= n)
      continue;
    uint32_t place = part[warp][rank[j] >> 16] + (rank[j] & 0xffff);
    value[place] = v[j];
    at[place] = a.from ? a.from[begin + i] : (uint32_t)(tile * TILE + i);
  }
  target[t] = base - start + look_back(words, tile, a.pass, sum);
  __syncthreads();
  for (int i = t; i < n; i += SORT_THREADS) {
    BITS(D) u = value[i];
    int64_t to = target[(key_of<D>(u, a.down) >> shift) & 255] + (uint32_t)i;
    to = (uint32_t)to; /* target may have wrapped below 0 */
    if (!a.last) {
      ((BITS(D) *)a.to)[row * a.n + to] = u;
      a.at[row * a.n + to] = at[i];
    } else if (to < a.k) {
      if (a.values)
        ((BITS(D) *)a.values)[row * a.k + to] = u;
      a.indices[row * a.k + to] = at[i] + a.base;
    }
  }
}
