--- Variables for an editor: values in a few words, and what is inside of them, by numbers that hold
-- until the script goes on.
local core = require "flare.core"
local text = require "flare.repl.debug.text"

local Variables = {}
Variables.__index = Variables

function Variables.new() return setmetatable({values = {}}, Variables) end

local most = 1000 -- children that are sent if the editor does not say which

local function is_open(value) return core.is_tensor(value) and not value.closed end

-- How many children there are by position and by name; nil: none.
local function counts(value)
  if is_open(value) then
    return value.ndim > 0 and value.shape[1] or 0, 6
  elseif type(value) == "table" then
    local positions, names = rawlen(value), 0
    for key in next, value do
      if math.type(key) ~= "integer" or key < 1 or key > positions then names = names + 1 end
    end
    return positions, names
  end
end

--- A number for a value with children, 0 for others.
-- @param set function(name, value) assigns a child, or nil
function Variables:refer(value, set)
  local positions, names = counts(value)
  if not positions or positions + names == 0 then return 0 end
  self.values[#self.values + 1] = {value = value, set = set}
  return #self.values, positions, names
end

--- The same for a list of variables, made by list() -> {{name =, value =}}.
function Variables:refer_list(list, set)
  self.values[#self.values + 1] = {list = list, set = set}
  return #self.values
end

local function type_of(value)
  if is_open(value) then return "tensor " .. value.dtype end
  local meta = debug.getmetatable(value)
  local name = type(value) == "table" and type(meta) == "table" and rawget(meta, "__name")
  return type(name) == "string" and name or math.type(value) or type(value)
end

local function text_of(value)
  if is_open(value) then
    if value.numel and value:numel() == 1 then
      local ok, number = pcall(value.item, value)
      return ("%s (%s %s)"):format(ok and tostring(number) or "?", value.dtype, value.shape)
    end
    return ("%s %s %s"):format(value.dtype, value.shape, value.device)
  end
  return text.value(value)
end

--- A value as the protocol's Variable.
function Variables:describe(name, value, set)
  local reference, positions, names = self:refer(value, set)
  return {name = name, value = text_of(value), type = type_of(value), evaluateName = nil,
          variablesReference = reference, indexedVariables = positions, namedVariables = names}
end

-- What a tensor is, as children.
local function facts(x)
  local list = {{"shape", tostring(x.shape)}, {"dtype", x.dtype}, {"device", x.device},
                {"requires_grad", x.requires_grad}, {"made", x.made or "unknown"},
                {"grad", x.grad}}
  return list
end

local function position(x, i)
  local ok, part = pcall(core.no_grad, function()
    local one = x[i]
    if core.is_tensor(one) and one.ndim == 0 then one = one:item() end
    return one
  end)
  return ok and part or "not readable"
end

-- The children of a table that have names, in order.
local function named(value)
  local list, positions = {}, rawlen(value)
  for key, inner in next, value do
    if math.type(key) ~= "integer" or key < 1 or key > positions then
      local name = type(key) == "string" and key or ("[%s]"):format(text.value(key))
      list[#list + 1] = {name = name, value = inner, key = key}
    end
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

local function add_named(self, out, value)
  if is_open(value) then
    for _, fact in ipairs(facts(value)) do out[#out + 1] = self:describe(fact[1], fact[2]) end
    return
  end
  for _, one in ipairs(named(value)) do out[#out + 1] = self:describe(one.name, one.value) end
end

local function add_positions(self, out, value, from, count)
  local size = is_open(value) and (value.ndim > 0 and value.shape[1] or 0) or rawlen(value)
  for i = from, math.min(size, from + count - 1) do
    local inner
    if is_open(value) then inner = position(value, i) else inner = rawget(value, i) end
    out[#out + 1] = self:describe(("[%d]"):format(i), inner)
  end
end

--- The children that a request asks for; nil if its number is no longer known.
function Variables:children(request)
  local entry = self.values[request.variablesReference]
  if not entry then return nil end
  local out = core.json.array {}
  if entry.list then
    for _, one in ipairs(entry.list()) do
      local variable = self:describe(one.name, one.value)
      variable.evaluateName = one.name ~= "..." and one.name or nil
      out[#out + 1] = variable
    end
    return out
  end
  local filter = request.filter
  if filter ~= "indexed" then add_named(self, out, entry.value) end
  if filter ~= "named" then
    add_positions(self, out, entry.value, (request.start or 0) + 1, request.count or most)
  end
  return out
end

-- The key of a table under the name that children() gave it.
local function key_of(value, name)
  local i = math.tointeger(tonumber(name:match "^%[(%d+)%]$"))
  if i and i <= rawlen(value) then return i end
  for _, one in ipairs(named(value)) do
    if one.name == name then return one.key end
  end
end

--- Assigns a child; whether that was possible.
function Variables:assign(reference, name, value)
  local entry = self.values[reference]
  if not entry then return false end
  if entry.set then return entry.set(name, value) end
  local inner = entry.value
  if is_open(inner) then
    local i = math.tointeger(tonumber(name:match "^%[(%d+)%]$"))
    if not i then return false end
    return (pcall(core.no_grad, function() inner[i] = value end))
  end
  local key = type(inner) == "table" and key_of(inner, name)
  if key == nil or key == false then return false end
  rawset(inner, key, value)
  return true
end

return Variables
