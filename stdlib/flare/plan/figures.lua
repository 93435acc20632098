--- The figures of a step's blocks: measured by dry runs with all of the batch and with an eighth of
-- it, and linear in its rows.
local Measure = require "flare.plan.measure"

local M = {}

local function measure(step, found, rows, machine)
  local keep, run = Measure.blocks(step, found, "keep", rows, machine)
  local again, repeated = Measure.blocks(step, found, "recompute", rows, machine)
  local gone = Measure.blocks(step, found, "offload", rows)
  local out = {rows = rows, blocks = {}, order = run.order, flops = run.flops, bytes = run.bytes}
  local function time(name) return rawget(run.times, name) or 0 end
  for k, block in ipairs(found.blocks) do
    local a, b, c = keep[k], again[k], gone[k]
    local bytes = run.bytes[k]
    out.blocks[k] = {name = block.name, parameters = bytes.parameters,
      gradients = bytes.gradients, states = bytes.states, input = b.input,
      keep = math.max(a.forward, 0), recompute = math.max(b.forward, 0), away = c.away,
      forward_peak = a.forward_peak, backward_peak = a.backward_peak,
      recompute_peak = b.backward_peak, forward_time = time("forward " .. k),
      backward_time = time("backward " .. k), update_time = time("update " .. k),
      again_time = math.max((repeated.times["backward " .. k] or 0) - time("backward " .. k), 0)}
  end
  out.loss, out.loss_peak = keep.loss, keep.loss_peak
  out.base, out.rest_gradients, out.rest_states = run.base, run.rest.gradients, run.rest.states
  out.rest_parameters, out.rest_largest = run.rest.parameters, run.rest.largest
  out.rest_time = time "forward " + time "backward "
  out.rest_update = time "update"
  return out
end

-- y at `rows` through two points.
local function line(a, b, key, rows)
  local x, y = a.at[key], b and b.at[key]
  if not y then return x end
  local slope = (x - y) / (a.rows - b.rows)
  return math.max(x + slope * (rows - a.rows), 0)
end

-- Equal for blocks with the same figures.
local function alike_of(block)
  local parts = {}
  for _, key in ipairs {"parameters", "gradients", "states", "input", "keep", "recompute", "away",
    "forward_time", "backward_time", "again_time"} do
    parts[#parts + 1] = ("%.6g"):format(block[key])
  end
  return table.concat(parts, " ")
end

--- @return a function from rows to figures, as model.lua takes them, and the order of the blocks
function M.measure(step, found, machine)
  local whole = measure(step, found, step.rows, machine)
  local part = step.rows > 1 and measure(step, found, math.max(step.rows // 8, 1), machine) or nil
  local function at(a, b, rows)
    local out = {}
    for key, value in pairs(a) do
      if type(value) == "number" and key ~= "rows" then
        out[key] = line({rows = whole.rows, at = a}, b and {rows = part.rows, at = b}, key, rows)
      end
    end
    return out
  end
  return function(rows)
    local out = at(whole, part, rows)
    out.rows, out.blocks = rows, {}
    for k, block in ipairs(whole.blocks) do
      out.blocks[k] = at(block, part and part.blocks[k], rows)
      out.blocks[k].name, out.blocks[k].alike = block.name, alike_of(block)
    end
    return out
  end, whole.order
end

return M
