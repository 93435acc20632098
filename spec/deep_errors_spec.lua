-- Errors three modules deep: each begins with the line of the user's file, also where it is a tail
-- call, and ends with the path of the module.
local flare = require "flare"

-- Line 5 fails.
local text = [[
local flare = require "flare"
local nn, class = flare.nn, flare.class
local Inner = class("Inner", nn.Module)
function Inner:forward(x, i)
  %s
end
local Middle = class("Middle", nn.Module)
function Middle:init() self.inner = Inner() self.inner.layer = LAYER end
function Middle:forward(...) return self.inner(...) end
local Net = class("Net", nn.Module)
function Net:init() self.blocks = {nn.ReLU(), Middle()} end
function Net:forward(x, i)
  local y = self.blocks[2](x, i)
  return y
end
return Net()]]

-- Leaves that require gradients, and what goes wrong on the way back from them.
local function with_leaf(statements)
  return "(function() local w = flare.ones(2, {requires_grad = true}) " .. statements .. " end)()"
end

-- A layer, a call, the message between the line and the module's path, and the path where it is not
-- that of the layer or, without one, of the module around it.
local cases = {
  {"nn.Linear(4, 2)", "self.layer(x)",
   "linear: x (2, 3) does not fit weight (2, 4): its last size must be 4"},
  {"nn.Linear(4, 2)", "self.layer()", "linear: x: expected a tensor, got nil"},
  {"nn.Linear(4, 2)", "self.layer(x:t():t(), 1)", "linear: x (2, 3) does not fit weight (2, 4)"},
  {"nn.LayerNorm(4)", "self.layer(x)", "layer_norm: x (2, 3) and weight (4) do not fit"},
  {"nn.BatchNorm1d(4)", "self.layer(x)", "batch_norm: x (2, 3) and weight (4) do not fit"},
  {"nn.BatchNorm2d(3)", "self.layer(x)", "BatchNorm2d: the input must have 4 dims"},
  {"nn.Conv2d(1, 2, 5)", "self.layer(x:view(1, 1, 2, 3))", "conv: a kernel of 5"},
  {"nn.Embedding(2, 4)", "self.layer(i)", "embedding: position 3 is out of range 1..2"},
  {"nn.Embedding(5, 4)", "self.layer(x)", "embedding: input 2 is f32, but must be positions"},
  {"nn.MultiHeadAttention(8, 2)", "self.layer(x)", "MultiHeadAttention: the input must be"},
  {"nn.MaxPool2d(2)", "self.layer()", "MaxPool2d: x must be a tensor, got nil"},
  {"nn.CrossEntropyLoss()", "self.layer(x)", "cross_entropy: target is missing"},
  {"nil", "x:matmul(x)", "matmul: (2, 3) x (2, 3): inner sizes 3 and 2 differ"},
  {"nil", "x:view(4)", "view: shape (2, 3) has 6 elements, (4) has 4"},
  {"nil", "x:sum(3)", "sum: there is no dim 3 in a tensor of 2 dims"},
  {"nil", "x:softmax{dm = 1}", "softmax: unknown option 'dm'"},
  {"nil", "flare.cat({x, x:t()}, 1)", "cat: input 2 has shape (3, 2)"},
  {"nil", "x:index_select(1, i)", "index_select: position 3 is out of range 1..2"},
  {"nil", "x:mul(flare.ones(4))", "mul: shapes (2, 3) and (4) do not broadcast"},
  {"nil", "x:gather(2, i)", "gather: index has shape (1) and x (2, 3)"},
  -- functions and methods that are written in Lua
  {"nil", 'flare.einsum("ij->k", x)', 'einsum "ij->k": k is in the result, but in no input'},
  {"nil", "flare.tensor_split(x, 2, 3)", "tensor_split: there is no dim 3"},
  {"nil", "flare.meshgrid(1)", "meshgrid: input 1 must be a tensor, got number"},
  {"nil", 'x:rearrange("a b c -> a")', 'rearrange "a b c -> a": (2, 3) has 2 dims'},
  {"nil", "nn.init.xavier_(1)", "init.xavier_: a tensor is expected, got number"},
  {"nil", 'flare.optim.clip_grad_norm_("x", 1)', "clip_grad_norm_: a module or a list"},
  {"nil", "flare.data.split(1)", "data.split: fractions like {0.9, 0.1} are expected"},
  {"nil", "flare.io.safetensors.save(1)", "safetensors.save: the path comes first"},
  {"nil", "flare.vmap(1)", "vmap: a function is expected, got number"},
  {"nn.Linear(4, 2)", 'self.layer:to("gpu")', 'to: there is no device "gpu"'},
  {"nn.Linear(4, 2)", "self.layer:apply(1)", "apply: a function is expected, got number"},
  {"nil", "flare.save(x)", "save: the path comes first and must be a string"},
  {"nil", "flare.optim.GradScaler():unscale_(x)", "GradScaler: an optimizer is expected"},
  {"nil", "flare.data.Loader(flare.data.Tensors(x)):load_state_dict(1)",
   "Loader: a table that state_dict() gave is expected, got number"},
  -- dtypes and devices
  {"nil", "flare.bitwise_and(x, 1)", "bitwise_and: input 1 is f32, but must be integers"},
  {"nn.Linear(3, 2)", "self.layer(i)", "linear: input 1 is i64, but must be floats"},
  {"nn.Dropout(0.5)", "self.layer(i)", "dropout: input 1 is i64, but must be floats"},
  {"nil", "flare.where(x, 1, 0)", "where: input 1 is f32, but must be bool"},
  {"nil", 'x:add(x:to "sim")', "add: input 2 is on sim:0, the ones before on cpu"},
  {"nn.Linear(3, 2)", 'self.layer(x:to "sim")', "linear: input 2 is on cpu, the ones before"},
  -- layers
  {"nn.LSTM(4, 2)", "self.layer(x:view(1, 2, 3))", "LSTM: the input must be (time, batch, 4)"},
  {"nn.GroupNorm(2, 4)", "self.layer(x)", "group_norm: x (2, 3) and weight (4) do not fit"},
  {"nn.RMSNorm(4)", "self.layer(x)", "rms_norm: x (2, 3) and weight (4) do not fit"},
  {"nn.Conv1d(3, 2, 1)", "self.layer(x:view(1, 2, 3))", "conv: an input (1, 2, 3), a weight"},
  {"nn.ConvTranspose2d(2, 2, 2)", "self.layer(x)", "conv_transpose: an input (2, 3), a weight"},
  {"nil", "flare.attention(x:view(1, 1, 2, 3), x:view(1, 1, 3, 2), x:view(1, 1, 3, 2))",
   "attention: q (1, 1, 2, 3), k (1, 1, 3, 2) and v (1, 1, 3, 2) do not fit"},
  {"nn.Linear(3, 2)", "self.layer:load_state_dict{}",
   "load_state_dict for Linear:\n  missing: bias, weight"},
  -- losses and metrics
  {"nn.MSELoss()", "self.layer(x, x:t())", "mse_loss: x has shape (2, 3), target (3, 2)"},
  {"nn.BCELoss()", "self.layer(x, x)", "bce_loss: x must be probabilities from 0 to 1, got 2"},
  {"nn.CTCLoss()", "self.layer(x, i)", "ctc_loss: (time, n, classes) and targets (n, labels)"},
  {"nn.NLLLoss()", "self.layer(x, i)", "nll_loss: log-probabilities of shape (N, C, ...) take"},
  {"nn.CrossEntropyLoss()", 'self.layer(x, flare.tensor({1, 5}, {dtype = "i64"}))',
   "cross_entropy: position 5 is out of range 1..3"},
  {"nil", "flare.metrics.Accuracy():update(x, i)", "metrics.Accuracy:update: scores (N, C, ...)"},
  -- indices, values, in place
  {"nil", "x[5]", "x[...]: position 5 is out of range 1..2"},
  {"nil", "x:expand(4, 3)", "expand: shape (2, 3) does not expand to (4, 3)"},
  {"nil", "x:item()", "item: a tensor of shape (2, 3) has 6 elements"},
  {"nil", "flare.tensor{{1, 2}, {3}}", "tensor: the table at [2] has 1 elements"},
  {"nil", "flare.zeros(2, 2):inv()", "inv: the matrix is singular: pivot 1 is zero"},
  {"nil", "x:mul_(flare.ones(4, 2, 3))", "mul_: the result has shape (4, 2, 3)"},
  {"nil", "i:add_(0.5)", "add_: the result is f32 and cannot be kept in a i64 tensor"},
  -- loaders and optimizers
  {"nil", "flare.data.Loader(flare.data.Tensors(x), {batch = 0})",
   "data.Loader: batch must be an integer of at least 1, got 0"},
  {"nil", "flare.data.Tensors(x, flare.ones(5))", "data.Tensors: argument 2 has 5 rows"},
  {"nil", "flare.data.Loader({size = function() return 2 end, get = function(_, k) return "
   .. "flare.ones(k) end}, {batch = 2}):epoch()()", "stack: input 2 has shape (2) and the first"},
  {"nil", "flare.data.Loader({size = function() return 2 end, get = function(_, k) return "
   .. "flare.ones(1, k) end}, {batch = 2}):forever()()", "stack: input 2 has shape (1, 2)"},
  {"nil", "flare.optim.Adam({})", "optim.Adam: a list of parameters is expected, got an empty one"},
  {"nn.Linear(3, 2)", "flare.optim.SGD(self.layer, {lr = -1})",
   "optim.SGD: lr must be a number of at least 0, got -1", "Net.blocks.2.inner"},
  {"nn.Linear(3, 2)", "flare.optim.SGD(self.layer, {lr = 1}):load_state_dict{}",
   "SGD: this is not an optimizer's state", "Net.blocks.2.inner"},
  {"nn.Linear(3, 2)", "flare.optim.StepLR(self.layer, {every = 1})",
   "optim.StepLR: an optimizer is expected, got a Linear", "Net.blocks.2.inner"},
  -- backward, hooks, functions of functions
  {"nil", "x:sum():backward()", "backward: this tensor does not depend on anything that requires"},
  {"nn.Linear(3, 2)", "self.layer(x):backward()", "backward from a tensor of shape (2, 2) needs",
   "Net.blocks.2.inner"},
  {"nil", "flare.grad(x:sum(), x)", "grad: input 1 does not require a gradient"},
  {"nil", "x:register_hook(print)", "a hook needs a tensor that requires a gradient"},
  {"nil", with_leaf "w:add_(1)", "add_: a leaf that requires a gradient cannot be"},
  {"nil", with_leaf "w:register_hook(function() return flare.ones(3) end) w:sum():backward()",
   "a hook (user/net.lua:5) gave a gradient of shape (3), not (2)"},
  {"nil", with_leaf("flare.func{forward = function(_, a) return a * 2 end, backward = function() "
   .. "return flare.ones(3) end}(w):sum():backward()"),
   "the backward function of custom (user/net.lua:5) gave a gradient of shape (3) for input 1"},
  {"nil", with_leaf("flare.func{forward = function(_, a) return a * 2 end, backward = "
   .. "function(_, g) return g:matmul(flare.ones(4, 4)) end}(w):sum():backward()"),
   "matmul: (2) x (4, 4): inner sizes 2 and 4 differ"},
  {"nil", with_leaf "local l = (w * w):sum() l:backward() l:backward()",
   "backward through mul (user/net.lua:5) a second time"},
  {"nil", with_leaf "local h = w * 1 local l = (h * h):sum() h:add_(1) l:backward()",
   "mul (user/net.lua:5) needs a tensor (2) for its gradient that was changed in place"},
  {"nil", "flare.vmap(function(a, b) return a + b end)(x, flare.ones(3, 3))",
   "vmap: argument 2 has 3 samples, argument 1 has 2"},
  {"nil", "flare.vmap(function(a) return a:unsqueeze(5) end)(x)", "unsqueeze: there is no dim 5"},
  {"nil", "flare.checkpoint(function(a) return a:topk(7, 2) end, x)", "topk: k must be from 0"},
  {"nil", "flare.compile(function(a) return a:transpose(1, 3) end)(x)", "transpose: there is no"},
}

