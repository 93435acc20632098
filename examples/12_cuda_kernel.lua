-- A kernel in CUDA C++ as a function with a gradient: a block normalizes each row of a matrix.
-- Without a GPU the program shows the compiler's report, and how errors look.
local flare = require "flare"
flare.args(arg, "Compiles a kernel in CUDA C++ and uses it with a gradient.")

local source = [[
#include <cub/block/block_reduce.cuh>

typedef cub::BlockReduce<float, 256> block_sum;

// y = x / |x| for each row; `length` keeps |x|.
__global__ void unit(const float *x, float *y, float *length, int n) {
  __shared__ typename block_sum::TempStorage room;
  __shared__ float whole;
  const float *row = x + (long long)blockIdx.x * n;
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += row[i] * row[i];
  sum = block_sum(room).Sum(sum);
  if (threadIdx.x == 0) length[blockIdx.x] = whole = sqrtf(sum);
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    y[(long long)blockIdx.x * n + i] = row[i] / whole;
}]]

local function rows(args) return args.x:size(1) end
local ok, unit = pcall(flare.cuda.kernel, {
  source = source, name = "unit", grid = rows,
  out = {y = "x", length = function(args) return {rows(args), 1} end},
  backward = function(ctx, dy, dlength)      -- one for each argument; n is a number and has none
    local y, length = ctx.args.y, ctx.args.length
    local dx = (dy - y * (y * dy):sum(2, {keepdim = true})) / length
    return dlength and dx + y * dlength or dx
  end,
})
if not ok then                               -- no compiler on this machine
  print(unit)
  return
end
print(unit)

local function near(a, b) return (a - b):abs():max():item() < 1e-3 end
if flare.cuda.available() then
  local x = flare.randn({4, 1000}, {device = "cuda"})
  local y, length = unit(x, 1000)
  print("lengths are right:",
        near(length, x:square():sum(2, {keepdim = true}):sqrt()))
  print("rows have length 1:", near((y * y):sum(2), 1))
  local w = x:clone():detach()
  w.requires_grad = true
  unit(w, 1000):sum():backward()
  local v = x:clone():detach()
  v.requires_grad = true
  (v / v:square():sum(2, {keepdim = true}):sqrt()):sum():backward()
  print("the gradient is right:", near(w.grad, v.grad))
else
  print(select(2, pcall(unit, flare.randn(4, 1000), 1000)))
end

-- A mistake: the message has the line of this file.
print(select(2, pcall(flare.cuda.kernel, {name = "wrong", source = [[
  __global__ void wrong(float *y) {
    y[0] = sqrt(radius);
  }]]})))
