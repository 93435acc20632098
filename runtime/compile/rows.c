/* Rows as the planner sees them: bodies and pieces, from the marks of ops.def,
 * and what pieces are. */
#include "rows.h"

#include <string.h>

/* --- pieces --- */

/* The whole of input k, `shift` further on along each dim. */
static bool piece_of(const fli_moving *m, int k, const int64_t *shift,
                     fli_piece *p) {
  const fl_meta *x = m->in[k];
  p->input = k;
  for (int d = 0; d < m->out->ndim; d++) {
    int64_t end = shift[d] + x->shape[d], size = m->out->shape[d];
    p->shift[d] = shift[d];
    p->from[d] = shift[d] > 0 ? shift[d] : 0;
    p->to[d] = end < size ? end : size;
  }
  return true;
}

static bool pieces_cat(fli_moving *m, int k, fli_piece *p) {
  int64_t shift[FL_MAX_DIMS] = {0}, dim = m->attrs->v[FL_ATTR_cat_dim].i;
  if (k >= m->n_in)
    return false;
  for (int j = 0; j < k; j++)
    shift[dim] += m->in[j]->shape[dim];
  return piece_of(m, k, shift, p);
}

/* The elements before each dim, of a list (before, after of the last dim, then
 * of the one before it). */
static void pad_shift(const fl_attrs *a, int slot, int ndim, int64_t sign,
                      int64_t *shift) {
  int n;
  const int64_t *list = fl_attr_list(a, slot, &n);
  for (int d = 0; d < ndim; d++) {
    int k = 2 * (ndim - 1 - d);
    shift[d] = k < n ? sign * list[k] : 0;
  }
}

static bool pieces_pad(fli_moving *m, int k, fli_piece *p) {
  int64_t shift[FL_MAX_DIMS];
  if (k > 0 || m->attrs->v[FL_ATTR_pad_mode].i != 0) /* constant */
    return false;
  m->value = m->attrs->v[FL_ATTR_pad_value].f;
  pad_shift(m->attrs, FL_ATTR_pad_pad, m->out->ndim, 1, shift);
  return piece_of(m, 0, shift, p);
}

static bool pieces_pad_backward(fli_moving *m, int k, fli_piece *p) {
  int64_t shift[FL_MAX_DIMS];
  if (k > 0 || m->attrs->v[FL_ATTR_pad_backward_mode].i != 0)
    return false;
  pad_shift(m->attrs, FL_ATTR_pad_backward_pad, m->out->ndim, -1, shift);
  return piece_of(m, 0, shift, p);
}

/* --- the table --- */

