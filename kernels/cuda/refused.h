/* What the error word says of a value that a kernel refuses: `position` has the
 * bits of the value, a double, and `bound` this code, with the number of draws
 * above it (flc_value_refused in random.c reads it). */
#ifndef FL_CUDA_REFUSED_H
#define FL_CUDA_REFUSED_H

enum {
  REFUSED_PROBABILITY,
  REFUSED_SHAPE,
  REFUSED_RATE,
  REFUSED_WEIGHT,
  REFUSED_TOTAL,
  REFUSED_BCE,
  REFUSED_FEW
};
#define REFUSED_CODE(what, draws) (INT64_MIN + (what) + 16 * (int64_t)(draws))

#endif
