-- Layers against figures computed by PyTorch 2.11 from the same inputs and weights.
local flare = require "flare"
local nn = flare.nn
local support = require "spec.support.fill"
local message = require "spec.support.expect".message
local fill, near = support.fill, support.near

-- A layer in f64 with weight and bias of known values.
local function known(layer, weight, bias)
  layer:to("f64")
  if weight then layer.weight:detach():copy_(fill(layer.weight.shape, weight)) end
  if bias then layer.bias:detach():copy_(fill(layer.bias.shape, bias)) end
  return layer
end

describe("convolutions", function()
  it("Conv2d with stride, padding and groups", function()
    local layer = known(nn.Conv2d(2, 4, 3, {stride = 2, padding = 1, groups = 2}), 1, 2)
    near(layer(fill({1, 2, 5, 5}, 3)), {
      2.882805, 2.286247, 0.2853484, 3.678026, 2.005455, -0.8349162, 2.407564, 0.4985985,
      -2.247693, 2.215435, 1.643752, -0.3988871, 2.986512, 1.332653, -1.541174, 1.699656,
      -0.1665489, -2.931462, -1.511879, 1.579901, 0.5883816, 0.1646636, 2.745105, 1.373848,
      0.8049422, 2.49021, -0.1465394, -1.695447, 1.419614, 0.4522729, -0.006184196, 2.576292,
      1.208605, 0.6028798, 2.29736, -0.3229844})
  end)

  it("Conv1d with padding 'same' and a mode", function()
    local layer = known(nn.Conv1d(2, 2, 4, {padding = "same", padding_mode = "reflect"}), 1, 2)
    near(layer(fill({1, 2, 6}, 3)), {-2.183492, -2.336355, -2.215065, -0.8509921, 1.435959,
                                     3.405519, -4.369297, -3.531781, -2.045641, 0.2824114,
                                     2.519654, 3.375874})
  end)

  it("padding 'valid' is none", function()
    local layer = nn.Conv2d(1, 1, 3, {padding = "valid", padding_mode = "reflect"})
    assert.same({1, 2, 4}, {table.unpack(layer(flare.ones(1, 4, 6)).shape)})
  end)

  it("ConvTranspose2d", function()
    local layer = known(nn.ConvTranspose2d(2, 4, 3, {stride = 2, padding = 1, output_padding = 1,
                                                     groups = 2}), 1, 2)
    local y = layer(fill({1, 2, 2, 2}, 3))
    assert.same({1, 4, 4, 4}, {table.unpack(y.shape)})
    near(y:abs():sum(), {53.692820858230945})
    near(y[{1, 2}], {0.2641944, 0.8031236, 0.6779198, 0.577541, -1.042836, -0.8524598, -0.8751834,
                     -1.084632, 0.6526241, 0.8453746, 0.200204, 0.1511959, -0.5587217,
                     -0.8845316, -0.4076864, -0.6547096})
  end)

  it("take inputs without a batch, in 1 to 3 dims", function()
    assert.same({4, 3, 3, 3}, {table.unpack(nn.Conv3d(2, 4, 2)(flare.ones(2, 4, 4, 4)).shape)})
    assert.same({4, 6}, {table.unpack(nn.Conv1d(2, 4, 3)(flare.ones(2, 8)).shape)})
  end)

  it("report errors", function()
    assert.match("3 inputs and 4 outputs cannot be cut into 2",
                 message(nn.Conv2d, 3, 4, 3, {groups = 2}))
    assert.match("kernel must be a number or 2 of them, got 3", message(nn.Conv2d, 3, 4, {1, 2, 3}))
    assert.match("padding 'same' needs stride 1",
                 message(nn.Conv2d, 3, 4, 3, {padding = "same", stride = 2}))
    assert.match("did you mean 'reflect'", message(nn.Conv2d, 3, 4, 3, {padding_mode = "reflct"}))
  end)
end)

describe("pooling", function()
  local x
  before_each(function() x = fill({1, 1, 3, 3}, 1) end)

  it("takes the largest", function()
    near(nn.MaxPool2d(2, {stride = 1, padding = 1})(x), {
      0.9916648, 0.9916648, 0.6754632, 0.04158066, 0.9916648, 0.9916648, 0.6754632, 0.04158066,
      -0.3738767, 0.3115414, 0.8504366, 0.8504366, -0.3738767, 0.3115414, 0.8504366, 0.8504366})
  end)

  it("takes means", function()
    near(nn.AvgPool2d(2, {ceil = true, count_pad = false})(x),
         {0.019435, -0.420937, -0.03116765, 0.8504366})
    near(nn.AdaptiveAvgPool2d(2)(x), {0.019435, -0.2859852, -0.4129308, -0.1747517})
  end)
end)

