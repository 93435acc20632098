--- How data sets and transforms reach worker threads: their method `describe` returns the name of a
-- module and arguments; the worker calls the module's value, or its function `from`, with them.
local core = require "flare.core"
local fail = require "flare.fail"

local M = {}

-- The kind of the first value that cannot be sent, and its path in `value`; nil if all can be sent.
local function find_unsent(value, path, depth)
  local kind = type(value)
  local sent = core.is_tensor(value) or getmetatable(value) == "flare.channel"
  if kind == "function" or kind == "thread" or kind == "userdata" and not sent then
    return kind, path
  elseif kind ~= "table" then
    return nil
  elseif depth > 50 then
    return "table that is nested too deep", path
  end
  for key, inner in pairs(value) do
    local what, where = find_unsent(inner, ("%s[%s]"):format(path, tostring(key)), depth + 1)
    if what then return what, where end
  end
end

--- The module and arguments from which another Lua state makes `object` again.
-- @param where the function's name and what the object is for, for errors
-- @return a list {module, argument, ...; n = count}, of values that can be sent
function M.of(where, object)
  if type(object) == "string" then return {object, n = 1, value = true} end
  local recipe = table.pack(object:describe())
  if type(recipe[1]) ~= "string" then
    fail("%s: its method describe must give the name of a module first, got %s", where,
         type(recipe[1]))
  end
  local what, at = find_unsent({table.unpack(recipe, 2, recipe.n)}, "argument ", 0)
  if what then
    fail("%s: a %s cannot be sent to worker threads (%s of what describe gives)", where, what, at)
  end
  return recipe
end

--- Makes the object again.
function M.make(recipe)
  local made = require(recipe[1])
  if recipe.value then return made end
  return (type(made) == "table" and made.from or made)(table.unpack(recipe, 2, recipe.n))
end

-- A transform's fields: those that are transforms themselves, as in Compose, become recipes.
local function pack(name, value)
  if type(value) ~= "table" or core.is_tensor(value) then
    if type(value) == "function" then
      fail("transforms.%s: a function cannot be sent to worker threads; put it into a module, and "
           .. "give the loader the name of one that returns the whole transform", name)
    end
    return value
  end
  local class = getmetatable(value)
  if class then
    if type(value.describe) ~= "function" then
      fail("transforms.%s: a %s has no method describe, which worker threads need", name,
           class.__name or "table")
    end
    return {recipe = table.pack(value:describe())}
  end
  local out = {}
  for key, inner in pairs(value) do out[key] = pack(name, inner) end
  return out
end

local function unpack(value)
  if type(value) ~= "table" or core.is_tensor(value) then return value end
  if value.recipe then return M.make(value.recipe) end
  local out = {}
  for key, inner in pairs(value) do out[key] = unpack(inner) end
  return out
end

--- The results of describe for an object of data.transforms.
function M.describe_transform(transform)
  local name, fields = getmetatable(transform).__name, {}
  for key, value in pairs(transform) do fields[key] = pack(name, value) end
  return "flare.data.recipe", name, fields
end

--- The transform of that name with these fields.
function M.from(name, fields)
  return setmetatable(unpack(fields), require("flare.data.transforms")[name])
end

return M
