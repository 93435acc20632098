--- References of the elementwise rows, number by number from the definitions. Integers come
-- as Lua integers and stay such where the row keeps its dtype.
local A = require "spec.support.array"

local R = {}
local inf = math.huge
local nan = 0/0
local exp, log, sqrt, abs, floor, ceil = math.exp, math.log, math.sqrt, math.abs, math.floor,
  math.ceil

local function is_float(v) return math.type(v) == "float" end

-- --- functions that Lua lacks ---

local function expm1(x)
  if abs(x) > 1e-2 then return exp(x) - 1 end
  local term, sum = x, x
  for k = 2, 12 do
    term = term * x / k
    sum = sum + term
  end
  return sum
end

local function log1p(x)
  if abs(x) > 1e-2 then return log(1 + x) end
  local sum, power = 0, -1
  for k = 1, 16 do
    power = -power * x
    sum = sum + power / k
  end
  return sum
end

local function sinh(x) return (expm1(x) - expm1(-x)) / 2 end
local function cosh(x) return (exp(x) + exp(-x)) / 2 end

local function tanh(x)
  if x > 20 then return 1.0 elseif x < -20 then return -1.0 end
  local e = expm1(2 * x)
  return e / (e + 2)
end

-- Erf by its series while small, by the continued fraction of erfc beyond (Abramowitz and
-- Stegun 7.1.6 and 7.1.14).
local function erfc_far(x)
  local f = 0
  for k = 120, 1, -1 do f = k / 2 / (x + f) end
  return exp(-x * x) / sqrt(math.pi) / (x + f)
end

local function erf(x)
  if x ~= x then return x end
  if x < 0 then return -erf(-x) end
  if x > 6 then return 1.0 end
  if x > 2.5 then return 1 - erfc_far(x) end
  local term, sum = x, x
  for k = 1, 80 do
    term = term * 2 * x * x / (2 * k + 1)
    sum = sum + term
  end
  return 2 / sqrt(math.pi) * exp(-x * x) * sum
end
local function erfc(x)
  return x > 2.5 and erfc_far(x) or 1 - erf(x)
end

local function asinh(x)
  local a = abs(x)
  local y = a > 1e8 and log(2) + log(a) or log1p(a + x * x / (1 + sqrt(1 + x * x)))
  return x < 0 and -y or y
end

local function sin_pi(x) return math.sin(math.pi * (x - floor(x + 0.5))) * (-1) ^ floor(x + 0.5) end

-- By Lanczos, with g = 7.
local lanczos = {676.5203681218851, -1259.1392167224028, 771.32342877765313,
  -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
  1.5056327351493116e-7}
local function lgamma(x)
  if x == inf or x == -inf then return inf end
  if x == 1 or x == 2 then return 0.0 end
  if x < 0.5 then
    if x == floor(x) then return inf end
    return log(math.pi / abs(sin_pi(x))) - lgamma(1 - x)
  end
  local sum, t = 0.99999999999980993, x + 6.5
  for k = 1, 8 do sum = sum + lanczos[k] / (x - 1 + k) end
  return 0.5 * log(2 * math.pi) + (x - 0.5) * log(t) - t + log(sum)
end

local function digamma(x)
  if x == 0 then return 1 / (x + 0.0) < 0 and inf or -inf end
  if x ~= x or x == inf then return x end
  if x < 0 then
    if x == -inf or x == floor(x) then return nan end
    return digamma(1 - x) - math.pi * math.cos(math.pi * x) / math.sin(math.pi * x)
  end
  local y = 0
  while x < 40 do
    y = y - 1 / x
    x = x + 1
  end
  return y + log(x) - 1 / (2 * x) - 1 / (12 * x ^ 2) + 1 / (120 * x ^ 4) - 1 / (252 * x ^ 6)
end

local function erfinv(x)
  if x < 0 then return -erfinv(-x) end
  if x == 1 then return inf elseif x > 1 or x ~= x then return nan end
  local low, high = 0, 6
  for _ = 1, 10 do
    local middle = (low + high) / 2
    if erf(middle) < x then low = middle else high = middle end
  end
  local y = (low + high) / 2
  for _ = 1, 6 do y = y - (erf(y) - x) * sqrt(math.pi) / 2 * exp(y * y) end
  return y
