-- Calls of operators with random arguments: for spec/fuzz_spec.lua and
-- spec/long/fuzz.sh. What comes back is a result or an error with a message; a crash, a hang or a
-- report of a sanitizer ends the process.
local flare = require "flare"
local array = require "spec.support.array"
local values = require "spec.support.fuzz_values"
local core = flare.core

local fuzz = {}

local random = math.random
local any, value = values.any, values.value

-- What users give: the parameters of a row without those that a generator fills.
local function parameters(op)
  local list = {}
  for _, p in ipairs(op.params) do
    if p.kind ~= "rng" then list[#list + 1] = p end
  end
  return list
end

-- Of a row's parameters, as they come: some by position, some by name.
local function made_up(_, params)
  local base, given, options = values.shape(), {}, {}
  if random(3) == 1 then -- all by name, or some of them
    for _, p in ipairs(params) do
      if not p.optional or random(2) == 1 then options[p.name] = value(p, base) end
    end
  else
    for i, p in ipairs(params) do
      if p.optional and random(3) > 1 then
        if random(2) == 1 then options[p.name] = value(p, base) end
      else
        given[i] = value(p, base)
      end
    end
  end
  return given, options
end

-- The samples that specs try rows with, by row.
local samples

local function all_samples()
  samples = {}
  for _, family in ipairs(require "spec.support.families") do
    for name, list in pairs(require("spec.support.samples." .. family)) do samples[name] = list end
  end
end

-- What makes sense to a row, but for a parameter or two.
local function spoiled(op, params)
  local sample, given, options = any(samples[op.name]), {}, {}
  local base = values.shape()
  for i, p in ipairs(params) do
    local v = sample[p.name]
    if array.is(v) then
      base = v.shape
      v = values.of_array(v)
    elseif type(v) == "table" and array.is(v[1]) then
      local list = {}
      for k, a in ipairs(v) do list[k] = values.of_array(a) end
      v = list
    end
    if i > 1 and (given[i - 1] == nil or p.optional) then options[p.name] = v else given[i] = v end
  end
  for _ = 1, #params > 0 and random(0, 2) or 0 do
    local i = random(#params)
    local p = params[i]
    if given[i] ~= nil then
      given[i] = value(p, base)
    elseif random(3) > 1 then
      options[p.name] = value(p, base)
    end
  end
  return given, options
end

local function arguments(op)
  local params = parameters(op)
  local of_sample = samples[op.name] and #samples[op.name] > 0 and random(2) == 1
  local given, options = (of_sample and spoiled or made_up)(op, params)
  if random(20) == 1 then options.base = any {0, 1, 2} end
  if random(50) == 1 then options.device = any(values.devices) end
  if op.random and random(4) == 1 then options.generator = flare.generator(random(9)) end
  local list, n = {}, 0
  for i = 1, #params do
    if given[i] == nil then break end
    n, list[i] = i, given[i]
  end
  if next(options) then
    n = n + 1
    list[n] = options
  end
  list.n = n
  return list
end

-- The function of a row, or now and then its method that writes in place.
local function target(op, list)
  if op.inplace and random(10) == 1 and core.is_tensor(list[1]) then
    return list[1][op.name .. "_"]
  end
  return core.ops[op.name]
end

local function under_autocast(...) return core.autocast(any {"bf16", "f16"}, ...) end
local function plain(f, ...) return f(...) end
local modes = {[1] = under_autocast, [2] = core.no_grad, [3] = core.anomaly}

local function limit(bytes)
  for _, where in ipairs {"cpu", "sim:0", "sim:1"} do core.memory.limit(bytes, where) end
end

-- Makes arguments and calls; true if there was a result.
local function try(op, note, label)
  local list = arguments(op)
  if note then
    note(label .. op.name .. (values.meta and " of shapes " or " ") .. values.written(list))
  end
  local f = target(op, list)
  local results = table.pack(pcall(modes[random(40)] or plain, f, table.unpack(list, 1, list.n)))
  if not results[1] then
    assert(type(results[2]) == "string" and #results[2] > 3, results[2])
    return false
  end
  for i = 2, results.n do
    local ok, message = pcall(values.use, results[i])
    assert(ok or type(message) == "string", message)
  end
  return true
end

--- So many calls of operators, from a seed: on the CPU, on the simulated device, on both at once,
-- of shapes alone. `note(text)` hears of each before it is made.
-- @return how many gave results
function fuzz.operators(calls, seed, note)
  if not samples then all_samples() end
  math.randomseed(seed)
  flare.manual_seed(seed)
  local rows, fine = core.ops(), 0
  limit(values.memory)
  for k = 1, calls do
    local op, way = any(rows), random(20)
    local label = note and ("%d of seed %d: "):format(k, seed)
    values.device = way <= 3 and "sim:0" or way == 4 and "mixed" or "cpu"
    values.meta = way == 5
    local ok, result
    if values.meta then
      ok, result = pcall(core.meta, try, op, note, label)
    else
      ok, result = pcall(try, op, note, label)
    end
    -- arguments are made outside of the call, but may be refused as well
    assert(ok or type(result) == "string" and not result:find "assertion", result)
    if ok and result then fine = fine + 1 end
    values.forget()
  end
  values.forget(true)
  limit(0)
  core.collect()
  return fine
end

return fuzz
