--- What the expression before a dot, a colon or a bracket is: its value, or what it will be where
-- it would have to be called: a tensor, an object of a class, a text.
local core = require "flare.core"
local look = require "flare.repl.look"
local rows = require "flare.help.rows"

local M = {}

-- What stands for a value that is not there yet.
M.tensor, M.text = {"a tensor"}, {"a text"}
local function object_of(class) return {object = class} end

local makers = {} -- functions of flare without a row that return tensors
for name in ([[tensor zeros ones empty full arange linspace logspace eye rand randn randint randperm
    from_numpy zeros_like ones_like full_like cat stack]]):gmatch "%S+" do
  makers[name] = true
end

local of_texts = {} -- methods of texts that return a text
for name in ("format gsub lower rep reverse sub upper"):gmatch "%S+" do of_texts[name] = true end

local same = {} -- methods of modules that return the module
for name in ("to train eval double float half apply"):gmatch "%S+" do same[name] = true end

--- The names behind something.
function M.names_of(what, into)
  if what == M.tensor then return look.keys(core.methods(), into) end
  if what == M.text then return look.keys(string, into) end
  if type(what) == "table" and rawget(what, "object") and not debug.getmetatable(what) then
    return look.keys(what.object, into)
  end
  return look.names_of(what, into)
end

--- Whether something is a tensor or will be one.
function M.is_tensor(what) return what == M.tensor or core.is_tensor(what) end

local function is_object(what)
  return type(what) == "table" and debug.getmetatable(what) == nil and rawget(what, "object") ~= nil
end

local function called(what, name)
  if is_object(what) then return M.tensor end -- a layer
  if look.is_class(what) then return object_of(what) end
  if type(what) == "table" then
    return type(look.field(what, "forward")) == "function" and M.tensor or nil
  end
  if type(what) ~= "function" then return nil end
  local flare = require "flare"
  if makers[name] and (rawequal(what, look.field(flare, name)) or rawequal(what, core[name])) then
    return M.tensor
  end
  local own = rawequal(what, core[name]) or rawequal(what, look.field(flare, name))
  if own and rows.find(name) then return M.tensor end
  return rawequal(what, string.format) and M.text or nil
end

local function method_called(what, name)
  if M.is_tensor(what) then
    return (rows.find(name) or core.methods()[name] == "method" and name:find "^to$")
           and M.tensor or nil
  end
  if what == M.text or type(what) == "string" then return of_texts[name] and M.text or nil end
  if same[name] then return what end
end

-- The first token of the chain of names, calls and positions that ends at token `i`.
local function chain_start(text, tokens, mates, i)
  while i >= 1 do
    local token = tokens[i]
    local word = text:sub(token.from, token.to)
    if (word == ")" or word == "]" or word == "}") and token.kind == "mark" then
      local mate = mates[i]
      if not mate then return nil end
      local before = tokens[mate - 1]
      local goes_on = before and (before.kind == "name" or before.kind == "string"
        or before.kind == "mark" and text:sub(before.from, before.to):find "^[%)%]}]$")
      if not goes_on then return mate end
      i = mate - 1
    elseif token.kind == "string" then
      local before = tokens[i - 1]
      if not before or before.kind ~= "name" then return i end
      i = i - 1
    elseif token.kind == "name" then
      local before = tokens[i - 1]
      local mark = before and before.kind == "mark" and text:sub(before.from, before.to)
      if mark ~= "." and mark ~= ":" then return i end
      i = i - 2
    else
      return nil
    end
  end
end

--- What the expression that ends at token `last` is; nil where that is not known.
function M.chain(env, text, tokens, mates, last)
  local i = chain_start(text, tokens, mates, last)
  if not i then return nil end
  local function word(k) return tokens[k] and text:sub(tokens[k].from, tokens[k].to) end
  local what, name
  if tokens[i].kind == "string" then
    what, i = M.text, i + 1
  elseif word(i) == "(" then
    local mate = mates[i]
    what = mate == i + 2 and tokens[i + 1].kind == "string" and M.text
           or M.chain(env, text, tokens, mates, mate - 1)
    i = mate + 1
  else
    name = word(i)
    what, i = look.field(env, name), i + 1
  end
  while i <= last and what ~= nil do
    local mark = word(i)
    if mark == "." or mark == ":" and not (tokens[i + 2] and i + 2 <= last) then
      name = word(i + 1)
      if what == M.tensor or core.is_tensor(what) then
        what = name == "T" and M.tensor or name == "grad" and M.tensor or nil
      elseif is_object(what) then
        what = look.field(what.object, name)
      else
        what = what ~= M.text and look.field(what, name) or nil
      end
      i = i + 2
    elseif mark == ":" then
      name = word(i + 1)
      what = method_called(what, name)
      i = (mates[i + 2] or i + 2) + 1
    elseif mark == "(" or mark == "{" then
      what = called(what, name)
      i = mates[i] + 1
    elseif mark == "[" then
      local key = word(i + 1)
      key = mates[i] == i + 2 and (math.tointeger(tonumber(key)) or key:match "^[\"'](.*)[\"']$")
      if M.is_tensor(what) then what = M.tensor
      elseif type(what) == "table" and key then what = look.field(what, key)
      else what = nil end
      i = mates[i] + 1
    elseif tokens[i].kind == "string" then
      what = called(what, name)
      i = i + 1
    else
      return nil
    end
  end
  return what, name
end

return M
