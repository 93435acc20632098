--- Classes over plain metatables.
--
--     local Scale = class("Scale", nn.Module)
--     function Scale:init(factor) self.factor = factor end
--     function Scale:forward(x) return x * self.factor end
--     local layer = Scale(2)
--
-- A class is the metatable of its objects. A call of the class makes an object and runs `init`;
-- methods are looked up in the class, then in its parents; `Class.parent` is the parent.
-- `Class.__keeps = true`, which is inherited, declares that objects keep tensors from one step to
-- the next: `flare.scope` does not close tensors of objects that existed before the scope.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local construct = core.framed(function(cls, ...)
  local object = setmetatable({}, cls)
  if cls.__keeps then core.keeper(object) end
  local begin = cls.__begin
  if begin then begin(object) end
  local init = cls.init
  if init then init(object, ...) end
  return object
end)

local function word_of(name)
  return (name:match "[%w_]+$":gsub("(%l)(%u)", "%1_%2"):lower())
end

-- Methods of the library's classes keep the line of a caller that returns what they return, and
-- refuse a self that is no object of the outermost parent, `__root`, as in `loader.epoch()`. Errors
-- call an object `__word`, by default the outermost parent's name in small letters.
local function define(cls, key, value)
  if type(value) == "function" and type(key) == "string" and key ~= "init" and key ~= "forward" then
    if key == "__call" then
      value = core.framed(value)
    elseif key:sub(1, 1) ~= "_" then
      local root = cls.__root
      value = core.class_method(value, root, key, root.__word or word_of(root.__name))
    end
  end
  rawset(cls, key, value)
end

--- Makes a class. A call of the class makes an object and runs its method `init`.
-- @param name the name, which tostring and errors show
-- @param parent the class to inherit from, or nil
local function class(_, name, parent)
  if type(name) ~= "string" then
    fail("class: the name must be a string, got %s", options.kind(name))
  end
  if parent ~= nil and (type(parent) ~= "table" or parent.__index == nil) then
    fail("class: the parent of %s must be a class, got %s", name, options.kind(parent))
  end
  local cls = {}
  -- Lua looks metamethods up without __index, so they are copied down.
  for key, value in pairs(parent or {}) do
    if type(key) == "string" and key:sub(1, 2) == "__" then cls[key] = value end
  end
  cls.__name = name
  cls.parent = parent
  if not parent or parent.__index == parent then cls.__index = cls end
  local library = core.from_library()
  if library and not cls.__root then cls.__root = cls end
  return setmetatable(cls, {
    __index = parent or core.missing, -- which names the method that was probably meant
    __newindex = library and define or nil,
    __call = construct,
    __name = name,
    __tostring = function() return "class " .. name end,
  })
end

return setmetatable({
  --- Whether `value` is an object of `cls` or of a class derived from it.
  is = function(value, cls)
    local at = type(value) == "table" and getmetatable(value) or nil
    while at do
      if at == cls then return true end
      at = rawget(at, "parent")
    end
    return false
  end,
}, {__call = class})
