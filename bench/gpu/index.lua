-- Positions, sorting, random numbers, optimizers and pooling on a GPU;
-- bench/peers/gpu_index.py is the peer.
local flare = require "flare"
local m = dofile((arg[0]:match "^(.*/)" or "") .. "measure.lua")
local bytes, normal, cuda = m.bytes, m.normal, {device = "cuda"}

for _, dtype in ipairs{"f32", "bf16"} do
  local each = dtype == "f32" and 4 or 2
  local parameters, gradients = {}, {}
  for i = 1, 148 do
    local p = m.leaf(dtype, 878, 1000)
    p.grad = normal(dtype, 878, 1000)
    parameters[i], gradients[i] = p, p.grad
  end
  -- as PyTorch's, which has no master copies of 16-bit parameters
  local adam = flare.optim.AdamW(parameters, {lr = 1e-4, master = false})
  bytes("AdamW 130M " .. dtype, 148 * 878000 * 7 * each, function() adam:step() end)
  bytes("global_norm 130M " .. dtype, 148 * 878000 * each, function()
    return flare.global_norm(gradients)
  end)
end
collectgarbage()

do
  local w, dy = normal("bf16", 50304, 768), normal("bf16", 65536, 768)
  local at = flare.randint(1, 50305, {65536}, cuda)
  local few = flare.randint(1, 51, {65536}, cuda)
  local size = 65536 * 768 * 2
  bytes("embedding bf16", 2 * size, function() return flare.embedding(w, at) end)
  bytes("embedding backward bf16", size + 50304 * 768 * 2, function()
    return flare.embedding_backward(dy, at, 50304)
  end)
  bytes("embedding backward bf16, 50 rows", size + 50304 * 768 * 2, function()
    return flare.embedding_backward(dy, few, 50304)
  end)
end

do
  local x = normal("f32", 4096, 8192)
  local at = flare.randint(1, 8193, {4096, 8192}, cuda)
  local n, mask, short = x:numel(), x:gt(0), normal("f32", 65536, 128)
  bytes("gather", n * 16, function() return flare.gather(x, 2, at) end)
  bytes("scatter_add", n * 16, function() return flare.scatter_add(x, 2, at, x) end)
  bytes("masked_select", n * 7, function() return flare.masked_select(x, mask) end)
  bytes("nonzero", n * 13, function() return mask:nonzero() end)
  bytes("flip", n * 8, function() return flare.flip(x, {2}) end)
  bytes("roll", n * 8, function() return flare.roll(x, {5}, {2}) end)
  bytes("pad", n * 8, function() return flare.pad(x, {1, 1}) end)
  bytes("tril", n * 8, function() return flare.tril(x) end)
  bytes("cat", n * 16, function() return flare.cat({x, x}, 2) end)
  bytes("sort rows 4096x8192", n * 16, function() return x:sort() end)
  bytes("sort rows 65536x128", short:numel() * 16, function() return short:sort() end)
  bytes("topk 50 of 4096x8192", n * 4, function() return x:topk(50) end)
end

do
  local x, n = normal("bf16", 16384, 4096), 1 << 26
  local weights = flare.rand(256, 50257, cuda)
  bytes("dropout bf16", n * 4, function() return flare.dropout(x, 0.2) end)
  bytes("randn 64M", n * 4, function() return flare.randn(n, cuda) end)
  bytes("rand 64M", n * 4, function() return flare.rand(n, cuda) end)
  bytes("randperm 1M", 8e6, function() return flare.randperm(1000000, cuda) end)
  bytes("arange 64M", n * 4, function()
    return flare.arange(0, n, 1, {device = "cuda", dtype = "f32"})
  end)
  bytes("multinomial 256x50257", weights:numel() * 12, function()
    return flare.multinomial(weights, 1)
  end)
end

do
  local x = normal("f32", 100000000)
  bytes("sort 100M", 16e8, function() return x:sort() end)
  bytes("topk 50 of 100M", 4e8, function() return x:topk(50) end)
end

do
  local x, three, two, one = normal("f32", 64, 64, 112, 112), {3, 3}, {2, 2}, {1, 1}
  local n = x:numel()
  bytes("max_pool 3x3/2", n * 7, function() return flare.max_pool(x, three, two, one) end)
  bytes("avg_pool 3x3/2", n * 5, function() return flare.avg_pool(x, three, two, one) end)
  local small = normal("f32", 32, 64, 128, 128)
  for _, mode in ipairs {"nearest", "linear", "cubic"} do
    bytes("interpolate 2x, " .. mode, small:numel() * 20, function()
      return flare.interpolate(small, {size = {256, 256}, mode = mode})
    end)
  end
  bytes("adaptive_avg_pool 1", n * 4, function() return flare.adaptive_avg_pool(x, one) end)
  local gates, cell = normal("f32", 4096, 4096), normal("f32", 4096, 1024)
  bytes("lstm_cell 4096x1024", 4096 * 1024 * 44, function()
    return flare.lstm_cell(gates, cell)
  end)
end
