-- :reload and :watch: a module is changed while its objects live.
local Session = require "spec.support.session"

local before = [[
local flare = require "flare"
local class, nn = flare.class, flare.nn
local Net = class("Net", nn.Module)
local scale = 1
function Net:init(n) self.fc = nn.Linear(n, 1) self.calls = 0 end
function Net:forward(x) self.calls = self.calls + 1 return self.fc(x) * scale end
function Net:old() return "gone" end
local Child = class("Child", Net)
return {Net = Net, Child = Child, helper = function() return 1 end, limits = {low = 1}}
]]

local after = before:gsub("scale = 1", "scale = 3"):gsub("function Net:old.-\n", [[
function Net:added() return "new " .. self.calls end
]]):gsub("return 1 end", "return 2 end"):gsub("low = 1", "low = 5")

describe("a module that is read again", function()
  local s, folder
  local function write(name, text)
    local file <close> = assert(io.open(folder .. "/" .. name, "w"))
    file:write(text)
  end

  before_each(function()
    folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir " .. folder)
    write("net.lua", before)
    s = Session.open {columns = 120, rows = 60, setup = "cd " .. folder}
  end)
  after_each(function()
    if s then s:close() end
    os.execute("rm -r " .. folder)
  end)

  -- What the prompt prints for a line.
  local function ask(line)
    s:enter(line)
    return s:after("> " .. line)
  end

  it("gives live objects its new methods, and the optimizer keeps its state", function()
    if not s then return pending "there are no pseudo-terminals" end
    s:paste [[
local N = require "net"
flare.manual_seed(1)
m, child, x = N.Net(2), N.Child(2), flare.ones(4, 2)
opt = optim.Adam(m, {lr = 0.1})
function train() opt:zero_grad() m(x):sum():backward() opt:step() end
train() train()
y, w = m(x):clone(), m.fc.weight]]
    s:enter ""
    write("net.lua", after)
    assert.equal("reloaded net", ask ":reload net")
    assert.equal("true", ask "flare.allclose(m(x), y * 3):item()")
    assert.equal("new 4", ask "m:added()")
    assert.equal("new 0", ask "child:added()")
    assert.equal("nil", ask "rawget(N.Net, 'old')")
    assert.equal("true", ask "m.fc.weight == w and getmetatable(m) == N.Net")
    assert.equal("true", ask "require 'net' == N and N.Child.parent == N.Net")
    assert.equal("2\n5", ask "N.helper(), N.limits.low")
    assert.equal("true", ask "flare.class.is(N.Child(2), N.Net)")
  end)

  it("trains on as if nothing had happened", function()
    if not s then return pending "there are no pseudo-terminals" end
    local function weights(reload)
      write("net.lua", before)
      local one = Session.open {columns = 120, rows = 60, setup = "cd " .. folder}
      one:paste [[
N = require "net"
flare.manual_seed(1)
m, x = N.Net(2), flare.randn(4, 2)
opt = optim.Adam(m, {lr = 0.1})
function train() opt:zero_grad() m(x):pow(2):sum():backward() opt:step() end
for _ = 1, 5 do train() end]]
      one:enter ""
      if reload then
        write("net.lua", (before:gsub("gone", "here")))
        one:enter ":reload net"
        one:enter "m:old()"
        assert.equal("here", one:after "> m:old()")
      end
      one:enter "for _ = 1, 5 do train() end"
      local line = "('%a %a'):format(table.unpack(m.fc.weight:view(2):tolist()))"
      one:enter(line)
      local out = one:after("> " .. line)
      one:close()
      return out
    end
    local plain = weights(false)
    assert.match("^%-?0x%x.* %-?0x%x", plain)
    assert.equal(plain, weights(true))
  end)

  it("stays as it was where the new text fails", function()
    if not s then return pending "there are no pseudo-terminals" end
    s:enter "N = require 'net'; m = N.Net(2)"
    write("net.lua", "local x = = 1")
    assert.match("net.lua:1: unexpected symbol", ask ":reload net")
    write("net.lua", "local t = nil; return t.x")
    assert.match("net.lua:1: attempt to index a nil value", ask ":reload net")
    assert.equal("gone", ask "m:old()")
    assert.equal("true", ask "require 'net' == N")
    assert.match("no module nett was loaded.*do you mean net?", ask ":reload nett")
  end)

  it("is read before the next line once it is watched", function()
    if not s then return pending "there are no pseudo-terminals" end
    s:enter "N = require 'net'; m = N.Net(2)"
    assert.equal("watching ./net.lua", ask ":watch net.lua")
    assert.equal("1", ask "N.helper()")
    write("net.lua", after)
    assert.equal("reloaded net\n2", ask "N.helper() --")
    assert.equal("2", ask "N.helper() -- again")
  end)

  it("may be a function", function()
    if not s then return pending "there are no pseudo-terminals" end
    write("f.lua", "return function() return 'first' end")
    s:enter "f = require 'f'; local g = f"
    write("f.lua", "return function() return 'second' end")
    assert.equal("reloaded f", ask ":reload f.lua")
    assert.equal("second\nsecond", ask "f(), g()")
  end)
end)
