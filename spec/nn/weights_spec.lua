-- Statistics, many classes, projected states and weights made of others, against PyTorch's figures.
local flare = require "flare"
local nn = flare.nn
local layers = require "spec.support.layers"
local fill, near, i64, refused = layers.fill, layers.near, layers.i64, layers.refused
local known, check, leaf = layers.known, layers.check, layers.leaf
local named, second, peers = layers.named, layers.second, layers.peers

describe("BatchNorm", function()
  it("has its statistics computed again for averaged weights", function()
    local model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)):double()
    local linear, norm = model[1], model[2]
    linear.weight:detach():copy_(fill({2, 3}, 1))
    linear.bias:detach():copy_(fill({2}, 2))
    local mean = flare.optim.EMA(model, {mean = true})
    for c = 3, 5 do
      linear.weight:detach():copy_(fill({2, 3}, c))
      mean:update()
    end
    mean:copy_to()
    local batches, k = {fill({4, 3}, 6), fill({5, 3}, 7)}, 0
    nn.measure_norms(model:eval(), function()
      k = k + 1
      return batches[k]
    end)
    near(flare.cat({linear.weight:view(-1), norm.running_mean, norm.running_var}, 1):detach(),
         peers.swa, 1e-12)
    assert.equal(0.1, norm.momentum)
    assert.is_false(norm.training or model.training)
    refused("a module is expected, got nil", nn.measure_norms)
    refused("batches are needed", nn.measure_norms, model)
  end)

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
    refused("a module is expected, got number", nn.sync_norms, 3)
    refused("a group of ranks, as dist.world, is expected, got nil", nn.sync_norms, layer)
    refused("missing: num_batches_tracked", layer.load_state_dict, layer,
            nn.BatchNorm1d(3):state_dict())
  end)
end)

describe("AdaptiveLogSoftmaxWithLoss", function()
  local labels = i64{1, 12, 4, 8, 7}

  it("is PyTorch's", function()
    local layer = known(nn.AdaptiveLogSoftmaxWithLoss(6, 12, {3, 7}, {shrink = 2, bias = true}))
    local x = leaf({5, 6}, 1)
    local y, loss = layer(x, labels)
    check("adaptive", flare.cat({y, loss:view(1)}, 1), {x}, layer)
    named("adaptive", layer)
    local all = layer:log_prob(x):detach()
    near(all, peers.adaptive_all, 1e-10)
    near(y:detach(), all:gather(2, labels:unsqueeze(2)):view(-1):totable(), 1e-12)
    near(all:exp():sum(2), flare.ones(5):totable(), 1e-12)
    assert.is_true(layer:predict(x):equal(all:argmax(2)))
    second(function(v) return (layer(v, labels)) end, {fill({5, 6}, 1)})
  end)

  it("says what does not fit", function()
    local layer = nn.AdaptiveLogSoftmaxWithLoss(6, 12, {3, 7})
    local x = flare.ones(5, 6)
    refused("must be (batch, 6), got (6)", layer, x[1], labels)
    refused("the labels must be (5), got (4)", layer, x, labels[{{1, 4}}])
    refused("labels are from 1 to 12, got 1 to 13", layer, x, i64{1, 13, 1, 1, 1})
    refused("target must be a tensor, got nil", layer, x)
    refused("cutoffs must rise and stay below 12 classes, got 3, 12",
            nn.AdaptiveLogSoftmaxWithLoss, 6, 12, {3, 12})
    refused("cutoffs must be a list", nn.AdaptiveLogSoftmaxWithLoss, 6, 12)
  end)
end)

