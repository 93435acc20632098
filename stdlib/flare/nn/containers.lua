--- Containers of modules: Sequential, ModuleList, ModuleDict.
local class = require "flare.class"
local fail = require "flare.fail"
local Module = require "flare.nn.module"
local walk = require "flare.nn.walk"
local options = require "flare.options"

local function check(where, module)
  if not walk.is_module(module) then
    local what = options.kind(module)
    if what:find "^the class" then what = what .. ": call it to make a layer" end
    fail("%s: a module is expected, got %s", where, what)
  end
  return module
end

-- The modules of a list, which has no gaps and no other keys.
local function check_list(where, list, n)
  for key in pairs(list) do
    if math.type(key) ~= "integer" or key < 1 then
      fail("%s: a list of modules is expected, got the key %q", where, key)
    end
    if key > n then n = key end
  end
  for i = 1, n do
    if list[i] == nil then fail("%s: module %d of %d is nil", where, i, n) end
    check(where, list[i])
  end
  return list
end

local function is_list(value)
  return type(value) == "table" and getmetatable(value) == nil
end

local ModuleList = class("ModuleList", Module)

--- nn.Sequential(a, b, c), nn.ModuleList(a, b, c) or a table of them: lists of modules.
-- `list[1]`, `#list`, `ipairs(list)` and negative positions work.
function ModuleList:init(...)
  local n = select("#", ...)
  if n == 1 and is_list(...) then
    self:append(...)
  else
    self:append(check_list(getmetatable(self).__name, {...}, n))
  end
end

-- Negative positions count from the end. The first parameter is not named self, because a frame
-- with `self` is a running module to the path that errors show.
function ModuleList.__index(list, key)
  if math.type(key) ~= "integer" then return getmetatable(list)[key] end
  if key == 0 then fail("%s[0]: positions count from 1", getmetatable(list).__name) end
  if key < 0 then return rawget(list, #list + 1 + key) end
end

--- Appends a module or a list of modules: all of them, or none if one is no module.
-- @return the container
function ModuleList:append(module)
  local where, n = getmetatable(self).__name, #self
  local list = is_list(module) and check_list(where, module, 0) or {check(where, module)}
  for i, each in ipairs(list) do rawset(self, n + i, each) end
  return self
end

--- Inserts a module before position i.
function ModuleList:insert(i, module)
  local n = #self
  if math.type(i) ~= "integer" or i < 1 or i > n + 1 then
    fail("%s: position %s is not in 1..%d", getmetatable(self).__name, tostring(i), n + 1)
  end
  check(getmetatable(self).__name, module)
  for k = n, i, -1 do rawset(self, k + 1, rawget(self, k)) end
  rawset(self, i, module)
  return self
end

local Sequential = class("Sequential", ModuleList)

local function missing(list, i)
  fail("%s: module %d of %d is nil; for a list without it, make a new one",
       getmetatable(list).__name, i, #list)
end

--- Runs the modules one after the other.
function Sequential:forward(x, ...)
  local n = #self
  if n == 0 then return x, ... end
  x = (self[1] or missing(self, 1))(x, ...)
  for i = 2, n do x = (self[i] or missing(self, i))(x) end
  return x
end

local ModuleDict = class("ModuleDict", Module)

--- nn.ModuleDict{first = a, second = b}: modules under names, as fields. Modules of the table are
-- in alphabetical order; modules that `set` adds follow.
function ModuleDict:init(modules)
  if modules ~= nil and type(modules) ~= "table" then
    fail("nn.ModuleDict: a table of names and modules is expected, got %s", options.kind(modules))
  end
  local names = {}
  for name in pairs(modules or {}) do names[#names + 1] = name end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  for _, name in ipairs(names) do self:set(name, modules[name]) end
end

--- Adds a module under a name; nil removes it.
function ModuleDict:set(name, module)
  if type(name) ~= "string" or name:find(".", 1, true) or name:sub(1, 1) == "_" then
    fail("ModuleDict: a name is a string without '.' and without '_' in front, got %s",
         tostring(name))
  end
  if ModuleDict[name] ~= nil then fail("ModuleDict: '%s' is the name of a method", name) end
  if module ~= nil then check("ModuleDict", module) end
  rawset(self, name, nil)
  self[name] = module
  rawset(self, "_last", nil) -- each call is a statement of its own
  return self
end

--- The names in alphabetical order.
function ModuleDict:keys()
  local keys = {}
  for key, value in next, self do
    if walk.is_module(value) then keys[#keys + 1] = key end
  end
  table.sort(keys)
  return keys
end

return {ModuleList = ModuleList, Sequential = Sequential, ModuleDict = ModuleDict}
