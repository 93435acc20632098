-- Kernels of one's own: a fused expression, a reduction, a traced function, a C function.
local flare = require "flare"
flare.manual_seed(6)

local geglu = flare.elementwise("T a, T b", "T z", "z = a * gelu(b)")
local a, b = flare.randn(64, 32, {requires_grad = true}),
  flare.randn(64, 32, {requires_grad = true})
assert((geglu(a, b) - a * flare.gelu(b)):abs():max():item() < 1e-5)
assert(flare.gradcheck(geglu, {flare.randn(4), flare.randn(4)}))

local sqdist = flare.reduce("T x, T y", "T d", "T t = x - y; t * t", "sum")
local p, q = flare.randn(10, 3), flare.randn(7, 3)
local d = sqdist(p:unsqueeze(2), q, 3)
assert((d:sqrt() - flare.cdist(p, q)):abs():max():item() < 1e-4)

local focal = flare.kernel(function(logit, target, gamma)
  local pt = flare.where(target:gt(0.5), logit:sigmoid(), 1 - logit:sigmoid())
  return -((1 - pt) ^ gamma) * pt:log()
end)
local loss = focal(flare.randn(8), flare.rand(8):round(), 2)
print(loss.shape, loss:mean():item())

-- a C function of a shared library
local folder = os.tmpname()
os.remove(folder)
assert(flare.core.file.mkdir(folder))
assert(flare.core.file.write_atomic(folder .. "/leaky.c", [==[
#include <flare/flare.h>

FL_API fl_status my_leaky(const fl_launch *l);

fl_status my_leaky(const fl_launch *l) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  if (x->dtype != FL_F32 || x->ndim != 1)
    return fli_fail(FL_EDTYPE, "%s: one dim of f32 is wanted", l->op);
  float slope = (float)l->attrs->v[0].f;
  for (int64_t i = 0; i < x->shape[0]; i++) {
    float v = ((const float *)x->data)[i * x->stride[0]];
    ((float *)y->data)[i] = v > 0 ? v : v * slope;
  }
  return FL_OK;
}
]==]))
local include = (os.getenv "FLARE_PREFIX" or "/usr/local") .. "/include"
local command = ("cc -O2 -shared -fPIC -I%s %s/leaky.c -o %s/leaky.so")
  :format(include, folder, folder)
print(command)
assert(os.execute(command))
local leaky = flare.op.register{
  name = "my_leaky", signature = "x:float, slope:real=0.1 -> y:x",
  library = folder .. "/leaky.so", symbol = "my_leaky", backend = "cpu",
  gradient = "gx = x > 0 ? gy : gy * slope",
}
local x = flare.tensor({-1, 2, -3}, {requires_grad = true})
local y = leaky(x, {slope = 0.5})
print(y)
assert(y:eq(flare.tensor{-0.5, 2, -1.5}):all():item())
y:sum():backward()
print(x.grad)
assert(x.grad:eq(flare.tensor{0.5, 1, 0.5}):all():item())
print(pcall(leaky, flare.ones(2, 2)))
os.execute("rm -r " .. folder)
print(flare.help "my_leaky")
