-- Calls of a compiled function run without their plan while its kernels are being compiled, with
-- the same results, and by the plan from then on. The simulated device says how often it must be
-- asked.
local flare = require "flare"
local tree = require "spec.support.tree"

local path = os.tmpname()

-- What the text prints; `asks`: see FLARE_SIM_COMPILING of kernels/sim/sim.h.
local function run(asks, text, setting)
  local f <close> = assert(io.open(path, "w"))
  f:write(text)
  f:flush()
  return tree.output(("FLARE_SIM_COMPILING=%d FLARE_COMPILE=%s %s/flare %s 2>&1"):format(asks,
    setting or "on", tree.build, path))
end

-- A training step with momentum, dropout and a value that escapes, and what it leaves behind.
local training = [[
  local flare = require "flare"
  local nn = flare.nn
  flare.manual_seed(3)
  local net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.25), nn.Linear(16, 4))
  net:to "sim:0"
  local opt = flare.optim.Adam(net:parameters(), {lr = 0.05})
  local x, y = flare.randn(32, 8):to "sim:0", flare.randn(32, 4):to "sim:0"
  local kept = {}
  local step = flare.compile(function(k)
    opt:zero_grad()
    local out = net(x)
    if k % 5 == 0 then kept[#kept + 1] = out end
    local loss = (out - y):square():mean()
    loss:backward()
    opt:step()
    return loss
  end, {exact = true})
  local losses = {}
  for k = 1, 24 do losses[k] = ("%.6g"):format(step(k):item()) end
  print(table.concat(losses, " "))
  for _, v in ipairs(kept) do print(("%.5g"):format(v:sum():item())) end
  for _, p in ipairs(net:parameters()) do print(("%.5g"):format(p:sum():item())) end
]]

local counts = [[
  local flare = require "flare"
  local x = flare.randn({8, 8}, {device = "sim:0"})
  local f = flare.compile(function(a) return ((a * 2 + 1):tanh() - a):softmax(-1) end%s)
  for _ = 1, 10 do f(x) end
  local s = flare.compile_stats(f)
  print(s.windows, s.planned, s.unready, s.failure)
]]

describe("plans whose kernels are being compiled", function()
  teardown(function() os.remove(path) end)

  it("are used when the kernels are there", function()
    local text = counts:format ""
    assert.equal("10\t9\t0\tnil\n", run(0, text))
    assert.equal("10\t8\t1\tnil\n", run(1, text))
    assert.equal("10\t4\t5\tnil\n", run(5, text))
    assert.equal("10\t0\t9\tnil\n", run(50, text))
  end)

  it("are waited for if the user wants it", function()
    assert.equal("10\t9\t0\tnil\n", run(50, counts:format "", "wait"))
    assert.equal("10\t9\t0\tnil\n", run(50, counts:format ", {wait = true}"))
    assert.equal("10\t9\t0\tnil\n", run(50, counts:format "", "check"))
    assert.equal("10\t10\t0\tnil\n", run(50, counts:format ", {memory = '1GiB'}"))
  end)

  it("are never used if a kernel cannot be compiled", function()
    assert.equal("10\t0\t5\tsim: fused cannot be compiled, as was wished\n",
      run(-5, counts:format ""))
  end)

  it("change no result, at whatever call they come", function()
    local expected = run(0, training)
    assert.matches("^[%d. ]+\n", expected)
    for _, asks in ipairs {1, 9, 40, 1000, -30} do
      assert.equal(expected, run(asks, training))
    end
  end)

  it("refuse another setting", function()
    assert.error_matches(function()
      flare.compile(function() end, {wait = 1})
    end, "compile: option 'wait' must be a boolean, got number")
  end)
end)
