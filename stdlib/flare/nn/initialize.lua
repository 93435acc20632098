--- Initialization of parameters.
--
-- Every scheme has two forms: `init.normal({8, 4}, {std = 0.02})` makes a tensor (a shape, or
-- its sizes as arguments, then options), `init.normal_(x, {std = 0.02})` fills one.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

--- Fan in and fan out of a weight (outputs, inputs, window...): inputs and outputs times the size
-- of the window.
function M.fans(x)
  local shape = options.tensor("init.fans", "x", x).shape
  if #shape < 2 then fail("init.fans: fan in and out need 2 dims or more, got %d", #shape) end
  local window = 1
  for i = 3, #shape do window = window * shape[i] end
  return shape[2] * window, shape[1] * window
end

local gains = {
  none = 1, linear = 1, conv = 1, conv1d = 1, conv2d = 1, conv3d = 1, sigmoid = 1,
  tanh = 5 / 3, relu = math.sqrt(2), selu = 3 / 4,
  gelu = math.sqrt(2), silu = math.sqrt(2),
}

--- The gain of an activation: the factor on a layer's standard deviation that keeps the variance
-- through it.
-- @param name "none", "linear", "conv1d" and so on, "relu",
--   "leaky_relu", "tanh", "sigmoid", "selu", "gelu", "silu"
-- @param slope of leaky_relu
function M.gain(name, slope)
  if name == "leaky_relu" then
    if slope ~= nil and type(slope) ~= "number" then
      fail("initialize: the slope must be a number, got %s", options.kind(slope))
    end
    return math.sqrt(2 / (1 + (slope or 0.01) ^ 2))
  end
  local gain = gains[name]
  if not gain then
    fail("initialize: unknown activation '%s'%s", name, options.hint(name, gains))
  end
  return gain
end

local function uniform(x, low, high, generator)
  return x:uniform_(low, high, {generator = generator})
end

local function normal(x, mean, std, generator)
  return x:normal_(mean, std, {generator = generator})
end

