/* Launches of the recurrent cells. */
#include "cuda.h"
#include "rnn.h"

#define BLOCK 256

/* The dtype that a launch runs in: that of all operands, if they have one, else
 * F64 if there is one, else F32. */
static fl_dtype common(const fl_launch *l) {
  fl_dtype d = l->out[0].dtype, wide = FL_F32;
  bool same = true;
  for (int k = 0; k < l->n_in + l->n_out; k++) {
    const fl_view *v = k < l->n_in ? &l->in[k] : &l->out[k - l->n_in];
    if (!v->data)
      continue;
    same &= v->dtype == d;
    wide = v->dtype == FL_F64 ? FL_F64 : wide;
  }
  return same ? d : wide;
}

/* Over the rows of a state like in[`state`]. */
static fl_status run(const fl_launch *l, const char *entry, int state) {
  const fl_view *like = &l->in[state];
  rnn_args a = {.all = flc_numel(like)};
  fl_dtype d = common(l);
  fl_view made[3];
  if (a.all == 0)
    return FL_OK;
  a.n = like->shape[like->ndim - 1];
  int v = a.n % 4 == 0 ? 4 : 1;
  for (int k = 0; k < l->n_in; k++) {
    if (!l->in[k].data)
      continue;
    a.in[k] = flc_input(l, &l->in[k], d);
    if (!a.in[k])
      return FL_ENOMEM;
    if (!flc_aligned(a.in[k], 4 * fl_dtype_size(d)))
      v = 1;
  }
  for (int k = 0; k < l->n_out; k++) {
    made[k] = l->out[k];
    made[k].dtype = d;
    if (l->out[k].dtype != d)
      made[k].data =
          fl_scratch_get(l, (size_t)flc_numel(&l->out[k]) * fl_dtype_size(d));
    a.out[k] = made[k].data;
    if (!a.out[k])
      return FL_ENOMEM;
  }
  flc_spec spec = FLC_SPEC("rnn", entry, d, v);
  flc_grid g = {.x = (unsigned)flc_ceil_div(a.all / v, BLOCK), .block = BLOCK};
  fl_status s = FLC_RUN(l, spec, g, a);
  for (int k = 0; k < l->n_out && s == FL_OK; k++)
    if (l->out[k].dtype != d)
      s = flc_move(l, &l->out[k], &made[k]);
  return s;
}

/* gates, c -> h, c2, act */
FLC_KERNEL(lstm_cell) {
  return run(l, "lstm", 1);
}

/* dh, dc, c, c2, act -> dgates, dc1 */
FLC_KERNEL(lstm_cell_backward) {
  return run(l, "lstm_back", 2);
}

/* gi, gh, h -> y, act */
FLC_KERNEL(gru_cell) {
  return run(l, "gru", 2);
}

/* dy, gh, h, act -> dgi, dgh, dh */
FLC_KERNEL(gru_cell_backward) {
  return run(l, "gru_back", 2);
}

void flc_visit_rnn(flc_visitor *v) {
  static const char *const entries[] = {"lstm", "lstm_back", "gru", "gru_back"};
  for (int d = FL_F64; d <= FL_BF16; d++)
    for (int i = 0; i < 4; i++)
      for (int n = 1; n <= 4; n += 3) {
        flc_spec s = FLC_SPEC("rnn", entries[i], d, n);
        v->spec(v, &s, d == FL_F32 && n == 4);
      }
}
