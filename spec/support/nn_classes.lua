-- Every public name of flare.nn: a small layer, an input and the shape of its result. A new layer
-- needs a line here, or spec/nn/classes_spec.lua fails by its name.
--
--   make(nn)   makes it
--   x          its inputs: shapes of floats from -1 to 1, or functions that make something else
--   y          the shape of the (first) result
--   batch      the dim of the inputs and of the result that may be empty (1), or false
--   vmap       false: it cannot be mapped over a batch of its inputs; says why
--   low        the dtype of the result for f16 and bf16, if it is not theirs
local flare = require "flare"

local M = {}

local function positions(n, ...)
  local shape = {...}
  return function()
    local count = 1
    for _, size in ipairs(shape) do count = count * size end
    return (flare.arange(count):view(shape) * 5):remainder(n) + 1
  end
end

local function of(name, args, x, y, more)
  local entry = {x = x, y = y, batch = 1}
  entry.make = function(nn) return nn[name](table.unpack(args)) end
  for key, value in pairs(more or {}) do entry[key] = value end
  M[name] = entry
end

of("Linear", {3, 4}, {{2, 3}}, {2, 4})
of("QuantizedLinear", {8, 4, {group = 4, scales = "f32"}}, {{2, 8}}, {2, 4})
of("Bilinear", {3, 2, 4}, {{2, 3}, {2, 2}}, {2, 4})
of("MoE", {4, {experts = 3, hidden = 5}}, {{2, 3, 4}}, {2, 3, 4},
   {vmap = "gradients do not pass through its functions to what is outside"})
of("Identity", {}, {{2, 3}}, {2, 3})
of("Flatten", {}, {{2, 3, 4}}, {2, 12}, {vmap = "flattens from dim 2 on, which is the second here"})
of("Unflatten", {2, {2, 3}}, {{2, 6}}, {2, 2, 3})
of("Embedding", {5, 3}, {positions(5, 2, 4)}, {2, 4, 3})
of("EmbeddingBag", {5, 3}, {positions(5, 2, 4)}, {2, 3})

for n = 1, 3 do
  local small, large, x = {}, {}, {2, 2}
  for d = 1, n do small[d], large[d], x[d + 2] = 3, 7, 5 end
  local function shape(channels, sizes) return {2, channels, table.unpack(sizes)} end
  local function sizes(k)
    local list = {}
    for d = 1, n do list[d] = k end
    return list
  end
  of("Conv" .. n .. "d", {2, 4, 3}, {x}, shape(4, small))
  of("ConvTranspose" .. n .. "d", {2, 4, 3}, {x}, shape(4, large))
  of("MaxPool" .. n .. "d", {2}, {x}, shape(2, sizes(2)))
  of("AvgPool" .. n .. "d", {2}, {x}, shape(2, sizes(2)))
  of("LPPool" .. n .. "d", {2, 2}, {x}, shape(2, sizes(2)))
  of("AdaptiveAvgPool" .. n .. "d", {2}, {x}, shape(2, sizes(2)))
  of("AdaptiveMaxPool" .. n .. "d", {2}, {x}, shape(2, sizes(2)))
  of("MaxUnpool" .. n .. "d", {2}, {shape(2, sizes(2)), function(dtype)
    local even = shape(2, sizes(4))
    local all = flare.arange(2 * 2 * (4 ^ n // 1 | 0)):view(even):to(dtype)
    return select(2, flare.max_pool(all, {kernel = sizes(2), all = true}))
  end}, shape(2, sizes(4)))
  of("BatchNorm" .. n .. "d", {2}, {x}, shape(2, sizes(5)), {vmap = "counts over the batch"})
  of("InstanceNorm" .. n .. "d", {2}, {x}, shape(2, sizes(5)))
  of("Dropout" .. n .. "d", {}, {x}, shape(2, sizes(5)))
end

of("Upsample", {{scale = 2}}, {{2, 2, 3, 3}}, {2, 2, 6, 6})
of("PixelShuffle", {2}, {{2, 4, 2, 2}}, {2, 1, 4, 4})
of("PixelUnshuffle", {2}, {{2, 1, 4, 4}}, {2, 4, 2, 2})
of("ChannelShuffle", {2}, {{2, 4, 3}}, {2, 4, 3})
of("Unfold", {2}, {{2, 2, 3, 3}}, {2, 8, 4})
of("Fold", {{3, 3}, 2}, {{2, 8, 4}}, {2, 2, 3, 3})
of("Pad", {1}, {{2, 2, 3, 3}}, {2, 2, 5, 5})
of("LayerNorm", {4}, {{2, 3, 4}}, {2, 3, 4})
of("RMSNorm", {4}, {{2, 3, 4}}, {2, 3, 4})
of("GroupNorm", {2, 4}, {{2, 4, 5}}, {2, 4, 5})
of("LocalResponseNorm", {3}, {{2, 4, 3, 3}}, {2, 4, 3, 3})
of("Dropout", {0.5}, {{2, 3}}, {2, 3})
of("AlphaDropout", {0.5}, {{2, 3}}, {2, 3})
of("FeatureAlphaDropout", {0.5}, {{2, 3, 4}}, {2, 3, 4})

for _, name in ipairs {"RNN", "LSTM", "GRU"} do
  of(name, {3, 4}, {{5, 2, 3}}, {5, 2, 4}, {batch = 2, vmap = "makes its own first state"})
end
for _, name in ipairs {"RNNCell", "LSTMCell", "GRUCell"} do of(name, {3, 4}, {{2, 3}}, {2, 4}) end

local seq = {2, 3, 8}
of("MultiHeadAttention", {8, 2}, {seq}, seq)
of("TransformerBlock", {8, 2}, {seq}, seq)
of("TransformerEncoderLayer", {8, 2, {hidden = 16, act = "gelu"}}, {seq}, seq)
of("TransformerDecoderLayer", {8, 2, {hidden = 16, act = "gelu"}}, {seq, {2, 4, 8}}, seq)
of("Transformer", {8, 2, {encoder = 1, decoder = 1, hidden = 16, act = "gelu"}}, {{2, 4, 8}, seq},
   seq)
M.TransformerEncoder = {x = {seq}, y = seq, batch = 1, make = function(nn)
  return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, {hidden = 16, act = "gelu"}), 2)
end}
M.TransformerDecoder = {x = {seq, {2, 4, 8}}, y = seq, batch = 1, make = function(nn)
  return nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, {hidden = 16, act = "gelu"}), 2)
