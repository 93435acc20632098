-- The search for tensors that two streams use without order: twenty programs that forget a
-- wait, found, and the same ones with it, which pass.
local flare = require "flare"
local fails = require "spec.support.expect".fails
local device = "sim:0"
local first = flare.current_stream(device)

local function line() return debug.getinfo(2, "l").currentline end

local function ones(...) return flare.ones({...}, {device = device}) end

-- Programs on two streams: `race` says whether something is missing. Each gets two tensors
-- that the first stream has made and that both may use, and gives the lines that clash.
local programs = {
  {"reads what another writes", function(s, t, x, y, race)
    local z = s:run(function() return x * 2 end)
    if not race then t:wait(s) end
    t:run(function() return z + y end)
  end},
  {"writes what another reads", function(s, t, x, y, race)
    s:run(function() return x + y end)
    if not race then t:wait(s) end
    t:run(function() x:mul_(2) end)
  end},
  {"writes what another writes", function(s, t, x, _, race)
    s:run(function() x:add_(1) end)
    if not race then t:wait(s) end
    t:run(function() x:add_(1) end)
  end},
  {"is the first stream, reading", function(s, _, x, _, race)
    local z = s:run(function() return x * 2 end)
    if not race then first:wait(s) end
    return z + 1
  end},
  {"waits for the wrong one", function(s, t, x, _, race)
    local z = s:run(function() return x * 2 end)
    t:wait(race and first or s)
    t:run(function() return z + 1 end)
  end},
  {"waits for an event recorded too early", function(s, t, x, _, race)
    local e = s:record()
    local z = s:run(function() return x * 2 end)
    if not race then e:record(s) end
    e:wait(t)
    t:run(function() return z + 1 end)
  end},
  {"lets the other way wait", function(s, t, x, _, race)
    local z = s:run(function() return x * 2 end)
    if race then s:wait(t) else t:wait(s) end
    t:run(function() return z + 1 end)
  end},
  {"overwrites a buffer that is being read", function(s, t, x, y, race)
    t:run(function() return x:sum() end)
    local read = t:record()
    if not race then s:wait(read) end
    s:run(function() x:copy_(y) end)
  end},
  {"reads a view of what another writes", function(s, t, x, _, race)
    s:run(function() x[{{1, 4}}]:zero_() end)
    if not race then t:wait(s) end
    t:run(function() return x[{{2, 3}}]:sum() end)
  end},
  {"reads values on the host's road", function(s, _, x, _, race)
    local z = s:run(function() return x * 2 end)
    if not race then first:wait(s) end
    z:sum():item()
  end},
  {"copies out on another stream", function(s, t, x, _, race)
    local z = s:run(function() return x * 2 end)
    if not race then t:wait(s) end
    z:to("cpu", {stream = t, async = true})
  end},
  {"reads what is still being copied in", function(s, t, x, _, race)
    local z = flare.ones(8):pin_memory():to(device, {stream = s, async = true})
    if not race then t:wait(s) end
    t:run(function() return z + x end)
  end},
  {"reads on the host what is still being copied out", function(s, _, x, _, race)
    s:run(function() x:add_(1) end)
    local z = x:to("cpu", {stream = s, async = true})
    if not race then s:synchronize() end
    z:totable()
  end},
  {"synchronizes another stream", function(s, t, x, _, race)
    local z = s:run(function() return x * 2 end);
    (race and t or s):synchronize()
    t:run(function() return z + 1 end)
  end},
  {"goes by an event's query", function(s, t, x, _, race)
    local z = s:run(function() return x * 2 end)
    local e = s:record()
    if not race then while not e:query() do end end
    t:run(function() return z + 1 end)
  end},
  {"hands a tensor on in a chain with a hole", function(s, t, x, _, race)
    local z = s:run(function() return x * 2 end)
    if not race then first:wait(s) end
    t:wait(first)
    t:run(function() return z + 1 end)
  end},
  {"accumulates on two streams", function(s, t, x, y, race)
    for k = 1, 4 do
      local on = k % 2 == 0 and s or t
      if not race then on:wait(k % 2 == 0 and t or s) end
      on:run(function() x:add_(y) end)
    end
  end},
  {"multiplies into a result in use", function(s, t, x, y, race)
    local a, b = x:reshape(2, 4), y:reshape(4, 2)
    local c = s:run(function() return a:matmul(b) end)
    if not race then t:wait(s) end
    t:run(function() c:exp_() end)
  end},
  {"steps while gradients are made", function(s, t, x, y, race)
    local w = x:detach():clone():requires_grad_()
    s:wait(first)
    t:wait(first)
    s:run(function() (w * y):sum():backward() end)
    if not race then t:wait(s) end
    t:run(function() flare.optim.SGD({w}, {lr = 0.1}):step() end)
  end},
  {"fills for the next round too soon", function(s, t, x, y, race)
    for round = 1, 3 do
      if round > 1 and not race then s:wait(t) end
      s:run(function() x:copy_(y) end)
      t:wait(s)
      t:run(function() return x:sum() end)
    end
  end},
}

describe("debug_streams", function()
  local was
  setup(function() was = flare.debug_streams(true) end)
  teardown(function() flare.debug_streams(was) end)
  after_each(function() flare.synchronize(device) end)

  local function run(program, race)
    local s, t = flare.stream(device), flare.stream(device)
    local x, y = ones(8), ones(8)
    s:wait(first)
    t:wait(first)
    program(s, t, x, y, race)
  end

  for _, p in ipairs(programs) do
    it("finds a program that " .. p[1], function()
      local err = fails("without order", run, p[2], true)
      local _, lines = err:gsub("races_spec.lua:%d+", "")
      assert.is_true(lines >= 2, err)
    end)
    it("lets one pass that does not: " .. p[1], function() run(p[2], false) end)
  end

  it("names both lines", function()
    local s = flare.stream(device)
    local x = ones(4)
    s:wait(first)
    local wrote
    s:run(function() x:add_(1) end) wrote = line()
    local ok, err = pcall(function() return x * 2 end)
    local read = line() - 1
    assert.is_false(ok)
    assert.match(("mul on stream 0 of sim:0 %%(.-:%d%%) reads a tensor that add on stream " ..
      "%%d+ of sim:0 %%(.-:%d%%) writes, without order"):format(read, wrote), err)
  end)

  it("lets two streams write two halves", function()
    local s, t = flare.stream(device), flare.stream(device)
    local x = ones(8)
    s:wait(first)
    t:wait(first)
    s:run(function() x[{{1, 4}}]:mul_(2) end)
    t:run(function() x[{{5, 8}}]:mul_(3) end)
    first:wait(s)
    first:wait(t)
    assert.equal(20, x:sum():item())
  end)

  it("forgets closed tensors", function()
    local s = flare.stream(device)
    for _ = 1, 200 do
      local x = ones(64)
      s:wait(first)
      local y = s:run(function() return x + 1 end)
      x:close()
      y:close()
    end
  end)

  it("is off by default, and costs nothing then", function()
    flare.debug_streams(false)
    run(programs[1][2], true)
    assert.is_false(flare.debug_streams(true))
  end)
end)