local forms = {["a tail call"] = "return %s", ["a statement"] = "local y = %s return y",
               ["an argument"] = "return (select(1, %s))"}

-- The causes: messages of which none begins with another.
local function distinct()
  local texts, last, n = {}, nil, 0
  for k, case in ipairs(cases) do texts[k] = case[3] end
  table.sort(texts) -- those that begin with one follow it
  for _, message in ipairs(texts) do
    if not last or message:sub(1, #last) ~= last then last, n = message, n + 1 end
  end
  return n
end

describe("an error three modules deep", function()
  local x = flare.arange(1, 7):to("f32"):view(2, 3)
  local i = flare.tensor({3}, {dtype = "i64"})
  it("has 60 causes here, at least", function() assert(distinct() >= 60, distinct()) end)

  for form, statement in pairs(forms) do
    it(("names the line and the module, in %s"):format(form), function()
      for _, case in ipairs(cases) do
        local layer, call, expected, where = table.unpack(case)
        local source = text:gsub("%%s", function() return statement:format(call) end)
                           :gsub("LAYER", layer)
        local net = assert(load(source, "=user/net.lua"))()
        local ok, message = pcall(net, x, i)
        assert.is_false(ok, call)
        local start = "user/net.lua:5: " .. expected
        assert.equal(start, message:sub(1, #start))
        local path = where or "Net.blocks.2.inner" .. (layer ~= "nil" and ".layer" or "")
        assert.equal(("(in %s)"):format(path), message:match "%(in [^()]*%)$", message)
      end
    end)
  end

  it("names the line that launched what a device finds later", function()
    for call, expected in pairs {
      ['x:to("sim"):index_select(1, i:to "sim"):sum():item()'] =
        "index_select: position 3 is out of range 1..2",
      ['nn.functional.cross_entropy(x:to "sim", flare.tensor({1, 5}, {dtype = "i64"}):to "sim")'
       .. ":item()"] = "cross_entropy: position 5 is out of range 1..3",
      ['nn.Embedding(2, 4):to("sim")(i:to "sim"):to "cpu"'] =
        "embedding: position 3 is out of range 1..2",
    } do
      for form, statement in pairs(forms) do
        local source = text:gsub("%%s", function() return statement:format(call) end)
                           :gsub("LAYER", "nil")
        local ok, message = pcall(assert(load(source, "=user/net.lua"))(), x, i)
        assert.is_false(ok, call)
        assert.equal(("user/net.lua:5: %s (launched at user/net.lua:5)"):format(expected), message,
                     form)
      end
    end
  end)

  it("names both where the model calls a module that is none of its own", function()
    local nn = flare.nn
    local shared = nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 4))
    local Block = flare.class("Block", nn.Module)
    function Block:init() self.fc = nn.Linear(3, 3) end
    function Block:forward(rows) -- luacheck: ignore self
      local y = shared(self.fc(rows))
      return y
    end
    local Net = flare.class("Net", nn.Module)
    function Net:init() self.blocks = {Block(), Block()} end
    function Net:forward(rows)
      local y = self.blocks[2](rows)
      return y
    end
    local ok, message = pcall(function()
      local y = Net()(x)
      return y
    end)
    assert.is_false(ok)
    assert.match("%(in Sequential%.2, called by Net%.blocks%.2%)$", message)
  end)
end)
