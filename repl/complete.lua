--- Completion: names of tables and their fields, methods after a colon, files inside quotes.
-- Nothing is called that could have an effect: only tables are walked.
local core = require "flare.core"
local rows = require "flare.help.rows"

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
  local value, world = env, debug.getmetatable(env)
  for name in path:gmatch "[^.:]+" do
    if value == env then
      if world and world.peek then value = world.peek(name) else value = env[name] end
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

M.find = find

-- Operators that only gradients use come where nothing else fits.
local function sorted(names, start, prefix)
  local list, inner = {}, {}
  for name in pairs(names) do
    if name:sub(1, #start) == start and (start ~= "" or name:sub(1, 1) ~= "_") then
      local row = rows.find(name)
      local to = row and row.backward and inner or list
      to[#to + 1] = prefix .. name
    end
  end
  if #list == 0 then list = inner end
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

-- The tail of `text` that is a path of names, fields and constant positions: opt.groups[1].
local function tail_of(text)
  local at = #text
  while at > 0 do
    local letter = text:sub(at, at)
    if letter == "]" then
      local open = at
      while open > 0 and text:sub(open, open) ~= "[" do open = open - 1 end
      if not text:sub(open + 1, at - 1):find "^%d+$"
         and not text:sub(open + 1, at - 1):find "^([\"'])[^\"']*%1$" then break end
      at = open - 1
    elseif letter:find "[%w_.]" then
      at = at - 1
    else
      break
    end
  end
  return text:sub(at + 1)
end

-- The names behind the word's last mark, where what is in front ends with a position: t[1].x.
local function after_position(env, before, word)
  local mark, start = word:match "^([.:])([%w_]*)$"
  local path = mark and tail_of(before)
  if not path or not path:find "%]$" then return nil end
  local value = find(env, path:match "^[^%[]*")
  for inside, rest in path:gmatch "%[([^%]]*)%]([^%[]*)" do
    local key = math.tointeger(tonumber(inside)) or inside:sub(2, -2)
    if type(value) ~= "table" then return {} end
    local meta = debug.getmetatable(value)
    local behind = type(meta) == "table" and rawget(meta, "__index")
    local inner = rawget(value, key)
    if inner == nil and type(behind) == "table" then inner = rawget(behind, key) end
    value = inner
    if rest ~= "" and type(value) == "table" then value = find(value, rest) end
  end
  return value == nil and {} or sorted(names_of(value, {}), start, mark)
end

-- The function or class whose table of options is open at the end of the text: "nn.Linear" in
-- `nn.Linear(3, 2, {bi`.
local function called(text)
  local depth, at = 0, #text
  while at > 0 do
    local letter = text:sub(at, at)
    if letter:find "[%)%}%]]" then
      depth = depth + 1
    elseif letter:find "[%(%{%[]" then
      if depth == 0 then break end
      depth = depth - 1
    end
    at = at - 1
  end
  if text:sub(at, at) ~= "{" then return nil end
  local front = text:sub(1, at - 1)
  local direct = front:match "([%a_][%w_.:]*)%s*$"
  if direct then return direct end
  depth, at = 0, #front
  while at > 0 do
    local letter = front:sub(at, at)
    if letter:find "[%)%}%]]" then
      depth = depth + 1
    elseif letter:find "[%(%{%[]" then
      if depth == 0 then break end
      depth = depth - 1
    end
    at = at - 1
  end
  return front:sub(at, at) == "(" and front:sub(1, at - 1):match "([%a_][%w_.:]*)%s*$" or nil
end

-- The names of the options of a function or class, as its help shows them.
local function options_of(env, path)
  local name = path:match "[:.]?([%w_]+)$"
  local owner, into = path:match "^(.*)[:.][%w_]+$", {}
  local is_row = not owner or owner == "flare" or core.is_tensor(find(env, owner))
  local row = is_row and rows.find(name)
  for i, p in ipairs(row and rows.params(row) or {}) do
    if i > 1 or not path:find ":" then into[p.name] = true end
  end
  if row then return into end
  local value = find(env, path)
  local text = value ~= nil and require("flare.help").help(is_row and name or value) or ""
  text = text:gsub("%s*\n%s*", " ")
  for call in text:gmatch("%f[%w_]" .. name .. "(%b())") do
    for inside in call:sub(2, -2):gmatch "%b{}" do
      inside = inside:sub(2, -2):gsub("%b{}", "")
      for part in inside:gmatch "[^,]+" do
        local option = part:match "^%s*([%a_][%w_]*)"
        if option then into[option] = true end
      end
    end
    if next(into) then return into end
  end
  return into
end

-- Names that help knows: those of the environment and of the library.
local function help_names(env)
  local names = keys(env, {})
  for name in next, keys(require "flare", {}) do names[name] = true end
  return names
end

local commands = {close = true, help = true, mem = true, quit = true, time = true}

-- The position of the quote that is open at the end of a line, or nil.
local function in_string(text)
  local open
  for at = 1, #text do
    local letter = text:sub(at, at)
    if not open and letter:find "[\"']" then
      open = at
    elseif open and letter == text:sub(open, open) then
      open = nil
    end
  end
  return open
end

--- The candidates for the word between two positions (from 0) of a line.
function M.words(env, text, from, to)
  local word, before = text:sub(from + 1, to), text:sub(1, from)
  local line = before .. word
  if line:find "^%s*:%a*$" then return sorted(commands, word:match "%a*$", ":") end
  local asked, rest = word:match "^([?]?)(.*)$"
  local helps = asked == "?" or before:find "^%s*%?" or before:find "^%s*:help%s+"
                or before:find "help%s*%(?%s*[\"']$"
  local quote = not helps and in_string(before)
  if quote then return files(text:sub(quote + 1, to)) end
  local behind = after_position(env, before, word)
  if behind then return behind end
  local path, mark, start = rest:match "^(.*)([.:])([%w_]*)$"
  if path then
    local value = find(env, path)
    if value == nil and helps then value = find({flare = require "flare"}, "flare." .. path) end
    if value == nil then return {} end
    return sorted(names_of(value, {}), start, asked .. path .. mark)
  end
  if helps then return sorted(help_names(env), rest, asked) end
  local open = called(before)
  local options = open and options_of(env, open) or {}
  if next(options) and (rest ~= "" or before:find "[{,]%s*$") then
    local list = sorted(options, rest, "")
    for i, name in ipairs(list) do list[i] = name .. " = " end
    if #list > 0 then return list end
  end
  local names = keys(env, {})
  for _, name in ipairs(words) do names[name] = true end
  return sorted(names, word, "")
end

local breaks = "[%s\"'`@$><=;|&{}()%[%]+%-*/%%^~,#]"

--- Where the word begins that ends at a position of a text, and the candidates for it.
function M.at(env, text, at)
  local line = text:sub(1, at):match "[^\n]*$"
  local from = #line
  while from > 0 and not line:sub(from, from):find(breaks) do from = from - 1 end
  return at - #line + from, M.words(env, line, from, #line)
end

--- The call and the first line of the description of a candidate.
function M.about(_, candidate)
  local text = require("flare.help").help((candidate:gsub("[%s=]+$", "")))
  if text:find "^there is no" or text:find "^nothing is written" then return {} end
  local lines = {}
  for line in text:gmatch "[^\n]+" do
    lines[#lines + 1] = line
    if #lines == 2 then break end
  end
  return lines
end

return M
