--- Fills a GPU's memory until it is full, and holds what the error says against the driver's own
-- figures: spec/gpu/oom.sh.
--   flare spec/gpu/oom.lua LIBRARY [DEVICE]   LIBRARY: of spec/gpu/driver_memory.c
local flare = require "flare"
local library, device = arg[1], arg[2] or "cuda"
local GIB = 1 << 30
local failed = false

local function check(what, good, text)
  print(("%-50s %s%s"):format(what, text or "yes", good and "" or " FAILED"))
  failed = failed or not good
end

local function driver()
  flare.zeros(1, {device = device}):close() -- so that this thread is in its context
  local _, why = pcall(flare.op.register, {name = "outside_memory", signature = "x:any -> y:x",
    library = library, symbol = "driver_kernel", init = "driver_memory",
    backend = device:match "%a+"})
  local left, total = tostring(why):match "driver: (%d+) free of (%d+)"
  assert(left, why)
  return tonumber(left), tonumber(total)
end

local function line() return debug.getinfo(2, "l").currentline end

-- "12.3 GB" as a number
local function bytes(text)
  local n, unit = text:match "([%d.]+) (%a+)"
  local power = {B = 0, KB = 3, MB = 6, GB = 9, TB = 12}
  return tonumber(n) * 10.0 ^ power[unit]
end

local function near(what, said, truth)
  local off = math.abs(said - truth) / math.max(truth, 1)
  check(what, off <= 0.01, ("said %.4g, is %.4g: %.2f %% off"):format(said, truth, 100 * off))
end

local few, many, most = {}, {}, nil
for k = 1, 6 do few[k] = flare.zeros({GIB}, {dtype = "u8", device = device}) end
local left = driver()
local each = math.max(GIB, left // 24 // GIB * GIB) -- so that some GiB are left at the end
local ok, why
repeat
  ok, why = pcall(function()
    many[#many + 1] = flare.empty({each}, {dtype = "u8", device = device})
    most = line() - 1
  end)
until not ok
local stats = flare.memory.stats(device)
local free, total = driver()
print((why:gsub("; ", ";\n  ")))
near("what was asked for", bytes(why:match "asked for (.-);"), each)
near("what lives", bytes(why:match "live (.-) in"), stats.live)
near("what is reserved", bytes(why:match "reserved (.-),"), stats.reserved)
near("the driver's free memory", bytes(why:match "device has (.-) free"), free)
near("the driver's memory", bytes(why:match "free of ([%d.]+ %a+)"), total)
local held, where = why:match "held most: ([%d.]+ %a+) ([^,]+)"
near("what the first line holds", bytes(held), #many * each)
check("the first line is that of the loop", where:find(("oom.lua:%d$"):format(most)) ~= nil, where)
check("the second line is that of the few", why:find ", 6.44 GB [^,]*oom.lua:%d+" ~= nil)
local smaller = free // 2 // 256 * 256
local good, x = pcall(flare.full, {smaller}, 3, {dtype = "u8", device = device})
check(("a smaller tensor of %.3g GB can be made after it"):format(smaller / 1e9),
  good and x[smaller]:item() == 3)
assert(#few == 6)
os.exit(not failed)
