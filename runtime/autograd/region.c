/* Gradients that are written into a part of another tensor. The gradient of a
 * view is added to a sum for its base, without a tensor of zeros for each view;
 * that of a leaf is written into its place in a bucket. */
#include "autograd.h"

#include <string.h>

bool fli_is_part(const fl_op *op) {
  return op->shows >= FLI_SHOWS_PART;
}

fl_status fl_tensor_place_grad(fl_tensor *t, fl_tensor *flat, int64_t from) {
  FLI_NEED(t, "t");
  fli_extra *x;
  fl_tensor *place = NULL;
  if (!t->rt || (flat && !flat->rt))
    return fli_fail(FL_ECLOSED, "tensor is closed");
  FLI_TRY(fli_check_owner(t->rt));
  if (flat && !t->requires_grad)
    return fli_fail(FL_EAUTOGRAD, "only a leaf that requires a gradient has a "
                                  "place for it");
  if (flat &&
      (flat->rt != t->rt || fli_wants_grad(flat) || !flat->contiguous ||
       !fli_is_float(flat->meta.dtype) != !fli_is_float(t->meta.dtype) ||
       fl_tensor_device(flat) != fl_tensor_device(t) || from < 0 ||
       from > flat->numel - t->numel))
    return fli_fail(FL_ESHAPE,
                    "the place of a gradient is in a contiguous tensor on its "
                    "tensor's device, of floats for floats, which needs no "
                    "gradient itself and has room for %lld elements",
                    (long long)t->numel);
  FLI_TRY(fli_extra_of(t, &x));
  if (flat) {
    fl_meta m = t->meta;
    m.dtype = flat->meta.dtype;
    FLI_TRY(fli_tensor_view(flat, &m, t->stride, flat->offset + from, &place));
    fli_tensor_set_shape(place, &m);
    fli_tensor_own(place);
  }
  fl_tensor_release(x->place);
  x->place = place;
  return FL_OK;
}

fl_status fli_place(fl_runtime *rt, fli_extra *x, fl_tensor *g, fl_site site) {
  fl_operand in[2] = {{.tensor = x->place}, {.tensor = g}};
  fl_tensor *old = x->grad, *out;
  fl_call c = {.op = &rt->ops[old ? FLI_OP_add : FLI_OP_assign],
               .n_in = 2,
               .in = in,
               .inplace = true,
               .site = site,
               .out = &out};
  fl_status s = fl_call_run(rt, &c);
  fl_tensor_release(g);
  if (s == FL_OK) {
    x->grad = out;
    fl_tensor_release(old);
  }
  return s;
}

/* --- sums of parts --- */

#define SLABS 8

/* What of a sum has been written, where only slabs across one dim have: [from,
 * to) each, in order, none touching the next. Nothing else has a value yet. */
struct fli_slabs {
  int out, dim, n;
  int64_t from[SLABS], to[SLABS];
};

/* false: it overlaps others, or there are too many. */
static bool take_slab(fli_slabs *p, int64_t from, int64_t to) {
  int i = 0;
  while (i < p->n && p->to[i] < from)
    i++;
  bool below = i < p->n && p->to[i] == from; /* [i] goes on */
  int k = i + below;
  if (k < p->n && p->from[k] < to)
    return false;
  bool above = k < p->n && p->from[k] == to;
  int more = 1 - below - above;
  if (p->n + more > SLABS)
    return false;
  from = below ? p->from[i] : from;
  to = above ? p->to[k] : to;
  int rest = i + below + above;
  size_t bytes = (size_t)(p->n - rest) * sizeof *p->from;
  memmove(p->from + i + 1, p->from + rest, bytes);
  memmove(p->to + i + 1, p->to + rest, bytes);
  p->from[i] = from;
  p->to[i] = to;
  p->n += more;
  return true;
}

static void region_zero(fli_env *e, fl_value x) {
  fli_run_inplace(e, FLI_OP_assign, NULL, 2, (fl_value[]){x, fli_number(0)});
}

fl_status fli_fill_slabs(fl_runtime *rt, fl_node *n) {
  fli_env env, *e = &env;
  fli_slabs *p = n->slabs;
  fli_env_open(e, rt, n->base, n->site);
  fl_value sum = fli_given(n->grads[p->out]);
  int64_t at = 0, size = fli_meta(sum)->shape[p->dim];
  for (int k = 0; k <= p->n; k++) {
    int64_t to = k < p->n ? p->from[k] : size;
    if (at < to)
      region_zero(e, fli_v_narrow(e, sum, p->dim, at, to - at, 1));
    at = k < p->n ? p->to[k] : size;
  }
  fl_status s = e->status;
  fli_env_close(e);
  fli_mfree(p);
  n->slabs = NULL;
  return s;
}

