-- Random programs of operators of all families on values of any dtype, shape and layout: most of
-- the elementwise rows, views that overlap, writes in place, 0-d operands, shapes that depend on
-- values, random draws, gradients. Calls that do not fit are refused; what they say is part of the
-- results. At once and compiled with `exact` results have the same bits.
local flare = require "flare"
local words = require "spec.support.typed_words"

local M = {}

local program = {}
program.__index = program

function program:draw(n)
  self.seed = self.seed * 6364136223846793005 + 1442695040888963407
  return (self.seed >> 33) % n + 1
end
function program:one(list) return list[self:draw(#list)] end
function program:number()
  local k = self:draw(12)
  if k <= 4 then return k - 2 end
  return k == 5 and self.scale or (self:draw(64) - 32) / 16 * self.scale
end
function program:any() return self.values[self:draw(#self.values)] end
function program:real()
  for _ = 1, 8 do
    local t = self:any()
    if t.dtype:match "^b?f%d" then return t end
  end
  return self.values[1]
end
function program:other() return self:draw(4) == 1 and self:number() or self:any() end
function program:dim(t) return self:draw(#t.shape) end
function program:part(t)
  local dim = self:dim(t)
  local first = self:draw(t.shape[dim])
  return t:narrow(dim, first, self:draw(t.shape[dim] - first + 1))
end
function program:positions(t, n)
  return flare.randint(1, t.shape[1] + 1, {n}, {device = self.device})
end
function program:push(t)
  if not flare.is_tensor(t) then
    self.notes[#self.notes + 1] = t
    return
  end
  self.values[#self.values + 1] = t:numel() > 4096 and t:reshape(-1):narrow(1, 1, 64) or t
  if #self.values > 9 then table.remove(self.values, self:draw(5) + 2) end
end
function program:try(f, ...)
  local ok, why = pcall(f, ...)
  if not ok then self.notes[#self.notes + 1] = tostring(why):gsub("^[^:]*:%d+: ", "") end
end

local numbers = {fill_ = true, add_ = true, sub_ = true, mul_ = true, div_ = true,
  maximum_ = true, minimum_ = true}

function program:write(t)
  local name = self:one(words.inplace)
  if name == "clamp_" then t:clamp_(-1, 1)
  elseif name == "masked_fill_" then t:masked_fill_(self:any():gt(0), self:number())
  elseif name == "fill_" then t:fill_(self:number())
  elseif numbers[name] then t[name](t, self:other())
  elseif name == "copy_" then t:copy_(self:any())
  else t[name](t) end
end

local steps = {}
local function step(weight, f)
  for _ = 1, weight do steps[#steps + 1] = f end
end
local function value(weight, f)
  step(weight, function(p) p:push(f(p, p:any())) end)
end

value(12, function(p, t) return t[p:one(words.unary)](t) end)
value(6, function(p, t) return flare[p:one(words.binary)](t, p:other()) end)
value(8, function(p, t) return flare[p:one(words.easy)](t, p:other()) end)
value(2, function(p, t) return p:number() - t end)
value(3, function(p, t) return flare.where(p:any():gt(p:number()), t, p:other()) end)
value(3, function(p, t) return t:to(p:one(words.dtypes)) end)
value(2, function(p, t) return t:clamp(-math.abs(p:number()), 2) end)
value(1, function(p, t) return flare.lerp(t, p:real(), 0.3) end)
value(1, function(p) return flare.addcmul(p:real(), p:real(), p:real(), p:number()) end)
value(3, function(p, t)
  return t[p:one(words.sums)](t, {dims = p:dim(t), keepdim = p:draw(2) == 1})
end)
value(3, function(p, t) return (t[p:one(words.along)](t, p:draw(2) == 1 and p:dim(t) or -1)) end)
value(2, function(_, t) return t:transpose(1, -1) end)
value(3, function(p, t) return p:part(t) end)
value(1, function(p, t) return t:select(p:dim(t), 1) end)
value(1, function(_, t) return t:reshape(-1) end)
value(1, function(p, t) return t:unsqueeze(p:draw(#t.shape + 1)) end)
value(1, function(_, t) return t:squeeze() end)
value(1, function(_, t) return t:expand(2, table.unpack(t.shape)) end)
value(1, function(p, t) return t:flip(p:dim(t)) end)
value(1, function(p, t) return t:roll(p:draw(3), p:dim(t)) end)
value(1, function(p, t) return t:tril(p:draw(3) - 2) end)
value(1, function(_, t) return t:diagonal() end)
value(1, function(p, t) return t:unfold(p:dim(t), 2, 1) end)
value(1, function(p, t)
  local dim = p:dim(t)
  return t:narrow(dim, 1, (t.shape[dim] + 1) // 2, 2)
end)
value(2, function(p, t) return flare.cat({t, p:any()}, p:dim(t)) end)
value(1, function(p, t) return flare.stack {t, p:any(), t} end)
value(1, function(p, t) return t:pad {1, p:draw(2)} end)
value(1, function(p, t) return t:repeat_interleave(2, p:dim(t)) end)
value(2, function(p) return p:real():matmul(p:real():transpose(-1, -2)) end)
value(2, function(p) return flare.nn.functional.layer_norm(p:real()) end)
value(1, function(p) return flare.nn.functional.rms_norm(p:real()) end)
value(1, function(p) return flare.nn.functional.dropout(p:real(), 0.3) end)
value(1, function(_, t) return flare.rand_like(t) end)
value(1, function(p, t) return flare.randint(0, 5, t.shape, {device = p.device}) end)
value(1, function(p) return flare.bernoulli(p:real():sigmoid():nan_to_num()) end)
value(1, function(p, t) return t:masked_fill(p:any():gt(0), p:number()) end)
value(1, function(p, t) return t:masked_select(p:any():gt(0)) end)
value(1, function(_, t) return t:nonzero() end)
value(1, function(p, t) return t:index_select(1, p:positions(t, 3)) end)
value(1, function(_, t) return t:gather(-1, t:argsort(-1)) end)
value(1, function(_, t) return (t:topk(2)) end)
value(1, function(p, t) return t:scatter(-1, t:argsort(-1), p:any()) end)
value(1, function(_, t) return flare.one_hot(t:to "i64":clamp(0, 4) + 1, 6) end)
value(2, function(_, t) return t:to "f64":sum():item() > 0 and t * 2 or t + 1 end)
value(1, function(_, t) return t:clone() end)
value(1, function(_, t) return t:detach() end)
value(1, function(p)
  return flare.full({2, 3}, p:number(), {device = p.device, dtype = p:one(words.dtypes)})
end)
value(1, function(p)
  return flare.autocast(p:one {"bf16", "f16"}, function()
    return p:real():matmul(p:real():transpose(-1, -2))
  end)
end)
value(1, function(p)
  local t = p:real()
  local labels = flare.randint(1, t.shape[2] + 1, {t.shape[1]}, {device = p.device})
  return flare.nn.functional.cross_entropy(t, labels)
end)
value(1, function(_, t) return t:reshape(-1)[1]:item() end)
step(1, function(p)
  local graph = {create_graph = p:draw(2) == 1, allow_unused = true}
  local grads = table.pack(flare.grad(p:real():square():sum(), p.leaves, graph))
  for k = 1, grads.n do p:push(grads[k]) end
end)

step(6, function(p) p:write(p:any()) end)
step(4, function(p) p:write(p:part(p:any())) end)
step(2, function(p) p:write(p:any():transpose(1, -1)) end)
local function change(weight, f)
  step(weight, function(p) f(p, p:any()) end)
end
change(2, function(_, t)
  local n = t.shape[1] - 1
  t:narrow(1, 1, n):copy_(t:narrow(1, 2, n))
end)
change(2, function(_, t)
  local n = t.shape[1] - 1
  t:narrow(1, 2, n):add_(t:narrow(1, 1, n))
end)
change(1, function(_, t) t:copy_(t:transpose(1, -1)) end)
change(1, function(_, t) t:add_(t:flip(1)) end)
change(1, function(_, t) t:mul_(t:select(1, 1)) end)
change(2, function(p, t) t[p:draw(t.shape[1])] = p:number() end)
change(1, function(p, t) t[1] = p:any() end)
change(1, function(p, t) t:index_add_(1, p:positions(t, t.shape[1]), p:any()) end)
change(1, function(_, t) t:uniform_() end)
change(1, function(_, t) t:normal_() end)
change(1, function(p, t) -- outlasts the run
  p.world[#p.world + 1] = t * p:number()
  if #p.world > 5 then table.remove(p.world, 1) end
end)
step(1, function(p) p:push(p.world[p:draw(#p.world + 1)] or p:any()) end)
step(1, function(p) table.remove(p.values, p:draw(#p.values - 3) + 3) end)

-- Steps have seeds of their own, so that a program can be run without some of them.
local function run(seed, inputs, scale, world)
  local p = setmetatable({seed = seed * 2 + 1, scale = scale, device = inputs[1].device,
    world = world, values = {}, notes = {}, leaves = {}}, program)
  world.notes = p.notes
  local grad = p:draw(3) == 1
  for k, t in ipairs(inputs) do
    local x = t:clone()
    if grad and x.dtype:match "^b?f%d" then
      p.leaves[#p.leaves + 1] = x:requires_grad_()
      x = p:draw(3) > 1 and x * 1 or x
    end
    p.values[k] = x
  end
  for k = 1, 5 + p:draw(35) do
    p.seed = seed * 1000003 + k
    p:draw(3)
    local f = p:one(steps)
    if not (M.skip and M.skip[k]) then p:try(f, p) end
  end
  if grad then
    p:try(function()
      for k = #p.values, 1, -1 do
        if p.values[k].requires_grad then
          p.values[k]:to "f32":sum():backward()
          break
        end
      end
    end)
  end
  for _, x in ipairs(p.leaves) do p.values[#p.values + 1] = x.grad end
  return p.values
end

local function draw_inputs(seed, device, more)
  local shape = {table.unpack(words.shapes[seed % #words.shapes + 1])}
  shape[1] = shape[1] + more
  local o = {device = device}
  local b = flare.randn(shape, o)
  if seed % 3 == 0 then b = b:transpose(1, -1):contiguous():transpose(1, -1) end
  return {flare.randn(shape, o), b,
    flare.randint(0, 7, shape, o):to(words.integers[seed % 3 + 1]),
    flare.randn(shape, o):to(words.floats[seed // 3 % 3 + 1]), flare.randn({1}, o),
    flare.randn({shape[#shape]}, o), flare.randn({}, o):to(words.floats[seed % 3 + 1])}
end

local function same(a, b)
  if not flare.is_tensor(a) then return a == b or a ~= a and b ~= b end
  if a.shape ~= b.shape or a.dtype ~= b.dtype then return false end
  return a:numel() == 0 or a:eq(b):logical_or(a:ne(a):logical_and(b:ne(b))):all():item()
end

local function compare(what, want, got)
  assert(#want == #got, ("%s: %d values and %d"):format(what, #want, #got))
  for k = 1, #want do
    if not same(want[k], got[k]) then
      error(("%s: value %d: %s and %s"):format(what, k, tostring(want[k]), tostring(got[k])))
    end
  end
end

local function result(f, seed, ...)
  flare.manual_seed(seed)
  local ok, seen = pcall(f, seed, ...)
  return ok and seen or {}, ok and "" or tostring(seen), flare.rand(1):item()
end

--- Runs a program five times, at once and compiled, and raises where results differ.
-- @param how `first`: by plans from the first time on; `again`: these compute again whatever
-- lowers their peak
function M.check(seed, device, how)
  flare.manual_seed(seed)
  local usual, other = draw_inputs(seed, device, 0), draw_inputs(seed, device, 1)
  local compiled = how and flare.core.compiled(run, true, how == "first" or how, false, true, 0)
    or flare.compile(run, {exact = true})
  local worlds = {{}, {}}
  for turn = 1, 5 do
    local inputs, scale = turn == 4 and other or usual, turn == 3 and 1.25 or 1
    local want, said, draw = result(run, seed, inputs, scale, worlds[1])
    local got, says, drew = result(compiled, seed, inputs, scale, worlds[2])
    local what = ("program %d, run %d"):format(seed, turn)
    assert(said == says, ("%s: %q and %q"):format(what, said, says))
    compare(what, want, got)
    compare(what .. ", notes", worlds[1].notes, worlds[2].notes)
    compare(what .. ", escaped", worlds[1], worlds[2])
    assert(draw == drew, what .. ": other random numbers")
  end
end

return M