end}

local smooth = {"ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Softplus", "Softsign", "Tanhshrink",
                "Sigmoid", "LogSigmoid", "Tanh", "ReLU", "ReLU6", "LeakyReLU", "Hardtanh",
                "Hardsigmoid", "Hardswish", "Softshrink", "Hardshrink", "RReLU"}
for _, name in ipairs(smooth) do of(name, {}, {{2, 3}}, {2, 3}) end
of("Threshold", {{threshold = 0.1, value = 20}}, {{2, 3}}, {2, 3})
of("GLU", {-1}, {{2, 4}}, {2, 2})
for _, name in ipairs {"Softmax", "LogSoftmax", "Softmin"} do of(name, {-1}, {{2, 3}}, {2, 3}) end
of("PReLU", {}, {{2, 3}}, {2, 3})

local class = positions(3, 4)
local function scalar(name, args, x, more)
  local entry = {batch = false, vmap = "takes a mean over the batch"}
  for key, value in pairs(more or {}) do entry[key] = value end
  of(name, args, x, {}, entry)
end
local function share(dtype) return flare.linspace(0.1, 0.9, 12):view(4, 3):to(dtype) end
local function sign() return flare.tensor({1, -1, 1, -1}) end
scalar("CrossEntropyLoss", {}, {{4, 3}, class}, {low = "f32"})
scalar("NLLLoss", {}, {{4, 3}, class})
for _, name in ipairs {"MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "KLDivLoss",
                       "BCEWithLogitsLoss", "PoissonNLLLoss"} do
  scalar(name, {}, {{4, 3}, share})
end
scalar("BCELoss", {}, {share, share})
scalar("GaussianNLLLoss", {}, {{4, 3}, share, share})
scalar("CosineEmbeddingLoss", {}, {{4, 3}, share, sign})
scalar("MarginRankingLoss", {}, {{4}, function(d) return share(d):select(2, 1) end, sign})
scalar("TripletMarginLoss", {}, {{4, 3}, share, function(d) return share(d) + 0.3 end})
scalar("HingeEmbeddingLoss", {}, {{4}, sign})
scalar("SoftMarginLoss", {}, {{4}, sign})
scalar("MultiMarginLoss", {}, {{4, 3}, class})
scalar("MultiLabelSoftMarginLoss", {}, {{4, 3}, function(d) return share(d):gt(0.5):to(d) end})
scalar("MultiLabelMarginLoss", {}, {{2, 3}, function()
  return flare.tensor({{1, 3, 0}, {2, 0, 0}}, {dtype = "i64"})
end})
scalar("CTCLoss", {}, {{5, 2, 4}, function()
  return flare.tensor({{2, 3}, {4, 2}}, {dtype = "i64"})
end, function() return flare.tensor({5, 5}, {dtype = "i64"}) end,
  function() return flare.tensor({2, 2}, {dtype = "i64"}) end})
of("AdaptiveLogSoftmaxWithLoss", {4, 6, {2, 4}}, {{6, 4}, positions(6, 6)}, {6},
   {vmap = "looks at the classes that come"})
of("CosineSimilarity", {}, {{2, 3}, {2, 3}}, {2})
of("PairwiseDistance", {}, {{2, 3}, {2, 3}}, {2})

M.Sequential = {x = {{2, 3}}, y = {2, 2}, batch = 1, make = function(nn)
  return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
end}

-- Names that are no layers with a forward: where they are checked.
M.functions = {
  Module = "module", ModuleList = "module", ModuleDict = "module", functional = "peers",
  init = "initialize", sync_norms = "weights", measure_norms = "weights",
  from_pytorch = "weights", to_pytorch = "weights", spectral_norm = "reparametrize",
  weight_norm = "reparametrize", parametrize = "weights",
  remove_parametrization = "weights", prune = "weights",
  parameters_to_vector = "weights", vector_to_parameters = "weights", fuse_norm = "weights",
  moe_loss = "moe",
}

return M
