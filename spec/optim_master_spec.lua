-- 16-bit parameters: the f32 copies that optimizers update in their place, and averages of them.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
local message = require "spec.support.expect".message
local optimizers = require "spec.support.optimizers"

local STEPS = 1000
local ulp = {bf16 = 0x1p-8, f16 = 0x1p-11}

-- A parameter of this dtype from 0.5 to 1, whose spacing is one power of two.
local function start(dtype)
  return flare.linspace(0.51, 0.99, 12):view(3, 4):to(dtype):to "f32"
end

-- The gradient of step t, exact in both 16-bit types, mostly of one sign.
local function gradient(t)
  return (flare.arange(12):view(3, 4) * 7 + 3 * t):remainder(8) / 8 + 0.25
end

-- One step with a gradient of the parameter's dtype; LBFGS wants a function.
local function step(opt, p, grad)
  p.grad = grad:to(p.dtype)
  opt:step(function() return 1 end)
end

local function pair(name, dtype, opts)
  local low = start(dtype):to(dtype):requires_grad_(true)
  local full = start(dtype):requires_grad_(true)
  local o = {}
  for key, value in pairs(opts) do o[key] = value end
  o.lr = 1e-5
  return low, full, optim[name]({low}, o), optim[name]({full}, o)
end

local function most(a, b) return (a:detach():float() - b:detach()):abs():amax():item() end

