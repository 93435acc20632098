--- The blocks of a model: the modules that a plan decides about one by one, and the places of their
-- parameters.
local fail = require "flare.fail"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local M = {}

-- Smaller tensors stay on the device: their transfers would take longer than they are worth.
M.LEAST = 64 << 10

-- The elements of lists (ModuleList, Sequential) that are in no other such element and have
-- parameters.
local function default_blocks(model)
  local nn = require "flare.nn"
  local list, lists, last = {}, {}, nil
  local function is_list(module)
    local meta = getmetatable(module)
    return meta == nn.ModuleList or meta == nn.Sequential
  end
  for name, module in model:named_modules() do
    local inside = last and name:sub(1, #last + 1) == last .. "."
    local parent = name:match "^(.*)%.[^.]*$" or ""
    if not inside then
      if name ~= "" and lists[parent] then
        if #module:parameters() > 0 then
          list[#list + 1], last = {name = name, module = module}, name
        end
      elseif is_list(module) then lists[name] = true end
    end
  end
  return list
end

local function given_blocks(model, given)
  local names, list = {}, {}
  for name, module in model:named_modules() do names[module] = name end
  if type(given) ~= "table" then
    fail("plan: blocks must be a list of modules, got %s", options.kind(given))
  end
  for k, module in ipairs(given) do
    if not names[module] then
      fail("plan: blocks[%d] is %s, not a module of the model", k, options.kind(module))
    end
    list[k] = {name = names[module], module = module}
  end
  return list
end

-- Parameters once each: {tensor, name, slots = {{holder, key, owner}, ...}}, by id and as a list.
local function all_parameters(model)
  local by_id, list = {}, {}
  for name, p in model:named_parameters() do
    local entry = {tensor = p, name = name, slots = {}}
    by_id[p.id], list[#list + 1] = entry, entry
  end
  walk.visit(model, function(_, tensor, owner, key, holder)
    table.insert(by_id[tensor.id].slots, {holder = holder, key = key, owner = owner})
  end, "parameter", true)
  return list, by_id
end

--- @param given a list of modules, or nil
-- @return the blocks {name, module, params}, and the parameters in none or in several
function M.find(model, given)
  local blocks = given and given_blocks(model, given) or default_blocks(model)
  local list, by_id = all_parameters(model)
  for b, block in ipairs(blocks) do
    local count, order = {}, {}
    walk.visit(block.module, function(_, tensor)
      if not count[tensor.id] then order[#order + 1] = tensor.id end
      count[tensor.id] = (count[tensor.id] or 0) + 1
    end, "parameter", true)
    block.params, block.index = {}, b
    for _, id in ipairs(order) do
      local entry = by_id[id]
      if count[id] == #entry.slots then
        block.params[#block.params + 1] = entry
        entry.block = block
      end
    end
  end
  local rest = {}
  for _, entry in ipairs(list) do
    if not entry.block then rest[#rest + 1] = entry end
  end
  return blocks, rest, list
end

return M
