--- The choice of libraries for matrix products and convolutions on GPUs, and of their precision.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local flag = {[false] = 0, [true] = 1}
local settings = {
  matmul = {own = 0, cublaslt = 1, auto = 2},
  conv = {own = 0, cudnn = 1, auto = 2},
  tf32 = flag,
  deterministic = flag,
}

-- "own", "cudnn", "auto"
local function listed(values)
  local names = {}
  for value in pairs(values) do names[#names + 1] = ('"%s"'):format(value) end
  table.sort(names)
  return table.concat(names, ", ")
end

local function number_of(name, value)
  local values = settings[name]
  if values[value] then return values[value] end
  if values == flag then
    fail("backends: %s must be true or false, got %s", name, tostring(value))
  elseif type(value) ~= "string" then
    fail("backends: %s must be one of %s, got %s", name, listed(values), tostring(value))
  end
  local near = options.nearest(value, values)
  fail('backends: %s: there is no "%s"%s', name, value,
       near and (' (did you mean "%s"?)'):format(near) or "; there are " .. listed(values))
end

local function current()
  local now = {}
  for name, number in assert(core.backend_query("cuda", "settings")):gmatch "(%w+) (%d+)" do
    for value, n in pairs(settings[name]) do
      if n == tonumber(number) then now[name] = value end
    end
  end
  return now
end

--- Sets the libraries for the whole process: backends{matmul = "own" | "cublaslt" | "auto",
-- conv = "own" | "cudnn" | "auto", tf32 = flag, deterministic = flag}. Settings left out keep their
-- values. With `tf32`, f32 products on GPUs may round their inputs to TF32 (10 bits of mantissa).
-- @return a table of all current settings
local function backends(given)
  given = options.check("backends", given, {
    matmul = options.none, conv = options.none,
    tf32 = options.none, deterministic = options.none,
  })
  local numbers = {}
  for name, value in pairs(given) do numbers[name] = number_of(name, value) end
  for name, number in pairs(numbers) do core.backend_control("cuda", name, number) end
  return current()
end

return backends
