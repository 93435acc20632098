--- GPipe (Huang and others, 2019): all forward passes, then all backward passes. The bubble of a
-- device is (p - 1) (F + B), for p devices and passes of F and B seconds.
local pipeline = require "flare.dataflow.schemes.pipeline"

--- A pipeline that runs all forward passes and then all backward passes.
-- @param layers a list of layers
-- @param opts {devices = 4 of a pipeline, micro_batches = 1, replicas = 1 (data parallel),
--   recompute = false: keep the input of a stage only, and compute the rest again,
--   slow = how many times as long each device takes, default 1}
return function(layers, opts)
  local o, stages = pipeline.prepare("gpipe", layers, opts)
  local orders = {}
  for d = 1, o.devices do
    local order, add = pipeline.list()
    for m = 1, o.micro_batches do add("F", d, m) end
    for m = o.micro_batches, 1, -1 do add("B", d, m) end
    orders[d] = order
  end
  return pipeline.build("gpipe", layers, o, stages, orders, function(k) return k end)
end
