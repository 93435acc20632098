--- A bucket of which each rank keeps one part, a leaf that the optimizer updates.
local class = require "flare.class"
local core = require "flare.core"
local Bucket = require "flare.dist.gradients.bucket"

local Shard = class("dist.Shard", Bucket)

--- @param named parameters of one dtype and device, {name, tensor} each, the same on all ranks
-- @param compress the dtype in which gradients are sent; nil: their own
-- @param stay the parameters stay whole, as views of one flat tensor, `whole`: themselves (true),
--   and the leaf is a view of `whole` as well, or as copies of a lower dtype, then `params`
function Shard:init(named, group, compress, stay)
  Bucket.init(self, named, group.size, group.size > 1 and compress)
  self.group = group
  self.length = self.size // group.size -- of a rank
  local _ <close> = core.no_grad()
  if stay == true or stay == self.dtype then
    self.whole = core.zeros({self.size}, {dtype = self.dtype, device = self.device})
    for k, p in ipairs(self.params) do core.place(p, self.whole, self.from[k]) end
    self.part = self:mine(self.whole):detach()
  else
    local flat = self:pack(self.params, self.dtype)
    self.part = self:mine(flat):clone()
    self.whole = stay and flat:to(stay)
    for k in ipairs(self.whole and self.params or {}) do
      self.params[k] = self:view(self.whole, k):requires_grad_(true)
    end
  end
  self.part:requires_grad_(true)
end

--- Reduces gradients to their mean, of which each rank gets its part.
-- @return a handle of this rank's part
function Shard:reduce(grads)
  local work = self.group:later(self.device, function()
    local flat <close> = self:pack(grads, self.sends)
    local work = self.group:reduce_scatter(flat, {reduce = "mean", async = true})
    return work:after(function(part) return part:to(self.dtype) end)
  end)
  self:close()
  return work
end

--- After the leaf has changed: updates the parameters that stay whole, beside other work; calls
-- that use one of them wait.
function Shard:spread()
  self.group:aside(self.device, {self.whole}, function()
    if self.whole.dtype ~= self.dtype then self:mine(self.whole):copy_(self.part) end
    self.group:all_gather_(self.whole, {async = true}):wait()
  end)
end

--- This rank's part of a flat tensor.
function Shard:mine(flat)
  return flat:narrow(1, self.group.rank * self.length + 1, self.length)
end

return Shard
