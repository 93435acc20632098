--- flare.log: output of training runs: a progress bar, metrics files, curves.
--
--     local bar = flare.log.progress{total = 1000, label = "train"}
--     for step = 1, 1000 do bar:update(step, {loss = loss}) end
--     bar:finish()
--
-- `flare.log(x)` is the natural logarithm, as the operator's name says.
require "flare"

local core = require "flare.core"

local log = {}

--- All complete lines of a metrics file, in order.
-- @return a list of tables, or nil and a message
function log.read_metrics(path) return require("flare.log.metrics").read(path) end

require "flare.lazy"("flare.log", log, {
  progress = "flare.log.progress", metrics = "flare.log.metrics",
  svg = "flare.log.svg", plot = "flare.log.plot", curve = "flare.log.curve",
  tensorboard = "flare.log.tensorboard", report = "flare.log.report",
})
getmetatable(log).__call = function(_, ...) return core.log(...) end

return log