end

local function sinc(x)
  if x == 0 then return 1.0 end
  if x == inf or x == -inf or x ~= x then return nan end
  return sin_pi(x) / (math.pi * x)
end

local function minus(x) -- as the sign bit says, of NaN as well
  return string.format("%f", x):sub(1, 1) == "-"
end

local function sigmoid(x) return 1 / (1 + exp(-x)) end
R._sigmoid, R._tanh, R._log1p, R._expm1 = sigmoid, tanh, log1p, expm1

local function softplus(x) return math.max(x, 0) + log1p(exp(-abs(x))) end

local function sign(x)
  if x ~= x then return x end
  if is_float(x) then return x > 0 and 1.0 or x < 0 and -1.0 or 0.0 end
  return x > 0 and 1 or x < 0 and -1 or 0
end

local function clamp(x, low, high)
  if x < low then x = low end
  if x > high then x = high end
  return x
end

local function whole(f)
  return function(x)
    if not is_float(x) or x ~= x or abs(x) >= 2^53 then return x end
    return f(x) + 0.0
  end
end

local function round(x) -- halves to even
  local low = floor(x)
  local off = x - low
  if off > 0.5 or off == 0.5 and low % 2 == 1 then return low + 1 end
  return low
end

local function trunc(x) return x >= 0 and floor(x) or ceil(x) end

-- --- unary ---

local unary = {
  neg = function(x) return -x end,
  abs = function(x) return x < 0 and -x or x end,
  sign = sign,
  square = function(x) return x * x end,
  reciprocal = function(x) return 1 / x end,
  sqrt = function(x) return x < 0 and nan or sqrt(x) end,
  rsqrt = function(x) return x < 0 and nan or 1 / sqrt(x) end,
  exp = exp,
  exp2 = function(x) return 2.0 ^ x end,
  expm1 = expm1,
  log = function(x) return x < 0 and nan or log(x) end,
  log2 = function(x) return x < 0 and nan or log(x, 2) end,
  log10 = function(x) return x < 0 and nan or log(x, 10) end,
  log1p = function(x) return x < -1 and nan or log1p(x) end,
  sin = math.sin,
  cos = math.cos,
  tan = math.tan,
  asin = function(x) return abs(x) > 1 and nan or math.asin(x) end,
  acos = function(x) return abs(x) > 1 and nan or math.acos(x) end,
  atan = math.atan,
  sinh = sinh,
  cosh = cosh,
  tanh = tanh,
  asinh = asinh,
  acosh = function(x) return x < 1 and nan or log1p(x - 1 + sqrt((x - 1) * (x + 1))) end,
  atanh = function(x) return abs(x) > 1 and nan or (log1p(x) - log1p(-x)) / 2 end,
  erf = erf,
  erfc = erfc,
  erfinv = erfinv,
  lgamma = lgamma,
  digamma = digamma,
  sinc = sinc,
  cbrt = function(x) return x < 0 and -(-x) ^ (1 / 3) or x ^ (1 / 3) end,
  signbit = minus,
  sigmoid = sigmoid,
  logsigmoid = function(x) return -softplus(-x) end,
  floor = whole(floor),
  ceil = whole(ceil),
  round = whole(round),
  trunc = whole(trunc),
  frac = function(x) return x - trunc(x) end,
  relu = function(x) return x < 0 and (is_float(x) and 0.0 or 0) or x end,
  relu6 = function(x) return clamp(x, 0, 6) end,
  selu = function(x)
    return 1.0507009873554804934 * (x > 0 and x or 1.6732632423543772848 * expm1(x))
  end,
  silu = function(x) return x == -inf and -0.0 or x * sigmoid(x) end,
  mish = function(x) return x * tanh(softplus(x)) end,
  hardsigmoid = function(x) return clamp(x / 6 + 0.5, 0, 1) end,
  hardswish = function(x) return x * clamp(x / 6 + 0.5, 0, 1) end,
  softsign = function(x) return x / (1 + abs(x)) end,
  tanhshrink = function(x) return x - tanh(x) end,
  logical_not = function(x) return x == 0 end,
  isnan = function(x) return x ~= x end,
  isinf = function(x) return x == inf or x == -inf end,
  isposinf = function(x) return x == inf end,
  isneginf = function(x) return x == -inf end,
  isfinite = function(x) return x == x and x ~= inf and x ~= -inf end,
}

