/* Rules of the collectives. Gradients are collectives, too: every rank of the
 * group must go backward through the call. Where ranks reduce by min or max,
 * equal elements share the gradient. */
#include "../call/call.h"
#include "../comm.h"
#include "env.h"

#include <string.h>

/* --- shapes --- */

static fl_status group_of(const fli_infer *c, int *rank, int *size) {
  return fli_comm_group(c->rt, c->attrs->v[FL_ATTR_collectives_group].i, rank,
                        size);
}

static fl_status check_rank(const fli_infer *c, int64_t rank, int size) {
  if (rank >= 0 && rank < size)
    return FL_OK;
  return fli_fail(FL_EARG, "%s: there is no rank %lld in a group of %d",
                  c->op->info.name, (long long)rank, size);
}

static fl_status reducible(const fli_infer *c, int64_t reduce) {
  fl_dtype d = c->in[0]->dtype;
  if (reduce == FL_COMM_MEAN && !fli_is_float(d))
    return fli_fail(FL_EDTYPE, "%s: x is %s: integers have no mean here",
                    c->op->info.name, fl_dtype_name(d));
  if (reduce == FL_COMM_SUM && d == FL_BOOL)
    return fli_fail(FL_EDTYPE,
                    "%s: x is bool: take max (any) or min (all), or a sum of "
                    "integers",
                    c->op->info.name);
  return FL_OK;
}

static fl_status as_x(fli_infer *c) {
  c->out[0].ndim = c->in[0]->ndim;
  memcpy(c->out[0].shape, c->in[0]->shape, sizeof c->out[0].shape);
  return FL_OK;
}

static fl_status reduced_shape(fli_infer *c, int64_t reduce) {
  FLI_TRY(reducible(c, reduce));
  if (reduce == FL_COMM_SUM || reduce == FL_COMM_MEAN)
    c->saves = 0;
  return as_x(c);
}

fl_status fli_shape_comm_all_reduce(fli_infer *c) {
  int rank = 0, size = 1;
  FLI_TRY(group_of(c, &rank, &size));
  return reduced_shape(c, c->attrs->v[FL_ATTR_comm_all_reduce_reduce].i);
}

fl_status fli_shape_comm_reduce(fli_infer *c) {
  int rank = 0, size = 1;
  FLI_TRY(group_of(c, &rank, &size));
  FLI_TRY(check_rank(c, c->attrs->v[FL_ATTR_comm_reduce_root].i, size));
  return reduced_shape(c, c->attrs->v[FL_ATTR_comm_reduce_reduce].i);
}

fl_status fli_shape_comm_rooted(fli_infer *c) {
  int rank = 0, size = 1;
  FLI_TRY(group_of(c, &rank, &size));
  FLI_TRY(check_rank(c, c->attrs->v[FL_ATTR_comm_rooted_root].i, size));
  return as_x(c);
}

/* The result has `times` the rows of x; a number is one row. */
static fl_status comm_joined(fli_infer *c, int64_t times) {
  fl_meta *y = &c->out[0];
  as_x(c);
  if (y->ndim == 0) {
    y->ndim = 1;
    y->shape[0] = 1;
  }
  if (__builtin_mul_overflow(y->shape[0], times, &y->shape[0]))
    return fli_fail(FL_ESIZE, "%s: the result is too large", c->op->info.name);
  return FL_OK;
}

/* x, which has a part for each rank. */
static fl_status parted(fli_infer *c, int size) {
  const fl_meta *x = c->in[0];
  if (x->ndim == 0)
    return fli_fail(FL_ESHAPE, "%s: a number has no parts", c->op->info.name);
  if (x->shape[0] % size)
    return fli_fail(FL_ESHAPE,
                    "%s: dim 1 of x %s must be a multiple of the %d ranks",
                    c->op->info.name, fli_shape_text(x->ndim, x->shape), size);
  return as_x(c);
}

fl_status fli_shape_comm_all_gather(fli_infer *c) {
  int rank = 0, size = 1;
  FLI_TRY(group_of(c, &rank, &size));
  return c->attrs->v[FL_ATTR_comm_all_gather_whole].i ? parted(c, size)
                                                      : comm_joined(c, size);
}

fl_status fli_shape_comm_gather(fli_infer *c) {
  int rank = 0, size = 1;
  FLI_TRY(group_of(c, &rank, &size));
  FLI_TRY(check_rank(c, c->attrs->v[FL_ATTR_comm_gather_root].i, size));
  return comm_joined(c, rank == c->attrs->v[FL_ATTR_comm_gather_root].i ? size
                                                                        : 0);
}

/* The part of each rank. */
static fl_status comm_split(fli_infer *c, int size) {
  FLI_TRY(parted(c, size));
  c->out[0].shape[0] /= size;
  return FL_OK;
}

