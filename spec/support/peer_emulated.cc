// Runs kernels/cuda/peer.cu on threads of the host, a thread for each of the device's, with as many
// areas as ranks: results against sums made here, operands anywhere, words that have wrapped, a rank
// that does not come. peer_spec.lua puts the kernels' source where it says so.
#include "spec/support/peer_host.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

// KERNELS

// --- ranks ---

enum { THREADS = 8 };
typedef void (*kernel)(const peer_args);

static void launch(std::vector<peer_args> &args, int grid, kernel f, int absent) {
  std::vector<std::thread> all;
  std::vector<block> blocks(args.size() * grid);
  for (auto &b : blocks) pthread_barrier_init(&b.barrier, nullptr, THREADS);
  for (int r = 0; r < (int)args.size(); r++)
    for (int b = 0; r != absent && b < grid; b++)
      for (int t = 0; t < THREADS; t++)
        all.emplace_back([&, r, b, t] {
          blockIdx.x = b, threadIdx.x = t, gridDim.x = grid, blockDim.x = THREADS;
          here = &blocks[r * grid + b];
          f(args[r]);
        });
  for (auto &t : all) t.join();
}

static int host[3]; // stop, late, begun

struct job {
  std::vector<char *> area;
  uint32_t phase = 0xfffffff0u; // words that are about to wrap
  int half = 0;
  explicit job(int size) : area(size) {
    for (auto &p : area) {
      p = (char *)aligned_alloc(4096, PEER_AREA);
      memset(p + PEER_STAGE, 0x55, PEER_AREA - PEER_STAGE);
      for (int i = 0; i < PEER_BLOCKS * PEER_ROW; i++) ((uint32_t *)p)[i] = phase;
    }
  }
  ~job() { for (auto p : area) free(p); }
  peer_args args(int r, const void *in, void *out, int n, int reduce, int64_t limit) {
    peer_args a = {in, out, {}, n, n, limit, r, (int)area.size(), half, reduce, 1, 0, 0,
      (int)area.size(), phase, host, host + 1, (uint32_t *)host + 2};
    std::copy(area.begin(), area.end(), a.area);
    return a;
  }
};

template <class T> T folded(const std::vector<std::vector<T>> &in, int i, int reduce) {
  T v = in[0][i];
  for (size_t k = 1; k < in.size(); k++)
    v = reduce == 2 ? min(v, in[k][i]) : reduce == 3 ? std::max(v, in[k][i]) : v + in[k][i];
  return reduce == 1 ? v / (T)in.size() : v;
}

template <int D> static int calls(int size) {
  typedef typename fl_type<D>::S T;
  job j(size);
  int bad = 0;
  for (int turn = 0; turn < 12; turn++) {
    int n = 1 + rand() % 700, way = turn % 3, reduce = rand() % (D == FL_F32 ? 4 : 1), from = rand() % 3;
    bool in_place = turn % 2;
    std::vector<std::vector<T>> in(size, std::vector<T>(n + 8)), out;
    for (auto &x : in) for (auto &v : x) v = (T)((rand() % 1000 - 500) * 0.37);
    out = in_place ? in : std::vector<std::vector<T>>(size, std::vector<T>(n + 8, (T)77));
    j.half ^= 1;
    std::vector<peer_args> args;
    for (int r = 0; r < size; r++) {
      T *to = out[r].data() + from;
      args.push_back(j.args(r, in_place ? to : in[r].data() + from, to, n, reduce, (int64_t)6e10));
    }
    kernel ways[] = {one_shot<D, 8>, two_shot<D, 8>, ring<D>};
    launch(args, 1 + turn % 2, ways[way], -1);
    if ((uint32_t)host[2] != j.phase + 1) bad += printf("begun: %x, not %x\n", host[2], j.phase + 1);
    j.phase += way == 0 ? 1 : way == 1 ? 2 : 2 * size - 2;
    for (int r = 0; r < size; r++)
      for (int i = 0; i < n + 8; i++) {
        bool inside = i >= from && i < from + n;
        T got = out[r][i], want = inside ? folded(in, i, reduce) : in_place ? in[r][i] : (T)77;
        // the ring sums from each part's own rank, which rounds otherwise
        double most = inside && way == 2 && D == FL_F32 ? 1e-3 : 0;
        if (std::fabs((double)got - (double)want) > most || (inside && got != out[0][i])) {
          if (!bad++) printf("size %d way %d n %d: rank %d [%d] is %g, not %g\n", size, way, n, r, i,
            (double)got, (double)want);
        }
      }
  }
  std::vector<T> in(600, 1), out(600 * size, 5);
  std::vector<peer_args> args;
  j.half ^= 1;
  for (int r = 0; r < size; r++)
    args.push_back(j.args(r, in.data(), out.data() + 600 * r, 600, 0, (int64_t)2e8));
  launch(args, 2, one_shot<D, 8>, size - 1);
  if (host[1] != size || out[0] != 5) bad += printf("who is late: %d of %d\n", host[1], size);
  host[0] = 1;
  for (auto &a : args) a.limit = (int64_t)6e10, a.phase++;
  launch(args, 2, two_shot<D, 8>, size - 1); // ends at once
  host[0] = host[1] = 0;
  return bad;
}

// Of parts: reduced (way 0), or moved: gathered by all, by one, swapped, scattered, from one.
template <int D> static int parts(int size) {
  typedef typename fl_type<D>::S T;
  job j(size);
  int bad = 0;
  for (int turn = 0; turn < 15; turn++) {
    int n = 1 + rand() % 300, way = D == FL_U8 ? 1 + turn % 5 : 0, root = rand() % size, from = rand() % 3;
    int step = n + rand() % 2; // of a piece of something longer
    auto room = size * step + 8;
    std::vector<std::vector<T>> in(size, std::vector<T>(room)), out(size, std::vector<T>(room, (T)77));
    for (auto &x : in) for (auto &v : x) v = (T)(rand() % 100);
    j.half ^= 1;
    std::vector<peer_args> args;
    for (int r = 0; r < size; r++) {
      auto a = j.args(r, in[r].data() + from, out[r].data() + from, n, 0, (int64_t)6e10);
      bool whole = way == 0 || way == 3 || (way == 4 && r == root);
      a.step = step;
      a.parts = whole ? size : way == 4 || (way == 5 && r != root) ? 0 : 1;
      a.part = way == 0 || way == 3 || way == 4 ? r : 0;
      if (way >= 4) a.from = root, a.to = root + 1;
      if (way == 2 && r != root) a.to = 0;
      args.push_back(a);
    }
    if constexpr (D == FL_U8) launch(args, 1 + turn % 3, moved<D>, -1);
    else launch(args, 1 + turn % 3, one_shot<D, 8>, -1);
    j.phase++;
    for (int r = 0; r < size; r++) {
      std::vector<T> want(room, (T)77);
      const peer_args &a = args[r];
      for (int i = 0; i < n; i++) {
        T sum = 0;
        for (int k = 0; k < size; k++) sum += in[k][from + a.part * step + i];
        if (way == 0) want[from + i] = sum;
        for (int k = a.from; way && k < a.to; k++)
          want[from + (k - a.from) * step + i] = in[k][from + a.part * step + i];
      }
      if (want != out[r] && !bad++) printf("size %d way %d n %d: rank %d\n", size, way, n, r);
    }
  }
  return bad;
}

int main() {
  int bad = 0;
  for (int size : {2, 3, 8})
    bad += calls<FL_F32>(size) + calls<FL_I64>(size) + parts<FL_F32>(size) + parts<FL_U8>(size);
  printf("bad: %d\n", bad);
  return bad != 0;
}