for name, f in pairs(unary) do
  R[name] = function(a) return A.map(f, a.x) end
end

R._erf, R._erfc_far, R._lgamma, R._digamma = erf, erfc_far, lgamma, digamma

function R.bitwise_not(a)
  local bool = a.x.dtype == "bool"
  return A.map(function(x) return bool and x == 0 or not bool and ~x end, a.x)
end

function R.clamp(a)
  local float = A.is_float(a.x.dtype)
  local low = a.min or -inf
  local high = a.max or inf
  return A.map(function(x)
    local y = clamp(x, low, high)
    return float and y or math.tointeger(y) or trunc(y)
  end, a.x)
end

function R.leaky_relu(a)
  local slope = a.slope or 0.01
  return A.map(function(x) return x > 0 and x or slope * x end, a.x)
end

function R.elu(a)
  local alpha = a.alpha or 1
  return A.map(function(x) return x > 0 and x or alpha * expm1(x) end, a.x)
end

function R.celu(a)
  local alpha = a.alpha or 1
  return A.map(function(x) return math.max(x, 0) + math.min(0, alpha * expm1(x / alpha)) end, a.x)
end

local function gelu(x, approx)
  if approx == "tanh" then
    return x / (1 + exp(-2 * sqrt(2 / math.pi) * (x + 0.044715 * x ^ 3)))
  end
  return x == -math.huge and 0 or 0.5 * x * erfc(-x / sqrt(2))
end
R._gelu = gelu

function R.gelu(a)
  return A.map(function(x) return gelu(x, a.approx) end, a.x)
end

function R.softplus(a)
  local beta, threshold = a.beta or 1, a.threshold or 20
  return A.map(function(x)
    return x * beta > threshold and x or softplus(x * beta) / beta
  end, a.x)
end

function R.huber(a)
  local delta = a.delta or 1
  return A.map(function(x)
    local size = math.abs(x)
    return size <= delta and x * x / 2 or delta * (size - delta / 2)
  end, a.x)
end

function R.hardtanh(a)
  return A.map(function(x) return clamp(x, a.min or -1, a.max or 1) end, a.x)
end

function R.softshrink(a)
  local l = a.lambda or 0.5
  return A.map(function(x) return x > l and x - l or x < -l and x + l or 0 * x end, a.x)
end

function R.hardshrink(a)
  local l = a.lambda or 0.5
  return A.map(function(x) return (x > l or x < -l) and x or 0 * x end, a.x)
end

-- --- binary ---

local function power(a, b)
  if is_float(a) or is_float(b) then return a ^ b end
  if b < 0 then return a == 1 and 1 or a == -1 and (b % 2 == 1 and -1 or 1) or 0 end
  local r = 1
  for _ = 1, b do r = r * a end
  return r
end

local function floor_div(a, b)
  if is_float(a) or is_float(b) then
    if b == 0 then return a / b end
    return floor((a - a % b) / b + 0.5) + 0.0
  end
  return b == 0 and 0 or a // b
end

local function remainder(a, b)
  if is_float(a) or is_float(b) then return b == 0 and nan or a % b end
  return b == 0 and 0 or a % b
end

local function fmod(a, b)
  if is_float(a) or is_float(b) then return b == 0 and nan or math.fmod(a, b) end
  return b == 0 and 0 or math.fmod(a, b)
end

