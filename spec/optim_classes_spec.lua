-- Every public name of flare.optim has an entry: optimizers in spec/support/optimizers.lua, the
-- others here. What holds for all of them is checked from these tables.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
local expect = require "spec.support.expect"
local message = expect.message
local optimizers = require "spec.support.optimizers"

local function start(dtype) return flare.linspace(-0.9, 1.1, 12):view(4, 3):to(dtype or "f64") end

local function gradient(t, dtype)
  return (flare.arange(12, {dtype = "f64"}) * 0.7 + t):sin():view(4, 3):to(dtype or "f64")
end

local function merged(...)
  local out = {}
  for _, o in ipairs {...} do
    for key, value in pairs(o) do out[key] = value end
  end
  return out
end

local function leaf(dtype) return start(dtype):requires_grad_(true) end

local function make(name, params, opts)
  return optim[name](params, merged({lr = 0.02}, optimizers[name].options or {}, opts or {}))
end

local function step(opt, p, grad)
  p.grad = grad
  return opt:step(function() return 7 end)
end

-- The formula's values after steps with these gradients, from o = the group's options.
local function reference(entry, o, grads)
  local p = start():totable()
  if entry.matrix then
    local state = {}
    for t, grad in ipairs(grads) do p = entry.matrix(p, grad:totable(), state, t, o) end
  else
    for i, row in ipairs(p) do
      for j in ipairs(row) do
        local state = {}
        for t, grad in ipairs(grads) do
          row[j] = entry.step(row[j], grad[{i, j}]:item(), state, t, o)
        end
      end
    end
  end
  return flare.tensor(p, {dtype = "f64"})
end

local function near(p, want, tolerance)
  local off = (p:detach():double() - want):abs():amax():item()
  assert(off <= tolerance, ("%g off"):format(off))
end

local function gradients(n, sign)
  local list = {}
  for t = 1, n do list[t] = gradient(t) * (sign or 1) end
  return list
end

local checks = {}

function checks.formula(name, entry)
  local n = entry.one and 1 or 8
  for dtype, tolerance in pairs {f64 = entry.loose and 1e-6 or 1e-11, f32 = entry.loose or 2e-6} do
    local p = leaf(dtype)
    local opt = make(name, {p})
    for t = 1, n do step(opt, p, gradient(t, dtype)) end
    near(p, reference(entry, opt.groups[1], gradients(n)), tolerance)
  end
end

function checks.defaults(name, entry)
  for key, value in pairs(entry.defaults) do
    assert.equal(value, optim[name]({leaf()}).groups[1][key], key)
  end
end

function checks.maximize(name, entry)
  if optim[name].defaults.maximize == nil then return end
  local p = leaf()
  local opt = make(name, {p}, {maximize = true})
  for t = 1, 3 do step(opt, p, gradient(t)) end
  near(p, reference(entry, opt.groups[1], gradients(3, -1)), entry.loose and 1e-6 or 1e-11)
end

function checks.state(name, entry)
  local p, path = leaf "f32", os.tmpname()
  local opt = make(name, {p})
  for t = 1, 3 do step(opt, p, gradient(t, "f32")) end
  assert(flare.save(path, {p = p:detach(), opt = opt:state_dict()}))
  local saved = assert(flare.load(path))
  os.remove(path)
  local q = saved.p:requires_grad_(true)
  local again = optim[name]({q}, entry.options)
  assert.equal(again, again:load_state_dict(saved.opt))
  assert.equal(0.02, again.groups[1].lr)
  for t = 4, 6 do
    step(opt, p, gradient(t, "f32"))
    step(again, q, gradient(t, "f32"))
  end
  assert.is_true(p:equal(q))
  local other = name == "SGD" and optim.Adam({leaf()}) or optim.SGD({leaf()})
  assert.match("state is that of " .. name, message(other.load_state_dict, other, opt:state_dict()))
end

function checks.groups(name, entry)
  local p, q = leaf(), leaf()
  local list = {{params = {p}}, {params = {q}, lr = 0.005}}
  if name == "LBFGS" then
    assert.match("only one group of parameters is possible", message(make, name, list))
    return
  end
  local opt = make(name, list)
  local n = 3
  for t = 1, n do
    q.grad = gradient(t)
    step(opt, p, gradient(t))
  end
  near(p, reference(entry, opt.groups[1], gradients(n)), entry.loose and 1e-6 or 1e-11)
  near(q, reference(entry, opt.groups[2], gradients(n)), entry.loose and 1e-6 or 1e-11)
  assert.match("in the optimizer already", message(opt.add_group, opt, {params = {p}}))
end

