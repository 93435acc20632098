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

-- A layer, a call, and the message between the line and the module's path.
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
}

local forms = {["a tail call"] = "return %s", ["a statement"] = "local y = %s return y",
               ["an argument"] = "return (select(1, %s))"}

describe("an error three modules deep", function()
  local x = flare.arange(1, 7):to("f32"):view(2, 3)
  local i = flare.tensor({3}, {dtype = "i64"})
  for form, statement in pairs(forms) do
    it(("names the line and the module, in %s"):format(form), function()
      for _, case in ipairs(cases) do
        local layer, call, expected = table.unpack(case)
        local source = text:gsub("%%s", function() return statement:format(call) end)
                           :gsub("LAYER", layer)
        local net = assert(load(source, "=user/net.lua"))()
        local ok, message = pcall(net, x, i)
        assert.is_false(ok, call)
        local start = "user/net.lua:5: " .. expected
        assert.equal(start, message:sub(1, #start))
        local path = "Net.blocks.2.inner" .. (layer ~= "nil" and ".layer" or "")
        assert.equal(("(in %s)"):format(path), message:match "%(in [^()]*%)$", message)
      end
    end)
  end

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
