--- A bucket of which every rank keeps one part, a leaf that optimizers update.
local class = require "flare.class"
local core = require "flare.core"
local Bucket = require "flare.dist.bucket"

local Shard = class("dist.Shard", Bucket)

--- @param named parameters of one dtype and device, {name, tensor} each, the same on all ranks
-- @param compress what gradients travel as, if not as they are
function Shard:init(named, group, compress)
  Bucket.init(self, named, group.size, group.size > 1 and compress)
  self.group = group
  self.length = self.size // group.size -- of a rank
  local _ <close> = core.no_grad()
  self.part = self:mine(self:pack(self.params, self.dtype)):clone():requires_grad_(true)
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
