--- Fused operators of the domain com.microsoft, which onnxruntime writes when it optimizes and
-- saves a model: products, norms and activations in one, attention.
local core = require "flare.core"
local attention = require "flare.onnx.attention"
local conv = require "flare.onnx.conv"
local linear = require "flare.onnx.linear"
local norm = require "flare.onnx.norm"

local M = {}

-- A copy of the node with further attributes, for an ONNX operator that computes the rest.
local function with(n, attr)
  return setmetatable({attr = setmetatable(attr, {__index = n.attr}), version = false},
                      {__index = n})
end

-- --- activations ---

function M.Gelu(_, x) return x:gelu() end
function M.BiasGelu(_, x, bias) return (x + bias):gelu() end
function M.FastGelu(_, x, bias) return (bias and x + bias or x):gelu "tanh" end
function M.QuickGelu(n, x) return x * (x * (n.attr.alpha or 1.702)):sigmoid() end

local activations = {
  Relu = function(x) return x:relu() end,
  Tanh = function(x) return x:tanh() end,
  Sigmoid = function(x) return x:sigmoid() end,
  LeakyRelu = function(x, alpha) return x:leaky_relu(alpha or 0.01) end,
  Clip = function(x, low, high) return x:clamp(low, high) end,
  HardSigmoid = function(x, a, b) return (x * (a or 0.2) + (b or 0.5)):clamp(0, 1) end,
}

local function activated(n, x, alpha, beta)
  local name = n.attr.activation or ""
  if name == "" then return x end
  if not activations[name] then n:fail("there is no activation '%s'", name) end
  return activations[name](x, alpha, beta)
end

-- --- products ---

function M.FusedMatMul(n, a, b)
  local function turned(x, batches, last)
    local rank = x:dim()
    if batches == 1 and rank > 2 then x = x:movedim(1, rank - 1) end
    return last == 1 and rank > 1 and x:transpose(rank - 1, rank) or x
  end
  local y = turned(a, n.attr.transBatchA, n.attr.transA)
    :matmul(turned(b, n.attr.transBatchB, n.attr.transB))
  local alpha = n.attr.alpha or 1
  return alpha == 1 and y or (y * alpha):to(a.dtype)
end

function M.FusedGemm(n, a, b, c)
  return activated(n, linear.Gemm(n, a, b, c), n.attr.activation_alpha, n.attr.activation_beta)
end

function M.FusedConv(n, x, weight, bias, more)
  local y = conv.conv(n, x, weight, bias)
  return activated(n, more and y + more or y, table.unpack(n.attr.activation_params or {}))
end

-- --- norms ---

function M.SimplifiedLayerNormalization(n, x, scale) return norm.RMSNormalization(n, x, scale) end

-- Norms of a sum, which is the fourth output. The second and third are for training only.
local function of_sum(f)
  return function(n, x, skip, scale, ...)
    local bias, more = f(...)
    local sum = x + skip
    if more then sum = sum + more end
    if n:wants(2) or n:wants(3) then n:fail "mean and deviation are not given" end
    local y
    if bias == false then
      y = norm.RMSNormalization(with(n, {axis = -1, epsilon = n.attr.epsilon or 1e-12}), sum, scale)
    else
      y = sum:layer_norm{weight = scale, bias = bias, eps = n.attr.epsilon or 1e-12}
    end
    return y, nil, nil, sum
  end
end

M.SkipLayerNormalization = of_sum(function(bias, more) return bias, more end)
M.SkipSimplifiedLayerNormalization = of_sum(function(more) return false, more end)

function M.EmbedLayerNormalization(n, ids, segments, words, places, kinds, scale, bias, mask, at)
  local batch, length = ids.shape[1], ids.shape[2]
  local function rows(table_, index)
    return table_:index_select(1, index:reshape(-1), {base = 0}):reshape(index.shape[1], length, -1)
  end
  local sum = rows(words, ids)
    + (at and rows(places, at) or places:narrow(1, 1, length):unsqueeze(1))
  if segments then sum = sum + rows(kinds, segments) end
  local y = sum:layer_norm{weight = scale, bias = bias, eps = n.attr.epsilon or 1e-12}
  local counts = mask and mask:to("i32"):sum(2):to("i32")
    or core.zeros({batch}, {dtype = "i32", device = ids.device})
  return y, counts, sum
