--- Attention and related operators: caches of keys and values, rotary embeddings, linear
-- recurrences.
local core = require "flare.core"
local types = require "flare.onnx.types"

local M = {}

-- (batch, length, heads * size) as (batch, heads, length, size), and back.
local function split(x, heads)
  return x:reshape(x.shape[1], x.shape[2], heads, -1):transpose(2, 3)
end

local function join(x)
  return x:transpose(2, 3):reshape(x.shape[1], x.shape[3], -1)
end

local inf = math.huge

-- The bias that is added to the scores: the mask, -inf for keys in the future or outside the
-- window, and for padding. The first query has as many keys before it as the cache holds; where
-- keys are padded, the queries are the last keys that are not padding, in each batch.
local function bias_of(n, q, keys, mask, past, lengths)
  local a, dtype, rows, device = n.attr, q.dtype, q.shape[3], q.device
  local zero = core.zeros({}, {dtype = dtype, device = device})
  local never = core.full({}, -inf, {dtype = dtype, device = device})
  local bias
  if mask then
    bias = mask.dtype == "bool" and core.where(mask, zero, never) or mask
    local missing = keys - bias.shape[bias:dim()]
    if missing > 0 then bias = bias:pad({0, missing}, "constant", -inf) end
  end
  local columns = core.arange(0, keys, {device = device})
  local function forbid(allowed)
    local more = core.where(allowed, zero, never)
    bias = bias and bias + more or more
  end
  lengths = lengths and lengths:to("i64"):reshape(-1, 1, 1, 1)
  local at = core.arange(0, rows, {device = device}):unsqueeze(2)
    + (lengths and lengths - rows or past)
  local left, right = a.left_window_size or -1, a.right_window_size or -1
  if a.is_causal == 1 then right = right < 0 and 0 or math.min(right, 0) end
  if right >= 0 then forbid(columns:le(at + right)) end
  if left >= 0 then forbid(columns:ge(at - left)) end
  if lengths then forbid(columns:lt(lengths)) end
  return bias
end

-- Attention with explicit scores: the result, and the stage of the scores for the fourth output.
local function by_steps(a, q, k, v, bias)
  local groups = q.shape[2] // k.shape[2]
  if groups > 1 then k, v = k:repeat_interleave(groups, 2), v:repeat_interleave(groups, 2) end
  local root = math.sqrt(a.scale or 1 / math.sqrt(q.shape[4]))
  local scores = (q * root):matmul((k * root):transpose(3, 4))
  local mode, seen = a.qk_matmul_output_mode or 0, scores
  if (a.softcap or 0) > 0 then scores = (scores / a.softcap):tanh() * a.softcap end
  if mode == 1 then seen = scores end
  if bias then scores = scores + bias end
  if mode == 2 then seen = scores end
  if a.softmax_precision then
    scores = scores:to(types.dtype(a.softmax_precision, "softmax of Attention"))
  end
  local weights = scores:softmax(-1)
  if bias then -- a query that may see nothing gives zeros, as the fused operator has it
    weights = weights:masked_fill(scores:eq(-math.huge):all(-1, {keepdim = true}), 0)
  end
  if mode == 3 then seen = weights end
  return weights:to(v.dtype):matmul(v):to(q.dtype), seen:to(q.dtype)
end

function M.Attention(n, q, k, v, mask, past_key, past_value, lengths)
  local a, flat = n.attr, q:dim() == 3
  if flat then
    q, k, v = split(q, a.q_num_heads), split(k, a.kv_num_heads), split(v, a.kv_num_heads)
  end
  local past = past_key and past_key.shape[3] or 0
  if past_key then k = core.cat({past_key, k}, 3) end
  if past_value then v = core.cat({past_value, v}, 3) end
  local windowed = (a.left_window_size or -1) >= 0 or (a.right_window_size or -1) >= 0
  local square = a.is_causal == 1 and not windowed and not mask and not lengths and past == 0
    and q.shape[3] == k.shape[3]
  local y, seen
  if n:wants(4) or (a.softcap or 0) > 0 or a.softmax_precision then
    y, seen = by_steps(a, q, k, v, bias_of(n, q, k.shape[3], mask, past, lengths))
  else
    if not square then mask = bias_of(n, q, k.shape[3], mask, past, lengths) end
    y = core.attention(q, k, v, {mask = mask, causal = square, scale = a.scale})
  end
  return flat and join(y) or y, k, v, seen
end

