--- One forward, one backward (PipeDream-Flush, Narayanan and others, 2021). The bubble is that of
-- GPipe, but device d of p keeps the activations of p - d + 1 micro-batches at most.
local pipeline = require "flare.dataflow.schemes.pipeline"

--- A pipeline whose devices alternate between forward and backward passes.
-- @param layers a list of layers
-- @param opts {devices = 4 of a pipeline, micro_batches = 1, replicas = 1 (data parallel),
--   recompute = false: keep the input of a stage only, and compute the rest again,
--   slow = how many times as long each device takes, default 1}
return function(layers, opts)
  local o, stages = pipeline.prepare("1f1b", layers, opts)
  local orders, n = {}, o.micro_batches
  for d = 1, o.devices do
    local order, add = pipeline.list()
    local first = math.min(n, o.devices - d)
    for m = 1, first do add("F", d, m) end
    for m = first + 1, n do
      add("F", d, m)
      add("B", d, m - first)
    end
    for m = n - first + 1, n do add("B", d, m) end
    orders[d] = order
  end
  return pipeline.build("1f1b", layers, o, stages, orders, function(k) return k end)
end
