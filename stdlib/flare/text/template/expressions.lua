--- What the expressions of a chat template are worth: functions by the kind of node, which take the
-- state of the rendering (eval.lua) and the node.
local fail = require "flare.text.template.lexer".fail
local library = require "flare.text.template.filters"
local values = require "flare.text.template.values"

local undefined, truth, text_of = values.undefined, values.truth, values.text
local filters, tests, methods = library.filters, library.tests, library.methods

local MOST_OUTPUT = 1 << 26

local Namespace = {__name = "namespace", object = true}
local Loop = {__name = "loop", object = true}
local expressions = {}

local function or_undefined(value)
  if value == nil then return undefined end
  return value
end

function expressions.value(_, node) return node[3] end
function expressions.none() return nil end
function expressions.name(self, node) return self:lookup(node[3]) end
function expressions.captured(self) return self.captured_text end

function expressions.list(self, node)
  local out = {}
  for i, item in ipairs(node[3]) do
    local value = self:value(item)
    if value == nil then value = values.none end
    out[i] = value
  end
  return out
end

function expressions.dict(self, node)
  local keys, items = {}, {}
  for i, key in ipairs(node[3]) do
    keys[i] = self:value(key)
    if values.is_none(keys[i]) then fail(node[2], "a key is none") end
    local value = self:value(node[4][i])
    if value == nil then value = values.none end
    items[i] = value
  end
  return values.dict(keys, items)
end

-- A method or a field; nil: there is neither.
local function member(object, name)
  local kind = type(object) == "string" and "string" or values.is_dict(object) and "dict"
    or values.is_list(object) and "list"
  local method = kind and methods[kind][name]
  if method then
    return function(...) return method(object, ...) end
  end
end

