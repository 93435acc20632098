--- flare demo moe: trains one mixture of experts, and shows where its tokens, time and memory go.
local flare = require "flare"
local measure = require "flare.repl.demo.measure"
local nn = flare.nn

local M = {}

M.about = "Trains a mixture of experts, and shows the load of its experts, time and memory."
M.options = {
  experts = {8, "how many there are"}, top_k = {2, "experts of a token"}, batch = {4, "sequences"},
  seq_len = {256, "tokens of a sequence"}, d_model = {128, "numbers of a token"},
  hidden = {0, "width of an expert; 0 is 4 d-model"}, steps = {30, "of training"},
  capacity = {0.0, "most tokens of an expert, in averages; 0 is no limit"},
  bias_balance = {0.0, "step of the biases that even out the load, without a loss"},
}

-- Tokens that are crowded: few of a dozen sorts are frequent, so that a router has to be told to
-- spread them. What is to be learnt is another token of the sort.
local function sample(o, count)
  local function placed(x) return x:to(o.device):to(o.dtype) end
  local from, to = flare.randn(12, o.d_model), flare.randn(12, o.d_model)
  local sort = (flare.rand(count):pow(3) * 12):floor():clamp(0, 11):to "i64" + 1
  local x = from:index_select(1, sort) + flare.randn(count, o.d_model) * 0.3
  local y = to:index_select(1, sort)
  local shape = {o.batch, o.seq_len, o.d_model}
  return placed(x):view(shape), placed(y):view(shape)
end

local function bars(load)
  local most = math.max(1, table.unpack(load))
  for e, n in ipairs(load) do
    print(("  expert %-3d %7d  %s"):format(e, n, ("#"):rep(math.floor(n / most * 40 + 0.5))))
  end
end

local function train(layer, x, y, steps)
  local optimizer = flare.optim.AdamW(layer:parameters(), {lr = 3e-3})
  print "step     loss   balance  largest load / average"
  for k = 1, steps do
    optimizer:zero_grad()
    local error = flare.mse_loss(layer(x), y)
    ;(error + nn.moe_loss(layer)):backward()
    optimizer:step()
    if k == 1 or k == steps or k % math.max(1, steps // 4) == 0 then
      local load = layer:load():to "f64"
      local balance = layer:losses().balance
      print(("%4d  %7.4f  %8s  %.2f"):format(k, error:item(),
        balance and ("%.4f"):format(balance:item()) or "-", (load:amax() / load:mean()):item()))
    end
  end
end

local function show_figures(o, layer, x)
  local tokens, hidden = o.batch * o.seq_len, layer.hidden
  local forward = measure.seconds(function() flare.no_grad(layer, x) end)
  local function step()
    layer(x):sum():backward()
    layer:zero_grad()
  end
  local whole, work = measure.seconds(step), 6 * tokens * o.top_k * o.d_model * hidden
  print(("forward             %s, %.4g tokens/s, %.4g GFLOP/s"):format(measure.time(forward),
        tokens / forward, work / forward / 1e9))
  print(("forward, backward   %s, %.4g tokens/s, %.4g GFLOP/s"):format(measure.time(whole),
        tokens / whole, 3 * work / whole / 1e9))
  local size = x:nbytes() / x:numel()
  print(("most memory         %s; the hidden numbers of an expert for each token have %s,\n"
    .. "                    those of the chosen experts %s, of all experts %s"):format(
    measure.bytes(measure.peak(step, o.device)), measure.bytes(tokens * hidden * size),
    measure.bytes(tokens * o.top_k * hidden * size),
    measure.bytes(tokens * o.experts * hidden * size)))
  if o.profile_memory then measure.show_memory(step) end
end

--- @param o the options
function M.run(o)
  flare.manual_seed(o.seed)
  local x, y = sample(o, o.batch * o.seq_len)
  local layer = nn.MoE(o.d_model, {
    experts = o.experts, top_k = o.top_k, hidden = o.hidden > 0 and o.hidden or nil,
    capacity = o.capacity > 0 and o.capacity or nil, bias_balance = o.bias_balance,
    balance = o.bias_balance > 0 and 0 or 0.01}):to(o.device):to(o.dtype)
  local count = 0
  for _, p in ipairs(layer:parameters()) do count = count + p:numel() end
  print(("%s, %d parameters, %d tokens of %s on %s"):format(
    tostring(layer):match "^[^\n]*", count, o.batch * o.seq_len, o.dtype, o.device))
  layer(x)
  print "load before training"
  bars(layer:load():totable())
  train(layer, x, y, o.steps)
  layer(x)
  print "load after it"
  bars(layer:load():totable())
  show_figures(o, layer, x)
end

return M
