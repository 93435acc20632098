-- Attention with masks, dropout, few queries, and in f32, on a GPU; bench/peers/gpu_masks.py is
-- the peer. Masks: of keys (bool, for each batch), square (bool), each (bool, for each head),
-- float (bf16, for each head).
local flare = require "flare"
local m = dofile((arg[0]:match "^(.*/)" or "") .. "measure.lua")

for _, s in ipairs{{1, 12, 1024, 64}, {1, 32, 8192, 128}, {8, 32, 4096, 128}} do
  local b, h, t, d = table.unpack(s)
  local q, k, v = m.normal("bf16", b, h, 1, d), m.normal("bf16", b, h, t, d),
                  m.normal("bf16", b, h, t, d)
  m.bytes(("one query b%d h%d k%d d%d"):format(b, h, t, d), 4 * b * h * t * d, function()
    return flare.attention(q, k, v)
  end)
end

local function chance(...) return flare.rand({...}, {device = "cuda"}):gt(0.3) end

for _, s in ipairs{{"f32", 4, 16, 2048, 64}, {"bf16", 4, 16, 2048, 64}, {"bf16", 16, 12, 1024, 64},
                   {"bf16", 4, 16, 2048, 128}} do
  local dtype, b, h, t, d = table.unpack(s)
  local leaves = {m.leaf(dtype, b, h, t, d), m.leaf(dtype, b, h, t, d), m.leaf(dtype, b, h, t, d)}
  local q, k, v = table.unpack(leaves)
  local ways = {{"full", nil, {}}, {"causal", nil, {causal = true}}}
  if dtype == "bf16" then
    ways = {{"keys", chance(b, 1, 1, t), {}}, {"square", chance(t, t), {}},
            {"each", chance(b, h, t, t), {}}, {"float", m.normal("bf16", b, h, t, t), {}},
            {"dropout", nil, {dropout = 0.1}},
            {"causal dropout", nil, {causal = true, dropout = 0.1}}}
  end
  for _, way in ipairs(ways) do
    local what, mask, options = table.unpack(way, 1, 3)
    local name = ("%s b%d h%d t%d d%d %s"):format(dtype, b, h, t, d, what)
    local work = 4 * b * h * t * t * d / (options.causal and 2 or 1)
    local function attention() return flare.attention(q, k, v, mask, options) end
    m.products(name .. " forward", work, attention)
    m.backward(name .. " backward", 2.5 * work / 1e12, attention(), leaves, nil, "TFLOP/s")
  end
end
