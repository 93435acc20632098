/* Which tile of which group is whose. How large groups are is known on the
 * device alone: tiles are numbered through all groups, and each warp finds the
 * group of a number by itself. */
#pragma once

#include "grouped.h"

struct span {
  int from, to;
};

/* Ends that fall or are too large are reported (`clear`) and read as if they
 * did not. */
inline int end_of(const grouped_args &h, int group) {
  int64_t end = group < 0 ? 0 : h.ends[group];
  return end < 0 ? 0 : end < h.total ? (int)end : h.total;
}
inline span span_of(const grouped_args &h, int group) {
  int from = end_of(h, group - 1), to = end_of(h, group);
  return {from, to > from ? to : from};
}

/* Where rows are cut: tile `item`, the rows of its group, and the group as the
 * matrix of p; false if there are fewer tiles. By all lanes of a warp, which
 * look at 32 groups at a time. */
inline bool rows_place(const grouped_args &h, uint32_t item, int m, int n,
                       place *p, span *s) {
  uint32_t across = (uint32_t)h.g.tiles_n;
  int lane = threadIdx.x & 31;
  for (int first = 0; first < h.groups; first += 32) {
    span own = {0, 0};
    if (first + lane < h.groups)
      own = span_of(h, first + lane);
    uint32_t mine = (uint32_t)((own.to - own.from + m - 1) / m) * across;
    uint32_t sum = mine; /* of the lanes up to this one */
#pragma unroll
    for (int k = 1; k < 32; k *= 2) {
      uint32_t other = __shfl_up_sync(0xffffffff, sum, k);
      if (lane >= k)
        sum += other;
    }
    uint32_t past = __ballot_sync(0xffffffff, sum > item);
    if (past) {
      int at = __ffs((int)past) - 1;
      item -= __shfl_sync(0xffffffff, sum - mine, at);
      s->from = __shfl_sync(0xffffffff, own.from, at);
      s->to = __shfl_sync(0xffffffff, own.to, at);
      tile_at(item, (uint32_t)((s->to - s->from + m - 1) / m), across, m, n, p);
      p->row += s->from;
      p->matrix = first + at;
      p->split = 0;
      return true;
    }
    item -= __shfl_sync(0xffffffff, sum, 31);
  }
  return false;
}

/* Where the sum is cut: the group is the matrix of C. */
inline bool sums_place(const grouped_args &h, uint32_t item, int m, int n,
                       place *p, span *s) {
  uint32_t down = (uint32_t)h.g.tiles_m, across = (uint32_t)h.g.tiles_n;
  uint32_t group = item / (down * across);
  if (group >= (uint32_t)h.groups)
    return false;
  tile_at(item - group * down * across, down, across, m, n, p);
  p->matrix = group;
  p->split = 0;
  *s = span_of(h, (int)group);
  return true;
}
