-- Schedules against PyTorch: figures that spec/support/layers_data.py has made.
local flare = require "flare"
local optim = flare.optim
local expect = require "spec.support.expect"
local near = require("spec.support.fill").near
local peers = require "spec.support.layers_data"
local refused = expect.refused

local function sgd() return optim.SGD({flare.zeros(1, {requires_grad = true})},
                                      {lr = 1, momentum = 0.9}) end

-- What `of(group)` says before each step.
local function record(name, opt, schedule, of)
  local list = {}
  for k = 1, #peers[name] do
    list[k] = of(opt.groups[1])
    schedule:step()
  end
  near(flare.tensor(list, {dtype = "f64"}), peers[name], 1e-11)
end

local function rate(group) return group.lr end

describe("schedules", function()
  it("go up and down in cycles", function()
    for _, mode in ipairs{"triangular", "triangular2", "exp_range"} do
      local opt = sgd()
      record("cyclic_" .. mode, opt, optim.CyclicLR(opt, {floor = 0.1, up = 3, down = 2,
                                                          mode = mode, gamma = 0.9}), rate)
    end
    local opt = sgd()
    record("cyclic_even", opt, optim.CyclicLR(opt, {floor = 0.25, up = 2}), rate)
  end)

  it("hold, follow one another and multiply", function()
    local opt = sgd()
    record("constant", opt, optim.ConstantLR(opt, {factor = 0.25, total = 3}), rate)
    opt = sgd()
    local parts = {optim.LinearLR(opt, {from = 0.25, to = 1, total = 3}),
                   optim.ExponentialLR(opt, {gamma = 0.5}), optim.StepLR(opt, {every = 2})}
    record("sequential", opt, optim.SequentialLR(opt, {schedules = parts, at = {3, 6}}), rate)
    opt = sgd()
    parts = {optim.ConstantLR(opt, {factor = 0.25, total = 3}),
             optim.ExponentialLR(opt, {gamma = 0.5})}
    record("chained", opt, optim.ChainedLR(opt, {schedules = parts}), rate)
  end)

  it("lower the momentum while the rate goes up", function()
    local function momentum(group) return group.momentum end
    local opt = sgd()
    record("cyclic_momentum", opt, optim.CyclicLR(opt, {floor = 0.1, up = 3, down = 2,
                                                        momentum = {0.8, 0.9}}), momentum)
    opt = sgd()
    record("one_cycle_momentum", opt,
           optim.OneCycleLR(opt, {total = 10, momentum = {0.85, 0.95}}), momentum)
    opt = optim.Adam{flare.zeros(1, {requires_grad = true})}
    record("one_cycle_beta", opt, optim.OneCycleLR(opt, {total = 10, momentum = {0.85, 0.95}}),
           function(group) return group.betas[1] end)
  end)

  it("have a function for each group", function()
    local function p() return flare.zeros(1, {requires_grad = true}) end
    local opt = optim.SGD({{params = {p()}, lr = 1}, {params = {p()}, lr = 4}}, {lr = 1})
    local each = optim.LambdaLR(opt, {f = {function(t) return 1 / (t + 1) end,
                                           function(t) return t end}})
    assert.same({1, 0}, {each:lr()})
    local both = optim.ChainedLR(opt, {schedules = {each, optim.StepLR(opt, {every = 2})}})
    both:step()
    assert.same({0.5, 4}, {both:lr()})
    both:step()
    near(flare.tensor({both:lr()}, {dtype = "f64"}), {0.1 / 3, 0.8}, 1e-12)
    refused("1 functions for 2 groups", optim.LambdaLR, opt, {f = {print}})
    refused("f must be a function at 2, got number", optim.LambdaLR, opt, {f = {print, 3}})
    refused("f must be a function, got number", optim.LambdaLR, opt, {f = 3})
  end)

  it("go on from a saved place, in parts as well", function()
    local function make(opt)
      return optim.SequentialLR(opt, {schedules = {optim.LinearLR(opt, {from = 0.1, to = 1,
        total = 4}), optim.CosineLR(opt, {total = 9})}, at = {4}})
    end
    local a, b = sgd(), sgd()
    local one, two = make(a), make(b)
    for _ = 1, 7 do one:step() end
    two:load_state_dict(one:state_dict())
    assert.equal(a.groups[1].lr, b.groups[1].lr)
  end)

  it("say what does not fit", function()
    local opt = sgd()
    refused("the option floor is needed", optim.CyclicLR, opt, {})
    refused("unknown mode 'triangle' (did you mean", optim.CyclicLR, opt,
            {floor = 0.1, mode = "triangle"})
    refused("optim.CyclicLR: floor must be a number, got string", optim.CyclicLR, opt,
            {floor = "low"})
    refused("up must be an integer of at least 1", optim.CyclicLR, opt, {floor = 0.1, up = 0})
    refused("momentum must be two numbers, like {0.85, 0.95}", optim.OneCycleLR, opt,
            {total = 5, momentum = {0.9}})
    refused("the optimizer has no momentum", optim.OneCycleLR,
            optim.SGD{flare.zeros(1, {requires_grad = true})},
            {total = 5, momentum = {0.85, 0.95}})
    local part = optim.StepLR(opt, {every = 2})
    refused("2 schedules need 1 steps in at", optim.SequentialLR, opt,
            {schedules = {part, part}, at = {}})
    refused("entry 2 of schedules is not a schedule of this optimizer", optim.ChainedLR, opt,
            {schedules = {part, optim.StepLR(sgd(), {every = 2})}})
    refused("schedules must be a list", optim.ChainedLR, opt, {schedules = 3})
  end)
end)

