-- The graph behind a tensor as a picture.
local flare = require "flare"
local tree = require "spec.support.tree"

local nn = flare.nn

local function model_and_loss()
  local net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
  local h = net(flare.randn(3, 4))
  return net, (h * h + h:exp()):sum()
end

local function count(text, part) return select(2, text:gsub(part, "")) end

-- The boxes of a picture as {x, y, width, height}.
local function boxes(svg)
  local list = {}
  for x, y, width, height in svg:gmatch
    '<rect x="([%-%d.]+)" y="([%-%d.]+)" width="([%d.]+)" height="(%d+)"' do
    list[#list + 1] = {tonumber(x), tonumber(y), tonumber(width), tonumber(height)}
  end
  return list
end

describe("x:graph", function()
  it("writes DOT with an edge for each input, and the parameters by their names", function()
    local net, loss = model_and_loss()
    local text = loss:graph{as = "dot", model = net}
    assert.match("^digraph tape {\n.*}\n$", text)
    for name, parameter in net:named_parameters() do
      assert(text:find(('[label="%s %s"'):format(name, parameter.shape), 1, true), name)
    end
    assert.match('linear %(3, 8%)\\n[^"]*tape_spec.lua:%d+, saves %d"', text)
    -- sum 1, add 2, mul 2, exp 1, tanh 1, and two products with weight and bias: 2 and 3
    assert.equal(12, count(text, " %-> "))
    assert.equal(7 + 4, count(text, "%[label="))
  end)

  it("draws it, without boxes that overlap, inputs above what reads them", function()
    local net, loss = model_and_loss()
    local svg = loss:graph{as = "svg", model = net}
    local list = boxes(svg)
    assert.equal(11, #list)
    assert.equal(12, count(svg, "<path "))
    local width, height = svg:match 'width="(%d+)" height="(%d+)"'
    for i, a in ipairs(list) do
      assert(a[1] >= 0 and a[1] + a[3] <= tonumber(width) and a[2] + a[4] <= tonumber(height))
      for j = i + 1, #list do
        local b = list[j]
        assert(a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1] or a[2] + a[4] <= b[2]
               or b[2] + b[4] <= a[2], ("boxes %d and %d"):format(i, j))
      end
    end
    assert.match("3.weight %(2, 8%)", svg)
    -- every edge goes down
    for from, to in svg:gmatch '<path d="M[%-%d.]+ ([%d.]+) C[^"]* ([%d.]+)" fill' do
      assert(tonumber(from) < tonumber(to))
    end
  end)

  it("draws long graphs up to a number of operators, and leaves", function()
    local x = flare.ones(2, {requires_grad = true})
    local y = x
    for _ = 1, 300 do y = y * y + x end
    assert.equal(2 + 1 + 1, #boxes(y:graph{as = "svg", most = 2}))
    assert.equal(602 - 1, #boxes(y:graph{as = "svg", most = 1000}))
    assert.equal(1, #boxes(x:graph{as = "svg"}))
  end)

  it("writes a file by its extension, and says what it cannot", function()
    local _, loss = model_and_loss()
    local path = os.tmpname() .. ".svg"
    assert.is_true(loss:graph{path = path})
    assert.equal(loss:graph{as = "svg"}, tree.read(path))
    os.remove(path)
    assert.equal(loss:graph(), loss:graph{})
    local _, problem = pcall(loss.graph, loss, {as = "png"})
    assert.match('graph: as is "text", "dot" or "svg", not "png"', problem)
    assert.is_nil(loss:graph{path = "/nowhere/x.svg"})
  end)
end)
