/* Collectives of tensors in the host's memory: operands made contiguous, then
 * handed to the group's engine. */
#include "cpu.h"

#include "../../runtime/comm.h"

#include <string.h>

static fl_status run_collective(const fl_launch *l) {
  fl_comm_call c;
  const fl_view *x = l->n_in ? &l->in[0] : NULL;
  const fl_view *y = l->n_out ? &l->out[0] : NULL;
  fl_comm_read(l, &c);
  c.in = x ? FL_CPU(input)(l, x, x->dtype) : NULL;
  c.out = y ? FL_CPU(output)(l, y, y->dtype) : NULL;
  if ((x && !c.in) || (y && !c.out))
    return FL_ENOMEM;
  if (c.async && ((x && c.in != x->data) || (y && c.out != y->data)))
    return fli_fail(
        FL_EARG, "%s: an asynchronous call needs a contiguous tensor", l->op);
  c.in = fl_comm_given(l, &c, c.in);
  fl_status s = FL_OK;
  if (!fl_comm_alone(l))
    s = l->comm->link->engine->run(&c);
  else if (x && y && c.in != c.out)
    memcpy(c.out, c.in, fl_view_bytes(y));
  if (s == FL_OK && y)
    FL_CPU(finish)(l, y, y->dtype, c.out);
  return s;
}

#define FL_COLLECTIVE(name, kind)                                              \
  FL_KERNEL(comm_##name) {                                                     \
    return run_collective(l);                                                  \
  }
#include "../../runtime/ops.def"
