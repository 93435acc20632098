--- The modules of a model that ZeRO treats as units, and where their parameters are.
local fail = require "flare.fail"
local Bucket = require "flare.dist.gradients.bucket"
local Module = require "flare.nn.module"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local M = {}

-- The model's children; in place of a container without a forward of its own, its children.
local function default_units(model)
  local units, last = {}, " "
  for name, module in model:named_modules() do
    local inside = name:sub(1, #last + 1) == last .. "."
    if name ~= "" and not inside and module.forward ~= Module.forward then
      units[#units + 1], last = module, name
    end
  end
  return units
end

--- Where each parameter of a module is, by its id: a list of {holder, key, owner}.
function M.slots(module)
  local by_id = {}
  walk.visit(module, function(_, tensor, owner, key, holder)
    by_id[tensor.id] = by_id[tensor.id] or {}
    table.insert(by_id[tensor.id], {holder = holder, key = key, owner = owner})
  end, "parameter", true)
  return by_id
end

--- The units, {module, named} each; `named` lists {name, tensor} of the unit's parameters that
-- require gradients, with the model's names.
-- @param named the model's
-- @param units a list of modules, or nil
function M.units(zero, named, units)
  units = units or default_units(zero.model)
  if type(units) ~= "table" then
    fail("ZeRO: units must be a list of modules, got %s", options.kind(units))
  end
  local names, all = {}, {}
  for _, pair in ipairs(named) do names[pair[2].id] = pair[1] end
  for u, module in ipairs(units) do
    if not walk.is_module(module) then
      fail("ZeRO: units must be modules of the model; unit %d is %s", u, options.kind(module))
    end
    all[u] = {module = module, named = {}}
    for k, pair in ipairs(Bucket.learning(module)) do
      local name = names[pair[2].id]
      if not name then
        fail("ZeRO: units must be modules of the model; unit %d (%s) has other parameters", u,
          tostring(getmetatable(module).__name))
      end
      all[u].named[k] = {name, pair[2]}
    end
  end
  return all
end

return M
