-- Layers against PyTorch: figures that spec/support/layers_data.py has made in f64.
local flare = require "flare"
local nn = flare.nn
local F = nn.functional
local layers = require "spec.support.layers"
local fill, near, i64, refused = layers.fill, layers.near, layers.i64, layers.refused
local known, check, leaf = layers.known, layers.check, layers.leaf
local named, second, peers = layers.named, layers.second, layers.peers

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

    it("gives zeros for empty inputs: " .. mode, function()
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

  it("takes offsets that end with the last bag", function()
    local layer = nn.EmbeddingBag(5, 3, {mode = "max", include_last = true}):double()
    local want = F.embedding_bag(index, layer.weight, {mode = "max", offsets = {1, 3, 3, 5, 8}})
    near(layer(index, {1, 3, 3, 5, 8}), want[{{1, 4}}]:reshape(-1):totable(), 0)
    local y = layer(index, i64{1, 3})
    near(y, F.embedding_bag(index[{{1, 2}}], layer.weight, {mode = "max", offsets = {1}})
      :reshape(-1):totable(), 0)
  end)

  it("says what does not fit", function()
    local w = fill({5, 3}, 1)
    local function no(says, x, o) refused(says, F.embedding_bag, x, w, o) end
    no("index must be (bags, size), or (n) with offsets, got (7)", index)
    no("got (2, 3) with offsets", two, {offsets = {1}})
    no("offsets must begin with 1 and rise to 8 at most, number 1 is 2", index, {offsets = {2, 3}})
    no("number 2 is 9", index, {offsets = {1, 9}})
    no("number 3 is 3", index, {offsets = {1, 4, 3, 5}})
    no("input 3 is f32, but must be positions", index, {offsets = flare.ones(2)})
    no('mode: expected one of sum|mean|max, got "median"', two, {mode = "median"})
    no("weights go with mode = 'sum'", two, {weights = flare.ones(2, 3)})
    no("weights must have the shape of index, (2, 3), got (2, 1)", two,
       {mode = "sum", weights = flare.ones(2, 1)})
    no("must be positions", flare.ones(2, 3))
    refused("got 'median'", nn.EmbeddingBag, 5, 3, {mode = "median"})
    refused("padding 6 is no row of 5", nn.EmbeddingBag, 5, 3, {padding = 6})
    refused("max_norm must be a number of at least 0, got -1", nn.Embedding, 5, 3, {max_norm = -1})
    refused("nn.EmbeddingBag: rows must be", nn.EmbeddingBag, 0, 3)
  end)

  it("and Embedding take a weight that is there", function()
    local w = fill({5, 3}, 1)
    for _, kind in ipairs{"Embedding", "EmbeddingBag"} do
      local layer = nn[kind](5, 3, {weight = w}):freeze()
      near(layer.weight, w:view(-1):totable(), 0)
      assert.is_false(layer(two).requires_grad)
      layer.weight:add_(1)
      refused(kind .. ": weight must be (5, 4), got (5, 3)", nn[kind], 5, 4, {weight = w})
    end
    near(w, fill({5, 3}, 1):view(-1):totable(), 0)
  end)

  it("and Embedding hold rows to max_norm", function()
    local layer = nn.Embedding(5, 3, {max_norm = 0.9}):double()
    layer.weight:detach():copy_(fill({5, 3}, 1))
    check("embedding_max_norm", layer(index), {}, layer)
    near(layer.weight:detach(), peers.embedding_max_norm_weight, 1e-12)
    local zero = nn.Embedding(5, 3, {max_norm = 0.9, base = 0}):double()
    zero.weight:detach():copy_(fill({5, 3}, 1))
    near(zero(index - 1), layer(index):view(-1):totable(), 0)
    near(zero.weight:detach(), peers.embedding_max_norm_weight, 1e-12)
    refused("base is 0 or 1, got 2", nn.Embedding, 5, 3, {base = 2})
    refused("padding 5 is no row of 5", nn.Embedding, 5, 3, {padding = 5, base = 0})
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
      named("transformer", model)
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
    refused("unknown option 'dim_feedforward' (did you mean 'hidden'?)", nn.Transformer, 8, 2,
            {dim_feedforward = 16})
    refused("a width of 8 cannot be cut into 3 equal heads", nn.TransformerDecoderLayer, 8, 3)
    refused("dropout must be in [0, 1), got 1", nn.TransformerEncoderLayer, 8, 2, {dropout = 1})
    refused("a layer is expected, got number", nn.TransformerEncoder, 3, 2)
    refused("count must be an integer of at least 1, got 0", nn.TransformerDecoder,
            nn.Identity(), 0)
    refused("nn.Transformer: option 'encoder' must be a number, got string", nn.Transformer, 8, 2,
            {encoder = "six"})
    local x = flare.zeros(3, 8)
    refused("(batch, time, width), got (3, 8)", nn.TransformerEncoderLayer(8, 2), x)
    refused("(batch, time, width), got (3, 8)", nn.MultiHeadAttention(8, 2).weights,
            nn.MultiHeadAttention(8, 2), x)
    refused("memory must be a tensor, got nil", nn.TransformerDecoderLayer(8, 2), x:view(1, 3, 8))
  end)

  it("attends to a memory of another width, and returns the weights", function()
    local x, memory = leaf({2, 3, 6}, 1), leaf({2, 4, 5}, 2)
    local layer = known(nn.MultiHeadAttention(6, 2, {memory = 5}))
    check("attention_memory", layer(x, memory), {x, memory}, layer)
    named("attention_memory", layer)
    near(layer:weights(x, memory):detach(), peers.attention_weights, 1e-10)
    local causal = nn.MultiHeadAttention(6, 2, {causal = true}):double()
    local allowed = causal:weights(x)
    assert.is_true(allowed:gt(0):equal(past:expand(2, 2, 3, 3)))
    assert.is_true(nn.MultiHeadAttention.weights(known(nn.MultiHeadAttention(6, 2)), x, nil,
                                                 past):gt(0):equal(past:expand(2, 2, 3, 3)))
  end)
end)

