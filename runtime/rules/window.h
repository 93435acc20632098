/* What the shape rules of convolutions and pooling share: a number for each
 * spatial dim, sizes of windows. */
#ifndef FL_RULES_WINDOW_H
#define FL_RULES_WINDOW_H

#include "env.h"

#include <stdio.h>

#define FLI_MAX_WINDOW ((int64_t)1 << 31) /* of any number: sums stay exact */

/* List attribute k gets n numbers: as given, one for all dims, or `missing`
 * (FL_ATTR_NONE: it must be there). */
static inline fl_status fli_window_list(fli_infer *c, int k, const char *name,
                                        int n, const int64_t *missing,
                                        int64_t low, int64_t *out) {
  int given;
  const int64_t *v = fl_attr_list(c->attrs, k, &given);
  const char *op = c->op->info.name;
  if (given > 1 && given != n) {
    char also[24] = "";
    if (n > 1)
      snprintf(also, sizeof also, " or %d", n);
    return fli_fail(FL_EARG, "%s: %s needs one number%s, got %d", op, name,
                    also, given);
  }
  if (given == 0 && !missing)
    return fli_fail(FL_EARG, "%s: %s is missing", op, name);
  for (int i = 0; i < n; i++) {
    out[i] = given == 0 ? missing[i] : v[given == 1 ? 0 : i];
    if (out[i] < low)
      return fli_fail(FL_EARG, "%s: %s must be at least %lld, got %lld", op,
                      name, (long long)low, (long long)out[i]);
    if (out[i] > FLI_MAX_WINDOW)
      return fli_fail(FL_ESIZE, "%s: %s %lld is too large", op, name,
                      (long long)out[i]);
  }
  return given == n ? FL_OK : fl_attrs_list(c->attrs, k, n, out);
}

/* Windows of `kernel` taps that fit into `size` with padding; 0: none. With
 * `ceil` a last one may go beyond by less than a stride. */
static inline int64_t fli_window_count(int64_t size, int64_t kernel,
                                       int64_t stride, int64_t padding,
                                       int64_t dilation, bool ceil) {
  int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
  room += ceil ? stride - 1 : 0;
  if (room < 0)
    return 0;
  int64_t n = room / stride + 1;
  /* the last one must begin inside, or in the padding before */
  if (ceil && (n - 1) * stride >= size + padding)
    n--;
  return n;
}

#endif
