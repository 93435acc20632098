--- Detects changes of a model after DataParallel or ZeRO wrapped it.
local class = require "flare.class"
local walk = require "flare.nn.walk"

local Watch = class "dist.Watch"
local MOST = 10000 -- unknown leaves that it remembers

--- @param named the parameters, {name, tensor} each
function Watch:init(module, named)
  self.module, self.named, self.learns = module, named, {}
  self.strangers, self.count = {}, 0
  for k, pair in ipairs(named) do self.learns[k] = pair[2].requires_grad end
  local first = named[1]
  if not first then return end
  walk.visit(module, function(_, tensor, _, key, holder)
    if tensor.id == first[2].id then self.holder, self.key = holder, key end
  end, "parameter", true)
  self.value = self.holder and rawget(self.holder, self.key)
end

--- Describes a change since it was made, or nil. module:to() replaces all parameters.
function Watch:change()
  if self.holder and not rawequal(rawget(self.holder, self.key), self.value) then
    return "the model has other parameters now (by to(), say)"
  end
  for k, pair in ipairs(self.named) do
    local learns = pair[2].requires_grad
    if learns ~= self.learns[k] then
      return ("'%s' %s"):format(pair[1], learns and "requires a gradient now"
                                 or "does not require a gradient any more")
    end
  end
end

--- Called when a leaf of no queue has a gradient. Leaves without memory are placeholders.
function Watch:meet(leaf)
  local id = leaf.id
  if self.strangers[id] or not leaf:is_contiguous() then return end
  if self.count == MOST then self.strangers, self.count = {}, 0 end
  self.strangers[id], self.count, self.new = true, self.count + 1, true
end

--- Called at the end of backward: the name of a parameter that was added to the model, or nil.
function Watch:stranger()
  if not self.new then return self.found end
  self.new = false
  for name, p in self.module:named_parameters() do
    if self.strangers[p.id] then self.found = self.found or name end
  end
  return self.found
end

return Watch
