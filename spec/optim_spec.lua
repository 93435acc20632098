local flare = require "flare"
local optim = flare.optim
local nn = flare.nn
local support = require "spec.support.fill"
local message = require "spec.support.expect".message

local function problem()
  return flare.tensor({1, -2, 0.5}, {requires_grad = true}),
         flare.tensor({{0.3, -0.7}}, {requires_grad = true})
end

local function loss_of(p, q)
  local scale = flare.tensor{1, 2, 3}
  return (p:square() * scale):sum() + (q:sin() * p[{{1, 2}}]):sum()
end

local function steps(opt, p, q, n)
  local sign = opt.groups[1].maximize and -1 or 1
  for _ = 1, n do
    local loss = sign * loss_of(p, q)
    opt:zero_grad()
    loss:backward()
    opt:step()
  end
end

-- class, options, values of both parameters after six steps (computed by PyTorch 2.11)
local cases = {
  {"SGD", {lr = 0.1}, {0.2324721, -0.003046363, 0.002047999, -0.04167403, -0.341549}},
  {"SGD", {lr = 0.05, momentum = 0.9, weight_decay = 0.1},
   {-0.3690267, 1.580992, -0.3280658, -0.2824771, -0.06710494}},
  {"SGD", {lr = 0.05, momentum = 0.9, nesterov = true},
   {-0.2732379, 0.8879675, -0.0969846, -0.2673125, -0.2569351}},
  {"SGD", {lr = 0.05, momentum = 0.9, dampening = 0.5},
   {-0.01141347, 1.152876, -0.3839277, -0.1317767, -0.1400441}},
  {"Adam", {lr = 0.1}, {0.4225625, -1.406036, -0.04743155, -0.2874994, -0.1000551}},
  {"Adam", {lr = 0.1, weight_decay = 0.1, amsgrad = true, betas = {0.5, 0.9}},
   {0.4658067, -1.422515, 0.02757034, -0.2548462, -0.1027625}},
  {"AdamW", {lr = 0.1, weight_decay = 0.2},
   {0.3425802, -1.209671, -0.06787897, -0.2887484, -0.05097676}},
  {"RMSprop", {lr = 0.05}, {0.314446, -0.6452013, 0, -0.8576767, 0.8115524}},
  {"RMSprop", {lr = 0.05, momentum = 0.5, centered = true},
   {0.4379501, -0.06410285, 0.04349547, -1.255845, 1.492498}},
  {"Adagrad", {lr = 0.5, lr_decay = 0.2}, {0.2895024, -0.8641092, 0, -0.6770893, 0.5541365}},
  {"Adagrad", {lr = 0.5, weight_decay = 0.1}, {0.2798992, -0.6471672, 0, -0.7396512, 0.7643671}},
  {"Adadelta", {lr = 0.5, weight_decay = 0.1},
   {0.9901097, -1.990091, 0.4901282, 0.2900971, -0.6900709}},
  {"Adamax", {lr = 0.1, weight_decay = 0.1},
   {0.4989029, -1.443673, 0.0480154, -0.2284889, -0.105778}},
  {"NAdam", {lr = 0.1}, {0.5762136, -1.540783, 0.1141558, -0.1454755, -0.2167981}},
  {"NAdam", {lr = 0.1, weight_decay = 0.5, decoupled = true},
   {0.3934503, -1.092869, 0.06228819, -0.1426723, -0.1118527}},
  {"RAdam", {lr = 0.1, weight_decay = 0.5, decoupled = true},
   {0.03538934, 0.6250941, -0.1920587, -0.08083057, -0.1415322}},
  {"RAdam", {lr = 0.1}, {0.1250332, 0.6573869, -0.2228287, -0.07611208, -0.2254738}},
  {"RAdam", {lr = 0.1, betas = {0.5, 0.8}},
   {0.1486139, 0.2483791, -0.03785021, -0.07293741, -0.3061843}},
  {"RAdam", {lr = 0.1, betas = {0.8, 0.9}},
   {0.1292601, 0.5525774, -0.1749025, -0.08574233, -0.2428668}},
  {"Rprop", {lr = 0.2}, {0.09919997, -0.01401579, 0.08880001, -0.6008001, 1.285984}},
}

