-- The bytes and FLOPs that a profile counts, beside the textbook's.
local flare = require "flare"

local function cost(op, f)
  for _, row in ipairs(flare.profile(f):sums "op") do
    if row.name == op then return row end
  end
  error("no launch of " .. op)
end

local n, m, k = 24, 40, 56
local a, b = flare.ones(n, k), flare.ones(k, m)
local x = flare.randn(n, m)
local image, weight = flare.ones(2, 3, 10, 12), flare.ones(4, 3, 3, 3)
local q = flare.randn(2, 2, 16, 8)

-- operator, call, FLOPs, numbers read and written at least
local cases = {
  {"add", function() return x + x end, n * m, 3 * n * m},
  {"sum", function() return x:sum() end, n * m, n * m + 1},
  {"sum", function() return x:sum(1) end, n * m, n * m + m},
  {"mean", function() return x:mean() end, n * m, n * m + 1},
  {"amax", function() return x:amax(2) end, n * m, n * m + n},
  {"argmax", function() return x:argmax(2) end, n * m, n * m + n},
  {"norm", function() return x:norm() end, 2 * n * m, n * m + 1},
  {"var", function() return x:var() end, 3 * n * m, n * m + 1},
  {"softmax", function() return x:softmax(2) end, 5 * n * m, 2 * n * m},
  {"log_softmax", function() return x:log_softmax(2) end, 5 * n * m, 2 * n * m},
  {"layer_norm", function() return x:layer_norm() end, 7 * n * m, 2 * n * m},
  {"rms_norm", function() return x:rms_norm() end, 4 * n * m, 2 * n * m},
  {"cross_entropy", function() return x:cross_entropy(x:argmax(2)) end, 5 * n * m, n * m + n},
  {"matmul", function() return a:matmul(b) end, 2 * n * m * k, n * k + k * m + n * m},
  {"conv", function() return image:conv(weight) end, 2 * (2 * 4 * 8 * 10) * 27,
    image:numel() + weight:numel() + 640},
  {"attention", function() return flare.attention(q, q, q) end, 4 * 4 * 16 * 16 * 8,
    4 * q:numel()},
}

describe("the cost of", function()
  for i, case in ipairs(cases) do
    it(case[1] .. " " .. i, function()
      local row = cost(case[1], case[2])
      assert(row.flops >= case[3] / 4 and row.flops <= 4 * case[3],
        ("%g FLOPs, not %g"):format(row.flops, case[3]))
      assert(row.bytes >= 4 * case[4], ("%g bytes, not %g"):format(row.bytes, 4 * case[4]))
    end)
  end

  it("a reduction has a FLOP for each element of its input", function()
    for _, op in ipairs {"sum", "mean", "prod", "amax", "amin", "any", "all", "argmax"} do
      assert.equal(n * m, cost(op, function() return x[op](x) end).flops)
    end
  end)
end)
