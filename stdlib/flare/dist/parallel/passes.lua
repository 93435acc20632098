--- The passes of a pipeline: forward (F), backward (B) and, where backward is cut in two, the
-- gradients of weights (W). Each is a function of the pipeline, the step's notes and the pass
-- {kind, stage, micro}. A virtual clock goes with the messages: a pass begins when the device is
-- free and its input has been made, so idle times do not depend on other programs.
local core = require "flare.core"
local fail = require "flare.fail"
local deferred = require "flare.dist.parallel.deferred"
local options = require "flare.options"

-- Accounts for a pass: its time, and how long the device had to wait for its input.
local function account(self, run, pass, arrival, seconds, shares)
  local stage = run.schedule.stages[pass.stage]
  local took = 0
  for k = stage.first, stage.last do
    local share = seconds * (shares and shares[k] or 1 / (stage.last - stage.first + 1))
    local cost = self.clock and self.clock(pass.kind, k) or share
    run.spent[k] = (run.spent[k] or 0) + cost
    took = took + cost
  end
  local start = math.max(run.now, arrival or 0)
  run.idle, run.busy = run.idle + start - run.now, run.busy + took
  run.now = start + took
  run.passes[#run.passes + 1] = {kind = pass.kind, stage = pass.stage, micro = pass.micro,
    start = start, finish = run.now}
end

local function seconds_of(self, x)
  if not self.measure then return 0 end
  if x and x.device ~= "cpu" then core.synchronize(x.device) end
  return core.clock()
end

-- What another stage has made for this pass, and when.
local function receive(self, run, way, pass, from)
  local device = run.schedule.device_of(from)
  local key = ("%s %d %d"):format(way, pass.stage, pass.micro)
  if device == self.device then
    local here = run.here[key]
    run.here[key] = nil
    return here[1], here[2]
  end
  return self.wires:recv(way, device, self.device, run.device)
end

local function deliver(self, run, way, x, pass, to)
  local device = run.schedule.device_of(to)
  if device == self.device then
    run.here[("%s %d %d"):format(way, to, pass.micro)] = {x, run.now}
  else
    self.wires:send(way, x, self.device, device, run.now)
  end
end

-- Runs the pieces of a stage; with measured times, also how they divide.
local function compute(self, stage, x)
  if self.recompute then
    return core.checkpoint(function(input)
      for k = stage.first, stage.last do input = self.pieces[k].run(input) end
      return input
    end, x)
  end
  local times, total = {}, 0
  for k = stage.first, stage.last do
    local start = seconds_of(self)
    x = self.pieces[k].run(x)
    times[k] = seconds_of(self, x) - start
    total = total + times[k]
  end
  for k, t in pairs(times) do
    times[k] = total > 0 and t / total or 1 / (stage.last - stage.first + 1)
  end
  return x, times
end

local passes = {}

function passes.F(self, run, pass)
  local stages = run.schedule.stages
  local x, arrival
  if pass.stage == 1 then
    x = run.inputs[pass.micro]
  else
    x, arrival = receive(self, run, "forward", pass, pass.stage - 1)
    x = x:detach():requires_grad_(true)
  end
  local start = seconds_of(self, x)
  local y, shares = compute(self, stages[pass.stage], x)
  local last = pass.stage == #stages
  if last then
    y = self.loss(y, run.targets[pass.micro])
    if not core.is_tensor(y) or y:numel() ~= 1 then
      fail("Pipeline: loss must give one number, got %s", core.is_tensor(y)
        and "a tensor of shape " .. tostring(y.shape) or options.kind(y))
    end
    y = y / run.total
    run.loss = run.loss + y:detach():to "f64"
  end
  account(self, run, pass, arrival, seconds_of(self, y) - start, shares)
  run.saved[pass.stage .. " " .. pass.micro] = {x = x, y = y, shares = shares}
  run.kept = run.kept + 1
  run.most = math.max(run.most, run.kept)
  if not last then deliver(self, run, "forward", y:detach(), pass, pass.stage + 1) end
end

function passes.B(self, run, pass)
  local key = pass.stage .. " " .. pass.micro
  local saved, dy, arrival = run.saved[key], nil, nil
  if pass.stage < #run.schedule.stages then
    dy, arrival = receive(self, run, "backward", pass, pass.stage + 1)
  end
  local start = seconds_of(self, dy or saved.y)
  self.book.list = {}
  saved.y:backward(dy)
  local dx = saved.x.grad
  account(self, run, pass, arrival, seconds_of(self, saved.y) - start, saved.shares)
  run.saved[key] = run.schedule.split and {noted = self.book.list, shares = saved.shares} or nil
  if not run.schedule.split then run.kept = run.kept - 1 end
  if pass.stage > 1 then
    if not dx then
      fail("Pipeline: stage %d (%s) gives no gradient of its input", pass.stage,
        run.schedule.stages[pass.stage].name)
    end
    deliver(self, run, "backward", dx, pass, pass.stage - 1)
  end
end

function passes.W(self, run, pass)
  local key = pass.stage .. " " .. pass.micro
  local start = seconds_of(self, self.book.list[1] and self.book.list[1][3])
  deferred.finish(run.saved[key].noted)
  account(self, run, pass, nil, seconds_of(self, self.book.list[1] and self.book.list[1][3])
    - start, run.saved[key].shares)
  run.saved[key] = nil
  run.kept = run.kept - 1
end

return passes
