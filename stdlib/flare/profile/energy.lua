--- The energy of a profile, measured by a monitor and divided among the launches by their time.
local M = {}

local function micro(joules) return math.floor(joules * 1e6 + 0.5) end

--- Begins to measure.
-- @param monitor a flare.monitor, or true for one of its own
-- @return a function that gives microjoules by source; or nil and why nothing is measured
function M.start(monitor)
  local own = monitor == true and require "flare.monitor"() or nil
  monitor = own or monitor
  local total, from = monitor:energy()
  return function()
    local problem, now = from, nil
    if total then problem, now = monitor:energy() end
    if own then own:close() end
    if not now then return nil, problem end
    local by = {}
    for source, joules in pairs(now) do by[source] = micro(joules) - micro(from[source] or 0) end
    return by
  end
end

-- Adds `whole` microjoules to the energies of a list, in proportion to their weights. The shares
-- are differences of rounded sums, so they add up to the whole.
local function divide(list, whole, weights)
  local all, sum, given = 0, 0, 0
  for _, w in ipairs(weights) do all = all + w end
  for k, w in ipairs(weights) do
    sum = sum + w
    local upto = k == #weights and whole or math.floor(whole * (sum / all) + 0.5)
    list[k].energy = list[k].energy + upto - given
    given = upto
  end
end

--- Divides energies among sums of a report: that of a device among the launches on it, anything
-- else, such as the host's, among all.
-- @param list sums with times = {[device] = microseconds}, which get `energy`, in microjoules
-- @param energies microjoules by source
function M.divide(list, energies)
  local sources = {}
  for source in pairs(energies) do sources[#sources + 1] = source end
  table.sort(sources)
  for _, sum in ipairs(list) do sum.energy = 0 end
  for _, source in ipairs(sources) do
    local weights, there = {}, false
    for k, sum in ipairs(list) do
      weights[k] = sum.times[source] or 0
      there = there or weights[k] > 0
    end
    if not there then
      for k, sum in ipairs(list) do
        weights[k] = sum.time > 0 and sum.time or 1e-3 -- a launch too short to be timed
      end
    end
    divide(list, energies[source], weights)
  end
end

return M
