-- The figures of a tensor. Values are those of Python's module statistics: mean, stdev and
-- quantiles(method = "inclusive").
local flare = require "flare"

-- tensor, expected lines behind the first one
local cases = {
  ["odd values"] = {flare.tensor{1, 2, 3, 4, 0, 0 / 0, 1 / 0}, "7, f32 (7)",
    {mean = "2", std = "1.581", min = "0", ["25%"] = "1", ["50%"] = "2", ["75%"] = "3", max = "4",
     zero = "1", nan = "1", infinite = "1"}},
  integers = {flare.arange(1, 5):view(2, 2), "4, i64 (2, 2)",
    {mean = "2.5", std = "1.291", min = "1", ["25%"] = "1.75", ["50%"] = "2.5", ["75%"] = "3.25",
     max = "4", zero = "0"}},
  booleans = {flare.tensor{true, false}, "2, bool (2)",
    {mean = "0.5", std = "0.7071", min = "0", ["25%"] = "0.25", ["50%"] = "0.5", ["75%"] = "0.75",
     max = "1", zero = "1"}},
  ["one element"] = {flare.tensor(3), "1, f32 ()",
    {mean = "3", min = "3", ["25%"] = "3", ["50%"] = "3", ["75%"] = "3", max = "3", zero = "0"}},
  ["no elements"] = {flare.zeros(0, 2), "0, f32 (0, 2)", {}},
  ["no finite ones"] = {flare.tensor{0 / 0, -1 / 0}, "2, f32 (2)", {nan = "1", infinite = "1"}},
}

describe("the description of a tensor", function()
  for name, case in pairs(cases) do
    it("is right for " .. name, function()
      local found = {}
      for key, value in case[1]:describe():gmatch "([^\n]-) +([^\n]+)" do found[key] = value end
      assert.equal(case[2] .. " on " .. case[1].device, found.elements)
      found.elements = nil
      assert.same(case[3], found)
    end)
  end

  it("does not change the tensor, and refuses what has no order", function()
    local x = flare.ones(3, {requires_grad = true})
    x:describe()
    assert.is_true(x.is_leaf)
    assert.match("a tensor is expected, got number", select(2, pcall(flare.describe, 3)))
    assert.match("real numbers are expected, got c64",
                 select(2, pcall(flare.describe, flare.complex(flare.ones(1), flare.ones(1)))))
  end)
end)
