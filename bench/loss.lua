-- A linear layer, cross-entropy and their gradients: the time of a step, and the most memory that
-- it needs beside inputs and gradients, at once and compiled. Options: --device NAME, --dtype
-- NAME, --rows N, --inputs N, --classes N, --times N, --only at_once|whole|chunks.
-- bench/peers/loss.py is the same in PyTorch.
-- `flare bench/loss.lua [--device cuda] [--rows 16384]`.
local flare = require "flare"
local o = {device = flare.cuda.available() and "cuda" or "cpu", dtype = nil, rows = 16384,
           inputs = 768, classes = 50304, times = 20, only = nil}
for i = 1, #arg, 2 do
  local name = arg[i]:match "^%-%-(%a+)$"
  assert(name and arg[i + 1], "usage: flare bench/loss.lua [--NAME VALUE]...")
  o[name] = tonumber(arg[i + 1]) or arg[i + 1]
end
local cuda = o.device:find "^cuda" ~= nil
o.dtype = o.dtype or (cuda and "bf16" or "f32")

flare.manual_seed(1)
local options = {device = o.device, dtype = o.dtype}
local x = (flare.randn(o.rows, o.inputs, options)):requires_grad_()
local w = (flare.randn(o.classes, o.inputs, options) * 0.02):requires_grad_()
local target = flare.range(1, o.rows, {dtype = "i64", device = o.device}) * 7919 % o.classes + 1
local gradients = x:nbytes() + w:nbytes()

local function step()
  x.grad, w.grad = nil, nil
  local loss = flare.nn.functional.cross_entropy(flare.nn.functional.linear(x, w), target)
  loss:backward()
  return loss
end

local function measure(name, f)
  for _ = 1, cuda and 12 or 3 do f() end
  x.grad, w.grad = nil, nil
  collectgarbage()
  collectgarbage()
  flare.memory.reset_peak(o.device)
  local before = flare.memory.stats(o.device).live
  f()
  flare.synchronize()
  local peak = flare.memory.stats(o.device).peak - before - gradients
  local times = {}
  for k = 1, cuda and 7 or 3 do
    local n = cuda and o.times or 1
    local start = flare.clock()
    for _ = 1, n do f() end
    flare.synchronize()
    times[k] = (flare.clock() - start) / n
  end
  table.sort(times)
  local flops = 6 * o.rows * o.inputs * o.classes
  print(("%-22s %10.3f ms %8.1f TFLOP/s %10.1f MiB   loss %.5f"):format(name,
    times[(#times + 1) // 2] * 1e3, flops / times[(#times + 1) // 2] * 1e-12, peak / 2 ^ 20,
    f():item()))
  io.flush()
end

print(("%d x %d x %d %s on %s"):format(o.rows, o.inputs, o.classes, o.dtype, o.device))
local ways = {{"at once", "at_once", step},
              {"compiled, whole", "whole", flare.compile(step, {chunk = false, wait = true})},
              {"compiled", "chunks", flare.compile(step, {wait = true})}}
for _, way in ipairs(ways) do
  if not o.only or o.only == way[2] then measure("flare " .. way[1], way[3]) end
end