-- A parameter without a gradient stays, and its first one is its step 1.
function checks.missing(name, entry)
  local p, late, empty = leaf(), leaf(), flare.zeros({0, 3}, {dtype = "f64", requires_grad = true})
  local opt = make(name, {p, late, empty})
  opt:step(function() return 1 end)
  assert.is_true(p:equal(start()) and late:equal(start()))
  if name == "LBFGS" then return end -- has one state for all
  empty.grad = flare.zeros_like(empty)
  step(opt, p, gradient(1))
  assert.is_true(late:equal(start()))
  opt:zero_grad()
  assert.is_nil(p.grad)
  step(opt, late, gradient(1))
  local want = reference(entry, opt.groups[1], gradients(1))
  near(p, want, 1e-6)
  near(late, want, 1e-6)
end

function checks.closure(name)
  local p = leaf()
  local opt = make(name, {p})
  assert.equal(7, step(opt, p, gradient(1)))
  assert.match("function", message(opt.step, opt, 3))
end

function checks.text(name)
  local text = tostring(make(name, {leaf()}))
  assert.match("^" .. name .. "%(", text)
  assert.match("1 parameters.*lr=0.02", text)
  assert.match("unknown option 'lrr'.*'lr'", message(optim[name], {leaf()}, {lrr = 1}))
  assert.match("must be a number", message(optim[name], {leaf()}, {lr = -1}))
  assert.match("not a leaf", message(optim[name], {leaf() * 2}))
end

local function converges(name)
  local p = leaf()
  local opt = make(name, {p})
  local function loss()
    opt:zero_grad()
    local value = p:square():sum()
    value:backward()
    return value
  end
  local first = loss():item()
  for _ = 1, 20 do opt:step(loss) end
  assert.is_true(loss():item() < first)
end
checks.convergence = converges

local function model() return nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)) end

local function schedule(name, opts)
  return function()
    return optim[name](optim.SGD({leaf()}, {lr = 1, momentum = 0.5}), opts)
  end
end

-- name, what makes one, and of schedules the factors at steps 0, 1, ... from their definition
local others = {
  EMA = {function() return optim.EMA(model()) end},
  GradScaler = {function() return optim.GradScaler() end},
  PlateauLR = {schedule("PlateauLR", {})},
  StepLR = {schedule("StepLR", {every = 2}), {1, 1, 0.1, 0.1, 0.01}},
  MultiStepLR = {schedule("MultiStepLR", {at = {1, 3}, gamma = 0.5}), {1, 0.5, 0.5, 0.25}},
  CosineLR = {schedule("CosineLR", {total = 4, floor = 0.2}),
              {1, 0.6 + 0.4 * 0.5 ^ 0.5, 0.6, 0.6 - 0.4 * 0.5 ^ 0.5, 0.2, 0.2}},
  CosineRestartsLR = {schedule("CosineRestartsLR", {period = 2, growth = 2}),
                      {1, 0.5, 1, 0.5 + 0.5 ^ 1.5, 0.5}},
  WarmupCosineLR = {schedule("WarmupCosineLR", {warmup = 2, total = 4}), {0.5, 1, 1, 0.5, 0}},
  LinearLR = {schedule("LinearLR", {total = 4}), {1, 0.75, 0.5, 0.25, 0, 0}},
  PolynomialLR = {schedule("PolynomialLR", {total = 2, power = 2}), {1, 0.25, 0}},
  ExponentialLR = {schedule("ExponentialLR", {gamma = 0.5}), {1, 0.5, 0.25}},
  LambdaLR = {schedule("LambdaLR", {f = function(t) return 1 / (1 + t) end}), {1, 0.5, 1 / 3}},
  ConstantLR = {schedule("ConstantLR", {total = 2, factor = 0.5}), {0.5, 0.5, 1}},
  OneCycleLR = {schedule("OneCycleLR", {total = 5, up = 0.4, start = 4, final = 10}),
                {0.25, 1, 1 - 0.975 / 4, 1 - 0.975 * 0.75, 0.025}},
  CyclicLR = {schedule("CyclicLR", {floor = 0.5, up = 2}), {0.5, 0.75, 1, 0.75, 0.5}},
  SequentialLR = {function()
    local opt = optim.SGD({leaf()}, {lr = 1})
    local parts = {optim.ConstantLR(opt, {factor = 0.5}), optim.ExponentialLR(opt, {gamma = 0.1})}
    return optim.SequentialLR(opt, {schedules = parts, at = {2}})
  end, {0.5, 0.5, 1, 0.1}},
  ChainedLR = {function()
    local opt = optim.SGD({leaf()}, {lr = 1})
    local parts = {optim.ConstantLR(opt, {factor = 0.5, total = 2}),
                   optim.ExponentialLR(opt, {gamma = 0.1})}
    return optim.ChainedLR(opt, {schedules = parts})
  end, {0.5, 0.05, 0.01}},
}

local functions = {clip_grad_norm_ = true, clip_grad_value_ = true, grad_norm = true}

