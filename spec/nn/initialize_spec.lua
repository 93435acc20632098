-- First values of weights against the formulas of the papers, and of layers against what PyTorch's
-- documentation states for each.
local flare = require "flare"
local nn = flare.nn
local init = nn.init
local message = require "spec.support.expect".message

local function close(got, want, share)
  assert(math.abs(got - want) <= share * math.max(math.abs(want), 1e-12),
         ("%g, not %g"):format(got, want))
end

-- Uniform between two bounds: both are nearly reached and never passed, and the variance fits.
local function is_uniform(x, low, high)
  x = x:detach():double()
  local span = high - low
  assert.is_true(x:amin():item() >= low and x:amax():item() <= high)
  close(x:amin():item(), low, 0.02 * math.max(1, span / math.max(math.abs(low), 1e-12)))
  close(x:amax():item(), high, 0.02)
  close(x:std():item(), span / math.sqrt(12), 0.03)
end

local function is_normal(x, mean, std)
  x = x:detach():double()
  assert.is_true(math.abs(x:mean():item() - mean) < 0.05 * std)
  close(x:std():item(), std, 0.03)
  -- a share of 4.55 % beyond two standard deviations, as no uniform distribution has it
  close((x - mean):abs():gt(2 * std):double():mean():item(), 0.0455, 0.25)
end

-- The scale of He et al., arXiv:1502.01852: gain / sqrt(fan), gain^2 = 2 / (1 + slope^2).
local function he(slope, fan) return math.sqrt(2 / (1 + slope ^ 2) / fan) end

-- The scale of Glorot and Bengio 2010: sqrt(2 / (fan in + fan out)).
local function glorot(fan_in, fan_out) return math.sqrt(2 / (fan_in + fan_out)) end

