-- The tables of docs/from-pytorch.md: each call that stands there runs, and what its words claim
-- about results holds.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
local tree = require "spec.support.tree"

local page = tree.read "docs/from-pytorch.md"

-- The values of names that calls on the page use, made anew for each call.
local function values()
  local x = flare.linspace(1, 12, 12):view(3, 4)
  local parameter = flare.ones(2, 2, {requires_grad = true})
  local v = {
    x = x, y = x + 1, a = x * 2, b = x * 3, w = x + 0.5, v = 1, n = 5, q = x + 1,
    i = flare.tensor({1, 2}, {dtype = "i64"}), flare = flare,
    mask = x:gt(6), index = flare.tensor({1, 2}, {dtype = "i64"}), g = flare.generator(1),
    f = function(t) return t end, alpha = x, rate = x, mean = flare.zeros(3), std = flare.ones(3),
    model = nn.Linear(4, 4), layer = nn.Linear(4, 4), self = nn.Module(), tensor = flare.ones(2),
    params = {parameter}, p = {parameter}, optimizer = optim.SGD({parameter}, {lr = 1}),
    set = data.Tensors(flare.ones(8, 2)), list = {flare.ones(2, 3), flare.ones(4, 3)},
  }
  v.j = v.i
  return v
end

-- What single calls need instead: the beginning of the call, and values.
local special = {
  {"x:matmul(y)", function() return {y = flare.ones(4, 2)} end},
  {"x:item()", function() return {x = flare.ones(1)} end},
  {"flare.cat({a, b}", function() return {} end},
  {"x:select_scatter", function() return {y = flare.ones(4)} end},
  {"x:slice_scatter", function() return {y = flare.ones(2, 4)} end},
  {"x:diagonal_scatter", function() return {y = flare.ones(3)} end},
  {"flare.ormqr", function()
    local a, tau = flare.randn(3, 3):geqrf()
    return {a = a, tau = tau, c = flare.ones(3, 2)}
  end},
  {"flare.conv", function()
    return {x = flare.ones(1, 2, 5, 5), w = flare.ones(4, 2, 3, 3), b = flare.ones(4)}
  end},
  {"flare.grouped_mm", function()
    return {a = flare.ones(4, 3), b = flare.ones(2, 3, 2),
            ends = flare.tensor({1, 4}, {dtype = "i64"})}
  end},
  {"flare.im2col", function() return {x = flare.ones(1, 2, 5, 5)} end},
  {"flare.interpolate", function() return {x = flare.ones(1, 2, 5, 5)} end},
  {"x:unfold", function() return {dim = 2, size = 2, step = 1} end},
  {"flare.from_dlpack", function() return {capsule = flare.ones(2):to_dlpack()} end},
  {"flare.nn.measure_norms", function()
    local set = data.Tensors(flare.randn(8, 2))
    return {model = nn.BatchNorm1d(2), loader = data.Loader(set, {batch = 4})}
  end},
  {"layer:weights", function()
    return {layer = nn.MultiHeadAttention(4, 2), x = flare.ones(1, 3, 4),
            memory = flare.ones(1, 2, 4)}
  end},
  {"layer(x, flare.arange", function()
    return {layer = nn.TransformerEncoderLayer(8, 2), x = flare.ones(2, 3, 8), time = 3, batch = 2,
            lengths = flare.tensor {1, 3}}
  end},
  {"layer(x, mask)", function()
    return {layer = nn.TransformerEncoderLayer(8, 2), x = flare.ones(2, 3, 8),
            mask = flare.ones(3, 3):gt(0)}
  end},
  {"flare.nn.TransformerEncoder(", function()
    return {layer = nn.TransformerEncoderLayer(8, 2), norm = nn.LayerNorm(8)}
  end},
  {"flare.nn.remove_parametrization", function()
    return {layer = nn.weight_norm(nn.Linear(2, 2))}
  end},
  {"flare.nn.prune({a, b}", function() return {a = nn.Linear(2, 2), b = nn.Linear(2, 2)} end},
  {"lstm(x, {", function()
    return {lstm = nn.LSTM(3, 5), x = flare.ones(4, 2, 3), lengths = {4, 2}}
  end},
  {"y, h, c = lstm", function() return {lstm = nn.LSTM(3, 5), x = flare.ones(4, 2, 3)} end},
  {"flare.distributions.Weibull", function() return {scale = 1, shape = 2} end},
  {"flare.distributions.TransformedDistribution", function()
    return {d = flare.distributions.Normal(0, 1)}
  end},
  {"flare.optim.LambdaLR", function()
    local list = {{params = {flare.ones(1, {requires_grad = true})}},
                  {params = {flare.ones(1, {requires_grad = true})}}}
    return {optimizer = optim.SGD(list), f = function() return 1 end, g = function() return 1 end}
  end},
  {"flare.optim.SequentialLR", function(v)
    return {a = optim.ConstantLR(v.optimizer), b = optim.ExponentialLR(v.optimizer, {gamma = 1})}
  end},
  {"flare.optim.ChainedLR", function(v)
    return {a = optim.ConstantLR(v.optimizer), b = optim.ExponentialLR(v.optimizer, {gamma = 1})}
  end},
  {"flare.data.Loader(set, {batch = 8, weights", function() return {w = flare.ones(8)} end},
  {"flare.data.Concat", function(v) return {a = v.set, b = v.set} end},
  {"flare.nn.init.", function() return {w = flare.empty(4, 4)} end},
}

