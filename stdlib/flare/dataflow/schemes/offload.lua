--- One device whose layers live in the host's memory. Parameters come `ahead` layers before their
-- use; a layer runs for all micro-batches before the next one comes, so parameters move twice a
-- step, however many micro-batches there are. Gradients go to the host, which updates the
-- parameters, or the device does and states come and go.
local common = require "flare.dataflow.schemes.common"
local fail = require "flare.fail"
local joined = require "flare.dataflow.stages".joined
local options = require "flare.options"

local ways = {keep = true, offload = true, recompute = true}

local function saved(k, m) return ("saved l%d m%d"):format(k, m) end

-- Parameters of layer k into buffer `name`; not before `gate` layers back has ended.
local function fetch(p, name, layer, gate)
  if layer.parameters == 0 then return nil end
  return p.s:add {name = "load " .. name, stream = "in", transfer = layer.parameters, needs = gate,
    holds = {{name, bytes = layer.parameters}}}
end

-- Forward of layer k for micro-batch m. What backward needs stays, goes to the host, or is dropped.
-- The parameters end with the last micro-batch, but for those of the last layer, whose backward
-- follows at once.
local function forward(p, k, m, needs)
  local s, layer, o = p.s, p.layers[k], p.o
  local holds, frees = {}, {}
  if k > 1 and p.layers[k - 1].output > 0 then
    local input = ("output l%d m%d"):format(k - 1, m)
    if o.activations ~= "recompute" then frees[1] = input end
  end
  if layer.output > 0 and k < #p.layers then
    holds[1] = {("output l%d m%d"):format(k, m), bytes = layer.output}
  end
  if layer.saved > 0 and o.activations ~= "recompute" then
    holds[#holds + 1] = {saved(k, m), bytes = layer.saved}
  end
  if k < #p.layers and m == o.micro_batches then frees[#frees + 1] = p.there[k] end
  local name = s:add {name = ("forward l%d m%d"):format(k, m), cost = common.costs(layer.forward),
    needs = needs, uses = p.there[k], holds = holds, frees = frees}
  if layer.saved > 0 and o.activations == "offload" and k < #p.layers then
    p.on_host[saved(k, m)] = s:add {name = ("store " .. saved(k, m)), stream = "out", needs = name,
      transfer = layer.saved, holds = {{"host " .. saved(k, m), bytes = layer.saved,
      place = "host"}}, uses = saved(k, m), frees = saved(k, m)}
  end
  return name
end

-- Brings what backward of layer k needs for micro-batch m; gives back the task to wait for.
local function bring(p, k, m, gate)
  local layer, o = p.layers[k], p.o
  local stored = p.on_host[saved(k, m)]
  if stored then
    return p.s:add {name = "load " .. saved(k, m), stream = "in", transfer = layer.saved,
      needs = {stored, gate}, holds = {{saved(k, m), bytes = layer.saved}},
      uses = "host " .. saved(k, m), frees = "host " .. saved(k, m)}
  elseif o.activations == "recompute" and layer.saved > 0 then
    return nil -- when backward runs
  end
end

local function backward(p, k, m, needs)
  local s, layer, o = p.s, p.layers[k], p.o
  local frees = {}
  local input = k > 1 and p.layers[k - 1].output > 0 and ("output l%d m%d"):format(k - 1, m)
  if layer.saved > 0 then
    frees[1] = saved(k, m)
    if o.activations == "recompute" then
      needs = {s:add {name = ("recompute l%d m%d"):format(k, m), again = true, needs = needs,
        cost = common.costs(layer.forward), uses = input or nil,
        holds = {{saved(k, m), bytes = layer.saved}}}}
    end
  end
  if input and o.activations == "recompute" then frees[#frees + 1] = input end
  -- otherwise they leave with the gradients, or after the update
  if m == o.micro_batches and layer.gradients == 0 and o.update == "host" then
    frees[#frees + 1] = p.there[k]
  end
  return s:add {name = ("backward l%d m%d"):format(k, m), needs = needs, frees = frees,
    cost = common.costs(joined(layer.backward, layer.weights)), uses = p.grad[k]}
end

-- Gradients leave, parameters are updated, and the device's copies end.
local function finish(p, k, last)
  local s, layer = p.s, p.layers[k]
  if layer.parameters == 0 and layer.gradients == 0 then return end
  local copies = {p.grad[k]}
  copies[#copies + 1] = p.there[k]
  if p.o.update == "host" then
    local sent = last
    if layer.gradients > 0 then
      sent = s:add {name = ("store gradients l%d"):format(k), stream = "out", needs = last,
        transfer = layer.gradients, uses = copies, frees = copies,
        holds = {{("host gradients l%d"):format(k), bytes = layer.gradients, place = "host"}}}
    end
    s:add {name = ("update l%d"):format(k), stream = "host", needs = sent,
      cost = common.update_cost(layer),
      frees = layer.gradients > 0 and ("host gradients l%d"):format(k) or nil}
  else
    local states = ("states l%d"):format(k)
    local come = s:add {name = "load " .. states, stream = "in", transfer = layer.states,
      needs = p.backward_began[k], holds = {{states, bytes = layer.states}}}
    local done = s:add {name = ("update l%d"):format(k), needs = {come, last},
      cost = common.update_cost(layer), uses = {states, table.unpack(copies)}, frees = p.grad[k]}
    s:add {name = "store " .. states, stream = "out", needs = done,
      transfer = layer.states + layer.parameters, uses = states, frees = {states, p.there[k]}}
  end
end

local function forwards(p)
  local ended = {}
  for k, layer in ipairs(p.layers) do
    local name = ("parameters l%d"):format(k)
    local needs = fetch(p, name, layer, ended[k - p.o.ahead - 1])
    p.there[k] = needs and name
    for m = 1, p.o.micro_batches do ended[k] = forward(p, k, m, needs) end
  end
  return ended[#p.layers]
end

local function backwards(p, forwarded)
  local ended = {[#p.layers + 1] = forwarded}
  for k = #p.layers, 1, -1 do
    local layer, needs = p.layers[k], {}
    local gate = ended[math.min(k + p.o.ahead + 1, #p.layers + 1)]
    local name = ("parameters l%d again"):format(k)
    if k < #p.layers then
      needs[1] = fetch(p, name, layer, gate)
      p.there[k] = needs[1] and name
    end
    p.backward_began[k] = gate
    if layer.gradients > 0 then
      p.grad[k] = ("gradients l%d"):format(k)
      needs[#needs + 1] = p.s:add {name = ("clear gradients l%d"):format(k), seconds = 0,
        holds = {{p.grad[k], bytes = layer.gradients}}}
    end
    for m = 1, p.o.micro_batches do
      local all = table.move(needs, 1, #needs, 1, {})
      all[#all + 1] = bring(p, k, m, gate)
      ended[k] = backward(p, k, m, all)
    end
    finish(p, k, ended[k])
  end
end

--- A step on one device whose parameters, gradients and states live on the host.
-- @param layers a list of layers
-- @param opts {micro_batches = 1, ahead = 1: layers whose parameters come before they are used,
--   activations = "keep", "offload" (to the host) or "recompute", update = "host" or "device"}
return function(layers, opts)
  local o = common.options("offload", opts, {ahead = 1, activations = "keep", update = "host"})
  if not ways[o.activations] then
    fail("dataflow.schemes.offload: activations: unknown way '%s'%s", o.activations,
      options.hint(o.activations, ways))
  end
  if o.update ~= "host" and o.update ~= "device" then
    fail("dataflow.schemes.offload: update must be \"host\" or \"device\", got '%s'", o.update)
  end
  local s = common.schedule("offload", layers, 1, o.micro_batches)
  for k, layer in ipairs(layers) do
    for _, kind in ipairs {"parameters", "states"} do
      if layer[kind] > 0 then
        s:resident {("host %s l%d"):format(kind, k), bytes = layer[kind], place = "host"}
      end
    end
  end
  local p = {s = s, layers = layers, o = o, there = {}, grad = {}, on_host = {},
             backward_began = {}}
  backwards(p, forwards(p))
  return s:check()
end