local binary = {
  add = function(a, b) return a + b end,
  sub = function(a, b) return a - b end,
  mul = function(a, b) return a * b end,
  div = function(a, b) return a / b end,
  floor_div = floor_div,
  remainder = remainder,
  fmod = fmod,
  pow = power,
  maximum = function(a, b) return (a ~= a or a > b) and a or b end,
  minimum = function(a, b) return (a ~= a or a < b) and a or b end,
  atan2 = function(a, b) return math.atan(a, b) end,
  fmax = function(a, b) return (a ~= a or b > a) and b or a end,
  fmin = function(a, b) return (a ~= a or b < a) and b or a end,
  heaviside = function(a, b)
    if a == 0 then return b end
    return a ~= a and a or a > 0 and 1 or 0
  end,
  hypot = function(a, b)
    local big, small = math.max(abs(a), abs(b)), math.min(abs(a), abs(b))
    if abs(a) == inf or abs(b) == inf then return inf end
    if a ~= a or b ~= b then return nan end
    return big == 0 and 0.0 or big * sqrt(1 + (small / big) ^ 2)
  end,
  copysign = function(a, b)
    local y = abs(a) + 0.0
    return minus(b) and -y or y
  end,
  logaddexp = function(a, b)
    if a ~= a or b ~= b then return nan end
    if a == b then return a + log(2) end
    return math.max(a, b) + log1p(exp(-abs(a - b)))
  end,
  logaddexp2 = function(a, b)
    if a ~= a or b ~= b then return nan end
    if a == b then return a + 1 end
    return math.max(a, b) + log1p(2 ^ -abs(a - b)) / log(2)
  end,
  xlog1py = function(a, b)
    return a == 0 and b == b and 0.0 or a * (b < -1 and nan or log1p(b))
  end,
  gcd = function(a, b)
    while b ~= 0 do a, b = b, math.fmod(a, b) end
    return abs(a)
  end,
  lcm = function(a, b)
    local x, y = a, b
    while y ~= 0 do x, y = y, math.fmod(x, y) end
    return x == 0 and 0 or abs(a // x * b)
  end,
  xlogy = function(a, b) return a == 0 and b == b and 0.0 or a * (b < 0 and nan or log(b)) end,
  bitwise_and = function(a, b) return a & b end,
  bitwise_or = function(a, b) return a | b end,
  bitwise_xor = function(a, b) return a ~ b end,
  shift_left = function(a, b) return b < 0 and 0 or a << b end,
  shift_right = function(a, b) return b < 0 and (a < 0 and -1 or 0) or a // (1 << b) end,
  eq = function(a, b) return a == b end,
  ne = function(a, b) return a ~= b end,
  lt = function(a, b) return a < b end,
  le = function(a, b) return a <= b end,
  gt = function(a, b) return a > b end,
  ge = function(a, b) return a >= b end,
  logical_and = function(a, b) return a ~= 0 and b ~= 0 end,
  logical_or = function(a, b) return a ~= 0 or b ~= 0 end,
  logical_xor = function(a, b) return (a ~= 0) ~= (b ~= 0) end,
}

local function number(v)
  if v == true then return 1 elseif v == false then return 0 end
  return v
end

for name, f in pairs(binary) do
  R[name] = function(a) return A.map(f, number(a.a), number(a.b)) end
end

-- --- ternary ---

function R.where(a)
  return A.map(function(c, x, y) if c ~= 0 then return x end return y end, a.condition, a.a, a.b)
end

function R.lerp(a)
  return A.map(function(x, y, w) return x + w * (y - x) end, a.a, a.b, a.weight)
end

function R.addcmul(a)
  local value = a.value or 1
  return A.map(function(x, y, z) return x + value * y * z end, a.x, a.a, a.b)
end

function R.addcdiv(a)
  local value = a.value or 1
  return A.map(function(x, y, z) return x + value * y / z end, a.x, a.a, a.b)
end

local function times_power(x, n)
  if n ~= n then return n end
  while n > 1000 and x ~= 0 and abs(x) < inf do x, n = x * 2.0 ^ 1000, n - 1000 end
  while n < -1000 and x ~= 0 and x == x and abs(x) < inf do x, n = x * 2.0 ^ -1000, n + 1000 end
  if x == 0 or x ~= x or abs(x) == inf then return x end
  return x * 2.0 ^ n
end
function R.ldexp(a) return A.map(times_power, a.a, a.n) end

for name, f in pairs(require "spec.support.reference.special" (R)) do
  R[name] = function(a)
    if a.a then return A.map(f, a.a, a.x) end
    if a.s then return A.map(f, a.s, a.q) end
    return A.map(f, a.x, a.n)
  end
end

return R
