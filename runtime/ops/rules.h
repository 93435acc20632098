/* The rule functions that the rows of ops.def name: shape_..., grad_...,
 * cost_..., view_..., compose_.... They live in rules/<family>.c. */
#ifndef FL_RULES_H
#define FL_RULES_H

#include "ops.h"

void fli_grad_unary(fli_grad *g);
void fli_grad_unary_backward(fli_grad *g);
void fli_grad_unary_backward2(fli_grad *g);
void fli_cost_bytes(const fli_infer *c, double *flops, double *bytes);

void fli_layout_saved(const fl_attrs *attrs, int n_in, const fl_operand *in,
                      int n_out, fl_tensor *const *out);

void fli_grad_none(fli_grad *g);
#define declare_F(name) void fli_grad_##name(fli_grad *g);
#define declare_N(name) void fli_grad_##name(fli_grad *g);
#define declare_I(name)
#define FL_BINARY(name, T, sig, cast, saves, f)  declare_##T(name)
#define FL_TERNARY(name, T, sig, cast, saves, f) declare_##T(name)
#define FL_OP(name, sig, cast, saves, shape, grad, cost)                       \
  fl_status fli_shape_##shape(fli_infer *c);                                   \
  void fli_grad_##grad(fli_grad *g);                                           \
  void fli_cost_##cost(const fli_infer *c, double *flops, double *bytes);
#define FL_FUSED(name, sig, cast, saves, shape, grad, cost)                    \
  FL_OP(name, sig, cast, saves, shape, grad, cost)                             \
  FL_COMPOSE(name, sig)
#define FL_VIEW(name, sig, shows, grad)                                        \
  fl_status fli_view_##name(fli_viewing *v);                                   \
  void fli_grad_##grad(fli_grad *g);
#define FL_COMPOSE(name, sig) void fli_compose_##name(fli_composing *g);
#define FL_LAYOUT(name, rule)                                                  \
  void fli_layout_##rule(const fl_attrs *attrs, int n_in,                      \
                         const fl_operand *in, int n_out,                      \
                         fl_tensor *const *out);
#include "../ops.def"
#undef declare_F
#undef declare_N
#undef declare_I

#endif