-- Need a GPU, several processes, or are patterns rather than calls.
local left_out = {['x:to("cuda")'] = true, ["assert(...)"] = true, ["set:get(i)"] = true,
                  ["flare.nn.sync_norms(model, group)"] = true}

local function run(code)
  local v = values()
  for _, case in ipairs(special) do
    if code:sub(1, #case[1]) == case[1] then
      for key, value in pairs(case[2](v)) do v[key] = value end
    end
  end
  local chunk = load("return " .. code, "=" .. code, "t", setmetatable(v, {__index = _G}))
    or assert(load(code, "=" .. code, "t", setmetatable(v, {__index = _G})))
  return chunk()
end

describe("docs/from-pytorch.md", function()
  local n = 0
  for line in page:gmatch "[^\n]+" do
    for code in (line:match "^|.-[^\\]|(.*)|$" or ""):gmatch "`([^`]+)`" do
      local is_call = code:find "[%(%[=]" and not code:find "^{" and not left_out[code]
      if is_call then
        n = n + 1
        it("runs " .. code, function() run(code) end)
      end
    end
  end

  it("has calls", function() assert.is_true(n > 80) end)

  -- What rows say beyond the names.
  local function rms(w) return w:detach():double():square():mean():sqrt():item() end
  local claims = {
    ["kaiming_uniform_(w)"] = function()
      return math.abs(rms(run "flare.nn.init.kaiming_(flare.empty(200, 100))") - 0.02 ^ 0.5) < 3e-3
    end,
    ["trunc_normal_(w, std=0.02)"] = function()
      local w = flare.empty(200, 100)
      nn.init.truncated_normal_(w, {std = 0.02, low = -2, high = 2})
      return math.abs(rms(w) - 0.02) < 1e-3
    end,
    ["x.max(dim=1)"] = function()
      local most, where = flare.tensor({{1, 5}, {7, 2}}):max(2)
      return most:equal(flare.tensor {5, 7}) and where:tolist()[1] == 2
    end,
    ["int64"] = function() return flare.tensor {1, 2}.dtype == "f32" end,
    ["x[1:3]"] = function()
      return flare.arange(0, 4)[{{2, 3}}]:equal(flare.tensor({1, 2}, {dtype = "i64"}))
    end,
    ["True is left out"] = function()
      local layer, x = nn.TransformerEncoderLayer(8, 2):eval(), flare.randn(1, 3, 8)
      local mask = flare.ones(3, 3):tril():gt(0) -- true: let through
      local y, z = layer(x, mask), layer(x:narrow(2, 1, 1), nil)
      return (y:narrow(2, 1, 1) - z):abs():amax():item() < 1e-5
    end,
    ["y is 0 behind each end"] = function()
      local y = nn.LSTM(3, 5)(flare.ones(4, 2, 3), {lengths = {4, 2}})
      return y[{{3, 4}, 2}]:eq(0):all():item() and not y[{4, 1}]:eq(0):all():item()
    end,
    ["the batch is always first"] = function()
      return tostring(nn.TransformerEncoderLayer(8, 2)(flare.ones(5, 3, 8)).shape) == "(5, 3, 8)"
    end,
    ["is the highest"] = function()
      local opt = optim.SGD({flare.ones(1, {requires_grad = true})}, {lr = 0.1})
      local schedule, most = optim.OneCycleLR(opt, {total = 10}), 0
      for _ = 1, 10 do
        most = math.max(most, schedule:lr())
        schedule:step()
      end
      return math.abs(most - 0.1) < 1e-9
    end,
    ["freeze()"] = function()
      local w = flare.randn(4, 2)
      local layer = nn.Embedding(#w, w:size(2), {weight = w}):freeze()
      return layer.weight:equal(w) and not layer.weight.requires_grad
    end,
    ["momentum=None"] = function()
      local norm = nn.BatchNorm1d(1, {cumulative = true})
      norm(flare.tensor {{1}, {3}})
      norm(flare.tensor {{5}, {7}})
      return math.abs(norm.running_mean:item() - 4) < 1e-5
    end,
    ["AveragedModel"] = function()
      local p = flare.zeros(1, {requires_grad = true})
      local mean = optim.EMA({p}, {mean = true})
      for k = 1, 4 do
        flare.no_grad(function() p:fill_(k) end)
        mean:update()
      end
      return math.abs(mean.averages[1]:item() - 2.5) < 1e-6
    end,
  }
  for words, holds in pairs(claims) do
    it("is right about " .. words, function()
      assert(page:find(words, 1, true), "the page does not say this any more")
      assert.is_true(holds())
    end)
  end
end)
