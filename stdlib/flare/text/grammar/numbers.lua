--- Numbers of JSON between bounds, as nodes of a grammar. They have few digits, so that a text
-- comes to an end.
local values = require "flare.text.template.values"

local M = {}

local MOST = 15 -- digits

local function text(s) return {text = s} end
local function seq(...) return {seq = {...}} end
local function alt(list) return #list == 1 and list[1] or {alt = list} end
local function digits(a, b) return {chars = {{48 + a, 48 + b}}} end
local EMPTY = {seq = {}}

local function fraction()
  return alt{EMPTY, seq(text ".", {rep = digits(0, 9), min = 1, max = MOST})}
end

--- Any number, or any whole one.
function M.any(real)
  local whole = seq(alt{EMPTY, text "-"},
    alt{text "0", seq(digits(1, 9), {rep = digits(0, 9), max = MOST - 1})})
  if not real then return whole end
  local exponent = seq({chars = {{69, 69}, {101, 101}}}, alt{EMPTY, text "+", text "-"},
                       {rep = digits(0, 9), min = 1, max = 2})
  return seq(whole, fraction(), alt{EMPTY, exponent})
end

-- The numbers from a to b, written with as many digits each.
local function same_length(a, b)
  if a == "" then return EMPTY end
  local n, x, y = #a - 1, tonumber(a:sub(1, 1)), tonumber(b:sub(1, 1))
  local any = {rep = digits(0, 9), min = n, max = n}
  if a:find "^0*$" and b:find "^9*$" then return {rep = digits(0, 9), min = n + 1, max = n + 1} end
  if x == y then return seq(digits(x, x), same_length(a:sub(2), b:sub(2))) end
  local list = {seq(digits(x, x), same_length(a:sub(2), ("9"):rep(n))),
                seq(digits(y, y), same_length(("0"):rep(n), b:sub(2)))}
  if x + 1 < y then list[3] = seq(digits(x + 1, y - 1), any) end
  return alt(list)
end

-- The whole numbers from a to b, which are not negative.
local function between(a, b)
  local list, first, last = {}, tostring(a), tostring(b)
  for n = #first, #last do
    local low = n == #first and first or "1" .. ("0"):rep(n - 1)
    list[#list + 1] = same_length(low, n == #last and last or ("9"):rep(n))
  end
  return alt(list)
end

-- The numbers from a to b, which are not negative, with fractions.
local function real_between(a, b)
  local list = {seq(text(tostring(b)), alt{EMPTY, text ".0"})}
  if a < b then list[2] = seq(between(a, b - 1), fraction()) end
  return alt(list)
end

--- The numbers that a schema's bounds leave.
-- @param wrong raises an error
function M.bounded(schema, real, wrong)
  local least, most = values.field(schema, "minimum"), values.field(schema, "maximum")
  for _, name in ipairs{"exclusiveMinimum", "exclusiveMaximum"} do
    local bound = values.field(schema, name)
    if bound ~= nil and (real or type(bound) ~= "number") then
      wrong("%s is supported for integers only", name)
    elseif bound and name == "exclusiveMinimum" then
      least = math.max(least or -math.huge, math.floor(bound) + 1)
    elseif bound then
      most = math.min(most or math.huge, math.ceil(bound) - 1)
    end
  end
  if least == nil and most == nil then return {ref = real and "number" or "integer"} end
  local limit = math.tointeger(10 ^ MOST) - 1
  local function whole(bound, other, round)
    if bound == nil then return other end
    if type(bound) ~= "number" then wrong("a bound is no number") end
    local n = math.tointeger(real and bound or round(bound))
    if not n or math.abs(n) > limit then
      wrong("the bound %s is no whole number up to %d", tostring(bound), limit)
    end
    return n
  end
  least, most = whole(least, -limit, math.ceil), whole(most, limit, math.floor)
  if least > most then wrong("no number is from %d to %d", least, most) end
  local make, list = real and real_between or between, {}
  if most >= 0 then list[1] = make(math.max(least, 0), most) end
  if least < 0 then
    -- below 0: the same digits behind a sign; -0.5 is a number, -0 is left out of integers
    local low = real and math.max(-most, 0) or math.max(-most, 1)
    list[#list + 1] = seq(text "-", make(low, -least))
  end
  return alt(list)
end

return M
