/* Tensors that move into a part of another tensor's memory, with their views:
 * parameters that collectives send from there and receive into it. */
#include "autograd.h"

/* The elements of its storage that t may reach, from the first to behind the
 * last. */
static void place_extent(const fl_tensor *t, int64_t *first, int64_t *end) {
  *first = *end = t->offset;
  for (int i = 0; i < t->meta.ndim && t->numel; i++) {
    int64_t reach = (t->meta.shape[i] - 1) * t->stride[i];
    *(reach < 0 ? first : end) += reach;
  }
  *end += t->numel > 0;
}

static fl_status place_check(fl_tensor *t, fl_tensor *flat, int64_t from) {
  if (!t->rt || !t->storage || !flat->rt || !flat->storage)
    return fli_fail(FL_ECLOSED, "tensor is closed");
  FLI_TRY(fli_check_owner(t->rt));
  if (t->node || t->storage->loan || t->storage->read_only)
    return fli_fail(FL_EAUTOGRAD, "what moves into other memory is a tensor "
                                  "without history that may be written");
  if (flat->rt != t->rt || fli_wants_grad(flat) || !flat->contiguous ||
      flat->meta.dtype != t->meta.dtype ||
      fl_tensor_device(flat) != fl_tensor_device(t) ||
      flat->storage == t->storage || from < 0 || from > flat->numel - t->numel)
    return fli_fail(FL_ESHAPE,
                    "a tensor of %lld elements moves into a contiguous one of "
                    "its dtype on its device, which needs no gradient and has "
                    "room for them from element %lld on",
                    (long long)t->numel, (long long)from + 1);
  return FL_OK;
}

/* References that its storage counts: not those of views to their base. */
static int place_counted(const fl_tensor *t) {
  int n = t->rc;
  for (const fl_tensor *v = t->rt->tensors; v; v = v->next)
    n -= v->base == t;
  return n;
}

fl_status fl_tensor_place(fl_tensor *t, fl_tensor *flat, int64_t from) {
  FLI_NEED(t, "t");
  FLI_NEED(flat, "flat");
  fl_tensor *place, *same;
  FLI_TRY(place_check(t, flat, from));
  FLI_TRY(fli_settle_all(t->rt));
  fl_storage *old = t->storage, *s = flat->storage;
  fl_meta m = t->meta;
  int64_t first, end, at, to;
  FLI_TRY(fli_tensor_view(flat, &m, t->stride, flat->offset + from, &place));
  fli_tensor_set_shape(place, &m);
  fl_operand in[2] = {{.tensor = place}, {.tensor = t}};
  fl_call c = {.op = &t->rt->ops[FLI_OP_assign],
               .n_in = 2,
               .in = in,
               .inplace = true,
               .out = &same};
  bool grad = fl_grad_mode(t->rt, false);
  fl_status status = fl_call_run(t->rt, &c);
  fl_grad_mode(t->rt, grad);
  fl_tensor_release(place);
  if (status)
    return status;
  fl_tensor_release(same);
  if (s->version <= old->version) /* casts go by id and version */
    s->version = old->version + 1;
  bool others = t->contiguous; /* else they would not find their elements */
  int64_t by = flat->offset + from - t->offset;
  place_extent(t, &first, &end);
  t->rt->moves++;
  fli_storage_retain(old);
  for (fl_tensor *v = t->rt->tensors; v; v = v->next) {
    if (v->storage != old)
      continue;
    place_extent(v, &at, &to);
    if (v == t || (others && first <= at && to <= end)) {
      v->offset += by;
      fli_tensor_rehouse(v, s, place_counted(v));
    }
  }
  fli_storage_release(old);
  fli_tensor_set_shape(t, &m);
  fli_tensor_own(t);
  return FL_OK;
}
