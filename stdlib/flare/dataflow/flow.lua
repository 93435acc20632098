--- What a recorded operator moves through the memory of a changed machine: all of its bytes, or
-- less, where data stays on the chip.
--
-- Operators of a recording have `written`, the bytes of their results, and `reads`, a list of
-- {from = the position of the operator that wrote it, or nil, bytes =}. Those without them, which
-- ran in compiled functions or come from other programs, move all of their bytes.
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

-- A list of operators' names as a set; each of them has to occur.
local function names(operators, key, value)
  if type(value) ~= "table" then
    fail("replay: %s must be a list of operators' names, got %s", key, options.kind(value))
  end
  local there, set = {}, {}
  for _, x in ipairs(operators) do there[x.name] = true end
  for _, name in ipairs(value) do
    if not there[name] then
      fail("replay: %s: no operator has the name '%s'%s", key, tostring(name),
        options.hint(tostring(name), there))
    end
    set[name] = true
  end
  return set
end

--- Checks changes that keep data on the chip; see Recording:replay.
function M.check(operators, given)
  local o = {}
  for _, key in ipairs {"on_chip", "stream", "cached"} do
    if given[key] ~= nil then o[key] = names(operators, key, given[key]) end
  end
  if given.sram ~= nil then
    if type(given.sram) ~= "number" or given.sram ~= given.sram or given.sram <= 0 then
      fail("replay: sram must be a number of MiB above 0, got %s", tostring(given.sram))
    end
    o.sram = given.sram * (1 << 20)
  end
  return o
end

-- For each operator, whether it is streamed to all that read its result, and to one at least.
local function streamed(operators, set)
  local inside, outside = {}, {}
  for _, x in ipairs(operators) do
    for _, read in ipairs(x.reads or {}) do
      if read.from and set[operators[read.from].name] and set[x.name] then
        inside[read.from] = true
      elseif read.from then
        outside[read.from] = true
      end
    end
  end
  for k in pairs(outside) do inside[k] = nil end
  return inside
end

--- A function of an operator's position that returns the bytes it moves through memory.
-- @param o what M.check returned
function M.moved(operators, o)
  local to_readers = o.stream and streamed(operators, o.stream) or {}
  local before, sum = {}, 0 -- bytes that the operators before each one move
  for k, x in ipairs(operators) do before[k], sum = sum, sum + x.bytes end
  return function(k)
    local x = operators[k]
    if o.on_chip and o.on_chip[x.name] then return 0 end
    if o.cached and o.cached[x.name] and x.written then return math.min(x.written, x.bytes) end
    local bytes = x.bytes
    if to_readers[k] and x.written then bytes = bytes - x.written end
    for _, read in ipairs(x.reads or {}) do
      local from = read.from
      local stays = from and (o.stream and o.stream[x.name] and o.stream[operators[from].name]
        or o.sram and before[k] - before[from + 1] + operators[from].written <= o.sram)
      if stays then bytes = bytes - read.bytes end
    end
    return math.max(bytes, 0)
  end
end

return M
