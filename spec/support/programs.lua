-- Random programs: elementwise operators, views, writes in place and through views, reductions,
-- products, reads of values, branches, values that escape, gradients. A program is drawn from a
-- seed, so that it runs the same twice: at once, and compiled, with `exact` or without. Without it
-- reductions are fused, too, and programs have no steps that jump where a value is rounded.
--
-- A program has several runs: the same again, with other numbers, with other shapes. `world` is
-- what it keeps from run to run; what its calls refuse is part of the results.
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

-- Reads and sums at positions, several of which may be the same.
local indexed = {
  function(p, a) p:add(a:index_select(1, p:positions(p.rows, p.rows)) * 0.5 + a) end,
  function(p, a, b) p:add((a:tanh():index_select(2, p:positions(p.columns, p.columns)) + b)) end,
  function(p, a) p:add(a:gather(1, p:positions(p.rows, p.rows, p.columns)) * p:number()) end,
  function(p, a, b) p:add(a - (b * 2):gather(2, p:positions(p.columns, p.rows, p.columns))) end,
  function(p, a)
    local at = p:positions(p.columns, p.rows, 1)
    p:add(a * (a * 0.5):log_softmax(2):gather(2, at))
  end,
  function(p, a) p:add(a:t():index_select(2, p:positions(p.rows, p.rows)):t() + a) end,
  function(p, a)
    local at = p:positions(p.rows, p.rows):clamp(1, p.rows)
    p:add(flare.embedding(a:tanh(), at) + a:mean(1, {keepdim = true}))
  end,
  function(p, a, b)
    local at = p:positions(p.rows, p.rows)
    p:add((a:index_select(1, at) * b):reshape(p.rows, 1, p.columns):sum(2) * 0.5)
  end,
  function(p, a, b)
    local y = p:zeros():index_add(1, p:positions(p.rows, p.rows), a * b)
    p:add(y:tanh() + a)
  end,
  function(p, a, b)
    local by = p:draw(2)
    local at = p:positions(by == 1 and p.rows or p.columns, p.rows, p.columns)
    p:add((a * 0.5):scatter_add(by, at, (b + 1):tanh()))
  end,
  function(p, a) -- a softmax of segments
    local of = p:positions(3, p.rows)
    local e = (a * 0.1):tanh():exp()
    local total = flare.zeros({3, p.columns}, {device = a.device}):index_add(1, of, e)
    p:add(e / (total:index_select(1, of) + 1e-6))
  end,
  function(p, a, b)
    local at = p:positions(p.rows, p.rows)
    local y = a:index_select(1, at) + b
    if not p.grad then a:mul_(0.5) end
    p:add(y * 0.5 + a)
  end,
  function(p, a, b)
    if not p.grad then a:index_add_(1, p:positions(p.rows, p.rows), (b * 0.1):tanh()) end
  end,
  function(p, a, b)
    if p.grad then return end
    local at = p:positions(p.rows, 2)
    a:narrow(1, 2, 2):copy_(b:index_select(1, at) * 0.5)
  end,
}
table.move(indexed, 1, #indexed, #steps + 1, steps)
table.move(indexed, 1, #indexed, #smooth + 1, smooth)

-- What Lua and autograd may do beside the operators.
local wild = {
  function(p, a) p:escape(a * p:number()) end,
  function(p, a) -- reads what another run has left
    local old = p.world[p:draw(#p.world + 1)]
    p:add(old and a + old:sum() * 0.001 or a)
  end,
  function(p, a) p:note(a:sum():item()) end,
  function(p, a) p:add(a + a:detach():to("cpu"):to("f64"):totable()[1][1] * 0.1) end,
  function(p, a, b) p:try(function() a:mul_(b) end) end,
  function(p, a) p:try(function() a:narrow(2, 2, 2):add_(p:number()) end) end,
  function(p, a) p:try(function() a[{1, 2}] = p:number() end) end,
  function(p, a) p:try(function() a:matmul(a) end) end,
  function(p, a) flare.no_grad(function() p:try(function() a:mul_(0.5) end) end) end,
  function(p, a, b)
    p:try(function()
      p:escape(a - b)
      error("a program stops", 0)
    end)
  end,
  function(p, a) if p:draw(6) == 1 then p:escape(a) error("the program stops", 0) end end,
  function(p, a) p:hook(a, function(g) return g * 0.5 end) end,
  function(p, a) p:hook(a, function(g) p:note(g:sum():item()) end) end,
  function(p, a)
    p:try(function()
      if not a.requires_grad then return end
      local g = flare.grad((a:tanh() * a):sum(), a, {create_graph = true})
      p:add(a + g * g)
    end)
  end,
  function(p, a)
    p:add(a.requires_grad and flare.checkpoint(function(t) return t:tanh() * t end, a) or a * 2)
  end,
  function(p, a) p:add(flare.nn.functional.dropout(a, 0.5)) end,
  function(p, a, b) p:add(a * flare.rand_like(b)) end,
  function(p, a)
    local co = coroutine.wrap(function()
      local t = a * 2
      coroutine.yield(t)
      return t + 1
    end)
    p:add(co())
    if p:draw(2) == 1 then p:add(co()) end -- or nothing resumes it
  end,
  function(p, a) p:add(p.inner(a)) end,
  function(p, a) setmetatable({}, {__gc = function() return (a * 3):sum():item() end}) end,
  function(p) collectgarbage(p:one {"step", "step", "collect"}) end,
  function(p, a) if a.device == "cpu" then p:note(a:data_ptr() ~= nil and 1 or 0) end end,
  function(p, a) if #p.streams > 0 then p:aside(a) end end,
}

local program = {}
program.__index = program

function program:draw(n) -- of a stream of its own: Lua's is not touched
  self.seed = (self.seed * 6364136223846793005 + 1442695040888963407)
  return (self.seed >> 33) % n + 1
end
function program:one(list) return list[self:draw(#list)] end
function program:number() return (self:draw(64) - 32) / 16 * self.scale end
function program:zeros() return flare.zeros_like(self.values[1]) end
-- A tensor of positions up to `most`, some of them counted from the end.
function program:positions(most, rows, columns)
  local device, list = self.values[1].device, {}
  for k = 1, rows * (columns or 1) do
    local at = self:draw(most)
    list[k] = self:draw(8) == 1 and at - most - 1 or at
  end
  local dtype = self:draw(3) == 1 and "i32" or "i64"
  local t = flare.tensor(list, {dtype = dtype, device = device})
  return columns and t:view(rows, columns) or t
end
function program:value() return self.values[self:draw(#self.values)] end
function program:drop() table.remove(self.values, self:draw(#self.values - 1)) end
function program:add(t)
  self.values[#self.values + 1] = t:clamp(-100, 100)
  if #self.values > 6 then table.remove(self.values, 2) end
end

function program:escape(t)
  self.world[#self.world + 1] = t
  if #self.world > 8 then table.remove(self.world, 1) end
end
function program:note(number) self.notes[#self.notes + 1] = number end
function program:try(f)
  local ok, why = pcall(f)
  if not ok then self.notes[#self.notes + 1] = tostring(why) end
end
-- Hooks go with the last handle of their tensor, so when it is collected must not matter: graphs
-- that escape have them in later runs.
function program:hook(t, f)
  if not t.requires_grad then return end
  t:register_hook(f)
  self.hooked[#self.hooked + 1] = t
end
-- On another stream, which waits for this one and this one for it.
function program:aside(a)
  local s, here = self:one(self.streams), flare.current_stream(a.device)
  s:wait(here)
  local t = s:run(function() return a * 2 + 1 end)
  local event = s:record()
  if self:draw(2) == 1 then here:wait(s) else event:synchronize() end
  self:add(t * 0.5)
end

local function inner(t) return t:tanh() * 0.5 + t end

-- Runs program number `seed`; `scale` changes its numbers, `world` lasts. Returns what a caller can
-- see: values, and numbers and messages.
local function run(seed, inputs, scale, list, world)
  local p = setmetatable({seed = seed * 2 + 1, scale = scale, kept = {}, values = {}, notes = {},
    hooked = world.hooked, world = world, inner = world.inner, streams = world.streams}, program)
  world.notes, world.kept = p.notes, p.kept
  p.rows, p.columns = table.unpack(inputs[1].shape)
  p.grad = p:draw(3) == 1
  for k, t in ipairs(inputs) do
    p.values[k] = p.grad and t:clone():requires_grad_() or t:clone()
  end
  local leaves = {table.unpack(p.values)}
  for _ = 1, 4 + p:draw(24) do
    local from = world.wild and p:draw(3) == 1 and wild or list
    p:one(from)(p, p:value(), p:value())
    if #p.values < 2 then p:add(inputs[1]) end
  end
  local seen = {p.values[#p.values]}
  if p.grad then
    local loss = p.values[#p.values]:sum()
    if loss.requires_grad then p:try(function() loss:backward() end) end
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

local function same_note(a, b, exact)
  if exact or type(a) ~= "number" or type(b) ~= "number" then return a == b or a ~= a and b ~= b end
  return a == b or a ~= a and b ~= b or math.abs(a - b) <= 0.02 * (1 + math.abs(a))
end

-- Compares two lists of tensors, or of notes.
local function compare(what, want, got, equal, exact)
  assert(#want == #got, ("%s: %d values and %d"):format(what, #want, #got))
  for k in ipairs(want) do
    if not equal(want[k], got[k], exact) then
      error(("%s: value %d differs: %s and %s"):format(what, k, tostring(want[k]),
        tostring(got[k])))
    end
  end
end

local function draw_inputs(shape, device)
  return {flare.randn(shape, {device = device}), flare.randn(shape, {device = device})}
end

-- A run, after a seed of its own: whether it ended, and its values or its message.
local function result(f, seed, ...)
  flare.manual_seed(seed)
  local ok, seen = pcall(f, seed, ...)
  return ok and seen or {}, ok and "" or tostring(seen)
end

--- Runs programs at once and compiled, each for several times, and raises where results differ:
-- in bits if `exact`, else by more than rounding explains.
-- @param o `first`: the first program, 1; `wild`: with what Lua and autograd may do beside the
-- operators; `streams`: a list of streams of the device that programs use, too; `turns`: runs of
-- each program; `again`: plans at first sight, which compute again whatever lowers their peak
function M.check(device, count, exact, o)
  o = o or {}
  local first = o.first or 1
  for seed = first, first + count - 1 do
    flare.manual_seed(seed)
    local shape = {3 + seed % 5, 4 + seed % 7}
    local usual = draw_inputs(shape, device)
    local other = draw_inputs({shape[1] + 1, shape[2] + 2}, device)
    local compiled = o.again and flare.core.compiled(run, exact, "again", false, true, 0)
      or flare.compile(run, {exact = exact})
    local list = exact and steps or smooth
    local worlds = {}
    for k = 1, 2 do
      worlds[k] = {wild = o.wild, streams = o.streams or {}, hooked = {},
        inner = k == 1 and inner or flare.compile(inner, {exact = exact})}
    end
    for turn = 1, o.turns or o.wild and 6 or 4 do
      local scale = turn % 4 == 0 and 1 + turn / 16 or 1
      local inputs = turn == 5 and other or usual
      local want, said = result(run, seed, inputs, scale, list, worlds[1])
      local got, says = result(compiled, seed, inputs, scale, list, worlds[2])
      local what = ("program %d, run %d"):format(seed, turn)
      assert(said == says, ("%s: %q and %q"):format(what, said, says))
      compare(what, want, got, same, exact)
      compare(what .. ", kept", worlds[1].kept, worlds[2].kept, same, exact)
      compare(what .. ", notes", worlds[1].notes, worlds[2].notes, same_note, exact)
      compare(what .. ", escaped", worlds[1], worlds[2], same, exact)
    end
  end
end

return M
