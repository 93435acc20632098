--- Pipelines: stages of layers on devices, and for each device the order of its passes, in which
-- the schemes differ.
local common = require "flare.dataflow.schemes.common"
local fail = require "flare.fail"
local joined = require "flare.dataflow.stages".joined
local options = require "flare.options"
local stages = require "flare.dataflow.stages".stages

local M = {}

-- Costs on a device that takes `times` as long.
local function scaled(costs, times)
  local list = {}
  for k, cost in ipairs(costs) do
    list[k] = {kind = cost.kind, dtype = cost.dtype}
    for _, field in ipairs {"seconds", "flops", "bytes"} do
      list[k][field] = cost[field] and cost[field] * times
    end
  end
  return list
end

--- Options of pipelines and the stages of the layers. With `slow`, a factor for each device, slower
-- devices get fewer layers.
-- @param extra further options, with their defaults
function M.prepare(where, layers, given, extra)
  local defaults = {devices = 4, replicas = 1, recompute = false, slow = options.none}
  for key, value in pairs(extra or {}) do defaults[key] = value end
  local o = common.options(where, given, defaults)
  local n = o.devices * (o.chunks or 1)
  if not o.slow then return o, stages(layers, n) end
  local slow = {}
  for k = 1, n do
    slow[k] = o.slow[(k - 1) % o.devices + 1]
    if type(slow[k]) ~= "number" or slow[k] <= 0 then
      fail("dataflow.schemes.%s: slow must have a factor above 0 for each of the %d devices",
        where, o.devices)
    end
  end
  local list = stages(layers, n, slow)
  for k, stage in ipairs(list) do
    for _, pass in ipairs {"forward", "backward", "weights"} do
      stage[pass] = scaled(stage[pass], slow[k])
    end
  end
  return o, list
end

-- Names of what belongs to stage k, micro-batch m and replica r.
local function named(what, x) return ("%s s%d m%d%s"):format(what, x.stage, x.micro, x.suffix) end

-- Bytes that stage k receives in the forward pass of a micro-batch.
local function input_bytes(p, k) return k > 1 and p.stages[k - 1].output or 0 end

-- Sends what task `name` has made to the device of stage `to`, where it becomes a buffer. Nothing
-- moves between stages of one device.
local function send(p, x, name, what, bytes, to, there)
  if bytes == 0 then return name end
  local device = p.place(p.device_of(to.stage))
  local task = {name = named("send " .. what, x), device = x.device, needs = name,
    holds = {{named(there, to), bytes = bytes, device = device}}, uses = named(what, x),
    frees = named(what, x)}
  if device == x.device then
    task.stream, task.seconds = "copy", 0
  else
    task.stream, task.transfer, task.to = "peer", bytes, device
  end
  return p.schedule:add(task)
end

