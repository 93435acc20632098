--- Interleaved 1F1B (Narayanan and others, 2021): each device has several stages, `chunks`, so the
-- bubble is (p - 1) (F + B) / chunks, where F and B are the times of all chunks of a device.
local common = require "flare.dataflow.schemes.common"
local pipeline = require "flare.dataflow.schemes.pipeline"

--- A pipeline whose devices have several stages each, and alternate between forward and backward.
-- @param layers a list of layers
-- @param opts {devices = 4 of a pipeline, chunks = 2 stages of a device, micro_batches = a
--   multiple of devices, replicas = 1 (data parallel), recompute = false,
--   slow = how many times as long each device takes, default 1}
return function(layers, opts)
  local o, stages = pipeline.prepare("interleaved", layers, opts, {chunks = 2})
  local p, v, n = o.devices, o.chunks, o.micro_batches
  common.multiple("interleaved", "micro_batches", n, p, "the number of devices")
  local orders = {}
  for d = 1, p do
    local order, add = pipeline.list()
    -- pass k of a device, from 0: groups of p micro-batches go through all chunks
    local function at(kind, k)
      local chunk = k // p % v
      if kind == "B" then chunk = v - 1 - chunk end
      add(kind, chunk * p + d, k // (p * v) * p + k % p + 1)
    end
    local all = n * v
    local first = math.min(all, 2 * (p - d) + (v - 1) * p)
    for k = 0, first - 1 do at("F", k) end
    for k = first, all - 1 do
      at("F", k)
      at("B", k - first)
    end
    for k = all - first, all - 1 do at("B", k) end
    orders[d] = order
  end
  return pipeline.build("interleaved", layers, o, stages, orders,
    function(k) return (k - 1) % p + 1 end)
end