/* Of a list attribute; without dims: it was left out. */
static fl_status comm_listed(fli_infer *c, int k, fl_meta *m) {
  int n;
  const int64_t *v = fl_attr_list(c->attrs, k, &n);
  if (n > FL_MAX_DIMS)
    return fli_fail(FL_ESIZE, "%s: a tensor has at most %d dims, not %d",
                    c->op->info.name, FL_MAX_DIMS, n);
  m->ndim = n;
  memcpy(m->shape, v, (size_t)n * sizeof *v);
  return FL_OK;
}

fl_status fli_shape_comm_reduce_scatter(fli_infer *c) {
  int rank = 0, size = 1;
  FLI_TRY(group_of(c, &rank, &size));
  FLI_TRY(reducible(c, c->attrs->v[FL_ATTR_comm_reduce_scatter_reduce].i));
  if (c->attrs->v[FL_ATTR_comm_reduce_scatter_reduce].i <= FL_COMM_MEAN)
    c->saves = 0;
  return comm_split(c, size);
}

fl_status fli_shape_comm_all_to_all(fli_infer *c) {
  int rank = 0, size = 1;
  FLI_TRY(group_of(c, &rank, &size));
  return parted(c, size);
}

fl_status fli_shape_comm_scatter(fli_infer *c) {
  int rank = 0, size = 1;
  fl_meta given;
  FLI_TRY(group_of(c, &rank, &size));
  int64_t root = c->attrs->v[FL_ATTR_comm_scatter_root].i;
  FLI_TRY(check_rank(c, root, size));
  FLI_TRY(comm_listed(c, FL_ATTR_comm_scatter_shape, &given));
  if (rank == root) {
    FLI_TRY(comm_split(c, size));
    if (given.ndim && !fli_same_shape(&given, &c->out[0]))
      return fli_fail(FL_ESHAPE, "%s: shape is %s, but the parts of x are %s",
                      c->op->info.name, fli_shape_text(given.ndim, given.shape),
                      fli_shape_text(c->out[0].ndim, c->out[0].shape));
    return FL_OK;
  }
  if (!given.ndim)
    return fli_fail(FL_EARG, "%s: a rank other than root must say the shape",
                    c->op->info.name);
  c->out[0].ndim = given.ndim;
  memcpy(c->out[0].shape, given.shape, sizeof given.shape);
  return FL_OK;
}

static fl_status check_peer(fli_infer *c) {
  int rank = 0, size = 1;
  int64_t peer = c->attrs->v[FL_ATTR_comm_peers_peer].i;
  FLI_TRY(group_of(c, &rank, &size));
  FLI_TRY(check_rank(c, peer, size));
  if (peer == rank)
    return fli_fail(FL_EARG, "%s: peer %lld is this rank itself",
                    c->op->info.name, (long long)peer);
  return FL_OK;
}

fl_status fli_shape_comm_send(fli_infer *c) {
  return check_peer(c);
}

fl_status fli_shape_comm_recv(fli_infer *c) {
  FLI_TRY(check_peer(c));
  return comm_listed(c, FL_ATTR_comm_recv_shape, &c->out[0]);
}

fl_status fli_shape_comm_barrier(fli_infer *c) {
  int rank = 0, size = 1;
  return group_of(c, &rank, &size);
}

/* --- gradients --- */

static fl_attrs in_group(fli_grad *g, int op) {
  fl_attrs a = fli_attrs(&g->e, op);
  a.v[FL_ATTR_collectives_group] = g->attrs->v[FL_ATTR_collectives_group];
  return a;
}

static fl_value comm_reduced(fli_grad *g, fl_value x, int64_t reduce) {
  fl_attrs a = in_group(g, FLI_OP_comm_all_reduce);
  a.v[FL_ATTR_comm_all_reduce_reduce].i = reduce;
  return RUN_A(comm_all_reduce, &a, x);
}

static fl_value comm_gathered(fli_grad *g, fl_value x) {
  fl_attrs a = in_group(g, FLI_OP_comm_all_gather);
  return RUN_A(comm_all_gather, &a, x);
}

/* The gradient of x, from `dy`, the sum of all ranks' gradients. y: the result
 * of the reduction, or nothing. */
static fl_value unreduced(fli_grad *g, fl_value dy, int64_t reduce,
                          fl_value y) {
  int rank = 0, size = 1;
  fli_comm_group(g->e.rt, g->attrs->v[FL_ATTR_collectives_group].i, &rank,
                 &size);
  if (reduce == FL_COMM_SUM)
    return dy;
  if (reduce == FL_COMM_MEAN)
    return MUL(dy, NUM(1.0 / size));
  if (fli_nothing(y))
    y = comm_reduced(g, g->in[0], reduce);
  fl_value mine = CAST(RUN(eq, g->in[0], y), g->in_meta[0].dtype);
  return MUL(dy, DIV(mine, comm_reduced(g, mine, FL_COMM_SUM)));
}

