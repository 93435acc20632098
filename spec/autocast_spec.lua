-- Autocast: which operators run in the low type, what gradients come out, and that a parameter
-- is cast once.
local flare = require "flare"
local nn = flare.nn

describe("autocast", function()
  for _, dtype in ipairs {"bf16", "f16"} do
    it("runs products in " .. dtype .. " and sums in f32", function()
      local a, b = flare.randn(6, 5), flare.randn(5, 4)
      flare.autocast(dtype, function()
        assert.equal(dtype, a:matmul(b).dtype)
        assert.equal(dtype, nn.Linear(5, 3)(a).dtype)
        assert.equal("f32", flare.softmax(a:matmul(b)).dtype)
        assert.equal("f32", a:matmul(b):mean().dtype)
        assert.equal("f32", (a:matmul(b) + flare.ones(4)).dtype) -- the widest of both
        assert.equal(dtype, (a:matmul(b) * 2).dtype)
      end)
      assert.equal("f32", a:matmul(b).dtype)
    end)
  end

  for _, dtype in ipairs {"bf16", "f16"} do
    it("gives norms of lines in " .. dtype, function()
      local x, w = flare.randn(6, 40):requires_grad_(true), flare.rand(40):requires_grad_(true)
      for _, name in ipairs {"layer_norm", "rms_norm"} do
        local norm = flare[name]
        local y = flare.autocast(dtype, norm, x, w)
        assert.equal(dtype, y.dtype)
        assert.is_true(flare.equal(norm(x, w):to(dtype), y)) -- rounded once
        local low = x:detach():to(dtype)
        assert.is_true(flare.equal(norm(low, w, {dtype = dtype}),
          flare.autocast(dtype, norm, low, w)))
        flare.autocast(dtype, function()
          assert.equal("f32", norm(x, w, {dtype = "f32"}).dtype) -- as asked for
          assert.equal("f64", norm(x:to "f64", w).dtype)
        end)
        local dy = flare.randn(6, 40, {dtype = dtype})
        local got = {flare.grad(y, {x, w}, {gradient = dy})}
        local want = {flare.grad(norm(x, w), {x, w}, {gradient = dy:to "f32"})}
        for k = 1, 2 do
          assert.equal("f32", got[k].dtype)
          assert.is_true(flare.allclose(got[k], want[k], {rtol = 1e-5, atol = 1e-5}):item())
        end
      end
    end)
  end

  for _, name in ipairs {"LSTM", "GRU"} do
    it("runs " .. name .. " in the low type, states included", function()
      flare.manual_seed(4)
      local net = nn[name](6, 8, {layers = 2})
      local h, c = flare.randn(2, 3, 8), name == "LSTM" and flare.randn(2, 3, 8) or nil
      local short = flare.randn(2, 3, 6)
      for k, y in ipairs {flare.autocast("bf16", net, short, h, c, {lengths = {0, 1, 2}})} do
        assert.equal("bf16", y.dtype, k)
      end
      for _, y in ipairs {flare.autocast("bf16", net, short, h, c)} do
        assert.equal("bf16", y.dtype) -- by cells
      end
      local x = flare.randn(9, 3, 6)
      local got = {flare.autocast("bf16", net, x, h, c)}
      local want = {net(x, h, c)}
      for k, y in ipairs(got) do
        assert.equal("bf16", y.dtype)
        -- a few roundings of values below 1, which have 8 bits each
        assert.is_true((y:to "f32" - want[k]):abs():max():item() < 0.03)
      end
      got[1]:to("f32"):square():mean():backward()
      local low = {}
      for key, p in net:named_parameters() do low[key] = p.grad:clone() end
      net:zero_grad()
      want[1]:square():mean():backward()
      for key, p in net:named_parameters() do
        assert.equal("f32", low[key].dtype)
        assert.is_true((low[key] - p.grad):norm():item() < 0.03 * p.grad:norm():item(), key)
      end
    end)
  end

  it("leaves batch_norm as it is, which sums in f32 and has gradients of the weights' dtype",
  function()
    flare.manual_seed(2)
    local x = flare.randn(6, 3, 5, 4):to("bf16"):requires_grad_(true)
    local w, b = flare.rand(3):requires_grad_(true), flare.randn(3):requires_grad_(true)
    local wide = x:detach():to("f32"):requires_grad_(true)
    local y = flare.autocast("bf16", flare.batch_norm, x, w, b)
    assert.equal("bf16", y.dtype)
    local want = flare.batch_norm(wide, w, b)
    assert.is_true(flare.equal(want:to "bf16", y)) -- rounded once
    local dy = flare.randn(6, 3, 5, 4):to "bf16"
    local got = {flare.grad(y, {x, w, b}, {gradient = dy})}
    local right = {flare.grad(want, {wide, w, b}, {gradient = dy:to "f32"})}
    assert.same({"bf16", "f32", "f32"}, {got[1].dtype, got[2].dtype, got[3].dtype})
    for k = 2, 3 do -- not rounded on the way
      assert.is_true(flare.allclose(got[k], right[k], {rtol = 1e-5, atol = 1e-5}):item())
    end
    assert.is_true(flare.allclose(got[1]:to "f32", right[1], {rtol = 1e-2, atol = 1e-2}):item())
  end)

  it("leaves f64, integers and writing in place alone", function()
    local _ <close> = flare.autocast "bf16"
    local d, i = flare.randn(3, 3, {dtype = "f64"}), flare.ones(3, 3, {dtype = "i64"})
    assert.equal("f64", d:matmul(d).dtype)
    assert.equal("i64", i:matmul(i).dtype)
    local x = flare.zeros(3)
    x:add_(flare.ones(3))
    assert.equal("f32", x.dtype)
  end)

  it("gives f32 gradients of f32 parameters, near those without it", function()
    flare.manual_seed(1)
    local model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    local x, target = flare.randn(12, 8), flare.randint(1, 5, {12})
    local function gradients(dtype)
      for _, p in ipairs(model:parameters()) do p.grad = nil end
      local loss = flare.autocast(dtype, function()
        return flare.cross_entropy(model(x), target)
      end)
      loss:backward()
      local list = {}
      for k, p in ipairs(model:parameters()) do list[k] = p.grad end
      return list, loss
    end
    local exact, low = gradients(false), gradients "bf16"
    assert.equal(6, #low)
    for k = 1, #exact do
      assert.equal("f32", low[k].dtype)
      local scale = exact[k]:abs():max():item()
      assert.is_true((exact[k] - low[k]):abs():max():item() <= 0.05 * scale + 1e-3)
    end
    assert.is_true((exact[1] - low[1]):abs():max():item() > 0) -- it did something
  end)

  it("casts a parameter once, and again when it has changed", function()
    local w, x = flare.randn(64, 64):requires_grad_(true), flare.randn(4, 64, {dtype = "bf16"})
    flare.autocast("bf16", function()
      local function counted()
        local before = flare.memory.stats().allocations
        local y = x:matmul(w)
        return y, flare.memory.stats().allocations - before
      end
      local first, with_cast = counted()
      local _, without = counted()
      assert.equal(1, with_cast - without)
      flare.no_grad(function() w:mul_(2) end)
      assert.is_true((x:matmul(w) - first * 2):abs():max():item() == 0)
    end)
  end)

  it("goes backward within it, twice over the same parameters", function()
    local w = flare.randn(4, 4):requires_grad_(true)
    flare.autocast("bf16", function()
      for _ = 1, 2 do w:matmul(flare.ones(4, 1)):sum():backward() end
    end)
    assert.is_true(w.grad:eq(2):all():item())
  end)

  it("keeps nothing of meta mode, in which layers check what they are given", function()
    local y = flare.autocast("bf16", function()
      return nn.Linear(2, 3, {act = "relu"})(flare.ones(1, 2))
    end)
    assert.equal("bf16", y.dtype)
    assert.is_true(y:isfinite():all():item())
  end)

  it("ends with an error in it, and refuses other types", function()
    assert.is_false(pcall(flare.autocast, "bf16", error))
    assert.equal("f32", flare.ones(2, 2):matmul(flare.ones(2, 2)).dtype)
    local ok, why = pcall(flare.autocast, "f32")
    assert.is_false(ok)
    assert.truthy(why:find "autocast: bf16 or f16, not f32")
  end)
end)
