--- Training programs as schedules: tasks on the streams of devices, what each needs and holds.
-- Schemes make schedules from a list of layers, machines describe hardware, and flare.simulate
-- runs one on the other. See docs/dataflow.md.
--
--     local dataflow = flare.dataflow
--     local layers = dataflow.transformer "llama-8b"
--     local schedule = dataflow.schemes.gpipe(layers, {devices = 8, micro_batches = 32})
--     print(flare.simulate(schedule, "h100"))
local lazy = require "flare.lazy"

return lazy("flare.dataflow", {}, {
  Schedule = "flare.dataflow.schedule",
  schedule = "flare.dataflow.make",
  machine = "flare.dataflow.machine",
  machines = "flare.dataflow.machine",
  transformer = "flare.dataflow.layers",
  uniform = "flare.dataflow.layers",
  stages = "flare.dataflow.stages",
  schemes = "flare.dataflow.schemes",
  sweep = "flare.dataflow.sweep",
  page = "flare.dataflow.page",
  recording = "flare.dataflow.record",
})