describe("small layers", function()
  local x, other, third
  before_each(function()
    x, other, third = leaf({2, 5}, 1), leaf({2, 5}, 4), leaf({2, 5}, 2)
  end)
  local labels = i64{{4, 1, 0, 2, 0}, {5, 3, 2, 1, 4}}

  it("LocalResponseNorm", function()
    local space = leaf({2, 5, 3}, 1)
    local layer = nn.LocalResponseNorm(4, {alpha = 0.3, beta = 0.6, k = 0.9})
    check("local_response_norm", layer(space), {space})
    check("local_response_norm_flat", nn.LocalResponseNorm(3)(x), {x})
    second(layer, {fill({2, 5, 3}, 1)})
    refused("must be (batch, channels, ...), got (3)", nn.LocalResponseNorm(2), flare.ones(3))
    refused("size must be an integer of at least 1", nn.LocalResponseNorm, 0)
  end)

  it("instance_norm is the layer's", function()
    local space = fill({2, 4, 3, 2}, 1)
    near(F.instance_norm(space, {eps = 1e-3}), nn.InstanceNorm2d(4, {eps = 1e-3})(space):view(-1)
                                                :totable(), 0)
    refused("must be (batch, channels, size...), got (2, 5)", F.instance_norm, x)
  end)

  it("Threshold, Softmin, RReLU, PairwiseDistance", function()
    check("threshold", nn.Threshold{threshold = 0.2, value = -3}(x), {x})
    check("softmin", nn.Softmin(2)(x), {x})
    local layer = nn.RReLU{lower = 0.2, upper = 0.6}
    check("rrelu", layer:eval()(x), {x})
    assert.equal("lower=0.2, upper=0.6", layer:describe())
    local slope = layer:train()(flare.full({5000}, -1))
    assert.is_true(slope:amin():item() > -0.6 and slope:amax():item() <= -0.2)
    assert.is_true(math.abs(slope:mean():item() + 0.4) < 0.01)
    check("pairwise_distance", nn.PairwiseDistance{p = 3, eps = 1e-3, keepdim = true}(x, other),
          {x, other})
  end)

  it("MultiLabelMarginLoss", function()
    for _, how in ipairs{"mean", "sum", "none"} do
      check("multilabel_margin_" .. how, nn.MultiLabelMarginLoss{reduction = how}(x, labels), {x})
    end
    check("multilabel_margin_one", F.multilabel_margin_loss(x[1], labels[1]), {x})
    refused("got (2, 5) and (5)", F.multilabel_margin_loss, x, labels[1])
  end)

  it("TripletMarginLoss by any distance", function()
    local loss = nn.TripletMarginLoss{margin = 2, swap = true,
                                      distance = function(a, b) return (a - b):abs():sum(-1) end}
    check("triplet_distance", loss(x, other, third), {x, other, third})
  end)

  it("AlphaDropout keeps mean and variance", function()
    flare.manual_seed(5)
    local layer, normal = nn.AlphaDropout(0.2), flare.randn(200, 300):selu()
    local y = layer(normal)
    assert.is_true(math.abs(y:mean():item()) < 0.03 and math.abs(y:std():item() - 1) < 0.03)
    local lowest = y:eq(y:amin()):float():mean():item()
    assert.is_true(math.abs(lowest - 0.2) < 0.01)
    assert.is_true(layer:eval()(normal):equal(normal))
    local channels = nn.FeatureAlphaDropout(0.4)(flare.randn(100, 50, 4):selu())
    local same = channels:eq(channels:amin()):sum(3)
    assert.is_true(same:eq(0):logical_or(same:eq(4)):all():item())
    assert.is_true(math.abs(same:eq(4):float():mean():item() - 0.4) < 0.03)
    refused("p must be a number in [0, 1), got 1", nn.AlphaDropout, 1)
    refused("p must be a number in [0, 1), got 1", F.alpha_dropout, normal, 1)
  end)

  it("init.dirac, eye and sparse", function()
    near(nn.init.dirac(4, 3, 4), peers.dirac_1, 0)
    near(nn.init.dirac({4, 2, 3, 2}, {groups = 2}), peers.dirac_2, 0)
    near(nn.init.dirac(3, 3, 1, 2, 3), peers.dirac_3, 0)
    near(nn.init.eye(2, 3), {1, 0, 0, 0, 1, 0}, 0)
    local x0 = nn.init.sparse({40, 7}, {sparsity = 0.25, std = 2})
    assert.same({10, 10, 10, 10, 10, 10, 10}, x0:eq(0):sum(1):totable())
    refused("2 dims are needed, got 1", nn.init.eye, 3)
    refused("there is no nn.init.kaming_ (did you mean 'kaiming_'?)",
            function() return nn.init.kaming_ end)
    refused("sparsity must be from 0 to 1, got 2", nn.init.sparse, 3, 3, {sparsity = 2})
    refused("a convolution's weight", nn.init.dirac, 3, 3)
    refused("outputs for 2 groups", nn.init.dirac, {3, 3, 3}, {groups = 2})
  end)
end)