/* Memory for the gradient of `to`'s result. For a permutation its strides are
 * such that the gradient before the permutation is contiguous. */
static fl_status open_sum(fl_runtime *rt, const fl_node *n, fl_tensor **sum) {
  fl_node *to = n->edges[0].node;
  bool turned = to->kind == FLI_NODE_OP && to->op->shows == FLI_SHOWS_TURNED;
  fl_meta meta = turned ? to->in_meta[0] : to->out_meta[n->edges[0].out];
  fl_tensor *t;
  size_t bytes;
  meta.dtype = n->in_meta[0].dtype;
  FLI_TRY(fli_finish_sum(rt, to)); /* of another result */
  FLI_TRY(fli_check_size(meta.dtype, meta.ndim, meta.shape, &bytes));
  FLI_TRY(fli_tensor_result(rt, &meta, bytes, fl_tensor_device(n->grads[0]),
                            to->site, &t));
  if (!turned) {
    *sum = t;
    return FL_OK;
  }
  fl_operand in = {.tensor = t};
  fl_call c = {.op = to->op,
               .n_in = 1,
               .in = &in,
               .attrs = to->attrs,
               .base = to->base,
               .out = sum};
  fl_status s = fl_call_run(rt, &c);
  if (s == FL_OK)
    fli_tensor_own(*sum);
  fl_tensor_release(t);
  return s;
}

/* Whether the part is all of `sum` between two positions of a dim. */
static bool is_slab(const fl_node *n, const fl_tensor *part,
                    const fl_tensor *sum) {
  if (n->op->shows != FLI_SHOWS_SLAB || sum->numel == 0)
    return false;
  int dim = (int)n->attrs->v[FL_ATTR_slabs_dim].i;
  return part->meta.ndim < sum->meta.ndim ||
         part->stride[dim] == sum->stride[dim];
}

/* Whether nothing was written yet to the part of `sum`, which counts as written
 * from now on. */
static bool is_new(fli_slabs *p, const fl_node *n, const fl_tensor *part,
                   const fl_tensor *sum) {
  int dim = (int)n->attrs->v[FL_ATTR_slabs_dim].i;
  int64_t from = (part->offset - sum->offset) / sum->stride[dim];
  int64_t size = part->meta.ndim < sum->meta.ndim ? 1 : part->meta.shape[dim];
  return p->out == n->edges[0].out && p->dim == dim &&
         take_slab(p, from, from + size);
}

/* Before the first part: zeros, or nothing is written yet. */
static fl_status begin_sum(fli_env *e, fl_node *n, fl_tensor *sum, bool slab) {
  fl_node *to = n->edges[0].node;
  if (!slab) {
    region_zero(e, fli_given(sum));
    return e->status;
  }
  to->slabs = fli_malloc(e->rt, sizeof *to->slabs);
  if (!to->slabs)
    return FL_ENOMEM;
  *to->slabs = (fli_slabs){.out = n->edges[0].out,
                           .dim = (int)n->attrs->v[FL_ATTR_slabs_dim].i};
  return FL_OK;
}

fl_status fli_add_part(fl_runtime *rt, fl_node *n) {
  fli_env env, *e = &env;
  fl_node *to = n->edges[0].node;
  fl_tensor **sum = &to->grads[n->edges[0].out], *out;
  bool fresh = !*sum;
  fli_env_open(e, rt, n->base, n->site);
  fl_status s = fresh ? open_sum(rt, n, sum) : FL_OK;
  fl_value whole = fli_given(*sum), part = fli_none();
  if (s == FL_OK) {
    part = fli_run(e, n->op->id, n->attrs, 1, &whole);
    s = e->status;
  }
  bool slab = s == FL_OK && is_slab(n, part.tensor, *sum);
  if (s == FL_OK && fresh)
    s = begin_sum(e, n, *sum, slab);
  if (s == FL_OK && to->slabs) {
    fresh = slab && is_new(to->slabs, n, part.tensor, *sum);
    s = fresh ? FL_OK : fli_fill_slabs(rt, to);
  }
  if (s == FL_OK) {
    fl_operand in[2] = {{.tensor = part.tensor}, {.tensor = n->grads[0]}};
    fl_call c = {.op = &rt->ops[fresh ? FLI_OP_assign : FLI_OP_add],
                 .n_in = 2,
                 .in = in,
                 .inplace = true,
                 .site = n->site,
                 .out = &out};
    s = fl_call_run(rt, &c);
  }
  if (s == FL_OK)
    fl_tensor_release(out);
  fli_env_close(e);
  return s;
}
