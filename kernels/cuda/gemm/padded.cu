/* Copies of lines of 16-bit elements that begin at any of them. */
#include "../device/flare.cuh"

#include "padded.h"

/* Eight elements, by words, of which the last may have one element more. */
inline fl_vec<uint32_t, 4> lines_read(const uint16_t *from) {
  fl_vec<uint32_t, 4> v;
  if ((uintptr_t)from % 16 == 0)
    return fl_read<uint32_t, 4>((const uint32_t *)from);
  bool odd = (uintptr_t)from & 2;
  const uint32_t *words = (const uint32_t *)(from - odd);
  uint32_t low = words[0];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    uint32_t high = i < 3 || odd ? words[i + 1] : 0;
    v.at[i] = odd ? __funnelshift_r(low, high, 16) : low;
    low = high;
  }
  return v;
}

/* A thread writes 16 aligned bytes at a time, of elements of SIZE bytes. */
template <int SIZE> __global__ void copy(const __grid_constant__ lines_args a) {
  static_assert(SIZE == 2, "elements are halves of words");
  int64_t step = (int64_t)gridDim.x * blockDim.x * 8;
  for (int64_t line = blockIdx.y; line < a.lines; line += gridDim.y) {
    const uint16_t *from = (const uint16_t *)a.from + line * a.from_step;
    uint16_t *to = (uint16_t *)a.to + line * a.step;
    int64_t length = line < a.from_lines ? a.length : 0;
    int64_t at = fl_thread() * 8 - (int)((uintptr_t)to / 2 % 8);
    for (; at < a.width; at += step) {
      bool whole = at >= 0 && at + 8 <= a.width;
      if (whole && at + 9 <= length) { /* the last word has one more */
        fl_write((uint32_t *)(to + at), lines_read(from + at));
        continue;
      }
      for (int64_t i = at < 0 ? 0 : at; i < at + 8 && i < a.width; i++)
        to[i] = i < length ? from[i] : (uint16_t)0;
    }
  }
}
