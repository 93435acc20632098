-- flare.explain: which kernels a plan has, with their operators and the user's lines, the bytes
-- that they move, why they are not fewer, and memory over time. The profiler knows these kernels.
local flare = require "flare"
local nn = flare.nn

local here = debug.getinfo(1, "S").short_src

local function line() return debug.getinfo(2, "l").currentline end

local function sorted(list)
  table.sort(list)
  return list
end

-- The operators that kernel k holds, those computed again apart, as two sorted lists.
local function operators(k)
  local own, again = {}, {}
  for _, x in ipairs(k.launches) do table.insert(x.again and again or own, x.op) end
  return sorted(own), sorted(again)
end

-- What holds of every explanation.
local function check(e)
  for i, k in ipairs(e.kernels) do
    assert.equal(i, k.number)
    assert.is_true(k.read >= 0 and k.written >= 0 and k.read + k.written == k.bytes)
    assert.is_true(k.time >= 0 and k.live > 0 and k.peak >= k.live)
    assert.is_true(#k.apart > 0 and not k.apart:find "%%")
    assert.is_true(k.from == nil or k.from < i)
    for _, x in ipairs(k.launches) do
      assert.equal(here, x.line:match "^(.*):%d+$", k.operators .. ": " .. x.line)
    end
  end
  local text = tostring(e)
  assert.truthy(text:find(("^%d launches in %d kernel"):format(e.eager.launches, #e.kernels)))
  for _, k in ipairs(e.kernels) do assert.truthy(text:find(k.operators, 1, true), k.operators) end
  return e, text
end

describe("an explanation", function()
  before_each(function() flare.manual_seed(1) end)

  it("shows one kernel of a chain, with its lines, bytes and FLOPs", function()
    local first = line() + 2
    local function gelu(x)
      local inner = x + x * x * x * 0.044715
      return x * 0.5 * (1 + (inner * 0.7978845608):tanh())
    end
    local e, text = check(flare.explain(gelu, flare.randn(64, 128)))
    assert.equal(1, #e.kernels)
    local k = e.kernels[1]
    assert.equal("fused pointwise", k.kind)
    assert.same({"add", "add", "mul", "mul", "mul", "mul", "mul", "mul", "tanh"}, (operators(k)))
    assert.same({here .. ":" .. first, here .. ":" .. first + 1}, sorted(k.lines))
    assert.truthy(text:find(("%s:%d-%d"):format(here, first, first + 1), 1, true))
    assert.equal(64 * 128 * 4, k.read)
    assert.equal(64 * 128 * 4, k.written)
    assert.equal(9 * 64 * 128, k.flops)
    assert.equal(9, e.eager.launches)
    -- four operators of two tensors, four of a tensor and a number, tanh
    assert.equal((4 * 3 + 5 * 2) * 64 * 128 * 4 + 4 * 8, e.eager.bytes)
    assert.equal(e.kernels[1].bytes, e.bytes)
  end)

  it("refuses what it cannot run", function()
    assert.error_matches(function() flare.explain(flare.ones(2)) end,
      "explain: expected a function or a module, got a tensor")
    assert.error_matches(function() flare.explain(function() error "no luck" end) end, "no luck")
    assert.is_true(flare.explain(function(x) return x + 1 end, flare.ones(2)).bytes > 0)
  end)
end)

describe("a training step of an MLP, explained", function()
  it("has the products alone and the rest in fused kernels", function()
    flare.manual_seed(1)
    local net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    local opt = flare.optim.Adam(net:parameters(), {lr = 0.1})
    local at = line()
    local step = flare.compile(function(x, y)
      opt:zero_grad()
      local d = net(x) - y
      local loss = d:square():mean()
      loss:backward()
      opt:step()
      return loss
    end)
    local e = check(flare.explain(step, flare.randn(32, 8), flare.randn(32, 1)))
    local products, by = 0, {}
    for _, k in ipairs(e.kernels) do
      if k.kind == "product" then
        products = products + 1
        assert.equal(1, #k.launches)
        assert.equal("the operator has a kernel of its own", k.apart)
        assert.equal(here .. ":" .. at + 3, k.lines[1])
      end
      by[k.operators] = k
    end
    assert.equal(5, products)
    local loss = by["sub+square+mean+div+square_backward"]
    assert.equal("fused reduction", loss.kind)
    assert.same({here .. ":" .. at + 3, here .. ":" .. at + 4}, sorted(loss.lines))
    -- predictions and targets, the mean's gradient of one; the loss and the gradient
    assert.equal(4 * (32 + 32 + 1), loss.read)
    assert.equal(4 * (32 + 1), loss.written)
    assert.equal(here .. ":" .. at + 6, by.adam_step.lines[1])
    assert.is_true(#e.kernels < e.eager.launches)
  end)
end)

describe("the profiler", function()
  it("tells the operators and lines of a fused kernel", function()
    local at = line()
    local f = flare.compile(function(x)
      local y = x * 2
      return (y + 1):tanh()
    end, {exact = true})
    local x = flare.randn(64)
    for _ = 1, 3 do f(x) end
    local report = flare.profile(f, x)
    assert.equal(1, report.count)
    local r = report:row(1)
    assert.equal("mul+add+tanh", r.op)
    assert.equal(("%s:%d-%d"):format(here, at + 2, at + 3), r.line)
    assert.same({"mul", "add", "tanh"}, {r.step[1].op, r.step[2].op, r.step[3].op})
    assert.equal(2 * 64 * 4, r.bytes)
    assert.equal("mul+add+tanh", report:sums("op")[1].name)
  end)
end)
