/* Correspondences between loop nests that access the same memory. */
#include "form.h"

/* Positions of the dims with more than one element, the longest stride first.
 */
static int by_stride(int dims, const int64_t *size, const int64_t *stride,
                     int *order) {
  int n = 0;
  for (int i = 0; i < dims; i++) {
    if (size[i] <= 1 || stride[i] == 0)
      continue;
    int at = n++;
    for (; at > 0 && stride[order[at - 1]] < stride[i]; at--)
      order[at] = order[at - 1];
    order[at] = i;
  }
  return n;
}

/* Divides the constant part of an access, `left`, among the dims. A digit may
 * be negative where the rest of it is not: the larger quotient is taken if the
 * smaller one would carry. */
static bool split_offset(int64_t left, const fli_nest *nest, int n,
                         const int *order, const int64_t *stride, fl_form *to) {
  for (int k = 0; k < n; k++) {
    int64_t s = stride[order[k]], q = left / s, low, high;
    q -= left % s < 0;
    if (k + 1 < n) {
      fl_form *next = &to[order[k + 1]];
      int64_t digit = stride[order[k + 1]];
      fli_form_range(next, nest, &low, &high);
      q += (left - q * s) / digit + high >= s / digit;
    }
    to[order[k]].offset += q;
    left -= q * s;
  }
  return left == 0;
}

bool fli_form_split(const fl_form *at, const fli_nest *nest, int dims,
                    const int64_t *size, const int64_t *stride, int64_t offset,
                    fl_form *to, bool *inside) {
  int order[FL_TILE_DIMS], n = by_stride(dims, size, stride, order);
  int64_t constant = at->offset - offset;
  *inside = true;
  for (int i = 0; i < dims; i++) {
    to[i] = fli_form_constant(0);
    if (size[i] > 1 && stride[i] <= 0)
      return false;
  }
  for (int i = 0; i < nest->n; i++) {
    int64_t left = nest->size[i] > 1 ? at->coef[i] : 0;
    if (left < 0)
      return false;
    constant += left * nest->low[i];
    for (int k = 0; k < n; k++) {
      to[order[k]].coef[i] = left / stride[order[k]];
      left %= stride[order[k]];
    }
    if (left)
      return false;
  }
  /* coordinates count from `low` on while the constant part is divided */
  for (int k = 0; k < n; k++)
    for (int i = 0; i < nest->n; i++)
      to[order[k]].offset -= to[order[k]].coef[i] * nest->low[i];
  if (!split_offset(constant, nest, n, order, stride, to))
    return false;
  for (int k = 0; k < n; k++) {
    int64_t low, high, own = size[order[k]];
    fli_form_range(&to[order[k]], nest, &low, &high);
    *inside = *inside && low >= 0 && high < own;
    /* no other element of the dim before may be meant */
    int64_t most = k ? stride[order[k - 1]] / stride[order[k]] : 0;
    if (k > 0 && (low < own - most || high >= most))
      return false;
  }
  return true;
}

void fli_form_cut_dim(fl_form *f, int n, int dim, int64_t inner) {
  for (int i = n; i > dim + 1; i--)
    f->coef[i] = f->coef[i - 1];
  f->coef[dim + 1] = f->coef[dim];
  f->coef[dim] *= inner;
}

typedef struct matching {
  fli_nest *nest;
  fl_form *at, *to;
  int dims;
  fli_form_cut *cut;
  void *context;
} matching;

static bool match_cut(matching *m, int dim, int64_t inner) {
  int n = m->nest->n;
  if (n == FL_TILE_DIMS || !m->cut(m->context, dim, inner))
    return false;
  fli_form_cut_dim(m->at, n, dim, inner);
  for (int i = 0; i < m->dims; i++)
    fli_form_cut_dim(&m->to[i], n, dim, inner);
  return true;
}

/* The dim of the nest with this coefficient and not yet used; -1: none. */
static int nest_dim(const matching *m, int64_t coef, uint32_t used) {
  for (int j = 0; j < m->nest->n; j++)
    if (m->at->coef[j] == coef && m->nest->size[j] > 1 && !(used >> j & 1) &&
        !m->nest->position[j])
      return j;
  return -1;
}

/* A cut moves the numbers of the dims behind it. */
static uint32_t moved(uint32_t used, int dim) {
  uint32_t low = used & ((1u << (dim + 1)) - 1);
  return low | (used >> (dim + 1) << (dim + 2));
}

/* Finds dim i, of this size and stride, from its innermost part on. */
static bool match_dim(matching *m, int i, int64_t size, int64_t stride,
                      uint32_t *used) {
  int64_t done = 1;
  while (done < size) {
    int j = nest_dim(m, stride * done, *used);
    int64_t left = size / done;
    if (j < 0)
      return false;
    int64_t have = m->nest->size[j];
    if (have > left) {
      if (have % left || !match_cut(m, j, left))
        return false;
      *used = moved(*used, j);
      j++;
      have = left;
    } else if (left % have)
      return false;
    m->to[i].coef[j] = done;
    *used |= 1u << j;
    done *= have;
  }
  return true;
}

bool fli_form_match(fli_nest *nest, fl_form *at, int dims, const int64_t *size,
                    const int64_t *stride, int64_t offset, fl_form *to,
                    fli_form_cut *cut, void *context) {
  matching m = {nest, at, to, dims, cut, context};
  int order[FL_TILE_DIMS], n = by_stride(dims, size, stride, order), j = 0;
  uint32_t used = 0;
  if (at->offset != offset)
    return false;
  for (int i = 0; i < dims; i++)
    to[i] = fli_form_constant(0);
  for (int k = n; k-- > 0;)
    if (!match_dim(&m, order[k], size[order[k]], stride[order[k]], &used))
      return false;
  for (int i = 0; i < nest->n; i++)
    if (at->coef[i] && nest->size[i] > 1 && !(used >> i & 1))
      return false;
  for (int i = 0; i < dims; i++) {
    if (size[i] <= 1 || stride[i])
      continue;
    while (j < nest->n &&
           (nest->size[j] == 1 || used >> j & 1 || nest->position[j]))
      j++;
    if (j == nest->n || nest->size[j] != size[i])
      return false;
    to[i].coef[j] = 1;
    used |= 1u << j;
  }
  return true;
}
