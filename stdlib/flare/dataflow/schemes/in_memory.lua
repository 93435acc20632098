--- Each device has the whole model and its own micro-batches (data parallel for several devices).
-- Gradients are added up layer by layer while the last micro-batch's backward runs.
local common = require "flare.dataflow.schemes.common"
local joined = require "flare.dataflow.stages".joined

-- The passes of one micro-batch on device d; gives back the last task of each layer.
local function add_passes(s, layers, o, d, m)
  local last = {}
  for k, layer in ipairs(layers) do
    local holds = {}
    local kept = o.recompute and layer.output or layer.saved
    if kept > 0 then holds[1] = {("kept l%d m%d d%d"):format(k, m, d), bytes = kept} end
    s:add {name = ("forward l%d m%d d%d"):format(k, m, d), device = d, holds = holds,
           cost = common.costs(layer.forward)}
  end
  for k = #layers, 1, -1 do
    local layer = layers[k]
    local frees = {}
    if (o.recompute and layer.output or layer.saved) > 0 then
      frees[1] = ("kept l%d m%d d%d"):format(k, m, d)
    end
    if o.recompute and layer.saved > 0 then
      frees[#frees + 1] = ("saved l%d m%d d%d"):format(k, m, d)
      s:add {name = ("recompute l%d m%d d%d"):format(k, m, d), device = d, again = true,
             cost = common.costs(layer.forward), holds = {{frees[#frees], bytes = layer.saved}}}
    end
    last[k] = s:add {name = ("backward l%d m%d d%d"):format(k, m, d), device = d,
      cost = common.costs(joined(layer.backward, layer.weights)), frees = frees}
  end
  return last
end

--- A step in which each device holds the model, its gradients and the optimizer's states.
-- @param layers a list of layers
-- @param opts {devices = 1, micro_batches = 1 of each device, recompute = false: keep the results
--   of layers only, and compute the rest again}
return function(layers, opts)
  local o = common.options("in_memory", opts, {devices = 1, recompute = false})
  local s = common.schedule("in_memory", layers, o.devices, o.micro_batches * o.devices)
  local ready, devices = {}, {}
  for d = 1, o.devices do
    devices[d] = d
    for k, layer in ipairs(layers) do common.resident(s, layer, ("l%d d%d"):format(k, d), d) end
    for m = 1, o.micro_batches do ready[d] = add_passes(s, layers, o, d, m) end
  end
  for k = #layers, 1, -1 do
    local tasks = {}
    for d = 1, o.devices do tasks[d] = ready[d][k] end
    common.finish(s, layers[k], "l" .. k, devices, tasks)
  end
  return s:check()
end
