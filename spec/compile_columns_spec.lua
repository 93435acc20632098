-- Column sums in compiled functions: sums over rows that a kernel stores beside what it computes by
-- rows or elements, against the same operators at once in double precision.
local flare = require "flare"
local rows = require "spec.support.rows"

-- {what, launches that the plan leaves, f(x, y, w) -> tensors}; x and y are (6, 50, 96), w is (96)
local cases = {
  {"gradients of a norm by rows and of its weight", 1, function(x, y, w)
    local r = (x:square():mean(-1, true) + 1e-5):rsqrt()
    local n, dy = x * r, x * y
    local g = dy * w
    local dx = (g - n * (g * n):mean(-1, true)) * r
    return dx, (dy * n):sum {1, 2}, dy:sum {1, 2}
  end},
  {"sums over columns before those of rows", 1, function(x, y, w)
    local dw = (x * y):sum {1, 2}
    local g = y * w
    return dw, g - (g * x):sum(-1, true) * x
  end},
  {"a gradient and that of a bias", 1, function(x, y)
    local dx = y * (1 - x:tanh():square())
    return dx, dx:sum {1, 2}, dx:amax(-1)
  end},
  {"a sum that is converted", 1, function(x, y)
    local dx = (x * y):softmax(-1)
    return dx, dx:sum {1, 2}:to "f32"
  end},
  {"sums over the first dim alone", 1, function(x, y)
    local s = (x + y):softmax(-1)
    return s, s:sum(1), (s * x):sum(1)
  end, 12},
  {"sums of rows' values", 1, function(x, y)
    local d = x - x:amax(-1, true)
    local l = d:exp():sum(-1):log()
    return d - l:unsqueeze(-1), l:sum()
  end},
  {"sums over everything", 1, function(x, y)
    local s = (x * y):softmax(-1)
    return s, (s * y):sum()
  end},
  {"means", 1, function(x, y)
    local s = (x * y):softmax(-1)
    return s, (s * y):mean {1, 2}, (s * x):mean()
  end},
  {"a gradient and that of a bias, called late", 3, function(x, y)
    local dx = y * (1 - x:tanh():square())
    local flat = dx:reshape(-1, 96)
    local dw = flat:t():matmul(x:reshape(-1, 96))
    local back = flat:matmul(x:reshape(-1, 96)[{{1, 96}}])
    return dx, dw, back, dx:sum {1, 2}:to "f32"
  end},
  {"a late sum of what was written over", 3, function(x, y)
    local dx = y * x
    local s = x:reshape(-1, 96):t():matmul(dx:reshape(-1, 96))
    dx:mul_(2)
    return s, dx, dx:sum {1, 2}
  end},
  {"a sum that the kernel would need", 2, function(x, y)
    local s = x:softmax(-1)
    local c = (s * y):sum {1, 2}
    return s, (x - c):softmax(-1)
  end},
}

local function pack_f64(...)
  local out = {...}
  for k, v in ipairs(out) do out[k] = v:to("cpu"):to "f64" end
  return out
end

local function inputs(device, dtype, first)
  flare.manual_seed(7)
  local x, y, w = flare.randn(first, 50, 96), flare.randn(first, 50, 96), flare.randn(96)
  local function to(v) return v:to(dtype):to(device) end
  return to(x), to(y), to(w)
end

local slack = {f64 = 1e-12, f32 = 2e-5, bf16 = 4e-2, f16 = 5e-3}

for _, device in ipairs(rows.devices) do
  describe("column sums of a compiled function on " .. device, function()
    for _, case in ipairs(cases) do
      local what, kernels, f, first = table.unpack(case)
      it("are right: " .. what, function()
        for dtype, most in pairs(slack) do
          local x, y, w = inputs(device, dtype, first or 6)
          local want = pack_f64(f(x:to "f64", y:to "f64", w:to "f64"))
          local run, got = flare.compile(f)
          for _ = 1, 3 do got = pack_f64(run(x, y, w)) end
          local stats = flare.compile_stats(run)
          assert(stats.plans == 1 and stats.kernels <= kernels,
            ("%s: %d kernels, not %d"):format(dtype, stats.kernels, kernels))
          for k, v in ipairs(want) do
            local off = (got[k] - v):abs():max():item()
            local size = v:abs():max():item()
            assert(off <= most * size, ("%s, result %d: %g of %g"):format(dtype, k, off, size))
          end
        end
      end)
    end

    it("are the same with any number of threads", function()
      local x, y, w = inputs(device, "f32", 40)
      local before, sums = flare.threads(), {}
      for n = 1, 2 do
        local run = flare.compile(cases[1][3])
        flare.threads(n)
        for _ = 1, 3 do sums[n] = select(2, run(x, y, w)) end
      end
      flare.threads(before)
      assert.equal(0, (sums[1] - sums[2]):abs():max():item())
    end)
  end)
end
