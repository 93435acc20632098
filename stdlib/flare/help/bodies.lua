--- What the bodies of Lua functions say of their results: how many there are, and their types where
-- an expression leaves no doubt, such as `return self` or a text that is joined or formatted.
local core = require "flare.core"
local source = require "flare.help.source"

local M = {}

-- The words, texts, numbers and signs of Lua code, as {kind =, text =}.
local function tokens_of(code)
  local list, at = {}, 1
  local function add(kind, pattern)
    local _, to, text = code:find("^(" .. pattern .. ")", at)
    if not to then return false end
    if kind then list[#list + 1] = {kind = kind, text = text} end
    at = to + 1
    return true
  end
  local function long(kind, prefix)
    local equals = code:match("^" .. prefix .. "%[(=*)%[", at)
    return equals and add(kind, prefix .. "%[" .. equals .. "%[.-%]" .. equals .. "%]")
  end
  local function quoted(mark)
    if code:sub(at, at) ~= mark then return false end
    local to = at + 1
    while code:sub(to, to) ~= mark do to = to + (code:sub(to, to) == "\\" and 2 or 1) end
    list[#list + 1] = {kind = "string", text = code:sub(at, to)}
    at = to + 1
    return true
  end
  while at <= #code do
    local _ = add(nil, "%s+") or long(nil, "%-%-") or add(nil, "%-%-[^\n]*") or long("string", "")
      or quoted '"' or quoted "'" or add("name", "[%a_][%w_]*") or add("number", "0[xX][%x.pP]+")
      or add("number", "%.?%d[%d.]*[eE][+-]?%d+") or add("number", "%.?%d[%d.]*")
      or add("sign", "%.%.%.") or add("sign", "[=~<>]=") or add("sign", "%.%.")
      or add("sign", "[<>/:][<>/:]") or add("sign", ".")
  end
  return list
end

local opens = {["function"] = true, ["do"] = true, ["if"] = true, ["repeat"] = true}
local after = {["end"] = true, ["else"] = true, ["elseif"] = true, ["until"] = true, [";"] = true}
local deeper = {["("] = 1, ["{"] = 1, ["["] = 1, [")"] = -1, ["}"] = -1, ["]"] = -1}

-- The expressions of a return that begins at `k`, each a list of tokens, and what comes after it.
local function expressions(tokens, k)
  local list, current, depth, blocks = {}, {}, 0, 0
  while tokens[k] do
    local text = tokens[k].kind ~= "string" and tokens[k].text
    if depth == 0 and blocks == 0 and after[text] then break end
    depth = depth + (deeper[text] or 0)
    if opens[text] then blocks = blocks + 1 elseif text == "end" then blocks = blocks - 1 end
    if depth == 0 and blocks == 0 and text == "," then
      list[#list + 1], current = current, {}
    else
      current[#current + 1] = tokens[k]
    end
    k = k + 1
  end
  if current[1] then list[#list + 1] = current end
  return list, k
end

-- The returns of the function that the tokens begin with, nested functions left out; whether its
-- last statement is one of them.
local function returns_of(tokens)
  local list, blocks, functions, k, last = {}, {}, 0, 1, false
  while tokens[k] and tokens[k].text ~= "function" do k = k + 1 end
  while tokens[k] do
    local text = tokens[k].kind == "name" and tokens[k].text
    if opens[text] then
      blocks[#blocks + 1] = text
      if text == "function" then functions = functions + 1 end
      k = k + 1
    elseif text == "end" or text == "until" then
      if table.remove(blocks) == "function" then functions = functions - 1 end
      if functions == 0 then return list, last end
      k = k + 1
    elseif text == "return" and functions == 1 then
      list[#list + 1], k = expressions(tokens, k + 1)
      last = #blocks == 1
    else
      k = k + 1
    end
  end
  return nil -- not a function as it is written in the library
end

-- The operands of `and` and `or`, comparisons and joins at the top of an expression.
local function split(expression, signs)
  local parts, current, depth, blocks = {}, {}, 0, 0
  for _, token in ipairs(expression) do
    local text = token.kind ~= "string" and token.text
    depth = depth + (deeper[text] or 0)
    if opens[text] then blocks = blocks + 1 elseif text == "end" then blocks = blocks - 1 end
    if depth == 0 and blocks == 0 and signs[text] then
      parts[#parts + 1], current = current, {}
    else
      current[#current + 1] = token
    end
  end
  parts[#parts + 1] = current
  return parts
end

local logic = {["and"] = true, ["or"] = true}
local comparison = {["=="] = true, ["~="] = true, ["<"] = true, [">"] = true, ["<="] = true,
                    [">="] = true}
local join = {[".."] = true}
local words = {["self"] = "self", ["true"] = "boolean", ["false"] = "boolean", ["nil"] = "nil"}
local texts = {["table.concat"] = true, ["string.rep"] = true, ["string.format"] = true,
               tostring = true, type = true}

local rows -- name of an operator with one result -> true
local function gives_tensor(name)
  if not rows then
    rows = {}
    for _, row in ipairs(core.ops()) do rows[row.name] = row.returns == 1 or nil end
    for _, made in ipairs{"zeros", "ones", "empty", "zeros_like", "ones_like", "tensor"} do
      rows[made] = true
    end
  end
  return rows[name]
end

-- Where the bracket at `k` is closed.
local function closing(expression, k)
  local depth = 0
  repeat
    depth = depth + (expression[k].kind ~= "string" and deeper[expression[k].text] or 0)
    k = k + 1
  until depth == 0 or not expression[k]
  return k - 1
end

-- What a call gives; nil if the expression is none, and "any ..." if its results are unknown.
local function of_call(e)
  local name, k = {}, 1
  while e[k] and (e[k].kind == "name" or e[k].text == ".") do
    name[#name + 1] = e[k].text
    k = k + 1
  end
  local path = table.concat(name)
  if e[k] and e[k].text == "(" and closing(e, k) == #e then
    if texts[path] then return "string" end
    if gives_tensor(path:match "^core%.([%w_]+)$") then return "flare.tensor" end
  end
  local first = e[1].text == "(" and closing(e, 1)
  if first == #e then return "any" end -- (f(x)): one
  if first and e[2].kind == "string" and first == 3 and e[5] and e[5].text == "format"
    and e[6] and closing(e, 6) == #e then return "string" end
  local last = e[#e]
  if last.text == ")" or last.text == "}" or last.kind == "string" then return "any ..." end
  return last.text == "..." and "any ..." or nil
end

-- @return the type of an expression; "any" if it has one value, "any ..." if it may have several
local function type_of(e)
  local parts = split(e, logic)
  if parts[2] then
    for _, part in ipairs(parts) do
      if not part[1] or type_of(part) ~= "boolean" then return "any" end
    end
    return "boolean"
  end
  if e[1].text == "not" or split(e, comparison)[2] then return "boolean" end
  parts = split(e, join)
  if parts[2] then
    for _, part in ipairs(parts) do
      if part[1] and type_of(part) == "string" then return "string" end
    end
    return "any"
  end
  local one = #e == 1 and e[1]
  if one and one.kind == "string" then return "string" end
  if one and one.kind == "number" then return one.text:find "^%d+$" and "integer" or "number" end
  if one and words[one.text] then return words[one.text] end
  if e[1].text == "{" and closing(e, 1) == #e then return "table" end
  if e[1].text == "function" then return "function" end
  if e[1].text == "#" and #e > 1 and #split(e, deeper) == 1 then return "integer" end
  return of_call(e) or "any"
end

-- The type of a value that is `a` or `b`.
local function either(a, b)
  if a == b or b == "nil" and a:find "%?$" then return a end
  if a == "any" or b == "any" then return "any" end
  if a == "nil" then return b:find "%?$" and b or b .. "?" end
  if b == "nil" then return a .. "?" end
  if a:gsub("%?$", "") == b:gsub("%?$", "") then return a:find "%?$" and a or b end
  return "any"
end

--- The types of a Lua function's results, a list; {"any ..."} if even their number is unknown, and
-- nil for a function whose body is not at hand.
function M.returns(f)
  local code = source.body(f)
  local list, last = returns_of(code and tokens_of(code) or {})
  if not list then return nil end
  local most = 0
  for _, values in ipairs(list) do
    most = math.max(most, #values)
    local tail = values[#values]
    if tail and type_of(tail) == "any ..." then return {"any ..."} end
  end
  local types = {}
  for k = 1, most do
    for _, values in ipairs(list) do
      local kind = values[k] and type_of(values[k]) or "nil"
      if kind == "any ..." then kind = "any" end -- only its first value
      types[k] = types[k] and either(types[k], kind) or kind
    end
    if not last and types[k] ~= "any" then -- it may end without
      types[k] = types[k] == "self" and "any" or either(types[k], "nil")
    end
    if types[k] == "nil" or types[k] == "self?" then types[k] = "any" end
  end
  return types
end

local function none() end

-- What a line ends with if its expression goes on in the next one.
local unfinished = {}
for text in ("and or not .. + - * / // % ^ == ~= < > <= >= , function"):gmatch "%S+" do
  unfinished[text] = true
end

local makers = {["self:param"] = "flare.tensor", ["self:buffer"] = "flare.tensor",
                ["options.check"] = "table", ["options.tensor"] = "flare.tensor",
                ["options.count"] = "number", ["options.text"] = "string"}

-- The type of the value that a whole line of tokens is.
function M.value(e)
  if e[1].text == "function" then return "any" end
  for k, token in ipairs(e) do
    if token.text == ";" or token.kind == "name" and after[token.text] then return "any" end
    if k > 1 and token.kind == "name" and e[k - 1].kind ~= "sign" and not logic[token.text]
      and not logic[e[k - 1].text] and e[k - 1].text ~= "not" then return "any" end
  end
  local call = #e > 3 and e[1].text .. e[2].text .. e[3].text
  if call and makers[call] and e[4].text == "(" and closing(e, 4) == #e then return makers[call] end
  return type_of(e)
end

-- The checks of arguments that a function makes, whatever the others are.
local checks = {{"tensor", "flare.tensor"}, {"text", "string"}, {"count", "number"}}

--- The types of those parameters of a Lua function that it refuses unless they have it.
-- @return name -> type
function M.checked(f)
  local known, body, file = {}, source.body(f)
  local need = file and file:find("local need = options.tensor\n", 1, true)
  local indent = (body or ""):match "^ *" .. "  %f[^ ]" -- of statements that run at each call
  for line in (body or ""):gmatch "[^\n]+" do
    if line:find("^" .. indent) and not line:find "%f[%w]or%f[%W]"
      and not line:find "%f[%w]and%f[%W]" and not line:find "^ *if%f[%W]" then
      for _, check in ipairs(checks) do
        local pattern = "options%." .. check[1] .. "%([^,()]+, [^,()]+, ([%a_][%w_]*)[,)]"
        for name in line:gmatch(pattern) do known[name] = check[2] end
      end
      for name in line:gmatch "options%.input%([^,()]+, ([%a_][%w_]*)%)" do
        known[name] = "flare.tensor"
      end
      for list in line:gmatch "options%.tensors%([^,()]+, ([^()]*)%)" do
        for name in list:gmatch '"[^"]*", ([%a_][%w_]*)' do known[name] = "flare.tensor" end
      end
      for name in need and line:gmatch "%f[%w_]need%([^,()]+, [^,()]+, ([%a_][%w_]*)%)" or none do
        known[name] = "flare.tensor"
      end
    end
  end
  return known
end

--- The types of the fields of self, from the lines that assign them: name -> type. A field that is
-- not in the list may be anything.
-- @param code of a class
-- @param layer(name) the class of layers with that name, or nil: what nn.Linear(...) makes
function M.fields(code, layer)
  local known = {}
  for line in code:gmatch "[^\n]+" do
    for name in line:gmatch "self%.([%a_][%w_]*)%s*," do known[name] = "any" end
    for name in line:gmatch ",%s*self%.([%a_][%w_]*)%s*=[^=]" do known[name] = "any" end
    for name, text in line:gmatch "self%.([%a_][%w_]*)%s*=%s*([^=].*)$" do
      local e, depth = tokens_of(text), 0
      for _, token in ipairs(e) do
        depth = depth + (token.kind ~= "string" and deeper[token.text] or 0)
      end
      local kind = e[1] and depth == 0 and not unfinished[e[#e].text] and M.value(e) or "any"
      local made = text:match "^nn%.(%u%w*)%b()$"
      kind = made and layer(made) or depth > 0 and e[1].text == "{" and "table" or kind
      known[name] = known[name] and either(known[name], kind) or kind
    end
  end
  for name, kind in pairs(known) do
    if kind == "nil" or kind == "any ..." or kind:find "^self" then kind = "any" end
    known[name] = kind == "integer" and "number" or kind:gsub("^integer%?", "number?")
  end
  return known
end

return M
