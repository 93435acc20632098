--- Completion: what may stand at the cursor. Nothing is called that could have an effect.
local core = require "flare.core"
local infer = require "flare.repl.infer"
local lex = require "flare.repl.lex"
local look = require "flare.repl.look"
local options = require "flare.repl.options"
local rows = require "flare.help.rows"

local M = {}

M.find = look.find

-- --- lists ---

-- The names that begin with a text. Operators that only gradients use come where nothing else fits.
local function sorted(names, start, prefix)
  local list, inner = {}, {}
  for name in pairs(names) do
    local inside = name:sub(1, 2) == "__" and start:sub(1, 2) ~= "__"
                   or name:sub(1, 1) == "_" and start == ""
    if name:sub(1, #start) == start and not inside then
      local row = rows.find(name)
      local to = row and row.backward and inner or list
      to[#to + 1] = (prefix or "") .. name
    end
  end
  if #list == 0 then list = inner end
  table.sort(list)
  return list
end

-- File names that begin with a text; folders end with a slash, so that one more Tab looks inside.
local function files(start)
  local folder, first = start:match "^(.*/)([^/]*)$"
  local place = folder or "."
  if place:find "^~/" then place = (os.getenv "HOME" or "~") .. place:sub(2) end
  local names = {}
  for _, name in ipairs(core.file.list(place) or {}) do
    local stat = core.file.stat(place .. "/" .. name)
    local is_folder = stat and stat.kind == "directory"
    if name:sub(1, 1) ~= "." or (first or start):sub(1, 1) == "." then
      names[name .. (is_folder and "/" or "")] = true
    end
  end
  return sorted(names, first or start, folder)
end

-- Names of modules: those that are loaded, those of the library, and the files here.
local function modules(start)
  local names = {}
  for name in next, package.loaded do names[name] = true end
  for name in next, package.preload do
    if name ~= "" then names[name] = true end
  end
  for _, name in ipairs(core.file.list "." or {}) do
    local stem = name:match "^([%w_]+)%.lua$"
    if stem then names[stem] = true end
  end
  return sorted(names, start)
end

-- Names that help knows: those of the environment and of the library.
local function help_names(env)
  local names = look.keys(env, {})
  for name in next, look.keys(require "flare", {}) do names[name] = true end
  return names
end

-- Locals, parameters and variables of the text that is being typed.
local function names_in(text, tokens, but, into)
  for i, token in ipairs(tokens) do
    if token.kind == "name" and i ~= but then
      local before, after = tokens[i - 1], tokens[i + 1]
      local mark = before and text:sub(before.from, before.to)
      local next_mark = after and text:sub(after.from, after.to)
      local is_field = mark == "." or mark == ":" or (mark == "{" or mark == ",")
                       and next_mark == "="
      if not is_field then into[text:sub(token.from, token.to)] = true end
    end
  end
  return into
end

-- --- the places ---

-- ?name, ??name, :help name, and the arguments of other commands.
local function on_command(env, before)
  local mark, path = before:match "^%s*(%?+)%s*([%w_.:]*)$"
  if not mark then path = before:match "^%s*:help%s+([%w_.:]*)$" end
  if path then
    local owner, dot, start = path:match "^(.*)([.:])([%w_]*)$"
    if not owner then return #before - #path, sorted(help_names(env), path) end
    local value = look.find(env, owner)
    if value == nil then value = look.find({flare = require "flare"}, "flare." .. owner) end
    local names = value ~= nil and look.names_of(value, {}) or {}
    return #before - #path, sorted(names, start, owner .. dot)
  end
  local commands = require "flare.repl.commands"
  local name = before:match "^%s*:([%a_]*)$"
  if name then return #before - #name, sorted(commands.names(), name) end
  local command, rest = before:match "^%s*:(%a+)%s+(.*)$"
  if command == "reload" then
    return #before - #rest, modules(rest)
  elseif command == "watch" then
    return #before - #rest, files(rest)
  elseif command == "close" then
    local names = {}
    for key in next, commands.closable() do names[key] = true end
    return #before - #rest, sorted(names, rest)
  end
  local word = before:match "^%s*:!.-([^%s\"']*)$"
  if word then return #before - #word, files(word) end
end

-- Inside of a string that is not closed.
local function in_string(env, text, tokens, mates, i)
  local token = tokens[i]
  local start = text:sub(token.from + 1)
  local from = token.from
  local function word(k) return tokens[k] and text:sub(tokens[k].from, tokens[k].to) end
  local name = word(i - 1) == "(" and word(i - 2) or word(i - 1)
  if name == "require" then return from, modules(start) end
  if name == "help" then
    local path = {on_command(env, "?" .. start)}
    return from + path[1] - 1, path[2]
  end
  if word(i - 1) == "[" then
    local what = infer.chain(env, text, tokens, mates, i - 2)
    return from, sorted(what ~= nil and infer.names_of(what, {}) or {}, start)
  end
  local values = options.strings(env, text, tokens, mates, i)
  if values then return from, sorted(values, start), nil, function() return {} end end
  return from, files(start)
end

local words = {}
for word in next, lex.keywords do words[word] = true end

local function on_code(env, text, tokens)
  local mates, open = lex.pairs_of(text, tokens)
  local last = #tokens
  local token = tokens[last]
  if token and token.open and token.kind == "string" then
    return in_string(env, text, tokens, mates, last)
  elseif token and token.kind == "comment" and (token.open or token.to == #text) then
    return #text, {}
  end
  local typed = token and token.to == #text and (token.kind == "name" or token.kind == "keyword")
  local word = typed and text:sub(token.from, token.to) or ""
  local before = typed and last - 1 or last
  local mark = tokens[before] and text:sub(tokens[before].from, tokens[before].to)
  local from = #text - #word
  if mark == "." or mark == ":" then
    local what = infer.chain(env, text, tokens, mates, before - 1)
    if what == nil then return from, {} end
    local names = infer.names_of(what, {})
    for name in pairs(names) do
      if not name:find "^[%a_][%w_]*$" then names[name] = nil end
    end
    if not infer.is_tensor(what) then look.drop_inner(what, names, mark == ":") end
    return from, sorted(names, word), what
  end
  if mark == "[" and word == "" then
    local what = infer.chain(env, text, tokens, mates, before - 1)
    local keys = type(what) == "table" and not look.is_class(what) and look.own_keys(what) or {}
    if #keys > 0 then return from, keys, what, function(key) return M.about(env, what, key) end end
  end
  local list, about, call = options.at(env, text, tokens, mates, open, before, word)
  if list and #list > 0 then return from, list, nil, about end
  local said = call and M.about_call(env, text, call)
  if said and said[1] then return from, {}, nil, nil, said end
  if token and not typed and word == "" and token.kind ~= "mark" and token.kind ~= "keyword" then
    return from, {} -- behind a value nothing begins
  end
  if word == "" and not text:find "%S" then return from, {} end
  local names = names_in(text, tokens, typed and last, look.keys(env, {}))
  for name in pairs(words) do names[name] = true end
  return from, sorted(names, word)
end

--- What may stand at a position of a text: where the word begins that it completes, the candidates,
-- a function that gives a candidate's lines of description, and where there are none but a call is
-- open, the lines about what is called.
function M.at(env, text, at)
  local before = text:sub(1, at)
  local from, list = on_command(env, before)
  if from then return from, list, function(name) return M.about(env, nil, name) end end
  local shift = 0
  local time = before:match "^%s*:time%s+"
  if time then before, shift = before:sub(#time + 1), #time end
  local what, about, said
  from, list, what, about, said = on_code(env, before, lex.tokens(before))
  local path = before:sub(1, from):match "([%a_][%w_.]*[.:])$"
  return from + shift, list, about or function(name)
    return M.about(env, what, name, path)
  end, said
end

-- --- descriptions ---

-- The call and the first sentence in a text of help.
local function first_lines(text, name)
  local lines = {}
  for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
  local call = lines[1]
  if not call:find "%(" then -- a class: how it is called comes after what it is
    for k = 2, #lines do
      local found = lines[k]:match("^%s*([%w_.]*%f[%w_]" .. name .. "%(.*)$")
      if found then
        if not found:find "%)%s*$" and lines[k + 1] then
          found = found .. " " .. lines[k + 1]:match "^%s*(.*)$"
        end
        call = found
        break
      end
    end
  end
  local said
  for k = 2, #lines do
    if lines[k]:find "^  %S" and lines[k]:match "^%s*(.*)$" ~= call then
      said = lines[k]
      break
    end
  end
  return {call, said}
end

--- The lines about what is called at the cursor, with its signature.
-- @param call {name =, owner =, method =}
function M.about_call(env, text, call)
  local path = text:match("([%a_][%w_.]*[.:])" .. call.name .. "%s*%([^()]*$")
  return M.about(env, call.owner, call.name, path)
end

--- The lines about a candidate: the call of a function and what it does, or what a value is.
-- @param what its owner, if it is a field or method
-- @param path the owner as it was written, with its dot or colon
function M.about(env, what, name, path)
  local help, flare = require "flare.help", require "flare"
  local value
  if infer.is_tensor(what) then
    return first_lines(help.help("x:" .. name), name)
  elseif what ~= nil and infer.names_of(what, {}) and type(what) == "table" then
    name = name:match '^"(.*)"$' or name
    local made = rawget(what, "object")
    if made and not look.is_class(made) then return {} end -- a table that is being written
    value = look.field(rawget(what, "object") or what, name)
  elseif what == nil then
    value = look.find(env, name)
    if value == nil then value = look.find({flare = flare}, "flare." .. name) end
  end
  if value == nil then return {} end
  local full = (path or "") .. name
  local known = look.find({flare = flare}, "flare." .. full:gsub("^flare%.", ""))
  if known ~= nil and rawequal(known, value) then
    return first_lines(help.help((full:gsub("^flare%.", ""))), name:match "[%w_]+$" or name)
  end
  if type(value) == "function" or look.is_class(value) then
    local text = require("flare.repl.value").describe_function(value, full)
    if text and full:find ":" then text = text:gsub("%(self,? ?", "(", 1) end
    return text and first_lines(text, name) or {full .. ": " .. look.kind(value)}
  end
  return {full .. ": " .. look.kind(value)}
end

return M
