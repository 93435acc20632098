-- flare.plan: training steps under caps of memory on a device that is not there. What it says fits
-- is run under the cap; losses and parameters are those of plain training, bit for bit.
local flare = require "flare"
local expect = require "spec.support.expect"
local nn, core = flare.nn, flare.core
local device = "sim:0"

local function fails(f, text) expect.fails(text, f) end

local Residual = flare.class("Residual", nn.Module)
function Residual:init(width, inner)
  self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, inner)
  self.drop, self.down = nn.Dropout(0.1), nn.Linear(inner, width)
end
function Residual:forward(x) return x + self.down(self.drop(self.up(self.norm(x)):gelu())) end

local Net = flare.class("Net", nn.Module)
function Net:init(o)
  self.first, self.blocks = nn.Linear(o.width, o.width), nn.ModuleList {}
  for _ = 1, o.blocks do self.blocks:append(Residual(o.width, o.inner)) end
  self.last = nn.Linear(o.width, 16)
end
function Net:forward(x)
  x = self.first(x)
  for _, block in ipairs(self.blocks) do x = block(x) end
  return self.last(x)
end

local function loss(model, x, y) return nn.functional.mse_loss(model(x), y) end

local shape = {width = 256, inner = 1024, blocks = 6, batch = 512}

local function step_of(o)
  flare.manual_seed(7)
  local model = Net(o)
  return {model = model, loss = loss,
    inputs = {flare.randn(o.batch, o.width), flare.randn(o.batch, 16)},
    optimizer = o.optimizer
      or function(params) return flare.optim.AdamW(params, {lr = 1e-2}) end}
end

-- Losses and parameters after plain training, in rounds, and norms of gradients that are clipped.
local function plain(o, rounds, steps)
  local step = step_of(o)
  local model = step.model:to(device)
  local optimizer = step.optimizer(model:parameters())
  local x, y = step.inputs[1]:to(device), step.inputs[2]:to(device)
  local losses, norms = {}, {}
  flare.manual_seed(9)
  for k = 1, steps do
    optimizer:zero_grad()
    local sum
    for r = 1, rounds do
      local n = o.batch // rounds
      local part = loss(model, x:narrow(1, (r - 1) * n + 1, n), y:narrow(1, (r - 1) * n + 1, n))
      if rounds > 1 then part = part / rounds end
      part:backward()
      sum = sum and sum + part:detach() or part:detach()
    end
    norms[k] = o.clip and flare.optim.clip_grad_norm_(model:parameters(), o.clip):item()
    optimizer:step()
    losses[k] = sum:item()
  end
  return losses, model:state_dict(), norms
end

local function clear()
  core.memory.limit(0, device)
  flare.synchronize(device)
  collectgarbage()
  collectgarbage()
  core.memory.flush(device)
end

-- Trains by a plan; the most bytes that the device had.
local function train(plan, step, steps)
  clear()
  local before = core.memory.stats(device).reserved
  core.memory.reset_peak(device)
  flare.manual_seed(9)
  local losses = {}
  for k = 1, steps do losses[k] = plan(table.unpack(step.inputs)):item() end
  return losses, core.memory.stats(device).peak_reserved - before
end

