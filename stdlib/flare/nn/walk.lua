--- Finding a module's parameters, buffers and children, in stable order.
local core = require "flare.core"
local fail = require "flare.fail"

local M = {}

local is_tensor = core.is_tensor
local DEPTH = 200 -- of nested modules and tables; more is a mistake

--- Remembers what a tensor is to the module that owns it.
function M.mark(module, tensor, kind)
  local marks = rawget(module, "_marks")
  if not marks then
    marks = {}
    rawset(module, "_marks", marks)
  end
  marks[tensor.id] = kind
end

--- "parameter", "buffer" or nil: what a tensor in a field of `module` is.
function M.kind(module, tensor)
  local marks = rawget(module, "_marks")
  local kind = marks and marks[tensor.id]
  if kind then return kind end
  if tensor.requires_grad and tensor.is_leaf then return "parameter" end
end

--- Whether a value is a module (an object, not a class).
function M.is_module(value)
  local meta = type(value) == "table" and getmetatable(value)
  return meta and meta.__module == true or false
end

--- The parameters of a module; what is no module is given back, a list of them as a rule.
function M.parameters(value)
  return M.is_module(value) and value:parameters() or value
end

local function key_less(a, b)
  local ta, tb = type(a), type(b)
  if ta ~= tb then return ta == "number" end
  return a < b
end

-- Keys that can be part of a name: positive integers and strings without "_" in front.
local function sorted_keys(t)
  local keys, n = {}, 0
  for key, value in next, t do
    local kind = type(value)
    if (kind == "table" or kind == "userdata")
       and ((type(key) == "string" and key:byte() ~= 95)
            or (math.type(key) == "integer" and key > 0)) then
      n = n + 1
      keys[n] = key
    end
  end
  table.sort(keys, key_less)
  return keys
end

local function join(prefix, key)
  return prefix == "" and tostring(key) or prefix .. "." .. tostring(key)
end

-- `holder` is the table that has the fields: the module or a plain table inside it.
local function descend(state, owner, holder, prefix, depth)
  if depth > DEPTH then
    fail("%s...: modules are nested more than %d deep", prefix:sub(1, 40), DEPTH)
  end
  for _, key in ipairs(sorted_keys(holder)) do
    local value = rawget(holder, key)
    if is_tensor(value) then
      local kind = M.kind(owner, value)
      if kind and kind == state.want then
        state.visit(join(prefix, key), value, owner, key, holder)
      end
    elseif type(value) == "table" then
      local name = join(prefix, key)
      local module = M.is_module(value)
      if module or getmetatable(value) == nil then
        if state.path[value] then
          fail("%s contains itself at '%s'", tostring(getmetatable(state.root).__name), name)
        end
        state.path[value] = true
        if module and state.want == "module" then state.visit(name, value, owner, key, holder) end
        descend(state, module and value or owner, value, name, depth + 1)
        state.path[value] = nil
      end
    end
  end
end

--- Calls visit(name, value, owner, key, holder) for everything of one kind.
-- @param all visit a shared one at each place, not only at the first
function M.visit(module, visit, want, all)
  if not M.is_module(module) then
    fail("expected a module, got %s; methods are called with ':', as in model:parameters()",
         module == nil and "nothing" or core.is_tensor(module) and "a tensor" or type(module))
  end
  local seen = {}
  local function once(name, value, ...)
    local id = want == "module" and value or value.id
    if seen[id] then return end
    seen[id] = true
    visit(name, value, ...)
  end
  local state = {root = module, want = want, visit = all and visit or once,
                 path = {[module] = true}}
  if want == "module" then state.visit("", module) end
  descend(state, module, module, "", 0)
end

--- A list of values, and a list of their names.
function M.list(module, want, all)
  local values, names = {}, {}
  M.visit(module, function(name, value)
    values[#values + 1] = value
    names[#names + 1] = name
  end, want, all)
  return values, names
end

--- An iterator over name, value.
function M.iterate(module, want)
  local values, names = M.list(module, want)
  local i = 0
  return function()
    i = i + 1
    return names[i], values[i]
  end
end

--- A copy of a module: its tables and modules, and their tensors without history; other objects
-- are kept as they are.
function M.clone(module)
  local copies, ids = {}, {}
  local function copy(value)
    if is_tensor(value) then
      local new = ids[value.id]
      if not new then
        -- what is made of parameters is none, and made anew
        new = value:detach():clone():requires_grad_(value.requires_grad and value.is_leaf)
        ids[value.id] = new
      end
      return new
    elseif type(value) ~= "table" or getmetatable(value) ~= nil and not M.is_module(value) then
      return value
    elseif not copies[value] then
      local new = {}
      copies[value] = new
      for key, inner in next, value do new[key] = copy(inner) end
      setmetatable(new, getmetatable(value))
    end
    return copies[value]
  end
  local root = copy(module)
  for _, new in pairs(copies) do
    local marks = rawget(new, "_marks")
    if M.is_module(new) and marks then
      rawset(new, "_marks", {})
      for id, kind in pairs(marks) do
        if ids[id] then M.mark(new, ids[id], kind) end
      end
    end
  end
  return root
end

--- x:to(...) in which a dtype converts floating tensors only.
function M.convert(tensor, ...)
  local device, dtype
  for _, argument in ipairs{...} do
    if type(argument) == "table" then
      device, dtype = argument.device or device, argument.dtype or dtype
    elseif tostring(argument):find("^b?[fiu]%d+$") or argument == "bool" then
      dtype = argument
    else
      device = argument
    end
  end
  if dtype and not tensor.dtype:find("^b?f%d") then dtype = nil end
  return tensor:to{device = device, dtype = dtype}
end

return M
