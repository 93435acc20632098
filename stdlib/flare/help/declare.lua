--- Declarations of functions, methods and classes in the definitions for editors: parameters and
-- results with the types that comments, bodies and contracts give.
local bodies = require "flare.help.bodies"
local core = require "flare.core"
local results = require "flare.help.results"
local source = require "flare.help.source"
local types = require "flare.help.types"

local M = {}

local overrides = {} -- a class -> the classes that derive from it

-- The types that the bodies of a method and of its overrides show, nil where they differ.
local function shown_by(class, name, f)
  local shown = bodies.returns(f)
  for _, derived in ipairs(class and overrides[class] or {}) do
    local other = shown and rawget(derived, name)
    local types_of = other and other ~= f and bodies.returns(other)
    if other and other ~= f then
      if not types_of or table.concat(types_of, ",") ~= table.concat(shown, ",") then return nil end
    end
  end
  return shown
end

-- The types of the results of a function: those that are known, that its comment gives or that its
-- body shows, or any.
local function returns_of(how, said)
  if how.returns then return how.returns end
  local shown = how.f and shown_by(how.class, how.name, how.f)
  if not said then return shown or {"any ..."} end
  local list = types.returns(said)
  for k, kind in ipairs(list) do
    if kind == "any" and shown and #shown == #list then list[k] = shown[k] end
  end
  return #list == 2 and list[1] == "any" and list[2] == "any" and {"any ..."} or list
end

