/* What is behind the gradient of a norm, in its kernel: tiles of elements of
 * dx, with sums over the lines, as text for norm.cu. */
#include "driver/process.h"

#include "../../runtime/tile.h"
#include "norm_tail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- which tiles --- */

/* Whether a form goes through all elements in the order of memory. */
static bool is_flat(const fl_tile *t, const fl_form *at) {
  int64_t n = 1;
  bool flat = true;
  for (int d = t->n_dims; d-- > 0; n *= t->shape[d])
    flat = flat && (t->shape[d] == 1 || at->coef[d] == n);
  return flat;
}

/* Whether it goes through the n elements of a line, in any of them. */
static bool is_line(const fl_tile *t, const fl_form *at, int64_t n) {
  int64_t c = 1;
  bool line = true;
  for (int d = t->n_dims; d-- > 0; c *= t->shape[d])
    line = line && (t->shape[d] == 1 || at->coef[d] == (c < n ? c : 0));
  return line;
}

static bool is_element(const fl_launch *l, const fl_view *v, const fl_form *at,
                       const void **data) {
  fl_dtype d = v->dtype;
  *data = (const char *)v->data + at->offset * (int64_t)fl_dtype_size(d);
  return (d == FL_F32 || d == FL_F16 || d == FL_BF16) && v->data != v->imm &&
         is_flat(l->tile, at) && flc_aligned(*data, 16);
}

static bool take_leaf(const fl_launch *l, int k, norm_tail *t) {
  const fl_leaf *x = &l->tile->leaves[k];
  if (x->kind != FL_LEAF_LOAD || x->mask >= 0 ||
      l->tile->body->in_type[k] != FL_F32)
    return false;
  if (x->operand == t->operand)
    return x->at.offset == 0 && is_flat(l->tile, &x->at);
  t->bytes += (int)fl_dtype_size(l->in[x->operand].dtype);
  return t->n_in < NORM_MORE &&
         is_element(l, &l->in[x->operand], &x->at, &t->in[t->n_in++]);
}

static bool take_store(const fl_launch *l, const fl_store *x, int64_t n,
                       norm_tail *t) {
  const fl_view *v = &l->out[x->operand];
  const fl_program *b = l->tile->body;
  const void *data;
  if (fl_program_type(b, b->out[x->value]) != FL_F32)
    return false;
  if (x->add == FL_STORE_SET) {
    if (t->n_out == NORM_MORE || !is_element(l, v, &x->at, &data))
      return false;
    t->out[t->n_out++] = (void *)(uintptr_t)data;
    return true;
  }
  if (x->add != FL_STORE_SUM || t->n_sums == NORM_MORE ||
      !fl_dtype_is_float(v->dtype) || !is_line(l->tile, &x->at, n))
    return false;
  t->sum[t->n_sums++] = (struct norm_sum){
      (char *)v->data + x->at.offset * (int64_t)fl_dtype_size(v->dtype),
      v->dtype, x->round};
  return true;
}

/* --- the text --- */

typedef struct text {
  char *to;
  size_t room, n;
} text;

static void FL_PRINTF(2, 3) put(text *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  size_t left = w->n < w->room ? w->room - w->n : 0;
  int n = vsnprintf(left ? w->to + w->n : NULL, left, format, args);
  va_end(args);
  w->n += (size_t)n;
}

static void put_operands(text *w, const fl_launch *l, const norm_tail *t) {
  const fl_tile *of = l->tile;
  int n = 0;
  put(w, "#define NORM_GIVEN(F)");
  for (int k = 0; k < of->body->n_in; k++)
    if (of->leaves[k].operand == t->operand)
      put(w, " F(%d)", k);
  put(w, "\n#define NORM_INPUTS(F)");
  for (int k = 0; k < of->body->n_in; k++)
    if (of->leaves[k].operand != t->operand)
      put(w, " F(%d, %d, %d)", n++, l->in[of->leaves[k].operand].dtype, k);
  put(w, "\n#define NORM_RESULTS(F)");
  for (int k = n = 0; k < of->n_stores; k++)
    if (of->stores[k].add == FL_STORE_SET)
      put(w, " F(%d, %d, %d)", n++, l->out[of->stores[k].operand].dtype,
          of->body->out[of->stores[k].value]);
  put(w, "\n#define NORM_SUMS(F)");
  for (int k = n = 0; k < of->n_stores; k++)
    if (of->stores[k].add == FL_STORE_SUM)
      put(w, " F(%d, %d)", n++, of->body->out[of->stores[k].value]);
}

static void put_text(text *w, const fl_launch *l, const norm_tail *t) {
  put_operands(w, l, t);
  put(w, "\n#define NORM_BODY ");
  size_t left = w->n < w->room ? w->room - w->n : 0, at = w->n;
  w->n += fl_program_source(l->tile->body, left ? w->to + at : NULL, left);
  for (size_t i = at; i < w->n && i < w->room; i++)
    if (w->to[i] == '\n')
      w->to[i] = ' ';
  int math = left ? flc_math_of(w->to + at) : 0;
  put(w, "\n#define FL_MATH %d\n", math > 1 ? math : 1);
}

static const char *text_of(const fl_launch *l, const norm_tail *t) {
  uint64_t of[] = {l->tile->hash, (uint64_t)t->operand};
  uint64_t key = flc_hash(FLC_HASH, of, sizeof of);
  for (int k = 0; k < l->n_in + l->n_out; k++) {
    uint8_t d =
        (uint8_t)(k < l->n_in ? &l->in[k] : &l->out[k - l->n_in])->dtype;
    key = flc_hash(key, &d, 1);
  }
  const char *known = flc_text_find(key);
  text w = {0};
  if (known)
    return known;
  put_text(&w, l, t);
  w = (text){malloc(w.n + 1), w.n + 1, 0};
  if (!w.to)
    return NULL;
  put_text(&w, l, t);
  return flc_text_keep(key, w.to);
}

bool flc_norm_tail(const fl_launch *l, int operand, int64_t n, norm_tail *t) {
  const fl_tile *of = l->tile;
  *t = (norm_tail){.operand = operand};
  if (of->n_inner || of->n_positions || of->exact)
    return false;
  for (int k = 0; k < of->body->n_in; k++)
    if (!take_leaf(l, k, t))
      return false;
  for (int k = 0; k < of->n_stores; k++)
    if (!take_store(l, &of->stores[k], n, t))
      return false;
  return (t->text = text_of(l, t));
}

const char flc_norm_sample[] =
    "#define NORM_GIVEN(F) F(0)\n#define NORM_INPUTS(F) F(0, 1, 1)\n"
    "#define NORM_RESULTS(F) F(0, 1, 2) F(1, 3, 2)\n"
    "#define NORM_SUMS(F) F(0, 2)\n"
    "#define NORM_BODY const float v2 = v0 + v1;\n#define FL_MATH 1\n";
