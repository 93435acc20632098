-- Compiled functions: results that are copied into a part of another tensor.
local flare = require "flare"
local core = require "flare.core"
local fakes = require "spec.support.fakes"
local rows = require "spec.support.rows"
local tree = require "spec.support.tree"

-- Runs f by a plan twice, and compares what it returns with what f gives by itself.
-- @return launches and kernels of the plan
local function plan(f, ...)
  local compiled, object = core.compiled(f, true, true)
  for _ = 1, 2 do
    flare.manual_seed(2)
    local want = table.pack(f(...))
    flare.manual_seed(2)
    local got = table.pack(compiled(...))
    for k = 1, want.n do
      assert.same(want[k].shape, got[k].shape)
      assert(want[k]:eq(got[k]):all():item(), "result " .. k .. " differs")
    end
  end
  local stats = core.compiled_stats(object)
  return stats.launches, stats.kernels
end

for _, device in ipairs(rows.devices) do
  describe("a result that is copied on " .. device, function()
    local q, k, v
    before_each(function()
      flare.manual_seed(1)
      local function randn() return flare.randn({2, 4, 6, 8}, {device = device}) end
      q, k, v = randn(), randn(), randn()
    end)

    local function zeros(...) return flare.zeros({...}, {device = device}) end
    local function rand(...) return flare.rand({...}, {device = device}) end -- not in other kernels

    it("is written into a part of what it is copied to", function()
      local launches, kernels = plan(function()
        local all = zeros(2, 6, 4, 24)
        all:transpose(2, 3):narrow(4, 9, 8):copy_(flare.attention(q, k, v))
        return all
      end)
      assert.same({3, 2}, {launches, kernels})
    end)

    it("is written in the order of a copy with other dims", function()
      local function joined()
        return flare.attention(q, k, v):transpose(2, 3):reshape(2, 6, 32) * 2
      end
      local function mixed() -- heads 1, 3, 2, 4
        local y = flare.attention(q, k, v):view(2, 2, 2, 6, 8):transpose(2, 3)
        return y:contiguous():view(2, 4, 48):matmul(v:view(2, 4, 48):transpose(2, 3))
      end
      assert.same({3, 2}, {plan(joined)})
      assert.same({3, 3}, {plan(mixed)}) -- no strides of four heads give this order
    end)

    it("is read where it is written", function()
      local launches, kernels = plan(function()
        local y = flare.attention(q, k, v)
        local joined = y:transpose(2, 3):reshape(2, 6, 32)
        local w = joined:matmul(joined:transpose(2, 3))
        return y:narrow(2, 2, 2):matmul(v:narrow(2, 1, 2):transpose(3, 4)), w
      end)
      assert.same({4, 3}, {launches, kernels})
    end)

    it("is the gradient of parts of a product", function()
      local x = flare.randn({2, 6, 32}, {device = device})
      local w = flare.randn({96, 32}, {device = device})
      w.requires_grad = true
      local function step(placed)
        w.grad = nil
        local heads = flare.nn.functional.linear(x, w):view(2, 6, 3, 4, 8):permute(3, 1, 4, 2, 5)
        local y = flare.attention(heads[1], heads[2], placed and heads[3] or heads[3]:clone())
        y:transpose(2, 3):reshape(2, 6, 32):mul(x):sum():backward()
        return w.grad
      end
      local launches, kernels = plan(function() return step(true) end)
      local _, others = plan(function() return step(false) end)
      assert.is_true(launches - kernels >= 3)
      assert.equal(kernels + 1, others)
    end)

    -- {what it is, a function, kernels: one for each launch}
    local whole = {2, 4, 6, 8}
    for _, case in ipairs {
      {"the target is read before the copy", function()
        local all = zeros(2, 4, 6, 24)
        local y = flare.attention(q, k, v)
        local sum = all:matmul(all:transpose(3, 4))
        all:narrow(4, 1, 8):copy_(y)
        return all, sum
      end},
      {"the target is written before the copy", function()
        local all = zeros(2, 4, 6, 24)
        local y = flare.attention(q, k, v)
        all:narrow(4, 8, 8):copy_(v:matmul(v:transpose(3, 4)):matmul(v))
        all:narrow(4, 1, 8):copy_(y)
        return all
      end},
      {"the launch reads the target", function()
        local all = q * 1
        all:copy_(flare.attention(all, k, v))
        return all
      end},
      {"it is read when the target has changed", function()
        local all = zeros(2, 4, 6, 24)
        local y = flare.attention(q, k, v)
        all:narrow(4, 1, 8):copy_(y)
        local before = all:matmul(all:transpose(3, 4))
        all:narrow(4, 8, 8):copy_(v:matmul(v:transpose(3, 4)):matmul(v))
        return all, before, y:matmul(v:transpose(3, 4))
      end},
      {"it is converted", function()
        local all = flare.rand(whole, {dtype = "f64", device = device})
        all:copy_(flare.attention(q, k, v))
        return all
      end},
      {"it repeats", function()
        local all = rand(3, 2, 4, 6, 8)
        all:copy_(flare.attention(q, k, v))
        return all
      end},
      {"only a part of it is copied", function()
        local all = rand(2, 4, 3, 8)
        all:copy_(flare.attention(q, k, v):narrow(3, 1, 3))
        return all
      end},
      {"its columns would lie apart", function()
        local all = rand(2, 4, 8, 6)
        all:transpose(3, 4):copy_(flare.attention(q, k, v))
        return all
      end},
      {"it is returned, too", function()
        local all, y = zeros(2, 4, 6, 24), flare.attention(q, k, v)
        all:narrow(4, 1, 8):copy_(y)
        return all, y
      end},
    } do
      it("is copied if " .. case[1], function()
        local launches, kernels = plan(case[2])
        assert.equal(launches, kernels)
      end)
    end

    it("is written behind a write to another part of the target", function()
      local launches, kernels = plan(function()
        local all = zeros(2, 4, 6, 24)
        local y = flare.attention(q, k, v)
        all:narrow(4, 9, 8):copy_(v:matmul(v:transpose(3, 4)):matmul(v))
        all:narrow(4, 1, 8):copy_(y)
        return all
      end)
      assert.equal(1, launches - kernels)
    end)
  end)