describe("optim", function()
  for i, case in ipairs(cases) do
    it(("%s takes PyTorch's steps (%d)"):format(case[1], i), function()
      local p, q = problem()
      steps(optim[case[1]]({p, q}, case[2]), p, q, 6)
      support.near(flare.cat({p:detach(), q:detach():view(-1)}, 1), case[3], 3e-5)
    end)

    it(("%s climbs as it descends (%d)"):format(case[1], i), function()
      local options = {maximize = true}
      for key, value in pairs(case[2]) do options[key] = value end
      local p, q = problem()
      steps(optim[case[1]]({p, q}, options), p, q, 6)
      support.near(flare.cat({p:detach(), q:detach():view(-1)}, 1), case[3], 3e-5)
    end)

    it(("%s goes on from a saved state (%d)"):format(case[1], i), function()
      local p, q = problem()
      local opt = optim[case[1]]({p, q}, case[2])
      steps(opt, p, q, 3)
      local p2 = p:detach():clone():requires_grad_(true)
      local q2 = q:detach():clone():requires_grad_(true)
      local other = optim[case[1]]({p2, q2}, case[2]):load_state_dict(opt:state_dict())
      steps(opt, p, q, 3)
      steps(other, p2, q2, 3)
      assert.is_true(p:detach():eq(p2):all():item() and q:detach():eq(q2):all():item())
    end)
  end

  it("Rprop grows and shrinks in the precision of the parameter", function()
    local p = flare.zeros(1, {dtype = "f64", requires_grad = true})
    local opt = optim.Rprop({p}, {lr = 1})
    for _, slope in ipairs{-1, -1, -1} do
      p.grad = flare.full({1}, slope, {dtype = "f64"})
      opt:step()
    end
    support.near(p:detach(), {1 + 1.2 + 1.44}, 1e-15)
  end)

  it("Lion moves by lr in the direction of a sign", function()
    local p = flare.tensor({1, -1, 2}, {requires_grad = true})
    local opt = optim.Lion({p}, {lr = 0.1, weight_decay = 0.5})
    p.grad = flare.tensor{0.3, -7, 0}
    opt:step()
    support.near(p:detach(), {1 - 0.05 - 0.1, -1 + 0.05 + 0.1, 2 - 0.1}, 1e-6)
    p.grad = flare.tensor{-0.02, 0, 0}
    opt:step()
    -- the mean 0.01 * 0.3 against the new gradient: 0.9 * 0.003 - 0.1 * 0.02 > 0
    support.near(p:detach(), {0.85 * 0.95 - 0.1, -0.85 * 0.95 + 0.1, 1.9 * 0.95}, 1e-6)
  end)

  it("LBFGS finds the bottom of Rosenbrock's valley", function()
    local z = flare.tensor({-1.2, 1}, {dtype = "f64", requires_grad = true})
    local opt = optim.LBFGS({z}, {max_iter = 100, max_eval = 200})
    local first = opt:step(function()
      opt:zero_grad()
      local loss = (1 - z[1]):square() + (z[2] - z[1]:square()):square() * 100
      loss:backward()
      return loss
    end)
    assert.is_true(math.abs(first - 24.2) < 1e-9)
    support.near(z:detach(), {1, 1}, 1e-3)
  end)

  it("skips parameters without gradients and counts their steps apart", function()
    local a = flare.ones(2, {requires_grad = true})
    local b = flare.ones(2, {requires_grad = true})
    local opt = optim.Adam({a, b}, {lr = 0.1})
    a:sum():backward()
    opt:step()
    support.near(b:detach(), {1, 1})
    b:sum():backward()
    opt:step()
    assert.equal(2, opt:state_dict().groups[1].state[1].step)
    assert.equal(1, opt:state_dict().groups[1].state[2].step)
    support.near(b:detach(), {0.9, 0.9})
  end)

  it("has groups with options of their own", function()
    local a = flare.ones(2, {requires_grad = true})
    local b = flare.ones(2, {requires_grad = true})
    local opt = optim.SGD({{params = {a}, lr = 1}, {params = {b}}}, {lr = 0.1})
    local loss = a:sum() + b:sum()
    loss:backward()
    opt:step()
    support.near(a:detach(), {0, 0})
    support.near(b:detach(), {0.9, 0.9})
    assert.has_error(function() opt:add_group{params = {a}} end)
  end)

  it("refuses what cannot be meant, by name", function()
    local p = flare.ones(2, {requires_grad = true})
    assert.match("unknown option 'learning_rate'", message(optim.SGD, {p}, {learning_rate = 1}))
    assert.match("did you mean 'momentum'", message(optim.SGD, {p}, {momentun = 1}))
    assert.match("lr must be a number", message(optim.SGD, {p}, {lr = -1}))
    assert.match("list of parameters", message(optim.Adam, {}))
    assert.match("not a leaf", message(optim.Adam, {p * 2}))
    assert.match("did you mean 'AdamW'", message(function() return optim.Adamw end))
    assert.match("that of SGD", message(function()
      optim.Adam({p}):load_state_dict(optim.SGD({p}):state_dict())
    end))
  end)
end)

