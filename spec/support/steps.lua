-- Training steps of small models, for specs of compiled functions. Each takes a device and returns
-- {step, parameters}; a step ends without gradients, so all steps begin with the same memory.
local flare = require "flare"
local nn = flare.nn
local F = nn.functional

local M = {}

local function trained(forward, parameters, optimizer)
  return {
    parameters = parameters,
    step = function()
      local loss = forward()
      loss:backward()
      optimizer:step()
      for _, p in ipairs(parameters) do p.grad = nil end
      return loss
    end,
  }
end

local function labels(n, device)
  return flare.range(1, n, {dtype = "i64", device = device}) * 7 % 10 + 1
end

function M.mlp(device)
  flare.manual_seed(1)
  local net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 256),
    nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 10)):to{device = device}
  local x, y = flare.randn(512, 64, {device = device}), labels(512, device)
  local parameters = net:parameters()
  return trained(function() return F.cross_entropy(net(x), y) end, parameters,
    flare.optim.AdamW(parameters, {lr = 1e-3}))
end

function M.conv(device)
  flare.manual_seed(2)
  local layers, channels = {}, 3
  for _ = 1, 4 do
    layers[#layers + 1] = nn.Conv2d(channels, 16, 3, {padding = 1, bias = false})
    layers[#layers + 1] = nn.BatchNorm2d(16)
    layers[#layers + 1] = nn.ReLU()
    channels = 16
  end
  local net = nn.Sequential(table.unpack(layers)):to{device = device}
  local head = nn.Linear(16, 10):to{device = device}
  local x, y = flare.randn(16, 3, 16, 16, {device = device}), labels(16, device)
  local parameters = net:parameters()
  for _, p in ipairs(head:parameters()) do parameters[#parameters + 1] = p end
  return trained(function() return F.cross_entropy(head(net(x):mean{3, 4}), y) end, parameters,
    flare.optim.SGD(parameters, {lr = 1e-2, momentum = 0.9}))
end

local WIDE, LONG, BATCH, WORDS, HEADS = 64, 32, 4, 128, 4

-- A decoder with pre-norm, GELU and dropout, `depth` blocks deep.
function M.gpt(device, depth)
  flare.manual_seed(3)
  local parameters, blocks = {}, {}
  local function on(module)
    module:to{device = device}
    for _, p in ipairs(module:parameters()) do parameters[#parameters + 1] = p end
    return module
  end
  local words, places = on(nn.Embedding(WORDS, WIDE)), on(nn.Embedding(LONG, WIDE))
  local head = on(nn.Linear(WIDE, WORDS, {bias = false}))
  for k = 1, depth or 6 do
    blocks[k] = {
      before = on(nn.LayerNorm(WIDE)), qkv = on(nn.Linear(WIDE, 3 * WIDE)),
      out = on(nn.Linear(WIDE, WIDE)), between = on(nn.LayerNorm(WIDE)),
      up = on(nn.Linear(WIDE, 4 * WIDE)), down = on(nn.Linear(4 * WIDE, WIDE)),
    }
  end
  local ids = (flare.range(1, BATCH * LONG, {dtype = "i64", device = device}) * 7 % WORDS + 1)
    :view(BATCH, LONG)
  local at = flare.range(1, LONG, {dtype = "i64", device = device})
  local function attend(b, x)
    local qkv = b.qkv(b.before(x)):view(BATCH, LONG, 3, HEADS, WIDE // HEADS)
    local function part(k) return qkv[{{}, {}, k}]:transpose(2, 3) end
    local y = F.attention(part(1), part(2), part(3), {causal = true})
    return b.out(y:transpose(2, 3):reshape(BATCH, LONG, WIDE))
  end
  local function forward()
    local x = words(ids) + places(at)
    for _, b in ipairs(blocks) do
      x = x + attend(b, x)
      x = x + F.dropout(b.down(b.up(b.between(x)):gelu()), 0.1)
    end
    return F.cross_entropy(head(x):view(BATCH * LONG, WORDS), ids:view(BATCH * LONG))
  end
  return trained(forward, parameters, flare.optim.AdamW(parameters, {lr = 1e-3}))
end

return M
