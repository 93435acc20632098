-- That flare.plan keeps its word. limit: 10 min
-- Forty pairs of a model and caps, from roomy to far too little: what it says fits is trained
-- within the caps, on a device that computes and has the allocator of others; what a refusal says
-- would fit does, and a tenth less does not; no plan is slower than computing all values again.
local flare = require "flare"
local Measure, Model = require "flare.plan.measure", require "flare.plan.model"
local nn, core = flare.nn, flare.core
local device = "sim:0"

local function mean_square(model, x) return model(x):square():mean() end

local function perceptron()
  local list = {}
  for k = 1, 8 do
    list[k] = nn.Sequential(nn.LayerNorm(384), nn.Linear(384, 1024), nn.GELU(),
      nn.Linear(1024, 384))
  end
  return {model = nn.Sequential(list), loss = mean_square, inputs = {flare.randn(64, 384)}}
end

local function encoder()
  local list = {}
  for k = 1, 4 do
    list[k] = nn.TransformerEncoderLayer(256, 4, {hidden = 1024, causal = true, dropout = 0.1})
  end
  return {model = nn.Sequential(list), loss = mean_square, inputs = {flare.randn(8, 64, 256)}}
end

local function convolutions()
  local list = {nn.Conv2d(3, 32, 3, {padding = 1})}
  for k = 1, 5 do
    list[k + 1] = nn.Sequential(nn.Conv2d(32, 32, 3, {padding = 1}), nn.BatchNorm2d(32),
      nn.ReLU())
  end
  return {model = nn.Sequential(list), loss = mean_square, inputs = {flare.randn(16, 3, 32, 32)},
    optimizer = function(params) return flare.optim.SGD(params, {lr = 0.1, momentum = 0.9}) end}
end

local function language()
  local model = flare.models.LlamaForCausalLM {vocab_size = 2048, hidden_size = 256,
    intermediate_size = 768, num_hidden_layers = 6, num_attention_heads = 4,
    num_key_value_heads = 2, max_position_embeddings = 128, tie_word_embeddings = false}
  return {model = model:to "bf16", loss = function(net, ids) return net:loss(ids) end,
    inputs = {(flare.rand(8, 32) * 2048):floor():to "i64"}}
end

local function mixed()
  return {model = nn.Sequential(nn.Linear(512, 2048), nn.Tanh(), nn.Linear(2048, 512), nn.Tanh(),
    nn.Linear(512, 512), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)),
    loss = mean_square, inputs = {flare.randn(96, 512)}, optimizer = "Lion"}
end

local function clear()
  core.memory.limit(0, device)
  flare.synchronize(device)
  collectgarbage()
  collectgarbage()
  core.memory.flush(device)
end

-- A step under the plan stays within the caps.
local function train(plan, step)
  clear()
  local before = core.memory.stats(device).reserved
  core.memory.reset_peak(device)
  for _ = 1, 2 do
    local loss = plan(step.inputs[1]):item()
    assert(loss == loss and loss < math.huge)
  end
  local peak = core.memory.stats(device).peak_reserved - before
  assert(peak <= plan.cap, ("%d of %d"):format(peak, plan.cap))
  assert(plan.executor.traffic.host <= plan.host)
end

-- All values computed again, everything on the device: where that fits, the plan is no slower.
local function compare(plan, rounds)
  local config = Measure.uniform(plan.found, {parameters = "device", gradients = "device",
    states = "device", saved = "recompute", input = "device"}, rounds)
  local figures = plan.figures(plan.step.rows / rounds)
  if Model.memory(figures, config) < 0.9 * plan.cap - (8 << 20) then
    assert(plan.fits and plan.seconds <= Model.time(figures, config, plan.link) * (1 + 1e-9))
  end
end

-- What the refusal says would fit does, and a tenth less does not.
local function check_refusal(plan, step, caps)
  local text = tostring(plan)
  local key, value = text:match 'it would fit with (%a+) = "(%d+)MiB"'
  assert(key, text)
  local function with(n)
    local changed = {device = caps.device, host = caps.host, on = device, rounds = caps.rounds}
    changed[key] = math.floor(n) .. "MiB"
    return flare.plan(step, changed).fits
  end
  assert(with(tonumber(value)), text)
  assert(not with(0.9 * tonumber(value)), text)
end

local pairs_of = {
  {"a perceptron", perceptron}, {"an encoder", encoder}, {"convolutions", convolutions},
  {"a language model", language}, {"layers of many sizes", mixed},
}
local fitting, refused, failed = 0, 0, 0

-- A pair.
local function check(name, make, caps)
  clear()
  local step = make()
  local plan
  local ok, why = pcall(function()
    plan = flare.plan(step, caps)
    compare(plan, caps.rounds or 1)
    if plan.fits then train(plan, step)
    else check_refusal(plan, step, caps) end
    assert(not caps.rounds or not plan.fits or plan.config.rounds == caps.rounds)
  end)
  if plan and plan.fits then fitting = fitting + 1 else refused = refused + 1 end
  if not ok then
    failed = failed + 1
    print(("%s, device %d MiB, host %s: %s"):format(name, caps.device >> 20, caps.host, why))
  end
end

for _, entry in ipairs(pairs_of) do
  local name, make = entry[1], entry[2]
  flare.manual_seed(3)
  local step = make()
  local most = flare.plan(step, {device = "4GiB", on = device}).peak
  local need = flare.plan(step, {device = "1MiB", on = device}).short.need
  local devices = {most + (32 << 20), most + (8 << 20), (most + need) // 2 + (4 << 20),
    need + (2 << 20), need * 6 // 10}
  for k, cap in ipairs(devices) do
    check(name, make, {device = cap, host = "1GiB", on = device})
    local frugal = k == 3 and "2MiB" or k == 4 and "1MiB"
    if frugal then check(name, make, {device = cap, host = frugal, on = device}) end
  end
  check(name, make, {device = most + (8 << 20), host = "1GiB", on = device, rounds = 2})
end
clear()

local right = fitting + refused == 40 and fitting >= 20 and refused >= 8 and failed == 0
print(("figure: %d plans fit, %d are refused, %d are wrong%s"):format(fitting, refused, failed,
  right and "" or ": FAILED"))
os.exit(right and 0 or 1)
