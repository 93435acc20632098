--- Context parallel training: each rank has a part of every sequence. Attention is exact: keys and
-- values go around a ring of the ranks, each rank attends to the block that it has, and the results
-- are joined by the log-sum-exp of their scores (Ring Attention, arXiv:2310.01889).
--
-- With causal attention a sequence is cut into 2 n chunks, and rank r has chunks r and 2 n - 1 - r,
-- so that all ranks have as much to do.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local walk = require "flare.nn.walk"
local Wires = require "flare.dist.parallel.wires"

local M = {}

-- The chunks of rank r, from 0, in the order in which it has them.
local function chunks_of(r, n, causal)
  if causal then return {r, 2 * n - 1 - r} end
  return {r}
end

-- Pairs of own chunks of queries and chunks of keys, from 1, that see each other: how is "causal"
-- on the diagonal, "full" below it.
local function blocks_of(queries, keys, causal)
  local list = {}
  for i, a in ipairs(queries) do
    for j, b in ipairs(keys) do
      if not causal or b < a then
        list[#list + 1] = {i, j, false}
      elseif a == b then
        list[#list + 1] = {i, j, true}
      end
    end
  end
  return list
end

local function chunk(x, k, count)
  local n = x:size(3) // count
  return x:narrow(3, (k - 1) * n + 1, n)
end

-- Joins two attentions of the same queries to other keys.
local function merge(y, lse, y2, lse2)
  local both = core.logaddexp(lse, lse2)
  local function part(t, l) return t * (l - both):exp():unsqueeze(-1) end
  return part(y, lse) + part(y2, lse2), both
end

-- Calls f(rank, tensors, sums) with the tensors of each rank, the own first, then those of the
-- rank before and so on. `sums`, which f adds to and returns, go on with them, and are home at the
-- end. Nothing is launched between the first send and the last receive: a first launch loads its
-- kernel, for which a GPU waits for all that runs, and if all ranks have sent and none has
-- received, those sends do not end.
local function around(ring, tensors, sums, f)
  local n, r = ring.group.size, ring.group.rank
  for step = 0, n - 1 do
    sums = f((r - step) % n, tensors, sums) or {}
    local on = table.move(sums, 1, #sums, 1, {})
    if step < n - 1 then table.move(tensors, 1, #tensors, #on + 1, on) end
    if n > 1 then
      local came = {}
      for k, x in ipairs(on) do on[k] = x:contiguous() end
      for _, x in ipairs(on) do ring:pass(x) end
      for k, x in ipairs(on) do came[k] = ring:take(x.device) end
      ring.wires:finish()
      sums = table.move(came, 1, #sums, 1, {})
      if step < n - 1 then tensors = table.move(came, #sums + 1, #came, 1, {}) end
    end
  end
  return sums
end

local Ring = class "dist.ContextRing"
Ring.__keeps = true

function Ring:init(mesh, axis, where)
  self.group = require "flare.dist.parallel.axis"(where, mesh, axis)
  if not mesh.lines then fail("%s: a mesh is expected, as dist.mesh{cp = 2} makes it", where) end
  self.wires = Wires(mesh.lines[axis], self.group.ranks[self.group.rank + 1], true)
end

function Ring:pass(x)
  local n, r = self.group.size, self.group.rank
  self.wires:send("forward", x, r + 1, (r + 1) % n + 1, 0)
end

function Ring:take(device)
  local n, r = self.group.size, self.group.rank
  return (self.wires:recv("forward", (r - 1) % n + 1, r + 1, device))
end

local function forward(ring, q, k, v, causal, scale)
  local n, r = ring.group.size, ring.group.rank
  local mine = chunks_of(r, n, causal)
  local ys, lses = {}, {}
  around(ring, {k, v}, {}, function(from, kv)
    local theirs = chunks_of(from, n, causal)
    for _, block in ipairs(blocks_of(mine, theirs, causal)) do
      local i, j, diagonal = table.unpack(block)
      local y, lse = core.attention(chunk(q, i, #mine), chunk(kv[1], j, #mine),
        chunk(kv[2], j, #mine), {causal = diagonal, scale = scale, all = true})
      y = y:to(lse.dtype)
      if ys[i] then y, lse = merge(ys[i], lses[i], y, lse) end
      ys[i], lses[i] = y, lse
    end
  end)
  return core.cat(ys, 3):to(q.dtype), core.cat(lses, 3)
end

-- The gradients of a block follow from the log-sum-exp over all blocks. Those of keys and values
-- travel with them, and are home after a whole round.
local function backward(ring, dy, q, k, v, y, lse, causal, scale)
  local n, r = ring.group.size, ring.group.rank
  local mine = chunks_of(r, n, causal)
  local dq = {}
  local function add(sum, x) return sum and sum + x or x end
  local home = around(ring, {k, v}, {core.zeros_like(k, {dtype = lse.dtype}),
    core.zeros_like(v, {dtype = lse.dtype})}, function(from, t, sums)
    local theirs, dk, dv = chunks_of(from, n, causal), {}, {}
    for _, block in ipairs(blocks_of(mine, theirs, causal)) do
      local i, j, diagonal = table.unpack(block)
      local function of(x, at) return chunk(x, at, #mine) end
      local a, b, c = core.attention_backward(of(dy, i), of(q, i), of(t[1], j), of(t[2], j), nil,
        of(y, i), of(lse, i), 0, 0, {causal = diagonal, scale = scale})
      dq[i] = add(dq[i], a:to(lse.dtype))
      dk[j], dv[j] = add(dk[j], b:to(lse.dtype)), add(dv[j], c:to(lse.dtype))
    end
    local function sum(total, parts)
      for j = 1, #theirs do
        parts[j] = parts[j] and chunk(total, j, #mine) + parts[j] or chunk(total, j, #mine)
      end
      return core.cat(parts, 3)
    end
    return {sum(sums[1], dk), sum(sums[2], dv)}
  end)
  return core.cat(dq, 3):to(q.dtype), home[1]:to(k.dtype), home[2]:to(v.dtype)
end

local attend = core.func{
  name = "ring_attention",
  forward = function(ctx, q, k, v, ring, causal, scale)
    local y, lse = forward(ring, q, k, v, causal, scale)
    ctx.ring, ctx.causal, ctx.scale = ring, causal, scale
    ctx:save(q, k, v, y, lse)
    return y
  end,
  backward = function(ctx, dy)
    local q, k, v, y, lse = table.unpack(ctx.saved)
    local dq, dk, dv = backward(ctx.ring, dy, q, k, v, y, lse, ctx.causal, ctx.scale)
    return dq, dk, dv, nil, nil, nil
  end,
}

---------------------------------------------------------------- models

--- Where the tokens of a rank stand, in place of a models.Cache.
local Context = class "dist.Context"
Context.__keeps = true

--- dist.Context(mesh, {axis = "cp"}): exact attention over sequences whose parts are on the ranks
-- of an axis.
-- @param mesh from dist.mesh
-- @param o.axis default "cp"
-- @param o.causal false: every query sees every key; default true
function Context:init(mesh, o)
  o = options.check("Context", o, {axis = "cp", causal = true})
  self.ring, self.causal = Ring(mesh, o.axis, "Context"), o.causal
  self.group = self.ring.group
end

--- This rank's part of a tensor along a dim of positions.
-- @param x the whole, on every rank @param dim default 2
function Context:part(x, dim)
  dim = dim or 2
  local n = self.group.size
  local count = self.causal and 2 * n or n
  if x:size(dim) % count ~= 0 then
    fail("Context: rank %d: a sequence of %d positions cannot be cut into %d equal chunks",
      self.group.ranks[self.group.rank + 1], x:size(dim), count)
  end
  local size, list = x:size(dim) // count, {}
  for k, at in ipairs(chunks_of(self.group.rank, n, self.causal)) do
    list[k] = x:narrow(dim, at * size + 1, size)
  end
  return core.cat(list, dim)
end

--- The whole tensor of the ranks' parts, on all ranks; without a gradient.
function Context:whole(x, dim)
  dim = dim or 2
  local n = self.group.size
  local _ <close> = core.no_grad()
  local all = self.group:all_gather(x:transpose(1, dim):contiguous())
  local count = self.causal and 2 or 1
  local size, list = x:size(dim) // count, {}
  for r = 0, n - 1 do
    for k, at in ipairs(chunks_of(r, n, self.causal)) do
      list[at + 1] = all:narrow(1, (r * count + k - 1) * size + 1, size)
    end
  end
  return core.cat(list, 1):transpose(1, dim):contiguous()
end

--- Attention of the rank's queries to the keys and values of all ranks.
-- @param q (batch, heads, own positions, size), k, v the same; k and v may have fewer heads
-- @param o {scale = 1 / sqrt(size)}
-- @return the shape of q
function Context:attention(q, k, v, o)
  o = options.check("Context:attention", o, {scale = options.none})
  if q:dim() ~= 4 or q:size(3) ~= k:size(3) then
    fail("Context:attention: q and k must be (batch, heads, own positions, size), got %s and %s",
      tostring(q.shape), tostring(k.shape))
  end
  self.ring.wires:attach(q.device)
  return attend(q, k, v, self.ring, self.causal, o.scale)
end

-- What a models.Cache does with the span of a forward pass.
function Context:extend(span)
  local whole = span.time * self.group.size
  span.positions = self:part(core.arange(0, whole, {device = span.device}):unsqueeze(1))
  span.length = whole
  span.attend = function(_, _, q, k, v, o)
    if o and o.window and whole > o.window then
      fail("Context: attention sees %d tokens only, which sequences on several ranks do not have",
        o.window)
    elseif o and (o.dropout or 0) > 0 then
      fail "Context: attention has dropout, which sequences on several ranks do not have"
    end
    local y = self:attention(q:transpose(2, 3), k:transpose(2, 3), v:transpose(2, 3),
      {scale = o and o.scale})
    return y:transpose(2, 3):reshape(span.batch, span.time, -1)
  end
end

-- The mean over the ranks; gradients are those of the rank's own number, and are averaged later.
local mean_over = core.func{
  name = "mean_over_ranks",
  forward = function(_, x, group) return group:all_reduce(x, {reduce = "mean"}) end,
  backward = function(_, dy) return dy, nil end,
}

--- Lets a decoder of flare.models train on sequences of which each rank has a part: model:loss(ids)
-- takes whole sequences and computes the rank's part of the loss. After backward, call
-- dist.average_gradients(model, mesh).
-- @param model a decoder, such as GPT-2 and Llama
-- @param mesh from dist.mesh
-- @param o.axis default "cp"
-- @return the model
function M.context_parallel(model, mesh, o)
  o = options.check("context_parallel", o, {axis = "cp"})
  if not walk.is_module(model) or type(model.criterion) ~= "function" or not model.parts then
    fail("context_parallel: a decoder of flare.models is expected, got %s", walk.is_module(model)
      and getmetatable(model).__name or options.kind(model))
  end
  local context = Context(mesh, {axis = o.axis})
  local group = context.group
  rawset(model, "loss", function(self, ids, labels)
    labels = labels or ids
    local time = ids:size(2)
    -- the target of each position is the next label; the last has none
    local none = core.full({ids:size(1), 1}, -100, {dtype = labels.dtype, device = labels.device})
    local targets = context:part(core.cat({labels:narrow(2, 2, time - 1), none}, 2))
    local count = targets:ne(-100):sum():to "f64"
    local share = count / group:all_reduce(count, {reduce = "mean"})
    local loss = self:criterion(self:features(context:part(ids), context), targets)
    return mean_over(loss * share:to(loss.dtype), group)
  end)
  rawset(model, "forward", function(self, ids)
    return context:whole(self:logits(self:features(context:part(ids), context)))
  end)
  return model
end

M.Context = Context
return M
