--- :reload and :watch: a module is read again. Its classes and its table stay what they are and get
-- the new functions, so objects that exist have the new methods and keep their state.
local core = require "flare.core"

local M = {}

local rawget, rawset, rawequal, next, type, pairs = rawget, rawset, rawequal, next, type, pairs
local debug, package, require, xpcall, io = debug, package, require, xpcall, io
local _G = _G

-- --- old and new side by side ---

-- Tables that belong to others: globals and other modules.
local function foreign(name)
  local set = {[_G] = true}
  for other, value in next, package.loaded do
    if other ~= name and type(value) == "table" then set[value] = true end
  end
  return set
end

local function is_class(value)
  if type(value) ~= "table" then return false end
  return rawget(value, "__index") ~= nil or rawget(value, "__name") ~= nil
end

local function upvalues(f)
  local list = {}
  for i = 1, 255 do
    local name, value = debug.getupvalue(f, i)
    if not name then break end
    list[name] = {index = i, value = value}
  end
  return list
end

-- Finds what the new classes replace: same[new] = old, by the names of fields and variables.
local function match(old, new, same, seen, others, root)
  if rawequal(old, new) or seen[new] or type(old) ~= type(new) then return end
  if type(new) == "function" then
    seen[new] = true
    if debug.getinfo(new, "S").what ~= "Lua" then return end
    local before = upvalues(old)
    for name, up in pairs(upvalues(new)) do
      if before[name] then match(before[name].value, up.value, same, seen, others) end
    end
  elseif type(new) == "table" and not others[new] and not others[old] then
    seen[new] = true
    if root or is_class(new) and is_class(old) then same[new] = old end
    for key, value in next, new do
      local was = rawget(old, key)
      if was ~= nil then match(was, value, same, seen, others) end
    end
  end
end

-- Everything new that refers to a new class refers to the old one, which has got its contents.
local function redirect(value, same, seen, others)
  if seen[value] or value == nil then return end
  if type(value) == "function" then
    seen[value] = true
    if debug.getinfo(value, "S").what ~= "Lua" then return end
    for _, up in pairs(upvalues(value)) do
      if same[up.value] then debug.setupvalue(value, up.index, same[up.value]) end
      redirect(up.value, same, seen, others)
    end
  elseif type(value) == "table" and not others[value] then
    seen[value] = true
    for key, inner in next, value do
      if same[inner] then rawset(value, key, same[inner]) end
      redirect(inner, same, seen, others)
    end
    local meta = debug.getmetatable(value)
    if same[meta] then debug.setmetatable(value, same[meta]) end
    redirect(meta, same, seen, others)
  end
end

-- The contents of a new class or module in the old table.
local function fill(old, new)
  for key, value in next, old do
    if rawget(new, key) == nil and type(value) == "function" then rawset(old, key, nil) end
  end
  for key, value in next, new do rawset(old, key, value) end
  debug.setmetatable(old, debug.getmetatable(new))
end

-- --- reading again ---

--- The file of a module, or nil and what was looked for.
function M.path(name)
  return package.searchpath(name, package.path)
end

-- The name of the loaded module that a path or a name stands for.
local function module_of(text)
  if package.loaded[text] ~= nil then return text end
  local real = core.file.real(text)
  for name in next, package.loaded do
    local path = M.path(name)
    if real and path and core.file.real(path) == real then return name end
  end
end

--- Reads a module again.
-- @param text its name, or its file
-- @param traced the handler of errors
-- @param replace called with old and new where the module is a function
-- @return the module's name; or nil and a message
function M.reload(text, traced, replace)
  local name = module_of(text)
  if not name then
    local names = {}
    for other in next, package.loaded do names[#names + 1] = other end
    local near = core.nearest(text, names)
    return nil, ("no module %s was loaded by require%s"):format(text,
      near and (": do you mean %s?"):format(near) or "")
  end
  if not M.path(name) then return nil, ("the module %s has no file"):format(name) end
  local old = package.loaded[name]
  package.loaded[name] = nil
  local ok, new = xpcall(require, traced, name)
  if not ok then
    package.loaded[name] = old
    return nil, new
  end
  local same, others = {}, foreign(name)
  match(old, new, same, {}, others, type(old) == "table")
  redirect(new, same, {}, others)
  for fresh, kept in pairs(same) do fill(kept, fresh) end
  local result = same[new] or new
  package.loaded[name] = result
  if not rawequal(result, old) then replace(old, result) end
  return name
end

-- --- watching ---

local watched = {} -- path: {name, stamp = its text}

-- The text itself: the time of a change is too coarse.
local function stamp(path)
  local file <close> = io.open(path)
  return file and file:read "a"
end

--- Reads a module again whenever its file has changed. @return its file; or nil and a message
function M.watch(text)
  local name = module_of(text)
  local path = name and M.path(name)
  if not path then return nil, ("no module %s was loaded by require from a file"):format(text) end
  watched[path] = {name = name, stamp = stamp(path)}
  return path
end

--- The names of modules whose files have changed since they were asked for.
function M.changed()
  local names = {}
  for path, entry in pairs(watched) do
    local now = stamp(path)
    if now and now ~= entry.stamp then
      entry.stamp = now
      names[#names + 1] = entry.name
    end
  end
  return names
end

return M
