-- Gradients of slices add up in one tensor, which is written where nothing was yet.
local flare = require "flare"

-- A view of x * 1 that gradients come to part by part.
local function view(x, how)
  local base = x * 1
  if how == 2 then return base:permute(3, 1, 2) end
  if how == 3 then return base:transpose(1, 3) end
  return how == 4 and base:view(-1, x:size(3)) or base
end

describe("a sum of parts", function()
  it("is what it would be in a tensor of zeros, whatever is taken and left out", function()
    local random = math.random
    math.randomseed(5)
    local generator = flare.generator(5)
    local function draw(shape) return flare.randn(shape, {dtype = "f64", generator = generator}) end
    for _ = 1, 500 do
      local x = draw {random(6), random(6), random(6)}:requires_grad_(true)
      local v = view(x, random(4))
      local loss, want = 0, flare.zeros_like(v)
      for _ = 1, random(12) do
        local dim, kind = random(v.ndim), random(5)
        local n = v:size(dim)
        local i, step = random(n), random(3)
        local length = kind < 4 and random(n - i + 1) or (n - 1) // step + 1
        local function part(t)
          if kind == 1 then return t:select(dim, i) end
          if kind == 5 then return t:flip(dim) end
          if kind == 4 then return t:narrow(dim, 1, length, step) end
          return t:narrow(dim, i, length)
        end
        local w = draw(part(v).shape)
        loss = loss + (part(v) * w):sum()
        if kind == 5 then want:add_(w:flip(dim)) else part(want):add_(w) end
      end
      local dv = flare.grad(loss, {v}, {retain_graph = true})
      local off = (dv - want):abs():max():item()
      assert(off < 1e-12, off)
      local dx = flare.grad((v * want):sum(), {x}, {retain_graph = true})
      assert.equal(0, (flare.grad(loss, {x}) - dx):abs():gt(1e-12):sum():item())
    end
  end)

  it("is another one for each result of a node", function()
    local options = {dtype = "f64", generator = flare.generator(2)}
    local gates = flare.randn({5, 8}, options):requires_grad_(true)
    local h, c = flare.lstm_cell(gates, flare.randn({5, 2}, options))
    local loss = h:select(1, 2) + 2 * c:select(1, 1) + 3 * h:select(1, 5) + 4 * c:select(1, 3)
    local function at(rows) return flare.tensor(rows, {dtype = "f64"}):view(5, 1) end
    local want = (h * at {0, 1, 0, 0, 3} + c * at {2, 0, 4, 0, 0}):sum()
    want = flare.grad(want, {gates}, {retain_graph = true})
    assert.same(want:tolist(), flare.grad(loss:sum(), {gates}):tolist())
  end)

  it("of a permuted tensor needs neither zeros nor a copy to get back", function()
    for _, device in ipairs {"cpu", "sim:0"} do
      local x = flare.randn({2, 5, 3, 4, 6}, {device = device}):requires_grad_(true)
      local heads = (x * 1):permute(3, 1, 4, 2, 5)
      local loss = (heads[1] * heads[2]):sum() + heads[3]:sum()
      local report = flare.profile(function() loss:backward() end)
      local calls = {}
      for _, row in ipairs(report:sums "op") do calls[row.name] = row.calls end
      assert.equal(3, calls["assign (backward)"])
      assert.is_nil(calls["add (backward)"])
      assert.is_nil(calls["copy (backward)"])
      assert.is_true((calls["full (backward)"] or 0) < 2) -- the first gradient, 1
      assert.is_true(x.grad:is_contiguous())
    end
  end)
end)
