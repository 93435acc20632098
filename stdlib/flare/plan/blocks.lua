--- The blocks of a model: the modules that a plan decides about one by one, and the places of their
-- parameters.
local core = require "flare.core"
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

-- --- blocks that are alike ---

local MOST = 4096 -- values of a block that are compared
-- What a Module notes about its fields.
local notes = {_last = true, _marks = true, _order = true, _fresh = true, _kinds = true}

-- What a block computes, as far as its fields tell: classes, scalars, shapes and dtypes. Equal
-- texts are equal blocks; what cannot be compared, such as a closure, makes a text unique.
local function text_of(module)
  local parts, seen, count = {}, {}, 0
  local function put(text) parts[#parts + 1] = text end
  local function visit(value)
    count = count + 1
    if count > MOST then return put(tostring(module)) end
    if core.is_tensor(value) then
      put(("%s %s %s %s"):format(table.concat(value.shape, "x"), value.dtype, value.device,
        value.requires_grad))
    elseif type(value) ~= "table" then
      put(type(value) .. " " .. tostring(value))
    elseif seen[value] then
      put("table " .. seen[value])
    else
      seen[value] = count
      put("of " .. tostring(getmetatable(value)))
      local keys = {}
      for key in next, value do
        if not notes[key] then keys[#keys + 1] = key end
      end
      table.sort(keys, function(a, b)
        local x, y = type(a), type(b)
        if x ~= y then return x < y end
        if x == "number" or x == "string" then return a < b end
        return tostring(a) < tostring(b)
      end)
      for _, key in ipairs(keys) do
        put(type(key) .. " " .. tostring(key))
        visit(rawget(value, key))
      end
      put "end"
    end
  end
  visit(module)
  return table.concat(parts, "\n")
end

-- Marks each block with the first of the blocks around it that are alike, one after another.
local function mark_alike(blocks)
  local before
  for k, block in ipairs(blocks) do
    local text = text_of(block.module)
    block.first = text == before and blocks[k - 1].first or k
    before = text
  end
  for k = #blocks, 1, -1 do
    local after = blocks[k + 1]
    local block = blocks[k]
    block.last = after and after.first == block.first and after.last or k
  end
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
  mark_alike(blocks)
  return blocks, rest, list
end

return M