static const fli_row_facts facts[FLI_OPS + 1] = {
#define FL_BODY(name, text)    [FLI_OP_##name].body = text,
#define FL_EACH(name, text)    [FLI_OP_##name].each = text,
#define FL_BY_ROW(name, list)  [FLI_OP_##name].by_row = list,
#define FL_OVER(name, rule)    [FLI_OP_##name].over = FLI_OVER_##rule,
#define FL_FORMULA(name, text) [FLI_OP_##name].formula = text,
#define FL_PIECES(name, rule)  [FLI_OP_##name].pieces = pieces_##rule,
#define FL_FILLS(name, which)                                                  \
  [FLI_OP_##name].fills = 1 + FL_ATTR_##name##_##which,
#define FL_SCALES(name) [FLI_OP_##name].scales = true,
#include "../ops.def"
};

const fli_row_facts *fli_row_facts_of(const fl_op *op) {
  return &facts[op->id < FLI_OPS ? op->id : FLI_OPS];
}

int fli_row_copies(const fl_op *op, int n_in) {
  if (op->marks & FLI_MARK_OVERWRITES && n_in == 2)
    return 1;
  return op->marks & FLI_MARK_IDENTITY && n_in == 1 ? 0 : -1;
}

/* --- positions --- */

static const struct {
  int8_t at, sum, x, index, src;
} indexing[FLI_OPS + 1] = {
#define FL_GATHERS(name, x, index, rule)                                       \
  [FLI_OP_##name] = {FLI_AT_##rule, 0, FL_IN_##name##_##x,                     \
                     FL_IN_##name##_##index, -1},
#define FL_SUMS(name, x, index, src, rule)                                     \
  [FLI_OP_##name] = {FLI_AT_##rule, 1, FL_IN_##name##_##x,                     \
                     FL_IN_##name##_##index, FL_IN_##name##_##src},
#define FL_SUMS_ALONE(name, index, src, rule)                                  \
  [FLI_OP_##name] = {FLI_AT_##rule, 1, -1, FL_IN_##name##_##index,             \
                     FL_IN_##name##_##src},
#include "../ops.def"
};

bool fli_row_indexes(const fl_op *op, const fl_attrs *attrs, fli_indexing *x) {
  uint32_t row = op->id < FLI_OPS ? op->id : FLI_OPS;
  *x = (fli_indexing){.at = (fli_at)indexing[row].at,
                      .sum = indexing[row].sum,
                      .x = indexing[row].x,
                      .index = indexing[row].index,
                      .src = indexing[row].src,
                      .skip = -1};
  for (int k = 0; x->at && k < op->info.n_params; k++) {
    const fl_param *q = &op->info.params[k];
    if (q->kind == FL_P_TENSOR && q->slot == x->index)
      x->from_end = q->type == FL_T_INDEX;
    if (q->kind == FL_P_DIM)
      x->dim = (int)attrs->v[q->slot].i;
    if (q->kind == FL_P_POS && attrs->v[q->slot].i != FL_ATTR_NONE)
      x->skip = attrs->v[q->slot].i;
  }
  return x->at != FLI_AT_NONE;
}

/* --- places --- */

/* Elements of the last dim lie side by side. */
static bool places_rows(const fl_meta *m, const int64_t *stride) {
  int last = m->ndim - 1;
  return last < 0 || m->shape[last] == 1 || stride[last] == 1;
}

enum { Y = 1, Y2 = 2, Y3 = 4 };

static const struct {
  uint32_t results; /* a bit each */
  bool (*fits)(const fl_meta *m, const int64_t *stride);
} places[FLI_OPS + 1] = {
#define FL_PLACES(name, which, rule) [FLI_OP_##name] = {which, places_##rule},
#include "../ops.def"
};

bool fli_row_places(const fl_op *op, int k, const fl_meta *m,
                    const int64_t *stride) {
  uint32_t row = op->id < FLI_OPS ? op->id : FLI_OPS;
  return places[row].results >> k & 1 && places[row].fits(m, stride);
}

/* --- epilogues --- */

static const bool epilogues[FLI_OPS + 1] = {
#define FL_EPILOGUE(name) [FLI_OP_##name] = true,
#include "../ops.def"
};

bool fli_row_epilogue(const fl_op *op) {
  return epilogues[op->id < FLI_OPS ? op->id : FLI_OPS];
}

static const bool moments[FLI_OPS + 1] = {
#define FL_MOMENTS(name) [FLI_OP_##name] = true,
#include "../ops.def"
};

bool fli_row_moments(const fl_op *op) {
  return moments[op->id < FLI_OPS ? op->id : FLI_OPS];
}

static const bool tails[FLI_OPS + 1] = {
#define FL_TAIL(name) [FLI_OP_##name] = true,
#include "../ops.def"
};

bool fli_row_tail(const fl_op *op) {
  return tails[op->id < FLI_OPS ? op->id : FLI_OPS];
}

static const bool in_products[FLI_OPS + 1] = {
#define FL_IN_PRODUCT(name) [FLI_OP_##name] = true,
#include "../ops.def"
};

bool fli_row_in_product(const fl_op *op) {
  return in_products[op->id < FLI_OPS ? op->id : FLI_OPS];
}

/* --- lists --- */

static const int lists[FLI_OPS + 1] = {
/* + 1 */
#define FL_LISTS(name, list) [FLI_OP_##name] = FLI_OP_##list + 1,
#include "../ops.def"
};

const fl_op *fli_row_list(const fl_runtime *rt, const fl_op *op) {
  int list = lists[op->id < FLI_OPS ? op->id : FLI_OPS];
  return list ? &rt->ops[list - 1] : NULL;
}

/* --- bodies --- */

uint32_t fli_row_reduced(const fl_op *op, const fl_attrs *attrs,
                         const fl_meta *x) {
  uint32_t all = (1u << x->ndim) - 1, mask = 0;
  fli_over over = fli_row_facts_of(op)->over;
  if (over != FLI_OVER_DIMS)
    return all & ~(over == FLI_OVER_CHANNELS ? 2u : 3u);
  for (int k = 0; k < op->info.n_params; k++) {
    const fl_param *q = &op->info.params[k];
    int n;
    if (q->kind == FL_P_DIM)
      return 1u << attrs->v[q->slot].i;
    if (q->kind == FL_P_INT) /* so many of the last ones */
      return all & ~((1u << (x->ndim - attrs->v[q->slot].i)) - 1);
    if (q->kind != FL_P_DIMS)
      continue;
    const int64_t *list = fl_attr_list(attrs, q->slot, &n);
    for (int i = 0; i < n; i++)
      mask |= 1u << list[i];
    return n ? mask : all;
  }
  return all;
}

const char *fli_row_input(const fl_op *op, int k) {
  for (int i = 0; i < op->info.n_params; i++) {
    const fl_param *q = &op->info.params[i];
    if ((q->kind == FL_P_TENSOR || q->kind == FL_P_RNG) && q->slot == k)
      return q->name;
  }
  return "";
}

static bool is_letter(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         (c >= 'A' && c <= 'Z');
}

/* The next place behind `at` where `name` stands as a word; NULL. */
static const char *find_word(const char *text, const char *at,
                             const char *name) {
  size_t n = strlen(name);
  for (at = strstr(at, name); at && n; at = strstr(at + 1, name))
    if ((at == text || !is_letter(at[-1])) && !is_letter(at[n]))
      return at + n;
  return NULL;
}

bool fli_row_lists(const char *list, const char *name) {
  return list && find_word(list, list, name);
}

bool fli_row_assigns(const char *text, const char *name) {
  const char *at = text;
  while (text && (at = find_word(text, at, name))) {
    at += strspn(at, " ");
    if (at[0] == '=' && at[1] != '=')
      return true;
  }
  return false;
}
