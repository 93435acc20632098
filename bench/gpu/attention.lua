-- Attention on a GPU; bench/peers/gpu_attention.py is the peer. A causal product counts half.
local flare = require "flare"
local m = dofile((arg[0]:match "^(.*/)" or "") .. "measure.lua")

-- Forward alone, then forward and backward.
local function both(name, q, k, v, mask, options, work)
  m.products(name .. " forward", work, function()
    return flare.attention(q, k, v, mask, options)
  end)
  local dy = m.normal(q.dtype, table.unpack(q.shape))
  m.show(name .. " forward and backward", m.seconds(function()
    local y <close> = flare.attention(q, k, v, mask, options)
    y:backward(dy)
    q.grad, k.grad, v.grad = nil, nil, nil
  end), 3.5 * work / 1e12, "TFLOP/s")
end

for _, s in ipairs{{4, 16, 4096, 128}, {1, 16, 16384, 128}, {16, 12, 1024, 64},
                   {16, 12, 1152, 64}, {64, 12, 1024, 64}, {1, 32, 16384, 64}} do
  local b, h, t, d = table.unpack(s)
  local q, k, v = m.leaf("bf16", b, h, t, d), m.leaf("bf16", b, h, t, d),
                  m.leaf("bf16", b, h, t, d)
  for _, causal in ipairs{false, true} do
    local name = ("bf16 b%d h%d t%d d%d %s"):format(b, h, t, d, causal and "causal" or "full")
    both(name, q, k, v, nil, {causal = causal}, 4 * b * h * t * t * d // (causal and 2 or 1))
  end
end

for _, s in ipairs{{1, 12, 1024, 64}, {1, 32, 8192, 128}, {8, 32, 4096, 128}} do
  local b, h, t, d = table.unpack(s)
  local q, k, v = m.normal("bf16", b, h, 1, d), m.normal("bf16", b, h, t, d),
                  m.normal("bf16", b, h, t, d)
  m.bytes(("decode bf16 b%d h%d k%d d%d"):format(b, h, t, d), 4 * b * h * t * d, function()
    return flare.attention(q, k, v)
  end)
end

local function square(dtype) return m.leaf(dtype, 4, 16, 2048, 64) end
local work = 4 * 4 * 16 * 2048 * 2048 * 64
do
  local x = square "f32"
  m.products("f32 b4 h16 t2048 d64 full forward", work, function()
    return flare.attention(x, x, x)
  end)
end
local q, k, v = square "bf16", square "bf16", square "bf16"
local keys = flare.rand({4, 1, 1, 2048}, {device = "cuda"}):gt(0.3)
both("bf16 b4 h16 t2048 d64 bool keys", q, k, v, keys, {}, work)
both("bf16 b4 h16 t2048 d64 dropout", q, k, v, nil, {dropout = 0.1}, work)
