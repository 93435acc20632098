-- Products and linear maps on a GPU; bench/peers/gpu_products.py is the peer.
local flare = require "flare"
local m = dofile((arg[0]:match "^(.*/)" or "") .. "measure.lua")
local products, normal = m.products, m.normal

for _, c in ipairs{{"bf16", 256}, {"bf16", 512}, {"bf16", 1024}, {"bf16", 2048}, {"bf16", 4096},
                   {"bf16", 8192}, {"f16", 4096}, {"f32", 1024}, {"f32", 4096}, {"f64", 2048}} do
  local dtype, n = c[1], c[2]
  local a, b = normal(dtype, n, n), normal(dtype, n, n)
  local name = ("product %%s %s %d"):format(dtype, n)
  products(name:format "nn", 2 * n ^ 3, function() return a:matmul(b) end)
  if n == 4096 then
    local at, bt = a:transpose(1, 2), b:transpose(1, 2)
    products(name:format "nt", 2 * n ^ 3, function() return a:matmul(bt) end)
    products(name:format "tn", 2 * n ^ 3, function() return at:matmul(b) end)
  end
end

for _, c in ipairs{{16384, 768, 2304}, {16384, 768, 3072}, {16384, 3072, 768},
                   {16384, 768, 50304}, {16384, 768, 50257}, {65536, 768, 768}} do
  local rows, k, n = table.unpack(c)
  local x, w, b = normal("bf16", rows, k), normal("bf16", n, k), normal("bf16", n)
  local dy = normal("bf16", rows, n)
  local dyt, work = dy:transpose(1, 2), 2 * rows * k * n
  local name = ("linear %dx%dx%d"):format(rows, k, n)
  products(name, work, function() return flare.linear(x, w, b) end)
  if n == 3072 then
    for _, act in ipairs{"gelu", "gelu_tanh"} do
      products(name .. " " .. act, work, function()
        return flare.linear(x, w, b, {act = act})
      end)
    end
  end
  products(name .. " dx", work, function() return dy:matmul(w) end)
  products(name .. " dw", work, function() return dyt:matmul(x) end)
end

do
  local q = normal("bf16", 192, 1024, 64)
  local qt = q:transpose(2, 3)
  products("batch 192x1024x64x1024", 2 * 192 * 1024 * 1024 * 64, function()
    return q:matmul(qt)
  end)
end
