-- Data parallel training of several ranks against one process on the whole batch, in f64.
local launch = require "spec.support.launch"

-- make() is a model, the same everywhere; train(model, optimizer, x, y, steps) goes over all of
-- x; part(t) is this rank's share; far(a, b) the largest difference of two models' parameters.
local tools = [[
  local nn, optim = flare.nn, flare.optim
  local function make(seed)
    flare.manual_seed(seed or 3)
    return nn.Sequential(nn.Linear(6, 33), nn.Tanh(), nn.LayerNorm(33), nn.Linear(33, 20),
      nn.ReLU(), nn.Linear(20, 3)):to(device or "cpu"):to "f64"
  end
  flare.manual_seed(9)
  local x = flare.randn({8 * size, 6}, {dtype = "f64"}):to(device or "cpu")
  local y = flare.randn({8 * size, 3}, {dtype = "f64"}):to(device or "cpu")
  local function part(t) return t:narrow(1, rank * 8 + 1, 8) end
  local function train(model, optimizer, a, b, steps)
    for k = 1, steps do
      optimizer:zero_grad()
      local loss = ((model(a) - b) * (model(a) - b)):mean()
      loss:backward()
      optimizer:step()
    end
    return model
  end
  local function far(a, b)
    local list, most = b:parameters(), 0
    for k, p in ipairs(a:parameters()) do
      most = math.max(most, (p:detach() - list[k]:detach()):abs():max():item())
    end
    return most
  end
  local function adam(m) return optim.Adam(m:parameters(), {lr = 0.01}) end
  local alone = make()
  train(alone, adam(alone), x, y, 6)
]]

local function good(n, text, device)
  return launch.good(n, (device and ("local device = %q\n"):format(device) or "local device\n")
    .. tools .. text)
end