describe("flare.optim", function()
  it("has an entry here for each of its names", function()
    local without = {}
    for name in pairs(optim) do
      if not (optimizers[name] or others[name] or functions[name] or name == "Optimizer") then
        without[#without + 1] = name
      end
    end
    assert(#without == 0, "no entry in spec/support/optimizers.lua or spec/optim_classes_spec.lua: "
      .. table.concat(without, ", "))
    for name in pairs(merged(optimizers, others, functions)) do assert.is_truthy(optim[name]) end
  end)

  for name, entry in pairs(optimizers) do
    for check, run in pairs(checks) do
      it(("%s: %s"):format(name, check), function() run(name, entry) end)
    end
  end

  for name, entry in pairs(others) do
    it(name .. " prints itself, and its state goes there and back", function()
      local made = entry[1]()
      assert.match("^" .. name .. "%(", tostring(made))
      assert.is_nil(tostring(made):find "0x")
      local again = entry[1]()
      assert.match("state", message(again.load_state_dict, again, 3))
      for k, want in ipairs(entry[2] or {}) do
        local rate = made:lr()
        assert(math.abs(rate - want) < 1e-12, ("step %d: %g, not %g"):format(k - 1, rate, want))
        assert.equal(made:lr(), again:load_state_dict(made:state_dict()):lr())
        made:step()
      end
      local path = os.tmpname()
      assert(flare.save(path, made:state_dict()))
      again:load_state_dict(assert(flare.load(path)))
      os.remove(path)
      local want, got = made:state_dict(), again:state_dict()
      for key, value in pairs(want) do
        if key == "averages" then
          for i, average in ipairs(value) do assert.is_true(average:equal(got.averages[i])) end
        else
          assert.same(value, got[key])
        end
      end
    end)
  end

  for name in pairs(functions) do
    it(name .. " refuses what has no gradients to be limited", function()
      assert.match("a module or a list", message(optim[name], 3, name ~= "grad_norm" and 1 or nil))
    end)
  end

  it("limits norms and values by their definitions", function()
    local p, q = flare.zeros(2, {requires_grad = true}), flare.zeros(1, {requires_grad = true})
    p.grad, q.grad = flare.tensor {3, 0}, flare.tensor {-4}
    assert.equal(5, optim.grad_norm({p, q}):item())
    assert.equal(5, optim.clip_grad_norm_({p, q}, 1):item())
    assert.is_true(math.abs(p.grad[1]:item() - 0.6) < 1e-5)
    optim.clip_grad_value_({p, q}, 0.5)
    assert.is_true(p.grad[1]:item() == 0.5 and q.grad[1]:item() == -0.5)
  end)
end)

describe("an optimizer's state", function()
  local function trained(net, opt, n)
    local x = flare.linspace(-1, 1, 12):view(4, 3)
    for _ = 1, n do
      opt:zero_grad()
      net(x):square():sum():backward()
      opt:step()
    end
  end

  -- The state as versions before there were names wrote it: in the alphabetical order of names.
  local function old(state, names)
    local order = {}
    for i, name in ipairs(names) do order[i] = {name, state.groups[1].state[i]} end
    table.sort(order, function(a, b) return a[1] < b[1] end)
    for i, pair in ipairs(order) do state.groups[1].state[i] = pair[2] end
    state.version, state.groups[1].names = nil, nil
    return state
  end

  it("of older versions finds its parameters by their names", function()
    flare.manual_seed(1)
    local a = model()
    local opt = optim.Adam(a:parameters(), {lr = 0.1})
    trained(a, opt, 3)
    local state = opt:state_dict()
    local names = state.groups[1].names
    assert.same({"1.weight", "1.bias", "2.weight", "2.bias"}, names)
    for _, given in ipairs {state, old(opt:state_dict(), names)} do
      local b = a:clone()
      local again = optim.Adam(b, {lr = 0.1}):load_state_dict(given)
      for i, one in ipairs(opt.groups[1].state) do
        assert.is_true(one.moments[1]:equal(again.groups[1].state[i].moments[1]), names[i])
      end
    end
  end)

  it("uses names where both sides have them, otherwise positions", function()
    local Swapped = flare.class("Swapped", nn.Module)
    function Swapped:init(first)
      self[first] = nn.Linear(3, 3)
      self.one, self.two = self.one or nn.Linear(3, 3), self.two or nn.Linear(3, 3)
    end
    function Swapped:forward(x) return self.two(self.one(x)) end
    local a, b = Swapped "one", Swapped "two"
    local opt = optim.Adam(a)
    trained(a, opt, 2)
    local again = optim.Adam(b):load_state_dict(opt:state_dict())
    local function moment(o, i) return o.groups[1].state[i].moments[1] end
    assert.is_true(moment(opt, 1):equal(moment(again, 3)))
    local list = table.move(b:parameters(), 1, 4, 1, {})
    local plain = optim.Adam(list):load_state_dict(opt:state_dict())
    assert.is_true(moment(opt, 1):equal(moment(plain, 1)))
  end)
end)
