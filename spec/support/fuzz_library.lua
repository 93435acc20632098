-- Calls of everything public that is no operator, with random arguments: functions of
-- the core and of the library, methods of tensors, classes and the methods of their objects, what
-- stands between brackets. For spec/fuzz_spec.lua and spec/long/fuzz.sh.
local flare = require "flare"
local options = require "flare.options"
local values = require "spec.support.fuzz_values"
local core = flare.core

local library = {}

local random = math.random
local any = values.any

-- What is left alone: what takes addresses, descriptors or code, waits for other processes and
-- threads, or changes what all later calls do.
local left = {}
for name in ([[raw_about raw_call raw_new raw_plan raw_run from_dlpack load_backend library method
  raise interrupt interruptible spawn channel shared net limit fail threads backend_control
  comm init is_terminal collect pack on_ready kernel profile profile_start debug_streams
  set_default_device device watch anomaly vmap_run vmap_in vmap_out]]):gmatch "%S+" do
  left[name] = true
end

local words = {"", "x", "f32", "i64", "c64", "cpu", "sim:0", "cuda:0", "none", "mean", "sum", "max",
               "b t d -> b d t", "b (h d) -> b h d", "b h -> b", "ij,jk->ik", "...i->i", "ii->i",
               "b t d", "3 _ c", "x * y + 1", "x:any -> x", "a,b", "\0\255", ("long"):rep(99),
               "softmax", "params", "weight", "0.weight", "state_dict", "[1, {}]", "%d"}

local functions = {
  function(...) return ... end, function(x) return x:sum() end, function(x, y) return x * y end,
  function() error "on purpose" end, function() end, function() return 7, "a" end,
  function(x) x:close() return x end, function(x) return {x, x} end, coroutine.yield,
  function(x) return x[1] end, function() return any(words) end,
}

-- All there is to call, as {name, function}, and the rows by their names, for their methods.
local targets, rows, methods

local function sorted(t)
  local names = {}
  for name in pairs(t) do
    if type(name) == "string" then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