-- A causal depthwise convolution over past positions.
function M.CausalConvWithState(n, x, weight, bias, state)
  local act = n:choice("activation", "none", {none = true, silu = true, swish = true})
  local size, before = weight.shape[3], state
  if not before then
    before = core.zeros({x.shape[1], x.shape[2], size - 1}, {dtype = x.dtype, device = x.device})
  end
  local all = core.cat({before, x}, 3)
  local y = all:conv(weight, {bias = bias, groups = x.shape[2]})
  if act ~= "none" then y = y:silu() end
  return y, all:narrow(3, all.shape[3] - size + 2, size - 1)
end

local rules = {linear = true, gated = true, delta = true, gated_delta = true}

function M.LinearAttention(n, q, k, v, state, decay, beta)
  local a, dtype = n.attr, q.dtype
  local rule = n:choice("update_rule", "gated_delta", rules)
  local gated, delta = rule:find "gated" ~= nil, rule:find "delta" ~= nil
  if gated ~= (decay ~= nil) or delta ~= (beta ~= nil) then
    n:fail("update_rule %s takes %s decay and %s beta", rule, gated and "a" or "no",
           delta and "a" or "no")
  end
  local function heads(x, count) return x and split(x:to("f32"), count) end
  local queries, keys = heads(q, a.q_num_heads), heads(k, a.kv_num_heads)
  local values, gate = heads(v, a.kv_num_heads), heads(decay, a.kv_num_heads)
  local rate = beta and heads(beta, beta.shape[3])
  local batch, size, out = q.shape[1], keys.shape[4], values.shape[4]
  local s = state and state:to("f32")
    or core.zeros({batch, a.kv_num_heads, size, out}, {device = q.device})
  local groups, ys = a.q_num_heads // a.kv_num_heads, {}
  for t = 1, q.shape[2] do
    local kt, vt = keys:select(3, t), values:select(3, t)
    if gated then s = s * gate:select(3, t):exp():unsqueeze(4) end
    if delta then
      vt = rate:select(3, t) * (vt - kt:unsqueeze(3):matmul(s):squeeze(3))
    end
    s = s + kt:unsqueeze(4) * vt:unsqueeze(3)
    local read = groups > 1 and s:repeat_interleave(groups, 2) or s
    ys[t] = queries:select(3, t):unsqueeze(3):matmul(read)
  end
  local scale = a.scale and a.scale ~= 0 and a.scale or 1 / math.sqrt(size)
  return join(core.cat(ys, 3) * scale):to(dtype), s:to(state and state.dtype or dtype)
end

function M.RotaryEmbedding(n, x, cos, sin, positions)
  local a, four = n.attr, x:dim() == 4
  local heads = four and x:transpose(2, 3)
    or x:reshape(x.shape[1], x.shape[2], a.num_heads, -1)
  local size = heads.shape[4]
  local turned = (a.rotary_embedding_dim or 0) > 0 and a.rotary_embedding_dim or size
  local half = turned // 2
  if positions then
    local function at(cache)
      return cache:index_select(1, positions:reshape(-1), {base = 0})
                  :reshape(positions.shape[1], positions.shape[2], -1)
    end
    cos, sin = at(cos), at(sin)
  end
  cos, sin = cos:unsqueeze(3), sin:unsqueeze(3)
  local x1, x2
  if a.interleaved == 1 then
    x1, x2 = heads:narrow(4, 1, half, 2), heads:narrow(4, 2, half, 2)
  else
    x1, x2 = heads:narrow(4, 1, half), heads:narrow(4, half + 1, half)
  end
  local real, imaginary = cos * x1 - sin * x2, sin * x1 + cos * x2
  local y
  if a.interleaved == 1 then
    y = core.stack({real, imaginary}, 5):flatten(4)
  else
    y = core.cat({real, imaginary}, 4)
  end
  if turned < size then y = core.cat({y, heads:narrow(4, turned + 1, size - turned)}, 4) end
  return four and y:transpose(2, 3) or y:reshape(n:shape(x))
end

-- Writes new rows into a cache, each batch from its own position on.
function M.TensorScatter(n, cache, update, places)
  local dim = n:axis(n.attr.axis or -2, cache:dim())
  local circular = n:choice("mode", "linear", {linear = true, circular = true}) == "circular"
  local size, count, rows = cache.shape[dim], update.shape[dim], {}
  local starts = n:list(places)
  for b = 1, cache.shape[1] do
    local list = {}
    for k = 0, count - 1 do
      local at = (starts and starts[b] or 0) + k
      list[k + 1] = circular and at % size or at
    end
    rows[b] = cache:select(1, b):index_copy(dim - 1, n:ints(list), update:select(1, b), {base = 0})
  end
  return core.stack(rows, 1)
end

return M