describe("nn.init", function()
  before_each(function() flare.manual_seed(11) end)

  it("kaiming_ is kaiming_uniform_ and kaiming_normal_ of PyTorch, with their defaults", function()
    local w, conv = flare.empty(120, 80), flare.empty(32, 16, 3, 5)
    local root = math.sqrt(3)
    init.kaiming_(w)
    is_uniform(w, -root * he(0, 80), root * he(0, 80))
    init.kaiming_(w, {mode = "out", act = "relu"})
    is_uniform(w, -root * he(0, 120), root * he(0, 120))
    init.kaiming_(w, {mode = "fan_out", slope = 0.5})
    is_uniform(w, -root * he(0.5, 120), root * he(0.5, 120))
    init.kaiming_(w, {normal = true, act = "tanh"})
    is_normal(w, 0, 5 / 3 / math.sqrt(80))
    init.kaiming_(conv, {normal = true})
    is_normal(conv, 0, he(0, 16 * 15))
    init.kaiming_(conv, {normal = true, mode = "out"})
    is_normal(conv, 0, he(0, 32 * 15))
    assert.match("mode is 'in' or 'out', got 'fan_up'",
                 message(init.kaiming_, w, {mode = "fan_up"}))
  end)

  it("xavier_ is xavier_uniform_ and xavier_normal_", function()
    local w, conv = flare.empty(120, 80), flare.empty(32, 16, 3, 5)
    local bound = math.sqrt(6 / 200)
    is_uniform(init.xavier_(w), -bound, bound)
    is_uniform(init.xavier_(w, {gain = 2}), -2 * bound, 2 * bound)
    is_normal(init.xavier_(w, {normal = true}), 0, glorot(80, 120))
    is_normal(init.xavier_(conv, {normal = true, gain = 3}), 0, 3 * glorot(240, 480))
  end)

  it("uniform_, normal_, constant_, zeros_, ones_ have PyTorch's defaults", function()
    local w = flare.empty(100, 100)
    is_uniform(init.uniform_(w), 0, 1)
    is_uniform(init.uniform_(w, {low = -3, high = -1}), -3, -1)
    is_normal(init.normal_(w), 0, 1)
    is_normal(init.normal_(w, {mean = 2, std = 0.1}), 2, 0.1)
    assert.is_true(init.constant_(w, {value = 0.5}):eq(0.5):all():item())
    assert.is_true(init.zeros_(w):eq(0):all():item() and init.ones_(w):eq(1):all():item())
  end)

  it("truncated_normal_ is cut in standard deviations, or where trunc_normal_ cuts", function()
    local w = flare.empty(200, 200)
    init.truncated_normal_(w, {mean = 1, std = 0.1})
    assert.is_true((w - 1):abs():amax():item() <= 0.2 + 1e-6)
    close(w:std():item(), 0.0880, 0.02) -- of a normal one cut at 2: 0.8796 of its own
    init.truncated_normal_(w, {std = 0.02, low = -2, high = 2})
    is_normal(w, 0, 0.02)
    init.truncated_normal_(w, {low = 0, high = 1})
    assert.is_true(w:amin():item() >= 0 and w:amax():item() <= 1)
    -- mean of the normal density over [0, 1]: (f(0) - f(1)) / (F(1) - F(0))
    close(w:mean():item(), (0.398942 - 0.241971) / 0.341345, 0.02)
    init.truncated_normal_(w, {low = 1})
    assert.is_true(w:amin():item() >= 1)
    close(w:mean():item(), 0.241971 / 0.158655, 0.02)
    assert.match("low below high", message(init.truncated_normal_, w, {low = 2, high = 1}))
  end)

  it("orthogonal_ has orthonormal rows or columns, also of a window", function()
    for _, shape in ipairs {{6, 20}, {20, 6}, {6, 4, 5}} do
      local w = init.orthogonal_(flare.empty(shape), {gain = 2}):double():view(shape[1], -1)
      if w:size(1) > w:size(2) then w = w:t() end
      local gram = w:matmul(w:t())
      assert.is_true((gram - flare.eye(#w):double() * 4):abs():amax():item() < 1e-5)
    end
  end)

  it("sparse_ has ceil(sparsity * rows) zeros in each column", function()
    local w = init.sparse_(flare.empty(33, 50), {sparsity = 0.3, std = 2})
    for _, zeros in ipairs(w:eq(0):to("i64"):sum(1):totable()) do assert.equal(10, zeros) end
    close(w:square():sum():item() / (50 * 23), 4, 0.2)
  end)

  it("gain is calculate_gain", function()
    local want = {linear = 1, conv1d = 1, conv2d = 1, conv3d = 1, sigmoid = 1, tanh = 5 / 3,
                  relu = math.sqrt(2), selu = 3 / 4, leaky_relu = math.sqrt(2 / (1 + 0.01 ^ 2))}
    for name, value in pairs(want) do close(init.gain(name), value, 1e-12) end
    close(init.gain("leaky_relu", 0.2), math.sqrt(2 / 1.04), 1e-12)
    assert.match("did you mean 'tanh'", message(init.gain, "tahn"))
    assert.match("the slope must be a number", message(init.gain, "leaky_relu", "a"))
  end)

  it("makes and fills in f16 and bf16 as well", function()
    for _, dtype in ipairs {"f16", "bf16"} do
      is_uniform(init.uniform_(flare.empty({100, 100}, {dtype = dtype}), {low = -1}), -1, 1)
      is_normal(init.kaiming_(flare.empty({100, 100}, {dtype = dtype}), {normal = true}), 0,
                he(0, 100))
    end
  end)
end)

describe("first values of", function()
  before_each(function() flare.manual_seed(5) end)

  -- layer, and for each of its tensors the bound of a uniform distribution
  local function root(n) return 1 / math.sqrt(n) end
  local cases = {
    Linear = {function() return nn.Linear(90, 200) end, {weight = root(90), bias = root(90)}},
    Bilinear = {function() return nn.Bilinear(20, 30, 50) end,
                {weight = root(20), bias = root(20)}},
    Conv1d = {function() return nn.Conv1d(12, 60, 7) end, {weight = root(84), bias = root(84)}},
    Conv2d = {function() return nn.Conv2d(12, 60, 5, {groups = 4}) end,
              {weight = root(75), bias = root(75)}},
    Conv3d = {function() return nn.Conv3d(4, 60, 3) end, {weight = root(108), bias = root(108)}},
    ConvTranspose2d = {function() return nn.ConvTranspose2d(50, 60, 3) end,
                       {weight = root(540), bias = root(540)}},
    RNN = {function() return nn.RNN(40, 64) end,
           {weight_ih_l1 = root(64), weight_hh_l1 = root(64), bias_ih_l1 = root(64)}},
    LSTM = {function() return nn.LSTM(40, 64, {projection = 16}) end,
            {weight_ih_l1 = root(64), weight_hh_l1 = root(64), weight_hr_l1 = root(64)}},
    GRUCell = {function() return nn.GRUCell(40, 64) end,
               {weight_ih = root(64), weight_hh = root(64), bias_hh = root(64)}},
    MultiHeadAttention = {function() return nn.MultiHeadAttention(64, 4) end,
      {["q.weight"] = math.sqrt(6 / (4 * 64)), ["v.weight"] = math.sqrt(6 / (4 * 64)),
       ["out.weight"] = root(64)}},
    ["MultiHeadAttention over a memory"] = {
      function() return nn.MultiHeadAttention(64, 4, {memory = 96}) end,
      {["q.weight"] = math.sqrt(6 / 128), ["k.weight"] = math.sqrt(6 / 160)}},
    Transformer = {function()
      return nn.Transformer(64, 4, {encoder = 1, decoder = 1, hidden = 128})
    end, {["encoder.layers.1.self_attn.q.weight"] = math.sqrt(6 / (4 * 64)),
          ["encoder.layers.1.linear1.weight"] = math.sqrt(6 / (64 + 128))}},
  }
  for name, case in pairs(cases) do
    it(name .. " are PyTorch's", function()
      local state = case[1]():state_dict()
      for field, bound in pairs(case[2]) do
        local w = assert(state[field], field):double()
        assert.is_true(w:abs():amax():item() <= bound + 1e-9, field)
        close(w:square():mean():sqrt():item(), bound / math.sqrt(3), 4 / math.sqrt(w:numel()))
      end
    end)
  end

  it("Embedding are normal, a padding row 0; norms begin as the identity, PReLU at 1/4", function()
    local layer = nn.Embedding(200, 50, {padding = 3})
    is_normal(layer.weight:detach()[{{4, 200}}], 0, 1)
    assert.is_true(layer.weight:detach()[3]:eq(0):all():item())
    is_normal(nn.EmbeddingBag(200, 50).weight, 0, 1)
    for _, norm in ipairs {nn.LayerNorm(4), nn.BatchNorm2d(4), nn.GroupNorm(2, 4)} do
      assert.is_true(norm.weight:eq(1):all():item() and norm.bias:eq(0):all():item())
    end
    assert.equal(0.25, nn.PReLU().weight:item())
    for name, p in nn.MultiHeadAttention(8, 2):named_parameters() do
      if name:find "bias" then assert.is_true(p:eq(0):all():item()) end
    end
  end)
end)