describe("master weights", function()
  for _, dtype in ipairs {"bf16", "f16"} do
    for name, entry in pairs(optimizers) do
      it(("of %s let %s follow f32 for %d steps at 1e-5"):format(name, dtype, STEPS), function()
        local low, full, a, b = pair(name, dtype, entry.options or {})
        for t = 1, STEPS do
          step(a, low, gradient(t))
          step(b, full, gradient(t))
        end
        assert.equal(dtype, low.dtype)
        -- half a unit in the last place, and what an f32 sum of 1000 steps may differ by
        assert.is_true(most(low, full) <= ulp[dtype] / 2 + (entry.loose or 1e-5),
                       ("%s is %g off"):format(name, most(low, full)))
        local moved = most(full, start(dtype))
        if moved > 4 * ulp[dtype] then
          assert.is_true(most(low, start(dtype)) > moved / 2, "the weights have not moved")
        end
      end)
    end
  end

  it("are what makes the difference, and can be turned off", function()
    local low, full, a, b = pair("SGD", "bf16", {})
    local plain = start("bf16"):to("bf16"):requires_grad_(true)
    local c = optim.SGD({plain}, {lr = 1e-5, master = false})
    for t = 1, STEPS do
      step(a, low, gradient(t))
      step(b, full, gradient(t))
      step(c, plain, gradient(t))
    end
    assert.equal(0, most(plain, start "bf16"))
    assert.is_true(most(low, start "bf16") > 0.004)
    assert.is_nil(c:state_dict().groups[1].state[1].master)
    assert.equal("f32", a:state_dict().groups[1].state[1].master.dtype)
  end)

  it("are those of 16-bit parameters only, group by group", function()
    local f, h, k = flare.ones(2, {requires_grad = true}),
      flare.ones(2, {dtype = "f16", requires_grad = true}),
      flare.ones(2, {dtype = "bf16", requires_grad = true})
    local opt = optim.Adam{{params = {f, h}}, {params = {k}, master = false}}
    for _, p in ipairs {f, h, k} do p.grad = flare.ones_like(p) end
    opt:step()
    local states = {opt.groups[1].state[1], opt.groups[1].state[2], opt.groups[2].state[1]}
    assert.is_nil(states[1].master)
    assert.equal("f32", states[2].master.dtype)
    assert.equal("f32", states[2].moments[1].dtype)
    assert.is_nil(states[3].master)
    assert.equal("bf16", states[3].moments[1].dtype)
    assert.match("master=true", tostring(opt))
    assert.match("belong to groups", message(function() opt.master = false end))
  end)

  it("are saved and loaded: a run that is resumed is the run", function()
    for _, name in ipairs {"SGD", "AdamW", "Muon"} do
      local entry = optimizers[name]
      local low, _, a = pair(name, "bf16", entry.options or {})
      for t = 1, 40 do step(a, low, gradient(t)) end
      local path = os.tmpname()
      assert(flare.save(path, {weight = low:detach(), opt = a:state_dict()}))
      local saved = assert(flare.load(path))
      os.remove(path)
      local again, _, b = pair(name, "bf16", entry.options or {})
      flare.no_grad(function() again:copy_(saved.weight) end)
      b:load_state_dict(saved.opt)
      for t = 41, 80 do
        step(a, low, gradient(t))
        step(b, again, gradient(t))
      end
      assert.is_true(a.groups[1].state[1].master:equal(b.groups[1].state[1].master), name)
      assert.is_true(low:equal(again))
    end
  end)

  it("take older states, whose moments are of 16 bits, and give states to plain ones", function()
    local low, _, a = pair("Adam", "bf16", {})
    local old = optim.Adam({low}, {lr = 1e-5, master = false})
    step(old, low, gradient(1))
    local state = old:state_dict()
    state.groups[1].options.master, state.version = nil, nil
    a:load_state_dict(state)
    assert.is_true(a.groups[1].master)
    step(a, low, gradient(2))
    local own = a.groups[1].state[1]
    assert.equal("f32", own.moments[1].dtype)
    assert.equal(2, own.step)
    local given = a:state_dict()
    given.groups[1].options.master = false
    old:load_state_dict(given)
    assert.is_nil(old.groups[1].state[1].master)
    assert.equal("bf16", old.groups[1].state[1].moments[1].dtype)
  end)

  it("take what others write into the parameters", function()
    local low, _, a = pair("SGD", "bf16", {})
    for t = 1, 10 do step(a, low, gradient(t)) end
    local copy = a.groups[1].state[1].master:clone()
    flare.no_grad(function() low[1] = 2 end)
    step(a, low, flare.zeros(3, 4))
    local now = a.groups[1].state[1].master
    assert.is_true(now[1]:eq(2):all():item())
    assert.is_true(now[{{2, 3}}]:equal(copy[{{2, 3}}])) -- not rounded
    local model = nn.Linear(2, 2):to "bf16"
    local opt = optim.SGD(model, {lr = 1e-5})
    for _, p in ipairs(model:parameters()) do p.grad = flare.zeros_like(p) end
    opt:step()
    local state = {weight = flare.full({2, 2}, 3), bias = flare.full({2}, 4)}
    model:load_state_dict(state)
    opt:step()
    assert.is_true(model.weight:eq(3):all():item() and model.bias:eq(4):all():item())
  end)

  it("recover from values that overflow f16", function()
    local low = flare.full({2}, 60000, {dtype = "f16", requires_grad = true})
    local opt = optim.SGD({low}, {lr = 1})
    low.grad = flare.full({2}, -30000, {dtype = "f16"})
    opt:step()
    assert.equal(math.huge, low[1]:item())
    low.grad = flare.full({2}, 30000, {dtype = "f16"})
    opt:step()
    assert.is_true(math.abs(low[1]:item() - 60000) < 64)
  end)

  it("work with clipping, the GradScaler, schedules and missing gradients", function()
    flare.manual_seed(3)
    local model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)):to "f16"
    local unused = flare.ones(2, {dtype = "f16", requires_grad = true})
    local params = model:parameters()
    params[#params + 1] = unused
    local opt, scaler = optim.AdamW(params, {lr = 1e-2}), optim.GradScaler{scale = 128}
    local schedule = optim.CosineLR(opt, {total = 60})
    local x = flare.randn(32, 4, {dtype = "f16"})
    local y = x:sum{dim = 2, keepdim = true}
    local first, last
    for _ = 1, 60 do
      local loss = flare.mse_loss(model(x), y)
      opt:zero_grad()
      scaler:scale(loss):backward()
      scaler:unscale_(opt)
      optim.clip_grad_norm_(params, 1)
      scaler:step(opt)
      scaler:update()
      schedule:step()
      first, last = first or loss:item(), loss:item()
    end
    assert.is_true(last < first / 4)
    assert.is_nil(opt.groups[1].state[#params].master)
    assert.is_true(unused:eq(1):all():item())
  end)
end)

describe("EMA of 16-bit weights", function()
  it("is kept in f32, and leaves the weights as they were", function()
    local p = flare.ones(3, {dtype = "bf16", requires_grad = true})
    local ema = optim.EMA({p}, {warmup = false})
    flare.no_grad(function() p:fill_(2) end)
    for _ = 1, 100 do ema:update() end
    local want = 2 - 0.999 ^ 100
    assert.is_true(math.abs(ema.averages[1][1]:item() - want) < 1e-5)
    local inside = ema:with(function() return p[1]:item() end)
    assert.is_true(math.abs(inside - want) < 0x1p-8)
    assert.equal(2, p[1]:item())
    assert.is_true(math.abs(ema.averages[1][1]:item() - want) < 1e-5)
    local other = optim.EMA({p}):load_state_dict(ema:state_dict())
    assert.is_true(other.averages[1]:equal(ema.averages[1]))
  end)
end)
