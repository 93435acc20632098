--- The device "fpga": kernels for Vitis HLS in an emulator that counts cycles. What it takes is an
-- estimate of what a board would take; see docs/fpga.md.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local fpga = {}

--- What has run since the start or the last `reset`.
-- @return {kernels = {product = {calls =, cycles =}, softmax =, lookup =, elementwise =,
--   attention =}, cycles = of all kernels, seconds = at the clock, clock = Hz, cpu = {layer_norm =
--   calls, ...}: the operators that the CPU ran, fallback = whether it may}
function fpga.report()
  local r = core.json.decode(core.backend_query("fpga", "report"))
  r.cycles = 0
  for _, kernel in pairs(r.kernels) do r.cycles = r.cycles + kernel.cycles end
  r.seconds = r.cycles / r.clock
  return r
end

--- Counts from zero again.
function fpga.reset() core.backend_control("fpga", "reset", 1) end

--- Sets whether the CPU runs operators that have no kernel, as it does at first. Otherwise they
-- raise an error.
-- @param on true or false
-- @return what it was before
function fpga.fallback(on)
  if type(on) ~= "boolean" then
    fail("fpga.fallback: true or false is expected, got %s", options.kind(on))
  end
  local before = fpga.report().fallback
  core.backend_control("fpga", "fallback", on and 1 or 0)
  return before
end

return fpga
