-- Layers over dims of space against figures computed by PyTorch 2.11 from the same inputs.
local flare = require "flare"
local nn = flare.nn
local F = nn.functional
local support = require "spec.support.fill"
local message = require "spec.support.expect".message
local fill, near = support.fill, support.near

local x, s = fill({1, 1, 5, 4}, 1), fill({1, 1, 3, 2}, 2)

describe("pooling", function()
  it("takes the largest to a size, power means, and goes back", function()
    local y, at = x:max_pool{kernel = {2}, all = true}
    near(nn.AdaptiveMaxPool2d{3, 2}(x), {
      0.9916648, 0.3115414, 0.9893582, 0.6629692, 0.8591618, 0.986772})
    near(nn.LPPool2d(2, 2)(x), {
      1.782051, 0.7829054, 1.747862, 1.155373})
    near(nn.LPPool1d(3, 2, {stride = 1})(x[1]:abs()), {
      1.086723, 0.6755157, 0.6119219, 1.175335, 0.9052334, 0.4353285, 1.165569, 1.080027,
      0.6629808, 1.059139, 1.173215, 0.8950061, 0.8747362, 1.168396, 1.073131})
    near(nn.MaxUnpool2d(2)(y, at), {
      0.9916648, 0, 0, 0, 0, 0, 0, 0.3115414, 0, 0.9893582, 0.6629692, 0, 0, 0, 0, 0})
    near(nn.MaxUnpool2d(2)(y, at, {5, 4}), {
      0.9916648, 0, 0, 0, 0, 0, 0, 0.3115414, 0, 0.9893582, 0.6629692, 0, 0, 0, 0, 0, 0, 0, 0,
      0})

    assert.equal("(1, 2, 2)", tostring(nn.AdaptiveMaxPool2d(2)(x[1]).shape)) -- no batch
  end)
end)

describe("layers over space", function()
  it("change sizes and forms", function()
    local p = fill({1, 4, 1, 2}, 3)
    near(nn.Upsample{scale = 2}(s), {
      0.4273799, 0.4273799, -0.2555411, -0.2555411, 0.4273799, 0.4273799, -0.2555411,
      -0.2555411, -0.8182771, -0.8182771, -0.9961646, -0.9961646, -0.8182771, -0.8182771,
      -0.9961646, -0.9961646, -0.7055403, -0.7055403, -0.0830894, -0.0830894, -0.7055403,
      -0.7055403, -0.0830894, -0.0830894})
    near(nn.Upsample{size = {2, 3}, mode = "linear", align_corners = true}(s), {
      0.4273799, 0.08591939, -0.2555411, -0.7055403, -0.3943149, -0.0830894})
    near(nn.Upsample{size = 4, mode = "cubic"}(s), {
      0.5926399, 0.3538527, -0.03944395, -0.2782312, -0.3345589, -0.4832441, -0.7281374,
      -0.8768226, -0.932012, -0.8768947, -0.7861133, -0.730996, -0.7691563, -0.5434092,
      -0.1715905, 0.05415661})
    near(nn.Unfold(2, {stride = 2})(x), {
      0.9916648, 0.04158066, 0.8504366, 0.6629692, 0.6754632, -0.6118579, 0.9893582,
      0.02477543, -0.9775301, -0.3738767, -0.6250706, -0.8754522, -0.8834547, 0.3115414,
      -0.9809362, -0.3582293})
    near(nn.Fold({5, 4}, {2, 3})(nn.Unfold{2, 3}(x)), {
      0.9916648, 1.350926, 0.08316132, -0.6118579, -1.95506, -3.533819, -1.495507, 0.6230827,
      1.700873, 3.957433, 2.651877, 0.04955085, -1.250141, -3.923745, -3.501809, -0.7164586,
      0.3274744, 1.718324, 1.973544, 0.6502878})
    local each = {dilation = {2, 1}, padding = {0, 1}, stride = {1, 2}} -- one for each dim
    near(nn.Fold({5, 4}, {2, 3}, each)(nn.Unfold({2, 3}, each)(x)), {
      0.9916648, 1.350926, 0.04158066, -0.6118579, -0.9775301, -1.766909, -0.3738767, 0.3115414,
      1.700873, 3.957433, 1.325938, 0.04955085, -0.6250706, -1.961872, -0.8754522, -0.3582293,
      0.3274744, 1.718324, 0.986772, 0.6502878})
    near(nn.Pad({1, 0, 0, 1}, {mode = "reflect"})(s), {
      -0.2555411, 0.4273799, -0.2555411, -0.9961646, -0.8182771, -0.9961646, -0.0830894,
      -0.7055403, -0.0830894, -0.9961646, -0.8182771, -0.9961646})
    near(nn.Pad(1, {value = 2})(s), {
      2, 2, 2, 2, 2, 0.4273799, -0.2555411, 2, 2, -0.8182771, -0.9961646, 2, 2, -0.7055403,
      -0.0830894, 2, 2, 2, 2, 2})
    near(nn.PixelShuffle(2)(p), {
      -0.5298361, -0.9258147, -0.9516021, -0.4646022, 0.21512, 0.9989413, 0.7936679,
      0.7343971})
    near(nn.PixelUnshuffle(2)(x[{{}, {}, {1, 4}}]), {
      0.9916648, 0.04158066, 0.8504366, 0.6629692, 0.6754632, -0.6118579, 0.9893582,
      0.02477543, -0.9775301, -0.3738767, -0.6250706, -0.8754522, -0.8834547, 0.3115414,
      -0.9809362, -0.3582293})
    near(nn.ChannelShuffle(2)(p), {
      -0.5298361, -0.9516021, 0.21512, 0.7936679, -0.9258147, -0.4646022, 0.9989413,
      0.7343971})
    assert.equal("(1, 2, 2, 1, 2)", tostring(nn.Unflatten(2, {2, -1})(p).shape))
    assert.match("scale=2, mode=nearest", tostring(nn.Sequential(nn.Upsample{scale = 2})))
  end)

  it("report errors", function()
    assert.match("give a size or a scale", message(nn.Upsample, {}))
    assert.match("factor should be an integer above 0, got 1.5", message(nn.PixelShuffle, 1.5))
    assert.match("did you mean 'stride'", message(nn.Unfold, 2, {strde = 2}))
  end)
end)

describe("affine_grid", function()
  it("makes the grid of an affine map", function()
    local theta = fill({1, 2, 3}, 1)
    near(F.affine_grid(theta, {1, 1, 2, 3}), {
      -0.9572608, 0.01321566, -0.2961509, -0.3946896, 0.3649589, -0.8025949, -0.2817976,
      -0.9643145, 0.3793123, -1.37222, 1.040422, -1.780125})
    near(F.affine_grid(theta, {1, 1, 2, 3}, {align_corners = true}), {
      -1.625547, 0.7059334, -0.6338825, 0.09407546, 0.3577823, -0.5177824, -0.274621,
      -1.249127, 0.7170438, -1.860985, 1.708709, -2.472843})
    near(F.affine_grid(fill({1, 3, 4}, 2), {1, 1, 1, 2, 2}), {
      -1.082084, 1.362235, -1.484972, -0.6547041, 0.6566942, -0.5827998, -1.337625, 1.279145,
      -1.072853, -0.9102452, 0.5736048, -0.1706813})
    assert.match("do not fit", message(F.affine_grid, theta, {1, 1, 2}))
  end)
end)