void fli_grad_comm_all_reduce(fli_grad *g) {
  fl_value dy = comm_reduced(g, fli_g_dy(g, 0), FL_COMM_SUM);
  g->dx[0] =
      unreduced(g, dy, g->attrs->v[FL_ATTR_comm_all_reduce_reduce].i, g->y[0]);
}

static bool is_root(fli_grad *g) {
  int rank = 0, size = 1;
  fli_comm_group(g->e.rt, g->attrs->v[FL_ATTR_collectives_group].i, &rank,
                 &size);
  return rank == g->attrs->v[FL_ATTR_comm_roots_root].i;
}

/* The root's result depends on the x of every rank, another rank's result only
 * on its own x. */
void fli_grad_comm_reduce(fli_grad *g) {
  bool root = is_root(g);
  fl_value dy = fli_g_dy(g, 0), none = MUL(dy, NUM(0));
  fl_value all = comm_reduced(g, root ? dy : none, FL_COMM_SUM);
  fl_value dx =
      unreduced(g, all, g->attrs->v[FL_ATTR_comm_reduce_reduce].i, fli_none());
  g->dx[0] = root ? dx : ADD(dx, dy);
}

void fli_grad_comm_broadcast(fli_grad *g) {
  fl_value dx = comm_reduced(g, fli_g_dy(g, 0), FL_COMM_SUM);
  g->dx[0] = is_root(g) ? dx : MUL(dx, NUM(0));
}

/* This rank's part where it lies in x, zeros around it. */
static fl_value among_parts(fli_grad *g, fl_value part) {
  const fl_meta *x = &g->in_meta[0];
  int rank = 0, size = 1, first = 2 * (x->ndim - 1);
  int64_t ends[2 * FL_MAX_DIMS] = {0};
  fli_comm_group(g->e.rt, g->attrs->v[FL_ATTR_collectives_group].i, &rank,
                 &size);
  ends[first] = x->shape[0] / size * rank;
  ends[first + 1] = x->shape[0] / size * (size - 1 - rank);
  fl_attrs a = fli_attrs(&g->e, FLI_OP_pad);
  fli_set_list(&g->e, &a, FL_ATTR_pad_pad, first + 2, ends);
  return RUN_A(pad, &a, part);
}

void fli_grad_comm_all_gather(fli_grad *g) {
  fl_attrs a = in_group(g, FLI_OP_comm_reduce_scatter);
  a.v[FL_ATTR_comm_reduce_scatter_reduce].i = FL_COMM_SUM;
  fl_value dx = RUN_A(comm_reduce_scatter, &a, fli_g_dy(g, 0));
  g->dx[0] = g->attrs->v[FL_ATTR_comm_all_gather_whole].i
                 ? among_parts(g, dx)
                 : RESHAPE(dx, &g->in_meta[0]);
}

void fli_grad_comm_reduce_scatter(fli_grad *g) {
  fl_value dy = comm_gathered(g, fli_g_dy(g, 0));
  g->dx[0] = unreduced(g, dy, g->attrs->v[FL_ATTR_comm_reduce_scatter_reduce].i,
                       fli_none());
}

void fli_grad_comm_all_to_all(fli_grad *g) {
  fl_attrs a = in_group(g, FLI_OP_comm_all_to_all);
  g->dx[0] = RUN_A(comm_all_to_all, &a, fli_g_dy(g, 0));
}

void fli_grad_comm_gather(fli_grad *g) {
  const fl_meta *x = &g->in_meta[0];
  static const int64_t one[1] = {1};
  fl_attrs a = in_group(g, FLI_OP_comm_scatter);
  a.v[FL_ATTR_comm_scatter_root].i = g->attrs->v[FL_ATTR_comm_gather_root].i;
  fli_set_list(&g->e, &a, FL_ATTR_comm_scatter_shape, x->ndim ? x->ndim : 1,
               x->ndim ? x->shape : one);
  g->dx[0] = RESHAPE(RUN_A(comm_scatter, &a, fli_g_dy(g, 0)), x);
}

/* Only the root's x was read; the gradient on other ranks is 0. */
void fli_grad_comm_scatter(fli_grad *g) {
  const fl_meta *x = &g->in_meta[0];
  fl_attrs a = in_group(g, FLI_OP_comm_gather);
  a.v[FL_ATTR_comm_gather_root].i = g->attrs->v[FL_ATTR_comm_scatter_root].i;
  fl_value dy = fli_g_dy(g, 0), dx = RUN_A(comm_gather, &a, dy);
  if (is_root(g))
    g->dx[0] = dx;
  else if (dy.tensor)
    g->dx[0] = fli_v_zeros(&g->e, fli_meta(dy)->dtype, x->ndim, x->shape,
                           fl_tensor_device(dy.tensor));
}
