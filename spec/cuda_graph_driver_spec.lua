-- Graphs of launches by the CUDA driver, on one whose kernels do nothing: what is captured, what a
-- run launches, and that nothing in between breaks a capture as the driver knows it.
local fakes = require "spec.support.fakes"

local place = os.tmpname() .. ".d"

-- f: four launches of a small layer; launched(): what the device has got since the last call.
local head = [==[
local flare = require "flare"
local names = os.getenv "FAKE_LAUNCHED"
local function launched()
  local list = {}
  for line in io.lines(names) do list[#list + 1] = line:match "^%w+" end
  io.open(names, "w"):close()
  return table.concat(list, " ")
end
local w, x = flare.zeros({8, 8}, {device = "cuda"}), flare.zeros({4, 8}, {device = "cuda"})
local function f(a) return (a:matmul(w) + 1):relu():sum(2) end
]==]

local function run(settings, script)
  local said, status = fakes.run(place, ("FLARE_CACHE=off FAKE_LAUNCHED='%s/launched' %s")
    :format(place, settings), head .. script)
  return said, status
end

describe("a graph on a GPU", function()
  setup(function() fakes.machine(place) end)
  teardown(function() os.execute("rm -rf " .. place) end)

  it("is one launch of the host", function()
    local said, status = run("", [[
local g = flare.cuda.graph(f, x)
launched()
g(x)
print(launched())
g(flare.zeros({4, 8}, {device = "cuda"}))
print(launched())
print(g, g:stats().runs)
]])
    assert.equal("graph simt flat flat rows\nflat graph simt flat flat rows\n"
      .. "flare.cuda.graph (4 launches, 2.1 MB on cuda:0)\t2\n", said)
    assert.equal(0, status)
  end)

  it("is captured although memory is allocated and freed meanwhile", function()
    local said = run("", [[
local side = flare.stream "cuda"
local shared = {}                             -- each run frees one, which two streams have used
for i = 1, 4 do
  shared[i] = side:run(flare.ones, {1 << 20}, {device = "cuda"})
  local _ <close> = shared[i] + 1
end
local old = flare.cuda.graph(f, x)             -- and one closes another graph
local g = flare.cuda.graph(function(a)
  table.remove(shared):close()
  if #shared == 0 then old:close() end
  local kept = {}
  for i = 1, 20 do kept[i] = flare.zeros({1 << 20}, {device = "cuda"}) end
  for i = 1, 20 do kept[i]:close() end
  collectgarbage()
  return a + 1
end, x)
flare.memory.flush "cuda"
g(x)
print(g)
]])
    assert.equal("flare.cuda.graph (21 launches, 91.8 MB on cuda:0)\n",
      (said:gsub("%d+%.%d MB", "91.8 MB")))
  end)

  it("names the operator that would wait for the device", function()
    local said = run("", [[
print(pcall(flare.cuda.graph, function(a)
  return flare.matrix_exp(flare.zeros({3, 3}, {device = "cuda"}))
end, x))
print((flare.cuda.graph(f, x)))
]])
    assert.truthy(said:find("script.lua:12: matrix_exp: a graph cannot capture", 1, true), said)
    assert.truthy(said:find("flare.cuda.graph (4 launches", 1, true), said)
  end)

  it("names the operator whose library ends the capture", function()
    local said = run("FAKE_BREAKS='flat<1, 1, 1, 4>'", [[
print(pcall(flare.cuda.graph, f, x))
print((flare.cuda.graph(function(a) return a + 1 end, x)))
]])
    assert.truthy(said:find("script.lua:10: relu: a graph cannot capture it: one of its calls",
      1, true), said)
    assert.truthy(said:find("flare.cuda.graph (1 launches", 1, true), said)
  end)

  it("has users' kernels", function()
    local said = run("", [==[
local k = flare.cuda.kernel{name = "mine", source = [[
extern "C" __global__ void mine(float *x) {}]]}
local g = flare.cuda.graph(function(a) k(a) return a end, x)
launched()
g(x)
print(launched(), g:stats().launches)
]==])
    assert.equal("graph mine\t1\n", said)
  end)

  it("that faults is reported with the line that runs it", function()
    local said, status = run("FAKE_FAULT=mine:700", [==[
local k = flare.cuda.kernel{name = "mine", source = [[
extern "C" __global__ void mine(float *x) {}]]}
local warm = true
local g = flare.cuda.graph(function(a)
  warm = (warm == true and 1 or warm + 1)
  if warm > 3 then k(a) end
  return a
end, x)
g(x)
print(pcall(x.tolist, x))
]==])
    assert.truthy(said:find("(700) in the kernel mine; CUDA cannot", 1, true), said)
    assert.truthy(said:find("launched at script.lua:19", 1, true), said)
    assert.equal(0, status)
  end)

  it("waits for each run with FLARE_SYNC=1", function()
    local said = run("FLARE_SYNC=1", "local g = flare.cuda.graph(f, x) print(g(x):size(1))")
    assert.equal("4\n", said)
  end)
end)
