-- cosine_similarity of vectors whose squares overflow or vanish.
local flare = require "flare"

local function close(want, got, tolerance)
  assert(math.abs(want - got) <= (tolerance or 1e-6), ("%g, not %g"):format(got, want))
end

for _, device in ipairs {"cpu", "sim:0"} do
  describe("cosine_similarity on " .. device, function()
    local sizes = {f32 = {1e20, 1e-20, 3e38, 1e-38, 1}, f64 = {1e20, 1e200, 1e-200, 1e308, 1e-300},
                   f16 = {6e4, 1e-4, 1}, bf16 = {1e20, 1e-20, 3e38}}

    it("does not depend on the lengths", function()
      for dtype, list in pairs(sizes) do
        local o = {dtype = dtype, device = device}
        for _, s in ipairs(list) do
          for _, t in ipairs(list) do
            local a = flare.tensor({{s, 0}, {s / 2, s / 2}, {s, 0}, {s, -s}}, o)
            local b = flare.tensor({{t, 0}, {t, 0}, {0, t}, {-t, t}}, o)
            local y = a:cosine_similarity(b, {dim = 2, eps = 0}):to("f64"):totable()
            local tolerance = (dtype == "f16" or dtype == "bf16") and 1e-2 or 1e-6
            close(1, y[1], tolerance)
            close(math.sqrt(0.5), y[2], tolerance)
            close(0, y[3], tolerance)
            close(-1, y[4], tolerance)
          end
        end
      end
    end)

    it("holds norms above eps", function()
      local o = {dtype = "f64", device = device}
      local a = flare.tensor({{1e-10, 0}, {0, 0}, {3, 4}}, o)
      local y = a:cosine_similarity(a, {dim = 2, eps = 1e-8}):totable()
      close(1e-4, y[1], 1e-12)
      assert.equal(0, y[2])
      close(1, y[3], 1e-12)
      local small = flare.tensor({{1e-30, 0}}, {device = device})
      close(1e-44, small:cosine_similarity(small, {dim = 2}):item(), 1e-45)
    end)

    it("has a gradient at every length", function()
      for dtype in pairs(sizes) do
        local all = dtype == "f64" and {1e20, 1e200, 1e-200} or dtype == "f32" and {1e20, 1e-15, 1}
        for _, s in ipairs(all or {}) do
          local o = {dtype = dtype, device = device, requires_grad = true}
          local a = flare.tensor({{3 * s, 4 * s}}, o)
          local b = flare.tensor({{1, 0}}, {dtype = dtype, device = device})
          a:cosine_similarity(b, {dim = 2, eps = 0}):sum():backward()
          local d = a.grad:totable()[1] -- (b - cos a / |a|) / |a|
          close(1, d[1] * s / ((1 - 0.36) / 5), 1e-5)
          close(1, d[2] * s / (-0.48 / 5), 1e-5)
        end
      end
    end)

    it("passes gradcheck", function()
      local o = {dtype = "f64", device = device}
      local a, b = flare.randn({3, 4}, o), flare.randn({3, 4}, o)
      assert.is_true(flare.gradcheck(function(x, y) return x:cosine_similarity(y, 2) end, {a, b}))
    end)
  end)
end
