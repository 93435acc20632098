--- Two implementations of an operator side by side: time, memory, error.
local usage = [[
usage: flare bench compare A B [options]
A, B: the name of an operator, a Lua expression of the inputs ("x:softmax(2)"), or a file that
returns a function of them. A is also run in f64 on the CPU: what errors are counted from.
  --inputs TEXT   assignments, one input each; x = randn(1024, 1024) if left out
  --dtype D       of inputs that are floats: f32
  --device D      cpu
  --load FILE     run before, to register operators or make kernels
]]
local flare = require "flare"

local o = {inputs = "x = randn(1024, 1024)", dtype = "f32", device = "cpu", load = ""}
local ways, i = {}, 1
while arg[i] do
  local name = arg[i]:match "^%-%-(%w+)$"
  if name and (o[name] == nil or not arg[i + 1]) then
    io[name == "help" and "stdout" or "stderr"]:write(usage)
    return name == "help" and 0 or 1
  elseif name then
    i, o[name] = i + 1, arg[i + 1]
  else
    ways[#ways + 1] = arg[i]
  end
  i = i + 1
end
if #ways ~= 2 then
  io.stderr:write(usage)
  return 1
end

local function stop(...)
  io.stderr:write("flare: ", (...):format(select(2, ...)), "\n")
  os.exit(1)
end

-- Names in expressions: inputs, then flare's functions, then Lua's.
local function world(own)
  return setmetatable({}, {
    __index = function(_, name)
      if own[name] ~= nil then return own[name] end
      if _G[name] ~= nil then return _G[name] end
      return flare[name]
    end,
    __newindex = function(_, name, value)
      own[#own + 1] = name
      own[name] = value
    end,
  })
end

if o.load ~= "" then
  local chunk, why = loadfile(o.load)
  if not chunk then stop("%s", why) end
  chunk()
end

-- --- inputs: f64 on the CPU, and the requested dtype and device ---

flare.manual_seed(1)
local exact = {}
do
  local chunk, why = load(o.inputs, "=inputs", "t", world(exact))
  if not chunk then stop("%s", why) end
  chunk()
end
if #exact == 0 then stop("--inputs makes no inputs: %s", o.inputs) end
local floats = {f64 = true, f32 = true, f16 = true, bf16 = true}
local given = {}
for k, name in ipairs(exact) do
  local x = exact[name]
  given[k] = name
  if flare.is_tensor(x) then
    local float = floats[x.dtype]
    given[name] = x:to(float and o.dtype or x.dtype):to(o.device)
    -- the same numbers, after rounding
    exact[name] = float and given[name]:to("cpu"):to "f64" or x
  else
    given[name] = x
  end
end

-- --- implementations ---

local function values(inputs)
  local list = {}
  for k, name in ipairs(inputs) do list[k] = inputs[name] end
  return list
end

-- text -> function(inputs) -> results
local function implementation(text)
  if text:find "%.lua$" then
    local chunk, why = loadfile(text)
    if not chunk then stop("%s", why) end
    local f = chunk()
    return function(inputs) return f(table.unpack(values(inputs))) end
  end
  if text:find "^[%a_][%w_]*$" then
    local f = flare.core.ops[text] or flare[text]
    return function(inputs) return f(table.unpack(values(inputs))) end
  end
  return function(inputs)
    local chunk, why = load("return " .. text, "=" .. text, "t", world(inputs))
    if not chunk then stop("%s", why) end
    return chunk()
  end
end

-- As before, but read once.
local function prepared(text, inputs)
  local f = implementation(text)
  if text:find "%.lua$" or text:find "^[%a_][%w_]*$" then
    return function() return f(inputs) end
  end
  return load("return " .. text, "=" .. text, "t", world(inputs))
end

-- --- measuring ---

local function time_of(f)
  for _ = 1, 3 do f() end
  flare.synchronize()
  local start = flare.clock()
  f()
  flare.synchronize()
  local count = math.max(1, math.min(1000, 0.03 / (flare.clock() - start) // 1 | 0))
  local all = {}
  for round = 1, 7 do
    flare.synchronize()
    start = flare.clock()
    for _ = 1, count do f() end
    flare.synchronize()
    all[round] = (flare.clock() - start) / count
  end
  table.sort(all)
  return all[4]
end

-- Leaves among the inputs, as copies that require gradients.
local function with_leaves(inputs)
  local new, leaves = {}, {}
  for k, name in ipairs(inputs) do
    local x = inputs[name]
    new[k] = name
    if flare.is_tensor(x) and floats[x.dtype] then
      x = x:detach():requires_grad_(true)
      leaves[#leaves + 1] = x
    end
    new[name] = x
  end
  return new, leaves
end

-- Gradients of the first result, weighted with sines, so that no gradient is constant.
local function gradients(f, inputs, leaves)
  local y = f(inputs)
  if not (flare.is_tensor(y) and y.requires_grad) then return nil end
  local weights = flare.arange(y:numel()):to("f64"):sin():reshape(y.shape)
  local list = table.pack(flare.grad({y}, leaves, {
    gradient = {weights:to(y.dtype):to(y.device)}, allow_unused = true}))
  for k = 1, #leaves do list[k] = list[k] or false end
  return list
end

-- The largest difference, in units of the largest exact value.
local function difference(y, want)
  if not y or not want or y:numel() == 0 then return nil end
  local d = (y:detach():to("cpu"):to "f64" - want:detach()):abs():max():item()
  local size = want:detach():abs():max():item()
  return size > 0 and d / size or d
end

local function measure(text)
  local m, f = {}, implementation(text)
  local run = prepared(text, given)
  flare.no_grad(function()
    local first = table.pack(pcall(run))
    if not first[1] then stop("%s: %s", text, tostring(first[2])) end
    m.y = first[2]
    if not flare.is_tensor(m.y) then stop("%s gives no tensor, but %s", text, type(m.y)) end
    collectgarbage()
    collectgarbage()
    flare.memory.reset_peak(o.device)
    local before = flare.memory.stats(o.device).live
    local _ <close> = run()
    flare.synchronize()
    m.bytes = flare.memory.stats(o.device).peak - before
    m.forward = time_of(function()
      local y <close> = run()
      return y:dim()
    end)
  end)
  local inputs, leaves = with_leaves(given)
  if #leaves > 0 then
    local ok, list = pcall(gradients, f, inputs, leaves)
    if ok and list then
      m.gradients = list
      m.both = time_of(function()
        local all = gradients(f, inputs, leaves)
        for k = 1, #all do if all[k] then all[k]:close() end end
      end)
    end
  end
  return m
end

local reference = flare.no_grad(function() return implementation(ways[1])(exact) end)
local exact_inputs, exact_leaves = with_leaves(exact)
local _, exact_gradients = pcall(gradients, implementation(ways[1]), exact_inputs, exact_leaves)
if type(exact_gradients) ~= "table" then exact_gradients = nil end

local both = {measure(ways[1]), measure(ways[2])}
if tostring(both[1].y.shape) ~= tostring(both[2].y.shape) then
  stop("the results have different shapes: %s gives %s, %s gives %s", ways[1],
       tostring(both[1].y.shape), ways[2], tostring(both[2].y.shape))
end
for _, m in ipairs(both) do
  m.error = difference(m.y, reference)
  for k, g in ipairs(m.gradients or {}) do
    local d = exact_gradients and difference(g or nil, exact_gradients[k] or nil)
    if d then m.gradient_error = math.max(m.gradient_error or 0, d) end
  end
end

-- --- the table ---

local function time_text(s)
  return s and (s < 1e-3 and ("%.2f us"):format(s * 1e6) or ("%.3f ms"):format(s * 1e3)) or "-"
end
local function error_text(e) return e and ("%.1e"):format(e) or "-" end
local function row(name, format, key, ratio)
  local a, b = both[1][key], both[2][key]
  print(("%-24s %18s %18s %8s"):format(name, format(a), format(b),
    ratio and a and b and b > 0 and ("%.2f"):format(a / b) or ""))
end
print(("A: %s\nB: %s\n%s, %s: %s"):format(ways[1], ways[2], o.device, o.dtype, o.inputs))
print(("%-24s %18s %18s %8s"):format("", "A", "B", "A / B"))
row("forward", time_text, "forward", true)
row("forward and backward", time_text, "both", true)
row("memory, at most", function(n) return ("%.3f MiB"):format(n / 2 ^ 20) end, "bytes", true)
row("error", error_text, "error")
row("error of gradients", error_text, "gradient_error")
return 0
