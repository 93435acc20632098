-- histogram and histc: counts that agree with the edges.
local flare = require "flare"
local refused = require "spec.support.expect".refused

-- Counts by the edges, as NumPy defines them: a bin has its left edge, the last one both.
local function counted(x, edges)
  local counts, bins = {}, #edges - 1
  for b = 1, bins do counts[b] = 0 end
  for _, v in ipairs(x) do
    for b = 1, bins do
      if v >= edges[b] and (v < edges[b + 1] or b == bins and v == edges[b + 1]) then
        counts[b] = counts[b] + 1
        break
      end
    end
  end
  return counts
end

for _, device in ipairs {"cpu", "sim:0"} do
  describe("histogram on " .. device, function()
    it("counts by the edges that it returns", function()
      for _, dtype in ipairs {"f64", "f32", "f16", "bf16", "i64"} do
        for _, step in ipairs {3, 7, 10, 49} do
          for _, bins in ipairs {1, 5, 7, 50, 120} do
            for _, given in ipairs {true, false} do
              local x = flare.arange(0, 60):to("f64") / (dtype == "i64" and 1 or step)
              x = x:to(dtype):to(device)
              local o = {bins = bins}
              if given then o.min, o.max = 0, 50 / step end
              local counts, edges = x:histogram(o)
              local list = x:to("f64"):totable()
              local what = ("%s / %d, %d bins, given %s"):format(dtype, step, bins, given)
              assert.same({what, counted(list, edges:to("f64"):totable())},
                {what, counts:to("i64"):totable()})
            end
          end
        end
      end
    end)

    it("refuses data whose range is not finite, unless bounds are given", function()
      local inf, o = math.huge, {device = device}
      for _, list in ipairs {{1, 2, inf}, {1, -inf, 2}, {1, 0 / 0, 2}, {0 / 0}, {inf, inf}} do
        local x = flare.tensor(list, o)
        refused("histogram: the data reach from", x.histogram, x, {bins = 3})
        refused("histc: the data reach from", x.histc, x, 3)
        refused("give min and max", x.histogram, x, {bins = 3, min = 1})
        assert.equal(3, #x:histogram({bins = 3, min = 0, max = 3}):totable())
      end
      local far = flare.tensor({-1.7e308, 1.7e308}, {dtype = "f64", device = device})
      refused("no finite range", far.histogram, far)
    end)

    it("works without values, and inside vmap", function()
      local x = flare.tensor({{1, 2, 4}, {5, 6, 8}}, {device = device})
      local y = flare.vmap(function(row) return row:histc(3) end)(x)
      assert.same({{1, 1, 1}, {1, 1, 1}}, y:totable())
      local _ <close> = flare.meta()
      assert.equal(3, flare.ones({4}, {device = device}):histogram({bins = 3}):size(1))
    end)

    it("leaves out data outside of given bounds, and NaN", function()
      local x = flare.tensor({-1, 0, 1, 2, 3, 1 / 0, -1 / 0, 0 / 0}, {device = device})
      local counts = x:histogram {bins = 2, min = 0, max = 2}
      assert.same({1, 2}, counts:totable())
      assert.same({1, 2}, x:histc(2, 0, 2):totable())
    end)

    it("ends at the largest element exactly", function()
      local x = flare.tensor({0.1, 0.7, 1.3}, {dtype = "f64", device = device})
      for bins = 1, 40 do
        local counts, edges = x:histogram {bins = bins}
        assert.equal(1.3, edges[-1]:item())
        assert.equal(0.1, edges[1]:item())
        assert.equal(3, counts:sum():item())
      end
    end)
  end)
end
