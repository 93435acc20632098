-- The line and the module that errors, the tape, memory, profiles and late failures name are the
-- user's, also where modules return `self.fc(x)`, a tail call, as the docs do.
local flare = require "flare"
local core = flare.core
local nn = flare.nn

local text = [[
local flare = require "flare"
local nn = flare.nn
local A = flare.class("A", nn.Module)
function A:init(...) self.fc = nn.Linear(...) self.table = nn.Embedding(10, 4) end
function A:forward(x, how)
  if how == "look" then
    return self.table(x)
  end
  if how == "two" then return self.fc(x), x end
  -- in a comment: return self.fc2(x)
  local y = x
  return self.fc(y)
end
local B = flare.class("B", nn.Module)
function B:init(...) self.a = A(...) end
function B:forward(...) return self.a(...) end
local C = flare.class("C", nn.Module)
function C:init(...) self.list = {B(...), B(...)} end
function C:forward(...)
  return self.list[2](...)
end
local D = flare.class("D", nn.Module)
function D:init(...) self.c = C(...) end
function D:forward(x)
  local y = self.c(x)
  return y
end
return {A = A, B = B, C = C, D = D}
]]

describe("the user's line", function()
  local path = os.tmpname()
  local net
  setup(function()
    local file <close> = assert(io.open(path, "w"))
    file:write(text)
    file:close()
    net = dofile(path)
  end)
  teardown(function() os.remove(path) end)

  local function line(n) return path .. ":" .. n end
  local function fails(f, ...)
    local ok, message = pcall(f, ...)
    assert.is_false(ok)
    return message
  end
  local function starts(expected, got)
    assert.are.equal(expected, got:sub(1, #expected))
  end

  it("and the module's path stand in errors", function()
    for class, at in pairs{A = "A.fc", B = "B.a.fc", C = "C.list.2.a.fc", D = "D.c.list.2.a.fc"} do
      local message = fails(net[class](3, 4), flare.ones(2, 5))
      starts(line(12), message)
      assert.matches("%(in " .. at:gsub("%.", "%%.") .. "%)$", message)
    end
  end)

  it("is that of the return, also where there are several", function()
    starts(line(12), fails(net.A(3, 4), flare.ones(2, 5)))
    starts(line(7), fails(net.A(3, 4), flare.full({2}, 99, {dtype = "i64"}), "look"))
    local Branches = flare.class("Branches", nn.Module)
    function Branches:init() self.fc = nn.Linear(3, 4) end
    function Branches:forward(x)
      if x:dim() == 1 then
        return self.fc(x)
      end
      return self.fc(x)
    end
    local second = debug.getinfo(1, "l").currentline - 2
    for n, shape in pairs{[second - 2] = {5}, [second] = {2, 5}} do
      local message = fails(Branches(), flare.ones(shape))
      starts("spec/site_spec.lua:" .. n .. ":", message)
      assert.matches("%(in Branches%.fc%)$", message)
    end
  end)

  it("is that of a tail call behind pcall, xpcall, a coroutine and a metamethod", function()
    local layer, x = nn.Linear(3, 4), flare.ones(2, 5)
    local function tail()
      local y = x
      return layer(y)
    end
    local here = "spec/site_spec.lua:" .. debug.getinfo(1, "l").currentline - 2 .. ":"
    local _, thrown = xpcall(tail, function(message) return message end)
    starts(here, thrown)
    starts(here, fails(tail))
    starts(here, fails(coroutine.wrap(tail)))
    starts(here, select(2, coroutine.resume(coroutine.create(tail))))
    starts(here, fails(function() return setmetatable({}, {__index = tail}).x end))
    starts(here, fails(table.sort, {1, 2}, tail))
  end)

  it("is that of `return object:method(...)`, whatever the class", function()
    local calls = {
      function() return flare.metrics.Accuracy():update(3) end,
      function() return flare.data.Tensors(flare.ones(3)):fetch "x" end,
      function() return flare.optim.LBFGS(flare.nn.Linear(2, 2)):step() end,
      function() return flare.optim.EMA(flare.nn.Linear(2, 2)):load_state_dict(3) end,
      function() return flare.data.transforms.Normalize({1}, {1}) "x" end,
      function() return flare.distributions.Normal(0, 1):log_prob "x" end,
      function() return flare.io.Checkpoint(os.tmpname()):save "x" end,
      function() return flare.nn.Linear(2, 2):register_forward_hook(3) end,
    }
    for _, f in ipairs(calls) do
      local _, message = pcall(f)
      starts(("spec/site_spec.lua:%d:"):format(debug.getinfo(f, "S").linedefined), message)
    end
  end)

  it("is that of the resume where a coroutine has left its own", function()
    local fail = require "flare.fail" -- a Lua function of the library
    local co = coroutine.create(function() return fail "wrong" end)
    local _, message = coroutine.resume(co)
    starts("spec/site_spec.lua:" .. debug.getinfo(1, "l").currentline - 1 .. ":", message)
  end)

  it("has a hint where modules are nested too deep", function()
    local Deep = flare.class("Deep", nn.Module)
    function Deep:forward(n) return n > 0 and self(n - 1) or n end
    assert.are.equal(0, Deep()(150))
    local message = core.hint(fails(Deep(), 300))
    assert.matches("C stack overflow %(modules can call each other about 190 deep%)", message)
  end)

  it("leaves forward free to yield, with and without hooks and a profile", function()
    local Waits = flare.class("Waits", nn.Module)
    function Waits:forward(x) return coroutine.yield(x), 2, nil end
    local module = Waits()
    local function run(x) return select("#", module(x)), (module(x)) end
    local function check()
      local resume = coroutine.wrap(run)
      assert.are.equal(5, resume(5))
      assert.are.equal(5, resume(6))
      assert.are.same({3, 7}, {resume(7)})
    end
    check()
    module:register_forward_hook(function() end)
    check()
    local stop = flare.profile.start()
    check()
    stop()
  end)

  it("is the caller's where there is no module around", function()
    local model = nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 6))
    local here = debug.getinfo(1, "l").currentline + 1
    local message = fails(function() local y = model(flare.ones(2, 3)) return y end)
    assert.matches("site_spec%.lua:" .. here .. ":", message)
    assert.matches("%(in Sequential%.2%)$", message)
  end)

  it("is that of `return Class(...)`", function()
    local here = debug.getinfo(1, "l").currentline
    for k, make in ipairs{
      function() return nn.Linear(2) end,
      function() return flare.optim.Adam({}) end,
      function() return net.A(0, 2) end,
    } do
      local starts_with = k < 3 and "spec/site_spec.lua:" .. here + 1 + k or line(4)
      starts(starts_with, fails(make))
      starts(starts_with, select(2, coroutine.resume(coroutine.create(make))))
    end
    local class = flare.class "Waits"
    function class:init() self.got = coroutine.yield() end
    local make = coroutine.wrap(function() return class() end)
    make()
    assert.are.equal(3, make(3).got)
  end)

  it("comes with hooks and with a profile, and all results do", function()
    local model = net.B(3, 4)
    model.a:register_forward_hook(function() end)
    assert.matches("%(in B%.a%.fc%)$", fails(model, flare.ones(2, 5)))
    local y, x, more = net.A(3, 4)(flare.ones(2, 3), "two")
    assert.are.same({2, 4}, {table.unpack(y.shape)})
    assert.are.same({2, 3}, {table.unpack(x.shape)})
    assert.is_nil(more)
    assert.are.equal(2, select("#", net.A(3, 4)(flare.ones(2, 3), "two")))
  end)

  it("stands in launches", function()
    local model = net.D(3, 4)
    local _ = model(flare.ones(2, 3))
    assert.matches("linear " .. line(12):gsub("%p", "%%%0"), core.launches(1))
  end)

  it("stands on the tape", function()
    local y = net.C(3, 4)(flare.ones(2, 3)):sum()
    y:backward()
    local message = fails(y.backward, y)
    assert.not_matches("<flare>", message)
    local twice = net.B(3, 4)(flare.ones(2, 3))
    twice:sum():backward()
    assert.matches(line(12):gsub("%p", "%%%0"), fails(function() twice:sum():backward() end))
  end)

  it("is in errors about tensors that were changed in place", function()
    local model = net.B(3, 4)
    local x = flare.ones(2, 3)
    local y = model(x)
    x:add_(1)
    local message = fails(function() y:sum():backward() end)
    assert.matches(line(12):gsub("%p", "%%%0"), message)
    assert.not_matches("nn/linear", message)
  end)

  it("stands at what holds memory", function()
    local model = net.D(3, 50000)
    local y = model(flare.ones(50, 3))
    assert.matches(line(12):gsub("%p", "%%%0"), core.memory.holders(5))
    assert.is_true(#y > 0)
  end)

  it("stands in anomaly's message", function()
    local model = net.C(3, 4)
    local x = flare.full({2, 3}, 3e38)
    flare.anomaly(true)
    model.list[2].a.fc.weight = flare.full({4, 3}, 3e38, {requires_grad = true})
    model.list[2].a.fc.bias = flare.full({4}, -math.huge, {requires_grad = true})
    local message = fails(model, x)
    flare.anomaly(false)
    assert.matches("%(in C%.list%.2%.a%.fc%)", message)
    assert.matches(line(12):gsub("%p", "%%%0"), message)
  end)

  it("stands in profiles", function()
    local model = net.C(3, 4)
    local stop = flare.profile.start()
    local _ = model(flare.ones(2, 3))
    local report = stop()
    local found
    for i = 1, report.count do
      local row = report:row(i)
      assert.are_not.equal("?", row.line)
      found = found or row.op == "linear" and row
    end
    assert.are.equal(line(12), found.line)
    assert.are.equal("C.list.2.a.fc", found.module)
  end)

  it("stands in what a device says late", function()
    local model = net.A(3, 4):to "sim:0"
    local at = flare.full({2}, 99, {dtype = "i64", device = "sim:0"})
    local message = fails(function()
      local y = model(at, "look")
      return y:totable()
    end)
    assert.matches(line(7):gsub("%p", "%%%0"), message)
    assert.not_matches("embedding%.lua", message)
  end)

  it("comes without the module that happens to run when a device says it", function()
    local first, second = nn.Embedding(10, 4):to "sim:0", nn.Linear(4, 4):to "sim:0"
    local at = flare.full({2}, 99, {dtype = "i64", device = "sim:0"})
    local message = fails(function()
      local y = first(at)
      for _ = 1, 1000 do second(y) end
      return y:totable()
    end)
    assert.matches("launched at ", message)
    assert.not_matches(" %(in ", message)
  end)
end)

describe("the table of call sites", function()
  it("keeps names apart, and ends with one that says nothing", function()
    for i = 1, 3000 do
      load("return require('flare').zeros(1)", "=site" .. i)()
    end
    assert.matches("site3000:1", core.launches(1))
    load("return require('flare').zeros(1)", "=site1")()
    assert.matches("site1:1", core.launches(1))
  end)
end)
