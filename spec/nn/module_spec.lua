local flare = require "flare"
local nn = flare.nn
local message = require "spec.support.expect".message

local function names(iterator)
  local list = {}
  for name in iterator do list[#list + 1] = name end
  return table.concat(list, " ")
end

describe("nn.Module", function()
  local Block = flare.class("Block", nn.Module)
  function Block:init()
    self.zeta = nn.Linear(2, 3)
    self.alpha = self:param(flare.zeros(1))
    self.list = {nn.Linear(3, 2), nn.Dropout(0.5)}
    self.seen = self:buffer(flare.ones(1))
    self._hidden = nn.Linear(9, 9)
    self.constant = flare.ones(7)
  end
  function Block:forward(x)
    return self.list[1](self.zeta(x)) * self.alpha + self.seen
  end

  it("finds parameters and buffers in the order of assignment", function()
    local block = Block()
    assert.equal("zeta.weight zeta.bias alpha list.1.weight list.1.bias",
                 names(block:named_parameters()))
    assert.equal("seen", names(block:named_buffers()))
    assert.equal(" zeta list.1 list.2", names(block:named_modules()))
    assert.equal(1 + 2 + 6 + 3 + 6, block:count())
    local long = nn.Sequential()
    for _ = 1, 11 do long:append(nn.Linear(1, 1, {bias = false})) end
    assert.match("9.weight 10.weight 11.weight$", names(long:named_parameters()))
  end)

  it("gives shared parameters once, and all their names in the state", function()
    local tied = nn.Sequential(nn.Linear(2, 2, {bias = false}), nn.Linear(2, 2, {bias = false}))
    tied[2].weight = tied[1].weight
    assert.equal(1, #tied:parameters())
    local state = tied:state_dict()
    assert.is_truthy(state["1.weight"] and state["2.weight"])
  end)

  it("refuses to contain itself", function()
    local a = nn.Sequential(nn.ReLU())
    a.inner = a
    assert.match("contains itself at 'inner'", message(a.parameters, a))
  end)

  it("saves and loads its state, and says what does not fit", function()
    local a, b = Block(), Block()
    b:load_state_dict(a:state_dict())
    assert.is_true(a.zeta.weight:detach():eq(b.zeta.weight):all():item())
    local state = a:state_dict()
    state["zeta.wieght"], state["zeta.weight"] = state["zeta.weight"], nil
    local text = message(b.load_state_dict, b, state)
    assert.match("missing: zeta.weight", text)
    assert.match("not in the module: zeta.wieght %(did you mean 'zeta.weight'%?%)", text)
    b:load_state_dict(state, {strict = false})
    state = a:state_dict()
    state.alpha = flare.zeros(2)
    assert.match("alpha is %(2%), the module has %(1%)", message(b.load_state_dict, b, state))
  end)

  it("takes the names of PyTorch", function()
    local function renamed(list)
      local state = {}
      for _, name in ipairs(list) do state[name] = flare.arange(6) end
      local all = {}
      for name in pairs(nn.from_pytorch(state)) do all[#all + 1] = name end
      table.sort(all)
      return table.concat(all, " ")
    end
    assert.equal("1.weight blocks.11.fc1.bias last.2",
                 renamed{"0.weight", "blocks.10.fc1.bias", "last.1"})
    assert.equal("bias_hh_l2_reverse rnn.weight_ih_l1",
                 renamed{"rnn.weight_ih_l0", "bias_hh_l1_reverse"})
    assert.equal("a.k.bias a.k.weight a.out.weight a.q.bias a.q.weight a.v.bias a.v.weight",
                 renamed{"a.in_proj_weight", "a.in_proj_bias", "a.out_proj.weight"})
    assert.equal("a.out_proj.weight bn.num_batches_tracked bn.running_var",
                 renamed{"a.out_proj.weight", "bn.running_var", "bn.num_batches_tracked"})
    assert.equal("a.weight_g a.weight_v b.1.weight_orig b.1.weight_u",
                 renamed{"a.parametrizations.weight.original0",
                         "a.parametrizations.weight.original1",
                         "b.0.parametrizations.weight.original",
                         "b.0.parametrizations.weight.0._u"})
    assert.same({2, 3}, nn.from_pytorch{["a.in_proj_bias"] = flare.arange(6)}["a.k.bias"]:totable())
    local text = message(function()
      nn.Sequential(nn.Linear(1, 1)):load_state_dict{["0.weight"] = flare.ones(1, 1)}
    end)
    assert.match("nn.from_pytorch%(state%)", text)
  end)

  it("gives names of PyTorch, which come back", function()
    local Own = flare.class("Own", nn.Module)
    function Own:init() -- fields with these names are no attention
      for _, name in ipairs{"q", "k", "v", "out"} do self[name] = nn.Linear(2, 2) end
    end
    local model = nn.Sequential(nn.MultiHeadAttention(4, 2), nn.LSTM(4, 3, {layers = 2}), Own(),
      nn.weight_norm(nn.Linear(3, 2)), nn.spectral_norm(nn.Linear(2, 2)), nn.BatchNorm1d(2))
    local state, own = nn.to_pytorch(model), model:state_dict()
    for there, here in pairs{
      ["0.in_proj_bias"] = false, ["0.out_proj.weight"] = "1.out.weight",
      ["1.weight_ih_l0"] = "2.weight_ih_l1", ["1.bias_hh_l1"] = "2.bias_hh_l2",
      ["2.q.weight"] = "3.q.weight", ["2.out.bias"] = "3.out.bias",
      ["3.parametrizations.weight.original0"] = "4.weight_g", ["3.bias"] = "4.bias",
      ["4.parametrizations.weight.original"] = "5.weight_orig",
      ["4.parametrizations.weight.0._v"] = "5.weight_v", ["5.running_var"] = "6.running_var",
    } do
      assert.is_truthy(state[there], there)
      if here then assert.is_true(state[there]:equal(own[here]), there) end
    end
    assert.same({12, 4}, {table.unpack(state["0.in_proj_weight"].shape)})
    local back, n = nn.from_pytorch(state), 0
    for name, tensor in pairs(own) do
      assert.is_true(back[name]:equal(tensor), name)
      n = n + 1
    end
    for _ in pairs(back) do n = n - 1 end
    assert.equal(0, n)
  end)

  it("makes copies that share nothing with it", function()
    local block = Block()
    block.tied = block.zeta
    local x = flare.ones(1, 2)
    local copy = block:clone()
    assert.same(block(x):totable(), copy(x):totable())
    assert.equal(copy.tied, copy.zeta)
    assert.equal(#block:parameters(), #copy:parameters())
    assert.equal(#block:buffers(), #copy:buffers())
    for _, p in ipairs(copy:parameters()) do
      assert.is_true(p.requires_grad)
      for _, q in ipairs(block:parameters()) do assert.is_false(p:shares(q)) end
    end
    assert.equal("f64", copy:double().zeta.weight.dtype)
    assert.equal("f32", block.zeta.weight.dtype)
  end)

  it("changes mode, freezes, converts", function()
    local block = Block()
    block:eval()
    assert.is_false(block.list[2].training)
    block:train()
    assert.is_true(block.list[2].training)
    block:freeze()
    for _, p in block:named_parameters() do assert.is_false(p.requires_grad) end
    assert.equal(5, #block:parameters())
    block:freeze(false)
    assert.is_true(block.alpha.requires_grad)
    block:to("f64")
    assert.equal("f64", block.zeta.weight.dtype)
    assert.equal("f64", block.seen.dtype)
    assert.equal(5, #block:parameters())
    assert.equal("f64", block(flare.ones(1, 2, {dtype = "f64"})).dtype)
  end)

  it("runs hooks around forward and on the gradient", function()
    local layer = nn.Linear(1, 1, {bias = false})
    nn.init.ones_(layer.weight)
    local seen = {}
    local before = layer:register_forward_pre_hook(function(_, x) return x * 2 end)
    layer:register_forward_hook(function(_, _, y) return y + 1 end)
    local back = layer:register_backward_hook(function(_, g) seen[#seen + 1] = g:item() end)
    local y = layer(flare.ones(1, 1))
    assert.equal(3, y:item())
    y:sum():backward()
    assert.same({1}, seen)
    before:remove()
    back:remove()
    assert.equal(2, layer(flare.ones(1, 1)):item())
  end)

  it("goes backward by hand", function()
    local layer = nn.Linear(2, 1, {bias = false})
    nn.init.constant_(layer.weight, {value = 3})
    local x = flare.tensor{{1, 2}}
    local dx = layer:backward(x, flare.tensor{{10}})
    assert.same({{30, 30}}, dx:tolist())
    assert.same({{10, 20}}, layer.weight.grad:tolist())
  end)

  it("prints as a tree", function()
    local model = nn.Sequential(nn.Linear(784, 10, {bias = false}), nn.ReLU(),
                                nn.Sequential(nn.Dropout(0.1)))
    assert.equal([[
Sequential(
  (1): Linear(784 -> 10, bias=false)
  (2): ReLU()
  (3): Sequential(
    (1): Dropout(p=0.1)
  )
)]], tostring(model))
  end)

  it("sums up a model without computing", function()
    local model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    local text = model:summary({32, 784})
    assert.match("1%s+Linear%s+%(32, 256%)%s+200,960", text)
    assert.match("203,530 parameters", text)
    assert.is_nil(rawget(model[1], "_hooks"))
    -- 2 FLOPs for each product of a weight and an element: 2 * 32 * 784 * 256
    assert.match("1%s+Linear%s+%(32, 256%)%s+200,960%s+32.0 KB%s+12.8 MFLOP\n", text)
    assert.match("2%s+ReLU%s+%(32, 256%)%s+0%s+32.0 KB%s+8.2 KFLOP\n", text)
    assert.match("a forward pass: 13.0 MFLOP, 65.2 KB of results$", text)
  end)

  it("counts in a summary what its convolutions and its own forward do", function()
    local Net = flare.class("SummaryNet", nn.Module)
    function Net:init()
      self.conv = nn.Conv2d(3, 8, 3, {padding = 1, bias = false})
    end
    function Net:forward(x) return self.conv(x) + self.conv(x):tanh() end
    local text = Net():summary({2, 3, 16, 16})
    -- the products of one call: 2 * 9 * 3 for each of 2 * 8 * 16 * 16 elements
    local _, calls = text:gsub("conv%s+Conv2d%s+%(2, 8, 16, 16%)%s+216%s+16.0 KB%s+221.2 KFLOP", "")
    assert.equal(2, calls)
  end)

  it("knows a newcomer's slips", function()
    assert.match("no nn.linear %(did you mean 'Linear'%?%)",
                 message(function() return nn.linear end))
    assert.match("unknown option 'bais' %(did you mean 'bias'%?%)",
                 message(nn.Linear, 3, 2, {bais = false}))
    assert.match("option 'bias' must be a boolean, got number",
                 message(nn.Linear, 3, 2, {bias = 0}))
    assert.match("outputs must be an integer of at least 1, got nil", message(nn.Linear, 3))
    assert.match("the class ReLU: call it", message(nn.Sequential, nn.ReLU))
    assert.match("Empty has no forward method", message(function()
      flare.class("Empty", nn.Module)()(1)
    end))
  end)
end)

describe("containers", function()
  it("lists count from 1, or from the end", function()
    local a, b = nn.ReLU(), nn.Tanh()
    local list = nn.Sequential(a, b)
    assert.equal(b, list[-1])
    assert.equal(a, list[-2])
    assert.is_nil(list[-3])
    assert.is_nil(list[3])
    assert.is_nil(list.weight)
    local ok, why = pcall(function() return list[0] end)
    assert.is_false(ok)
    assert.matches("Sequential%[0%]: positions count from 1", why)
    local Stack = flare.class("Stack", nn.Sequential)
    function Stack.twice() return 2 end
    assert.equal(2, Stack(a):twice())
    assert.equal(a, Stack(a)[-1])
  end)

  it("names a module that a list lacks", function()
    local list = nn.Sequential(nn.ReLU(), nn.ReLU(), nn.Linear(2, 2))
    list[2] = nil
    local text = message(function()
      local y = list(flare.ones(1, 2))
      return y
    end)
    assert.match("^%S*module_spec.lua:%d+: Sequential: module 2 of 3 is nil", text)
    assert.match("a module is expected, got a tensor", message(list.append, list, flare.ones(1)))
  end)

  it("lists append lists, whole or not at all", function()
    local a, b, c = nn.ReLU(), nn.Tanh(), nn.Linear(2, 2)
    for _, class in ipairs {nn.Sequential, nn.ModuleList} do
      local list = class(a)
      assert.equal(list, list:append {b, c})
      assert.equal(3, #list)
      assert.equal(c, list[3])
      assert.equal(3, #list:append {})
      assert.match("a module is expected, got number", message(list.append, list, {b, 3}))
      assert.match("module 2 of 3 is nil", message(list.append, list, {b, nil, c}))
      assert.match('got the key "last"', message(list.append, list, {b, last = c}))
      assert.match("a module is expected, got nil", message(list.append, list, nil))
      assert.equal(3, #list)
      assert.match("module 2 of 3 is nil", message(class, a, nil, c))
      assert.match("module 1 of 1 is nil", message(class, nil))
    end
    assert.equal(2, #nn.Sequential():append {nn.Linear(2, 3), nn.Linear(3, 1)}:parameters() / 2)
  end)

  it("ModuleList appends, inserts, counts", function()
    local list = nn.ModuleList{nn.ReLU()}
    list:append(nn.Tanh()):insert(1, nn.Sigmoid())
    assert.equal(3, #list)
    assert.equal("Sigmoid()", tostring(list[1]))
    assert.equal("Tanh()", tostring(list[3]))
    assert.match("position 9 is not in 1..4", message(list.insert, list, 9, nn.ReLU()))
  end)

  it("ModuleDict has modules under names", function()
    local dict = nn.ModuleDict{a = nn.Linear(1, 1), b = nn.ReLU()}
    assert.same({"a", "b"}, dict:keys())
    assert.equal("a.weight a.bias", names(dict:named_parameters()))
    assert.match("name of a method", message(dict.set, dict, "forward", nn.ReLU()))
  end)
end)
