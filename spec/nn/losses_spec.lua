-- Losses against figures computed by PyTorch 2.11 from the same values.
local flare = require "flare"
local nn = flare.nn
local support = require "spec.support.fill"
local fill, near = support.fill, support.near

describe("losses", function()
  local x, target, labels, bits, sides, weight
  before_each(function()
    x = fill({4, 5}, 1):requires_grad_(true)
    target = fill({4, 5}, 2)
    labels = flare.tensor({1, 5, 3, 3}, {dtype = "i64"})
    bits = target:gt(0):to("f64")
    sides = bits * 2 - 1
    weight = flare.tensor({1, 2, 3, 4, 5}, {dtype = "f64"})
  end)

  local function check(name, expected, gradient, compute)
    it(name, function()
      local loss = compute()
      near(loss:detach(), {expected}, 1e-8)
      loss:backward()
      near(x.grad:abs():sum(), {gradient}, 1e-7)
    end)
  end

  check("CrossEntropyLoss", 1.33724218, 1.42422782, function()
    return nn.CrossEntropyLoss()(x, labels)
  end)
  check("CrossEntropyLoss with weights", 1.35832104, 1.44034943, function()
    return nn.CrossEntropyLoss{weight = weight}(x, labels)
  end)
  check("CrossEntropyLoss with label smoothing", 1.38419464, 1.26422782, function()
    return nn.CrossEntropyLoss{label_smoothing = 0.1}(x, labels)
  end)
  check("CrossEntropyLoss that ignores a class", 0.961923967, 1.23415745, function()
    return nn.CrossEntropyLoss{ignore_index = 3}(x, labels)
  end)
  check("CrossEntropyLoss that leaves out what is -100", 1.08901054, 1.3154294, function()
    labels[3] = -100
    return nn.CrossEntropyLoss()(x, labels)
  end)
  check("NLLLoss that leaves out what is -100", 1.08901054, 1.3154294, function()
    labels[3] = -100
    return nn.NLLLoss()(x:log_softmax(2), labels)
  end)
  check("NLLLoss", 1.35832104, 1.44034943, function()
    return nn.NLLLoss{weight = weight}(x:log_softmax(2), labels)
  end)
  check("MSELoss", 0.474149451, 1.24615213, function() return nn.MSELoss()(x, target) end)
  check("L1Loss", 0.623076067, 1, function() return nn.L1Loss()(x, target) end)
  check("SmoothL1Loss", 0.400285266, 0.840055417, function()
    return nn.SmoothL1Loss{beta = 0.5}(x, target)
  end)
  check("HuberLoss", 0.228016335, 0.536651081, function()
    return nn.HuberLoss{delta = 0.7}(x, target)
  end)
  check("BCELoss", 0.569236672, 0.413094016, function()
    return nn.BCELoss()(x:sigmoid(), bits)
  end)
  check("BCEWithLogitsLoss", 0.795998536, 0.584725469, function()
    return nn.BCEWithLogitsLoss{pos_weight = flare.tensor({2}, {dtype = "f64"})}(x, bits)
  end)
  check("KLDivLoss", 0.16540006, 0.459260819, function()
    return nn.KLDivLoss{reduction = "batchmean"}(x:log_softmax(2), target:softmax(2))
  end)
  check("CosineEmbeddingLoss", 0.381105422, 1.05537047, function()
    local pairs_ = flare.tensor({1, -1, 1, -1}, {dtype = "f64"})
    return nn.CosineEmbeddingLoss{margin = 0.2}(x, target, pairs_)
  end)
  check("MarginRankingLoss", 0.625083393, 0.75, function()
    return nn.MarginRankingLoss{margin = 0.3}(x, target, sides)
  end)

  check("GaussianNLLLoss", 1.46150888, 2.23550373, function()
    return nn.GaussianNLLLoss{full = true, eps = 0.05}(x, target, target:abs())
  end)
  check("PoissonNLLLoss", 1.25100944, 1.26042893, function()
    return nn.PoissonNLLLoss()(x, target:abs() * 3)
  end)
  check("PoissonNLLLoss of rates", 2.46917538, 3.33423984, function()
    return nn.PoissonNLLLoss{log_input = false, full = true}(x:abs() + 0.1, target:abs() * 3)
  end)
  check("HingeEmbeddingLoss", 0.673612447, 0.85, function()
    return nn.HingeEmbeddingLoss{margin = 0.5}(x, sides)
  end)
  check("SoftMarginLoss", 0.569236672, 0.413094016, function()
    return nn.SoftMarginLoss()(x, sides)
  end)
  check("MultiMarginLoss", 0.329287375, 1, function()
    return nn.MultiMarginLoss{margin = 0.7}(x, labels)
  end)
  check("MultiMarginLoss of squares", 0.618299352, 1.92713267, function()
    return nn.MultiMarginLoss{p = 2}(x, labels)
  end)
  check("MultiLabelSoftMarginLoss", 0.569236672, 0.413094016, function()
    return nn.MultiLabelSoftMarginLoss()(x, bits)
  end)

  describe("CTCLoss", function()
    local scores, labels_of = nil, flare.tensor({{2, 3, 3}, {4, 2, -7}, {5, 5, 5}}, {dtype = "i64"})
    before_each(function() scores = fill({6, 3, 5}, 1):requires_grad_(true) end)
    local function loss(o, inputs, lengths)
      return nn.CTCLoss(o)(scores:log_softmax(3), labels_of, inputs or {6, 5, 6},
                           lengths or {3, 2, 3})
    end

    it("is PyTorch's, and so is its gradient", function()
      near(loss():detach(), {2.388218584650981}, 1e-12)
      near(loss{reduction = "sum"}:detach(), {19.076717276955126}, 1e-12)
      near(loss{reduction = "none"}:detach(),
           {6.526288992030842, 4.83449996980741, 7.715928315116875}, 1e-12)
      loss():backward()
      near(scores.grad:abs():sum(), {2.492525205167116}, 1e-12)
    end)

    it("is infinite for labels too long for the input, with finite gradients", function()
      local short = {6, 5, 4}
      near(loss({reduction = "none", zero_infinity = true}, short):detach(),
           {6.526288992030842, 4.83449996980741, 0}, 1e-12)
      assert.equal(math.huge, loss({reduction = "sum"}, short):item())
      loss({zero_infinity = true}, short, {3, 0, 3}):backward()
      assert.is_false(scores.grad:isnan():any():item())
      near(scores.grad[{{}, 3}]:abs():sum(), {0}, 0)
    end)

    it("of no labels is that of blanks alone", function()
      local p = scores:detach():log_softmax(3)
      local none = flare.zeros(3, 0, {dtype = "i64"})
      near(nn.CTCLoss{reduction = "sum"}(p, none, {6, 6, 6}, {0, 0, 0}),
           {-p[{{}, {}, 1}]:sum():item()}, 1e-12)
    end)

    it("refuses lengths that cannot be", function()
      for says, f in pairs{
        ["input_lengths must be in 0..6, got 7"] = function() loss({}, {6, 7, 6}) end,
        ["target_lengths must be 3 numbers"] = function() loss({}, nil, {1}) end,
        ["reduction is"] = function() loss{reduction = "avg"} end,
      } do
        local ok, message = pcall(f)
        assert.is_false(ok)
        assert.match(says, message, 1, true)
      end
    end)
  end)

  it("refuse targets of another shape, which would broadcast or be left out", function()
    local F = nn.functional
    local few = flare.tensor({1, 2}, {dtype = "i64"})
    for _, call in ipairs {
      function() return flare.nll_loss(x, few) end,
      function() return flare.nll_loss(x, labels:narrow(1, 1, 1)) end,
      function() return flare.cross_entropy(x, few) end,
      function() return flare.nll_loss(x:view(1, 5, 2, 2), labels:view(1, 4, 1)) end,
      function() return F.multi_margin_loss(x, few) end,
      function() return F.soft_margin_loss(x, sides[1]) end,
      function() return F.hinge_embedding_loss(x, sides:narrow(2, 1, 1)) end,
      function() return F.poisson_nll_loss(x, target[1]) end,
      function() return F.gaussian_nll_loss(x, target[1], x:square() + 1) end,
      function() return F.margin_ranking_loss(x, target[1], sides) end,
      function() return F.margin_ranking_loss(x, target, sides[1]) end,
      function() return F.triplet_margin_loss(x, target, target[1]) end,
      function() return F.cosine_embedding_loss(x, target, sides[1]) end,
      function() return flare.mse_loss(x, target[1]) end,
    } do
      local ok, message = pcall(call)
      assert.is_false(ok)
      assert.match("shape", tostring(message))
    end
    assert.error_matches(function()
      flare.nll_loss(x, labels, {weight = weight:narrow(1, 1, 2)})
    end, "one number for each of 5 classes")
    assert.equal("()", tostring(F.cosine_embedding_loss(x, target, flare.ones(1)).shape))
  end)

  it("TripletMarginLoss is zero when the other one is far", function()
    local far = nn.TripletMarginLoss()(x, target, fill({4, 5}, 3))
    assert.equal(0, far:item())
    local near_one = nn.TripletMarginLoss()(x, fill({4, 5}, 3), target)
    assert.is_true(near_one:item() > 1)
  end)

  check("TripletMarginLoss with swap", 0.985432629, 2.02490861, function()
    return nn.TripletMarginLoss{swap = true}(x, target, fill({4, 5}, 3))
  end)
  check("MultiMarginLoss with weights", 1.89241667, 5.96121692, function()
    return nn.MultiMarginLoss{weight = weight, p = 2}(x, labels)
  end)
  check("MultiLabelSoftMarginLoss with weights", 1.55986655, 1.1584385, function()
    return nn.MultiLabelSoftMarginLoss{weight = weight}(x, bits)
  end)

  it("give one value for each with reduction none, and refuse others", function()
    assert.equal(4, #nn.CrossEntropyLoss{reduction = "none"}(x, labels))
    assert.has_error(function() nn.MSELoss{reduction = "avg"}(x, target) end)
    assert.has_error(function() nn.MSELoss{reducton = "sum"} end)
    assert.has_error(function()
      nn.CrossEntropyLoss()(x, flare.tensor({1, 6, 2, 2}, {dtype = "i64"}))
      flare.synchronize()
    end)
  end)

  it("have no slope where all labels are ignored, recorded or not", function()
    for _, smoothing in ipairs {0, 0.1} do
      for _, w in ipairs {false, weight} do
        local loss = nn.CrossEntropyLoss{ignore_index = 2, label_smoothing = smoothing,
                                         weight = w or nil}(x, flare.full_like(labels, 2))
        assert.is_true(loss:isnan():item()) -- the mean of nothing
        for _, recorded in ipairs {false, true} do
          local g = flare.grad(loss, {x}, {create_graph = recorded, retain_graph = true})
          assert.equal(0, g:detach():abs():max():item())
        end
      end
    end
  end)

  it("weights move with the module", function()
    local loss = nn.CrossEntropyLoss{weight = weight}
    loss:to("f32")
    assert.equal("f32", loss.weight.dtype)
  end)
end)

describe("cross_entropy", function()
  it("says that one-hot targets must be floats", function()
    local refused = require "spec.support.expect".refused
    local x = flare.randn(3, 4)
    local hot = flare.tensor({1, 2, 4}, {dtype = "i64"}):one_hot(4)
    for _, dtype in ipairs {"i64", "i32", "u8", "bool"} do
      refused("of the scores' shape (3, 4) are probabilities and must be floats, not " .. dtype,
        flare.cross_entropy, x, hot:to(dtype))
    end
    local at = x:cross_entropy(flare.tensor({1, 2, 4}, {dtype = "i64"})):item()
    assert(math.abs(at - x:cross_entropy(hot:to "f32"):item()) < 1e-6)
  end)
end)

describe("bce_loss", function()
  it("refuses values that are not probabilities", function()
    local refused = require "spec.support.expect".refused
    local target = flare.tensor {0, 1}
    refused("bce_loss: x must be probabilities from 0 to 1, got 3; bce_with_logits takes logits",
      flare.bce_loss, flare.tensor {0.5, 3}, target)
    refused("got -2; bce_with_logits", nn.BCELoss(), flare.tensor {-2, 0.5}, target)
    assert.equal(0, flare.bce_loss(target, target):item())
    refused("from 0 to 1, got", flare.bce_loss, flare.tensor {0.5, 0 / 0}, target)
  end)

  it("refuses them late, by the line of the call, on a device that runs later", function()
    local target = flare.tensor({0, 1}, {device = "sim:0"})
    local x = flare.tensor({0.5, 3}, {device = "sim:0"})
    local line = debug.getinfo(1, "l").currentline + 2
    local ok, message = pcall(function()
      return flare.bce_loss(x, target):item() -- raises in either call
    end)
    assert.is_false(ok)
    assert.matches("bce_loss: x must be probabilities from 0 to 1, got 3; bce_with_logits takes "
      .. "logits", message, 1, true)
    assert.matches("losses_spec.lua:" .. line, message, 1, true)
  end)
end)
