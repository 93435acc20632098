--- A bucket of which every rank keeps one part, a leaf that optimizers update.
local class = require "flare.class"
local core = require "flare.core"
local Bucket = require "flare.dist.bucket"

local Shard = class("dist.Shard", Bucket)

--- @param named parameters of one dtype and device, {name, tensor} each, the same on all ranks
-- @param compress what gradients travel as, if not as they are
-- @param stay the parameters stay whole: they lie in one flat tensor from now on, `whole`, of which
-- the leaf is a part
function Shard:init(named, group, compress, stay)
  Bucket.init(self, named, group.size, group.size > 1 and compress)
  self.group = group
  self.length = self.size // group.size -- of a rank
  local _ <close> = core.no_grad()
  if stay then
    self.whole = core.zeros({self.size}, {dtype = self.dtype, device = self.device})
    for k, p in ipairs(self.params) do core.place(p, self.whole, self.from[k]) end
    self.part = self:mine(self.whole):detach()
  else
    self.part = self:mine(self:pack(self.params, self.dtype)):clone()
  end
  self.part:requires_grad_(true)
end

--- Sends gradients; those of all ranks have their mean in the part of each.
-- @return a handle of this rank's
function Shard:reduce(grads)
  local work = self.group:later(self.device, function()
    local flat <close> = self:pack(grads, self.sends)
    local work = self.group:reduce_scatter(flat, {reduce = "mean", async = true})
    return work:after(function(part) return part:to(self.dtype) end)
  end)
  self:close()
  return work
end

--- This rank's part of a flat tensor.
function Shard:mine(flat)
  return flat:narrow(1, self.group.rank * self.length + 1, self.length)
end

return Shard
