-- Trials: the candidates of a shape, timed one at a time around the program's own calls. Fake
-- libraries name their plans in order; the device's time is what FAKE_TIMES says.
local fakes = require "spec.support.fakes"

local place = os.tmpname() .. ".d"
local log = place .. "/launched"

-- Runs a script after `common`, and returns the list of plans and algorithms launched, and of all
-- kernels.
local common = [[
local flare = require "flare"
flare.backends{conv = "cudnn", matmul = "cublaslt"}
local o = {dtype = "bf16", device = "cuda"}
local function last(y) return y:to{layout = "channels_last"} end
local x, w = last(flare.ones({8, 64, 32, 32}, o)), last(flare.ones({64, 64, 3, 3}, o))
local a, b = flare.ones({256, 256}, o), flare.ones({256, 256}, o)
local function conv() return flare.conv(x, w, nil, {padding = 1}) end
local function launched(name)
  local found = false
  for line in io.lines(os.getenv "FAKE_LAUNCHED") do found = found or line == name end
  return found
end
local function mark(text)
  local file = io.open(os.getenv "FAKE_LAUNCHED", "a")
  file:write(text, "\n")
  file:close()
end
local function last_launched()
  local file = io.open(os.getenv "FAKE_LAUNCHED")
  file:seek("end", -math.min(100, file:seek "end"))
  local text = file:read "a"
  file:close()
  return text:match "([^\n]*)\n$"
end
-- Calls until a thread has made the other plans.
local function tried(f, name)
  for _ = 1, 100000 do
    f()
    if launched(name) then return end
  end
end
]]

