/* A shared library with operators for fl_op_register: y = x * by + add over
 * contiguous f32, its gradient, and an init hook that knows whom it serves. */
#include <flare/flare.h>

#include <string.h>

FL_API fl_status scale_init(const char *name, uint64_t fingerprint);
FL_API fl_status scale_refuse(const char *name, uint64_t fingerprint);
FL_API fl_status scale(const fl_launch *l);
FL_API fl_status scale_backward(const fl_launch *l);

static float add;

fl_status scale_init(const char *name, uint64_t fingerprint) {
  add = 1;
  return fingerprint && strncmp(name, "outside_", 8) == 0
             ? FL_OK
             : fli_fail(FL_EARG, "scale: made for others than %s", name);
}

fl_status scale_refuse(const char *name, uint64_t fingerprint) {
  (void)fingerprint;
  return fli_fail(FL_EDEVICE, "%s: not on this machine", name);
}

static float at(const fl_view *v, int64_t i) {
  int64_t offset = 0;
  for (int d = v->ndim - 1; d >= 0; d--) {
    offset += i % v->shape[d] * v->stride[d];
    i /= v->shape[d];
  }
  return ((const float *)v->data)[offset];
}

fl_status scale(const fl_launch *l) {
  const fl_view *y = &l->out[0];
  int64_t n = fl_numel(y->ndim, y->shape);
  if (l->in[0].dtype != FL_F32)
    return fli_fail(FL_EDTYPE, "%s: x is %s, but must be f32", l->op,
                    fl_dtype_name(l->in[0].dtype));
  for (int64_t i = 0; i < n; i++)
    ((float *)y->data)[i] = at(&l->in[0], i) * (float)l->attrs->v[0].f + add;
  return FL_OK;
}

/* x, y, dy -> dx */
fl_status scale_backward(const fl_launch *l) {
  const fl_view *dx = &l->out[0];
  int64_t n = fl_numel(dx->ndim, dx->shape);
  for (int64_t i = 0; i < n; i++)
    ((float *)dx->data)[i] = at(&l->in[2], i) * (float)l->attrs->v[0].f;
  return FL_OK;
}
