--- Tables whose values are loaded from files, each at the first use of its name. Their functions
-- are C functions, which keep the line of a caller that ends with `return flare.einsum(...)`.
local core = require "flare.core"

local function frame_all(functions)
  for name, value in next, functions do
    if type(value) == "function" then functions[name] = core.framed(value) end
  end
  return functions
end

--- Gives a table a metatable that loads missing fields.
-- @param where the table's name, for errors
-- @param self the table, with its initial fields
-- @param files a module for each name: the value is what the module returns or, if that is a plain
-- table with a field of this name, the field
-- @param also a table with further fields, or nil
-- @return self
return function(where, self, files, also)
  local function names()
    local all = {}
    for _, from in ipairs {self, files, also} do
      for name in next, from do all[name] = true end
    end
    return all
  end

  local function find(name)
    local value
    if files[name] then
      value = require(files[name])
      if type(value) == "table" and not getmetatable(value) and value[name] ~= nil then
        value = value[name]
      end
    elseif also then
      value = also[name]
    end
    if value == nil then
      local path = (where .. "." .. tostring(name)):gsub("^flare%.", "")
      local instead = require "flare.foreign"[path]
      if instead then
        require("flare.fail")("there is no %s.%s: %s", where, tostring(name), instead)
      end
      local hint = require("flare.options").hint(tostring(name), names())
      require("flare.fail")("there is no %s.%s%s", where, tostring(name), hint)
    end
    return value
  end

  return setmetatable(frame_all(self), {
    __name = where,
    __index = function(_, name)
      local value = find(name)
      if type(value) == "function" then
        value = core.framed(value)
      elseif type(value) == "table" and files[name] and not getmetatable(value) then
        frame_all(value)
      end
      rawset(self, name, value)
      return value
    end,
    -- pairs() includes names that are not loaded yet, for completion and help
    __pairs = function()
      local all = names()
      return function(_, name)
        local key = next(all, name)
        if key ~= nil then return key, self[key] end
      end, self, nil
    end,
  })
end
