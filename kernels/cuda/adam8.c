/* A step of Adam whose moments are codes of 8 bits. */
#include "cuda.h"
#include "adam8.h"
#include "optim.h"

#include <string.h>

_Static_assert(sizeof(adam8_now) == sizeof(optim_now), "one kernel fills both");

static fl_status adam8_settle(const fl_launch *l, adam8_args *a) {
  optim_now now = {0};
  const optim_now *later = NULL;
  fl_status s =
      flc_optim_now(l, &l->in[FL_IN_adam8_step_lr],
                    &l->in[FL_IN_adam8_step_step], a->b1, a->b2, &now, &later);
  memcpy(&a->now, &now, sizeof now);
  a->later = (const adam8_now *)later;
  return s;
}

/* Contiguous memory of an operand that is written. */
static void *adam8_memory(const fl_launch *l, int k) {
  return (void *)(uintptr_t)flc_input(l, &l->in[k], l->in[k].dtype);
}

/* From there back into the operand, if it lies elsewhere. */
static fl_status adam8_back(const fl_launch *l, int k, void *at) {
  const fl_view *to = &l->in[k];
  fl_view from = *to;
  int64_t stride = 1;
  if (at == to->data)
    return FL_OK;
  from.data = at;
  for (int d = to->ndim - 1; d >= 0; d--) {
    from.stride[d] = stride;
    stride *= to->shape[d];
  }
  return flc_move(l, to, &from);
}

FLC_KERNEL(adam8_step) {
  static const int codes[] = {FL_IN_adam8_step_mean, FL_IN_adam8_step_square};
  static const int scales[] = {FL_IN_adam8_step_mean_scales,
                               FL_IN_adam8_step_square_scales};
  const fl_attr *at = l->attrs->v;
  const fl_view *p = &l->in[FL_IN_adam8_step_p];
  const fl_view *g = &l->in[FL_IN_adam8_step_g];
  adam8_args a = {.fault = flc_fault_of(l),
                  .n = fl_view_numel(p),
                  .block = (int)at[FL_ATTR_adam8_step_block].i,
                  .decoupled = at[FL_ATTR_adam8_step_decoupled].i != 0,
                  .decay = at[FL_ATTR_adam8_step_weight_decay].f,
                  .b1 = at[FL_ATTR_adam8_step_beta1].f,
                  .b2 = at[FL_ATTR_adam8_step_beta2].f,
                  .eps = at[FL_ATTR_adam8_step_eps].f};
  a.blocks = fl_ceil_div(a.n, a.block);
  if (a.n == 0)
    return FL_OK;
  fl_status s = adam8_settle(l, &a);
  a.maps = flc_input(l, &l->in[FL_IN_adam8_step_maps], FL_F32);
  a.p = adam8_memory(l, FL_IN_adam8_step_p);
  a.g = flc_input(l, g, g->dtype);
  for (int k = 0; k < 2; k++) {
    a.codes[k] = adam8_memory(l, codes[k]);
    a.scales[k] = adam8_memory(l, scales[k]);
    if (!a.codes[k] || !a.scales[k])
      return FL_ENOMEM;
  }
  if (s || !a.maps || !a.p || !a.g)
    return s ? s : FL_ENOMEM;
  int64_t need = fl_ceil_div(a.blocks, ADAM8_THREADS / 32);
  flc_grid grid = {.x = (unsigned)(need < 2048 ? need : 2048),
                   .block = ADAM8_THREADS,
                   .early = true};
  s = FLC_RUN(l, FLC_SPEC("adam8", "step", p->dtype, g->dtype), grid, a);
  s = s ? s : adam8_back(l, FL_IN_adam8_step_p, a.p);
  for (int k = 0; k < 2 && s == FL_OK; k++) {
    s = adam8_back(l, codes[k], a.codes[k]);
    s = s ? s : adam8_back(l, scales[k], a.scales[k]);
  }
  return s;
}

/* The mixes of dtypes of parameters and gradients that trainers use. */
void flc_visit_adam8(flc_visitor *v) {
  static const int mixes[][2] = {{FL_F32, FL_F32},
                                 {FL_F32, FL_BF16},
                                 {FL_F32, FL_F16},
                                 {FL_BF16, FL_BF16},
                                 {FL_F64, FL_F64}};
  for (int i = 0; i < (int)(sizeof mixes / sizeof *mixes); i++) {
    flc_spec s = FLC_SPEC("adam8", "step", mixes[i][0], mixes[i][1]);
    v->spec(v, &s, i == 1);
  }
}