local function get(object, key, line, dotted)
  if object == undefined then
    fail(line, "the value before '%s' is undefined", tostring(key))
  end
  local meta = getmetatable(object)
  if meta == Namespace then return or_undefined(object.fields[key]) end
  if meta == Loop then return or_undefined(object.get(key)) end
  if math.type(key) == "integer" and (type(object) == "string" or values.is_list(object)) then
    local items = library.items(object, "index")
    return or_undefined(items[key < 0 and #items + key + 1 or key + 1])
  end
  if dotted then
    local method = member(object, key)
    if method then return method end
  end
  if values.is_dict(object) then return or_undefined(values.field(object, key)) end
  return dotted and undefined or or_undefined(member(object, key))
end

function expressions.attribute(self, node)
  return get(self:value(node[3]), node[4], node[2], true)
end

function expressions.index(self, node)
  local object, key = self:value(node[3]), self:value(node[4])
  return get(object, key, node[2], false)
end

function expressions.slice(self, node)
  local object = self:value(node[3])
  local items = library.items(object, "slice")
  local function bound(part)
    local value = node[part] and self:value(node[part])
    if values.is_none(value) then return nil end
    if math.type(value) ~= "integer" then fail(node[2], "a bound is not a whole number") end
    return value
  end
  local first, last, step = bound(4), bound(5), bound(6) or 1
  if step == 0 then fail(node[2], "the step is 0") end
  local n, out = #items, {}
  local function clip(i, default)
    if i == nil then return default end
    if i < 0 then i = i + n end
    if step > 0 then return math.max(0, math.min(i, n)) end
    return math.max(-1, math.min(i, n - 1))
  end
  first, last = clip(first, step > 0 and 0 or n - 1), clip(last, step > 0 and n or -1)
  for i = first, last + (step > 0 and -1 or 1), step do out[#out + 1] = items[i + 1] end
  return type(object) == "string" and table.concat(out) or out
end

-- The values of arguments, and those by name.
local function arguments_of(self, list, named)
  local out = {}
  for i, node in ipairs(list) do out[i] = self:value(node) end
  local by_name
  for name, node in pairs(named or {}) do
    by_name = by_name or {}
    by_name[name] = self:value(node)
  end
  return out, #list, by_name
end

-- Names of parameters that filters and methods are called by.
local parameters = {
  default = {"default_value", "boolean"}, d = {"default_value", "boolean"},
  join = {"d", "attribute"}, indent = {"width", "first", "blank"}, trim = {"chars"},
  sort = {"reverse", "case_sensitive", "attribute"}, replace = {"old", "new", "count"},
  sum = {"attribute", "start"}, round = {"precision"}, int = {"default"},
  split = {"sep", "maxsplit"}, get = {"key", "default"}, tojson = {"indent"},
}

local function place_named(name, list, n, by_name)
  for i, parameter in ipairs(parameters[name] or {}) do
    if by_name and by_name[parameter] ~= nil then
      list[i] = by_name[parameter]
      n = math.max(n, i)
    end
  end
  return n
end

function expressions.filter(self, node)
  local name = node[4]
  local input = self:value(node[3])
  local filter = filters[name]
  if not filter then fail(node[2], "there is no filter '%s'", name) end
  local list, n, by_name = arguments_of(self, node[5], node[6])
  self.line = node[2]
  if name == "map" then
    if by_name then return filter(input, nil, by_name) end
    return filter(input, list[1], nil, table.unpack(list, 2, n))
  end
  n = place_named(name, list, n, by_name)
  if name == "tojson" then return filter(input, list[1], by_name) end
  return filter(input, table.unpack(list, 1, n))
end

function expressions.test(self, node)
  local test = tests[node[4]]
  if not test then fail(node[2], "there is no test '%s'", node[4]) end
  local input = self:value(node[3])
  local list, n = arguments_of(self, node[5])
  self.line = node[2]
  return test(input, table.unpack(list, 1, n))
end

function expressions.call(self, node)
  local callee = self:value(node[3])
  local list, n, by_name = arguments_of(self, node[4], node[5])
  self.line = node[2]
  local name = node[3][1] == "attribute" and node[3][4] or node[3][3]
  if getmetatable(callee) == Loop then return callee.recurse(list[1]) end
  if type(callee) ~= "function" then
    fail(node[2], "'%s' is %s, no function", tostring(name), values.kind(callee))
  end
  if self.takes_names[callee] then return callee(by_name or {}, table.unpack(list, 1, n)) end
  n = place_named(name, list, n, by_name)
  return callee(table.unpack(list, 1, n))
end

expressions["not"] = function(self, node) return not truth(self:value(node[3])) end
expressions["and"] = function(self, node)
  local left = self:value(node[3])
  if not truth(left) then return left end
  return self:value(node[4])
end
expressions["or"] = function(self, node)
  local left = self:value(node[3])
  if truth(left) then return left end
  return self:value(node[4])
end

function expressions.choose(self, node)
  if truth(self:value(node[3])) then return self:value(node[4]) end
  if node[5] then return self:value(node[5]) end
  return undefined
end

local function check_number(value, operator, line)
  if type(value) == "boolean" then return value and 1 or 0 end
  if type(value) ~= "number" then
    fail(line, "'%s' of %s", operator, values.kind(value))
  end
  return value
end

function expressions.negate(self, node)
  return -check_number(self:value(node[3]), "-", node[2])
end

local arithmetic = {
  ["-"] = function(a, b) return a - b end, ["/"] = function(a, b) return a / b end,
  ["//"] = function(a, b) return a // b end, ["%"] = function(a, b) return a % b end,
  ["*"] = function(a, b) return a * b end, ["+"] = function(a, b) return a + b end,
  ["**"] = function(a, b)
    local r = a ^ b
    return math.type(a) == "integer" and math.type(b) == "integer" and b >= 0
      and math.tointeger(r) or r
  end,
}

function expressions.binary(self, node)
  local line, operator = node[2], node[3]
  local a, b = self:value(node[4]), self:value(node[5])
  if operator == "~" then return text_of(a) .. text_of(b) end
  if operator == "+" and type(a) == "string" and type(b) == "string" then
    if #a + #b > MOST_OUTPUT then fail(line, "a string is longer than 64 MiB") end
    return a .. b
  elseif operator == "+" and values.is_list(a) and values.is_list(b) then
    local out = table.move(a, 1, #a, 1, {})
    return table.move(b, 1, #b, #out + 1, out)
  elseif operator == "*" and type(a) == "string" and math.type(b) == "integer" then
    if #a * b > MOST_OUTPUT then fail(line, "a string is longer than 64 MiB") end
    return a:rep(b)
  elseif operator == "%" and type(a) == "string" then
    local list = values.is_list(b) and b or {b}
    local n = 0
    return (a:gsub("%%([sd])", function()
      n = n + 1
      return text_of(list[n])
    end))
  end
  a, b = check_number(a, operator, line), check_number(b, operator, line)
  if b == 0 and (operator == "/" or operator == "//" or operator == "%") then
    fail(line, "division by zero")
  end
  return arithmetic[operator](a, b)
end

local function less(a, b, line)
  if type(a) == type(b) and (type(a) == "number" or type(a) == "string") then return a < b end
  fail(line, "%s and %s cannot be compared", values.kind(a), values.kind(b))
end

local comparisons = {
  ["=="] = values.equal, ["!="] = function(a, b) return not values.equal(a, b) end,
  ["<"] = less, [">"] = function(a, b, line) return less(b, a, line) end,
  ["<="] = function(a, b, line) return not less(b, a, line) end,
  [">="] = function(a, b, line) return not less(a, b, line) end,
  ["in"] = function(a, b) return tests["in"](a, b) end,
  ["not in"] = function(a, b) return not tests["in"](a, b) end,
}

function expressions.compare(self, node)
  local left = self:value(node[3][1])
  for i, operator in ipairs(node[4]) do
    local right = self:value(node[3][i + 1])
    if not comparisons[operator](left, right, node[2]) then return false end
    left = right
  end
  return true
end

return {expressions = expressions, Namespace = Namespace, Loop = Loop, MOST_OUTPUT = MOST_OUTPUT,
        arguments = arguments_of, or_undefined = or_undefined}