end

-- --- attention ---

local function split(x, heads)
  return x:reshape(x.shape[1], x.shape[2], heads, -1):transpose(2, 3)
end

-- The bias of a mask: from lengths, from lengths and starts, or from zeros where attention is
-- not allowed.
local function mask_bias(n, mask, q, keys)
  local batch = q.shape[1]
  if mask:dim() == 1 then
    local at = core.arange(0, keys, {device = q.device})
    local seen = at:lt(mask:narrow(1, 1, batch):unsqueeze(2))
    if mask.shape[1] == 2 * batch then
      seen = seen:logical_and(at:ge(mask:narrow(1, batch + 1, batch):unsqueeze(2)))
    elseif mask.shape[1] ~= batch then
      n:fail("a mask of %d elements for a batch of %d", mask.shape[1], batch)
    end
    mask = seen
  end
  if mask:dim() == 2 then mask = mask:unsqueeze(2) end
  if mask:dim() ~= 3 then n:fail("a mask of %d dims", mask:dim()) end
  return (1 - mask:unsqueeze(2):to(q.dtype)) * (n.attr.mask_filter_value or -10000)
end

local function attend(n, q, k, v, mask, more)
  local rows, keys = q.shape[3], k.shape[3]
  local bias = mask and mask_bias(n, mask, q, keys) or nil
  if more then bias = bias and bias + more or more end
  if n.attr.unidirectional == 1 then
    local options = {device = q.device}
    local seen = core.arange(0, keys, options)
      :le(core.arange(keys - rows, keys, options):unsqueeze(2))
    local causal = core.zeros({rows, keys}, {dtype = q.dtype, device = q.device})
      :masked_fill(~seen, -math.huge)
    bias = bias and bias + causal or causal
  end
  local scale = n.attr.scale or 0
  local y = core.attention(q, k, v, {mask = bias, scale = scale ~= 0 and scale or nil})
  return y:transpose(2, 3):reshape(q.shape[1], rows, -1)
end

function M.Attention(n, x, weight, bias, mask, past, more)
  if n.attr.do_rotary == 1 then n:fail "do_rotary is not supported" end
  local all = x:matmul(weight)
  if bias then all = all + bias end
  local sizes, parts, first = n.attr.qkv_hidden_sizes or {}, {}, 1
  for k = 1, 3 do
    local size = sizes[k] or all.shape[3] // 3
    parts[k], first = split(all:narrow(3, first, size), n.attr.num_heads), first + size
  end
  local q, k, v = table.unpack(parts)
  if past then
    k, v = core.cat({past:select(1, 1), k}, 3), core.cat({past:select(1, 2), v}, 3)
  end
  return attend(n, q, k, v, mask, more), n:wants(2) and core.stack({k, v}, 1) or nil
end

function M.MultiHeadAttention(n, q, k, v, bias, mask, more, past_key, past_value)
  local heads = n.attr.num_heads
  if q:dim() == 5 then -- all three in one: (batch, length, heads, 3, size)
    q, k, v = q:select(4, 1):flatten(3), q:select(4, 2):flatten(3), q:select(4, 3):flatten(3)
  elseif k:dim() == 5 then
    k, v = k:select(4, 1):flatten(3), k:select(4, 2):flatten(3)
  end
  local first = 1
  local function ready(x)
    if x:dim() == 4 then return x end
    local size = x.shape[3]
    if bias then x, first = x + bias:narrow(1, first, size), first + size end
    return split(x, heads)
  end
  q, k, v = ready(q), ready(k), ready(v)
  if past_key then k, v = core.cat({past_key, k}, 3), core.cat({past_value, v}, 3) end
  return attend(n, q, k, v, mask, more), k, v
end

-- As ONNX has it, with positions before the tables; one position is that of the first token.
function M.RotaryEmbedding(n, x, positions, cos, sin)
  local length = x.shape[x:dim() - 1]
  if positions:numel() == 1 then
    positions = (positions:reshape(1, 1) + core.arange(0, length, {device = x.device}))
      :expand(x.shape[1], length)
  end
  local heads = n.attr.num_heads or 0
  if heads == 0 then heads = x.shape[x:dim()] // (2 * cos.shape[2]) end
  return attention.RotaryEmbedding(with(n, {num_heads = heads}), x, cos, sin, positions)
end

return M
