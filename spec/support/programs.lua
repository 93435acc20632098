-- Random programs: elementwise operators, views, writes in place and through views, reductions,
-- products, reads of values, branches, values that escape, gradients. A program is drawn from a
-- seed, so that it runs the same twice: at once, and compiled, with `exact` or without. Without it
-- reductions are fused, too, and programs have no steps that jump where a value is rounded.
local flare = require "flare"

local M = {}

local unary = {"neg", "abs", "tanh", "sigmoid", "exp", "relu", "square", "floor", "sign"}
local binary = {"add", "sub", "mul", "maximum", "minimum"}

-- Each takes the program's values and numbers, and changes or adds one.
local steps = {
  function(p, a) p:add(a[p:one(unary)](a)) end,
  function(p, a, b) p:add(a[p:one(binary)](a, b)) end,
  function(p, a) p:add(a * p:number() + p:number()) end,
  function(p, a, b) p:add(flare.where(a:gt(b), a, b * 0.5)) end,
  function(p, a, b) p:add(flare.where(a:gt(p:number()), p:number(), b)) end,
  function(p, a) p:add((a - a:mean(-1, {keepdim = true})) * 0.5) end,
  function(p, a) p:add(a * a:sum(1, {keepdim = true}) * 0.01) end,
  function(p, a, b) p:add(a:matmul(b:t()):matmul(b) * 0.01) end,
  function(p, a) p:add(a:softmax(-1)) end,
  function(p, a) p:add(a:reshape(-1):reshape(p.rows, p.columns)) end,
  function(p, a, b) p:add(flare.cat({a:narrow(2, 1, 3), b:narrow(2, 4, p.columns - 3)}, 2)) end,
  function(p, a) p:add(a:to(p:one {"f64", "f32", "f16"}):to "f32") end,
  function(p, a) p:add(a:t():contiguous():t() * 1.5) end,
  function(p, a, b) if not p.grad then a:copy_(b:clone() * 0.25) end end,
  function(p, a, b) if not p.grad then a[p:one(binary) .. "_"](a, b) end end,
  function(p, a) if not p.grad then a:narrow(1, 2, 2):mul_(p:number()) end end,
  function(p, a) if not p.grad then a[1] = p:number() end end,
  function(p, a) if a:sum():item() > p:number() then p:add(a * 2) else p:add(a - 2) end end,
  function(p, a) p.kept[#p.kept + 1] = a + p:number() end,
  function(p) p:drop() end,
}

local smooth_unary = {"neg", "tanh", "sigmoid", "relu", "square", "abs"}

local function normal(a, dim)
  local d = a - a:mean(dim, {keepdim = true})
  return d * (d * d):mean(dim, {keepdim = true}):add(0.1):rsqrt()
end
local function halves(p, a)
  local n = p.columns // 2
  return a:narrow(2, 1, n), a:narrow(2, n + 1, p.columns - n)
end

local smooth = {
  function(p, a) p:add(a[p:one(smooth_unary)](a)) end,
  function(p, a, b) p:add(a[p:one {"add", "sub", "mul"}](a, b)) end,
  function(p, a) p:add(a * p:number() + p:number()) end,
  function(p, a) p:add(normal(a, p:draw(2))) end,
  function(p, a, b) p:add(normal(a + b, -1) + a) end,
  function(p, a) p:add(a:softmax(p:draw(2)) * 4) end,
  function(p, a) p:add(a:log_softmax(-1)) end,
  function(p, a) p:add(a - a:amax(p:draw(2), {keepdim = true})) end,
  function(p, a) p:add(a + a:logsumexp(p:draw(2), {keepdim = true})) end,
  function(p, a) p:add(a * a:var(p:draw(2), {keepdim = true}):add(1):log()) end,
  function(p, a) p:add((a - a:mean()) / (a:square():mean() + 1):sqrt()) end,
  function(p, a, b) p:add(a + (a * b):sum(1) * 0.1) end,
  function(p, a, b) p:add(a * (a + b):mean(2):unsqueeze(2)) end,
  function(p, a)
    local l, r = halves(p, a)
    p:add(flare.cat({r:neg(), l}, 2) * 0.5 + a)
  end,
  function(p, a, b)
    local l, r = halves(p, a)
    p:add(flare.cat({l * 2 + 1, r:tanh()}, 2) + b)
  end,
  function(p, a) p:add(a:pad({1, 2, 2, 1}):narrow(1, 2, p.rows):narrow(2, 3, p.columns)) end,
  function(p, a) p:add(a:t():contiguous():t() + a) end,
  function(p, a) p:add(a:reshape(-1):mul(2):reshape(p.rows, p.columns)) end,
  function(p, a)
    local h = a:reshape(p.rows, 1, p.columns):transpose(1, 2) * 0.5
    p:add(h:transpose(1, 2):reshape(p.rows, p.columns))
  end,
  function(p, a, b) p:add(a:matmul(b:t()):matmul(b) * 0.01) end,
  function(p, a) p:add(a:to(p:one {"f64", "f32"}):to "f32") end,
  function(p, a) p:add(flare.nn.functional.layer_norm(a)) end,
  function(p, a) if not p.grad then a:narrow(1, 2, 2):mul_(p:number()) end end,
  function(p, a, b) if not p.grad then a:narrow(2, 2, 2):copy_(b:narrow(2, 1, 2)) end end,
  function(p, a, b) if not p.grad then a:add_(b * 0.5) end end,
  function(p, a) if not p.grad then a[1] = p:number() end end,
  function(p, a) p.kept[#p.kept + 1] = (a + p:number()):sum(p:draw(2)) end,
  function(p) p:drop() end,
}

local program = {}
program.__index = program

function program:draw(n) -- of a stream of its own: Lua's is not touched
  self.seed = (self.seed * 6364136223846793005 + 1442695040888963407)
  return (self.seed >> 33) % n + 1
end
function program:one(list) return list[self:draw(#list)] end
function program:number() return (self:draw(64) - 32) / 16 * self.scale end
function program:value() return self.values[self:draw(#self.values)] end
function program:drop() table.remove(self.values, self:draw(#self.values - 1)) end
function program:add(t)
  self.values[#self.values + 1] = t:clamp(-100, 100)
  if #self.values > 6 then table.remove(self.values, 2) end
end

-- Runs program number `seed`; `scale` changes its numbers. Returns what a caller can see.
local function run(seed, inputs, scale, list)
  local p = setmetatable({seed = seed * 2 + 1, scale = scale, kept = {}, values = {}}, program)
  p.rows, p.columns = table.unpack(inputs[1].shape)
  p.grad = p:draw(3) == 1
  for k, t in ipairs(inputs) do
    p.values[k] = p.grad and t:detach():requires_grad_() or t:clone()
  end
  local leaves = {table.unpack(p.values)}
  for _ = 1, 4 + p:draw(24) do
    p:one(list)(p, p:value(), p:value())
    if #p.values < 2 then p:add(inputs[1]) end
  end
  local seen = {p.values[#p.values], table.unpack(p.kept)}
  if p.grad then
    local loss = p.values[#p.values]:sum()
    if loss.requires_grad then loss:backward() end
    for _, leaf in ipairs(leaves) do seen[#seen + 1] = leaf.grad end
  end
  return seen
end

local function same(a, b, exact)
  if a.shape ~= b.shape or a.dtype ~= b.dtype then return false end
  local bits = a:eq(b):logical_or(a:ne(a):logical_and(b:ne(b)))
  if exact then return bits:all():item() end
  local off, most = (a - b):abs(), a:abs():max():item()
  return bits:logical_or(off:le(1e-3 * (1 + most))):all():item()
end

--- Runs programs at once and compiled, each for several times, and raises where results differ:
-- in bits if `exact`, else by more than rounding explains.
function M.check(device, count, exact, first)
  for seed = first or 1, (first or 1) + count - 1 do
    flare.manual_seed(seed)
    local shape = {3 + seed % 5, 4 + seed % 7}
    local inputs = {flare.randn(shape, {device = device}), flare.randn(shape, {device = device})}
    local compiled = flare.compile(run, {exact = exact})
    local list = exact and steps or smooth
    for turn = 1, 4 do
      local scale = turn < 4 and 1 or 1.25
      local want, got = run(seed, inputs, scale, list), compiled(seed, inputs, scale, list)
      assert(#want == #got, "program " .. seed .. " gives another number of values")
      for k in ipairs(want) do
        if not same(want[k], got[k], exact) then
          error(("program %d, run %d: value %d differs: %s and %s"):format(seed, turn, k,
            tostring(want[k]), tostring(got[k])))
        end
      end
    end
  end
end

return M