describe("clipping", function()
  it("by global norm scales all gradients together", function()
    local a = flare.zeros(2, {requires_grad = true})
    local b = flare.zeros(1, {requires_grad = true})
    a.grad, b.grad = flare.tensor{3, 0}, flare.tensor{4}
    support.near(optim.clip_grad_norm_({a, b}, 10), {5})
    support.near(a.grad, {3, 0})
    optim.clip_grad_norm_({a, b}, 1)
    support.near(a.grad, {0.6, 0}, 1e-5)
    support.near(b.grad, {0.8}, 1e-5)
  end)

  it("by value limits each element", function()
    local a = flare.zeros(3, {requires_grad = true})
    a.grad = flare.tensor{3, -0.1, -9}
    optim.clip_grad_value_({a}, 0.5)
    support.near(a.grad, {0.5, -0.1, -0.5})
  end)
end)

describe("schedules", function()
  local function rates(make, n)
    local p = flare.zeros(1, {requires_grad = true})
    local opt = optim.SGD({p}, {lr = 1})
    local schedule = make(opt)
    local list = {}
    for i = 1, n do
      list[i] = opt.groups[1].lr
      schedule:step()
    end
    return list
  end
  local function same(list, expected)
    for i, value in ipairs(expected) do assert.is_true(math.abs(list[i] - value) < 1e-6) end
  end

  it("follow PyTorch's", function()
    same(rates(function(o) return optim.StepLR(o, {every = 3, gamma = 0.5}) end, 8),
         {1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25})
    same(rates(function(o) return optim.CosineLR(o, {total = 5, floor = 0.1}) end, 6),
         {1, 0.914058, 0.689058, 0.410942, 0.185942, 0.1})
    same(rates(function(o) return optim.LinearLR(o, {total = 5, to = 0.2}) end, 7),
         {1, 0.84, 0.68, 0.52, 0.36, 0.2, 0.2})
    same(rates(function(o) return optim.ExponentialLR(o, {gamma = 0.9}) end, 4),
         {1, 0.9, 0.81, 0.729})
    same(rates(function(o) return optim.MultiStepLR(o, {at = {2, 5}, gamma = 0.5}) end, 8),
         {1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25})
    same(rates(function(o)
      return optim.CosineRestartsLR(o, {period = 2, growth = 2, floor = 0.2})
    end, 8), {1, 0.6, 1, 0.882843, 0.6, 0.317157, 1, 0.969552})
    same(rates(function(o) return optim.PolynomialLR(o, {total = 4, power = 2}) end, 6),
         {1, 0.5625, 0.25, 0.0625, 0, 0})
  end)

  it("warm up, then come down to the floor", function()
    local list = rates(function(o)
      return optim.WarmupCosineLR(o, {warmup = 4, total = 8, floor = 0.1})
    end, 10)
    same(list, {0.25, 0.5, 0.75, 1, 1})
    assert.is_true(math.abs(list[9] - 0.1) < 1e-9 and math.abs(list[10] - 0.1) < 1e-9)
  end)

  it("one cycle goes up and far down", function()
    local list = rates(function(o) return optim.OneCycleLR(o, {total = 10}) end, 11)
    same(list, {0.04, 0.52, 1, 0.9504846, 0.8117457, 0.611262, 0.388742, 0.1882583, 0.04951937,
                4e-6, 4e-6}) -- PyTorch's, which has an end
  end)

  it("a plateau lowers the rate when nothing gets better", function()
    local opt = optim.SGD({flare.zeros(1, {requires_grad = true})}, {lr = 1})
    local schedule = optim.PlateauLR(opt, {patience = 2, factor = 0.5})
    for _, value in ipairs{3, 2, 2, 2} do schedule:step(value) end
    assert.equal(1, opt.groups[1].lr)
    schedule:step(2)
    assert.equal(0.5, opt.groups[1].lr)
  end)

  it("go on from a saved place", function()
    local opt = optim.SGD({flare.zeros(1, {requires_grad = true})}, {lr = 1})
    local schedule = optim.CosineLR(opt, {total = 10})
    for _ = 1, 4 do schedule:step() end
    local other = optim.SGD({flare.zeros(1, {requires_grad = true})}, {lr = 1})
    optim.CosineLR(other, {total = 10}):load_state_dict(schedule:state_dict())
    assert.equal(opt.groups[1].lr, other.groups[1].lr)
    assert.has_error(function() optim.CosineLR(opt, {}) end)
  end)
end)

describe("EMA", function()
  it("averages, swaps in and out, and is saved", function()
    local model = nn.Linear(1, 1, {bias = false})
    nn.init.constant_(model.weight, {value = 0})
    local ema = optim.EMA(model, {decay = 0.5, warmup = false})
    nn.init.constant_(model.weight, {value = 1})
    ema:update()
    ema:update()
    assert.equal(0.75, ema:with(function() return model.weight:item() end))
    assert.equal(1, model.weight:item())
    local other = optim.EMA(model):load_state_dict(ema:state_dict())
    other:copy_to()
    assert.equal(0.75, model.weight:item())
  end)
end)
