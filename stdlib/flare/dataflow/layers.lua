--- Models as lists of layers with their costs, which schemes make schedules of.
--
-- A layer is a table {name, forward, backward, weights (lists of costs: the forward pass, the
-- gradient of its input, the gradients of its parameters), parameters, gradients, states (bytes),
-- saved (bytes that forward keeps for backward), output (bytes of its result)}, all for one
-- micro-batch.
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

local shapes = {
  gpt2 = {layers = 12, width = 768, heads = 12, inner = 3072, vocabulary = 50257, tied = true},
  ["gpt2-xl"] = {layers = 48, width = 1600, heads = 25, inner = 6400, vocabulary = 50257,
                 tied = true},
  ["llama-1b"] = {layers = 16, width = 2048, heads = 32, kv_heads = 8, inner = 8192, gated = true,
                  vocabulary = 128256, tied = true},
  ["llama-8b"] = {layers = 32, width = 4096, heads = 32, kv_heads = 8, inner = 14336, gated = true,
                  vocabulary = 128256},
  ["llama-70b"] = {layers = 80, width = 8192, heads = 64, kv_heads = 8, inner = 28672, gated = true,
                   vocabulary = 128256},
}

local sizes = {f32 = 4, tf32 = 4, bf16 = 2, f16 = 2, fp8 = 1}

-- A layer of n parameters in products, for t tokens. Attention of `attended` pairs of positions.
local function block(c, o, size)
  local t, w = o.batch * o.length, c.width
  local kv = w // c.heads * (c.kv_heads or c.heads)
  local inner = c.gated and 3 or 2
  local products = w * (w + 2 * kv) + w * w + inner * w * c.inner
  local n = products + 2 * w
  local pairs_ = o.batch * o.length * (o.length + 1) / 2 -- causal
  -- reads and writes of activations: products read and write each of their operands once, norms,
  -- additions and the activation read and write theirs
  local moved = size * t * (2 * w + 2 * kv + 2 * w + inner * (w + c.inner))
  local pointwise = size * t * (10 * w + (c.gated and 3 or 2) * c.inner)
  local function product()
    return {flops = 2 * products * t, bytes = size * products + moved, dtype = o.dtype,
            kind = "product"}
  end
  local function attention(passes)
    return {flops = passes * 2 * pairs_ * w, bytes = size * t * (2 * w + 2 * kv),
            dtype = o.dtype, kind = "attention"}
  end
  local function rest(times) return {bytes = times * pointwise, kind = "elementwise"} end
  return {forward = {product(), attention(2), rest(1)},
    backward = {product(), attention(5), rest(2)}, weights = {product()},
    parameters = n * o.parameter_bytes, gradients = n * o.gradient_bytes,
    states = n * o.state_bytes, count = n, output = size * t * w,
    saved = size * t * (6 * w + 2 * kv + (c.gated and 3 or 2) * c.inner)}
end

local function embedding(c, o, size)
  local t, n = o.batch * o.length, c.vocabulary * c.width
  local look = {bytes = 2 * size * t * c.width, kind = "elementwise"}
  return {name = "embedding", forward = {look}, backward = {}, weights = {look}, count = n,
    parameters = n * o.parameter_bytes, gradients = n * o.gradient_bytes,
    states = n * o.state_bytes, output = size * t * c.width, saved = 8 * t}
end

local function head(c, o, size)
  local t, n = o.batch * o.length, c.vocabulary * c.width
  local function product()
    return {flops = 2 * n * t, bytes = size * (n + t * (c.width + c.vocabulary)), dtype = o.dtype,
            kind = "product"}
  end
  local loss = {bytes = 2 * size * t * c.vocabulary, kind = "elementwise"}
  local own = c.tied and 0 or n
  return {name = "head", forward = {product(), loss}, backward = {product(), loss},
    weights = {product()}, parameters = own * o.parameter_bytes, count = own,
    gradients = own * o.gradient_bytes, states = own * o.state_bytes, output = 0,
    saved = size * t * (2 * c.width + c.vocabulary)}
end

--- A transformer as a list of layers: an embedding, blocks, a head with the loss. Costs are those
-- of training with causal attention that keeps no scores (flash attention), without dropout.
-- @param shape "gpt2", "gpt2-xl", "llama-1b", "llama-8b", "llama-70b", or a table {layers, width,
--   heads, kv_heads = heads, inner, vocabulary, gated = false: SwiGLU, tied = false: the head's
--   weight is the embedding's}
-- @param opts {batch = 1 sequences of a micro-batch, length = 2048, dtype = "bf16",
--   parameter_bytes = those of dtype, gradient_bytes = the same, state_bytes = 12: a parameter in
--   f32 and AdamW's two averages}
-- @return a list of layers; its field `tokens` is the number of a micro-batch, `count` that of
--   the parameters
function M.transformer(shape, opts)
  local o = options.check("dataflow.transformer", opts, {batch = 1, length = 2048, dtype = "bf16",
    parameter_bytes = options.none, gradient_bytes = options.none, state_bytes = 12})
  options.count("dataflow.transformer", "batch", o.batch)
  options.count("dataflow.transformer", "length", o.length)
  local size = sizes[o.dtype]
  if not size then
    fail("dataflow.transformer: unknown dtype '%s'%s", o.dtype, options.hint(o.dtype, sizes))
  end
  o.parameter_bytes = o.parameter_bytes or size
  o.gradient_bytes = o.gradient_bytes or size
  local c = shape
  if type(shape) == "string" then
    c = shapes[shape]
    if not c then
      fail("dataflow.transformer: there is no shape '%s'%s", shape, options.hint(shape, shapes))
    end
  end
  c = options.check("dataflow.transformer", c, {layers = options.none, width = options.none,
    heads = options.none, kv_heads = options.none, inner = options.none,
    vocabulary = options.none, gated = false, tied = false})
  for _, key in ipairs {"layers", "width", "heads", "inner", "vocabulary"} do
    options.count("dataflow.transformer", key, c[key])
  end
  local list = {embedding(c, o, size)}
  for k = 1, c.layers do
    list[k + 1] = block(c, o, size)
    list[k + 1].name = "block " .. k
  end
  list[#list + 1] = head(c, o, size)
  list.tokens, list.count = o.batch * o.length, 0
  for _, layer in ipairs(list) do list.count = list.count + layer.count end
  return list
end

--- Layers that are all alike, with times instead of costs.
-- @param opts {layers = 8, forward, backward, weights = 1: seconds of a layer's passes,
--   parameters, gradients, states, saved, output = 0: bytes}
function M.uniform(opts)
  local o = options.check("dataflow.uniform", opts, {layers = 8, forward = 1, backward = 1,
    weights = 1, parameters = 0, gradients = 0, states = 0, saved = 0, output = 0})
  local list = {}
  for k = 1, options.count("dataflow.uniform", "layers", o.layers) do
    list[k] = {name = "layer " .. k, forward = {{seconds = o.forward}},
      backward = {{seconds = o.backward}}, weights = {{seconds = o.weights}},
      parameters = o.parameters, gradients = o.gradients, states = o.states, saved = o.saved,
      output = o.output}
  end
  return list
end

return M
