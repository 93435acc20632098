/* What the kernel of padded.cu gets. */
#ifndef FL_CUDA_PADDED_H
#define FL_CUDA_PADDED_H

/* Lines of 16-bit elements: `width` elements of each of `lines` lines are
 * written, `length` of them read, as far as there are `from_lines`, the others
 * 0. Steps from line to line are in elements. */
typedef struct lines_args {
  const void *from;
  void *to;
  int64_t lines, from_lines, width, length, step, from_step;
} lines_args;

#endif
