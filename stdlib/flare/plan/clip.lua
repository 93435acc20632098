--- Clipping of gradients by the norm of all of them. It is known when backward has ended, so blocks
-- are updated after it, one by one, and gradients lie on the device or the host until then.
local class = require "flare.class"
local core = require "flare.core"

local Clip = class "plan.Clip"
Clip.__keeps = true

function Clip:init(executor, limit)
  self.executor, self.limit, self.norms = executor, limit, {}
end

local function gradients(entries)
  local list = {}
  for _, entry in ipairs(entries) do list[#list + 1] = entry.here.grad end
  return list
end

--- The gradients of some parameters are complete.
function Clip:note(entries)
  local list = gradients(entries)
  if list[1] then table.insert(self.norms, core.global_norm(list)) end
end

local function shrink(scale, entries)
  local list = gradients(entries)
  if list[1] then core.scale_step(scale, list) end
end

--- Updates the blocks that backward has passed. The norm before clipping is `norm`.
function Clip:update()
  local executor = self.executor
  local traffic, update, order = executor.traffic, executor.update, executor.order
  self:note(update.others)
  self.norm = self.norms[1] and core.global_norm(self.norms)
    or core.zeros({}, {device = executor.device})
  self.norms = {}
  local scale = (self.limit / (self.norm + 1e-6)):clamp_ {max = 1}
  for k = #order, 1, -1 do
    local block = order[k]
    traffic:turn()
    traffic:await(executor.needs(block))
    for place = k, math.max(k - executor.config.ahead, 1), -1 do
      traffic:fetch(executor.needs(order[place]))
      update:prepare(order[place])
    end
    shrink(scale, block.params)
    update:run(block.params, block)
    executor.forget(block)
    collectgarbage "step"
  end
  shrink(scale, update.others)
end

return Clip
