/* The part of rows.h that reads the same for float and double; included by it
 * once for each, with T and F (name to typed name) defined. */

#ifndef FL_ROWS_AVX512
static inline T F(fl_row_max)(const T *x, int64_t n) {
  T m = (T)-INFINITY;
  int nan = 0;
#pragma omp simd reduction(max : m) reduction(| : nan)
  for (int64_t i = 0; i < n; i++) {
    m = x[i] > m ? x[i] : m;
    nan |= x[i] != x[i];
  }
  return nan ? (T)NAN : m;
}

FL_FORCE T F(fl_row_exps)(const T *x, int64_t n, T m, T *y, T g) {
  T s = 0;
  if (y) {
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) {
      T e = F(fl_row_exp1)(x[i] - m);
      y[i] = e * g;
      s += e;
    }
  } else {
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++)
      s += F(fl_row_exp1)(x[i] - m);
  }
  return s;
}
/* Sum of at most FL_ROW_BLOCK elements; 64 lanes hide the latency of the
 * addition, and read memory in one stream. */
FL_FORCE T F(fl_row_sum_block)(const T *x, int64_t n) {
  T lane[64], s = 0;
  int64_t i = 0;
  if (n >= 256) {
    for (int j = 0; j < 64; j++)
      lane[j] = 0;
    for (; i + 64 <= n; i += 64)
      for (int j = 0; j < 64; j++)
        lane[j] += x[i + j];
#pragma omp simd reduction(+ : s)
    for (int j = 0; j < 64; j++)
      s += lane[j];
  }
  T rest = 0;
#pragma omp simd reduction(+ : rest)
  for (int64_t j = i; j < n; j++)
    rest += x[j];
  return s + rest;
}

/* Sums of x - from and of its squares, likewise. */
FL_FORCE void F(fl_row_shifted_block)(const T *x, int64_t n, T from, T *sum,
                                      T *squares) {
  T lane[32], lane2[32], s = 0, q = 0;
  int64_t i = 0;
  if (n >= 128) {
    for (int j = 0; j < 32; j++)
      lane[j] = lane2[j] = 0;
    for (; i + 32 <= n; i += 32)
      for (int j = 0; j < 32; j++) {
        T d = x[i + j] - from;
        lane[j] += d;
        lane2[j] += d * d;
      }
#pragma omp simd reduction(+ : s, q)
    for (int j = 0; j < 32; j++) {
      s += lane[j];
      q += lane2[j];
    }
  }
  T rest = 0, rest2 = 0;
#pragma omp simd reduction(+ : rest, rest2)
  for (int64_t j = i; j < n; j++) {
    T d = x[j] - from;
    rest += d;
    rest2 += d * d;
  }
  *sum = s + rest;
  *squares = q + rest2;
}

FL_FORCE T F(fl_row_dot_block)(const T *x, const T *y, int64_t n) {
  T s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; i++)
    s += x[i] * y[i];
  return s;
}

/* Sum of (x - mean)^2. */
FL_FORCE T F(fl_row_squares_block)(const T *x, int64_t n, T mean) {
  T s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; i++)
    s += (x[i] - mean) * (x[i] - mean);
  return s;
}

/* z = x - exp(y) s */
static inline void F(fl_row_less_exp)(const T *x, const T *y, T s, T *z,
                                      int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++)
    z[i] = x[i] - F(fl_row_exp1)(y[i]) * s;
}
#endif

static inline double F(fl_row_sum)(const T *x, int64_t n) {
  double s = 0;
  for (int64_t i = 0; i < n; i += FL_ROW_BLOCK)
    s +=
        F(fl_row_sum_block)(x + i, n - i < FL_ROW_BLOCK ? n - i : FL_ROW_BLOCK);
  return s;
}

/* Sum of exp(x - m). */
static inline double F(fl_row_exp_sum)(const T *x, int64_t n, T m) {
  double s = 0;
  for (int64_t i = 0; i < n; i += FL_ROW_BLOCK)
    s += F(fl_row_exps)(x + i, n - i < FL_ROW_BLOCK ? n - i : FL_ROW_BLOCK, m,
                        NULL, 1);
  return s;
}

/* y = g exp(x - m), and the sum of the exponentials. */
static inline double F(fl_row_exp)(const T *x, int64_t n, T m, T *y, T g) {
  double s = 0;
  for (int64_t i = 0; i < n; i += FL_ROW_BLOCK)
    s += F(fl_row_exps)(x + i, n - i < FL_ROW_BLOCK ? n - i : FL_ROW_BLOCK, m,
                        y + i, g);
  return s;
}

static inline double F(fl_row_dot)(const T *x, const T *y, int64_t n) {
  double s = 0;
  for (int64_t i = 0; i < n; i += FL_ROW_BLOCK)
    s += F(fl_row_dot_block)(x + i, y + i,
                             n - i < FL_ROW_BLOCK ? n - i : FL_ROW_BLOCK);
  return s;
}

static inline double F(fl_row_squares)(const T *x, int64_t n, T mean) {
  double s = 0;
  for (int64_t i = 0; i < n; i += FL_ROW_BLOCK)
    s += F(fl_row_squares_block)(
        x + i, n - i < FL_ROW_BLOCK ? n - i : FL_ROW_BLOCK, mean);
  return s;
}

/* Mean and sum of squared deviations: one pass over the differences from the
 * first element (shifted data: Chan, Golub and LeVeque 1983), which are exactly
 * 0 where all elements are equal. Where the first element is an outlier, the
 * sums cancel, and a second pass takes the differences from the mean. */
static inline void F(fl_row_moments)(const T *x, int64_t n, double *mean,
                                     double *m2) {
  T from = n ? x[0] : 0;
  for (int pass = 0; pass < 2; pass++) {
    double s = 0, q = 0, offset;
    for (int64_t i = 0; i < n; i += FL_ROW_BLOCK) {
      int64_t count = n - i < FL_ROW_BLOCK ? n - i : FL_ROW_BLOCK;
      T sum, squares;
      F(fl_row_shifted_block)(x + i, count, from, &sum, &squares);
      s += (double)sum;
      q += (double)squares;
    }
    offset = s / (double)n;
    *mean = (double)from + offset;
    *m2 = q - s * offset;
    if (s * offset <= 8 * *m2) /* within 2.8 standard deviations */
      return;
    from = (T)*mean;
  }
  *m2 = *m2 < 0 ? 0 : *m2;
}

/* Means and sums of squared deviations down the columns of a block of rows, in
 * two passes, corrected for the rounding of the mean. */
static inline void F(fl_columns_moments)(const T *x, int64_t rows,
                                         int64_t stride, int64_t n,
                                         double *mean, double *m2) {
  T m[FL_COLUMNS], s[FL_COLUMNS], e[FL_COLUMNS];
  double count = (double)rows;
  for (int64_t j = 0; j < n; j++)
    m[j] = s[j] = e[j] = 0;
  for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
      m[j] += x[r * stride + j];
  }
  for (int64_t j = 0; j < n; j++)
    m[j] /= (T)rows;
  for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
      T d = x[r * stride + j] - m[j];
      s[j] += d * d;
      e[j] += d;
    }
  }
  for (int64_t j = 0; j < n; j++) {
    mean[j] = (double)m[j] + (double)e[j] / count;
    m2[j] = (double)s[j] - (double)e[j] * (double)e[j] / count;
  }
}
