-- nn.MoE against its definition, token by token and number by number.
local flare = require "flare"
local nn = flare.nn

local function random(...) return flare.randn({...}, {dtype = "f64"}) end

local function layer(width, opts) return nn.MoE(width, opts):to("f64") end

local function near(a, b, tolerance)
  local off = (a - b):abs():amax():item()
  assert(off <= (tolerance or 1e-12), ("%g off"):format(off))
end

-- The scores of a router as a list of lists, and its logits.
local function router(m, x)
  local logits, all = x:matmul(m.router:t()):totable(), {}
  for t, row in ipairs(logits) do
    local sum, p = 0, {}
    for _, v in ipairs(row) do sum = sum + math.exp(v) end
    for e, v in ipairs(row) do p[e] = math.exp(v) / sum end
    all[t] = p
  end
  return all, logits
end

-- The k best of a list, best first.
local function best(p, k)
  local list = {}
  for e in ipairs(p) do list[e] = e end
  table.sort(list, function(a, b) return p[a] > p[b] end)
  return table.move(list, 1, k, 1, {})
end

local function expert(m, e, x)
  local up = m.up_proj[e]:matmul(x)
  if not m.gate_proj then return m.down_proj[e]:matmul(flare.gelu(up)) end
  return m.down_proj[e]:matmul(flare.silu(m.gate_proj[e]:matmul(x)) * up)
end

