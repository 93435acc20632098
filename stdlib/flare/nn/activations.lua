--- Activations as layers. One row each: the operator, and its options with defaults.
local class = require "flare.class"
local F = require "flare.nn.functional"
local options = require "flare.options"
local Module = require "flare.nn.module"

local rows = {
  ReLU = {"relu"}, ReLU6 = {"relu6"}, SELU = {"selu"}, SiLU = {"silu"}, Mish = {"mish"},
  Hardsigmoid = {"hardsigmoid"}, Hardswish = {"hardswish"}, Softsign = {"softsign"},
  Tanhshrink = {"tanhshrink"}, Sigmoid = {"sigmoid"}, LogSigmoid = {"logsigmoid"},
  Tanh = {"tanh"},
  LeakyReLU = {"leaky_relu", slope = 0.01},
  ELU = {"elu", alpha = 1}, CELU = {"celu", alpha = 1},
  GELU = {"gelu", approx = "erf"},
  Softplus = {"softplus", beta = 1, threshold = 20},
  Hardtanh = {"hardtanh", min = -1, max = 1},
  Softshrink = {"softshrink", lambda = 0.5}, Hardshrink = {"hardshrink", lambda = 0.5},
  Softmax = {"softmax", dim = -1}, LogSoftmax = {"log_softmax", dim = -1},
  GLU = {"glu", dim = -1}, Softmin = {"softmin", dim = -1},
  Threshold = {"threshold", threshold = 0, value = 0},
  RReLU = {"rrelu", lower = 1 / 8, upper = 1 / 3},
}

-- Operators with an option `training`, which the layer sets.
local trains = {RReLU = true}

-- The option that may be given alone: nn.Softmax(1), nn.LeakyReLU(0.2).
local first = {LeakyReLU = "slope", ELU = "alpha", CELU = "alpha", GELU = "approx",
               Softplus = "beta", Softshrink = "lambda", Hardshrink = "lambda",
               Softmax = "dim", LogSoftmax = "dim", GLU = "dim",
               Softmin = "dim"}

local classes = {}
for name, row in pairs(rows) do
  local op = row[1]
  local defaults = {}
  for key, value in pairs(row) do
    if key ~= 1 then defaults[key] = value end
  end
  local cls = class(name, Module)
  cls.operator, cls.defaults = op, defaults

  function cls:init(opts)
    if first[name] and opts ~= nil and type(opts) ~= "table" then opts = {[first[name]] = opts} end
    local o = options.check("nn." .. name, opts, defaults)
    self._options = next(o) and o or nil
  end

  function cls:forward(x)
    local opts = self._options
    if trains[name] then opts.training = self.training end
    if opts then return F[op](x, opts) end
    return F[op](x)
  end

  function cls:describe()
    local parts = {}
    for key, default in pairs(defaults) do
      local value = self._options[key]
      if value ~= default then parts[#parts + 1] = ("%s=%s"):format(key, value) end
    end
    table.sort(parts)
    return table.concat(parts, ", ")
  end

  classes[name] = cls
end
return classes