describe("weights made of others", function()
  local function linear(inputs, c)
    local layer = nn.Linear(inputs, 3):double()
    layer.weight:detach():copy_(fill({3, inputs}, c))
    return layer
  end

  it("prune holds the least at 0, again and again", function()
    local layer = linear(4, 1)
    nn.prune(layer, 0.3)
    near(layer.weight:detach(), peers.prune_once, 1e-12)
    nn.prune(layer, 2)
    near(layer.weight:detach(), peers.prune_twice, 1e-12)
    nn.prune(layer, 1, {dim = 2})
    near(layer.weight:detach(), peers.prune_slices, 1e-12)
    layer(fill({2, 4}, 3)):square():sum():backward()
    assert.is_true((layer.weight_orig.grad * (1 - layer.weight_mask)):eq(0):all():item())
    local other = nn.prune(linear(4, 2), 0)
    other:load_state_dict(nn.from_pytorch(nn.to_pytorch(layer)))
    local x = fill({2, 4}, 3)
    near(other(x):detach(), layer(x):detach():view(-1):totable(), 1e-12)
    nn.remove_parametrization(layer)
    near(layer.weight:detach(), peers.prune_slices, 1e-12)
    assert.equal(2, #layer:parameters())
    assert.is_nil(layer.weight_mask)
  end)

  it("prune compares several layers, and draws", function()
    local two = nn.prune({linear(4, 1), linear(2, 2)}, 7)
    near(flare.cat({two[1].weight:view(-1), two[2].weight:view(-1)}, 1):detach(),
         peers.prune_global, 1e-12)
    local drawn = nn.prune(nn.Linear(20, 10), 0.25, {by = "random"})
    assert.equal(150, drawn.weight:count_nonzero():item())
    nn.prune(drawn, 0.5, {by = "random", dim = 1})
    assert.equal(5, drawn.weight:abs():sum(2):count_nonzero():item())
    refused("amount must be a fraction", nn.prune, nn.Linear(2, 2), 5)
    refused("amount must be a fraction", nn.prune, nn.Linear(2, 2), 1.5)
    refused("by is 'size' or 'random', got 'l1'", nn.prune, nn.Linear(2, 2), 1, {by = "l1"})
    refused("a layer or a list of them", nn.prune, {}, 1)
    refused("dim 3 is not among 1 to 2", nn.prune, nn.Linear(2, 2), 1, {dim = 3})
    refused("no tensor 'wieght'", nn.prune, nn.Linear(2, 2), 1, {name = "wieght"})
  end)

  it("parametrize takes a function or a module", function()
    local layer = linear(4, 1)
    local upper = nn.parametrize(layer, function(w) return w:triu() end)
    assert.equal(layer, upper)
    local x = fill({2, 4}, 3)
    near(layer(x):detach(), (x:matmul(fill({3, 4}, 1):triu():t()) + layer.bias):detach()
                              :view(-1):totable(), 1e-12)
    layer(x):sum():backward()
    assert.is_true(layer.weight_orig.grad:tril(-1):eq(0):all():item())
    local state = nn.to_pytorch(layer)
    assert.is_truthy(state["parametrizations.weight.original"])
    layer:load_state_dict(nn.from_pytorch(state))
    local copy = layer:clone()
    nn.remove_parametrization(copy)
    flare.no_grad(function() copy.weight:add_(1) end)
    copy(x)
    near(copy.weight:detach(), (fill({3, 4}, 1):triu() + 1):view(-1):totable(), 1e-12)
    near(layer(x):detach(), (x:matmul(fill({3, 4}, 1):triu():t()) + layer.bias):detach()
                              :view(-1):totable(), 1e-12)
    local scaled = nn.parametrize(linear(4, 1), nn.PReLU():double())
    assert.equal(3, #scaled:parameters())
    nn.remove_parametrization(scaled)
    assert.equal(2, #scaled:parameters())
  end)

  it("an ordinary weight comes back from norms", function()
    for _, how in ipairs{"weight_norm", "spectral_norm"} do
      local layer = nn[how](linear(4, 1)):eval()
      local x = fill({2, 4}, 3)
      local y = layer(x):detach()
      nn.remove_parametrization(layer)
      near(layer(x):detach(), y:view(-1):totable(), 1e-12)
      local state = layer:state_dict()
      assert.is_truthy(state.weight)
      state.weight, state.bias = nil, nil
      assert.is_nil(next(state))
      refused("'weight' is not made of other parameters", nn.remove_parametrization, layer)
    end
    refused("'weight' is made of other parameters", nn.weight_norm, nn.weight_norm(linear(4, 1)))
    refused("a function or a module is expected", nn.parametrize, linear(4, 1), 3)
    refused("the function turns weight (3, 4) into (4, 3)", nn.parametrize, linear(4, 1),
            function(w) return w:t() end)
  end)

  it("are computed again in copies, which have the same parameters", function()
    local layer = nn.weight_norm(linear(4, 1))
    local copy = layer:clone()
    assert.equal(3, #copy:parameters())
    copy:load_state_dict(layer:state_dict())
    flare.no_grad(function() copy.weight_g:mul_(2) end)
    copy(fill({2, 4}, 3))
    near(copy.weight:detach(), (fill({3, 4}, 1) * 2):view(-1):totable(), 1e-12)
  end)

  it("have PyTorch's names", function()
    named("made_of_others", nn.Sequential(nn.weight_norm(nn.Linear(4, 3)),
      nn.spectral_norm(nn.Linear(3, 3)), nn.prune(nn.Linear(3, 2), 2), nn.EmbeddingBag(3, 2),
      nn.BatchNorm1d(2)))
  end)

  it("parameters become a vector, and come back", function()
    local model = nn.Sequential(linear(4, 1), linear(2, 2))
    local v = nn.parameters_to_vector(model)
    assert.equal(model:count(), #v)
    assert.is_true(v.requires_grad)
    local other = nn.Sequential(linear(4, 5), linear(2, 6))
    nn.vector_to_parameters(v:detach(), other)
    assert.is_true(nn.parameters_to_vector(other:parameters()):equal(v))
    refused("a vector of 24 elements is needed, got (5)", nn.vector_to_parameters, flare.ones(5),
            other)
    refused("an empty one", nn.parameters_to_vector, {})
  end)

  it("a norm becomes part of the layer before it", function()
    local function trained(channels, kind)
      local norm = nn[kind](channels):double()
      for k, t in ipairs{norm.weight, norm.bias, norm.running_mean} do
        t:detach():copy_(fill({channels}, k))
      end
      norm.running_var:copy_(fill({channels}, 4):abs() + 0.2)
      return norm:eval()
    end
    local pairs_ = {
      {nn.Linear(3, 4), trained(4, "BatchNorm1d"), {5, 3}},
      {nn.Conv2d(2, 4, 3, {groups = 2, bias = false}), trained(4, "BatchNorm2d"), {2, 2, 5, 5}},
      {nn.ConvTranspose1d(4, 6, 3, {groups = 2}), trained(6, "BatchNorm1d"), {2, 4, 5}},
    }
    for _, case in ipairs(pairs_) do
      local layer, norm, x = case[1]:double(), case[2], fill(case[3], 7)
      local fused = nn.fuse_norm(layer, norm)
      near(fused(x):detach(), norm(layer(x)):detach():reshape(-1):totable(), 1e-10)
      assert.is_false(fused.weight:equal(layer.weight))
    end
    refused("a Linear or a convolution is expected, got ReLU", nn.fuse_norm, nn.ReLU(),
            nn.BatchNorm1d(3))
    refused("a BatchNorm of 3 channels with statistics", nn.fuse_norm, nn.Linear(2, 3),
            nn.BatchNorm1d(4))
  end)
end)

describe("LSTM with a projection", function()
  for ending, o in pairs{[""] = {}, _deep = {layers = 2, bidirectional = true}} do
    it("is PyTorch's" .. ending, function()
      o.projection = 2
      local layer, n = known(nn.LSTM(3, 5, o)), o.layers and 4 or 1
      local x, h, c = leaf({6, 2, 3}, 1), leaf({n, 2, 2}, 2), leaf({n, 2, 5}, 3)
      local y, h1, c1 = layer(x, h, c)
      check("lstm_projection" .. ending, flare.cat({y:reshape(-1), h1:view(-1), c1:view(-1)}, 1),
            {x, h, c}, layer)
      if n == 4 then named("lstm_projection_deep", layer) end
      local whole, short = layer(x), layer(x, {lengths = {6, 3}})
      near(short[{{}, 1}]:detach(), whole[{{}, 1}]:detach():reshape(-1):totable(), 1e-12)
      assert.equal(0, short[{{4, 6}, 2}]:abs():sum():item())
    end)
  end

  it("says what does not fit, and goes on from one sequence", function()
    local layer = nn.LSTM(3, 5, {projection = 2})
    assert.equal("3 -> 5, projection=2", layer:describe())
    assert.same({6, 2}, {table.unpack(layer(flare.ones(6, 3)).shape)})
    layer:double()
    second(function(x, w)
      layer.weight_hr_l1 = nil
      layer.weight_hr_l1 = w
      return (layer(x))
    end, {fill({2, 1, 3}, 1), fill({2, 5}, 2)})
    refused("projection must be below hidden, 5, got 5", nn.LSTM, 3, 5, {projection = 5})
    refused("projection must be an integer of at least 0, got -1", nn.LSTM, 3, 5,
            {projection = -1})
    refused("unknown option 'projection'", nn.GRU, 3, 5, {projection = 2})
    refused("h0 must be (1, 4, 2), got (1, 4, 5)", layer, flare.ones(6, 4, 3),
            flare.ones(1, 4, 5))
  end)
end)
