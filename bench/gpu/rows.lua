-- Elementwise rows, reductions, softmax, norms and cross_entropy on a GPU; the peer is
-- bench/peers/gpu_rows.py.
local flare = require "flare"
local m = dofile((arg[0]:match "^(.*/)" or "") .. "measure.lua")
local bytes, backward, leaf = m.bytes, m.backward, m.leaf

do
  local lines, n = 16384, 4096
  local x, w, b = leaf("bf16", lines, n), leaf("bf16", n), leaf("bf16", n)
  local size = lines * n * 2
  bytes("copy bf16", 2 * size, function() return x:clone() end)
  bytes("transpose bf16", 2 * size, function() return x:t():contiguous() end)
  bytes("add bf16", 3 * size, function() return x + x end)
  for _, way in ipairs{"gelu", "silu", "tanh", "exp"} do
    bytes(way .. " bf16", 2 * size, function() return x[way](x) end)
    backward(way .. " backward bf16", 3 * size, x[way](x), {x})
  end
  bytes("gelu tanh bf16", 2 * size, function() return x:gelu{approx = "tanh"} end)
  bytes("softmax bf16", 2 * size, function() return x:softmax(-1) end)
  bytes("log_softmax bf16", 2 * size, function() return x:log_softmax(-1) end)
  bytes("layer_norm bf16", 2 * size, function() return flare.layer_norm(x, w, b) end)
  bytes("rms_norm bf16", 2 * size, function() return flare.rms_norm(x, w) end)
  backward("softmax backward bf16", 3 * size, x:softmax(-1), {x})
  backward("layer_norm backward bf16", 3 * size, flare.layer_norm(x, w, b), {x, w, b})
  backward("rms_norm backward bf16", 3 * size, flare.rms_norm(x, w), {x, w})
  bytes("sum bf16", size, function() return x:sum() end)
  bytes("sum of rows bf16", size, function() return x:sum{dims = {2}} end)
  bytes("sum of columns bf16", size, function() return x:sum{dims = {1}} end)
  bytes("var of rows bf16", size, function() return x:var{dims = {2}} end)
  bytes("argmax of rows bf16", size, function() return x:argmax(2) end)
  bytes("cumsum of rows bf16", 2 * size, function() return x:cumsum(2) end)
  bytes("cumsum of columns bf16", 2 * size, function() return x:cumsum(1) end)
end

do
  local x = m.normal("f32", 8192, 4096)
  local size = x:numel() * 4
  bytes("sum f32", size, function() return x:sum() end)
  bytes("sum of columns f32", size, function() return x:sum{dims = {1}} end)
  bytes("softmax f32", 2 * size, function() return x:softmax(-1) end)
  bytes("softmax of columns f32", 2 * size, function() return x:softmax(1) end)
end

do
  local x, w, b = leaf("bf16", 256, 256, 28, 28), leaf("bf16", 256), leaf("bf16", 256)
  local size = x:numel() * 2
  local function batch_norm() return flare.batch_norm(x, w, b, nil, nil, {training = true}) end
  bytes("sum of channels NCHW bf16", size, function() return x:sum{dims = {1, 3, 4}} end)
  bytes("batch_norm NCHW bf16", 3 * size, batch_norm)
  backward("batch_norm backward NCHW bf16", 5 * size, batch_norm(), {x, w, b})
  bytes("group_norm 32 NCHW bf16", 3 * size, function()
    return flare.group_norm(x, w, b, {groups = 32})
  end)
end

for _, classes in ipairs{50304, 50257} do
  local x = leaf("bf16", 8192, classes)
  local targets = flare.randint(1, classes + 1, {8192}, {device = "cuda"})
  local size = x:numel() * 2
  local name = "cross_entropy bf16 " .. classes
  bytes(name, size, function() return flare.cross_entropy(x, targets) end)
  m.show(name .. " and backward", m.seconds(function()
    local loss <close> = flare.cross_entropy(x, targets)
    loss:backward()
    x.grad = nil
  end), 3 * size / 1e9, "GB/s")
  bytes("softmax bf16 " .. classes, 2 * size, function() return x:softmax(-1) end)
end
