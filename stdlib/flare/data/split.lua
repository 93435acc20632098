--- Splits a data set into random parts.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Subset = require "flare.data.subset"

--- data.split(dataset, {0.9, 0.1}, {seed = 0}) or data.split(dataset, {9000, 1000})
-- Parts are fractions below 1 or counts; the split depends on the seed only.
-- @return a data set for each part
return function(dataset, parts, opts)
  local o = options.check("data.split", opts, {seed = 0})
  if type(parts) ~= "table" or #parts == 0 then
    fail("data.split: fractions like {0.9, 0.1} are expected")
  end
  if type(dataset) ~= "table" or not dataset.size then
    fail("data.split: a data set is expected, got %s", options.kind(dataset))
  end
  local n = dataset:size()
  local counts, total = {}, 0
  for i, part in ipairs(parts) do
    counts[i] = math.type(part) == "float" and part <= 1 and math.floor(part * n + 0.5) or part
    if i == #parts and math.type(part) == "float" then
      -- rounding must not lose a row when the fractions add up to 1
      local sum = 0
      for _, share in ipairs(parts) do sum = sum + share end
      if math.abs(sum - 1) < 1e-9 then counts[i] = n - total end
    end
    if math.tointeger(counts[i]) == nil or counts[i] < 0 then
      fail("data.split: part %d is %s, expected a fraction or a count", i, tostring(part))
    end
    counts[i] = math.tointeger(counts[i])
    total = total + counts[i]
  end
  if total > n then fail("data.split: the parts need %d rows, the data set has %d", total, n) end
  local order = core.randperm(n, {generator = core.generator(o.seed)})
  local out, start = {}, 1
  for i, count in ipairs(counts) do
    out[i] = Subset(dataset, order:narrow(1, start, count):clone())
    start = start + count
  end
  return table.unpack(out)
end
