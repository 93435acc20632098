/* The kernel "epilogue": a row's kernel, then an expression of its result, or
 * a tile. */
#include "cpu.h"

#include "../../runtime/program.h"

FL_KERNEL(expr);
FL_KERNEL(tile);

FL_KERNEL(epilogue) {
  const fl_view *y = &l->out[0];
  fl_epilogue e;
  size_t bytes = (size_t)fl_view_numel(y) * fl_dtype_size(y->dtype);
  void *result = y->data ? y->data : fl_scratch_get(l, bytes);
  if (!result)
    return FL_ENOMEM;
  fl_epilogue_split(l, result, &e);
  fl_status s = l->row(&e.row);
  return s ? s : l->tile ? FL_CPU(tile)(&e.program) : FL_CPU(expr)(&e.program);
}
