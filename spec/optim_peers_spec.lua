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
    refused("up must be an integer of at least 1", optim.CyclicLR, opt, {floor = 0.1, up = 0})
    refused("momentum must be two numbers, like {0.85, 0.95}", optim.OneCycleLR, opt,
            {total = 5, momentum = {0.9}})
    refused("the optimizer has no momentum to be changed", optim.OneCycleLR,
            optim.SGD{flare.zeros(1, {requires_grad = true})},
            {total = 5, momentum = {0.85, 0.95}})
    local part = optim.StepLR(opt, {every = 2})
    refused("2 schedules need 1 steps in at", optim.SequentialLR, opt,
            {schedules = {part, part}, at = {}})
    refused("entry 2 of schedules is no schedule of this optimizer's", optim.ChainedLR, opt,
            {schedules = {part, optim.StepLR(sgd(), {every = 2})}})
    refused("schedules must be a list", optim.ChainedLR, opt, {schedules = 3})
  end)
end)
