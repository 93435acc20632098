--- Completion: names of tables and their fields, methods after a colon, files inside quotes.
-- Nothing is called that could have an effect: only tables are walked.
local core = require "flare.core"

local M = {}

local words = {"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto",
  "if", "in", "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while"}

-- The keys of a table and, along __index tables, of what stands behind it.
local function keys(value, into)
  for _ = 1, 10 do
    if type(value) ~= "table" then return into end
    local meta = debug.getmetatable(value)
    local walk = type(meta) == "table" and rawget(meta, "__pairs")
    if walk then
      local step, state, key = walk(value)
      while true do
        if step == next then key = next(state, key) else key = step(state, key) end
        if key == nil then break end
        if type(key) == "string" then into[key] = true end
      end
    else
      for key in next, value do
        if type(key) == "string" then into[key] = true end
      end
    end
    local behind = type(meta) == "table" and rawget(meta, "__index") or nil
    value = type(behind) == "function" and meta or behind -- a class may look up by itself
  end
  return into
end

local function names_of(value, into)
  if core.is_tensor(value) then return keys(core.methods(), into) end
  if type(value) == "string" then value = string end
  if type(value) == "userdata" then
    local meta = debug.getmetatable(value)
    value = meta and rawget(meta, "__index")
  end
  return keys(value, into)
end

-- The value at a path of names, by raw look-ups and __index tables only.
local function find(env, path)
  local value = env
  for name in path:gmatch "[^.:]+" do
    if value == env then
      value = env[name]
    elseif type(value) == "table" then
      local meta, found = debug.getmetatable(value), rawget(value, name)
      if found == nil and meta and rawget(meta, "__pairs") then found = value[name] end
      local behind = meta and rawget(meta, "__index")
      while found == nil and type(behind) == "table" do
        found = rawget(behind, name)
        local deeper = debug.getmetatable(behind)
        behind = deeper and rawget(deeper, "__index")
      end
      value = found
    else
      return nil
    end
  end
  return value
end

local function sorted(names, start, prefix)
  local list = {}
  for name in pairs(names) do
    if name:sub(1, #start) == start and (start ~= "" or name:sub(1, 1) ~= "_")
       and (start:find "_back" or not name:find "_backward%d?$") then -- rows of gradients
      list[#list + 1] = prefix .. name
    end
  end
  table.sort(list)
  return list
end

local function files(start)
  local folder, first = start:match "^(.*/)([^/]*)$"
  local found = core.file.list(folder or ".") or {}
  local names = {}
  for _, name in ipairs(found) do names[name] = true end
  return sorted(names, first or start, folder or "")
end

--- The candidates for the word between two positions (from 0) of a line.
function M.words(env, text, from, to)
  local word, before = text:sub(from + 1, to), text:sub(1, from)
  local quote = before:match "([\"'])[^\"']*$"
  if quote then return files(text:sub(#before:match "^(.*[\"'])" + 1, to)) end
  local path, mark, start = word:match "^(.*)([.:])([%w_]*)$"
  if path then
    local value = find(env, path)
    if value == nil then return {} end
    return sorted(names_of(value, {}), start, path .. mark)
  end
  local names = keys(env, {})
  for _, name in ipairs(words) do names[name] = true end
  return sorted(names, word, "")
end

return M
