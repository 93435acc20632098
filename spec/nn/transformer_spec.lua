local flare = require "flare"
local nn = flare.nn
local support = require "spec.support.fill"
local fill, near = support.fill, support.near

local function known(layer)
  layer:to("f64")
  local k = 0
  for _, p in layer:named_parameters() do
    k = k + 1
    p:detach():copy_(fill(p.shape, k) * 0.3)
  end
  return layer:eval()
end

-- Attention written out with ordinary operators.
local function plain(layer, x, memory, allowed)
  local heads, size = layer.heads, layer.width // layer.heads
  local function cut(y) return y:view(y:size(1), y:size(2), heads, size):transpose(2, 3) end
  local q, k, v = cut(layer.q(x)), cut(layer.k(memory)), cut(layer.v(memory))
  local scores = q:matmul(k:transpose(3, 4)) / math.sqrt(size)
  if allowed then scores = scores:masked_fill(allowed:logical_not(), -math.huge) end
  local y = scores:softmax(-1):matmul(v)
  return layer.out(y:transpose(2, 3):reshape(x:size(1), x:size(2), layer.width))
end

describe("MultiHeadAttention", function()
  it("is softmax(q k) v", function()
    local layer = known(nn.MultiHeadAttention(6, 2))
    local x, memory = fill({2, 3, 6}, 1), fill({2, 4, 6}, 2)
    near(layer(x):detach(), plain(layer, x, x):detach():view(-1):tolist(), 1e-9)
    near(layer(x, memory):detach(), plain(layer, x, memory):detach():view(-1):tolist(), 1e-9)
  end)

  it("sees the past only when it is causal, and what a mask allows", function()
    local layer = known(nn.MultiHeadAttention(6, 3, {causal = true, bias = false}))
    local x = fill({1, 4, 6}, 1)
    local past = flare.ones(4, 4):tril():gt(0)
    near(layer(x):detach(), plain(layer, x, x, past):detach():view(-1):tolist(), 1e-9)
    local open = known(nn.MultiHeadAttention(6, 3, {bias = false}))
    near(open(x, nil, past):detach(), layer(x):detach():view(-1):tolist(), 1e-9)
  end)

  it("gives gradients to all it has", function()
    local layer = nn.MultiHeadAttention(8, 2, {dropout = 0.2})
    layer(flare.rand(2, 5, 8)):sum():backward()
    for name, p in layer:named_parameters() do assert.is_truthy(p.grad, name) end
  end)

  it("reports errors", function()
    assert.has_error(function() nn.MultiHeadAttention(10, 3) end)
    assert.has_error(function() nn.MultiHeadAttention(6, 3)(flare.ones(2, 6)) end)
  end)
end)

describe("TransformerBlock", function()
  it("adds attention and two linear layers, each behind a norm", function()
    for _, norm in ipairs{"layer", "rms"} do
      local block = known(nn.TransformerBlock(6, 2, {norm = norm, ratio = 2, act = "silu"}))
      local x = fill({2, 3, 6}, 1)
      local middle = x + block.attention(block.norm1(x))
      local inner = flare.linear(block.norm2(middle), block.up.weight, block.up.bias)
      local expected = middle + block.down(inner:silu())
      near(block(x):detach(), expected:detach():view(-1):tolist(), 1e-9)
    end
  end)

  it("leaves alone what a hook has seen", function()
    local block, seen = nn.TransformerBlock(8, 2, {dropout = 0.1}), {}
    block.attention.out:register_forward_hook(function(_, _, y) seen[1] = y end)
    block.down:register_forward_hook(function(_, _, y) seen[2] = y end)
    block(flare.rand(2, 3, 8)):sum():backward()
    for i = 1, 2 do assert.same({2, 3, 8}, {table.unpack(seen[i].shape)}) end
    block.attention = nn.Identity()
    local x = flare.rand(2, 3, 8)
    block(x)
    assert.is_false(x.closed)
  end)

  it("has no biases when told so", function()
    local block = nn.TransformerBlock(8, 2, {bias = false, causal = true})
    for name in block:named_parameters() do assert.is_nil(name:find("bias")) end
    assert.equal(4 * 64 + 2 * 4 * 64 + 2 * 8, block:count())
  end)
end)
