--- A bucket of which every rank keeps one part, a leaf that optimizers update.
local class = require "flare.class"
local core = require "flare.core"
local Bucket = require "flare.dist.bucket"

local Shard = class("dist.Shard", Bucket)

--- @param named parameters of one dtype and device, {name, tensor} each, the same on all ranks
function Shard:init(named, group)
  Bucket.init(self, named, group.size)
  self.group = group
  self.length = self.size // group.size -- of a rank
  local _ <close> = core.no_grad()
  self.part = self:mine(self:pack(self.params)):clone():requires_grad_(true)
end

--- Sends gradients; those of all ranks have their mean in the part of each.
-- @return a handle of this rank's
function Shard:reduce(grads)
  local work = self.group:later(self.device, function()
    local flat <close> = self:pack(grads)
    return self.group:reduce_scatter(flat, {reduce = "mean", async = true})
  end)
  self:close()
  return work
end

--- This rank's part of a flat tensor.
function Shard:mine(flat)
  return flat:narrow(1, self.group.rank * self.length + 1, self.length)
end

return Shard
