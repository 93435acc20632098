-- Functions of plain operators that compile into one kernel each, on a GPU: the rate at which they
-- move the memory that they have to. `flare bench/gpu/tile.lua`.
local flare = require "flare"
local m = dofile((arg[0]:match "^(.*/)" or "") .. "measure.lua")

local function compiled(name, bytes, f, ...)
  local run, inputs = flare.compile(f, {wait = true}), {...}
  m.bytes(name, bytes, function() return run(table.unpack(inputs)) end)
end

local function gelu(x)
  return x * 0.5 * (1 + ((x + x * x * x * 0.044715) * 0.7978845608):tanh())
end

local function softmax(x, dim)
  local e = (x - x:amax(dim, {keepdim = true})):exp()
  return e / e:sum(dim, {keepdim = true})
end

local function layer_norm(x, w, b)
  local d = x - x:mean(-1, {keepdim = true})
  return d / ((d * d):mean(-1, {keepdim = true}) + 1e-5):sqrt() * w + b
end

for _, dtype in ipairs{"bf16", "f32"} do
  local size = dtype == "bf16" and 2 or 4
  local x = m.normal(dtype, 8192, 4096)
  compiled("gelu 8192 x 4096 " .. dtype, 2 * size * x:numel(), gelu, x)
  compiled("transpose 8192 x 4096 " .. dtype, 2 * size * x:numel(),
    function(v) return (v:t() * 2):contiguous() end, x)
  local rows = m.normal(dtype, 65536, 768)
  local w, b = m.normal(dtype, 768), m.normal(dtype, 768)
  compiled("layer norm 65536 x 768 " .. dtype, 2 * size * rows:numel(), layer_norm, rows, w, b)
end

do
  local wide, tall = m.normal("bf16", 8192, 4096), m.normal("bf16", 65536, 1024)
  compiled("softmax 8192 x 4096 bf16", 4 * wide:numel(), function(x) return softmax(x, 2) end, wide)
  compiled("softmax 65536 x 1024 bf16", 4 * tall:numel(), function(x) return softmax(x, 2) end,
    tall)
  compiled("softmax of columns 65536 x 1024 bf16", 4 * tall:numel(),
    function(x) return softmax(x, 1) end, tall)
end

do
  local dy, x = m.normal("bf16", 65536, 768), m.normal("bf16", 65536, 768)
  local w = m.normal("bf16", 768)
  compiled("column sum 65536 x 768 bf16", 2 * dy:numel(), function(v) return v:sum(1) end, dy)
  compiled("three sums of a norm 65536 x 768 bf16", 4 * dy:numel(), function(d, v, g)
    local u = d * g
    return u:sum(2), (u * v):sum(2)
  end, dy, x, w)
  compiled("rope 65536 x 768 bf16", 4 * x:numel(), function(v)
    local a, b = v:narrow(2, 1, 384), v:narrow(2, 385, 384)
    return flare.cat({a * 0.7 - b * 0.3, b * 0.7 + a * 0.3}, 2)
  end, x)
end

do
  local last, second = m.normal("bf16", 256 * 56 * 56, 64), m.normal("bf16", 256, 64, 56, 56)
  compiled("batch statistics NHWC bf16", 2 * last:numel(), function(x)
    return x:sum(1), (x * x):sum(1)
  end, last)
  compiled("batch statistics NCHW bf16", 2 * second:numel(), function(x)
    return x:sum{dims = {1, 3, 4}}, (x * x):sum{dims = {1, 3, 4}}
  end, second)
end

-- Statistics of rows, with what follows them.
do
  local x = m.normal("bf16", 32, 128, 64, 64)
  compiled("group norm and silu 32 x 128 x 64 x 64 bf16", 4 * x:numel(),
    function(v) return flare.silu(flare.group_norm(v, nil, nil, 32)) end, x)
  local wide = m.normal("bf16", 32, 384, 64, 64) -- rows that two kernels read
  compiled("group norm and silu 32 x 384 x 64 x 64 bf16", 6 * wide:numel(),
    function(v) return flare.silu(flare.group_norm(v, nil, nil, 32)) end, wide)
  local rows = m.normal("bf16", 65536, 768)
  compiled("layer norm and gelu 65536 x 768 bf16", 4 * rows:numel(),
    function(v) return flare.gelu(flare.layer_norm(v)) end, rows)
  local long = m.normal("f32", 16, 1 << 22)
  compiled("variance 16 x 4194304 f32", 4 * long:numel(),
    function(v) return v:var{dims = {2}} * 2 end, long)
  local pixels = m.normal("bf16", 256 * 56 * 56, 64)
  compiled("variance of columns 802816 x 64 bf16", 2 * pixels:numel(),
    function(v) return v:var{dims = {1}} * 2 end, pixels)
end
