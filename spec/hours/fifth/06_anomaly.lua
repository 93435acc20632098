-- Anomalies by an autoencoder: a threshold from validation; saved, and used by another process.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
flare.manual_seed(6)

local function normal(n)
  local z = flare.randn(n, 2)
  return flare.cat({z, z:sin(), z:cos(), z:prod{dim = 2, keepdim = true}}, 2)
    + 0.05 * flare.randn(n, 7)
end
local function strange(n) return flare.randn(n, 7) * 1.2 end

local model = nn.Sequential(nn.Linear(7, 32, {act = "relu"}), nn.Linear(32, 2),
  nn.Linear(2, 32, {act = "relu"}), nn.Linear(32, 7))
local x = normal(1000)
local mean, std = x:mean(1), x:std(1)
local optimizer = optim.Adam(model, {lr = 5e-3})
for _ = 1, 20 do
  for rows in data.Loader(data.Tensors(x), {batch = 50, shuffle = true}):epoch() do
    local scaled = (rows - mean) / std
    local loss = flare.mse_loss(model(scaled), scaled)
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
  end
end
local function score(rows)
  local scaled = (rows - mean) / std
  return flare.no_grad(function() return (model(scaled) - scaled):square():mean(2) end)
end
local threshold = score(normal(500)):quantile(0.95):item()
local a, b = score(normal(300)), score(strange(300))
local auroc = flare.metrics.AUROC()
auroc:update(flare.cat({a, b}, 1), flare.cat({flare.zeros(300), flare.ones(300)}, 1))
print("AUROC", auroc:compute(), "false alarms", a:gt(threshold):mean():item())
assert(auroc:compute() > 0.9 and a:gt(threshold):mean():item() < 0.12)

local path = os.tmpname()
assert(flare.save(path, {state = model:state_dict(), mean = mean, std = std, threshold = threshold,
  sizes = {7, 32, 2, 32, 7}}))
assert(flare.core.file.write_atomic(path .. ".lua", [[
local flare = require "flare"
local nn = flare.nn
local saved = assert(flare.load(arg[1]))
local s = saved.sizes
local model = nn.Sequential(nn.Linear(s[1], s[2], {act = "relu"}), nn.Linear(s[2], s[3]),
  nn.Linear(s[3], s[4], {act = "relu"}), nn.Linear(s[4], s[5]))
model:load_state_dict(saved.state):eval()
for line in io.lines() do
  local row = flare.core.json.decode(line)
  local x = (flare.tensor{row} - saved.mean) / saved.std
  local e = flare.no_grad(function() return (model(x) - x):square():mean():item() end)
  print(flare.core.json.encode{score = e, strange = e > saved.threshold})
end
]]))
local rows = {normal(1)[1]:totable(), {5, -5, 5, 5, -5, 5, -5}}
local text = flare.core.json.encode(rows[1]) .. "\n" .. flare.core.json.encode(rows[2]) .. "\n"
assert(flare.core.file.write_atomic(path .. ".in", text))
local pipe = io.popen(("flare %s.lua %s < %s.in"):format(path, path, path))
local first, second = pipe:read "l", pipe:read "l"
pipe:close()
print(first, second)
local answer = flare.core.json.decode(first)
assert(math.abs(answer.score - score(flare.tensor{rows[1]}):item()) < 1e-4)
assert(flare.core.json.decode(second).strange == true)
for _, ending in ipairs{"", ".lua", ".in"} do os.remove(path .. ending) end
