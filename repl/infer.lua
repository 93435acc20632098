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

-- The last token of the name, text or bracket at token `i` and what is called and read of it.
local function chain_end(text, tokens, mates, i)
  local function word(k) return tokens[k] and text:sub(tokens[k].from, tokens[k].to) end
  if word(i) == "(" or word(i) == "{" then i = mates[i] end
  while i do
    local mark = word(i + 1)
    local kind = tokens[i + 1] and tokens[i + 1].kind
    if (mark == "." or mark == ":") and tokens[i + 2] and tokens[i + 2].kind == "name" then
      i = i + 2
    elseif mark == "(" or mark == "{" or mark == "[" then i = mates[i + 1]
    elseif kind == "string" then i = i + 1
    else return i end
  end
end

local arithmetic = {["+"] = true, ["-"] = true, ["*"] = true, ["/"] = true, ["^"] = true}

-- What the expression from token `from` to token `to` is: a sum or product of a tensor is one.
local function expression(env, text, tokens, mates, from, to)
  local function word(k) return text:sub(tokens[k].from, tokens[k].to) end
  if word(from) == "-" then from = from + 1 end
  if from > to then return nil end
  local stop = chain_end(text, tokens, mates, from)
  if not stop or stop > to then return nil end
  if word(from) == "{" and stop == to then
    local fields = {}
    for k = from + 1, to - 1 do
      if tokens[k].kind == "name" and word(k + 1) == "=" then fields[word(k)] = true end
    end
    return object_of(fields)
  end
  local what = M.chain(env, text, tokens, mates, stop)
  if stop == to then return what end
  if not arithmetic[word(stop + 1)] then return nil end
  if M.is_tensor(what) then return M.tensor end
  local other = expression(env, text, tokens, mates, stop + 2, to)
  return M.is_tensor(other) and M.tensor or nil
end

-- What a name is that the text itself has given a value before token `i`, and whether it has.
local function of_text(env, text, tokens, mates, i)
  local function word(k) return tokens[k] and text:sub(tokens[k].from, tokens[k].to) end
  local name = word(i)
  for k = i - 2, 1, -1 do
    local before = word(k - 1)
    if word(k) == name and word(k + 1) == "=" and before ~= "." and before ~= ":"
       and before ~= "{" and before ~= "," then
      local stop = tokens[k + 2] and chain_end(text, tokens, mates, k + 2)
      while stop and stop < i and arithmetic[word(stop + 1)] and tokens[stop + 2] do
        stop = chain_end(text, tokens, mates, stop + 2)
      end
      if stop and stop < i then return expression(env, text, tokens, mates, k + 2, stop), true end
      return nil, stop == nil or stop < i
    end
  end
end

--- What the expression that ends at token `last` is; nil where that is not known.
function M.chain(env, text, tokens, mates, last)
  local i = chain_start(text, tokens, mates, last)
  if not i then return nil end
  local function word(k) return tokens[k] and text:sub(tokens[k].from, tokens[k].to) end
  local what, name, given
  if tokens[i].kind == "string" then
    what, i = M.text, i + 1
  elseif word(i) == "(" then
    local mate = mates[i]
    what = mate == i + 2 and tokens[i + 1].kind == "string" and M.text
           or expression(env, text, tokens, mates, i + 1, mate - 1)
    i = mate + 1
  else
    name = word(i)
    what, given = of_text(env, text, tokens, mates, i)
    if not given then what = look.field(env, name) end
    i = i + 1
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
      elseif is_object(what) then what = nil
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