-- The tasks of a forward pass: it keeps what backward needs, and sends its result on.
local function forward(p, x)
  local stage, last, holds = p.stages[x.stage], x.stage == #p.stages, {}
  if stage.saved > 0 and not p.o.recompute then
    holds[1] = {named("saved", x), bytes = stage.saved}
  end
  local sends = not last and stage.output or 0
  if sends > 0 then holds[#holds + 1] = {named("output", x), bytes = sends} end
  local name = p.schedule:add {name = named("forward", x), device = x.device,
    cost = common.costs(stage.forward), needs = p.arrived[named("forward", x)], holds = holds,
    uses = input_bytes(p, x.stage) > 0 and named("input", x) or nil}
  if last then return end
  local to = {stage = x.stage + 1, micro = x.micro, suffix = x.suffix}
  p.arrived[named("forward", to)] = send(p, x, name, "output", sends, to, "input")
end

-- Computes again what forward did not keep.
local function recompute(p, x, needs)
  return p.schedule:add {name = named("recompute", x), device = x.device, again = true,
    needs = needs, cost = common.costs(p.stages[x.stage].forward),
    holds = {{named("saved", x), bytes = p.stages[x.stage].saved}},
    uses = input_bytes(p, x.stage) > 0 and named("input", x) or nil}
end

-- The tasks of a backward pass; with `split` the part for the parameters comes later.
local function backward(p, x, split)
  local stage, needs, holds = p.stages[x.stage], {p.arrived[named("backward", x)]}, {}
  local kept = {} -- buffers until the parameters' gradients are there
  if stage.saved > 0 then
    if p.o.recompute then needs = {recompute(p, x, needs)} end
    kept[1] = named("saved", x)
  end
  if input_bytes(p, x.stage) > 0 then kept[#kept + 1] = named("input", x) end
  if x.stage < #p.stages and stage.output > 0 then kept[#kept + 1] = named("gradient", x) end
  local sends = input_bytes(p, x.stage)
  if sends > 0 then holds[1] = {named("input gradient", x), bytes = sends} end
  local name = p.schedule:add {name = named("backward", x), device = x.device,
    cost = common.costs(split and stage.backward or joined(stage.backward, stage.weights)),
    needs = needs, holds = holds, uses = kept, frees = not split and kept or nil}
  p.kept[named("weights", x)] = kept
  p.ended[x.stage][p.replica] = name
  if x.stage == 1 then return end
  local to = {stage = x.stage - 1, micro = x.micro, suffix = x.suffix}
  p.arrived[named("backward", to)] = send(p, x, name, "input gradient", sends, to, "gradient")
end

-- The gradients of the parameters.
local function weights(p, x)
  local kept = p.kept[named("weights", x)]
  p.ended[x.stage][p.replica] = p.schedule:add {name = named("weights", x), device = x.device,
    cost = common.costs(p.stages[x.stage].weights), uses = kept, frees = kept}
end

local passes = {F = forward, B = backward, W = weights}

-- Runs the orders of the devices together, each pass as soon as those before it have been added,
-- so that names of what arrives are known.
local function add_all(p, orders, split)
  local at, left = {}, 0
  for d, order in ipairs(orders) do at[d], left = 1, left + #order end
  local added = {}
  local function can(pass)
    local key = pass.kind == "F" and pass.stage > 1 and {"F", pass.stage - 1}
      or pass.kind == "B" and pass.stage < #p.stages and {"B", pass.stage + 1}
    return not key or added[("%s %d %d"):format(key[1], key[2], pass.micro)]
  end
  while left > 0 do
    local before = left
    for d, order in ipairs(orders) do
      local pass = order[at[d]]
      while pass and can(pass) do
        local x = {stage = pass.stage, micro = pass.micro, device = p.place(d), suffix = p.suffix}
        passes[pass.kind](p, x, split)
        added[("%s %d %d"):format(pass.kind, pass.stage, pass.micro)] = true
        at[d], left = at[d] + 1, left - 1
        pass = order[at[d]]
      end
    end
    if left == before then error "a pipeline's order waits for itself" end
  end
end

--- A schedule from the orders of devices, which it has as `orders`, with `stages` and `device_of`.
-- @param name the scheme's @param layers the list of layers @param o the options
-- @param parts the stages @param orders for each device a list of {kind = "F", "B" or "W", stage,
--   micro} @param device_of the device of a stage
function M.build(name, layers, o, parts, orders, device_of)
  local s = common.schedule(name, layers, o.devices * o.replicas, o.micro_batches * o.replicas)
  local p = {schedule = s, stages = parts, o = o, device_of = device_of, ended = {}}
  for k in ipairs(parts) do p.ended[k] = {} end
  local split = false
  for _, order in ipairs(orders) do
    for _, pass in ipairs(order) do split = split or pass.kind == "W" end
  end
  for r = 1, o.replicas do
    local offset = (r - 1) * o.devices
    p.replica, p.suffix = r, r > 1 and " r" .. r or ""
    p.arrived, p.kept = {}, {}
    function p.place(d) return d + offset end
    for k, part in ipairs(parts) do
      common.resident(s, part, ("s%d%s"):format(k, p.suffix), p.place(device_of(k)))
    end
    add_all(p, orders, split)
  end
  for k, part in ipairs(parts) do
    local devices = {}
    for r = 1, o.replicas do devices[r] = (r - 1) * o.devices + device_of(k) end
    common.finish(s, part, "s" .. k, devices, p.ended[k])
  end
  -- what dist.Pipeline runs
  s.orders, s.stages, s.device_of, s.split = orders, parts, device_of, split
  return s:check()
end

--- The passes of one device as a list, from calls of add(kind, stage, micro).
function M.list()
  local order = {}
  return order, function(kind, stage, micro)
    order[#order + 1] = {kind = kind, stage = stage, micro = micro}
  end
end

return M
