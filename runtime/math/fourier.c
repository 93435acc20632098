/* What backends share of Fourier transforms: factors and roots of unity. */
#include "../backend.h"

#include <math.h>

#define LARGEST 31 /* factor */

int fli_factors(int64_t n, int *factors) {
  int count = 0;
  for (int r = 4; n > 1 && r <= LARGEST;) {
    if (n % r) {
      r = r == 4 ? 2 : r == 2 ? 3 : r + 2;
      continue;
    }
    factors[count++] = r;
    n /= r;
  }
  return n == 1 ? count : -1;
}

/* The angle is brought below an eighth first, so that the multiples of a
 * quarter are exact. */
void fli_root(int64_t k, int64_t n, double *y) {
  int64_t eighth = 8 * k / n, rest = 8 * k - eighth * n; /* of 8 n */
  bool back = eighth & 1;
  double angle = (double)(back ? n - rest : rest) * (M_PI / 4) / (double)n;
  double c = cos(angle), s = sin(angle);
  if (back) { /* seen from the next quarter's side */
    double t = c;
    c = s;
    s = t;
  }
  switch (eighth / 2) {
  case 0:
    y[0] = c, y[1] = -s;
    break;
  case 1:
    y[0] = -s, y[1] = -c;
    break;
  case 2:
    y[0] = -c, y[1] = s;
    break;
  default:
    y[0] = s, y[1] = c;
  }
}
