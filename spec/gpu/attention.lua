-- Attention on a GPU: odd lengths and batches against f64, 32768 tokens, time and memory beside
-- product, softmax and product at 4096 tokens, and the same bits with `deterministic`. Needs one
-- GPU; less than 60 s. Ends with PASS or FAIL.
local flare = require "flare"
local cuda, failed = {device = "cuda"}, 0

local function check(good, ...)
  failed = failed + (good and 0 or 1)
  print(good and "ok  " or "FAIL", (...):format(select(2, ...)))
end

local function leaf(dtype, ...)
  local x = flare.randn({...}, cuda):to(dtype):detach()
  x.requires_grad = true
  return x
end

local function unfused(q, k, v, causal)
  local s = q:matmul(k:transpose(-2, -1)) * (1 / math.sqrt(q:size(-1)))
  if causal then
    local seen = flare.ones({q:size(-2), k:size(-2)}, cuda):tril()
    s = s:masked_fill(seen:eq(0), -math.huge)
  end
  return s:softmax(-1):matmul(v)
end

local function run(attention, q, k, v, dy, causal)
  local y = attention(q, k, v, causal)
  y:backward(dy)
  local all = {y:detach(), q.grad, k.grad, v.grad}
  q.grad, k.grad, v.grad = nil, nil, nil
  return all
end
local function fused(q, k, v, causal) return flare.attention(q, k, v, nil, {causal = causal}) end

local function apart(x, reference)
  local wide = x:to "f64"
  return ((wide - reference):norm() / reference:norm()):item()
end

-- In f32 sums are of f32's rounding: unfused they are off by as much, or by a part in a million.
local slack = {bf16 = {1.2, 1e-3}, f32 = {2, 1e-6}}

flare.manual_seed(1)
for _, s in ipairs{{1, 1, 1, 64}, {3, 2, 63, 64}, {5, 3, 129, 64}, {2, 2, 1000, 64},
                   {1, 5, 2047, 64}, {7, 1, 65, 128}, {3, 3, 257, 128}, {1, 2, 1023, 128},
                   {2, 3, 333, 72}, {1, 2, 511, 40}, {1, 2, 300, 256}} do
  for i = 1, 4 do
    local causal, dtype = i % 2 == 0, i > 2 and "f32" or "bf16"
    local q, k, v = leaf(dtype, table.unpack(s)), leaf(dtype, table.unpack(s)),
                    leaf(dtype, table.unpack(s))
    local dy = flare.randn(s, cuda):to(dtype)
    local ours, worst = run(fused, q, k, v, dy, causal), 0
    local wide = {}
    for n, x in ipairs{q, k, v} do
      wide[n] = x:detach():to "f64"
      wide[n].requires_grad = true
    end
    local exact = run(unfused, wide[1], wide[2], wide[3], dy:to "f64", causal)
    local plain = run(unfused, q, k, v, dy, causal)
    local bound = 0
    for n = 1, 4 do -- with one key the gradients of queries and keys are nothing
      if exact[n]:norm():item() > 1e-3 then
        worst = math.max(worst, apart(ours[n], exact[n]))
        bound = math.max(bound, apart(plain[n], exact[n]))
      end
    end
    local most = slack[dtype][1] * bound + slack[dtype][2]
    check(worst <= most, "%s b%d h%d t%d d%d %s: error %.1e, unfused %.1e", dtype, s[1], s[2], s[3],
          s[4], causal and "causal" or "full", worst, bound)
  end
end

