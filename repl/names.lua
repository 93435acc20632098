--- The names that chunks of the prompt see: locals that stay, globals, and flare's own. A local
-- declared <close> stays open until `end` or `:close`, until it gets another value, or until the
-- prompt ends.
local M = {}

local _G = _G
local rawequal, rawget, rawset, next, pairs, ipairs = rawequal, rawget, rawset, next, pairs, ipairs
local setmetatable, type, error, pcall = setmetatable, type, error, pcall
local tostring, table, debug = tostring, table, debug

-- The value of a kept local: a plain one shares its variable with the closures of its chunk.
local function value_of(entry)
  if entry.access then return entry.access() end
  return entry.value
end

local function close_value(entry, problem)
  local meta = debug.getmetatable(entry.value)
  local close = type(meta) == "table" and meta.__close
  if close then close(entry.value, problem) end
end

local count = 0 -- of values that were kept: they are closed in the opposite order

-- Gives a local of the prompt a value; one that was to be closed and is replaced is closed.
local function keep(kept, name, entry)
  local old = kept[name]
  count = count + 1
  entry.order = count
  kept[name] = entry
  if old and old.close and not rawequal(old.value, value_of(entry)) then close_value(old) end
end

-- The key under which a local is kept: `_` is also the last value and stays free for it.
local function key_of(name) return name == "_" and "_ <close>" or name end

-- As Lua does where a local is declared <close>.
local function check_closable(name, value, line)
  local meta = debug.getmetatable(value)
  if value and not (type(meta) == "table" and meta.__close) then
    error(("prompt:%d: variable '%s' got a non-closable value"):format(line, name), 0)
  end
end

-- Called as the last statement of a chunk: its locals become names of the environment.
local function keeper(kept)
  return function(found)
    for _, one in ipairs(found) do
      if one[2] == "close" then check_closable(one[1], one[3], one[4]) end
    end
    for _, one in ipairs(found) do
      local name, kind, value = one[1], one[2], one[3]
      if kind == "plain" then
        keep(kept, key_of(name), {access = value})
      else
        keep(kept, key_of(name), {value = value, close = kind == "close", const = kind == "const"})
      end
    end
  end
end

--- The environment of all chunks: kept locals, then the globals, then flare's own names.
-- @param below an environment with a peek of its own that is looked at in place of the globals
function M.environment(below)
  local under = below and debug.getmetatable(below)
  local flare, strict = require "flare", require "flare.strict"
  local kept, own = {}, {flare = flare, help = flare.help}
  local lazy = {nn = true, optim = true, data = true}
  local function look_up(name)
    if under then return under.peek(name) end
    local value = rawget(_G, name)
    if value ~= nil then return value end
    if lazy[name] then own[name] = flare[name] end
    return own[name]
  end
  local function known()
    local all = {}
    for name in pairs(kept) do all[name] = true end
    for name in pairs(lazy) do all[name] = true end
    for name in pairs(own) do all[name] = true end
    return all
  end
  local env = setmetatable({}, {
    __index = function(_, name)
      if kept[name] ~= nil then return value_of(kept[name]) end
      local value = look_up(name)
      local problem = value == nil and name ~= "_" and not under and strict.problem(name, known)
      if problem then error(problem, 2) end
      return value
    end,
    -- as __index, but nil for an unknown name in strict mode, too: for completion and help
    peek = function(name)
      if kept[name] ~= nil then return value_of(kept[name]) end
      return look_up(name)
    end,
    has = function(name) -- whether it is a variable of the person's
      return kept[name] ~= nil or under ~= nil and under.has(name)
    end,
    __newindex = function(_, name, value)
      local old = kept[name]
      if not old and below then
        below[name] = value
      elseif not old then
        strict.assign(name)
        rawset(_G, name, value)
      elseif old.const then
        error(("attempt to assign to const variable '%s'"):format(name), 2)
      elseif old.close then
        keep(kept, name, {value = value})
      elseif old.access then
        old.access(true, value)
      else
        old.value = value
      end
    end,
    __pairs = function()
      local all = {}
      for name in pairs(below or _G) do all[name] = true end
      for name in pairs(kept) do all[name] = true end
      for name in pairs(lazy) do all[name] = true end
      all.flare = true
      return next, all, nil
    end,
  })
  rawset(env, "__keep", keeper(kept))
  rawset(env, "__all", function(...) return ... end)
  return env, kept
end

--- What a chunk that ends by an error leaves, called while it is still on the stack: its locals
-- keep their values, and those declared <close> are closed.
function M.leave_failed(kept, chunk, problem)
  local level, kinds = 3, {}
  if #chunk.locals == 0 then return end
  for _, one in ipairs(chunk.locals) do kinds[one.name] = one.kind end
  while true do
    local info = debug.getinfo(level, "f")
    if not info then return end
    if info.func == chunk.run then
      local i = 1
      while true do
        local name, value = debug.getlocal(level, i)
        if not name then return end
        if kinds[name] == "close" then
          pcall(close_value, {value = value}, problem)
        elseif kinds[name] and name ~= "_" then
          keep(kept, name, {value = value, const = kinds[name] == "const"})
        end
        i = i + 1
      end
    end
    level = level + 1
  end
end

--- Closes the value that was declared <close> under a name, or all of them.
-- @param kept the locals
-- @param name of a local, or nil
-- @return whether there was one, and the message of the last one that failed
function M.close(kept, name)
  local found, problem = {}, nil
  for key, entry in pairs(kept) do
    if entry.close and (name == nil or key == key_of(name)) then found[#found + 1] = key end
  end
  table.sort(found, function(a, b) return kept[a].order > kept[b].order end)
  for _, key in ipairs(found) do
    local entry = kept[key]
    kept[key] = nil
    local ok, message = pcall(close_value, entry)
    if not ok then problem = tostring(message) end
  end
  return found[1] ~= nil, problem
end

--- `end` alone closes what is declared <close>, as the end of a block does.
-- @return nil, or what is wrong
function M.end_block(kept)
  local found, problem = M.close(kept)
  return found and problem or not found and "'end' has nothing to end: no local is declared <close>"
         or nil
end

return M
