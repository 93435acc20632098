--- Layers that travel around a ring of devices, without collectives. Layer k belongs to device
-- (k - 1) % n + 1, its home, which keeps its parameters, gradients and states. In the forward pass
-- its parameters go from home to the next device, and from there on, each device using them for its
-- own micro-batches. In backward they go around again, the sum of the gradients behind them, and
-- the last device of the round is home, which then has the gradients of all and updates.
local common = require "flare.dataflow.schemes.common"
local home, round = common.home, common.round
local joined = require "flare.dataflow.stages".joined

local function named(what, k, d) return ("%s l%d d%d"):format(what, k, d) end

-- A device's copy of the parameters of a layer; nil at home.
local function copy_of(p, k, pass, d)
  local away = d ~= home(k, p.o.devices) and p.layers[k].parameters > 0
  return away and named(pass .. " parameters", k, d) or nil
end

-- Sends parameters of layer k for a pass around the ring; for each device the task after which
-- they are there.
local function travel(p, k, pass, gate)
  local layer, there = p.layers[k], {}
  local way = round(k, p.o.devices)
  if layer.parameters == 0 then return there end
  for i = 2, #way do
    local from, to = way[i - 1], way[i]
    local name = named(pass .. " parameters", k, to)
    there[to] = p.s:add {name = "send " .. name, device = from, stream = "peer", to = to,
      transfer = layer.parameters, needs = {there[from], gate(to)},
      uses = i > 2 and named(pass .. " parameters", k, from) or nil,
      holds = {{name, bytes = layer.parameters, device = to}}}
    p.sent[named(pass, k, from)] = there[to]
  end
  return there
end

-- Ends a device's copy of a layer when it has been used and sent on; gives back the task after
-- which it is gone.
local function drop(p, k, pass, d, used)
  local copy = copy_of(p, k, pass, d)
  if not copy then return used end
  return p.s:add {name = "drop " .. copy, device = d, stream = "memory", seconds = 0,
    needs = {used, p.sent[named(pass, k, d)]}, frees = copy}
end

-- What forward keeps of layer k: all that backward needs, or with `recompute` its input.
local function kept_bytes(p, k)
  if not p.o.recompute then return p.layers[k].saved end
  return k > 1 and p.layers[k - 1].output or 0
end

-- Computes again what forward did not keep; gives back the task that backward waits for.
local function recompute(p, k, m, d, needs)
  local layer = p.layers[k]
  if not p.o.recompute or layer.saved == 0 then return needs end
  local name = named("again m" .. m, k, d)
  return p.s:add {name = "recompute " .. name, device = d, again = true, needs = needs,
    cost = common.costs(layer.forward), uses = copy_of(p, k, "backward", d),
    holds = {{name, bytes = layer.saved}}}, name
end

local function forwards(p)
  local ended, gone = {}, {}
  for k, layer in ipairs(p.layers) do
    local there = travel(p, k, "forward", function(d)
      return gone[k - p.o.ahead - 1] and gone[k - p.o.ahead - 1][d]
    end)
    ended[k], gone[k] = {}, {}
    for d = 1, p.o.devices do
      for m = 1, p.o.micro_batches do
        local holds, kept = {}, kept_bytes(p, k)
        if kept > 0 then holds[1] = {named("saved m" .. m, k, d), bytes = kept} end
        ended[k][d] = p.s:add {name = named("forward m" .. m, k, d), device = d, holds = holds,
          cost = common.costs(layer.forward), needs = there[d],
          uses = copy_of(p, k, "forward", d)}
      end
      gone[k][d] = drop(p, k, "forward", d, ended[k][d])
    end
  end
  return gone
end

-- The sum of the gradients goes around behind the parameters and ends at home.
local function gather(p, k, used)
  local layer, way = p.layers[k], round(k, p.o.devices)
  local first = table.remove(way, 1)
  if layer.gradients == 0 or not way[1] then return used[first] end
  local arrived
  way[#way + 1] = first
  for i = 1, #way - 1 do
    local from, to = way[i], way[i + 1]
    local sum, own = named("gradient sum", k, to), named("gradients", k, from)
    arrived = p.s:add {name = "send " .. sum, device = from, stream = "peer gradients", to = to,
      link = "peer", transfer = layer.gradients, needs = {used[from], arrived},
      holds = {{sum, bytes = layer.gradients, device = to}},
      uses = {own, i > 1 and named("gradient sum", k, from) or nil},
      frees = {own, i > 1 and named("gradient sum", k, from) or nil}}
  end
  return arrived, named("gradient sum", k, first)
end

local function backwards(p, forwarded)
  local ended, gone, n = {}, {}, #p.layers
  for k = n, 1, -1 do
    local layer = p.layers[k]
    local first = home(k, p.o.devices)
    local there = travel(p, k, "backward", function(d)
      return (gone[k + p.o.ahead + 1] or forwarded[n])[d]
    end)
    ended[k], gone[k] = {}, {}
    for d = 1, p.o.devices do
      local grad = named("gradients", k, d)
      for m = 1, p.o.micro_batches do
        local holds = m == 1 and d ~= first and layer.gradients > 0
          and {{grad, bytes = layer.gradients}} or {}
        local ready, computed = recompute(p, k, m, d, there[d])
        local frees = {kept_bytes(p, k) > 0 and named("saved m" .. m, k, d) or nil}
        frees[#frees + 1] = computed
        ended[k][d] = p.s:add {name = named("backward m" .. m, k, d), device = d, holds = holds,
          cost = common.costs(joined(layer.backward, layer.weights)), needs = ready,
          uses = copy_of(p, k, "backward", d), frees = frees}
      end
      gone[k][d] = drop(p, k, "backward", d, ended[k][d])
    end
    local summed, sum = gather(p, k, ended[k])
    if layer.parameters > 0 or sum then
      p.updates[#p.updates + 1] = {name = ("update l%d"):format(k), device = first,
        cost = common.update_cost(layer), needs = {summed, ended[k][first]}, frees = sum}
    end
  end
end

--- A step in which layers travel around a ring of devices; each device has its own micro-batches.
-- @param layers a list of layers
-- @param opts {devices = 4, micro_batches = 1 of each device, ahead = 1: layers whose parameters
--   come before they are used, recompute = false: keep the inputs of layers only, and compute the
--   rest again}
return function(layers, opts)
  local o = common.options("ring", opts, {devices = 4, ahead = 1, recompute = false})
  local s = common.schedule("ring", layers, o.devices, o.micro_batches * o.devices)
  for k, layer in ipairs(layers) do
    common.resident(s, layer, "l" .. k, home(k, o.devices))
  end
  local p = {s = s, layers = layers, o = o, sent = {}, updates = {}}
  backwards(p, forwards(p))
  for _, task in ipairs(p.updates) do s:add(task) end
  return s:check()
end
