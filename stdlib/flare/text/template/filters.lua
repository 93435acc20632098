--- The filters, tests and methods of strings, lists and dictionaries that chat templates use.
local core = require "flare.core"
local fail = require "flare.text.template.lexer".fail
local values = require "flare.text.template.values"

local filters, tests, methods = {}, {}, {}
local is_list, is_dict, text_of, truth = values.is_list, values.is_dict, values.text, values.truth

local function plain(pattern) return (pattern:gsub("%p", "%%%0")) end

local function check_string(value, what)
  if type(value) ~= "string" then
    if value == values.undefined then fail(0, "%s: the value is undefined", what) end
    return text_of(value)
  end
  return value
end

--- The items of a list, the keys of a dictionary, the characters of a string.
local function items_of(value, what)
  if is_list(value) then return value end
  if is_dict(value) then return values.keys(value) end
  if value == values.undefined then return {} end
  if type(value) ~= "string" then fail(0, "%s: %s has no items", what, values.kind(value)) end
  local out = {}
  for c in value:gmatch "[^\x80-\xbf][\x80-\xbf]*" do out[#out + 1] = c end
  return out
end

-- The value at a path as `a.b`, for filters that look at an attribute.
local function attribute(value, path)
  for name in tostring(path):gmatch "[^.]+" do
    local key = math.tointeger(tonumber(name))
    if is_list(value) and key then
      value = value[key + 1]
    else
      value = type(value) == "table" and values.field(value, name)
    end
    if value == nil then return values.undefined end
  end
  return value
end

-- Characters that Python's strip takes; those of a text, if there is one.
local function strip(text, chars, left, right)
  local set = chars and "[" .. plain(chars) .. "]" or "[%s\28-\31]"
  if left then text = text:gsub("^" .. set .. "+", "") end
  if right then
    local last = #text
    while last > 0 and text:sub(last, last):find(set) do last = last - 1 end
    text = text:sub(1, last)
  end
  return text
end

local lower = {kind = "lowercase"}
local lowering
local function lowercase(text)
  if not text:find "[\x80-\xff]" then return text:lower() end
  lowering = lowering or core.text.new {model = {kind = "wordlevel", vocab = {}},
                                        normalizers = {lower}}
  return lowering:normalize(text)
end

local function capitalize(text) return text:sub(1, 1):upper() .. lowercase(text:sub(2)) end

local function title(text)
  return (lowercase(text):gsub("(%a)(%w*)", function(a, b) return a:upper() .. b end))
end

local function replace(text, from, to, count)
  if from == "" then return text end
  return (text:gsub(plain(from), (to:gsub("%%", "%%%%")), count))
end

-- --- filters ---

function filters.trim(v, chars) return strip(check_string(v, "trim"), chars, true, true) end
function filters.upper(v) return check_string(v, "upper"):upper() end
function filters.lower(v) return lowercase(check_string(v, "lower")) end
function filters.capitalize(v) return capitalize(check_string(v, "capitalize")) end
function filters.title(v) return title(check_string(v, "title")) end
function filters.string(v) return text_of(v) end
function filters.safe(v) return v end
function filters.length(v)
  if v == values.undefined then return 0 end
  return #items_of(v, "length")
end
filters.count = filters.length
function filters.first(v)
  local item = items_of(v, "first")[1]
  if item == nil then return values.undefined end
  return item
end
function filters.last(v)
  local items = items_of(v, "last")
  if #items == 0 then return values.undefined end
  return items[#items]
end
function filters.list(v)
  local items = items_of(v, "list")
  return table.move(items, 1, #items, 1, {})
end
function filters.abs(v) return math.abs(v) end
function filters.int(v, default)
  local number = tonumber(type(v) == "string" and v:match "^%s*[-+]?%d+" or v)
  return number and math.tointeger(number // 1) or default or 0
end
function filters.float(v) return (tonumber(v) or 0) + 0.0 end
function filters.round(v, digits)
  local scale = 10 ^ (digits or 0)
  return math.floor(v * scale + 0.5) / scale
end
function filters.default(v, default, also_false)
  if v == values.undefined or also_false and not truth(v) then return default or "" end
  return v
end
filters.d = filters.default
function filters.replace(v, from, to, count)
  return replace(check_string(v, "replace"), text_of(from), text_of(to), count)
end
function filters.join(v, between, path)
  local out = {}
  for i, item in ipairs(items_of(v, "join")) do
    out[i] = text_of(path and attribute(item, path) or item)
  end
  return table.concat(out, between or "")
end
function filters.reverse(v)
  local items, out = items_of(v, "reverse"), {}
  for i = #items, 1, -1 do out[#out + 1] = items[i] end
  return type(v) == "string" and table.concat(out) or out
end
function filters.sort(v, reverse, _, path)
  local out = filters.list(v)
  table.sort(out, function(a, b)
    if path then a, b = attribute(a, path), attribute(b, path) end
    if type(a) ~= type(b) then a, b = text_of(a), text_of(b) end
    if reverse then a, b = b, a end
    return a < b
  end)
  return out
end
function filters.unique(v)
  local out = {}
  for _, item in ipairs(items_of(v, "unique")) do
    local known = false
    for _, other in ipairs(out) do known = known or values.equal(item, other) end
    if not known then out[#out + 1] = item end
  end
  return out
end
function filters.sum(v, path, start)
  local total = start or 0
  for _, item in ipairs(items_of(v, "sum")) do
    total = total + (path and attribute(item, path) or item)
  end
  return total
end
function filters.min(v)
  local out
  for _, item in ipairs(items_of(v, "min")) do if out == nil or item < out then out = item end end
  return out
end
function filters.max(v)
  local out
  for _, item in ipairs(items_of(v, "max")) do if out == nil or item > out then out = item end end
  return out
end
function filters.items(v)
  local out = {}
  if v == values.undefined then return out end
  for i, key in ipairs(values.keys(v)) do out[i] = {key, values.field(v, key)} end
  return out
end
function filters.dictsort(v)
  local keys = filters.list(values.keys(v))
  table.sort(keys, function(a, b) return tostring(a):lower() < tostring(b):lower() end)
  local out = {}
  for i, key in ipairs(keys) do out[i] = {key, values.field(v, key)} end
  return out
end
function filters.indent(v, width, first, blank)
  local space = type(width) == "string" and width or (" "):rep(width or 4)
  local out, n = {}, 0
  for line in (check_string(v, "indent") .. "\n"):gmatch "([^\n]*)\n" do
    n = n + 1
    out[n] = ((n > 1 or first) and (line ~= "" or blank) and space or "") .. line
  end
  return table.concat(out, "\n")
end
function filters.tojson(v, indent, named)
  named = named or {}
  local separators = named.separators
  return values.json(v, {indent = named.indent or indent, sort = truth(named.sort_keys),
    ascii = truth(named.ensure_ascii), item = separators and separators[1],
    key = separators and separators[2]})
end
function filters.escape(v)
  return (check_string(v, "escape"):gsub('[&<>"\']', {["&"] = "&amp;", ["<"] = "&lt;",
    [">"] = "&gt;", ['"'] = "&#34;", ["'"] = "&#39;"}))
end
filters.e = filters.escape
function filters.wordcount(v) return select(2, check_string(v, "wordcount"):gsub("%S+", "")) end

local function select_by(keep, by_attribute)
  return function(v, a, b, c)
    local out = {}
    local path, name, argument
    if by_attribute then path, name, argument = a, b, c else name, argument = a, b end
    local test = name and (tests[name] or fail(0, "there is no test '%s'", tostring(name)))
    for _, item in ipairs(items_of(v, "select")) do
      local value = item
      if path then value = attribute(item, path) end
      local holds = truth(value)
      if test then holds = test(value, argument) end
      if holds == keep then out[#out + 1] = item end
    end
    return out
  end
end
filters.select, filters.reject = select_by(true), select_by(false)
filters.selectattr, filters.rejectattr = select_by(true, true), select_by(false, true)
function filters.map(v, name, named, ...)
  local out = {}
  local path = type(named) == "table" and named.attribute
  for i, item in ipairs(items_of(v, "map")) do
    if path then
      out[i] = attribute(item, path)
      if out[i] == values.undefined and named.default ~= nil then out[i] = named.default end
    else
      out[i] = (filters[name] or fail(0, "there is no filter '%s'", tostring(name)))(item, ...)
    end
  end
  return out
end

-- --- tests ---

function tests.defined(v) return v ~= values.undefined end
function tests.undefined(v) return v == values.undefined end
function tests.none(v) return values.is_none(v) end
tests["string"] = function(v) return type(v) == "string" end
function tests.number(v) return type(v) == "number" end
function tests.integer(v) return math.type(v) == "integer" end
function tests.float(v) return math.type(v) == "float" end
function tests.boolean(v) return type(v) == "boolean" end
tests["true"] = function(v) return v == true end
tests["false"] = function(v) return v == false end
function tests.mapping(v) return is_dict(v) end
function tests.iterable(v) return type(v) == "string" or is_list(v) or is_dict(v) end
function tests.sequence(v) return type(v) == "string" or is_list(v) or is_dict(v) end
function tests.callable(v) return type(v) == "function" end
function tests.odd(v) return v % 2 == 1 end
function tests.even(v) return v % 2 == 0 end
function tests.divisibleby(v, n) return v % n == 0 end
function tests.equalto(v, other) return values.equal(v, other) end
tests.eq, tests["=="], tests.sameas = tests.equalto, tests.equalto, tests.equalto
function tests.ne(v, other) return not values.equal(v, other) end
tests["!="] = tests.ne
function tests.lt(v, n) return v < n end
function tests.le(v, n) return v <= n end
function tests.gt(v, n) return v > n end
function tests.ge(v, n) return v >= n end
tests["<"], tests["<="], tests[">"], tests[">="] = tests.lt, tests.le, tests.gt, tests.ge
function tests.upper(v) return v:upper() == v and v:find "%a" ~= nil end
function tests.lower(v) return v:lower() == v and v:find "%a" ~= nil end
tests["in"] = function(v, list)
  if type(list) == "string" then return list:find(text_of(v), 1, true) ~= nil end
  for _, item in ipairs(items_of(list, "in")) do
    if values.equal(item, v) then return true end
  end
  return false
end

-- --- methods ---

methods.string = {
  strip = function(v, chars) return strip(v, chars, true, true) end,
  lstrip = function(v, chars) return strip(v, chars, true, false) end,
  rstrip = function(v, chars) return strip(v, chars, false, true) end,
  upper = function(v) return v:upper() end,
  lower = lowercase,
  title = title,
  capitalize = capitalize,
  startswith = function(v, start)
    for _, s in ipairs(is_list(start) and start or {start}) do
      if v:sub(1, #s) == s then return true end
    end
    return false
  end,
  endswith = function(v, ending)
    for _, s in ipairs(is_list(ending) and ending or {ending}) do
      if s == "" or v:sub(-#s) == s then return true end
    end
    return false
  end,
  replace = replace,
  find = function(v, what)
    local at = v:find(what, 1, true)
    return at and utf8.len(v, 1, at - 1) or at and at - 1 or -1
  end,
  count = function(v, what) return select(2, v:gsub(plain(what), "")) end,
  isdigit = function(v) return v:find "^%d+$" ~= nil end,
  isalpha = function(v) return v:find "^%a+$" ~= nil end,
  join = function(v, list) return filters.join(list, v) end,
  format = function(v, ...)
    local list, n = {...}, 0
    return (v:gsub("{(%d*)}", function(i)
      n = n + 1
      return text_of(list[(tonumber(i) or n - 1) + 1])
    end))
  end,
  removeprefix = function(v, s) return v:sub(1, #s) == s and v:sub(#s + 1) or v end,
  removesuffix = function(v, s) return s ~= "" and v:sub(-#s) == s and v:sub(1, -#s - 1) or v end,
  split = function(v, between, most)
    local out = {}
    most = most or -1
    if values.is_none(between) then
      v = strip(v, nil, true, false)
      while v ~= "" and #out ~= most do
        local word, rest = v:match "^(%S+)%s*(.*)$"
        out[#out + 1], v = word, rest
      end
      if v ~= "" then out[#out + 1] = v end
      return out
    end
    if between == "" then fail(0, "split: the separator is empty") end
    local at = 1
    while #out ~= most do
      local first, last = v:find(between, at, true)
      if not first then break end
      out[#out + 1] = v:sub(at, first - 1)
      at = last + 1
    end
    out[#out + 1] = v:sub(at)
    return out
  end,
  splitlines = function(v)
    local out = {}
    for line in (v:sub(-1) == "\n" and v or v .. "\n"):gmatch "([^\n]*)\n" do
      out[#out + 1] = line
    end
    return out
  end,
}

function methods.string.rsplit(v, between, most)
  local all = methods.string.split(v, between)
  while most and #all > most + 1 do
    all[1] = all[1] .. between .. table.remove(all, 2)
  end
  return all
end

methods.dict = {
  get = function(v, key, default)
    local value = values.field(v, key)
    if value == nil then return default end
    return value
  end,
  keys = function(v) return filters.list(values.keys(v)) end,
  values = function(v)
    local out = {}
    for i, key in ipairs(values.keys(v)) do out[i] = values.field(v, key) end
    return out
  end,
  items = filters.items,
  update = function(v, other)
    for _, key in ipairs(values.keys(other)) do
      values.set_field(v, key, values.field(other, key))
    end
  end,
}

methods.list = {
  append = function(v, item) v[#v + 1] = item == nil and values.none or item end,
  index = function(v, item)
    for i, other in ipairs(v) do if values.equal(item, other) then return i - 1 end end
    fail(0, "index: the item is not in the list")
  end,
  pop = function(v, i) return table.remove(v, i and (i < 0 and #v + i + 1 or i + 1)) end,
  extend = function(v, other) table.move(other, 1, #other, #v + 1, v) end,
}

return {filters = filters, tests = tests, methods = methods, items = items_of}