describe("norms", function()
  it("LayerNorm, RMSNorm, GroupNorm", function()
    near(known(nn.LayerNorm(4), 2, 3)(fill({2, 4}, 1)),
         {-0.03160822, -1.118211, -0.6165068, 0.9696334, -0.9445292, -0.7506097, -1.096782,
          -2.006581})
    near(known(nn.RMSNorm(4), 2)(fill({2, 4}, 1)),
         {0.6290372, -0.2561886, -0.05049974, 0.9046467, -0.5948636, 0.3214535, 0.4356141,
          -0.4418959})
    near(known(nn.GroupNorm(2, 4), 2, 3)(fill({1, 4, 2}, 1)),
         {-0.03160822, -0.2511915, -0.8550078, -0.5836848, -0.1318282, -0.2822099, -0.6727366,
          -2.006581})
  end)

  it("BatchNorm2d measures while training and remembers for evaluation", function()
    local layer = nn.BatchNorm2d(3):to("f64")
    local x = fill({2, 3, 2, 2}, 1)
    near(layer(x)[{1, {}, 1, 1}], {1.78241, -1.52016, 1.156202})
    near(layer.running_mean, {-0.02178547, 0.0112547, 0.0005766105})
    near(layer.running_var, {0.9526251, 0.9587651, 0.9609945})
    layer:eval()
    near(layer(x)[{2, {}, 2, 2}], {-0.3447063, 0.652627, -0.88521})
    assert.match("must have 4 dims", message(layer, flare.ones(2, 3)))
  end)
end)