local function run(settings, script, more)
  os.remove(log)
  local said, status = fakes.run(place, ("FLARE_CACHE=off FLARE_CUDA_HIDE=none FLARE_PACK=none "
    .. "FAKE_TIME=900 FAKE_LAUNCHED=%s %s %s"):format(log, settings, more or ""), common .. script)
  assert.equal("", said)
  assert.equal(0, status)
  local list, all = {}, {}
  for line in io.lines(log) do
    all[#all + 1] = line
    if line:find "^plan<" or line:find "^algorithm<" or line:find "^[-=]" or line == "graph" then
      list[#list + 1] = line
    end
  end
  return list, all
end

local function index(list, name)
  for k, line in ipairs(list) do
    if line == name then return k end
  end
end

local function count(list, name)
  local n = 0
  for _, line in ipairs(list) do n = n + (line == name and 1 or 0) end
  return n
end

describe("trials of candidates", function()
  setup(function() fakes.tuning(place) end)
  teardown(function() os.execute("rm -rf " .. place) end)

  local times = 'FAKE_TIMES="plan<0>:100,plan<1>:104,plan<2>:80,plan<3>:110,plan<4>:100,'
    .. 'plan<5>:200,plan<6>:95,plan<7>:108"'

  it("find the fastest plan, one in each call, at 2 % of the time", function()
    local list, all = run(times, [[
tried(conv, "plan<1>")
for _ = 1, 600 do
  mark "-"
  conv()
end
]])
    local spent, calls, plans = 0, 0, 0
    for _, line in ipairs(all) do
      local known = times:match((line:gsub("%p", "%%%0")) .. ":(%d+)")
      if line == "-" then
        calls, plans = calls + 1, 0
      elseif calls > 0 then
        spent = spent + known
        plans = plans + 1
        assert.is_true(plans <= 1)
      end
    end
    assert.equal(600, calls)
    assert.is_true(spent <= 1.02 * 100 * calls)
    assert.equal(100, count({table.unpack(list, #list - 199)}, "plan<2>"))
    for k = 1, 7 do
      assert.is_true(count(list, ("plan<%d>"):format(k)) >= (k == 5 and 1 or 2))
    end
    assert.equal(1, count(list, "plan<5>")) -- far off: once is enough
  end)

  it("are over within 200 calls", function()
    local list = run(times, [[
tried(conv, "plan<1>")
for _ = 1, 200 do conv() end
mark "-"
for _ = 1, 100 do conv() end
]])
    assert.equal(100, count({table.unpack(list, assert(index(list, "-")))}, "plan<2>"))
  end)

  it("wait for no event", function()
    local list = run(times .. " FAKE_LAG=5", [[
tried(conv, "plan<1>")
for _ = 1, 800 do conv() end
]])
    assert.equal("plan<2>", list[#list])
  end)

  it("time several calls before the device has ended the first", function()
    local list = run(times .. " FAKE_LAG=40", [[
tried(conv, "plan<1>")
for _ = 1, 600 do conv() end
mark "-"
for _ = 1, 100 do conv() end
]])
    assert.equal(100, count({table.unpack(list, assert(index(list, "-")))}, "plan<2>"))
  end)

  it("leave out what the heuristic expects less of than of two slow ones", function()
    local list = run('FAKE_TIMES="plan<0>:100,plan<1>:140,plan<2>:150,plan<3>:10"', [[
tried(conv, "plan<1>")
for _ = 1, 600 do conv() end
]])
    assert.equal(0, count(list, "plan<3>"))
    assert.equal("plan<0>", list[#list])
  end)

  it("replace a plan that the library refuses", function()
    local list = run(times .. " FAKE_REFUSES=2", [[
tried(conv, "plan<1>")
for _ = 1, 600 do conv() end
]])
    assert.equal(0, count(list, "plan<2>"))
    assert.equal("plan<6>", list[#list])
  end)

  it("do not take place where every run is to be the same", function()
    local list = run(times, [[
flare.backends{deterministic = true}
for _ = 1, 100 do conv() a:matmul(b) end
]])
    assert.equal(100, count(list, "plan<0>"))
    assert.equal(100, count(list, "algorithm<0>"))
    assert.equal(200, #list)
  end)

  it("choose algorithms of products", function()
    local list = run('FAKE_TIMES="algorithm<0>:100,algorithm<1>:103,algorithm<2>:70"', [[
for _ = 1, 400 do a:matmul(b) end
mark "-"
for _ = 1, 20 do a:matmul(b) end
]])
    assert.equal(420, #list - 1)
    assert.equal(20, count({table.unpack(list, assert(index(list, "-")))}, "algorithm<2>"))
  end)

  it("try flare's own kernels when threads have compiled them", function()
    local slow = {}
    for k = 0, 7 do slow[#slow + 1] = ("plan<%d>:900,algorithm<%d>:900"):format(k, k) end
    for _, f in ipairs {"conv()", "a:matmul(b)"} do
      run(('FAKE_TIMES="%s"'):format(table.concat(slow, ",")), ([[
flare.backends{conv = "auto", matmul = "auto"}
local own = 0
for _ = 1, 100000 do
  %s
  own = last_launched():find "^[ap]l[ag]" and 0 or own + 1
  if own == 50 then return end
end
error "they never won"
]]):format(f), "FAKE_TIME=3")
    end
  end)

  it("compare the library's plans of a convolution of one tap with a product", function()
    for _, f in ipairs {"flare.conv(x, v)", "flare.conv_input_grad(y, v, x.shape)",
                        "flare.conv_weight_grad(y, x, v.shape)"} do
      for time, best in pairs {[20] = "plan<1>", [70] = "algorithm<0>"} do
        local list = run(('FAKE_TIMES="plan<0>:70,plan<1>:%d,plan<2>:70,algorithm<0>:60"')
          :format(time), ([[
flare.backends{conv = "auto", matmul = "cublaslt"}
local v, y = flare.ones({128, 64, 1, 1}, o), last(flare.ones({8, 128, 32, 32}, o))
local function f() return %s end
tried(f, "plan<1>")
for _ = 1, 300 do f() end
]]):format(f))
        assert.equal("algorithm<0>", list[1])
        assert.equal(best, list[#list])
      end
    end
  end)

  it("are decided at once before the capture of a graph", function()
    local list = run(times, [[
local g = flare.cuda.graph(function(y) return flare.conv(y, w, nil, {padding = 1}) end, x)
g(x)
]])
    local at = assert(index(list, "graph"))
    assert.equal("plan<2>", list[at + 1])
    assert.equal(at + 1, #list)
  end)

  it("hold back the graph of a plan", function()
    local list = run(times, [[
local step = flare.compile(function(y) return (flare.conv(y, w, nil, {padding = 1}) + 1):relu() end)
local y = last(flare.ones({8, 64, 16, 16}, o))
tried(function() return step(y) end, "graph")
]])
    local at = assert(index(list, "graph"))
    assert.equal("plan<2>", list[at + 1])
    assert.is_true(count(list, "plan<6>") > 1)
  end)
end)
