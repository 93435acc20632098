-- Writes what flare reads and writes as numbers to the file LOCALE_OUT, one fact a line, so
-- that two runs in different locales can be compared (locale_spec.lua).
local flare = require "flare"
local core = require "flare.core"

local out = {}
local mode = _G.mode or ...
local folder = assert(os.getenv "LOCALE_OUT")

local function bits(v)
  return type(v) == "number" and math.type(v) == "float"
         and (("d"):pack(v):gsub(".", function(c) return ("%02x"):format(c:byte()) end))
         or tostring(v)
end
local function add(name, value) out[#out + 1] = name .. " " .. bits(value) end

for _, row in ipairs(core.ops()) do
  for _, p in ipairs(row.params) do
    if type(p.default) ~= "table" then add(row.name .. "." .. p.name, p.default) end
  end
end
local x = flare.tensor({-1.0, 0.25, 3.0}, {dtype = "f64"})
local function values(name, t)
  for i, v in ipairs(t:totable()) do add(name .. "." .. i, v) end
end
values("leaky_relu", x:leaky_relu())

local halve = flare.elementwise("T x", "T z", "z = x * 0.5 + 1.25e-3 + 2.f")
values("elementwise", halve(x))
add("source", halve:source(x))
values("tostring", flare.elementwise("T x", "T z", "z = x * " .. core.format("%.17g", 0.1))(x))
flare.op.register{name = "locale_" .. mode, signature = "x:float, by:real=0.5 -> z:x",
                  expression = "z = x * by"}
values("registered", flare.op.find("locale_" .. mode)(x))

add("json", core.json.encode{a = 0.1, b = 1e300, c = -2.5})
add("decoded", core.json.decode("[0.1]")[1])
add("printed", tostring(x))
local path = folder .. "/x." .. mode
assert(flare.io.safetensors.save(path, {x = x}, {lr = "0.5"}))
values("safetensors", assert(flare.io.safetensors.load(path)).x)
assert(flare.save(path, {lr = 0.3, x = x}))
add("saved", assert(flare.load(path)).lr)
local m <close> = assert(flare.log.metrics(path))
assert(m:write{loss = 0.75})
for line in io.lines(path) do add("metrics", (line:gsub('"seconds":[%d.e-]+', ""))) end
add("row", flare.log.metrics.read(path)[1].loss)
local file <close> = assert(io.open(path, "w"))
file:write("a,b\n0.5,1e-3\n"):flush()
local csv = assert(flare.data.csv(path))
add("csv", csv.a[1])
assert(flare.log.svg({0.5, 1.5, 0.75}, {path = path .. ".svg"}))
for line in io.lines(path .. ".svg") do add("svg", line) end
if mode == "own" then
  add("string.format", ("%g %s"):format(0.5, 0.5))
  local t = assert(flare.spawn("return tostring(0.5)"))
  add("thread", select(2, assert(t:join())))
end
local result <close> = assert(io.open(folder .. "/" .. mode .. ".txt", "w"))
result:write(table.concat(out, "\n"), "\n")
