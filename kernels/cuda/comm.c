/* Collectives of tensors on a GPU: operands made contiguous, then handed to the
 * group's engine, which queues on the launch's stream. */
#include "cuda.h"

#include "../../runtime/comm.h"

static fl_status run_collective(const fl_launch *l) {
  fl_comm_call c;
  const fl_view *x = l->n_in ? &l->in[0] : NULL;
  const fl_view *y = l->n_out ? &l->out[0] : NULL;
  fl_comm_read(l, &c);
  c.in = x ? flc_input(l, x, x->dtype) : NULL;
  size_t bytes = y ? (size_t)fl_view_numel(y) * fl_dtype_size(y->dtype) : 0;
  bool straight = !y || fl_contiguous(y);
  c.out = straight ? (y ? y->data : NULL) : fl_scratch_get(l, bytes);
  if ((x && !c.in) || (y && !c.out))
    return FL_ENOMEM;
  c.in = fl_comm_given(l, &c, c.in);
  fl_status s = FL_OK;
  if (!fl_comm_alone(l))
    s = l->comm->link->engine->run(&c);
  else if (x && bytes && c.in != c.out)
    s = flc_copy(l, c.out, c.in, bytes);
  if (s || straight)
    return s;
  fl_view flat = *y;
  flat.data = c.out;
  for (int64_t d = y->ndim - 1, n = 1; d >= 0; n *= y->shape[d--])
    flat.stride[d] = n;
  return flc_move(l, y, &flat);
}

#define FL_COLLECTIVE(name, kind)                                              \
  FLC_KERNEL(comm_##name) {                                                    \
    return run_collective(l);                                                  \
  }
#include "../../runtime/ops.def"
