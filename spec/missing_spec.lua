-- Methods that an object lacks: the error names the class and the method that was probably meant;
-- a field that is nil stays nil.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data

local function says(message, f)
  local ok, said = pcall(f)
  assert.is_false(ok)
  assert.match("missing_spec.lua:%d+: ", said)
  assert.equal(message, (said:gsub("^.*missing_spec.lua:%d+: ", ""):gsub("\n.*", "")))
end

describe("a method that is missing", function()
  local model = nn.Linear(2, 2)
  local loader = data.Loader(data.Tensors(flare.ones(4)), {batch = 2})

  it("is named, with the nearest one", function()
    says("Linear has no method 'paramters' (did you mean 'parameters'?)",
         function() return model:paramters() end)
    says("Adam has no method 'zero_grads' (did you mean 'zero_grad'?)",
         function() optim.Adam(model):zero_grads() end)
    says("Loader has no method 'epochs' (did you mean 'epoch'?)",
         function() for _ in loader:epochs() do error "no" end end)
    says("Tensors has no method 'szie' (did you mean 'size'?)",
         function() return loader.dataset:szie() end)
    says("StepLR has no method 'stepp' (did you mean 'step'?)",
         function() optim.StepLR(optim.SGD(model, {lr = 1}), {every = 1}):stepp() end)
    local folder = os.tmpname()
    os.remove(folder)
    finally(function() os.remove(folder) end)
    says("Checkpoint has no method 'sav' (did you mean 'save'?)",
         function() flare.io.Checkpoint(folder):sav(1, {}) end)
    says("Linear has no method 'qqqqqq'", function() model:qqqqqq() end)
  end)

  it("is named by classes that have an __index of their own", function()
    says("Sequential has no method 'paramters' (did you mean 'parameters'?)",
         function() nn.Sequential(model):paramters() end)
    says("ModuleList has no method 'appendd' (did you mean 'append'?)",
         function() nn.ModuleList(model):appendd(model) end)
    local Net = flare.class("Net", nn.Sequential)
    function Net:init() self.scale = self:buffer(flare.ones(2)) end
    says("Net has no method 'foward' (did you mean 'forward'?)",
         function() Net():foward(flare.ones(2)) end)
    local Open = flare.class("Open", nn.Module)
    function Open.__index(object, name)
      if rawget(object, "_nothing") or Open[name] == nil and object._other then return end
      return Open[name]
    end
    says("Open has no method 'evall' (did you mean 'eval'?)", function() Open():evall() end)
    assert.is_nil(nn.Sequential(model).paramters)
    assert.is_nil(Net().foward)
    local function read(list) return list.appendd end
    assert.is_nil(read(nn.ModuleList()))
  end)

  it("is looked for in classes of the user's and what they come from", function()
    local Net = flare.class("Net", nn.Module)
    function Net:init() self.layer = nn.Linear(2, 2) end
    function Net:forwards_twice(x) return self.layer(self.layer(x)) end
    says("Net has no method 'forward_twice' (did you mean 'forwards_twice'?)",
         function() Net():forward_twice(flare.ones(2)) end)
    says("Net has no method 'state_dcit' (did you mean 'state_dict'?)",
         function() Net():state_dcit() end)
    local Plain = flare.class "Plain"
    function Plain:close() end
    says("Plain has no method 'clsoe' (did you mean 'close'?)", function() Plain():clsoe() end)
    says("Plain has no method 'clsoe' (did you mean 'close'?)",
         function() return coroutine.wrap(function() Plain():clsoe() end)() end)
  end)

  it("keeps the hint for those who know other libraries", function()
    says("Linear has no method 'children' (it is model:modules(), or model:named_modules())",
         function() model:children() end)
  end)

  it("is not a field that is nil", function()
    local Plain = flare.class "Plain"
    local object, key = Plain(), "clsoe"
    function Plain:close() end
    assert.is_nil(object.clsoe)
    assert.is_nil(object[key])
    assert.is_nil(Plain.clsoe)
    assert.is_nil(object[1])
    assert.is_nil(model.biass)
    assert.is_nil(loader.pool)
    assert.is_false((pcall(object.clsoe, object)))
    if object.clsoe or Plain.clsoe then error "no" end
    -- the class as the __index of another table
    assert.error_matches(function() setmetatable({}, {__index = Plain}):clsoe() end,
                         "attempt to call a nil value %(method 'clsoe'%)")
  end)
end)
