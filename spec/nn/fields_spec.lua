-- Assignment to the fields of modules, and the order of their names.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
local message = require "spec.support.expect".message

local function names(iterator)
  local list = {}
  for name in iterator do list[#list + 1] = name end
  return table.concat(list, " ")
end

local function set(module, key, value)
  return message(function() module[key] = value end)
end

describe("assignments", function()
  it("in plain tables, and of such tables, lose no parameters", function()
    local Net = flare.class("Net", nn.Module)
    function Net:init(walked)
      self.list = {nn.Linear(2, 2), {deep = nn.Linear(2, 2)}}
      self.scales = {self:param(flare.ones(2)), self:param(flare.ones(2))}
      if walked then
        self.later = {}
        self.later.a = nn.Linear(2, 2)
        self:parameters()
      end
    end
    for _, walked in ipairs{false, true} do
      local cases = {
        {function(net) net.list[1] = flare.ones(2) end, "'list.1' was a module and holds a plain"},
        {function(net) net.list[2].deep = 3 end, "'list.2.deep' was a module and holds a number"},
        {function(net) net.list[2] = flare.ones(1) end, "'list.2' was a list and holds a plain"},
        {function(net) net.scales = flare.ones(2) end, "'scales' was a list and holds a plain"},
        {function(net) net.scales[2] = flare.ones(2) end, "'scales.2' was a parameter and holds"},
        walked and {function(net) net.later.a = flare.ones(2) end, "'later.a' was a module"} or nil,
      }
      for _, case in ipairs(cases) do
        local net = Net(walked)
        case[1](net)
        assert.error_matches(function() net:parameters() end, case[2], 1, true)
      end
      local net = Net(walked)
      local before = #net:parameters()
      net.list[1], net.list[2].deep, net.scales = nil, nn.ReLU(), {net:param(flare.ones(1))}
      assert.equal(before - 2 - 2 - 1, #net:parameters())
      net.list[2], net.scales = nil, function() end
      assert.equal(before - 6, #net:parameters())
    end
  end)

  it("to a weight that is computed are an error in the next forward", function()
    for _, wrap in ipairs{nn.weight_norm, nn.spectral_norm} do
      local layer, x = wrap(nn.Linear(3, 3)), flare.ones(2, 3)
      local clone = layer:clone()
      for _ = 1, 2 do layer(x) clone(x) end
      layer.weight = flare.ones(3, 3)
      assert.error_matches(function() layer(x) end, "_norm: 'weight' is computed from")
      clone(x)
    end
  end)
end)

describe("a field with the name of a method", function()
  local says = "Net: the %s '%s' would hide the method Net:%s; give it another name, such as '%s'"

  it("is refused for buffers, parameters, tensors, modules and lists", function()
    local Net = flare.class("Net", nn.Module)
    local net = Net()
    function Net.helper() end
    local cases = {
      count = {"buffer", net:buffer(flare.ones(2))}, to = {"parameter", net:param(flare.ones(2))},
      train = {"module", nn.ReLU()}, modules = {"list", {nn.ReLU()}},
      helper = {"tensor", flare.ones(2)},
    }
    for name, case in pairs(cases) do
      local what, value = table.unpack(case)
      assert.is_truthy(set(net, name, value):find(
        says:format(what, name, name, name .. "_" .. what), 1, true), set(net, name, value))
    end
    assert.equal(0, net:count())
    net.number = net:buffer(flare.ones(2))
    net.number = net:buffer(flare.ones(3))
    assert.equal(3, net.number:numel())
  end)

  it("is refused where the class is a list, or has buffers already", function()
    local Net = flare.class("Net", nn.ModuleList)
    local net = Net()
    net.mean = net:buffer(flare.ones(2))
    assert.is_truthy(set(net, "append", net:buffer(flare.ones(2))):find(
      says:format("buffer", "append", "append", "append_buffer"), 1, true))
  end)

  it("may be a function or what can be called", function()
    local net = nn.Module()
    net.forward = function(_, x) return x + 1 end
    assert.equal(2, net(flare.ones(1)):item())
    net.describe = setmetatable({}, {__call = function() return "words" end})
    assert.equal("words", net:describe())
  end)
end)

local Net = flare.class("Net", nn.Module)
function Net:init()
  self.stem = nn.Linear(2, 3)
  self.blocks = {nn.Linear(3, 3), nn.ReLU()}
  self.head = nn.Linear(3, 1, {bias = false})
  self.scale = self:param(flare.ones(1))
  self.steps = self:buffer(flare.zeros(1))
  self.gains = {self:param(flare.ones(1)), self:param(flare.ones(1)),
                seen = self:buffer(flare.zeros(1))}
  self.width = 3
end
function Net:forward(x)
  x = self.stem(x)
  x = self.blocks[2](self.blocks[1](x))
  return self.head(x) * self.scale * self.gains[1] * self.gains[2]
end

describe("assignment to a parameter's name", function()
  it("is an error for values that are not parameters, and changes nothing", function()
    for class, layer in pairs {Linear = nn.Linear(4, 4), LayerNorm = nn.LayerNorm(4),
                               Conv2d = nn.Conv2d(4, 4, 3), Embedding = nn.Embedding(4, 4),
                               LSTMCell = nn.LSTMCell(4, 4)} do
      local before = #layer:parameters()
      for name, p in layer:named_parameters() do
        for what, value in pairs {["a plain tensor"] = p:detach() + 1, ["a number"] = 3,
                                  ["a string"] = "x", ["a table"] = {}, ["a boolean"] = false} do
          local text = set(layer, name, value)
          assert.match(("%s: '%s' is a parameter, %s cannot"):format(class, name, what), text)
          assert.match(":copy_%(tensor%) inside flare.no_grad", text)
          assert.match("layer:param%(tensor%)", text)
        end
        assert.equal(p, layer[name])
      end
      assert.equal(before, #layer:parameters())
    end
  end)

  it("names the user's line", function()
    local layer = nn.Linear(2, 2)
    assert.match("^%S*fields_spec.lua:%d+: Linear:", set(layer, "weight", flare.ones(2, 2)))
  end)

  it("takes a parameter: learned, saved, moved in the place of the old one", function()
    local layer = nn.Linear(2, 2)
    layer.weight = layer:param(flare.ones(2, 2))
    layer.bias = flare.zeros(2, {requires_grad = true})
    assert.equal("weight bias", names(layer:named_parameters()))
    assert.is_true(layer:state_dict().weight:eq(1):all():item())
    layer(flare.ones(1, 2)):sum():backward()
    assert.is_true(layer.weight.grad:eq(1):all():item())
    layer:to "f64"
    assert.equal("f64", layer.weight.dtype)
    assert.match("is a parameter", set(layer, "weight", flare.ones(2, 2)))
    layer:load_state_dict(nn.Linear(2, 2):state_dict())
  end)

  it("with nil removes it", function()
    local layer = nn.Linear(2, 2)
    layer.bias = nil
    assert.is_nil(layer.bias)
    assert.equal("weight", names(layer:named_parameters()))
    assert.match("not in the module: bias", message(layer.load_state_dict, layer,
                                                    nn.Linear(2, 2):state_dict()))
    assert.equal("(1, 2)", tostring(layer(flare.ones(1, 2)).shape))
    layer.bias = flare.ones(2) -- a constant now
    assert.equal("weight", names(layer:named_parameters()))
    assert.is_true(layer(flare.zeros(1, 2)):eq(1):all():item())
    layer.bias = layer:param(flare.ones(2))
    assert.equal("weight bias", names(layer:named_parameters()))
    assert.match("is a parameter", set(layer, "bias", flare.ones(2)))
  end)

  it("holds after clone, to, freeze, load_state_dict, training and hooks", function()
    local a = nn.Linear(2, 2)
    a:freeze():freeze(false)
    a:load_state_dict(a:state_dict())
    a:register_forward_hook(function() end):remove()
    for _, layer in ipairs {a, a:clone(), a:clone():to "f64", a:freeze(), a:clone()} do
      assert.match("is a parameter", set(layer, "weight", flare.ones(2, 2)))
      assert.equal(2, #layer:parameters())
    end
    a.weight:requires_grad_(true)
    a.weight:requires_grad_(false) -- by hand
    assert.equal("weight bias", names(a:named_parameters()))
  end)

  it("is seen for a field that became a parameter after it was assigned", function()
    local Late = flare.class("Late", nn.Module)
    function Late:init()
      self.w = flare.ones(2)
      self.w:requires_grad_(true)
    end
    local late = Late()
    assert.equal("w", names(late:named_parameters()))
    assert.match("is a parameter", set(late, "w", flare.ones(2)))
  end)

  it("ties weights, which stay one", function()
    local a, b = nn.Linear(2, 2, {bias = false}), nn.Linear(2, 2, {bias = false})
    local tied = nn.Sequential(a, b)
    b.weight = a.weight
    assert.equal(1, #tied:parameters())
    assert.is_truthy(tied:state_dict()["2.weight"])
    local copy = tied:clone()
    assert.equal(1, #copy:parameters())
    assert.equal(copy[1].weight, copy[2].weight)
    assert.is_true(copy[1].weight ~= a.weight)
    tied:to "f64"
    assert.equal(tied[1].weight, tied[2].weight)
    local opt = optim.SGD(tied)
    assert.equal(1, #opt.groups[1].params)
  end)

  it("is open to parametrizations, whose parts are parameters", function()
    local layer = nn.weight_norm(nn.Linear(3, 2))
    assert.equal("bias weight_g weight_v", names(layer:named_parameters()))
    assert.match("is a parameter", set(layer, "weight_g", flare.ones(2, 1)))
    layer(flare.ones(1, 3))
    layer(flare.ones(1, 3))
    nn.remove_parametrization(layer)
    assert.equal("weight bias", names(layer:named_parameters()))
    assert.match("is a parameter", set(layer, "weight", flare.ones(2, 3)))
    nn.prune(layer, 0.5)
    layer(flare.ones(1, 3))
    assert.match("is a buffer, a number", set(layer, "weight_mask", 1))
  end)
end)

describe("assignment to a buffer's name", function()
  it("takes any tensor as the buffer, and nothing else", function()
    local net = Net()
    net.steps = net.steps + 1
    assert.equal("steps gains.seen", names(net:named_buffers()))
    assert.equal(1, net:state_dict().steps:item())
    assert.match("'steps' is a buffer, a number", set(net, "steps", 1))
    assert.equal("f64", net:to("f64").steps.dtype)
    net.steps = nil
    assert.equal("gains.seen", names(net:named_buffers()))
  end)
end)

describe("assignment inside plain tables", function()
  it("keeps what parameters() has seen there", function()
    local net = Net()
    assert.equal(1 + 2 + 2 + 2 + 1 + 1 - 1, #net:parameters())
    net.gains[1] = flare.ones(1)
    assert.match("'gains.1' was a parameter and holds a plain tensor now",
                 message(net.parameters, net))
    net.gains[1] = net:param(flare.ones(1))
    net.gains.seen = flare.ones(1)
    assert.equal(8, #net:parameters())
    assert.equal(1, net:state_dict()["gains.seen"]:item())
    net.gains[2] = nil
    assert.equal(7, #net:parameters())
  end)

  it("replaces modules, also of lists", function()
    local net = Net()
    net.blocks[1] = nn.Linear(3, 3, {bias = false})
    net.blocks[2] = nil
    net.head = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    assert.equal("stem.weight stem.bias blocks.1.weight head.1.weight head.1.bias head.2.weight "
      .. "head.2.bias scale gains.1 gains.2", names(net:named_parameters()))
    local list = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    list[1] = nn.Tanh()
    list[2] = nil
    assert.equal("Sequential(\n  (1): Tanh()\n)", tostring(list))
    net.head = nil
    assert.is_nil(tostring(net):find "head")
  end)
end)

describe("assignment to a module's name", function()
  local function lists(net) return message(net.parameters, net) end

  it("of what has no parameters is an error for all that lists them", function()
    for what, value in pairs {["plain tensor"] = flare.ones(1, 3), number = 3, string = "x",
                              boolean = true} do
      local net = Net()
      net.head = value
      local says = ("Net: 'head' was a module and holds a %s now"):format(what)
      for _, method in ipairs {"parameters", "state_dict", "modules", "zero_grad"} do
        assert.match(says, message(net[method], net))
      end
      assert.match(says, message(optim.SGD, net, {lr = 1}))
      assert.match(says, lists(nn.Sequential(net)))
      assert.match(says, lists(net:clone()))
    end
    local list = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    list[1] = flare.ones(1, 1)
    assert.match("Sequential: '1' was a module and holds a plain tensor now", lists(list))
    local dict = nn.ModuleDict {a = nn.Linear(1, 1)}
    dict.a = flare.ones(1)
    assert.match("ModuleDict: 'a' was a module", lists(dict))
  end)

  it("takes a parameter, and nil, false and functions that remove it", function()
    local net = Net()
    net.head = net:param(flare.ones(1, 3))
    assert.match("head", names(net:named_parameters()))
    assert.equal(3, net.head.shape[2])
    for _, value in ipairs {false, function(x) return x end} do
      local other = Net()
      other.head = value
      assert.is_nil(names(other:named_parameters()):find "head")
    end
    net = Net()
    net.head = nil
    net.head = flare.ones(1, 3) -- a constant now
    assert.is_nil(names(net:named_parameters()):find "head")
  end)
end)

describe("the order of names", function()
  it("is that of assignment for all that lists them", function()
    local net = Net()
    assert.equal("stem.weight stem.bias blocks.1.weight blocks.1.bias head.weight scale gains.1 "
      .. "gains.2", names(net:named_parameters()))
    assert.equal(" stem blocks.1 blocks.2 head", names(net:named_modules()))
    assert.equal([[
Net(
  (stem): Linear(2 -> 3)
  (blocks.1): Linear(3 -> 3)
  (blocks.2): ReLU()
  (head): Linear(3 -> 1, bias=false)
)]], tostring(net))
    local at = 0
    for _, name in ipairs {"stem", "blocks.1", "blocks.2", "head", "(whole)"} do
      local here = net:summary({4, 2}):find("\n" .. name, 1, true)
      assert.is_true(here > at)
      at = here
    end
    assert.equal(names(net:named_parameters()), names(net:clone():named_parameters()))
    net.stem = nn.Linear(2, 3) -- keeps its place
    assert.match("^stem.weight", names(net:named_parameters()))
    assert.equal(names(net:named_parameters()), names(net:to("f64"):named_parameters()))
  end)

  it("holds for classes that derive from others and from Sequential", function()
    local Wide = flare.class("Wide", Net)
    function Wide:init()
      self.after = nn.ReLU()
      Net.init(self)
      self.again = nn.ReLU()
    end
    assert.match("^ after stem .* head again$", names(Wide():named_modules()))
    local Scaled = flare.class("Scaled", nn.Sequential)
    function Scaled:init(...)
      nn.Sequential.init(self, ...)
      self.zeta, self.alpha = self:param(flare.ones(1)), self:param(flare.ones(1))
    end
    local scaled = Scaled(nn.Linear(1, 1))
    assert.equal("1.weight 1.bias zeta alpha", names(scaled:named_parameters()))
    assert.equal(scaled[1], scaled[-1])
    assert.equal(Scaled, getmetatable(scaled))
    assert.is_true(flare.class.is(scaled, nn.Module))
    assert.is_nil(scaled.none)
  end)

  it("is that of the text where one statement assigns several", function()
    local Many = flare.class("Many", nn.Module)
    function Many:init()
      self.up, self.act, self.down = nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)
      self.zeta, self.alpha = self:param(flare.ones(1)), self:param(flare.ones(1))
      for i = 1, 3 do self["l" .. i] = nn.ReLU() end
      for _, name in ipairs {"b", "a"} do self[name] = self:param(flare.ones(1)) end
      local made = {nn.Tanh(), nn.Tanh()}
      for i, name in ipairs {"n", "m"} do self[name] = made[i] end
      local x, y = nn.Tanh(), nn.Tanh()
      self.y = y
      self.x = x
      self.list, self.last = nn.ModuleList(nn.ReLU()), nn.ReLU()
    end
    assert.equal(" up act down l1 l2 l3 n m y x list list.1 last", names(Many():named_modules()))
    assert.equal("up.weight up.bias down.weight down.bias zeta alpha b a",
                 names(Many():named_parameters()))
  end)

  it("of a ModuleDict is that of the alphabet, then of set", function()
    local dict = nn.ModuleDict {b = nn.ReLU(), a = nn.Tanh()}
    dict:set("aa", nn.Sigmoid())
    assert.equal(" a b aa", names(dict:named_modules()))
    dict:set("b", nil)
    assert.equal(" a aa", names(dict:named_modules()))
  end)
end)