end

describe("results of rows with FL_PLACES", function()
  local function run(command)
    local out = tree.output(command .. " 2>&1")
    local calls, placed, failed = out:match "(%d+) calls, (%d+) without copies, (%d+) failed\n$"
    assert(failed == "0", out)
    assert.is_true(tonumber(calls) > 90 and tonumber(placed) > 60, out)
  end

  for _, device in ipairs(rows.devices) do
    it("are the same in a part of another tensor on " .. device, function()
      run(("'%s/flare' spec/support/placed_rows.lua %s values"):format(tree.build, device))
    end)
  end

  it("are launched so on a GPU that computes nothing", function()
    local place = os.tmpname() .. ".d"
    fakes.machine(place)
    for major = 8, 9 do
      run(fakes.command(place, "FLARE_CACHE=off FLARE_MEMORY=direct FAKE_MAJOR=" .. major,
        "spec/support/placed_rows.lua cuda"))
    end
    os.execute("rm -rf " .. place)
  end)
end)

describe("the gradient of parts of a tensor", function()
  -- bytes above those at the start, once plans run
  local function peak(f)
    for _ = 1, 3 do f() end
    collectgarbage()
    collectgarbage()
    core.memory.reset_peak()
    local before = core.memory.stats().live
    f()
    return core.memory.stats().peak - before
  end

  it("has memory in a compiled function only while something uses it", function()
    flare.manual_seed(1)
    local weights, x = {}, flare.randn(256, 64)
    for k = 1, 8 do
      weights[k] = flare.randn(192, 64) * 0.1
      weights[k].requires_grad = true
    end
    local function step()
      local h = x
      for _, w in ipairs(weights) do
        w.grad = nil
        local parts = flare.nn.functional.linear(h, w):view(256, 3, 64):permute(2, 1, 3)
        h = parts[1]:softmax(-1) + parts[2]:softmax(-1) * parts[3]:softmax(-1)
      end
      h:square():sum():backward()
    end
    local eager = peak(step)
    assert.is_true(peak((core.compiled(step, false, true))) < 0.7 * eager)
  end)
end)