describe("a plan", function()
  before_each(clear)
  after_each(clear)

  it("trains as without caps, bit for bit, and within them", function()
    local seen = {}
    for _, cap in ipairs {"200MiB", "60MiB", "44MiB", "38MiB"} do
      local step = step_of(shape)
      local plan = flare.plan(step, {device = cap, on = device})
      assert(plan.fits, tostring(plan))
      local losses, peak = train(plan, step, 2)
      assert(peak <= plan.cap, ("%s: %d of %d"):format(cap, peak, plan.cap))
      local trained, config = plan:state_dict(), plan.config
      plan, step = nil, nil -- luacheck: ignore 311
      clear()
      local expected, state = plain(shape, config.rounds, 2)
      assert.same(expected, losses)
      for name, t in pairs(trained) do
        assert(t:equal(state[name]:to "cpu"), cap .. ": " .. name)
      end
      for _, how in ipairs(config.blocks) do
        for key, value in pairs(how) do seen[key .. " " .. value] = true end
      end
    end
    for _, way in ipairs {"parameters host", "states host", "gradients host", "saved keep",
                          "saved recompute", "parameters device"} do
      assert(seen[way], "no plan had " .. way)
    end
  end)

  it("offloads, recomputes and prefetches in any mixture with the same results", function()
    local Blocks, Executor = require "flare.plan.blocks", require "flare.plan.executor"
    local expected = {}
    for _, rounds in ipairs {1, 2} do expected[rounds] = plain(shape, rounds, 2) end
    local places, ways = {"device", "host"}, {"keep", "recompute", "offload"}
    flare.debug_streams(true)
    finally(function() flare.debug_streams(false) end)
    for k = 1, 6 do
      local step = step_of(shape)
      local blocks, rest, all = Blocks.find(step.model)
      local list = {}
      for b = 1, #blocks do
        local n = b + k
        list[b] = {parameters = places[n % 2 + 1], gradients = places[n // 2 % 2 + 1],
          states = places[n // 3 % 2 + 1], saved = ways[n % 3 + 1], input = places[n // 4 % 2 + 1]}
      end
      local rounds = k % 2 + 1
      local executor = Executor(step, {blocks = blocks, rest = rest, all = all}, {blocks = list,
        rest = {states = places[k % 2 + 1]}, rounds = rounds, ahead = k % 3 + 1}, device):open()
      flare.manual_seed(9)
      local losses = {}
      for s = 1, 2 do losses[s] = executor:train(table.unpack(step.inputs)):item() end
      assert.same(expected[rounds], losses)
    end
  end)

  it("saves and loads wherever parameters and states are", function()
    local step = step_of(shape)
    step.model:to "bf16" -- with master copies
    step.inputs[1], step.inputs[2] = step.inputs[1]:to "bf16", step.inputs[2]:to "bf16"
    local function planned(cap)
      local other = step_of(shape)
      other.model:to "bf16"
      other.inputs = step.inputs
      local plan = flare.plan(other, {device = cap, on = device, rounds = 2})
      assert(plan.fits, tostring(plan))
      return plan
    end
    local function first(cap)
      local plan = planned(cap)
      train(plan, step, 1)
      local saved, streamed = {plan:state_dict(), plan.optimizer:state_dict()}, false
      for _, how in ipairs(plan.config.blocks) do streamed = streamed or how.states == "host" end
      return saved, (train(plan, step, 1)), streamed
    end
    local saved, expected, streamed = first "34MiB"
    assert(streamed, "no state was on the host")
    local wide = first "200MiB"
    for g, group in ipairs(wide[2].groups) do
      for i, state in ipairs(group.state) do
        local same = saved[2].groups[g].state[i]
        assert.equal(state.step, same.step)
        for k, moment in ipairs(state.moments) do
          assert(moment:equal(same.moments[k]), i .. " " .. k)
        end
        assert(state.master:equal(same.master), i)
      end
    end
    for _, cap in ipairs {"200MiB", "34MiB"} do
      clear()
      local again = planned(cap):load_state_dict(saved[1])
      again.optimizer:load_state_dict(saved[2])
      assert.same(expected, (train(again, step, 1)), cap)
      again:load_state_dict(saved[1])
      again.optimizer:load_state_dict(saved[2]) -- over states that exist
      assert.same(expected, (train(again, step, 1)), cap)
    end
    fails(function() planned "200MiB":load_state_dict {} end,
      "the state's 'first.weight' must be a tensor of shape %(256, 256%), got nil")
  end)

  it("clips by the norm of all gradients, which lie on the device or the host", function()
    local o = setmetatable({clip = 0.05, optimizer = function(params)
      return flare.optim.SGD(params, {lr = 0.5, momentum = 0.9})
    end}, {__index = shape})
    flare.debug_streams(true)
    finally(function() flare.debug_streams(false) end)
    local seen = {}
    for _, rounds in ipairs {1, 2} do
      local expected, state, norms = plain(o, rounds, 2)
      for name, t in pairs(state) do state[name] = t:to "cpu" end
      assert(norms[1] > 2 * o.clip)
      for _, cap in ipairs {"200MiB", "34MiB"} do
        local step = step_of(o)
        step.clip = o.clip
        local plan = flare.plan(step, {device = cap, on = device, rounds = rounds})
        assert(plan.fits, tostring(plan))
        local losses, peak = train(plan, step, 2)
        assert(peak <= plan.cap, ("%s: %d of %d"):format(cap, peak, plan.cap))
        for k, got in ipairs(losses) do
          assert(math.abs(got - expected[k]) < 1e-5 * expected[k], cap .. ": " .. got)
        end
        assert(math.abs(plan.norm:item() - norms[2]) < 1e-4 * norms[2])
        for name, t in pairs(plan:state_dict()) do
          assert(t:allclose(state[name], {rtol = 1e-4, atol = 1e-6}), cap .. ": " .. name)
        end
        for _, how in ipairs(plan.config.blocks) do seen[how.gradients .. rounds] = true end
        plan, step = nil, nil -- luacheck: ignore 311
        clear()
      end
    end
    assert(seen.host1 and seen.host2 and seen.device1, "where gradients were")
    local step = step_of(shape)
    step.clip = "1"
    fails(function() flare.plan(step, {device = "1GiB", on = device}) end,
      "clip must be a number of at least 0")
  end)

  it("is refused with what would fit, and that fits", function()
    local step = step_of(shape)
    local plan = flare.plan(step, {device = "8MiB", on = device})
    assert.is_false(plan.fits)
    local text = tostring(plan)
    assert.match("it does not fit: .* the device needs .* more than its 8 MiB", text)
    assert.match("plan_spec.lua:%d+", text)
    assert.match("block 'blocks.%d' while it computes", text)
    local enough = text:match 'it would fit with device = "(%d+MiB)"'
    assert(flare.plan(step, {device = enough, on = device}).fits, enough)
    local little = math.floor(tonumber(enough:match "%d+") * 0.9) .. "MiB"
    assert(not flare.plan(step, {device = little, on = device}).fits, little)
    fails(function() plan(table.unpack(step.inputs)) end, "it does not fit")
    fails(function() flare.compile(step, {device = "8MiB", on = device}) end, "it does not fit")
  end)

  it("keeps the host's cap, or says what the host needs", function()
    local step = step_of(shape)
    local roomy = flare.plan(step, {device = "40MiB", on = device})
    assert(roomy.fits and roomy.host_bytes > 4 << 20)
    local plan = flare.plan(step, {device = "40MiB", host = "1MiB", on = device})
    assert.is_false(plan.fits)
    local text = tostring(plan)
    assert.match("the host needs .* more than its 1 MiB", text)
    local enough = text:match 'host = "(%d+MiB)"'
    local again = flare.plan(step, {device = "40MiB", host = enough, on = device})
    assert(again.fits and again.host_bytes <= again.host, tostring(again))
  end)

  it("leaves the model as it was", function()
    local step = step_of(shape)
    local before, device_of = step.model:state_dict(), step.model.first.weight.device
    flare.plan(step, {device = "40MiB", on = device})
    assert.equal("cpu", device_of)
    for name, t in pairs(step.model:state_dict()) do
      assert.equal("cpu", t.device)
      assert(t:equal(before[name]), name)
    end
    assert.is_nil(rawget(step.model.blocks[1], "forward"))
  end)

  it("needs no values and no memory of this machine for models that are larger", function()
    local model = flare.meta(function()
      return Net {width = 8192, inner = 32768, blocks = 24}
    end)
    local plan = flare.plan({model = model, loss = loss,
      inputs = {flare.zeros(64, 8192), flare.zeros(64, 16)}}, {device = "24GiB", on = device})
    assert(plan.fits, tostring(plan))
    assert(plan.host_bytes > 100 << 30)
    assert.match("blocks.1 to blocks", tostring(plan))
  end)

  it("measures blocks that are alike once, with the figures that each would have", function()
    local Blocks, Figures = require "flare.plan.blocks", require "flare.plan.figures"
    local machine = flare.dataflow.machine "h100"
    local function measured(apart, change)
      local step = step_of {width = 256, inner = 1024, blocks = 12, batch = 64}
      if change then change(step.model.blocks) end
      step.rows, step.inputs.n = 64, 2
      local blocks, rest, all = Blocks.find(step.model)
      local firsts = {}
      for k, block in ipairs(blocks) do
        firsts[k] = block.first
        if apart then block.first, block.last = k, k end
      end
      local at = Figures.measure(step, {blocks = blocks, rest = rest, all = all}, machine)
      return at(64), firsts
    end
    local function other(blocks) blocks[8].drop = nn.Dropout(0.2) end
    local firsts = {[false] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                    [other] = {1, 1, 1, 1, 1, 1, 1, 8, 9, 9, 9, 9}}
    for _, change in ipairs {false, other} do
      local got, found = measured(false, change)
      local expected = measured(true, change)
      assert.same(firsts[change], found)
      for k, block in ipairs(expected.blocks) do
        for _, key in ipairs {"parameters", "gradients", "states", "keep", "recompute", "away",
                              "input", "forward_time", "backward_time", "update_time"} do
          assert.equal(block[key], got.blocks[k][key], k .. ": " .. key)
        end
        for _, key in ipairs {"forward_peak", "backward_peak", "recompute_peak"} do
          local by = got.blocks[k][key] / block[key]
          assert(by > 0.75 and by < 1.34, ("%d: %s: %g"):format(k, key, by))
        end
      end
    end
  end)

  it("counts updates once, not in each round of backward", function()
    local Blocks, Figures = require "flare.plan.blocks", require "flare.plan.figures"
    local machine = flare.dataflow.machine "h100"
    local function measured(name)
      local step = step_of {width = 256, inner = 1024, blocks = 4, batch = 64}
      step.rows, step.inputs.n, step.optimizer = 64, 2, name
      local blocks, rest, all = Blocks.find(step.model)
      return Figures.measure(step, {blocks = blocks, rest = rest, all = all}, machine)(64)
    end
    local sgd, adam = measured "SGD", measured "AdamW8bit"
    assert.equal(sgd.rest_time, adam.rest_time)
    for k, block in ipairs(adam.blocks) do
      assert.equal(sgd.blocks[k].forward_time, block.forward_time)
      assert.equal(sgd.blocks[k].backward_time, block.backward_time)
      assert(block.update_time > sgd.blocks[k].update_time and sgd.blocks[k].update_time > 0)
    end
  end)

  it("refuses what it cannot run", function()
    local step = step_of(shape)
    fails(function() flare.plan(step, {}) end, 'device = bytes such as "20GiB" is missing')
    fails(function() flare.plan(function() end, {device = 1}) end, "a step is a table")
    fails(function() flare.plan(step, {device = "1GiB", rounds = 3}) end,
      "a batch of 512 cannot be cut into 3 equal rounds")
    fails(function() flare.plan({model = step.model, loss = loss}, {device = 1}) end,
      "inputs must be a list of tensors")
    step.blocks = {nn.Linear(2, 2)}
    fails(function() flare.plan(step, {device = "1GiB"}) end, "not a module of the model")
    local twice = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    fails(function()
      flare.plan({model = twice, loss = function(m, x) return m(m(x)):sum() end,
        inputs = {flare.ones(2, 4)}}, {device = "1GiB", on = device})
    end, "block '1' runs twice in a step")
  end)
end)

describe("evicted memory", function()
  it("comes back with its values, and is an error meanwhile", function()
    local x = flare.range(1, 100, {device = device})
    local y = x:reshape {10, 10}
    local memory = core.memory_of(x)
    local host = flare.empty({x:nbytes()}, {dtype = "u8", pinned = true})
    local live = core.memory.stats(device).live
    core.store(memory, host)
    core.evict(memory)
    assert.equal(live - x:nbytes(), core.memory.stats(device).live)
    fails(function() return y + 1 end, "the tensor's memory is evicted")
    fails(function() return y:sum():item() end, "the tensor's memory is evicted")
    fails(function() return y:tolist() end, "evicted")
    fails(function() core.evict(memory) end, "the memory is evicted")
    core.refill(memory)
    core.fetch(memory, host)
    assert.equal(5050, y:sum():item())
    fails(function() core.refill(memory) end, "the memory is there already")
    fails(function() core.evict(y) end, "the whole memory of a tensor is expected")
    fails(function() core.fetch(memory, flare.ones(3)) end, "as many bytes in pinned memory")
  end)

  -- What offloaded values take of the device for a while is shared by all blocks that offload: one
  -- block is worth less for its bytes than keeping its values, all together are worth more.
  it("offloads many blocks where one would not be worth its bytes", function()
    local Choose, Model = require "flare.plan.choose", require "flare.plan.model"
    local figures = {base = 0, rest_gradients = 0, rest_states = 0, rest_largest = 0, loss = 0,
      loss_peak = 0, rest_time = 0, rest_update = 0, blocks = {}}
    local start = {rounds = 1, ahead = 1, rest = {states = "host"}, blocks = {}}
    for k = 1, 16 do
      figures.blocks[k] = {parameters = 10, gradients = 10, states = 20, input = 5, keep = 100,
        recompute = 5, away = 95, forward_peak = 100, backward_peak = 150, recompute_peak = 150,
        forward_time = 1, backward_time = 2, again_time = 1, update_time = 0, alike = "all"}
      start.blocks[k] = {parameters = "host", gradients = "host", states = "host",
        saved = "recompute", input = "host"}
    end
    local target = Model.memory(figures, start) + 220
    local config, seconds, memory, host = Choose.search(figures, start,
      {target = target, host = 3000, link = 100})
    assert.is_true(memory <= target and host <= 3000)
    local count = 0
    for _, how in ipairs(config.blocks) do count = count + (how.saved == "offload" and 1 or 0) end
    assert.is_true(count >= 12 and seconds < 54, count .. " blocks, " .. seconds .. " s")
  end)

  -- Handles of blocks' inputs that wait for the collector keep what has come back for backward.
  it("needs in each step what its dry run needed, in any number of rounds", function()
    for _, rounds in ipairs {3, 8, 16} do
      local blocks = {}
      for k = 1, 12 do blocks[k] = Residual(256, 1024) end
      local x = flare.randn(64 * rounds, 256)
      local plan = flare.plan({model = nn.Sequential(blocks), optimizer = "AdamW", inputs = {x},
        loss = function(net, input) return net(input):square():mean() end},
        {device = "64MiB", on = "sim:0", rounds = rounds})
      assert.is_true(plan.fits)
      plan:start()
      core.memory.limit(0, "sim:0")
      for _ = 1, 3 do
        core.memory.reset_peak "sim:0"
        plan(x):item()
        local peak = core.memory.stats "sim:0".peak
        -- 4 MiB of garbage may wait from round to round
        assert.is_true(peak <= plan.live + (5 << 20),
          rounds .. " rounds: " .. peak .. " " .. plan.live)
      end
      plan.executor:close()
    end
  end)
end)
