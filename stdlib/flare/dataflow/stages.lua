--- Layers cut into stages, and stages as layers.
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

-- What a layer's passes weigh: seconds where they are given, otherwise FLOPs.
local function weight_of(layer)
  local sum = 0
  for _, pass in ipairs {"forward", "backward", "weights"} do
    for _, cost in ipairs(layer[pass]) do sum = sum + (cost.seconds or cost.flops or 0) end
  end
  return sum
end

-- The best cut of weights into n contiguous pieces: the sums of the pieces, joined by `join`, are
-- as small as possible; pieces above `limit` are not allowed. Gives back the joined value and, for
-- each piece, the position of its last layer. The weights of piece k count slow[k] times.
local function best_cut(weights, n, join, limit, slow)
  local count, before = #weights, {[0] = 0}
  for k, w in ipairs(weights) do before[k] = before[k - 1] + w end
  local best, from = {[0] = {[0] = 0}}, {}
  for piece = 1, n do
    best[piece], from[piece] = {}, {}
    for last = piece, count do
      for first = piece, last do
        local sum = (before[last] - before[first - 1]) * (slow and slow[piece] or 1)
        local earlier = best[piece - 1][first - 1]
        if earlier and sum <= limit then
          local value = join(earlier, sum)
          if not best[piece][last] or value < best[piece][last] then
            best[piece][last], from[piece][last] = value, first
          end
        end
      end
    end
  end
  local ends, last = {}, count
  for piece = n, 1, -1 do
    ends[piece] = last
    last = from[piece][last] - 1
  end
  return best[n][count], ends
end

local function add_square(sum, x) return sum + x * x end

local function merged(costs)
  local out, by = {}, {}
  for _, cost in ipairs(costs) do
    local key = (cost.seconds and "s" or "c") .. (cost.kind or "") .. " " .. (cost.dtype or "")
    local sum = by[key]
    if not sum then
      sum = {kind = cost.kind, dtype = cost.dtype}
      by[key], out[#out + 1] = sum, sum
    end
    for _, field in ipairs {"seconds", "flops", "bytes"} do
      if cost[field] then sum[field] = (sum[field] or 0) + cost[field] end
    end
  end
  return out
end

local function stage_of(layers, first, last)
  local s = {name = first == last and layers[first].name or ("layers %d to %d"):format(first, last),
    first = first, last = last, forward = {}, backward = {}, weights = {}, parameters = 0,
    gradients = 0, states = 0, saved = 0, output = layers[last].output}
  for k = first, last do
    for _, pass in ipairs {"forward", "backward", "weights"} do
      table.move(layers[k][pass], 1, #layers[k][pass], #s[pass] + 1, s[pass])
    end
    for _, field in ipairs {"parameters", "gradients", "states", "saved"} do
      s[field] = s[field] + layers[k][field]
    end
  end
  for _, pass in ipairs {"forward", "backward", "weights"} do s[pass] = merged(s[pass]) end
  return s
end

local function check(layers)
  if type(layers) ~= "table" or not layers[1] then
    fail("dataflow: a list of layers is expected, such as dataflow.transformer \"gpt2\" gives, got "
      .. "%s", options.kind(layers))
  end
  for k, layer in ipairs(layers) do
    if type(layer) ~= "table" then
      fail("dataflow: layer %d is a %s, not a table", k, options.kind(layer))
    end
    for _, pass in ipairs {"forward", "backward", "weights"} do
      if type(layer[pass]) ~= "table" then
        fail("dataflow: layer %d: %s must be a list of costs {{flops =, bytes =, ...}}, got %s", k,
          pass, options.kind(layer[pass]))
      end
    end
    for _, field in ipairs {"parameters", "gradients", "states", "saved", "output"} do
      if type(layer[field]) ~= "number" then
        fail("dataflow: layer %d: %s (bytes) must be a number, got %s", k, field,
          options.kind(layer[field]))
      end
    end
  end
end

--- Cuts a list of layers into n contiguous stages, so that the slowest one is as fast as possible
-- and the others are about equal.
-- @param layers a list of layers @param n stages
-- @param slow how many times as long each stage takes on its device, default 1
-- @return a list of stages, which have the fields of layers, and first and last
function M.stages(layers, n, slow)
  check(layers)
  options.count("dataflow.stages", "the number of stages", n)
  if #layers < n then
    fail("dataflow.stages: %d layers cannot be cut into %d stages", #layers, n)
  end
  local weights = {}
  for k, layer in ipairs(layers) do weights[k] = weight_of(layer) end
  local slowest = best_cut(weights, n, math.max, math.huge, slow)
  -- of the cuts with that slowest stage the most even one; the sums may differ by rounding
  local _, ends = best_cut(weights, n, add_square, slowest * (1 + 1e-12), slow)
  local list = {}
  for k, last in ipairs(ends) do list[k] = stage_of(layers, (ends[k - 1] or 0) + 1, last) end
  return list
end

--- Checks a list of layers.
M.check = check

--- Two lists of costs as one.
function M.joined(a, b)
  return table.move(b, 1, #b, #a + 1, table.move(a, 1, #a, 1, {}))
end

return M