describe("data parallel", function()
  for _, n in ipairs {2, 4} do
    it("is one process on the whole batch, to rounding, with " .. n .. " ranks", function()
      good(n, [[
        for _, mb in ipairs {25, 0.001} do
          local model = dist.DataParallel(make(rank + 3), {bucket_mb = mb})
          train(model, adam(model), part(x), part(y), 6)
          assert(far(model, alone) < 1e-12, far(model, alone))
          local sums = dist.all_gather(model:parameters()[2]:detach():sum():reshape(1))
          assert(sums:eq(sums[1]):all():item(), "ranks differ")
        end
      ]])
    end)
  end

  it("is so on devices with streams", function()
    good(2, [[
      local model = dist.DataParallel(make(rank + 3), {bucket_mb = 0.001})
      train(model, adam(model), part(x), part(y), 6)
      assert(far(model, alone) < 1e-12, far(model, alone))
    ]], "sim:0")
  end)

  it("averages as long as there is the model, with or without references to it", function()
    good(2, [[
      local model = make()
      local loss = (dist.DataParallel(model)(part(x)) - part(y)):square():mean()
      for _ = 1, 3 do collectgarbage() end
      loss:backward()
      for i, p in ipairs(model:parameters()) do
        assert(dist.broadcast(p.grad):eq(p.grad):all():item(), i .. ": ranks differ")
      end
      local gone = setmetatable({dist.DataParallel(make())}, {__mode = "v"})
      for _ = 1, 3 do collectgarbage() end
      assert(gone[1] == nil)
    ]])
  end)

  it("accumulates gradients without talking", function()
    good(2, [[
      local model = dist.DataParallel(make())
      local o = adam(model)
      for k = 1, 6 do
        o:zero_grad()
        local function half(from)
          local a, b = part(x):narrow(1, from, 4), part(y):narrow(1, from, 4);
          ((model(a) - b):square():mean() * 0.5):backward()
        end
        model:no_sync(half, 1)
        half(5)
        o:step()
      end
      assert(far(model, alone) < 1e-12, far(model, alone))
    ]])
  end)

  it("has no memory for gradients that were dropped while it goes forward", function()
    good(2, [[
      local model = nn.Sequential()
      for _ = 1, 8 do model:append(nn.Linear(512, 512, {bias = false})) end -- of a MiB each
      local function live() flare.core.collect() return flare.memory.stats().live / 2 ^ 20 end
      local input, before = flare.randn(4, 512), live()
      model = dist.DataParallel(model, {bucket_mb = 1})
      for _ = 1, 3 do
        model:no_sync(function() model(input):sum():backward() end)
        model(input):square():mean():backward()
        assert(live() - before < 8.2, live() - before) -- they are where the first ones were
        for _, p in ipairs(model:parameters()) do p.grad = nil end
        flare.no_grad(model, input)
        assert(live() - before < 0.1, live() - before)
      end
    ]])
  end)

  it("goes on with the parameters that to() has made", function()
    good(2, [[
      local model = dist.DataParallel(make(rank + 3):to "f32", {bucket_mb = 0.001})
      for k = 1, 2 do
        local inside = k == 1 and model or model.module
        inside:to(k == 1 and "f64" or "f32")
        for _ = 1, 2 do
          model(part(x):to(k == 1 and "f64" or "f32")):square():mean():backward()
          for i, p in ipairs(model:parameters()) do
            assert(dist.broadcast(p.grad):eq(p.grad):all():item(), i .. ": ranks differ")
            p.grad = nil
          end
        end
      end
      for stage = 1, 3 do
        local zero = dist.ZeRO(make(), optim.SGD, {stage = stage})
        zero.model:to "f32"
        local ok, why = pcall(zero, part(x):to "f32")
        assert(not ok and why:find("ZeRO: the model has other parameters now", 1, true), why)
      end
    ]])
  end)

  it("refuses a model that is another one elsewhere", function()
    good(2, [[
      for stage = 0, 3 do
        local model = rank == 1 and nn.Linear(6, 4) or nn.Linear(6, 3)
        local ok, why = pcall(function()
          return stage == 0 and dist.DataParallel(model)
            or dist.ZeRO(model, optim.SGD, {stage = math.max(stage, 1)})
        end)
        assert(not ok and why:find("the model of rank 1 has other parameters (2 tensors) than that "
          .. "of rank 0", 1, true), why)
      end
    ]])
  end)

  it("names a parameter that has come later", function()
    good(2, [[
      local function go(model, of)
        local outer = flare.ones({1}, {dtype = "f64"}):requires_grad_(true) -- of no model
        ;(model(part(x)) * outer):square():mean():backward()
      end
      local model = dist.DataParallel(make())
      local other = dist.DataParallel(make())
      go(model)
      model[6] = nn.Sequential(model[6], nn.Linear(3, 3):to "f64")
      for _ = 1, 2 do
        local ok, why = pcall(go, model)
        assert(not ok and why:find("DataParallel: '6.2.weight' has come into the model since it "
          .. "was wrapped", 1, true), why)
      end
      go(other) -- which knows nothing of it
      for stage = 1, 3 do
        local inner = make()
        local zero = dist.ZeRO(inner, optim.SGD, {stage = stage})
        go(zero)
        zero:step()
        inner[7] = nn.Linear(3, 3):to "f64"
        local ok, why = pcall(go, zero)
        assert(not ok and why:find("ZeRO: '7.weight' has come into the model since", 1, true), why)
      end
    ]])
  end)

  it("passes for the model inside", function()
    good(2, [[
      local inside = make()
      local model = dist.DataParallel(inside)
      assert(rawequal(model:unwrap(), inside) and rawequal(model.module, inside))
      assert(next(model:state_dict()) and model:state_dict()["1.weight"])
      assert(#model:parameters() == #inside:parameters())
      assert(rawequal(model:eval(), model) and inside.training == false)
    ]])
  end)

  it("names parameters that get no gradient, or leaves them without", function()
    good(2, [[
      local model = make()
      model.spare = nn.Linear(2, 2):to "f64"
      local parallel = dist.DataParallel(model, {find_unused = true})
      parallel(part(x)):sum():backward()
      assert(not model.spare.weight.grad)
    ]])
    local status, out, _, folder = launch.run("-n 2", "local device\n" .. tools .. [[
      local model = make()
      model.spare = nn.Linear(2, 2):to "f64"
      local parallel = dist.DataParallel(model)
      parallel(part(x)):sum():backward()
    ]])
    launch.remove(folder)
    assert.equal(1, status)
    assert.truthy(out:find("no gradient came to spare.bias, spare.weight; pass find_unused", 1,
      true), out)
  end)

  it("says when models differ", function()
    local status, out, _, folder = launch.run("-n 2", [[
      dist.DataParallel(flare.nn.Linear(3, rank == 1 and 4 or 5))
    ]])
    launch.remove(folder)
    assert.equal(1, status)
    assert.truthy(out:find("the model of rank 1 has other parameters", 1, true), out)
  end)

  it("starts from rank 0's parameters and takes its buffers", function()
    good(2, [[
      flare.manual_seed(rank)
      local model = dist.DataParallel(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)):to "f64")
      for k = 1, 3 do model(part(x)):sum():backward() end
      model(part(x))
      local buffers = model:state_dict()
      local mine = buffers["2.running_mean"]:clone()
      local theirs = dist.broadcast(mine)
      -- after this forward each has seen its own part of the batch, from the same start
      local w = buffers["1.weight"]:detach()
      assert(dist.broadcast(w):eq(w):all():item())
      assert((theirs - mine):abs():max():item() < 1)
    ]])
  end)
end)
