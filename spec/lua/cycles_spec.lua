-- Cycles that neither reference counts nor Lua's collector free: refused, or reported once.
local core = require "flare.core"
local output = require "spec.support.script"

local function count(text, part)
  local _, n = text:gsub(part, "")
  return n
end

describe("a gradient with a graph", function()
  it("in its leaf is reported once, with the line and the cure", function()
    local text, path = output [[
local w = flare.ones(3, {requires_grad = true})
for _ = 1, 3 do
  (w ^ 3):sum():backward{create_graph = true}
end
w.grad = (w ^ 2):exp()
]]
    assert.equal(1, count(text, "flare: "), text)
    assert.truthy(text:find(path .. ":4: backward{create_graph = true} keeps the graph", 1, true),
                  text)
    assert.truthy(text:find("flare.grad(", 1, true) and text:find("zero_grad", 1, true), text)
  end)

  it("is reported where it is assigned", function()
    local text, path = output [[
local w = flare.ones(3, {requires_grad = true})
w.grad = w * 2
]]
    assert.truthy(text:find(path .. ":3: x.grad = ", 1, true), text)
  end)

  it("is not reported where there is no cycle", function()
    assert.equal("", (output [[
local w = flare.ones(3, {requires_grad = true})
local g = flare.grad((w ^ 3):sum(), {w}, {create_graph = true})
;(w * 2):sum():backward{create_graph = true}
w.grad = g:detach()
w.grad = nil
]]))
  end)
end)

describe("a cycle is refused", function()
  it("of gradients", function()
    local a, b, c = core.ones(2), core.ones(2), core.ones(2)
    assert.error_matches(function() a.grad = a end, "a tensor cannot be its own gradient")
    a.grad, b.grad = b, c
    assert.error_matches(function() c.grad = a end, "gradient's own gradient")
    a.grad = nil
    c.grad = a
  end)

  it("of a channel that is sent through itself", function()
    local c, d = core.channel(), core.channel()
    assert.error_matches(function() c:push(c) end, "a channel cannot be sent through itself")
    assert.error_matches(function() c:push{1, {reply = c}} end, "cannot be sent through itself")
    assert.is_true(c:push{reply = d})
    assert.is_true(d == c:pop().reply)
  end)
end)
