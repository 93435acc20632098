-- Benchmarks with targets; bench/gpu/measure.lua describes how targets are written, and
-- bench/peers/gpu_targets.py is the peer. GB/s are of the least bytes. cross_entropy reads its
-- scores twice and writes their gradient.
local flare = require "flare"
local m = dofile((arg[0]:match "^(.*/)" or "") .. "measure.lua")
local bytes, products, backward, normal, leaf = m.bytes, m.products, m.backward, m.normal, m.leaf

do
  local lines, n = 16384, 4096
  local x, w, b = leaf("bf16", lines, n), leaf("bf16", n), leaf("bf16", n)
  local y, z, size = normal("bf16", lines, n), normal("bf16", lines, n), lines * n * 2
  bytes("copy", 2 * size, function() return x:clone() end)
  local fused = flare.elementwise("T x, T y, T z", "T r", "r = relu(x * y + z)")
  bytes("relu(x * y + z)", 4 * size, function() return fused(x, y, z) end, "90 %")
  bytes("softmax", 2 * size, function() return x:softmax(-1) end, "85 %")
  bytes("layer_norm", 2 * size, function() return flare.layer_norm(x, w, b) end, "85 %")
  bytes("rms_norm", 2 * size, function() return flare.rms_norm(x, w) end, "85 %")
  backward("softmax backward", 3 * size, x:softmax(-1), {x}, "75 %")
  backward("layer_norm backward", 3 * size, flare.layer_norm(x, w, b), {x, w, b}, "75 %")
  backward("rms_norm backward", 3 * size, flare.rms_norm(x, w), {x, w}, "75 %")
  bytes("transpose", 2 * size, function() return y:t():contiguous() end, "85 %")
end

do
  local x = leaf("bf16", 8192, 50304)
  local at = flare.randint(1, 50305, {8192}, {device = "cuda"})
  m.show("cross_entropy and backward", m.seconds(function()
    local loss <close> = flare.cross_entropy(x, at)
    loss:backward()
    x.grad = nil
  end), 3 * x:numel() * 2 / 1e9, "GB/s", "85 %")
end

do
  local parameters = {}
  for i = 1, 148 do
    parameters[i] = leaf("f32", 878, 1000)
    parameters[i].grad = normal("f32", 878, 1000)
  end
  local adam = flare.optim.AdamW(parameters, {lr = 1e-4})
  bytes("AdamW 130M", 148 * 878000 * 28, function() adam:step() end, "85 %")
end
collectgarbage()

do
  local x = m.last(normal("bf16", 256, 128, 28, 28))
  local w = m.last(normal("bf16", 128, 128, 3, 3))
  local options, work = {padding = 1}, 2 * x:numel() * 128 * 9
  products("conv 3x3 channels last", work, function() return flare.conv(x, w, nil, options) end,
           "1.00 x")
  products("conv 3x3 channels last, both gradients", 2 * work, function()
    return flare.conv_input_grad(x, w, x.shape, options),
           flare.conv_weight_grad(x, x, w.shape, options)
  end, "1.00 x")
end

for _, n in ipairs{256, 512, 1024, 2048, 4096, 8192} do
  local a, b = normal("bf16", n, n), normal("bf16", n, n)
  products("product " .. n, 2 * n ^ 3, function() return a:matmul(b) end,
           n < 1024 and "1.20 x" or "1.00 x")
end

do
  local x, w = normal("bf16", 16384, 4096), normal("bf16", 16384, 4096)
  local b = normal("bf16", 16384)
  for _, act in ipairs{"gelu", "gelu_tanh"} do
    products("linear " .. act, 2 * 16384 * 4096 * 16384, function()
      return flare.linear(x, w, b, {act = act})
    end, "1.15 x")
  end
end
