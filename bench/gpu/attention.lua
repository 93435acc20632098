-- Attention on a GPU, forward and backward: 16384 tokens of 2048 columns in heads of 64 and of
-- 128, and GPT-2's shapes. bench/peers/gpu_attention.py is the peer. A causal product
-- counts half.
local flare = require "flare"
local m = dofile((arg[0]:match "^(.*/)" or "") .. "measure.lua")

local shapes = {{16, 12, 1024, 64}, {64, 12, 1024, 64}}
for _, d in ipairs{64, 128} do
  for _, t in ipairs{1024, 2048, 4096, 8192, 16384} do
    shapes[#shapes + 1] = {16384 // t, 2048 // d, t, d}
  end
end
for _, s in ipairs(shapes) do
  local b, h, t, d = table.unpack(s)
  local leaves = {m.leaf("bf16", b, h, t, d), m.leaf("bf16", b, h, t, d),
                  m.leaf("bf16", b, h, t, d)}
  local q, k, v = table.unpack(leaves)
  for _, causal in ipairs{false, true} do
    local name = ("b%d h%d t%d d%d %s"):format(b, h, t, d, causal and "causal" or "full")
    local work = 4 * b * h * t * t * d / (causal and 2 or 1)
    local function attention() return flare.attention(q, k, v, nil, {causal = causal}) end
    m.products(name .. " forward", work, attention, "0.90 x")
    m.backward(name .. " backward", 2.5 * work / 1e12, attention(), leaves, "0.90 x", "TFLOP/s")
  end
end
