/* copy, assign, fill and full: each is one flc_move (map.c). */
#include "cuda.h"

#include "../../runtime/math/math.h"

#include <string.h>

FLC_KERNEL(copy) {
  return flc_move(l, &l->out[0], &l->in[0]);
}

FLC_KERNEL(assign) {
  return flc_move(l, &l->out[0], &l->in[FL_IN_assign_from]);
}

FLC_KERNEL(fill) {
  const fl_view *v = &l->in[FL_IN_fill_value];
  if (fl_view_numel(v) != 1)
    return fli_fail(FL_ESHAPE, "fill: the value must be one element, not %s",
                    fli_shape_text(v->ndim, v->shape));
  fl_view one;
  fl_view_copy(&one, v);
  one.ndim = 0;
  return flc_move(l, &l->out[0], &one);
}

FLC_KERNEL(full) {
  fl_view v = {.dtype = FL_F64, .ndim = 0};
  double f = l->attrs->v[FL_ATTR_full_value].f;
  int64_t i;
  if (!fl_attr_whole(l->attrs, FL_ATTR_full_value, FL_WHOLE_full_value, &i))
    i = fl_to_int(f);
  bool whole = fl_dtype_is_int(l->out[0].dtype);
  v.data = v.imm;
  v.dtype = whole ? FL_I64 : FL_F64;
  memcpy(v.imm, whole ? (void *)&i : (void *)&f, 8);
  return flc_move(l, &l->out[0], &v);
}
