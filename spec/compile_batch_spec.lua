-- Compiled functions: copies that become launches of lists. On the CPU each runs in its place.
local flare = require "flare"
local core = require "flare.core"
local rows = require "spec.support.rows"

-- Runs f by a plan twice, and compares what it returns with what f gives by itself.
-- @return launches and kernels of the plan
local function plan(f, reset)
  local compiled, object = core.compiled(f, true, true)
  for run = 1, 2 do
    if reset then reset() end
    local want = table.pack(f())
    for k = 1, want.n do want[k] = want[k]:clone() end
    if reset then reset() end
    local got = table.pack(compiled())
    for k = 1, want.n do
      assert.same(want[k].shape, got[k].shape)
      assert(want[k]:eq(got[k]):all():item(), ("run %d: result %d differs"):format(run, k))
    end
  end
  local stats = core.compiled_stats(object)
  return stats.launches, stats.kernels
end

local function sum(values)
  local total = values[1]
  for k = 2, #values do total = total:matmul(values[k]) end
  return total
end

for _, device in ipairs(rows.devices) do
  local lists = device ~= "cpu"
  local function randn(...) return flare.randn({...}, {device = device}) end

  describe("copies of a compiled function on " .. device, function()
    local x, weights
    before_each(function()
      flare.manual_seed(1)
      x, weights = randn(8, 8), {}
      for k = 1, 6 do weights[k] = randn(8, 8) end
    end)

    it("are a launch for each pair of dtypes", function()
      local launches, kernels = plan(function()
        local y = {}
        for k, w in ipairs(weights) do
          local dtype = k < 4 and "bf16" or "f16"
          y[k] = x:to(dtype):matmul(w:to(dtype)):to "f32"
        end
        return table.unpack(y)
      end)
      -- six products; to bf16 and to f16, and back; x is converted twice, not six times
      assert.equal(24, launches)
      assert.equal(lists and 10 or 20, kernels)
    end)

    it("are apart where the order needs it", function()
      local saved = {}
      for k, w in ipairs(weights) do saved[k] = w:clone() end
      local function reset()
        for k, w in ipairs(weights) do w:copy_(saved[k]) end
      end
      local launches, kernels = plan(function() -- the weight is written between its two casts
        local a = weights[1]:to "bf16"
        local y = a:matmul(a)
        weights[1]:cumsum_(1)
        local b = weights[1]:to "bf16"
        return y:matmul(b), weights[1]
      end, reset)
      assert.equal(launches, kernels)
      launches, kernels = plan(function() -- the target is read, then written again
        local to = flare.zeros({8, 8}, {dtype = "bf16", device = device})
        to:copy_(weights[1])
        local y = to:matmul(to)
        to:copy_(weights[2])
        return y:matmul(to)
      end)
      assert.equal(launches, kernels)
      launches, kernels = plan(function() -- a copy of a copy
        local a = weights[1]:to "bf16"
        local b = a:to("f32"):to "bf16"
        return a:matmul(b), b:matmul(b)
      end)
      assert.equal(launches, kernels)
    end)

    it("are alone where strides differ", function()
      local launches, kernels = plan(function()
        local a = weights[1]:to "bf16"
        local b = flare.zeros({8, 16}, {dtype = "bf16", device = device})
        b:narrow(2, 3, 8):copy_(weights[2])
        return sum {a, b, b:t():contiguous()}
      end)
      assert.is_true(launches - kernels <= 1)
    end)

    it("run early only as far as memory stays low", function()
      if not lists then return end
      local all = flare.zeros({128 << 10 | 64}, {device = device}) -- casts of 256 KiB
      local one = flare.ones({1, 128 << 10}, {dtype = "bf16", device = device})
      local casts = select(2, plan(function()
        local y = {}
        for k = 1, 20 do
          y[k] = one:matmul(all:narrow(1, k, 128 << 10):to("bf16"):unsqueeze(2))
        end
        return table.unpack(y)
      end))
      assert.equal(20 + 2, casts) -- 4 MiB and the one that is needed, then the others
    end)

    it("compute in any program what they compute in their places", function()
      local dtypes = {"f32", "bf16", "f16"}
      for seed = 1, 40 do
        math.randomseed(seed)
        local state = {}
        for k = 1, 5 do state[k] = randn(4, 4):to(dtypes[k % 3 + 1]) end
        local saved = {}
        for k, t in ipairs(state) do saved[k] = t:clone() end
        local text = {}
        for k = 1, 30 do
          text[k] = {math.random(7), math.random(), math.random(), math.random(3)}
        end
        local function f()
          local v = {table.unpack(state)}
          local function pick(r) return v[1 + math.floor(r * #v)] end
          for _, s in ipairs(text) do
            local a, b = pick(s[2]), pick(s[3])
            if s[1] <= 2 then v[#v + 1] = a:to(dtypes[s[4]])
            elseif s[1] == 3 then a:copy_(b)
            elseif s[1] == 4 then a:narrow(1, s[4], 2):copy_(b:narrow(1, 1, 2))
            elseif s[1] == 5 then v[#v + 1] = a:to("f32"):cumsum(1):to(a.dtype)
            elseif s[1] == 6 then a:cumsum_(2):clamp_(-2, 2)
            elseif #v > 6 then table.remove(v) end
          end
          return table.unpack(v)
        end
        local function reset()
          for k, t in ipairs(state) do t:copy_(saved[k]) end
        end
        local ok, why = pcall(plan, f, reset)
        assert(ok, ("program %d: %s"):format(seed, tostring(why)))
      end
    end)
  end)
end