describe("small layers", function()
  it("Linear applies its activation", function()
    local layer = nn.Linear(2, 1, {act = "relu"})
    nn.init.constant_(layer.weight, {value = -1})
    assert.equal(0, layer(flare.ones(1, 2) * 9):item())
    assert.equal("2 -> 1, act=relu", layer:describe())
  end)

  it("Embedding counts from 1 and keeps its padding row", function()
    local layer = nn.Embedding(4, 3, {padding = 2})
    local index = flare.tensor({{1, 2}, {4, 1}}, {dtype = "i64"})
    local y = layer(index)
    assert.same({2, 2, 3}, {table.unpack(y.shape)})
    assert.same({0, 0, 0}, y[{1, 2}]:tolist())
    y:sum():backward()
    assert.same({{2, 2, 2}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}}, layer.weight.grad:tolist())
    assert.has_error(function()
      layer(flare.tensor({0}, {dtype = "i64"}))
      flare.synchronize()
    end)
  end)

  it("InstanceNorm", function()
    local y = known(nn.InstanceNorm2d(3, {affine = true}), 5, 6)(fill({2, 3, 4, 2}, 1))
    near((y * fill(y.shape, 3)):sum():detach(), {-3.634357334951928}, 1e-9)
    local plain = nn.InstanceNorm1d(3)
    assert.equal(0, #plain:parameters())
    near(plain(fill({2, 3, 5}, 1)):mean(3), {0, 0, 0, 0, 0, 0}, 1e-12)
    assert.match("InstanceNorm1d: the input must have 3 dims %(batch, 3, size...%), got %(2, 3%)",
                 message(plain, flare.ones(2, 3)))
    near(plain(fill({3, 5}, 1)), plain(fill({1, 3, 5}, 1)):view(-1):tolist(), 0)
  end)

  it("InstanceNorm keeps statistics for evaluation, if it is to", function()
    local layer = known(nn.InstanceNorm2d(3, {affine = true, track = true, momentum = 0.2}), 5, 6)
    local x = fill({2, 3, 4, 2}, 1)
    near(layer(x), known(nn.InstanceNorm2d(3, {affine = true}), 5, 6)(x):view(-1):tolist(), 0)
    near(layer.running_mean, {0.000207615206, 0.00816614614, 0.0124591534}, 1e-10)
    near(layer.running_var, {0.905351364, 0.911345568, 0.919309728}, 1e-9)
    layer:eval()
    near((layer(x) * fill(x.shape, 3)):sum():detach(), {-3.22274971}, 1e-9)
  end)

  it("GLU", function()
    near(nn.GLU(2)(fill({2, 4, 3}, 1)):abs():sum(), {4.368032311401052}, 1e-12)
    near(nn.functional.glu(fill({3, 2}, 1)), (fill({3, 2}, 1)[{{}, {1}}]
         * fill({3, 2}, 1)[{{}, {2}}]:sigmoid()):view(-1):tolist(), 1e-12)
    assert.match("dim 3 has 3 elements, which cannot be halved", message(function()
      nn.GLU(3)(flare.ones(1, 1, 3))
    end))
  end)

  it("gumbel_softmax draws classes, with a gradient", function()
    flare.manual_seed(4)
    local logits = flare.tensor({0.7, 0.2, 0.1}, {requires_grad = true}):log():expand(4000, 3)
    local soft = nn.functional.gumbel_softmax(logits, {tau = 0.5})
    near(soft:sum(2):detach(), flare.ones(4000):tolist(), 1e-5)
    near(soft:argmax(2):bincount():float() / 4000, {0.7, 0.2, 0.1}, 0.02)
    local hard = nn.functional.gumbel_softmax(logits, {hard = true})
    near(hard:detach():sort(2):sum(1), {0, 0, 4000}, 1e-5)
    assert.is_true(flare.grad(hard[{{}, 1}]:sum(), {logits}):abs():sum():item() > 1)
  end)

  it("Dropout2d takes whole channels", function()
    local layer = nn.Dropout2d(0.25)
    local y = layer(flare.ones(50, 40, 3, 2)):view(2000, 6)
    assert.is_true((y - y[{{}, {1}}]):abs():max():item() == 0)
    assert.is_true(math.abs(y:mean():item() - 1) < 0.1)
    assert.is_true(math.abs(y[{{}, 1}]:eq(0):to("f32"):mean():item() - 0.25) < 0.05)
    layer:eval()
    assert.is_true(layer(flare.ones(2, 2, 3, 3)):equal(flare.ones(2, 2, 3, 3)))
    assert.match("nn.Dropout1d: p must be", message(nn.Dropout1d, 1))
    assert.match("must have 3 dims", message(nn.Dropout1d(), flare.ones(2, 2)))
  end)

  it("Dropout keeps the mean and is off in evaluation", function()
    flare.manual_seed(1)
    local layer = nn.Dropout(0.25)
    local y = layer(flare.ones(20000))
    assert.is_true(math.abs(y:mean():item() - 1) < 0.02)
    assert.is_true(math.abs(y:eq(0):to("f32"):mean():item() - 0.25) < 0.02)
    layer:eval()
    assert.equal(1, layer(flare.ones(10)):amin():item())
    assert.match("p must be a number", message(nn.Dropout, 1.5))
  end)

  it("activations take options by name or alone", function()
    near(nn.LeakyReLU(0.5)(flare.tensor{-2, 4}), {-1, 4})
    near(nn.ELU{alpha = 2}(flare.tensor{-1, 4}), {2 * (math.exp(-1) - 1), 4})
    near(nn.Softmax(1)(flare.zeros(2, 1)), {0.5, 0.5})
    near(nn.PReLU()(flare.tensor{-4, 4}), {-1, 4})
    near(nn.Flatten()(flare.ones(2, 3, 4)).shape and flare.ones(1), {1})
    assert.match("unknown option 'slop'", message(nn.LeakyReLU, {slop = 1}))
    for name in pairs(nn) do assert.is_truthy(nn[name]) end
  end)

  it("Bilinear maps two inputs", function()
    local layer = nn.Bilinear(2, 3, 4):to("f64")
    local a, b = fill({5, 2}, 1), fill({5, 3}, 2)
    local y = layer(a, b)
    local w = layer.weight:detach()
    local expected = (a[2]:view(1, 2):matmul(w[3]) * b[2]):sum() + layer.bias:detach()[3]
    near(y[{2, 3}]:detach(), {expected:item()})
  end)

  it("the order of dims does not matter to Flatten", function()
    assert.same({2, 12}, {table.unpack(nn.Flatten()(flare.ones(2, 3, 4)).shape)})
    assert.same({24}, {table.unpack(nn.Flatten{first = 1}(flare.ones(2, 3, 4)).shape)})
  end)
end)

describe("init", function()
  it("fills with what it says", function()
    flare.manual_seed(3)
    local x = nn.init.normal({100, 100}, {mean = 1, std = 0.5})
    assert.is_true(math.abs(x:mean():item() - 1) < 0.03)
    assert.is_true(math.abs(x:std():item() - 0.5) < 0.03)
    local u = nn.init.xavier(50, 150)
    assert.is_true(u:abs():amax():item() <= math.sqrt(6 / 200) + 1e-6)
    local k = nn.init.kaiming(100, 300, {act = "relu", normal = true})
    assert.is_true(math.abs(k:std():item() - math.sqrt(2 / 300)) < 0.004)
    local t = nn.init.truncated_normal({50, 50}, {std = 0.1})
    assert.is_true(t:abs():amax():item() <= 0.2 + 1e-6)
    assert.is_true(math.abs(t:std():item() - 0.088) < 0.005)
    local q = nn.init.orthogonal(8, 20)
    near(q:matmul(q.T), flare.eye(8):view(-1):tolist(), 1e-5)
    local tall = nn.init.orthogonal(20, 8, {gain = 2})
    near(tall.T:matmul(tall), (flare.eye(8) * 4):view(-1):tolist(), 1e-5)
  end)
end)
