--- Layers that travel around a ring of ranks. Every rank has its own part of the batch; a layer has
-- a home, which keeps its parameters, gradients and states, and visits the other ranks once in
-- forward and once in backward. Ranks send to the next one only, and there are no collectives. The
-- way of the layers is that of flare.dataflow's scheme "ring", with `recompute`.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local pieces = require "flare.dist.parallel.pieces"
local home = require("flare.dataflow.schemes.common").home
local Wires = require "flare.dist.parallel.wires"

local Ring = class "dist.Ring"
Ring.__keeps = true

--- dist.Ring(model, mesh, {loss = f}). All ranks start with the same model; each keeps the layers
-- whose home it is. Layers keep their inputs, and backward computes them again.
-- @param model an nn.Sequential, a decoder of flare.models, or a module with a method `parts`
-- @param mesh from dist.mesh
-- @param o.axis the axis of the mesh, default "dp"
-- @param o.loss a function of the output and the target of a micro-batch that gives a mean; default
--   that of the next token
-- @param o.micro_batches of each rank, default 1
-- @param o.optimizer a function from a list of parameters to an optimizer, `ring.optimizer`
function Ring:init(model, mesh, o)
  o = options.check("Ring", o, {axis = "dp", loss = options.none, micro_batches = 1,
    optimizer = options.none})
  self.group = require "flare.dist.parallel.axis"("Ring", mesh, o.axis)
  if not mesh.lines then fail "Ring: a mesh is expected, as dist.mesh{dp = 2} makes it" end
  self.model, self.device = model, self.group.rank + 1
  self.micro_batches = options.count("Ring", "micro_batches", o.micro_batches)
  self.pieces = pieces.of(model)
  self.loss = pieces.loss("Ring", model, self.pieces, o.loss)
  local tie = pieces.ties(self.pieces)[1]
  if tie then
    fail("Ring: '%s' and '%s' are one parameter, but their layers travel by themselves: untie them",
      tie[1].slot.name, tie[2].slot.name)
  end
  for _, piece in ipairs(self.pieces) do
    if home(piece.number, self.group.size) ~= self.device then pieces.drop(piece) end
  end
  self.wires = Wires(mesh.lines[o.axis], self.group.ranks[self.device], true)
  if o.optimizer then self.optimizer = o.optimizer(self:parameters()) end
end

-- The slots of a piece, one for each tensor.
local function tensors_of(piece, kind)
  local list, seen = {}, {}
  for _, slot in ipairs(piece.slots) do
    if slot.kind == (kind or slot.kind) and not seen[slot.id] then
      seen[slot.id], list[#list + 1] = true, slot
    end
  end
  return list
end

--- The parameters that this rank has.
-- @return a list
function Ring:parameters()
  local list = {}
  for _, piece in ipairs(self.pieces) do
    if home(piece.number, self.group.size) == self.device then
      for _, slot in ipairs(tensors_of(piece, "parameter")) do
        list[#list + 1] = pieces.get(slot)
      end
    end
  end
  return list
end

local function from_previous(self, device)
  local n = self.group.size
  return (self.wires:recv("forward", (self.device - 2) % n + 1, self.device, device))
end

local function to_next(self, x)
  self.wires:send("forward", x, self.device, self.device % self.group.size + 1, 0)
end

-- Calls f with the layer's parameters on this rank, which come from the rank before and go on to
-- the next.
local function visit(self, piece, f)
  local n = self.group.size
  local at = (self.device - home(piece.number, n)) % n -- of its way, home is 0
  local guests = {}
  for _, slot in ipairs(tensors_of(piece)) do
    local x = pieces.get(slot)
    if at > 0 then
      guests[slot.id] = from_previous(self, x.device)
      x = guests[slot.id]
    end
    if at < n - 1 then to_next(self, x:detach()) end
  end
  if at == 0 then return f(at) end
  for _, slot in ipairs(piece.slots) do
    pieces.put(slot, guests[slot.id]:requires_grad_(slot.learns))
  end
  f(at)
  pieces.drop(piece)
end

-- The sum of the gradients goes around behind the parameters, and ends at home.
local function collect(self, piece, at)
  local n = self.group.size
  for _, slot in ipairs(tensors_of(piece, "parameter")) do
    if slot.learns then
      local p = pieces.get(slot)
      local grad = p.grad or core.zeros_like(p)
      if at ~= 1 and n > 1 then
        local sum = from_previous(self, p.device)
        if at == 0 then self.later[#self.later + 1] = {p, sum} else grad = grad + sum end
      end
      if at ~= 0 then to_next(self, grad) end
    end
  end
end

-- Runs a piece with the random numbers of its forward.
local function again(drawn, f)
  local generator = core.default_generator()
  local seed, offset = generator:state()
  generator:set_state(drawn[1], drawn[2])
  local y = f()
  generator:set_state(seed, offset)
  return y
end

--- Forward and backward of this rank's part of the batch. Gradients of the mean over all ranks are
-- added to those of the parameters at home.
-- @return the mean loss, on all ranks
function Ring:step(x, target)
  local count = self.micro_batches
  if x:size(1) % count ~= 0 then
    fail("Ring: rank %d: a batch of %d cannot be cut into %d equal micro-batches",
      self.group.ranks[self.device], x:size(1), count)
  end
  local xs, targets, saved, total = x:chunk(count, 1), target:chunk(count, 1), {}, 0
  self.later = {}
  self.wires:attach(pieces.device(self.pieces))
  for k, piece in ipairs(self.pieces) do
    saved[k] = {}
    visit(self, piece, function()
      local _ <close> = core.no_grad()
      for m = 1, count do
        saved[k][m] = {x = xs[m], drawn = {core.default_generator():state()}}
        xs[m] = piece.run(xs[m])
      end
    end)
  end
  local last, dys = #self.pieces, {}
  for k = last, 1, -1 do
    local piece = self.pieces[k]
    visit(self, piece, function(at)
      for m = 1, count do
        local input = saved[k][m].x:detach()
        if k > 1 then input:requires_grad_(true) end
        local y = again(saved[k][m].drawn, function() return piece.run(input) end)
        if k == last then
          y = self.loss(y, targets[m]) / (count * self.group.size)
          total = total + y:detach():to "f64"
        end
        if y.requires_grad then y:backward(dys[m]) end
        dys[m] = input.grad
      end
      collect(self, piece, at)
    end)
  end
  self.wires:finish()
  local _ <close> = core.no_grad()
  for _, pair in ipairs(self.later) do
    local p, sum = table.unpack(pair)
    p.grad = p.grad and p.grad + sum or sum
  end
  return self.group:all_reduce(total:to "cpu")
end

--- The parameters and buffers of the whole model, on all ranks.
-- @return names and tensors
function Ring:state_dict()
  local _ <close> = core.no_grad()
  local state = {}
  for _, piece in ipairs(self.pieces) do
    local root = home(piece.number, self.group.size) - 1
    for _, slot in ipairs(piece.slots) do
      local x = pieces.get(slot):detach()
      if root + 1 ~= self.device then
        x = core.zeros(slot.shape, {dtype = x.dtype, device = x.device})
      end
      state[slot.name] = self.group:broadcast(x, {root = root})
    end
  end
  return state
end

function Ring:__tostring()
  return ("dist.Ring(%d ranks, %d layers)"):format(self.group.size, #self.pieces)
end

return Ring
