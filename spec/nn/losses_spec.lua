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

  it("TripletMarginLoss is zero when the other one is far", function()
    local far = nn.TripletMarginLoss()(x, target, fill({4, 5}, 3))
    assert.equal(0, far:item())
    local near_one = nn.TripletMarginLoss()(x, fill({4, 5}, 3), target)
    assert.is_true(near_one:item() > 1)
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
