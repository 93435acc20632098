--- The elementwise part of works.lua: every elementwise row of runtime/ops.def that PyTorch has
-- too, at two sizes, and the gradients of activations.
local root = (arg[0]:match "^(.*/)" or "") .. "../"

-- PyTorch's code where it is not torch.<row>(a), (a, b) or (a, b, c); false where PyTorch lacks it.
local theirs = {
  cbrt = false, huber = false, gamma_da = false, gamma_daa = false,
  clamp = "torch.clamp(a, 0.7, 1.2)", floor_div = "torch.floor_divide(a, b)",
  where = "torch.where(c, a, b)", addcmul = "torch.addcmul(c, a, b)",
  addcdiv = "torch.addcdiv(c, a, b)", polygamma = "torch.polygamma(1, a)",
  shift_left = "torch.bitwise_left_shift(a, b)", shift_right = "torch.bitwise_right_shift(a, b)",
  igamma = "torch.special.gammainc(a, b)", igammac = "torch.special.gammaincc(a, b)",
}
local functional = {"relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish",
  "softplus", "hardtanh", "hardsigmoid", "hardswish", "softsign", "softshrink", "hardshrink",
  "tanhshrink", "logsigmoid"}
local activations = {"sigmoid", "tanh"}
for _, name in ipairs(functional) do
  theirs[name] = ("F.%s(a)"):format(name)
  activations[#activations + 1] = name
end
for _, name in ipairs {"erfcx", "ndtr", "log_ndtr", "ndtri", "entr", "i1", "i0e", "i1e",
  "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"} do
  theirs[name] = ("torch.special.%s(a)"):format(name)
end
theirs.xlog1py, theirs.zeta = "torch.special.xlog1py(a, b)", "torch.special.zeta(a, b)"

local ours = {clamp = "flare.clamp(a, 0.7, 1.2)", where = "flare.where(c, a, b)",
  addcmul = "flare.addcmul(c, a, b)", addcdiv = "flare.addcdiv(c, a, b)",
  polygamma = "flare.polygamma(a, 1)"}

-- The ranges of inputs, where they are not 0.5 to 1.5.
local given = {acosh = "a = uniform(%d) + 1", zeta = "a = uniform(%d) + 2",
  where = "c = mask(%d)", addcmul = "c = uniform(%d)", addcdiv = "c = uniform(%d)",
  lerp = "c = uniform(%d)"}
for _, name in ipairs {"asin", "acos", "atanh", "erfinv", "ndtri"} do
  given[name] = "a = uniform(%d)"
end
for _, name in ipairs(activations) do given[name] = "a = normal(%d)" end
local integers = "a = positions(1000, %d); b = positions(60, %d)"

local inputs = {UNARY = "(a)", TEST = "(a)", BINARY = "(a, b)", COMPARE = "(a, b)",
  TERNARY = "(a, b, c)"}

local rows = {}
local function rows_of_table() -- the lines of the elementwise families
  local text = ""
  for _, family in ipairs {"unary", "binary"} do
    local file = assert(io.open(("%sruntime/ops/%s.def"):format(root, family)))
    text = text .. file:read "a"
    file:close()
  end
  return text:gmatch "[^\n]+"
end

for line in rows_of_table() do
  local kind, name, type = line:match "^FL_(%u+)%s*%(([%w_]+),%s*(%u?)"
  if inputs[kind] and theirs[name] ~= false then
    rows[#rows + 1] = {name = name, integers = type == "I", ours = ours[name]
      or ("flare.%s%s"):format(name, inputs[kind]), theirs = theirs[name]
      or ("torch.%s%s"):format(name, inputs[kind])}
    rows[name] = rows[#rows]
  end
end

local function fill(text, n) return (text:gsub("%%d", n)) end

local works = {}
for _, size in ipairs {{"32 KiB", 8192}, {"4 MiB", 1048576}} do
  local function add(group, row, leaves)
    local floats = "a = uniform(%d) + 0.5; b = uniform(%d) + 0.5; " .. (given[row.name] or "")
    works[#works + 1] = {name = ("%s %s: %s"):format(group, size[1], row.name),
      given = fill(row.integers and integers or floats, size[2]),
      flare = row.ours, torch = row.theirs, leaves = leaves}
  end
  for _, row in ipairs(rows) do add("elementwise", row) end
  for _, name in ipairs(activations) do add("gradients", rows[name], "a") end
end
return works
