--- Finding a module's parameters, buffers and children, in stable order.
--
-- A module's own parameters and buffers are not fields of its table but of the table `_tensors`, so
-- that __newindex sees every assignment to their names (fields.lua). Private fields: `_marks`, the
-- kind of a tensor by its id; `_kinds`, the kind of each name in `_tensors`; `_order`, when each
-- name was first assigned; `_modules`, the names that were first assigned a module; `_inner`, by
-- plain table and key, the parameters, buffers, modules and tables of these found there.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

local is_tensor = core.is_tensor
local DEPTH = 200 -- of nested modules and tables; more is a mistake

--- A private table of a module, made at its first use.
function M.private(module, name)
  local t = rawget(module, name)
  if not t then
    t = {}
    rawset(module, name, t)
  end
  return t
end

--- Notes the kind of a tensor, parameter or buffer, in the module that owns it.
function M.mark(module, tensor, kind)
  M.private(module, "_marks")[tensor.id] = kind
end

--- The kind of a tensor in a field of `module`: "parameter", "buffer" or nil.
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

--- The parameters of a module; any other value, such as a list of parameters, is returned.
function M.parameters(value)
  return M.is_module(value) and value:parameters() or value
end

-- Numbers first, then names in the order of their first assignment, then other names in
-- alphabetical order.
local function in_order(order)
  return function(a, b)
    local ta, tb = type(a), type(b)
    if ta ~= tb then return ta == "number" end
    local ka, kb = order and order[a], order and order[b]
    if ka and kb then return ka < kb end
    if ka or kb then return ka ~= nil end
    return a < b
  end
end
local by_name = in_order(nil)

local function add_keys(keys, t)
  local n = #keys
  for key, value in next, t do
    local kind = type(value)
    if (kind == "table" or kind == "userdata")
       and ((type(key) == "string" and key:byte() ~= 95)
            or (math.type(key) == "integer" and key > 0)) then
      n = n + 1
      keys[n] = key
    end
  end
end

-- Keys that can be part of a name: positive integers and strings without "_" in front.
local function sorted_keys(t, module, alphabetical)
  local keys = {}
  add_keys(keys, t)
  local tensors = module and rawget(t, "_tensors")
  if tensors then add_keys(keys, tensors) end
  local order = module and not alphabetical and rawget(t, "_order")
  table.sort(keys, order and in_order(order) or by_name)
  return keys
end

local function join(prefix, key)
  return prefix == "" and tostring(key) or prefix .. "." .. tostring(key)
end

--- Makes a tensor the module's own under a name; fields.lua gives the module a metatable that
-- reads it.
function M.hold(module, key, tensor, kind)
  local tensors = rawget(module, "_tensors") or require("flare.nn.fields").attach(module)
  rawset(module, key, nil)
  tensors[key] = tensor
  M.private(module, "_kinds")[key] = kind
  M.mark(module, tensor, kind)
end

-- What was found in a table of a module, which may be the module itself.
local function found_in(owner, holder)
  local inner = rawget(owner, "_inner")
  return inner and inner[holder]
end

local function note(owner, holder, key, kind)
  local inner = rawget(owner, "_inner")
  if not inner then
    inner = setmetatable({}, {__mode = "k"})
    rawset(owner, "_inner", inner)
  end
  inner[holder] = inner[holder] or {}
  inner[holder][key] = kind
end

--- Notes what a plain table has when it is assigned to a key of a holder.
-- @return whether it has parameters, buffers or modules
function M.note_table(owner, holder, key, value, depth)
  local any = false
  for inner, entry in next, value do
    local kind = is_tensor(entry) and M.kind(owner, entry) or M.is_module(entry) and "module"
    if kind then note(owner, value, inner, kind) end
    local plain = type(entry) == "table" and getmetatable(entry) == nil and depth < 4
    any = kind or plain and M.note_table(owner, value, inner, entry, depth + 1) or any
  end
  if any then note(owner, holder, key, "list") end
  return any
end

-- The kind of a tensor in a plain table of a module. Replacing a parameter by a plain tensor is an
-- error; a tensor that replaces a buffer becomes the buffer.
local function inner_kind(owner, holder, key, value, name)
  local kind = M.kind(owner, value)
  local kinds = found_in(owner, holder)
  local was = kinds and kinds[key]
  if not kind and was == "parameter" then
    fail("%s: '%s' was a parameter and holds a plain tensor now; make it one by "
      .. "module:param(tensor), or copy values by copy_() inside flare.no_grad",
      getmetatable(owner).__name, name)
  elseif not kind and was then
    M.mark(owner, value, was)
    kind = was
  end
  if kind ~= was then note(owner, holder, key, kind) end
  return kind
end

-- The parameters of a module are lost when a value without parameters takes its name. nil and false
-- remove a module, and a function may compute in its place.
local function check_replaced(module, key, value, was)
  local kind = type(value)
  if is_tensor(value) then
    kind = "plain tensor"
  elseif kind ~= "number" and kind ~= "string" and value ~= true then
    return
  end
  fail("%s: '%s' was a %s and holds a %s now; to remove the %s, assign nil first; for a "
    .. "parameter in its place: layer%s = layer:param(tensor)", getmetatable(module).__name, key,
    was, kind, was, ("." .. key):gsub("%.(%d+)", "[%1]"))
end

local function check_modules(module)
  for key in next, rawget(module, "_modules") or {} do
    local value = rawget(module, key)
    if not (is_tensor(value) and M.kind(module, value)) then
      check_replaced(module, key, value, "module")
    end
  end
