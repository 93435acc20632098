-- What generates text on a GPU, against f64 on the CPU: products with few rows, what plans have
-- behind them, quantised weights, attention of few queries. Needs one GPU; less than two minutes.
-- Ends with PASS or FAIL.
local flare = require "flare"
local F = flare.nn.functional
local worst, failed = {}, 0
local tolerance = {f64 = 1e-12, f32 = 1e-5, f16 = 2e-3, bf16 = 1.2e-2}

local function check(name, dtype, got, want)
  got, want = got:to "cpu":to "f64", want:to "f64"
  local off = (got - want):abs():max():item() / (want:abs():max():item() + 1e-30)
  if off ~= off or off > tolerance[dtype] then
    failed = failed + 1
    print("FAIL", name, dtype, off)
  end
  worst[dtype] = math.max(worst[dtype] or 0, off)
end

local function randn(dtype, ...)
  local x = flare.randn({...}):to(dtype)
  return x:to "cuda", x:to "f64"
end

local function compiled(f) return flare.compile(f, {wait = true}) end

local function behind(name, dtype, x, w, b, y)
  local m, n = y:size(1), y:size(2)
  local r, rc = randn(dtype, m, n)
  local g, gc = randn(dtype, n)
  local sum = compiled(function() return F.linear(x, w, b) + r end)
  local gate = compiled(function() return F.silu(F.linear(x, w, b)) * r * 0.5 + g end)
  local relu = compiled(function() return F.relu(F.linear(x, w, b)) end)
  local three = compiled(function()
    local v = F.linear(x, w, b)
    return v:tanh(), v, (v * r):to "f32"
  end)
  local low = dtype == "f64" and "f32" or dtype
  for _ = 1, 4 do -- the third time the library is measured
    check(name .. " sum", dtype, sum(), y + rc)
    check(name .. " gate", dtype, gate(), F.silu(y) * rc * 0.5 + gc)
    check(name .. " relu", dtype, relu(), F.relu(y))
    local t, v, u = three()
    check(name .. " tanh", dtype == "f32" and "f16" or dtype, t, y:tanh())
    check(name .. " itself", dtype, v, y)
    check(name .. " scaled", low, u, y * rc)
  end
end

local function products(dtype, m, n, k)
  local x, xc = randn(dtype, m, k)
  local w, wc = randn(dtype, n, k)
  local b, bc = randn(dtype, n)
  local name = ("%d x %d x %d"):format(m, k, n)
  local y = xc:matmul(wc:t())
  check(name .. " matmul", dtype, x:matmul(w:t()), y)
  check(name .. " linear", dtype, F.linear(x, w, b), y + bc)
  check(name .. " gelu", dtype, flare.linear(x, w, b, {act = "gelu_tanh"}),
    flare.gelu(y + bc, "tanh"))
  if m == 1 then check(name .. " matrix and vector", dtype, w:matmul(x[1]), y[1]) end
  if (m == 1 or m == 8 or m == 16) and (n == 13 or n == 768) then
    behind(name, dtype, x, w, b, y + bc)
  end
end

local function quantized(q, z, n, k, groups)
  local low, high = q == "u8" and 0 or -128, q == "u8" and 256 or 128
  local w = flare.randint(low, high, {n, q == "u8" and k // 2 or k}):to(q)
  local scales = flare.rand(n, groups):to "f16"
  local zeros = z and flare.randint(0, 16, {n, groups}):to(z) or nil
  local wd, sd, zd = w:to "cuda", scales:to "cuda", zeros and zeros:to "cuda"
  check("dequantize " .. q, "f32", flare.dequantize(wd, sd, zd),
    flare.dequantize(w, scales, zeros, {dtype = "f64"}))
  for _, dtype in ipairs {"bf16", "f16", "f32", "f64"} do
    for _, m in ipairs {1, 3, 8, 13, 16, 70} do
      local x, xc = randn(dtype, m, k)
      local b, bc = randn(dtype, n)
      local r, rc = randn(dtype, m, n)
      local name = ("%s, zeros %s, %d x %d x %d in %d"):format(q, z, m, k, n, groups)
      local want = flare.quantized_linear(xc, w, scales, zeros, bc)
      local function product() return flare.quantized_linear(x, wd, sd, zd, b) end
      check(name, dtype, product(), want)
      if m == 3 and not z and groups < 20 then
        local gate = compiled(function() return F.silu(product()) * r end)
        for _ = 1, 3 do check(name .. " gate", dtype, gate(), F.silu(want) * rc) end
      end
    end
  end
end

local function attention(dtype, b, hq, hk, nq, nk, d)
  local q, qc = randn(dtype, b, hq, nq, d)
  local k, kc = randn(dtype, b, hk, nk, d)
  local v, vc = randn(dtype, b, hk, nk, d)
  local name = ("attention %d %d %d %d %d %d"):format(b, hq, hk, nq, nk, d)
  local seen = flare.rand(b, 1, nq, nk):gt(0.5)
  for what, o in pairs {plain = {}, causal = {causal = true}, mask = {mask = seen},
                        none = {mask = seen:logical_and(seen:logical_not())}} do
    local there = {causal = o.causal, mask = o.mask and o.mask:to "cuda"}
    for _ = 1, 2 do
      check(name .. " " .. what, dtype, flare.attention(q, k, v, there),
        flare.attention(qc, kc, vc, o))
    end
  end
end

flare.manual_seed(3)
for _, dtype in ipairs {"bf16", "f16", "f32", "f64"} do
  for _, m in ipairs {1, 2, 3, 7, 8, 9, 16} do
    for _, s in ipairs {{8, 8}, {1, 16}, {3, 64}, {13, 24}, {256, 784}, {768, 768}, {768, 3072},
                        {2304, 768}, {10001, 136}, {50304, 64}, {8200, 2048}} do
      products(dtype, m, s[1], s[2])
    end
  end
end
for _, c in ipairs {{64, 64, 1}, {768, 3072, 96}, {3072, 768, 24}, {2048, 2048, 16},
                    {5000, 256, 1}, {20000, 512, 4}, {100, 192, 2}, {33, 1152, 12}, {40, 96, 96}} do
  for _, q in ipairs {"u8", "i8"} do
    for _, z in ipairs {false, "u8", "f16"} do quantized(q, z, table.unpack(c)) end
  end
end
for _, c in ipairs {{1, 12, 12, 1, 1024, 64}, {1, 12, 12, 1, 77, 64}, {2, 8, 2, 1, 1000, 128},
                    {1, 32, 8, 1, 9000, 64}, {3, 4, 4, 2, 300, 80}, {1, 16, 16, 4, 700, 256},
                    {1, 8, 8, 3, 5, 64}, {64, 12, 12, 1, 512, 64}, {1, 16, 2, 1, 1500, 128}} do
  for _, dtype in ipairs {"bf16", "f16"} do attention(dtype, table.unpack(c)) end
end
for dtype, off in pairs(worst) do print(dtype, ("largest relative error %.2g"):format(off)) end
print(failed == 0 and "PASS" or "FAIL")
os.exit(failed == 0 and 0 or 1)
