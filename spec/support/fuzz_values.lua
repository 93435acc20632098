-- Random and unusual values, for spec/support/fuzz.lua and fuzz_library.lua.
local flare = require "flare"
local core = flare.core

local values = {}

local random = math.random
function values.any(list) return list[random(#list)] end
local any = values.any

local sizes = {0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 17}
values.dtypes = {"f32", "f32", "f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8",
                 "bool", "c64"}
local strange = {0, -1, -2, 99, -99, 1 << 31, -(1 << 31), 1 << 53, math.maxinteger,
                 math.mininteger, 1 << 40}
values.reals = {0, 1, -1, 0.5, 0.1, 2, 1e-8, 1e300, -1e300, 1 / 0, -1 / 0, 0 / 0}
values.wrong = {"text", true, {}, 1.5, -7, {1, "a"}, print, io.stdout}
values.devices = {"cpu", "sim:0", "sim:1", "sim:99", "cuda:0", "none", 7}

-- Of the call that is being made: where its tensors lie ("mixed": anywhere), and whether it runs
-- on shapes alone, so that they may be of any size.
values.device, values.meta = "cpu", false

--- The bytes that tensors may take in each place: with more, random sizes fill more of them with
-- random numbers, which takes most of the time.
values.memory = 256 << 20

function values.integer()
  if random(12) == 1 then return any(strange) end
  return random(-2, 5)
end

local integer = values.integer

-- Up to eight dims now and then, and sizes that no memory has beside one of 0, or in meta mode.
function values.shape()
  local list = {}
  for i = 1, random(random(30) == 1 and 9 or 5) - 1 do list[i] = any(sizes) end
  if #list > 0 and random(values.meta and 3 or 60) == 1 then
    list[random(#list)] = 1 << random(20, 62)
    if not values.meta then list[#list + 1] = 0 end
  end
  return list
end

-- A tensor whose elements may lie anywhere in a larger one, or be the same; it may want a gradient,
-- or be closed.
local function laid_out(x)
  local way, n = random(6), x:dim()
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
  if random(4) == 1 and x.dtype:find "^f" then x = x:detach():requires_grad_(true) end
  if random(300) == 1 then x:close() end
  return x
end

local function make(list, dtype, where)
  local x
  if dtype:find "^[bf]" and dtype ~= "bool" then
    x = flare.randn(list)
  else
    x = flare.randint(random(8) == 1 and -3 or 0, 6, list)
  end
  x = x:to(dtype)
  return laid_out(where ~= "cpu" and x:to(where) or x)
end

local function place()
  return values.device == "mixed" and any {"cpu", "sim:0"} or values.device
end

--- The tensor of a sample's array; floats may become others.
function values.of_array(a)
  local numbers = {}
  for k = 1, #a do numbers[k] = a[k] end
  local x = (values.meta or #a == 0) and flare.zeros(a.shape)
    or flare.tensor(numbers, {dtype = "f64"}):reshape(a.shape)
  local dtype = a.dtype
  if dtype:find "^[bf]" and dtype ~= "bool" then
    dtype = any {"f32", "f32", "f64", a.complex and "f32" or any {"f16", "bf16"}}
  end
  x = x:to(dtype)
  if a.complex then x = x:view_as_complex() end
  local where = place()
  if where ~= "cpu" then x = x:to(where) end
  return random(3) == 1 and laid_out(x) or x
end

-- Tensors are used many times: making them would take longer than the calls.
local kept, count = {}, 0

--- Makes new ones from now on, if there are many or `all`.
function values.forget(all)
  if all or count > 2000 then kept, count = {}, 0 end
end

function values.tensor(list, dtype)
  local where = place()
  dtype = dtype or any(values.dtypes)
  if values.meta then return make(list, dtype, where) end
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

local tensor = values.tensor

local function choice(text)
  local list = {}
  for word in text:gmatch "[^|]+" do list[#list + 1] = word end
  return any(list)
end

function values.list_of(f, most)
  local list = {}
  for i = 1, random(0, most) do list[i] = f() end
  return list
end

local list_of = values.list_of

-- Shapes that often fit each other: the same, its last dims, or another one.
function values.related(base)
  local way = random(5)
  if way <= 3 then return base end
  if way == 4 and #base > 0 then return {table.unpack(base, random(#base))} end
  return values.shape()
end

local related = values.related

function values.value(p, base)
  if random(40) == 1 then return any(values.wrong) end
  if p.kind == "tensor" then
    if p.variadic then
      return list_of(function() return tensor(related(base)) end, 4)
    elseif random(10) == 1 then
      return any(values.reals)
    end
    local float = p.type == "float" and any {"f32", "f64", "f32", "bf16"}
    local whole = (p.type == "index" or p.type == "id") and any {"i64", "i64", "i32"}
    return tensor(related(base), random(6) > 1 and (float or whole) or nil)
  elseif p.kind == "shape" then
    return random(6) == 1 and list_of(integer, 9) or related(base)
  elseif p.kind == "dims" then
    return random(2) == 1 and integer() or list_of(integer, 4)
  elseif p.kind == "ints" then
    return list_of(integer, 6)
  elseif p.kind == "real" then
    return any(values.reals)
  elseif p.kind == "flag" then
    return random(2) == 1
  elseif p.kind == "enum" then
    return choice(p.choices)
  elseif p.kind == "dtype" then
    return any(values.dtypes)
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

function values.written(x)
  local ok, said = pcall(text, x)
  return ok and said or "(a tensor that is closed)"
end

-- What there is to do with a result.
function values.use(x)
  if not core.is_tensor(x) then return end
  assert(x:numel() >= 0)
  local rows = 1.0 -- expanded, they may be endless; empty ones are many tables as well
  for _, size in ipairs(x.shape) do rows = rows * math.max(size, 1) end
  if rows > 5000 then return end
  x:totable()
  if x.requires_grad and x.dtype:find "^f" then
    x:sum():backward()
  end
end

return values
