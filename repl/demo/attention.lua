--- flare demo attention: three ways to compute attention, with their time, memory and error.
local flare = require "flare"
local measure = require "flare.repl.demo.measure"

local M = {}

M.about = "Computes attention with its scores in memory, by blocks of keys, and in one kernel."
M.options = {
  block_size = {128, "keys of a block"}, batch = {1, "sequences"}, heads = {8, "of attention"},
  seq_len = {1024, "tokens of a sequence"}, d_model = {512, "numbers of a token, in all heads"},
  causal = {false, "a token sees only those before it"},
}

-- Whether the keys first .. last are hidden from each query, or nil.
local function hidden(o, first, last, device)
  if not o.causal then return end
  local query = flare.arange(1, o.seq_len + 1, {device = device}):unsqueeze(2)
  return flare.arange(first, last + 1, {device = device}):unsqueeze(1):gt(query)
end

-- All scores, (batch, heads, tokens, tokens), at once.
local function plain(q, k, v, o)
  local scores = q:matmul(k:transpose(3, 4)) * (1 / math.sqrt(q:size(4)))
  local mask = hidden(o, 1, o.seq_len, q.device)
  if mask then scores = scores:masked_fill(mask, -math.huge) end
  return scores:softmax(-1):matmul(v)
end

-- Online softmax (arXiv:1805.02867): what was added up is scaled down as a larger score comes.
local function by_blocks(q, k, v, o)
  local scale, sum, total, most = 1 / math.sqrt(q:size(4)), nil, nil, nil
  for first = 1, o.seq_len, o.block_size do
    local last = math.min(o.seq_len, first + o.block_size - 1)
    local n = last - first + 1
    local scores = q:matmul(k:narrow(3, first, n):transpose(3, 4)) * scale
    local mask = hidden(o, first, last, q.device)
    if mask then scores = scores:masked_fill(mask, -math.huge) end
    local top = scores:amax{dims = -1, keepdim = true}
    if most then top = flare.maximum(top, most) end
    local p = (scores - top):exp()
    local part, parts = p:matmul(v:narrow(3, first, n)), p:sum{dims = -1, keepdim = true}
    if most then
      local shrink = (most - top):exp()
      part, parts = part + sum * shrink, parts + total * shrink
    end
    sum, total, most = part, parts, top
  end
  return sum / total
end

local function fused(q, k, v, o) return (flare.attention(q, k, v, {causal = o.causal})) end

--- @param o the options
function M.run(o)
  if o.block_size < 1 then error("--block-size must be at least 1", 0) end
  if o.d_model % o.heads ~= 0 then
    error(("--d-model %d is no multiple of --heads %d"):format(o.d_model, o.heads), 0)
  end
  flare.manual_seed(o.seed)
  local shape = {o.batch, o.heads, o.seq_len, o.d_model // o.heads}
  local function random() return flare.randn(shape):to(o.device):to(o.dtype) end
  local q, k, v = random(), random(), random()
  local exact = flare.no_grad(plain, q:to "f64", k:to "f64", v:to "f64", o)
  print(("%d x %d heads x %d tokens x %d, %s on %s%s"):format(shape[1], shape[2], shape[3],
        shape[4], o.dtype, o.device, o.causal and ", causal" or ""))
  print(("%-22s %12s %14s %12s"):format("", "time", "most memory", "error"))
  local blocks = ("blocks of %d keys"):format(o.block_size)
  for _, way in ipairs{{"scores in memory", plain}, {blocks, by_blocks},
                       {"flare.attention", fused}} do
    local function run() return flare.no_grad(way[2], q, k, v, o) end
    local off = (run():to "f64" - exact):abs():amax():item()
    print(("%-22s %12s %14s %12.2g"):format(way[1], measure.time(measure.seconds(run)),
          measure.bytes(measure.peak(run, o.device)), off))
    if o.profile_memory then measure.show_memory(run) end
  end
end

return M
