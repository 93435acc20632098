--- Completion inside of a call: the options of the function whose table is being written, the
-- values that an option or an argument takes, and dims.
local core = require "flare.core"
local infer = require "flare.repl.infer"
local rows = require "flare.help.rows"
local told = require "flare.repl.told"

local M = {}

local dtypes = {}
for name in ("f32 f64 f16 bf16 i64 i32 i16 i8 u8 bool c64 c128"):gmatch "%S+" do
  dtypes[name] = true
end

local function devices()
  local names = {cpu = true}
  for _, line in ipairs(core.devices()) do names[line:match "^%S+"] = true end
  return names
end

-- The call that an open bracket belongs to: what is called, its name, and the object of a method;
-- `index` counts the arguments before the cursor.
local function call_at(env, text, tokens, mates, open)
  local function word(k) return tokens[k] and text:sub(tokens[k].from, tokens[k].to) end
  local top = #open
  local bracket, in_table, option = open[top], false, nil
  if not bracket then return nil end
  if word(bracket) == "{" and word(bracket - 1) == "=" then -- a list as the value of an option
    option = word(bracket - 2)
    top = top - 1
    bracket = open[top]
    if not bracket or word(bracket) ~= "{" then return nil end
  end
  if word(bracket) == "{" then
    in_table = true
    local before = tokens[bracket - 1]
    local direct = before and before.kind == "name"
    if not direct then
      bracket = open[top - 1]
      if not bracket or word(bracket) ~= "(" then return nil end
    end
  elseif word(bracket) ~= "(" then
    return nil
  end
  local name = tokens[bracket - 1]
  if not name or name.kind ~= "name" then return nil end
  local depth, index = 0, 1
  for i = bracket + 1, #tokens do
    local mark = word(i)
    if mark == "(" or mark == "{" or mark == "[" then depth = depth + 1
    elseif mark == ")" or mark == "}" or mark == "]" then depth = depth - 1
    elseif mark == "," and depth == 0 then index = index + 1 end
  end
  local call = {name = word(bracket - 1), index = index, in_table = in_table, option = option}
  local mark = word(bracket - 2)
  if mark == ":" or mark == "." then
    call.method = mark == ":"
    call.owner = infer.chain(env, text, tokens, mates, bracket - 3)
  end
  if not call.method then
    call.value = infer.chain(env, text, tokens, mates, bracket - 1)
    -- the tensor that a function of flare gets first
    local first = bracket + 1
    if tokens[first] and tokens[first].kind == "name" and word(first + 1) == "," then
      call.first = infer.chain(env, text, tokens, mates, first)
    end
  else
    call.first = call.owner
  end
  return call
end

-- The row of a call, if it is one of an operator.
local function row_of(call)
  local row = rows.find(call.name)
  if not row then return nil end
  if call.method then return infer.is_tensor(call.owner) and row or nil end
  local flare = require "flare"
  return (call.owner == flare or call.owner == core or call.value == core[call.name]) and row or nil
end

-- Options as {name, text}: from the row, or from the call in the help.
local function options_of(call)
  local row, list = row_of(call), {}
  if row then
    for i, p in ipairs(rows.params(row)) do
      if i > 1 or p.kind ~= "tensor" then
        list[#list + 1] = {name = p.name, text = p.name .. ": " .. rows.param(p), param = p}
      end
    end
    return list
  end
  return call.value ~= nil and told.options(call.value, call.name) or list
end

-- The dims of a tensor that is there, or none.
local function dims_of(tensor)
  if not core.is_tensor(tensor) or tensor.closed then return nil end
  local list, notes = {}, {}
  for d, size in ipairs(tensor.shape) do
    list[d] = tostring(d)
    notes[list[d]] = ("dim %d of %d: %d long"):format(d, tensor.ndim, size)
  end
  return list, notes
end

local function begins(list, word)
  local out = {}
  for _, text in ipairs(list) do
    if text:sub(1, #word) == word then out[#out + 1] = text end
  end
  return out
end

-- The values that an argument may have.
local function values_of(call, option, word)
  local param = option.param
  local kind = param and param.kind or nil
  local list, notes
  if kind == "dim" or kind == "dims" or option.name == "dim" then
    list, notes = dims_of(call.first)
  elseif kind == "flag" or option.text:find "= true$" or option.text:find "= false$" then
    list = {"false", "true"}
  elseif kind == "enum" or kind == nil and told.choices(call, option) then
    list = {}
    for choice in (kind and param.choices or told.choices(call, option)):gmatch "[^|]+" do
      list[#list + 1] = ('"%s"'):format(choice)
    end
  elseif option.name == "dtype" or option.name == "device" then
    list = {}
    for name in pairs(option.name == "dtype" and dtypes or devices()) do
      list[#list + 1] = ('"%s"'):format(name)
    end
    table.sort(list)
  end
  return list and begins(list, word), function(choice)
    return {notes and notes[choice] or option.text}
  end
end

--- The candidates at a place in a call, and a function that describes them; nil for other places.
-- @param before the number of the token before the word
function M.at(env, text, tokens, mates, open, before, word)
  local function mark(k) return tokens[k] and text:sub(tokens[k].from, tokens[k].to) end
  local call = call_at(env, text, tokens, mates, open)
  if not call then return nil end
  local options = options_of(call)
  local place = mark(before)
  if call.option then
    for _, option in ipairs(options) do
      if option.name == call.option and word == "" then return values_of(call, option, word) end
    end
    return nil
  end
  if call.in_table and place == "=" then
    for _, option in ipairs(options) do
      if option.name == mark(before - 1) then return values_of(call, option, word) end
    end
  elseif call.in_table and (place == "{" or place == ",") then
    local list, about = {}, {}
    for _, option in ipairs(options) do
      if option.name:sub(1, #word) == word then
        list[#list + 1] = option.name .. " = "
        about[option.name .. " = "] = {option.text}
      end
    end
    table.sort(list)
    return list, function(name) return about[name] end
  elseif not call.in_table and (place == "(" or place == ",") and word == "" then
    local row = row_of(call)
    local names = row and row.positional or {}
    local name = names[call.index + (call.method and 1 or 0)] or names[#names]
    for _, option in ipairs(options) do
      local more = option.param and option.param.kind == "dims" -- x:permute(2, 1)
      if option.name == name and (more or name == names[call.index + (call.method and 1 or 0)]) then
        local list, about = values_of(call, option, word)
        if list then return list, about end
      end
    end
    return {}, nil, call
  end
end

--- The values of an option or argument that are texts, for a string that was begun.
function M.strings(env, text, tokens, mates, i)
  local function word(k) return tokens[k] and text:sub(tokens[k].from, tokens[k].to) end
  local option = word(i - 1) == "=" and word(i - 2)
  if option == "dtype" then return dtypes end
  if option == "device" then return devices() end
  if word(i - 2) == "autocast" or word(i - 1) == "autocast" then
    return {bf16 = true, f16 = true}
  end
  local method = word(i - 1) == "(" and word(i - 2) or word(i - 1)
  if method == "to" then
    local all = devices()
    for name in pairs(dtypes) do all[name] = true end
    return all
  end
  if not option then return nil end
  local front = {table.unpack(tokens, 1, i - 1)}
  local _, open = require("flare.repl.lex").pairs_of(text, front)
  local call = call_at(env, text, front, mates, open)
  for _, one in ipairs(call and options_of(call) or {}) do
    local choices = one.name == option
                    and (one.param and one.param.choices or told.choices(call, one))
    if choices then
      local names = {}
      for choice in choices:gmatch "[^|]+" do names[choice] = true end
      return names
    end
  end
end

return M
