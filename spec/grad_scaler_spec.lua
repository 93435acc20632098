-- Loss scaling: what is scaled, which steps are left out, how the factor moves.
local flare = require "flare"
local optim = flare.optim

local function parameter() return flare.tensor({1, -2, 0.5}, {requires_grad = true}) end

-- One step with loss(p); whether it was taken.
local function step(scaler, opt, p, loss)
  opt:zero_grad()
  scaler:scale(loss(p)):backward()
  local taken = scaler:step(opt)
  scaler:update()
  return taken
end

local function square(p) return p:square():sum() end
local function infinite(p) return (p * math.huge):sum() end

describe("optim.GradScaler", function()
  it("takes the steps that are taken without it", function()
    local p, q = parameter(), parameter()
    local scaler, opt = optim.GradScaler(), optim.SGD({p}, {lr = 0.1})
    local other = optim.SGD({q}, {lr = 0.1})
    for _ = 1, 5 do
      assert.is_true(step(scaler, opt, p, square))
      other:zero_grad()
      square(q):backward()
      other:step()
    end
    -- factors are powers of two: exactly
    assert.same(q:tolist(), p:tolist())
  end)

  it("keeps gradients of f16 that would be zero", function()
    local function loss(w) return w:to "f16":to "f32":sum() * 1e-9 end
    local w = flare.tensor({1, 2}, {requires_grad = true})
    loss(w):backward()
    assert.same({0, 0}, w.grad:tolist())
    w.grad = nil
    local scaler, opt = optim.GradScaler{scale = 2.0 ^ 20}, optim.SGD({w}, {lr = 1})
    scaler:scale(loss(w)):backward()
    assert.is_true(scaler:unscale_(opt))
    for _, g in ipairs(w.grad:tolist()) do assert.is_true(math.abs(g - 1e-9) < 1e-11) end
  end)

  it("skips a step whose gradients are not finite, and halves the scale", function()
    local p = parameter()
    local scaler, opt = optim.GradScaler{scale = 1024}, optim.AdamW({p})
    assert.is_false(step(scaler, opt, p, infinite))
    assert.same({1, -2, 0.5}, p:tolist())
    assert.equal(0, opt.groups[1].state[1].step)
    assert.equal(512, scaler.factor)
    assert.equal(1, scaler.skipped)
    assert.is_false(step(scaler, opt, p, function(x) return (x * (0 / 0)):sum() end))
    assert.equal(256, scaler.factor)
    assert.is_true(step(scaler, opt, p, square))
    assert.equal(256, scaler.factor)
    assert.not_same({1, -2, 0.5}, p:tolist())
  end)

  it("doubles the factor after a row of good steps", function()
    local p = parameter()
    local scaler, opt = optim.GradScaler{scale = 8, interval = 3}, optim.SGD({p}, {lr = 0.01})
    local factors = {}
    for i = 1, 8 do
      step(scaler, opt, p, i == 5 and infinite or square)
      factors[i] = scaler.factor
    end
    assert.same({8, 8, 16, 16, 8, 8, 8, 16}, factors)
  end)

  it("unscales for clipping, once", function()
    local p = parameter()
    local scaler, opt = optim.GradScaler(), optim.SGD({p}, {lr = 1})
    scaler:scale(square(p)):backward()
    assert.is_true(scaler:unscale_(opt))
    assert.same({2, -4, 1}, p.grad:tolist())
    assert.has_error(function() scaler:unscale_(opt) end,
      "GradScaler: unscale_ was called already since the last update")
    optim.clip_grad_value_({p}, 1)
    assert.is_true(scaler:step(opt))
    assert.same({0, -1, -0.5}, p:tolist())
  end)

  it("looks at each optimizer's gradients by themselves", function()
    local p, q = parameter(), parameter()
    local scaler, a, b = optim.GradScaler(), optim.SGD({p}), optim.SGD({q})
    scaler:scale(square(p) + infinite(q)):backward()
    assert.is_true(scaler:step(a))
    assert.is_false(scaler:step(b))
    scaler:update()
    assert.equal(32768, scaler.factor)
  end)

  it("does nothing when it is not enabled", function()
    local p = parameter()
    local scaler, opt = optim.GradScaler{enabled = false}, optim.SGD({p}, {lr = 0.5})
    local loss = square(p)
    assert.is_true(rawequal(loss, scaler:scale(loss)))
    assert.is_true(step(scaler, opt, p, square))
    assert.same({0, 0, 0}, p:tolist())
    assert.is_true(step(scaler, opt, p, infinite))
  end)

  it("goes on from a saved state", function()
    local p = parameter()
    local scaler, opt = optim.GradScaler{scale = 4, interval = 2}, optim.SGD({p}, {lr = 0.01})
    step(scaler, opt, p, square)
    local other = optim.GradScaler{interval = 2}:load_state_dict(scaler:state_dict())
    step(other, opt, p, square)
    assert.equal(8, other.factor)
    assert.has_error(function() other:load_state_dict{} end,
      "GradScaler: this is not a scaler's state")
  end)

  it("refuses what cannot work", function()
    for key, value in pairs {scale = 0, growth = 1, backoff = 1, interval = 0} do
      local ok, why = pcall(optim.GradScaler, {[key] = value})
      assert.is_false(ok)
      assert.truthy(tostring(why):find("optim.GradScaler: " .. key, 1, true))
    end
  end)
end)
