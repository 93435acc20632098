--- Seeds computed from numbers such as seed, epoch and batch, so that random numbers depend on
-- these only.
local core = require "flare.core"

local M = {}

--- A 63-bit hash of several integers, by repeated use of SplitMix64's finalizer.
function M.mix(...)
  local h = 0x9e3779b97f4a7c15
  for i = 1, select("#", ...) do
    h = h ~ (math.tointeger((select(i, ...))) or 0)
    h = h + 0x9e3779b97f4a7c15
    h = (h ~ (h >> 30)) * 0xbf58476d1ce4e5b9
    h = (h ~ (h >> 27)) * 0x94d049bb133111eb
    h = h ~ (h >> 31)
  end
  return h & math.maxinteger
end

--- Calls f with the state's generator and math.random seeded. Afterwards the generator has its
-- previous state; math.random, whose state cannot be read, is seeded with a number drawn before.
function M.with(seed, f)
  local generator = core.default_generator()
  local before, offset = generator:state()
  local later = math.random(0)
  core.manual_seed(seed)
  math.randomseed(seed)
  local results = table.pack(pcall(f))
  generator:set_state(before, offset)
  math.randomseed(later)
  if not results[1] then error(results[2], 0) end
  return table.unpack(results, 2, results.n)
end

return M
