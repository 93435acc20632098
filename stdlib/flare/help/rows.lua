--- Help for an operator, from its row of the op table: call, arguments, dtypes, gradient, and an
-- example, which is found by trying arguments in meta mode.
local core = require "flare.core"
local examples = require "flare.help.examples"
local source = require "flare.help.source"

local M = {}

local types = {any = "any dtype", num = "any dtype but bool", float = "floats",
               int = "integers or bool", bool = "bool",
               index = "positions, i64 or i32", complex = "complex numbers"}
local kinds = {dim = "a dim", newdim = "a dim of the result", pos = "a position",
               int = "an integer", real = "a number", flag = "true or false",
               dims = "a dim or a list of dims",
               ints = "a list of integers", shape = "a shape", dtype = "a dtype"}

--- Whether the operator exists for gradients only and is not for users.
function M.is_inner(row)
  return row.backward
end

local by_name -- every name of a row, made when the first one is asked for

--- The row of an operator by name, also by the name of its in-place method; nil if there is none.
function M.find(name)
  if not by_name then
    by_name = {}
    for _, row in ipairs(core.ops()) do
      by_name[row.name] = row
      if row.inplace and row.method then by_name[row.name .. "_"] = row end
      for _, alias in ipairs(row.aliases) do by_name[alias] = row end
    end
  end
  return by_name[name]
end

