--- Schemes: functions that make a schedule of a training step from a list of layers. A scheme of
-- yours is a function(layers, options) that returns a flare.dataflow.Schedule.
--
-- All take `micro_batches`, the number of times that the layers' costs occur in a step (gradients
-- add up), and the pipelines, in_memory and ring take `devices`.
local lazy = require "flare.lazy"

local files = {}
for _, name in ipairs {"in_memory", "offload", "ring", "gpipe", "1f1b", "interleaved", "zb_h1"} do
  files[name] = "flare.dataflow.schemes." .. name
end

return lazy("flare.dataflow.schemes", {}, files)
