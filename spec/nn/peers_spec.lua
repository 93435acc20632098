-- Layers against PyTorch: figures that spec/support/layers_data.py has made in f64.
local flare = require "flare"
local nn = flare.nn
local F = nn.functional
local expect = require "spec.support.expect"
local peers = require "spec.support.layers_data"
local support = require "spec.support.fill"
local fill, near, i64, refused = support.fill, support.near, expect.i64, expect.refused

local function leaf(shape, c) return fill(shape, c):requires_grad_(true) end

-- A module in f64 whose tensors, by the order of PyTorch's names, have known values.
local function known(module)
  local state, names = nn.to_pytorch(module:double()), {}
  for name in pairs(state) do names[#names + 1] = name end
  table.sort(names)
  for number, name in ipairs(names) do state[name] = fill(state[name].shape, number) * 0.3 end
  return module:load_state_dict(nn.from_pytorch(state))
end

-- What layers_data.py's `row` says.
local function check(name, y, leaves, module)
  local want = peers[name]
  local all = table.move(leaves, 1, #leaves, 1, {})
  for _, p in ipairs(module and module:parameters() or {}) do all[#all + 1] = p end
  local value = (y * fill(y.shape, 3)):sum()
  local got, total = {value:item()}, 0
  for k, grad in ipairs{flare.grad(value, all)} do
    local sum = grad:abs():sum():item()
    if k <= #leaves then got[#got + 1] = sum else total = total + sum end
  end
  if module then got[#got + 1] = total end
  near(flare.tensor(got, {dtype = "f64"}), want, 1e-10)
end

local function second(f, inputs)
  assert.is_true(flare.gradcheck(f, inputs, {second = true}))
end

describe("EmbeddingBag", function()
  local index, offsets = i64{2, 5, 1, 1, 3, 4, 1}, {1, 3, 3, 5, 7}
  local two = index[{{1, 6}}]:view(2, 3)

  for _, mode in ipairs{"sum", "mean", "max"} do
    it("puts rows together as PyTorch does: " .. mode, function()
      for padding = 0, 1 do
        local name = "bag_" .. mode .. (padding > 0 and "_padded" or "")
        local w = leaf({5, 3}, 1)
        local o = {mode = mode, padding = padding > 0 and padding or nil}
        check(name .. "_2d", F.embedding_bag(two, w, o), {w})
        o.offsets = offsets
        check(name, F.embedding_bag(index, w, o), {w})
        o.offsets = i64(offsets)
        second(function(v) return F.embedding_bag(index, v, o) end, {w:detach()})
        local layer = nn.EmbeddingBag(5, 3, {mode = mode, padding = o.padding}):double()
        layer.weight:detach():copy_(w:detach())
        check(name, layer(index, offsets), {}, layer)
      end
    end)

    it("gives zeros for what is empty: " .. mode, function()
      local w, none = fill({5, 3}, 1), flare.zeros({0}, {dtype = "i64"})
      local function sizes(x, o) -- of zeros
        o.mode = mode
        local y = F.embedding_bag(x, w, o)
        assert.equal(0, y:abs():sum():item())
        return {table.unpack(y.shape)}
      end
      assert.same({2, 3}, sizes(none, {offsets = {1, 1}}))
      assert.same({0, 3}, sizes(none, {offsets = {}}))
      assert.same({2, 3}, sizes(none:view(0, 1):expand(0, 1):view(2, 0), {}))
      assert.same({0, 3}, sizes(none:view(0, 2), {}))
    end)
  end

  it("multiplies rows by weights, which have gradients", function()
    local w, share = leaf({5, 3}, 1), leaf({7}, 2)
    local o = {mode = "sum", offsets = offsets, weights = share}
    check("bag_weights", F.embedding_bag(index, w, o), {w, share})
    o.padding = 1
    check("bag_weights_padded", F.embedding_bag(index, w, o), {w, share})
    second(function(v, s)
      return F.embedding_bag(two, v, {mode = "sum", weights = s})
    end, {fill({5, 3}, 1), fill({2, 3}, 2)})
  end)

  it("says what does not fit", function()
    local w = fill({5, 3}, 1)
    local function no(says, x, o) refused(says, F.embedding_bag, x, w, o) end
    no("index must be (bags, size), or (n) with offsets, got (7)", index)
    no("got (2, 3) with offsets", two, {offsets = {1}})
    no("offsets must begin with 1 and go up to 8 at most, got 2, 3", index, {offsets = {2, 3}})
    no("got 1, 9", index, {offsets = {1, 9}})
    no("got 1, 4, 3, 5", index, {offsets = {1, 4, 3, 5}})
    no("offsets must be a list of integers", index, {offsets = flare.ones(2)})
    no("mode is 'sum', 'mean' or 'max', got 'median'", two, {mode = "median"})
    no("weights go with mode = 'sum', not 'mean'", two, {weights = flare.ones(2, 3)})
    no("weights must have the shape of index, (2, 3), got (2, 1)", two,
       {mode = "sum", weights = flare.ones(2, 1)})
    no("must be positions", flare.ones(2, 3))
    refused("got 'median'", nn.EmbeddingBag, 5, 3, {mode = "median"})
    refused("nn.EmbeddingBag: rows must be", nn.EmbeddingBag, 0, 3)
  end)

  it("and Embedding hold rows to max_norm", function()
    local layer = nn.Embedding(5, 3, {max_norm = 0.9}):double()
    layer.weight:detach():copy_(fill({5, 3}, 1))
    check("embedding_max_norm", layer(index), {}, layer)
    near(layer.weight:detach(), peers.embedding_max_norm_weight, 1e-12)
    local bag = nn.EmbeddingBag(5, 3, {max_norm = 0.9}):double()
    bag.weight:detach():copy_(fill({5, 3}, 1))
    bag(two)
    near(bag.weight:detach(), peers.embedding_max_norm_weight, 1e-12)
  end)
end)

describe("Transformer", function()
  local past = flare.ones(3, 3):tril():gt(0)
  local shared = {hidden = 10, dropout = 0}
  local function options(o)
    for key, value in pairs(shared) do o[key] = value end
    return o
  end

  for _, first in ipairs{false, true} do
    local ending = first and "_first" or ""

    it("has PyTorch's layers" .. ending, function()
      local x, memory = leaf({2, 3, 6}, 1), leaf({2, 4, 6}, 2)
      local layer = known(nn.TransformerEncoderLayer(6, 2, options{norm_first = first}))
      check("encoder_layer" .. ending, layer(x, past), {x}, layer)
      local causal = nn.TransformerEncoderLayer(6, 2, options{norm_first = first, causal = true})
      check("encoder_layer" .. ending, known(causal)(x), {x}, causal)
      layer = known(nn.TransformerDecoderLayer(6, 2, options{norm_first = first, act = "gelu"}))
      check("decoder_layer" .. ending, layer(x, memory, past), {x, memory}, layer)
    end)

    it("is PyTorch's, with its weights" .. ending, function()
      local source, target = leaf({2, 4, 6}, 2), leaf({2, 3, 6}, 1)
      local model = known(nn.Transformer(6, 3, options{encoder = 2, decoder = 1,
                                                       norm_first = first}))
      check("transformer" .. ending, model(source, target, {target_mask = past}),
            {source, target}, model)
      local other = nn.Transformer(6, 3, options{encoder = 2, decoder = 1, norm_first = first,
                                                 causal = true}):double()
      other:load_state_dict(model:state_dict())
      check("transformer" .. ending, other(source, target), {source, target}, other)
    end)
  end

  it("drops while training only, and trains in stacks of copies", function()
    local layer = nn.TransformerEncoderLayer(8, 2, {hidden = 16, dropout = 0.5})
    local stack = nn.TransformerEncoder(layer, 3, {norm = nn.LayerNorm(8)})
    assert.equal(3 * layer:count() + 16, stack:count())
    local x = flare.rand(2, 5, 8)
    assert.is_false(stack(x):allclose(stack(x)):item())
    stack(x):sum():backward()
    for name, p in stack:named_parameters() do assert.is_truthy(p.grad, name) end
    stack:eval()
    assert.is_true(stack(x):equal(stack(x)))
    local decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2), 2):eval()
    assert.same({2, 5, 8}, {table.unpack(decoder(x, flare.rand(2, 3, 8)).shape)})
  end)

  it("says what does not fit", function()
    refused("nn.TransformerEncoderLayer: unknown option 'nrom_first' (did you mean 'norm_first'?)",
            nn.TransformerEncoderLayer, 8, 2, {nrom_first = true})
    refused("a width of 8 cannot be cut into 3 equal heads", nn.TransformerDecoderLayer, 8, 3)
    refused("dropout must be in [0, 1), got 1", nn.TransformerEncoderLayer, 8, 2, {dropout = 1})
    refused("a layer is expected, got number", nn.TransformerEncoder, 3, 2)
    refused("count must be an integer of at least 1, got 0", nn.TransformerDecoder,
            nn.Identity(), 0)
    refused("nn.Transformer: option 'encoder' must be a number, got string", nn.Transformer, 8, 2,
            {encoder = "six"})
    refused("(batch, time, width), got (3, 8)", nn.TransformerEncoderLayer(8, 2),
            flare.zeros(3, 8))
  end)

  it("attends to what is of another width, and tells how much", function()
    local x, memory = leaf({2, 3, 6}, 1), leaf({2, 4, 5}, 2)
    local layer = known(nn.MultiHeadAttention(6, 2, {memory = 5}))
    check("attention_memory", layer(x, memory), {x, memory}, layer)
    near(layer:weights(x, memory):detach(), peers.attention_weights, 1e-10)
    local causal = nn.MultiHeadAttention(6, 2, {causal = true}):double()
    local allowed = causal:weights(x)
    assert.is_true(allowed:gt(0):equal(past:expand(2, 2, 3, 3)))
    assert.is_true(nn.MultiHeadAttention.weights(known(nn.MultiHeadAttention(6, 2)), x, nil,
                                                 past):gt(0):equal(past:expand(2, 2, 3, 3)))
  end)
end)

describe("BatchNorm", function()
  it("remembers the mean of all batches, if it is to", function()
    local layer, y = nn.BatchNorm1d(3, {cumulative = true}):double(), nil
    for _, c in ipairs{1, 2, 4} do y = layer(fill({4, 3, 2}, c)) end
    check("batch_norm_cumulative", y, {}, layer)
    local function stats(of) return flare.cat({of.running_mean, of.running_var}, 1) end
    near(stats(layer), peers.batch_norm_cumulative_stats, 1e-12)
    local other = nn.BatchNorm1d(3, {cumulative = true}):double()
    other:load_state_dict(nn.from_pytorch(nn.to_pytorch(layer)))
    assert.equal(3, other.num_batches_tracked:item())
    for _, each in ipairs{layer, other} do each(fill({4, 3, 2}, 5)) end
    near(stats(other), stats(layer):totable(), 0)
    nn.BatchNorm1d(3):load_state_dict(layer:state_dict())
    refused("missing: num_batches_tracked", layer.load_state_dict, layer,
            nn.BatchNorm1d(3):state_dict())
  end)
end)
