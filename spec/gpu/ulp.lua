-- Units of the last place that special functions are off on a device: over all inputs of f16 and
-- bf16, and a sample of f32's bit patterns, against the CPU's rows in f64. Those are within 2e-12
-- of mpmath and SciPy (spec/ops/peers_spec.lua): nothing beside a float's 6e-8. Two inputs: as
-- many pairs as there are inputs of one.
--   flare spec/gpu/ulp.lua [DEVICE [SAMPLE [K/N | ROW ...]]]      (cuda, 4194304)
-- K/N: each N-th row, from the K-th.
-- Prints the table of bench/results/ulp.md and ends with PASS or FAIL.
local flare = require "flare"
local device = arg[1] or "cuda"
local sample = math.tointeger(tonumber(arg[2] or 1 << 22))
local turn, turns = (arg[3] or "1/1"):match "^(%d+)/(%d+)$"
local wanted = arg[3] and not turn and {} or nil
for i = 3, wanted and #arg or 0 do wanted[arg[i]] = true end

local LIMIT = 4
-- Above it, in f32: gelu, a product of four rounded factors, at results below 1.4e-8; erfc, as
-- CUDA's library has it; Bessel functions of large arguments beside their roots: CUDA's are good to
-- 5e-12 absolutely, which is less than a unit of their amplitude there.
local BESIDE_ROOTS = {f32 = 1e4}
local EXCEPT = {
  gelu = {f32 = 9}, erfc = {f32 = 5}, bessel_j0 = BESIDE_ROOTS, bessel_j1 = BESIDE_ROOTS,
  bessel_y0 = BESIDE_ROOTS, bessel_y1 = BESIDE_ROOTS,
}
local PIECE = 1 << 21
local ONE = {
  "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin",
  "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
  "erfc", "erfinv", "erfcx", "ndtr", "log_ndtr", "ndtri", "entr", "lgamma", "digamma", "sinc",
  "cbrt", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "i0", "i1", "i0e", "i1e", "sigmoid",
  "logsigmoid", "leaky_relu", "elu", "selu", "celu", "gelu", "gelu_tanh", "silu", "mish",
  "softplus", "hardsigmoid", "hardswish", "softsign", "tanhshrink",
}
local TWO = {"pow", "atan2", "hypot", "logaddexp", "logaddexp2", "xlogy", "xlog1py", "polygamma",
  "igamma", "igammac", "zeta"}

-- bits of the exponent and of the fraction
local FORMATS = {
  {name = "f16", exponent = 5, fraction = 10},
  {name = "bf16", exponent = 8, fraction = 7},
  {name = "f32", exponent = 8, fraction = 23},
}

--- The number of a bit pattern, as f64: exactly.
local number = flare.elementwise("T bits, T fraction, T exponent", "T x", [[
  T low = exp2(fraction);
  T high = exp2(exponent);
  T rest = floor(bits / low);
  T m = bits - rest * low;
  T minus = floor(rest / high);
  T e = rest - minus * high;
  T finite = ldexp(e > 0 ? m + low : m, (e > 0 ? e : 1) - (high / 2 - 1) - fraction);
  T size = e == high - 1 ? (m == 0 ? 1 / (m * 0) : (m * 0) / (m * 0)) : finite;
  x = minus > 0 ? -size : size]])

--- Units of the last place; an infinity counts as what would come after the largest number.
local off = flare.elementwise("T truth, T got, T last, T least, T fraction", "T u", [[
  T t = truth > last ? last : truth < -last ? -last : truth;
  T y = got > last ? last : got < -last ? -last : got;
  T a = abs(t) == last ? last / 2 : abs(t);
  T near = floor(log2(a));
  T e = exp2(near) > a ? near - 1 : exp2(near + 1) <= a ? near + 1 : near;
  T place = exp2(fraction - (e < least ? least : e));
  T d = abs(y - t) * place;
  u = t != t ? (y != y ? 0 : 1e300) : y != y ? 1e300 : d]])

local function call(name, x, b)
  if name == "gelu_tanh" then return x:gelu {approx = "tanh"} end
  return b and flare[name](x, b) or x[name](x)
