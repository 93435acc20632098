--- ZeRO's third stage: a unit's parameters are whole only while it computes. Each forward gathers
-- them, and so does backward, which computes the unit again: the tape keeps its inputs alone.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local walk = require "flare.nn.walk"

local M = {}

-- A call of the module `unit` stands for one with its parameters.
local Unit = class "dist.Unit"

function Unit:init(module, shards, places)
  self.module, self.shards, self.places = module, shards, places
end

-- Puts tensors where the parameters were: list[s][k] of the k-th parameter of shard s.
local function put(self, list)
  for s, places in ipairs(self.places) do
    for k, slots in ipairs(places) do
      for _, slot in ipairs(slots) do slot.holder[slot.key] = list and list[s][k] or slot.empty end
    end
  end
end

function Unit:run(original, ...)
  local n, inputs = #self.shards, table.pack(...)
  local given = {}
  for s, shard in ipairs(self.shards) do given[s] = shard.part end
  for k = 1, inputs.n do given[n + k] = inputs[k] end
  local function compute(...)
    local args = table.pack(...)
    local whole = {}
    for s, shard in ipairs(self.shards) do
      local flat = shard:gather(args[s])
      whole[s] = {}
      for k in ipairs(shard.shapes) do whole[s][k] = shard:view(flat, k) end
    end
    put(self, whole)
    local r = table.pack(pcall(original, self.module, table.unpack(args, n + 1, n + inputs.n)))
    put(self, nil)
    if not r[1] then error(r[2], 0) end
    return table.unpack(r, 2, r.n)
  end
  if not core.grad_enabled() then return compute(table.unpack(given, 1, n + inputs.n)) end
  return core.checkpoint(compute, table.unpack(given, 1, n + inputs.n))
end

-- The model's children.
local function default_units(model)
  local units = {}
  for name, module in model:named_modules() do
    if name ~= "" and not name:find("%.") then units[#units + 1] = module end
  end
  return units
end

local function slots_of(module)
  local by_id = {}
  walk.visit(module, function(_, tensor, owner, key, holder)
    by_id[tensor.id] = by_id[tensor.id] or {}
    table.insert(by_id[tensor.id], {holder = holder, key = key, owner = owner})
  end, "parameter", true)
  return by_id
end

--- Takes the parameters out of the model into shards.
function M.divide(zero, units)
  units = units or default_units(zero.model)
  local names, taken = {}, {}
  for name, p in zero.model:named_parameters() do names[p.id] = name end
  zero.shards, zero.units = {}, {}
  for _, module in ipairs(units) do
    local slots, list = slots_of(module), {}
    for _, pair in ipairs(zero.learning(module)) do
      local id = pair[2].id
      if taken[id] then
        fail("ZeRO: '%s' is in two units: stage 3 cannot share it", names[id])
      end
      taken[id] = true
      list[#list + 1] = {names[id], pair[2]}
    end
    if #list > 0 then
      local shards, places = zero.divide(list, math.maxinteger, zero.group), {}
      for s, shard in ipairs(shards) do
        places[s] = {}
        for k, p in ipairs(shard.params) do
          places[s][k] = slots[p.id]
          for _, slot in ipairs(slots[p.id]) do
            slot.empty = core.zeros({0}, {dtype = p.dtype, device = p.device})
            walk.mark(slot.owner, slot.empty, "parameter")
          end
        end
        shard.params = nil
        zero.shards[#zero.shards + 1] = shard
      end
      local unit = Unit(module, shards, places)
      put(unit, nil)
      local original = module.forward
      rawset(module, "forward", function(_, ...) return unit:run(original, ...) end)
      zero.units[#zero.units + 1] = unit
    end
  end
  for id, name in pairs(names) do
    if not taken[id] then fail("ZeRO: '%s' is in none of the units", name) end
  end
end

function M.forward(zero, ...) return zero.model(...) end

return M