-- The names of a Lua function's parameters, without self.
local function parameters_of(f)
  local info, list = debug.getinfo(core.unframed(f), "Su"), {}
  if info.what ~= "Lua" then return {"..."} end
  for k = 1, info.nparams do list[k] = debug.getlocal(core.unframed(f), k) end
  if list[1] == "self" then table.remove(list, 1) end
  if info.isvararg then list[#list + 1] = "..." end
  return list
end

--- A function in C, or one without a comment.
-- @param how {f =, said = {call =, text =}, known = {params =, returns =}, returns =, takes =}
function M.c(out, owner, mark, name, how)
  local said, known, list = how.said, how.known, {}
  if said then out[#out + 1] = ("---%s: %s"):format(said.call, said.text) end
  local params = known and known.params
  if not params then
    local checked = how.f and bodies.checked(how.f) or {}
    params = {}
    for k, p in ipairs(how.f and parameters_of(how.f) or {"..."}) do
      local kind, optional = types.of_argument(p, "")
      kind = how.takes and how.takes[p] or checked[p] or kind
      if kind == "any" then -- one that nothing tells about: so are they all
        params = {{"...", "any"}}
        break
      end
      params[k] = {optional and p .. "?" or p, kind}
    end
  end
  for i, p in ipairs(params) do
    list[i] = p[1]:gsub("%?$", "")
    out[#out + 1] = ("---@param %s %s"):format(p[1], p[2])
  end
  for _, kind in ipairs(known and known.returns or returns_of(how)) do
    out[#out + 1] = "---@return " .. kind
  end
  out[#out + 1] = ("function %s%s%s(%s) end\n"):format(owner, mark, name,
    table.concat(list, ", "))
end

--- A function with a comment.
-- @param how {f = the function, returns = the types of its results, takes = those of its parameters
--   by name, if they are known}
function M.doc(out, doc, owner, mark, name, how)
  for _, line in ipairs(doc.text) do out[#out + 1] = "---" .. line end
  local about = {}
  for _, p in ipairs(doc.params) do about[p.name] = p.text end
  local checked = bodies.checked(how.f)
  for arg in doc.args:gmatch "[%w_.]+" do
    local said = about[arg] or ""
    local kind, optional = types.of_argument(arg, said)
    if kind == "any" then kind = how.takes and how.takes[arg] or checked[arg] or kind end
    out[#out + 1] = ("---@param %s%s %s %s"):format(arg, optional and "?" or "", kind, said)
  end
  local said = doc.returns and doc.returns.text
  for i, kind in ipairs(returns_of(how, said)) do
    out[#out + 1] = ("---@return %s%s"):format(kind, i == 1 and said and " # " .. said or "")
  end
  out[#out + 1] = ("function %s%s%s(%s) end\n"):format(owner, mark, name, doc.args)
end

--- The names in a table that are words, in alphabetical order.
function M.sorted(t)
  local names = {}
  for name in pairs(t) do
    if type(name) == "string" and name:find "^%a[%w_]*$" then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

-- Whether a parent that is declared has a method with these parameters: then an object inherits it.
local function inherits(class, name, f, paths)
  local parent, names = rawget(class, "parent"), table.concat(parameters_of(f), ",")
  while parent do
    local other = rawget(parent, name)
    if other and paths[parent] then return table.concat(parameters_of(other), ",") == names end
    parent = rawget(parent, "parent")
  end
  return false
end

-- Methods without a comment are the class's own matter, but for those that its contract names.
-- @param but a class whose methods are left out, or nil
local function emit_methods(out, class, path, paths, but)
  for _, name in ipairs(M.sorted(class)) do
    local f = rawget(class, name)
    if type(f) == "function" and name ~= "init" and not (but and rawget(but, name)) then
      local about, how = source.of(f), {f = f, class = class, name = name}
      how.returns, how.takes = results.of(path, name)
      if about then
        M.doc(out, about, "object", about.method and ":" or ".", name, how)
      elseif not inherits(class, name, f, paths)
        and (how.returns or next(how.takes) or name == "forward" or path == "flare.nn.Module") then
        M.c(out, "object", ":", name, how)
      end
    end
  end
end

M.called = "---@overload fun(...: any): any"

-- The fields that the code of a class and of its parents without names uses; an object has those
-- of the declared parent as well.
local function emit_fields(out, class, path, paths)
  local code, inherited = {source.code(class)}, {}
  local parent = rawget(class, "parent")
  while parent do
    if paths[parent] then
      for _, name in ipairs(source.fields(parent)) do inherited[name] = true end
    else
      code[#code + 1] = source.code(parent)
    end
    parent = rawget(parent, "parent")
  end
  code = table.concat(code, "\n")
  local kinds_of = bodies.fields(code, function(name)
    local made = require("flare.nn")[name]
    return paths[made] == "flare.nn." .. name and paths[made] or nil
  end)
  for _, name in ipairs(source.fields(code)) do
    if class[name] == nil and not inherited[name] then
      local kind = kinds_of[name] or "any"
      out[#out + 1] = ("---@field %s %s"):format(name, kind == "any" and results.field(path, name)
                                                       or kind)
    end
  end
end

-- The call of an object: of a module it is `forward`.
local function call_of(class, path)
  local returns, takes = results.of(path, "forward")
  if not class.forward or not returns or not path:find "^flare%.nn%."
    and not path:find "^flare%.models%." then return M.called end
  local list = {}
  for k, name in ipairs(parameters_of(class.forward)) do
    list[k] = name .. (name == "..." and ": any" or "?: " .. (takes[name] or "any"))
    if k == 1 then list[k] = list[k]:gsub("%?:", ":") end
  end
  return ("---@overload fun(%s): %s"):format(table.concat(list, ", "), table.concat(returns, ", "))
end

-- What the objects of a class have: its methods, and the fields that its file names.
local function emit_object(out, class, path, paths)
  local call, parent = class, rawget(class, "parent")
  while call and not rawget(call, "__call") do call = rawget(call, "parent") end
  while parent and not paths[parent] do parent = rawget(parent, "parent") end
  parent = paths[parent]
  out[#out + 1] = "do"
  out[#out + 1] = ("---@class %s%s"):format(path, parent and ": " .. parent or "")
  emit_fields(out, class, path, paths)
  if path == "flare.nn.Module" then out[#out + 1] = "---@field [integer] any" end
  if call then out[#out + 1] = call_of(class, path) end
  out[#out + 1] = "local object = {}"
  emit_methods(out, class, path, paths)
  parent = rawget(class, "parent")
  while parent and not paths[parent] do -- one that has no name
    emit_methods(out, parent, path, paths, class)
    parent = rawget(parent, "parent")
  end
  out[#out + 1] = "end\n"
end

--- A class is two: of its objects, and of the value that makes them and that others derive from.
function M.class(out, class, path, paths)
  local doc = class.init and source.of(class.init)
  local top, call = source.of_class(class)
  emit_object(out, class, path, paths)
  for _, lines in ipairs {top, call or rawget(class, "about")} do
    for _, line in ipairs(lines) do out[#out + 1] = "---" .. line end
  end
  local args, about = {}, {}
  for _, p in ipairs(doc and doc.params or {}) do about[p.name] = p.text end
  local names = doc and doc.args
    or class.init and table.concat(parameters_of(class.init), ",") or "..."
  local checked = class.init and bodies.checked(class.init) or {}
  local shown = rawget(class, "about") and class.about[1]:match "^[%w.]+%(([%w_, ]+)%)$"
  if names == "..." and shown then names = shown end -- the text for help has the arguments
  for name in names:gsub("^self,?%s*", ""):gmatch "[%w_.]+" do
    local kind = types.of_argument(name, about[name] or "")
    if kind == "any" then kind = checked[name] or results.argument(path, name) or kind end
    args[#args + 1] = name == "..." and "...: any" or ("%s?: %s"):format(name, kind)
  end
  out[#out + 1] = ("---@class %s.class: %s"):format(path, path)
  out[#out + 1] = ("---@overload fun(%s): %s"):format(table.concat(args, ", "), path)
  out[#out + 1] = path .. " = {}\n"
end

--- Learns which classes derive from which.
-- @param found a list of {class =}, other entries aside
function M.derive(found)
  overrides = {}
  for _, item in ipairs(found) do
    local parent = item.class and rawget(item.class, "parent")
    while parent do
      overrides[parent] = overrides[parent] or {}
      table.insert(overrides[parent], item.class)
      parent = rawget(parent, "parent")
    end
  end
end

return M