end

-- The same for modules in plain tables, and for tables with parameters.
local function check_inner(owner, holder, prefix)
  for key, was in next, found_in(owner, holder) or {} do
    local value = rawget(holder, key)
    if (was == "module" or was == "list") and not (is_tensor(value) and M.kind(owner, value)) then
      check_replaced(owner, join(prefix, key), value, was)
    end
  end
end

-- A module's own field, or nil: its kind and the table that holds it.
local function own_kind(module, key, value)
  local tensors = rawget(module, "_tensors")
  if tensors and rawequal(rawget(tensors, key), value) then
    return rawget(module, "_kinds")[key], tensors
  end
  local kind = M.kind(module, value)
  if not kind and math.type(key) == "integer" then check_replaced(module, key, value, "module") end
  if not kind then return end
  M.hold(module, key, value, kind) -- became one after it was assigned
  return kind, rawget(module, "_tensors")
end

-- `holder` is the table that has the fields: the module or a plain table inside it.
local function descend(state, owner, holder, prefix, depth)
  if depth > DEPTH then
    fail("%s...: modules are nested more than %d deep", prefix:sub(1, 40), DEPTH)
  end
  local is_own = rawequal(owner, holder)
  local tensors = is_own and rawget(holder, "_tensors")
  if is_own then check_modules(owner) end
  check_inner(owner, holder, is_own and "" or prefix)
  for _, key in ipairs(sorted_keys(holder, is_own, state.alphabetical)) do
    local value = rawget(holder, key)
    if value == nil and tensors then value = rawget(tensors, key) end
    if is_tensor(value) then
      local kind, at
      if is_own then
        kind, at = own_kind(holder, key, value)
      else
        kind, at = inner_kind(owner, holder, key, value, join(prefix, key)), holder
      end
      if kind and kind == state.want then
        state.visit(join(prefix, key), value, owner, key, at)
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
        local kind = module and not is_own and "module"
                     or not module and found_in(owner, value) and "list"
        if kind then note(owner, holder, key, kind) end
        state.path[value] = nil
      end
    end
  end
end

--- Calls visit(name, value, owner, key, holder) for all values of one kind.
-- @param all visit a shared value under each of its names, not only the first
-- @param alphabetical in the order of names instead of that of assignment
function M.visit(module, visit, want, all, alphabetical)
  if not M.is_module(module) then fail("expected a module, got %s", options.kind(module)) end
  local seen = {}
  local function once(name, value, ...)
    local id = want == "module" and value or value.id
    if seen[id] then return end
    seen[id] = true
    visit(name, value, ...)
  end
  local state = {root = module, want = want, visit = all and visit or once,
                 path = {[module] = true}, alphabetical = alphabetical}
  if want == "module" then state.visit("", module) end
  descend(state, module, module, "", 0)
end

--- A list of values, and a list of their names.
function M.list(module, want, all, alphabetical)
  local values, names = {}, {}
  M.visit(module, function(name, value)
    values[#values + 1] = value
    names[#names + 1] = name
  end, want, all, alphabetical)
  return values, names
end

local sources = setmetatable({}, {__mode = "k"}) -- of lists that parameters() gave: the modules

--- The list that Module:parameters returns; `names` finds its module again.
function M.parameter_list(module)
  local list = M.list(module, "parameter")
  sources[list] = module
  return list
end

--- The names of the tensors in a list that parameters() returned, or nil for any other list.
-- @return names, and names in the order that versions before 0.2 gave, the alphabetical one
function M.names(list)
  local module = sources[list]
  if not module then return end
  local values, names = M.list(module, "parameter")
  if #values ~= #list then return end
  for i, value in ipairs(values) do
    if value ~= list[i] then return end
  end
  local name_of, old = {}, {}
  for i, value in ipairs(values) do name_of[value.id] = names[i] end
  for i, value in ipairs(M.list(module, "parameter", false, true)) do old[i] = name_of[value.id] end
  return names, old
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
        -- tensors that are computed from parameters become plain tensors
        new = value:detach():clone():requires_grad_(value.requires_grad and value.is_leaf)
        ids[value.id] = new
      end
      return new
    elseif type(value) ~= "table" or getmetatable(value) ~= nil and not M.is_module(value) then
      return value
    elseif not copies[value] then
      local new = {}
      copies[value] = new
      for key, inner in next, value do
        if key ~= "_tensors" and key ~= "_inner" then new[key] = copy(inner) end
      end
      setmetatable(new, getmetatable(value))
      for key, tensor in next, rawget(value, "_tensors") or {} do
        M.hold(new, key, copy(tensor), value._kinds[key])
      end
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

--- x:to(...) in which a dtype converts floating tensors only, and a layout tensors of 4 dims.
function M.convert(tensor, ...)
  local device, dtype, layout
  for _, argument in ipairs{...} do
    if type(argument) == "table" then
      device, dtype = argument.device or device, argument.dtype or dtype
      layout = argument.layout or layout
    elseif tostring(argument):find("^b?[fiu]%d+$") or argument == "bool" then
      dtype = argument
    else
      device = argument
    end
  end
  if dtype and not tensor.dtype:find("^b?f%d") then dtype = nil end
  if layout == "channels_last" and tensor:dim() ~= 4 then layout = nil end
  return tensor:to{device = device, dtype = dtype, layout = layout}
end

return M