-- Parameters that a caller gives, in the order of a call: a list of tensors comes first.
local function params(row)
  local list, place = {}, {}
  for i, name in ipairs(row.positional) do place[name] = i end
  for _, p in ipairs(row.params) do
    if p.kind ~= "rng" then list[#list + 1] = p end
  end
  table.sort(list, function(a, b) return (place[a.name] or 99) < (place[b.name] or 99) end)
  return list
end
M.params = params

-- A default as it is written in Lua; dims and positions count from 1.
local function default_text(p)
  local value = p.default
  if value == nil then return nil end
  if value == math.huge then return "inf" end
  if value == -math.huge then return "-inf" end
  if p.kind == "enum" or p.kind == "dtype" then return ('"%s"'):format(value) end
  return tostring(math.type(value) == "float" and math.tointeger(value) or value)
end

--- "softmax(x, dim = -1)": the arguments that may come by position, the others in braces.
function M.call(row)
  local first, rest, by_position = {}, {}, {}
  for _, name in ipairs(row.positional) do by_position[name] = true end
  for _, p in ipairs(params(row)) do
    local default = default_text(p)
    local text = p.name .. (default and " = " .. default or p.optional and "?" or "")
    local list = by_position[p.name] and first or rest
    list[#list + 1] = text
  end
  if #rest > 0 then first[#first + 1] = "{" .. table.concat(rest, ", ") .. "}" end
  return ("%s(%s)"):format(row.name, table.concat(first, ", "))
end

--- "x:float, dim:dim=-1 -> x": the row's signature as Lua sees it, in the order of a call, with
-- defaults that count from 1 and without results that only gradients use.
function M.signature(row)
  local list = {}
  for _, p in ipairs(params(row)) do
    local kind = p.kind == "tensor" and p.type or p.kind
    if p.kind == "enum" then kind = ("enum(%s)"):format(p.choices) end
    local value = p.default
    if math.type(value) == "float" and math.tointeger(value) then value = math.tointeger(value) end
    local default = value ~= nil and "=" .. tostring(value) or p.optional and "?" or ""
    list[#list + 1] = p.name .. ":" .. kind .. (p.variadic and "*" or "") .. default
  end
  local results = row.signature:match "%->%s*([^;]*)" or ""
  return table.concat(list, ", ") .. " -> " .. results:match "^(.-)%s*$"
end

--- The kind of an argument in words, such as "a tensor of floats".
function M.param(p)
  if p.kind == "tensor" then
    local what = types[p.type] or p.type
    if p.variadic then return "a list of tensors: " .. what end
    return "a tensor: " .. what
  elseif p.kind == "enum" then
    return '"' .. p.choices:gsub("|", '", "') .. '"'
  end
  return kinds[p.kind] or p.kind
end

local rules = {
  promote = "the dtype that holds %s", float = "the dtype of %s, f32 for integers",
  complex = "complex numbers of %s's precision", real = "the parts' dtype of %s",
  acc = "the dtype of %s, i64 for integers", wide = "f64 for f64, else f32",
}

local function dtype_words(rule)
  local name, of = rule:match "^(%w+)%((.-)%)$"
  if name and rules[name] then
    return (rules[name]:gsub("%%s", (of:gsub(",", " and "))))
  end
  if rule == "dtype" then return "dtype, as asked for" end
  for _, known in ipairs {"f32", "f64", "i64", "i32", "bool", "u8"} do
    if rule == known then return rule end
  end
  return "the dtype of " .. rule
end

-- "values, the dtype of x; indices, i64"
local function results(row)
  local shown = row.signature:match "%->%s*([^;]*)" or ""
  local list = {}
  for rule in (shown .. ","):gmatch "%s*([%w_:]+%(?[%w_,]*%)?)%s*," do
    local name, kind = rule:match "^([%w_]+):(.+)$"
    if rule == "none" then return "nothing" end
    list[#list + 1] = name and ("%s, %s"):format(name, dtype_words(kind)) or dtype_words(rule)
  end
  return table.concat(list, "; ")
end

-- --- examples ---

local shapes = {{2, 3}, {3, 3}, {3}, {2, 4, 6}, {1, 2, 6, 6}}

local function tensor_text(p, shape)
  local sizes = table.concat(shape, ", ")
  if p.type == "complex" then
    return ("flare.complex(flare.randn(%s), flare.randn(%s))"):format(sizes, sizes)
  end
  if p.type == "bool" then return ("flare.randn(%s):gt(0)"):format(sizes) end
  if p.type == "int" or p.type == "index" or p.type == "id" then
    return ('flare.ones({%s}, {dtype = "i64"})'):format(sizes)
  end
  return ("flare.randn(%s)"):format(sizes)
end

local plain = {dim = "1", newdim = "1", pos = "1", dims = "{1}", int = "2", real = "0.5",
               flag = "true", dtype = '"f32"'}

local function argument(p, shape, second)
  if p.kind == "tensor" then
    local places = p.type == "index" or p.type == "id"
    local text = tensor_text(p, places and second and {shape[1]} or shape)
    return p.variadic and ("{%s, %s}"):format(text, text) or text
  elseif p.kind == "ints" then
    return second and "{1, 1}" or "{2}"
  elseif p.kind == "shape" then
    return second and "{6}" or "{2, 3}"
  elseif p.kind == "enum" then
    return '"' .. p.choices:match "^[^|]+" .. '"'
  end
  return plain[p.kind]
end

local function arguments(row, shape, second)
  local list, named, place = {}, {}, {}
  for i, name in ipairs(row.positional) do place[name] = i end
  for _, p in ipairs(params(row)) do
    if not p.optional then
      local text = argument(p, shape, second)
      if not text then return nil end
      if place[p.name] == #list + 1 and #named == 0 then
        list[#list + 1] = text
      else
        named[#named + 1] = p.name .. " = " .. text
      end
    end
  end
  if #named > 0 then list[#list + 1] = "{" .. table.concat(named, ", ") .. "}" end
  return table.concat(list, ", ")
end

local function call_text(row, list)
  -- "repeat" is a word of Lua's
  return (row.name == "repeat" and 'flare["%s"](%s)' or "flare.%s(%s)"):format(row.name, list)
end

-- The results of a line of Lua without running kernels; nil if it fails.
local function try(text)
  local flare = require "flare"
  local chunk = load("local flare = ... return " .. text, "=example", "t", {})
  local r = table.pack(pcall(function()
    local _ <close> = flare.meta()
    return chunk(flare)
  end))
  if not r[1] and tostring(r[2]):find "depends on values" then
    r = table.pack(pcall(chunk, flare))
  end
  if not r[1] then return nil end
  local words = {}
  for i = 2, r.n do
    if core.is_tensor(r[i]) then
      words[#words + 1] = ("%s %s"):format(r[i].dtype, tostring(r[i].shape))
    end
  end
  return table.concat(words, ", ")
end

--- An example call and its result: "flare.neg(flare.randn(2, 3))", "f32 (2, 3)".
-- @return nil if none is known
function M.example(row)
  local known = examples[row.name]
  if known == false then return nil end
  if known then
    local text = call_text(row, known)
    return text, try(text)
  end
  for _, shape in ipairs(shapes) do
    for _, second in ipairs {false, true} do
      local list = arguments(row, shape, second)
      local text = list and call_text(row, list)
      local gives = text and try(text)
      if gives then return text, gives end
    end
  end
end

--- The whole help text.
function M.describe(row)
  local out = {M.call(row)}
  if row.doc then out[#out + 1] = source.wrapped("  ", row.doc) end
  local width = 0
  for _, p in ipairs(params(row)) do width = math.max(width, #p.name) end
  for _, p in ipairs(params(row)) do
    local default = default_text(p)
    out[#out + 1] = ("  %-" .. width .. "s  %s%s"):format(p.name, M.param(p),
      default and "; " .. default .. " if left out" or p.optional and "; may be left out" or "")
  end
  out[#out + 1] = "  gives: " .. results(row)
  out[#out + 1] = "  gradient: " .. (row.differentiable and "yes" or "none")
  if row.method then
    local x = row.positional[1] or "x"
    out[#out + 1] = ("  also: %s:%s(...)%s"):format(x, row.name,
      row.inplace and (", %s:%s_(...) in place"):format(x, row.name) or "")
  end
  if row.aliases[1] then
    out[#out + 1] = source.wrapped("  other names: ", table.concat(row.aliases, ", "))
  end
  local text, gives = M.example(row)
  if text then
    out[#out + 1] = "  example: " .. text .. (gives and gives ~= "" and "  --> " .. gives or "")
  end
  return table.concat(out, "\n")
end

return M
