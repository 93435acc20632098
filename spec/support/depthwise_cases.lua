--- Convolutions of groups with few channels and their gradients, of random shapes, on the device
-- "cuda" against the CPU in f64. Prints what differs, then how many do, of how many.
--   flare spec/support/depthwise_cases.lua SEED COUNT
local flare = require "flare"
math.randomseed(tonumber(arg[1]))
local bad, done = 0, 0

local function pick(...) return (select(math.random(select("#", ...)), ...)) end
local function same(x) return x end
local function last(x)
  return x:dim() == 4 and x:permute{1, 3, 4, 2}:contiguous():permute{1, 4, 2, 3} or x
end

local function compare(what, got, want, most)
  local error = (got:to "cpu":to "f64" - want):abs():max():item() / want:abs():max():item()
  done = done + 1
  if error <= most then return end
  bad = bad + 1
  print(what .. ": an error of " .. error)
end

-- Shapes and options.
local function draw()
  local c = {groups = pick(2, 3, 4, 6, 8, 16, 34), inputs = pick(1, 1, 1, 2, 4),
             multiplier = pick(1, 1, 1, 2, 3), batch = math.random(3),
             dilation = pick(1, 1, 1, 2, 3), kernel = {}, size = {}, padding = {}, stride = {}}
  for i = 1, pick(1, 2, 2, 2, 2) do
    local k = pick(1, 2, 3, 3, 4, 5, 7, 7, 10, 13, 31)
    if i == 2 and pick(true, false) then k = c.kernel[1] end
    c.kernel[i], c.padding[i] = k, pick(k // 2, math.random(0, k))
    c.stride[i] = pick(1, 1, 2)
    c.size[i] = math.max(pick(5, 7, 8, 9, 14, 16, 20, 28, 32, 40),
      (k - 1) * c.dilation + 1 - 2 * c.padding[i])
  end
  return c
end

local function check(c, dtype, lay)
  local options = {stride = c.stride, dilation = c.dilation, padding = c.padding, groups = c.groups}
  local most = dtype == "bf16" and 6e-3 or 2e-5
  local x = flare.randn(c.batch, c.groups * c.inputs, table.unpack(c.size)):to(dtype)
  local outputs = c.groups * c.multiplier
  local w = flare.randn(outputs, c.inputs, table.unpack(c.kernel)):to(dtype)
  local bias = pick(true, false) and flare.randn(outputs) or nil
  local function wide(t) return t and t:to "f64" end
  local function device(t) return t and t:to "cuda" end
  local want = flare.conv(wide(x), wide(w), wide(bias), options)
  local dy = flare.randn(table.unpack(want.shape)):to(dtype)
  local what = ("%s %s, %s, stride %s, dilation %d, padding %s, %s"):format(dtype,
    table.concat(x.shape, " x "), table.concat(w.shape, " x "),
    table.concat(c.stride, " x "), c.dilation, table.concat(c.padding, " x "),
    lay == last and "channels-last" or "contiguous")
  compare("y of " .. what, flare.conv(device(lay(x)), device(w), device(bias), options), want, most)
  compare("dx of " .. what, flare.conv_input_grad(device(lay(dy)), device(w), x.shape, options),
    flare.conv_input_grad(wide(dy), wide(w), x.shape, options), most)
  if lay == last and c.inputs > 1 then return end -- copied to the layout of w by other kernels
  compare("dw of " .. what, flare.conv_weight_grad(device(lay(dy)), device(lay(x)), w.shape,
    options), flare.conv_weight_grad(wide(dy), wide(x), w.shape, options), most)
end

for k = 1, tonumber(arg[2]) do
  check(draw(), k % 3 == 0 and "f32" or "bf16", pick(same, last))
end
print(("%d of %d differ"):format(bad, done))