describe("nn.MoE", function()
  before_each(function() flare.manual_seed(3) end)

  it("adds up what the chosen experts make of each token", function()
    for _, gated in ipairs{true, false} do
      local m = layer(6, {experts = 5, hidden = 7, gated = gated, act = gated and "silu" or "gelu",
                          normalise = gated, scale = 1.5})
      local x = random(2, 9, 6)
      local flat, y = x:view(18, 6), m(x):view(18, 6)
      for t, p in ipairs((router(m, flat))) do
        local chosen, total = best(p, 2), 0
        local sum = gated and p[chosen[1]] + p[chosen[2]] or 1
        for _, e in ipairs(chosen) do
          total = total + expert(m, e, flat[t]) * (1.5 * p[e] / sum)
        end
        near(y[t], total)
      end
    end
  end)

  it("has the losses of their definitions", function()
    local m = layer(5, {experts = 4, top_k = 3, hidden = 3, balance = 0.02, z_loss = 0.001})
    local x = random(11, 5)
    m(x)
    local p, logits = router(m, x)
    local count, mean, z = {0, 0, 0, 0}, {0, 0, 0, 0}, 0
    for t, row in ipairs(p) do
      local sum = 0
      for _, e in ipairs(best(row, 3)) do count[e] = count[e] + 1 end
      for e, v in ipairs(row) do mean[e] = mean[e] + v / 11 end
      for _, v in ipairs(logits[t]) do sum = sum + math.exp(v) end
      z = z + math.log(sum) ^ 2 / 11
    end
    local balance = 0
    for e = 1, 4 do balance = balance + 4 * count[e] / 33 * mean[e] end
    local found = m:losses()
    assert.near(balance, found.balance:item(), 1e-14)
    assert.near(z, found.z:item(), 1e-14)
    assert.near(0.02 * balance + 0.001 * z, nn.moe_loss(nn.Sequential(m)):item(), 1e-14)
    assert.same(count, m:load():totable())
    m:eval()(x)
    assert.same({}, m:losses())
    assert.equal(0, nn.moe_loss(m))
  end)

  it("has the gradients of its result and its losses", function()
    local m = layer(4, {experts = 3, hidden = 3, balance = 0.3, z_loss = 0.2})
    local x = random(7, 4):requires_grad_(true)
    local given = {x}
    for _, p in ipairs(m:parameters()) do given[#given + 1] = p end
    local factor = random(7, 4)
    assert.is_true(flare.gradcheck(function(input)
      return (m(input) * factor):sum() + nn.moe_loss(m)
    end, given, {second = true}))
  end)

  it("holds experts to their capacity, first choices first", function()
    local m = layer(2, {experts = 2, hidden = 3, capacity = 0.75, normalise = false})
    flare.no_grad(function() m.router:copy_(flare.tensor{{1, 0}, {-1, 0}}) end)
    -- the first three tokens choose expert 1 first, the last one expert 2; each takes 3 of 4
    local x = flare.tensor({{1, 0.2}, {2, -0.4}, {3, 0.6}, {-1, 0.8}}, {dtype = "f64"})
    local p, y = router(m, x), m(x)
    near(y[1], expert(m, 1, x[1]) * p[1][1] + expert(m, 2, x[1]) * p[1][2])
    near(y[2], expert(m, 1, x[2]) * p[2][1] + expert(m, 2, x[2]) * p[2][2])
    near(y[3], expert(m, 1, x[3]) * p[3][1]) -- expert 2 has its three
    near(y[4], expert(m, 2, x[4]) * p[4][2]) -- and expert 1
    assert.same({4, 4}, m:load():totable())
  end)

  it("evens out the load by its bias, in training only", function()
    local m = layer(8, {experts = 4, top_k = 1, hidden = 4, bias_balance = 0.02,
                        scores = "sigmoid"})
    local x = random(256, 8)
    flare.no_grad(function() m.router[1]:add_(x:mean(1) * 20) end)
    local function spread()
      m:eval()(x)
      local load = m:load()
      m:train()
      return (load:amax() - load:amin()):item()
    end
    local before = spread()
    assert.same({0, 0, 0, 0}, m.bias:totable())
    flare.no_grad(m, x)
    assert.same({0, 0, 0, 0}, m.bias:totable())
    m(x)
    local load = m:load():totable()
    for e, b in ipairs(m.bias:totable()) do
      assert.near(load[e] > 64 and -0.02 or load[e] < 64 and 0.02 or 0, b, 1e-15)
    end
    for _ = 1, 60 do m(x) end
    assert(spread() < before / 4, ("%d, before %d"):format(spread(), before))
    assert.is_truthy(m:state_dict().bias)
  end)

  it("routes in f32 under autocast, with noise in training alone", function()
    local m = nn.MoE(16, {experts = 6, hidden = 8, noise = 1}):eval()
    local x = flare.randn(40, 16)
    m(x)
    local load = m:load():totable()
    local y = flare.autocast("bf16", m, x)
    assert.equal("bf16", y.dtype)
    assert.same(load, m:load():totable())
    m:train()(x)
    assert.not_same(load, m:load():totable())
  end)

  it("multiplies a few tokens by weights of 16 bits as they are stored", function()
    for dtype, tolerance in pairs{bf16 = 2e-2, f16 = 2e-3} do
      local m = nn.MoE(96, {experts = 8, hidden = 64}):eval():to(dtype)
      for _, tokens in ipairs{1, 5, 100} do
        local x = flare.randn(tokens, 96):to(dtype)
        local y, want = m(x), m:clone():to("f64")(x:to "f64")
        near(y:to "f64", want, tolerance * want:abs():amax():item())
      end
    end
  end)

  it("moves its bias once in a checkpoint", function()
    local m = layer(6, {experts = 3, top_k = 1, hidden = 4, bias_balance = 0.1})
    local x = random(30, 6):requires_grad_(true)
    local y = flare.checkpoint(m, x)
    assert.same({0, 0, 0}, m.bias:totable())
    y:sum():backward()
    for e, n in ipairs(m:load():totable()) do
      assert.near(n > 10 and -0.1 or n < 10 and 0.1 or 0, m.bias[e]:item(), 1e-15)
    end
  end)

  it("makes nothing of the size of tokens times experts times width", function()
    local m = nn.MoE(32, {experts = 64, hidden = 32})
    local x = flare.randn(1024, 32):requires_grad_(true)
    m(x):sum():backward()
    collectgarbage()
    local before = flare.memory.stats("cpu").live
    flare.memory.reset_peak "cpu"
    m(x):sum():backward()
    local peak = flare.memory.stats("cpu").peak - before
    assert(peak < 1024 * 64 * 32 * 4 / 2, ("%d bytes"):format(peak))
  end)

  it("refuses what it does not have", function()
    for _, case in ipairs{{{act = "swish"}, "unknown act 'swish'"},
                          {{top_k = 3, experts = 2}, "top_k is 3, but there are 2 experts"},
                          {{scores = "softmx"}, "did you mean 'softmax'"},
                          {{experts = 0}, "experts"}} do
      local ok, why = pcall(nn.MoE, 4, case[1])
      assert.is_false(ok)
      assert.match(case[2], tostring(why), 1, true)
    end
    local ok, why = pcall(nn.MoE(4), flare.ones(8, 2)) -- 16 elements, as of 4 rows of 4
    assert.is_false(ok)
    assert.match("MoE: the input must be (..., 4), got (8, 2)", tostring(why), 1, true)
  end)
end)
