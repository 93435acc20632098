-- Calls of operators with arguments that nobody meant: for spec/fuzz_spec.lua and
-- spec/long/fuzz.sh. What comes back is a result or an error with a message; a crash, a hang or a
-- report of a sanitizer ends the process.
local flare = require "flare"
local core = flare.core

local fuzz = {}

local random = math.random
local function any(list) return list[random(#list)] end

local sizes = {0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 17}
local dtypes = {"f32", "f32", "f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool",
                "c64"}
local strange = {0, -1, -2, 99, -99, 1 << 31, -(1 << 31), 1 << 53, math.maxinteger,
                 math.mininteger, 1 << 40}
local reals = {0, 1, -1, 0.5, 0.1, 2, 1e-8, 1e300, -1e300, 1 / 0, -1 / 0, 0 / 0}
local wrong = {"text", true, {}, 1.5, -7, {1, "a"}, print, io.stdout}
local devices = {"cpu", "sim:0", "sim:1", "sim:99", "cuda:0", "none", 7}

-- Of the call that is being made: where its tensors lie ("mixed": anywhere), and whether it runs
-- on shapes alone, so that they may be of any size.
local device, meta

local function integer()
  if random(12) == 1 then return any(strange) end
  return random(-2, 5)
end

-- Up to eight dims now and then, and sizes that no memory has beside one of 0, or in meta mode.
local function shape()
  local list = {}
  for i = 1, random(random(30) == 1 and 9 or 5) - 1 do list[i] = any(sizes) end
  if #list > 0 and random(meta and 3 or 60) == 1 then
    list[random(#list)] = 1 << random(20, 62)
    if not meta then list[#list + 1] = 0 end
  end
  return list
end

-- A tensor whose elements may lie anywhere in a larger one, or be the same.
local function make(list, dtype, where)
  local x
  if dtype:find "^[bf]" and dtype ~= "bool" then
    x = flare.randn(list)
  else
    x = flare.randint(random(8) == 1 and -3 or 0, 6, list)
  end
  x = x:to(dtype)
  if where ~= "cpu" then x = x:to(where) end
  local way, n = random(6), #list
  if n > 0 and way == 1 then
    local dim = random(n)
    x = core.cat({x, x, x}, dim):narrow(dim, 1 + x.shape[dim], x.shape[dim])
  elseif n > 1 and way == 2 then
    x = x:transpose(1, n)
  elseif n > 0 and way == 3 then
    x = x:flip(1)
  elseif n < 5 and way == 4 then
    x = x:unsqueeze(1):expand(random(1, 3), table.unpack(x.shape))
  end
  if random(4) == 1 and dtype:find "^f" then x = x:detach():requires_grad_(true) end
  if random(300) == 1 then x:close() end
  return x
end

-- Tensors are used many times: making them would take longer than the calls.
local kept, count = {}, 0

local function tensor(list, dtype)
  local where = device == "mixed" and any {"cpu", "sim:0"} or device
  dtype = dtype or any(dtypes)
  if meta then return make(list, dtype, where) end
  local key = dtype .. where .. table.concat(list, ",")
  local same = kept[key]
  if not same then
    same = {}
    kept[key] = same
  end
  local k = random(4)
  if not same[k] then
    same[k], count = make(list, dtype, where), count + 1
  end
  return same[k]
end

local function choice(text)
  local list = {}
  for word in text:gmatch "[^|]+" do list[#list + 1] = word end
  return any(list)
end

local function list_of(f, most)
  local list = {}
  for i = 1, random(0, most) do list[i] = f() end
  return list
end

-- Shapes that often fit each other: the same, its last dims, or another one.
local function related(base)
  local way = random(5)
  if way <= 3 then return base end
  if way == 4 and #base > 0 then return {table.unpack(base, random(#base))} end
  return shape()
end

local function value(p, base)
  if random(40) == 1 then return any(wrong) end
  if p.kind == "tensor" then
    if p.variadic then
      return list_of(function() return tensor(related(base)) end, 4)
    elseif random(10) == 1 then
      return any(reals)
    end
    local float = p.type == "float" and any {"f32", "f64", "f32", "bf16"}
    local whole = p.type == "index" and any {"i64", "i64", "i32"}
    return tensor(related(base), random(6) > 1 and (float or whole) or nil)
  elseif p.kind == "shape" then
    return random(6) == 1 and list_of(integer, 9) or related(base)
  elseif p.kind == "dims" then
    return random(2) == 1 and integer() or list_of(integer, 4)
  elseif p.kind == "ints" then
    return list_of(integer, 6)
  elseif p.kind == "real" then
    return any(reals)
  elseif p.kind == "flag" then
    return random(2) == 1
  elseif p.kind == "enum" then
    return choice(p.choices)
  elseif p.kind == "dtype" then
    return any(dtypes)
  end
  return integer()
end

local function text(x, depth)
  if core.is_tensor(x) then
    return ("%s(%s)"):format(x.dtype, table.concat(x.shape, ","))
  elseif type(x) == "table" and (depth or 0) < 3 then
    local parts = {}
    for k, v in pairs(x) do parts[#parts + 1] = tostring(k) .. "=" .. text(v, (depth or 0) + 1) end
    return "{" .. table.concat(parts, ", ") .. "}"
  end
  return tostring(x)
end

local function written(x)
  local ok, said = pcall(text, x)
  return ok and said or "(a tensor that is closed)"
end

-- What there is to do with a result.
local function use(x)
  if not core.is_tensor(x) then return end
  assert(x:numel() >= 0)
  local rows = 1 -- expanded, they may be endless; empty ones are many tables as well
  for _, size in ipairs(x.shape) do rows = rows * math.max(size, 1) end
  if rows > 5000 or rows < 0 then return end
  x:totable()
  if x.requires_grad and x.dtype:find "^f" then
    x:sum():backward()
  end
end

local function arguments(op)
  local base, given, options = shape(), {}, {}
  if random(3) == 1 then -- all by name, or some of them
    for _, p in ipairs(op.params) do
      if not p.optional or random(2) == 1 then options[p.name] = value(p, base) end
    end
  else
    for i, p in ipairs(op.params) do
      if p.optional and random(3) > 1 then
        if random(2) == 1 then options[p.name] = value(p, base) end
      else
        given[i] = value(p, base)
      end
    end
  end
  if random(20) == 1 then options.base = any {0, 1, 2} end
  if random(50) == 1 then options.device = any(devices) end
  local list, n = {}, 0
  for i = 1, #op.params do
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
  if note then note(label .. op.name .. (meta and " of shapes " or " ") .. written(list)) end
  local f = target(op, list)
  local results = table.pack(pcall(modes[random(40)] or plain, f, table.unpack(list, 1, list.n)))
  if not results[1] then
    assert(type(results[2]) == "string" and #results[2] > 3, results[2])
    return false
  end
  for i = 2, results.n do
    local ok, message = pcall(use, results[i])
    assert(ok or type(message) == "string", message)
  end
  return true
end

--- So many calls of operators, from a seed: on the CPU, on the simulated device, on both at once,
-- of shapes alone. `note(text)` hears of each before it is made.
-- @return how many gave results
function fuzz.operators(calls, seed, note)
  math.randomseed(seed)
  flare.manual_seed(seed)
  local rows, fine = core.ops(), 0
  limit(256 << 20)
  for k = 1, calls do
    local op, way = any(rows), random(20)
    local label = note and ("%d of seed %d: "):format(k, seed)
    device = way <= 3 and "sim:0" or way == 4 and "mixed" or "cpu"
    meta = way == 5
    local ok, result
    if meta then
      ok, result = pcall(core.meta, try, op, note, label)
    else
      ok, result = pcall(try, op, note, label)
    end
    -- arguments are made outside of the call, but may be refused as well
    assert(ok or type(result) == "string" and not result:find "assertion", result)
    if ok and result then fine = fine + 1 end
    if count > 2000 then kept, count = {}, 0 end
  end
  kept, count = {}, 0
  limit(0)
  core.collect()
  return fine
end

return fuzz