local function collect(t, path, seen)
  if seen[t] then return end
  seen[t] = true
  for _, name in ipairs(sorted(t)) do
    local x = not left[name] and not name:find "^_" and t[name]
    local meta = type(x) == "table" and getmetatable(x)
    if type(x) == "function" and not rows[name] or meta and meta.__call then
      targets[#targets + 1] = {path .. name, x}
    elseif type(x) == "table" and x ~= core.ops and name ~= "parent" then
      collect(x, path .. name .. ".", seen)
    end
  end
end

local function find()
  targets, rows = {}, {}
  for _, op in ipairs(core.ops()) do
    rows[op.name] = op
    for _, p in ipairs(op.params) do
      for word in (p.choices or ""):gmatch "[^|]+" do words[#words + 1] = word end
    end
  end
  collect(flare, "flare.", {})
  methods = {}
  for name in pairs(core.methods()) do
    if not left[name] then methods[#methods + 1] = name end
  end
  table.sort(methods)
end

-- The options that a function has asked for, by its name, with their defaults.
local learned, hearing = {}, nil
local check = options.check

local function listen(where, given, defaults)
  if hearing and type(defaults) == "table" then
    for key, default in pairs(defaults) do hearing[key] = default end
  end
  return check(where, given, defaults)
end

-- Objects of classes that were made, some of each kind at most.
local objects, folder

local function keep(x)
  local meta = type(x) == "table" and getmetatable(x)
  if type(meta) == "table" and type(meta.__index) == "table" and meta ~= getmetatable(core.ops) then
    objects[#objects < 64 and #objects + 1 or random(64)] = x
  end
end

-- Without sizes that loops over rows would take for ever to go through.
local function shape()
  local list = values.shape()
  for i, size in ipairs(list) do list[i] = math.min(size, 17) end
  return list
end

local anything

local function keyed(name)
  local t = {}
  for _, key in ipairs(sorted(learned[name] or {})) do
    local default = learned[name][key]
    if random(2) == 1 then
      if random(5) == 1 then
        t[key] = anything(name, 2)
      elseif math.type(default) == "float" then
        t[key] = any(values.reals)
      elseif type(default) == "number" then
        t[key] = values.integer()
      elseif type(default) == "boolean" then
        t[key] = random(2) == 1
      elseif type(default) == "string" then
        t[key] = any(words)
      else
        t[key] = anything(name, 2)
      end
    end
  end
  return t
end

function anything(name, depth)
  local way = random(20)
  if way <= 7 then
    return values.tensor(values.related(shape()))
  elseif way <= 10 then
    return values.integer()
  elseif way == 11 then
    return any(values.reals)
  elseif way == 12 then
    return random(4) == 1 and folder .. "/" .. random(3) .. any {"", ".npy", ".npz"} or any(words)
  elseif way == 13 then
    return any(functions)
  elseif way == 14 then
    return #objects > 0 and any(objects) or nil
  elseif way == 15 then
    return shape()
  elseif way == 16 then
    return any(values.wrong)
  elseif way == 17 then
    return values.list_of(function() return depth < 3 and anything(name, depth + 1) or 1 end, 4)
  elseif way == 18 then
    return random(2) == 1
  end
  return keyed(name)
end

local function arguments(name, op)
  local list, base = {n = random(0, 4)}, shape()
  if op and random(3) > 1 then -- as its row wants them
    list.n = random(0, #op.params)
    for i = 1, list.n do list[i] = values.value(op.params[i], base) end
    return list
  end
  for i = 1, list.n do list[i] = anything(name, 1) end
  return list
end

-- Arguments that ask for endless work are left out.
local function enough() error("interrupted!", 0) end
local steps = 200000

local function in_coroutine(f, ...)
  local co = coroutine.create(f)
  debug.sethook(co, enough, "", steps)
  local results = table.pack(coroutine.resume(co, ...))
  if not results[1] then error(results[2], 0) end
  return table.unpack(results, 2, results.n)
end

local modes = {[1] = in_coroutine, [2] = core.no_grad, [3] = core.meta, [4] = core.anomaly}
local function plain(f, ...) return f(...) end

-- Modes end, those inside others first; what cannot be closed is refused.
local function close(x) local _ <close> = x end

local function shut(...)
  for i = 1, math.min(select("#", ...), 8) do
    local x = select(i, ...)
    if type(x) == "userdata" and not core.is_tensor(x) then pcall(close, x) end
  end
  return ...
end

local function run(f, ...) return shut(f(...)) end

local function call(note, name, f, list)
  if note then note(name .. " " .. values.written(list)) end
  learned[name] = learned[name] or {}
  hearing = learned[name]
  debug.sethook(enough, "", steps)
  local mode = modes[random(60)] or plain
  local results = table.pack(pcall(mode, run, f, table.unpack(list, 1, list.n)))
  debug.sethook()
  hearing = nil
  if not results[1] then
    assert(type(results[2]) == "string" and #results[2] > 3, results[2])
    return false
  end
  for i = 2, math.min(results.n, 9) do
    local x = results[i]
    pcall(values.use, x)
    keep(x)
  end
  return true
end

local operations = {
  function(a, b) return a + b end, function(a, b) return a - b end,
  function(a, b) return a * b end, function(a, b) return a / b end,
  function(a, b) return a // b end, function(a, b) return a % b end,
  function(a, b) return a ^ b end, function(a, b) return a & b end,
  function(a, b) return a | b end, function(a, b) return a ~ b end,
  function(a, b) return a << b end, function(a, b) return a >> b end,
  function(a, b) return a < b end, function(a, b) return a <= b end,
  function(a, b) return a == b end, function(a, b) return a .. b end,
  function(a) return -a end, function(a) return ~a end, function(a) return #a end,
  function(a) return tostring(a) end, function(a, b) return a[b] end,
  function(a, b, c) a[b] = c end, function(a, ...) return a(...) end,
  function(a) return (pairs(a)) end, function(a, b) a.grad = b return a.grad end,
  function(a, b) a.requires_grad = b end,
}

-- A random call, as its name, its function and arguments.
local function choose()
  local way = random(10)
  if way <= 4 then
    local target = any(targets)
    return target[1], target[2], arguments(target[1])
  elseif way <= 6 and #objects > 0 then
    local object, names = any(objects), {}
    local class = getmetatable(object)
    while type(class) == "table" do
      for _, name in ipairs(sorted(class)) do
        if type(class[name]) == "function" and not left[name] then names[#names + 1] = name end
      end
      class = rawget(class, "parent")
    end
    if #names > 0 then
      local name = any(names)
      local what = tostring(getmetatable(object).__name) .. ":" .. name
      local list = arguments(what)
      if random(20) > 1 then
        table.insert(list, 1, object)
        list.n = list.n + 1
      end
      return what, object[name] or getmetatable(object)[name], list
    end
  elseif way == 7 then
    local k = random(#operations)
    local list = arguments "operation"
    if random(4) > 1 then list[1] = values.tensor(shape()) end
    list.n = math.max(list.n, 1)
    return "operation " .. k, operations[k], list
  end
  local name = any(methods)
  local list = arguments("x:" .. name, rows[name:gsub("_$", "")])
  local x = values.tensor(shape())
  list[1], list.n = x, math.max(list.n, 1)
  return "x:" .. name, function(...) return x[name](...) end, list
end

local function guard(f)
  return function(path, ...)
    local text = (type(path) == "string" or type(path) == "number") and tostring(path)
    if text and text:sub(1, #folder) ~= folder then return nil, "not here" end
    return f(path, ...)
  end
end

--- So many calls, from a seed. `note(text)` hears of each before it is made.
-- @return how many gave results
function library.calls(count, seed, note)
  math.randomseed(seed)
  flare.manual_seed(seed)
  folder, objects = os.tmpname(), {}
  os.remove(folder)
  assert(core.file.mkdir(folder))
  local open, file = io.open, {} -- nothing is written outside of the folder
  for name, f in pairs(core.file) do file[name] = f end
  for name, f in pairs(file) do core.file[name] = guard(f) end
  rawset(io, "open", guard(open))
  options.check = listen
  if not targets then find() end
  for _, where in ipairs {"cpu", "sim:0", "sim:1"} do core.memory.limit(values.memory, where) end
  local fine = 0
  for k = 1, count do
    values.device = any {"cpu", "cpu", "cpu", "mixed", "sim:0"}
    local label = note and ("%d of seed %d: "):format(k, seed)
    local ok, name, f, list = pcall(choose) -- arguments may be refused as well
    if ok and f and call(label and function(text) note(label .. text) end, name, f, list) then
      fine = fine + 1
    end
    if k % 500 == 0 then
      values.forget(true)
      objects = {}
    end
  end
  for name, f in pairs(file) do core.file[name] = f end
  rawset(io, "open", open)
  options.check = check
  values.forget(true)
  objects = {}
  core.memory.limit(0)
  core.collect()
  os.execute("rm -rf '" .. folder .. "'")
  return fine
end

return library