end

--- n inputs of a format from the `from`-th of `all` on: every one, or a fair share with mixed low
-- bits.
local function inputs(f, from, n, all)
  local total = 1 << (1 + f.exponent + f.fraction)
  local step = math.max(1, total // all)
  local k = flare.arange(from, from + n - 1)
  local bits = k * step + (k * 2654435761) % step
  return number(bits:to "f64", f.fraction, f.exponent)
end

--- Pairs: three in four between 2^-4 and 2^8 in size, where results are numbers.
local function pairs_of(name, f, n, generator)
  local kept = {dtype = "f64", generator = generator}
  local function moderate() return flare.exp2(flare.rand({n}, kept) * 12 - 4) end
  local a, b = moderate(), moderate()
  if name == "polygamma" then
    b = (flare.rand({n}, kept) * 6):floor()
  elseif name == "zeta" then
    a = a + 1
  elseif not name:find "igamma" then
    b = b * (flare.rand({n}, kept) * 2):floor():mul(2):sub(1)
    local any = (flare.rand({n}, kept) * (1 << (1 + f.exponent + f.fraction))):floor()
    local quarter = flare.rand({n}, kept):lt(0.25)
    a = flare.where(quarter, number(any, f.fraction, f.exponent), a)
  end
  return a:to(f.name):to "f64", b:to(f.name):to "f64"
end

--- {worst, at, at, mean, above 1}
local function measure(name, f, two)
  local all = f.name == "f32" and sample or 1 << 16
  local bias = (1 << (f.exponent - 1)) - 1
  local worst, sum, above, count = {0}, 0, 0, 0
  local generator = flare.generator(1)
  for from = 0, all - 1, PIECE do
    local n = math.min(PIECE, all - from)
    local a, b
    if two then a, b = pairs_of(name, f, n, generator) else a = inputs(f, from, n, all) end
    local truth = call(name, a, b)
    local near = a:to(f.name):to(device)
    local got = call(name, near, b and b:to(f.name):to(device)):to "cpu":to "f64"
    local u = off(truth, got, 2.0 ^ (bias + 1), 1 - bias, f.fraction)
    local most = u:max():item()
    if most > worst[1] then
      local i = u:argmax():item()
      worst = {most, a[i]:item(), b and b[i]:item()}
    end
    sum, count = sum + u:clamp {max = 1e6}:sum():item(), count + n
    above = above + u:gt(1):sum():item()
  end
  return {worst = worst[1], a = worst[2], b = worst[3], mean = sum / count, above = above}
end

local function show(u) return u > 1e6 and "not a number" or ("%.2f"):format(u) end

local failed, took, met = {}, flare.clock(), 0
print(("sample of f32: %d of %s\n"):format(sample, device))
print "| row | f16 | bf16 | f32 | worst at, f32 | mean | above 1 |"
print "|---|---|---|---|---|---|---|"
for _, list in ipairs {ONE, TWO} do
  for _, name in ipairs(list) do
    met = met + 1
    if wanted and wanted[name] or not wanted and met % turns == turn % turns then
      local cells, last = {}, nil
      for _, f in ipairs(FORMATS) do
        last = measure(name, f, list == TWO)
        cells[#cells + 1] = show(last.worst)
        local most = EXCEPT[name] and EXCEPT[name][f.name] or LIMIT
        if last.worst > most then
          failed[#failed + 1] = ("%s in %s: %s at %.9g%s"):format(name, f.name, show(last.worst),
            last.a, last.b and (", %.9g"):format(last.b) or "")
        end
      end
      print(("| %s | %s | %s | %.3f | %d |"):format(name, table.concat(cells, " | "),
        ("%.9g%s"):format(last.a or 0, last.b and (", %.9g"):format(last.b) or ""), last.mean,
        last.above))
      io.flush()
    end
  end
end
print(("\n%.0f s"):format(flare.clock() - took))
for _, line in ipairs(failed) do print(line) end
print(#failed == 0 and "PASS" or "FAIL: " .. #failed)
os.exit(#failed == 0)
