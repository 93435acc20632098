--- Tables whose values are files, each loaded when its name is first used.

--- @param where the table's name, as errors say it
-- @param self the table, with what is there from the start
-- @param files for each name a module: what it returns, or where that is a plain table with the
-- name in it, that
-- @param also a table that has what is in neither, or nil
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

  return setmetatable(self, {
    __name = where,
    __index = function(_, name)
      local value = find(name)
      rawset(self, name, value)
      return value
    end,
    -- pairs() shows what could be loaded, too: completion and help walk it
    __pairs = function()
      local all = names()
      return function(_, name)
        local key = next(all, name)
        if key ~= nil then return key, self[key] end
      end, self, nil
    end,
  })
end
