--- A flat piece of many parameters: every rank keeps one part of it, a leaf that optimizers update.
local class = require "flare.class"
local core = require "flare.core"

local Shard = class "dist.Shard"

--- @param params of one dtype and device, the same on all ranks
-- @param names of them
function Shard:init(params, names, group)
  self.params, self.names, self.group = params, names, group
  self.shapes, self.from = {}, {}
  local n = 0
  for k, p in ipairs(params) do
    self.shapes[k], self.from[k] = {table.unpack(p.shape, 1, p:dim())}, n + 1
    n = n + p:numel()
  end
  self.numel = n
  self.length = -(-n // group.size) -- of a rank; the last ones end in zeros
  self.dtype, self.device = params[1].dtype, params[1].device
  local _ <close> = core.no_grad()
  self.part = self:mine(self:flatten(params)):clone():requires_grad_(true)
end

--- Tensors one after the other; zeros where there is none, and up to a whole number of parts.
function Shard:flatten(list)
  local all = self.length * self.group.size
  local flat = core.empty({all}, {dtype = self.dtype, device = self.device})
  if all > self.numel then flat:narrow(1, self.numel + 1, all - self.numel):zero_() end
  for k in ipairs(self.shapes) do
    local place = self:view(flat, k)
    if list[k] then place:copy_(list[k]) else place:zero_() end
  end
  return flat
end

--- From now on gradients are written where they are sent from.
function Shard:place()
  local _ <close> = core.no_grad()
  self.flat, self.views = self:flatten {}, {}
  for k, p in ipairs(self.params) do
    self.views[k] = self:view(self.flat, k)
    core.place_grad(p, self.views[k])
  end
end

-- What lies in its place is there already.
function Shard:_packed(grads)
  for k, place in ipairs(self.views) do
    if not grads[k] then place:zero_()
    elseif not grads[k]:shares(self.flat) then place:copy_(grads[k]) end
  end
  return self.flat
end

--- Sends gradients; those of all ranks have their mean in the part of each.
-- @return a handle of this rank's
function Shard:reduce(grads)
  return self.group:later(self.device, function()
    local flat = self.flat and self:_packed(grads) or self:flatten(grads)
    return self.group:reduce_scatter(flat, {reduce = "mean", async = true})
  end)
end

--- This rank's part of a flat tensor.
function Shard:mine(flat)
  return flat:narrow(1, self.group.rank * self.length + 1, self.length)
end

--- All of it, differentiably: gradients of all ranks add up in `part`.
function Shard:gather(tensor)
  return self.group:all_gather(tensor or self.part)
end

--- The k-th parameter in a flat tensor, a view.
function Shard:view(flat, k)
  local n = 1
  for _, size in ipairs(self.shapes[k]) do n = n * size end
  return flat:narrow(1, self.from[k], n):view(self.shapes[k])
end

return Shard