-- More tiles than a GPU has multiprocessors, heads that share keys, more keys than queries.
for _, s in ipairs{{4, 12, 1024, 1024, 64, 12, true}, {9, 12, 197, 197, 64, 12, false},
                   {1, 16, 2048, 2048, 64, 4, true}, {3, 4, 130, 700, 64, 2, true},
                   {40, 12, 128, 128, 64, 12, false}, {5, 6, 193, 385, 128, 3, false}} do
  local b, h, t, n, d, heads, causal = table.unpack(s)
  local q, k, v = leaf("bf16", b, h, t, d), leaf("bf16", b, heads, n, d),
                  leaf("bf16", b, heads, n, d)
  local dy, wide = flare.randn({b, h, t, d}, cuda):to "bf16", {}
  for i, x in ipairs{q, k, v} do
    wide[i] = x:detach():to "f64"
    wide[i].requires_grad = true
  end
  local got = run(fused, q, k, v, dy, causal)
  local want = run(function(x, y, z)
    y, z = y:repeat_interleave(h // heads, 2), z:repeat_interleave(h // heads, 2)
    local scores = x:matmul(y:transpose(-2, -1)) * (1 / math.sqrt(d))
    if causal then
      scores = scores:masked_fill(flare.ones({t, n}, cuda):tril(n - t):eq(0), -math.huge)
    end
    return scores:softmax(-1):matmul(z)
  end, wide[1], wide[2], wide[3], dy:to "f64", causal)
  local worst = 0
  for i = 1, 4 do worst = math.max(worst, apart(got[i], want[i])) end
  check(worst < 8e-3, "b%d h%d of %d t%d of %d d%d %s: error %.1e", b, h, heads, t, n, d,
        causal and "causal" or "full", worst)
  collectgarbage()
end

-- Masks of each dtype, of every head and repeated, against f64.
for _, s in ipairs{{2, 3, 200, 64}, {1, 2, 333, 128}, {2, 2, 512, 64}, {1, 4, 70, 128},
                   {1, 2, 264, 128}} do
  local b, h, t, d = table.unpack(s)
  for _, m in ipairs{{"bf16", {b, h, t, t}}, {"bf16", {h, 1, t}}, {"bf16", {t, t}},
                     {"f32", {b, h, t, t}}, {"bool", {b, 1, t, t}}} do
    local dtype, shape = m[1], m[2]
    local mask = flare.randn(shape, cuda)
    mask = dtype == "bool" and mask:gt(-1) or mask:to(dtype)
    local add = dtype == "bool" and flare.zeros(shape, cuda):masked_fill(mask:eq(0), -math.huge)
      or mask
    local q, k, v = leaf("bf16", b, h, t, d), leaf("bf16", b, h, t, d), leaf("bf16", b, h, t, d)
    local dy, wide = flare.randn(s, cuda):to "bf16", {}
    for i, x in ipairs{q, k, v} do
      wide[i] = x:detach():to "f64"
      wide[i].requires_grad = true
    end
    local function exact(x, y, z)
      return (x:matmul(y:transpose(-2, -1)) * (1 / math.sqrt(d)) + add:to "f64"):softmax(-1)
        :matmul(z)
    end
    local want = run(exact, wide[1], wide[2], wide[3], dy:to "f64")
    local got = run(function(x, y, z) return flare.attention(x, y, z, mask) end, q, k, v, dy)
    local worst = 0
    for i = 1, 4 do worst = math.max(worst, apart(got[i], want[i])) end
    check(worst < 8e-3, "b%d h%d t%d d%d, mask %s of %d dims: error %.1e", b, h, t, d, dtype,
          #shape, worst)
  end
end

do
  local q, k, v = leaf("bf16", 1, 16, 32768, 128), leaf("bf16", 1, 16, 32768, 128),
                  leaf("bf16", 1, 16, 32768, 128)
  flare.synchronize()
  flare.memory.reset_peak "cuda"
  local before = flare.memory.stats("cuda").live
  local all = run(fused, q, k, v, flare.ones({1, 16, 32768, 128}, cuda):to "bf16", true)
  local last = flare.no_grad(function()
    return unfused(q:narrow(3, 32768 - 63, 64):to "f32", k:to "f32", v:to "f32", false)
  end)
  -- the last query sees every key
  local error = apart(all[1]:narrow(3, 32768, 1), last:narrow(3, 64, 1):to "f64")
  check(error < 1e-2 and all[2]:isfinite():all():item(),
        "32768 tokens: error of the last query %.1e, %.2f GiB more at most", error,
        (flare.memory.stats("cuda").peak - before) / 2 ^ 30)
end
collectgarbage()

do
  local q, k, v = leaf("bf16", 4, 16, 4096, 128), leaf("bf16", 4, 16, 4096, 128),
                  leaf("bf16", 4, 16, 4096, 128)
  local dy = flare.randn({4, 16, 4096, 128}, cuda):to "bf16"
  local function measure(attention)
    run(attention, q, k, v, dy, false)
    collectgarbage()
    flare.synchronize()
    flare.memory.reset_peak "cuda"
    local before, start = flare.memory.stats("cuda").live, flare.clock()
    for _ = 1, 5 do run(attention, q, k, v, dy, false) collectgarbage() end
    flare.synchronize()
    return (flare.clock() - start) / 5, flare.memory.stats("cuda").peak - before
  end
  local slow, much = measure(unfused)
  local fast, little = measure(fused)
  check(slow >= 2 * fast, "4096 tokens, both ways: %.2f ms, unfused %.2f ms: %.1f times",
        fast * 1e3, slow * 1e3, slow / fast)
  check(much >= 10 * little, "memory: %.2f GiB, unfused %.2f GiB: %.1f times", little / 2 ^ 30,
        much / 2 ^ 30, much / little)
end

do
  local settings = flare.backends()
  flare.backends{deterministic = true}
  local q, k, v = leaf("bf16", 2, 4, 1000, 64), leaf("bf16", 2, 4, 1000, 64),
                  leaf("bf16", 2, 4, 1000, 64)
  local dy, same = flare.randn({2, 4, 1000, 64}, cuda):to "bf16", true
  local first = run(fused, q, k, v, dy, true)
  for _ = 1, 5 do
    for i, x in ipairs(run(fused, q, k, v, dy, true)) do
      same = same and (x:ne(first[i])):sum():item() == 0
    end
  end
  check(same, "deterministic: the same bits, forward and backward")
  flare.backends(settings)
end

print(failed == 0 and "PASS" or "FAIL")
os.exit(failed == 0 and 0 or 1)