local none = options.none
local schemes = {
  zeros = {{}, function(x) return x:zero_() end},
  ones = {{}, function(x) return x:fill_(1) end},
  constant = {{value = 0}, function(x, o) return x:fill_(o.value) end},
  -- between low and high
  uniform = {{low = 0, high = 1, generator = none}, function(x, o)
    return uniform(x, o.low, o.high, o.generator)
  end},
  normal = {{mean = 0, std = 1, generator = none}, function(x, o)
    return normal(x, o.mean, o.std, o.generator)
  end},
  -- a normal distribution, cut off `bound` standard deviations from the mean, or at `low` and
  -- `high` where they are given
  truncated_normal = {{mean = 0, std = 1, bound = 2, low = none, high = none, generator = none},
                      function(x, o)
    local root = math.sqrt(2)
    local from, to = o.mean - o.bound * o.std, o.mean + o.bound * o.std
    if o.low or o.high then from, to = o.low or -math.huge, o.high or math.huge end
    if type(from) ~= "number" or type(to) ~= "number" or not (from < to and o.std > 0) then
      fail("truncated_normal: std must be above 0 and low below high, got %s, %s and %s",
           tostring(o.std), tostring(o.low), tostring(o.high))
    end
    -- in standard deviations; no draw in f64 is further than 9 from the mean
    from, to = math.max((from - o.mean) / o.std, -9), math.min((to - o.mean) / o.std, 9)
    local u = core.rand(x.shape, {device = x.device, generator = o.generator, dtype = "f64"})
    -- inverts erf by bisection: 50 halvings reach the precision of f64
    local edges = core.tensor({from / root, to / root}, {dtype = "f64"}):erf()
    local least, most = edges[1]:item(), edges[2]:item()
    local goal = u * (most - least) + least
    local low = core.full(x.shape, from, {dtype = "f64", device = x.device})
    local high = core.full(x.shape, to, {dtype = "f64", device = x.device})
    for _ = 1, 50 do
      local middle = (low + high) / 2
      local below = (middle / root):erf():lt(goal)
      low, high = core.where(below, middle, low), core.where(below, high, middle)
    end
    return x:copy_(low * o.std + o.mean)
  end},
  xavier = {{gain = 1, normal = false, generator = none}, function(x, o)
    local fan_in, fan_out = M.fans(x)
    local std = o.gain * math.sqrt(2 / (fan_in + fan_out))
    if o.normal then return normal(x, 0, std, o.generator) end
    local bound = std * math.sqrt(3)
    return uniform(x, -bound, bound, o.generator)
  end},
  -- act: the activation after the layer, with the slope of leaky_relu; mode: "in" keeps the
  -- variance of the forward pass, "out" that of the backward pass
  kaiming = {{act = "leaky_relu", slope = 0, mode = "in", normal = false,
              generator = none}, function(x, o)
    local fan_in, fan_out = M.fans(x)
    local mode = o.mode:gsub("^fan_", "")
    if mode ~= "in" and mode ~= "out" then
      fail("kaiming: mode is 'in' or 'out', got '%s'", o.mode)
    end
    local fan = mode == "in" and fan_in or fan_out
    local std = M.gain(o.act, o.slope) / math.sqrt(math.max(fan, 1))
    if o.normal then return normal(x, 0, std, o.generator) end
    local bound = std * math.sqrt(3)
    return uniform(x, -bound, bound, o.generator)
  end},
  -- the identity matrix
  eye = {{}, function(x)
    if x:dim() ~= 2 then fail("eye: 2 dims are needed, got %d", x:dim()) end
    x:zero_():diagonal():fill_(1)
    return x
  end},
  -- convolutions that copy as many input channels of each group as it has outputs
  dirac = {{groups = 1}, function(x, o)
    local shape = x.shape
    if #shape < 3 or #shape > 5 or shape[1] % o.groups ~= 0 then
      fail("dirac: a convolution's weight with outputs for %d groups is needed, got %s", o.groups,
           tostring(shape))
    end
    x:zero_()
    local rows, middle = shape[1] // o.groups, {}
    for d = 3, #shape do middle[d - 2] = shape[d] // 2 + 1 end
    for g = 0, o.groups - 1 do
      for k = 1, math.min(rows, shape[2]) do
        x[{g * rows + k, k, table.unpack(middle)}] = 1
      end
    end
    return x
  end},
  -- normal, with the fraction `sparsity` of each column set to 0
  sparse = {{sparsity = 0.1, std = 0.01, generator = none}, function(x, o)
    if x:dim() ~= 2 then fail("sparse: 2 dims are needed, got %d", x:dim()) end
    if o.sparsity < 0 or o.sparsity > 1 then
      fail("sparse: sparsity must be from 0 to 1, got %g", o.sparsity)
    end
    normal(x, 0, o.std, o.generator)
    local rows, columns = x:size(1), x:size(2)
    local order = core.rand(rows, columns, {device = x.device, generator = o.generator}):argsort(1)
    local out = order:narrow(1, 1, math.min(math.ceil(o.sparsity * rows), rows))
    return x:scatter_(1, out, core.zeros(out.shape, {dtype = x.dtype, device = x.device}))
  end},
  -- orthonormal rows (or columns, if there are fewer), times gain
  orthogonal = {{gain = 1, generator = none}, function(x, o)
    local shape = x.shape
    if #shape < 2 then fail("orthogonal: 2 dims or more, got %d", #shape) end
    local rows, columns = shape[1], x:numel() // math.max(shape[1], 1)
    local few, many = math.min(rows, columns), math.max(rows, columns)
    local a = core.randn({few, many}, {dtype = "f64", generator = o.generator})
    -- Gram-Schmidt twice: once loses orthogonality by rounding when rows are nearly parallel
    local done = {}
    for i = 1, few do
      local row = a[i]
      for _ = 1, 2 do
        for j = 1, i - 1 do row = row - done[j] * (row * done[j]):sum() end
      end
      done[i] = row / row:norm()
    end
    local q = core.stack(done, {dim = 1})
    if rows > columns then q = q:transpose(1, 2) end
    return x:copy_((q * o.gain):reshape(shape):to{device = x.device})
  end},
}

for name, scheme in pairs(schemes) do
  local defaults, fill = scheme[1], scheme[2]
  M[name .. "_"] = function(x, opts)
    if not core.is_tensor(x) then
      fail("init.%s_: a tensor is expected, got %s", name, options.kind(x))
    end
    local _ <close> = core.no_grad()
    fill(x, options.check("init." .. name .. "_", opts, defaults))
    return x
  end
  M[name] = function(...)
    local shape, opts = {}, nil
    local last = select("#", ...)
    if type((...)) == "table" then
      shape, opts = ...
    else
      for i = 1, last do
        local value = select(i, ...)
        if type(value) == "table" and i == last then opts = value else shape[i] = value end
      end
    end
    return M[name .. "_"](core.empty(shape), opts)
  end
end

return require "flare.lazy"("nn.init", M, {})
