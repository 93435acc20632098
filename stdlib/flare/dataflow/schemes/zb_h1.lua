--- ZB-H1 (Qi and others, "Zero Bubble Pipeline Parallelism", 2023): backward is cut into the
-- gradient of the input (B) and those of the parameters (W), and W fills what would be bubbles. The
-- bubble is (p - 1) (F + B - W), with the activations of p micro-batches at most on each device.
local pipeline = require "flare.dataflow.schemes.pipeline"

--- A pipeline that computes gradients of parameters late, in place of bubbles.
-- @param layers a list of layers
-- @param opts {devices = 4 of a pipeline, micro_batches = 1, replicas = 1 (data parallel),
--   recompute = false: keep the input of a stage only, and compute the rest again,
--   slow = how many times as long each device takes, default 1}
return function(layers, opts)
  local o, stages = pipeline.prepare("zb_h1", layers, opts)
  local orders, n = {}, o.micro_batches
  for d = 1, o.devices do
    local order, add = pipeline.list()
    local first, late = math.min(n, o.devices - d), d - 1 -- W of this many micro-batches wait
    for m = 1, first do add("F", d, m) end
    for m = 1, n do
      if first + m <= n then add("F", d, first + m) end
      add("B", d, m)
      if m > late then add("W", d, m - late) end
    end
    for m = math.max(n - late, 0) + 1, n do add("W", d, m) end
    orders[d] = order
  end
  return pipeline.build("zb_h1", layers, o, stages, orders, function(k) return k end)
end
