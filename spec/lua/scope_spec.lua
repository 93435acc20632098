-- What a scope leaves open: results, and what objects of the library keep from step to step.
local core = require "flare.core"
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data

local function model() return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)) end

-- Three steps in scopes end in the same bits as three steps without.
local function same(name, make, step)
  local ends = {}
  for i, around in ipairs{function(f) f() end, core.scope} do
    flare.manual_seed(1)
    local what = make()
    for k = 1, 3 do around(function() step(what, k) end) end
    local list = {}
    for k, p in ipairs(what.model:parameters()) do list[k] = p:detach():totable() end
    ends[i] = list
  end
  assert.same(ends[1], ends[2], name)
end

local function backward(m)
  local dtype = m:parameters()[1].dtype
  local x = core.arange(0, 6):to(dtype):view(2, 3)
  local loss = m(x):square():mean()
  loss:backward()
  return loss
end

describe("a scope leaves open", function()
  for _, name in ipairs{"SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Lion", "NAdam", "RAdam",
                        "Adadelta", "Adafactor", "Muon", "LBFGS"} do
    if optim[name] then
      it("the state of optim." .. name, function()
        for _, dtype in ipairs{"f32", "bf16"} do
          same(name, function()
            local m = model():to(dtype)
            local params = name == "Muon" and {m[1].weight, m[3].weight} or m:parameters()
            return {model = m, optimizer = optim[name](params, name == "SGD"
              and {lr = 0.1, momentum = 0.9} or {lr = 0.01})}
          end, function(t)
            t.optimizer:zero_grad()
            if name == "LBFGS" then
              t.optimizer:step(function() t.optimizer:zero_grad() return backward(t.model) end)
            else
              backward(t.model)
              t.optimizer:step()
            end
          end)
        end
      end)
    end
  end

  it("averages of weights and the scale of gradients", function()
    same("EMA", function()
      local m = model()
      return {model = m, ema = optim.EMA(m), scaler = optim.GradScaler(),
              optimizer = optim.Adam(m, {lr = 0.01})}
    end, function(t)
      t.optimizer:zero_grad()
      t.scaler:scale(t.model(core.ones(2, 3)):square():mean()):backward()
      t.scaler:step(t.optimizer)
      t.scaler:update()
      t.ema:update()
      t.ema:with(function() t.model(core.ones(2, 3)) end)
    end)
  end)

  it("what modules store: computed weights, fields, captures of hooks", function()
    local Own = flare.class("Own", nn.Module)
    function Own:init() self.inner = nn.spectral_norm(nn.Linear(3, 3)) end
    function Own:forward(x)
      self.last = {at = (self.last and self.last.at or 0) + x:mean()}
      return self.inner(x) + self.last.at
    end
    local m, seen = Own(), nil
    m:register_forward_hook(function(_, _, y) seen = y:detach() end)
    for k = 1, 3 do
      core.scope(function() m(core.ones(2, 3)):sum():backward() end)
      assert.equal(k, m.last.at:item())
      assert.is_false(seen.closed)
    end
  end)

  it("the order of a loader's epoch, and batches that came early", function()
    for _, workers in ipairs{0, 2} do
      local loader = data.Loader(data.Tensors(core.arange(0, 24)), {batch = 2, shuffle = true,
                                                                    workers = workers})
      local sum = 0
      local next_batch = loader:epoch()
      for _ = 1, 12 do
        core.scope(function() sum = sum + next_batch():sum():item() end)
      end
      assert.equal(23 * 24 / 2, sum)
    end
  end)

  it("distributions made before it", function()
    local d = flare.distributions.Categorical{probs = core.tensor{0.25, 0.75}}
    for _ = 1, 2 do
      core.scope(function() d:log_prob(core.tensor({2}, {dtype = "i64"})) d:entropy() end)
    end
  end)

  it("what functions that it returns have captured", function()
    local f = core.scope(function() local x = core.ones(2) return function() return x + 1 end end)
    assert.same({2, 2}, f():totable())
  end)

  it("state that was made before an error", function()
    local m = model()
    local optimizer = optim.Adam(m)
    assert.error_matches(function()
      core.scope(function() backward(m) optimizer:step() error "on purpose" end)
    end, "on purpose")
    backward(m)
    optimizer:step()
  end)

  it("nothing else: activations, and objects that it made itself", function()
    local m, y, d = model(), nil, nil
    core.scope(function()
      y = m(core.ones(2, 3))
      d = flare.distributions.Normal(core.zeros(2), core.ones(2))
    end)
    assert.is_true(y.closed)
    assert.is_true(d.loc.closed)
  end)
end)

describe("the message of a closed tensor", function()
  local function line() return debug.getinfo(2, "l").currentline end

  local function says(f, text, at)
    assert.error_matches(f, text:gsub("[()]", "%%%0"):gsub("HERE", ".*scope_spec.lua:" .. at))
  end

  it("has the line of its scope", function()
    local y
    core.scope(function() y = core.ones(2) end) local at = line()
    says(function() return y + 1 end, "add: a: tensor is closed (by the scope at HERE)", at)
  end)

  it("has the line of its close", function()
    local y = core.ones(2)
    y:close() local at = line()
    y:close()
    says(function() y:sum() end, "sum: x: tensor is closed (at HERE)", at)
  end)

  it("has the last line of the block of a <close> variable", function()
    local z, at
    do
      local a <close> = core.ones(2)
      z, at = a, line()
    end
    says(function() return core.cat({z, z}) end, "tensor is closed (at HERE)", at)
  end)
end)