describe("optimizers", function()
  local fill = require("spec.support.fill").fill

  local function problem()
    return fill({3, 4}, 1):float():requires_grad_(true),
           fill({4, 2}, 2):float():requires_grad_(true)
  end
  local function run(opt, p, q, n)
    local sign = opt.groups[1].maximize and -1 or 1
    for _ = 1, n do
      opt:zero_grad();
      (sign * (p:matmul(q):square():sum() + (p:sin() * 0.3):sum())):backward()
      opt:step()
    end
  end
  local function all(p, q) return flare.cat({p:detach():view(-1), q:detach():view(-1)}, 1) end

  for name, case in pairs{
    asgd = {"ASGD", {lr = 0.05, t0 = 2, lambda = 0.1, weight_decay = 0.1}, 3e-6},
    adafactor = {"Adafactor", {lr = 0.3, weight_decay = 0.1}, 3e-5},
    adafactor_far = {"Adafactor", {lr = 0.9, limit = 1.5, eps = 1e-4, floor = 0.9,
                                   beta2_decay = -0.5}, 3e-5},
    muon = {"Muon", {lr = 0.05, dtype = "f32"}, 3e-5},
    muon_rms = {"Muon", {lr = 0.1, nesterov = false, momentum = 0.8, weight_decay = 0,
                         dtype = "f32", adjust = "match_rms_adamw"}, 3e-5},
  } do
    it(name .. " takes PyTorch's steps, upwards too, and goes on", function()
      local p, q = problem()
      local opt = optim[case[1]]({p, q}, case[2])
      run(opt, p, q, 3)
      local p2 = p:detach():clone():requires_grad_(true)
      local q2 = q:detach():clone():requires_grad_(true)
      local other = optim[case[1]]({p2, q2}, case[2]):load_state_dict(opt:state_dict())
      run(opt, p, q, 3)
      run(other, p2, q2, 3)
      near(all(p, q), peers[name], case[3])
      assert.is_true(all(p, q):equal(all(p2, q2)))
      local options = {maximize = true}
      for key, value in pairs(case[2]) do options[key] = value end
      p, q = problem()
      run(optim[case[1]]({p, q}, options), p, q, 6)
      near(all(p, q), peers[name], case[3])
    end)
  end

  it("Adafactor keeps rows and columns of matrices, all of vectors", function()
    local v = flare.ones(5, {requires_grad = true})
    local w = flare.ones(2, 3, 4, {requires_grad = true})
    local opt = optim.Adafactor({v, w})
    for _ = 1, 2 do
      opt:zero_grad();
      ((v * fill({5}, 1):float()):sum() + (w * fill({2, 3, 4}, 2):float()):sum()):backward()
      opt:step()
    end
    local shapes = {}
    for _, state in ipairs(opt:state_dict().groups[1].state) do
      for _, m in ipairs(state.moments) do shapes[#shapes + 1] = tostring(m.shape) end
    end
    assert.same({"(5)", "(0)", "(2, 3, 1)", "(2, 1, 4)"}, shapes)
    assert.is_true(v:isfinite():all():item() and w:isfinite():all():item())
  end)

  it("Muon takes matrices alone, and bf16 is enough for it", function()
    local w = flare.zeros(6, 4, {requires_grad = true})
    w.grad = fill({6, 4}, 1):float() + flare.eye(6)[{{}, {1, 4}}] * 3
    optim.Muon({w}, {lr = 1}):step()
    local s = (w:detach() / 1.5 ^ 0.5):svdvals()
    assert.is_true(s:gt(0.6):all():item() and s:lt(1.3):all():item())
    local v = flare.ones(5, {requires_grad = true})
    refused("parameters must be matrices, parameter 1 is (5); AdamW takes the others", optim.Muon,
            {v})
    refused("unknown adjust 'orignal' (did you mean 'original'?)", optim.Muon,
            {flare.ones(2, 2, {requires_grad = true})}, {adjust = "orignal"})
  end)
end)
