-- An optimizer of one's own, layer-wise rates, a schedule in Lua, recomputation, frozen layers that
-- thaw, and a run that resumes bit for bit.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data

-- sign descent with momentum
local SignSGD = flare.class("SignSGD", optim.Optimizer)
SignSGD.defaults = {lr = 1e-3, momentum = 0.9}
function SignSGD:moments() return 1 end
function SignSGD:update(group, xs, _, _)
  local n = #xs // 3
  for k = 1, n do
    local p, g, m = xs[k], xs[n + k], xs[2 * n + k]
    m:mul_(group.momentum):add_(g * (1 - group.momentum))
    p:sub_(m:sign() * group.lr)
  end
end

local x, y = data.digits(400)
local function make()
  flare.manual_seed(8)
  local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32, {act = "relu"}), nn.Dropout(0.1),
    nn.Linear(32, 32, {act = "relu"}), nn.Linear(32, 10))
  local groups = {}
  for k, layer in ipairs{model[2], model[4], model[5]} do
    groups[k] = {params = layer:parameters(), lr = 2e-3 * 0.7 ^ (3 - k)}
  end
  local optimizer = SignSGD(groups)
  return {model = model, optimizer = optimizer, generator = flare.default_generator(),
    schedule = optim.LambdaLR(optimizer, {f = function(t) return 1 / (1 + t / 10) end}),
    loader = data.Loader(data.Tensors(x, y), {batch = 40, shuffle = true, seed = 3})}
end
local function epoch(run)
  local last
  for a, b in run.loader:epoch() do
    local h = flare.checkpoint(function(z)
      return run.model[3](run.model[2](run.model[1](z)))
    end, a)
    local loss = flare.cross_entropy(run.model[5](run.model[4](h)), b)
    run.optimizer:zero_grad()
    loss:backward()
    run.optimizer:step()
    last = loss:item()
  end
  run.schedule:step()
  return last
end

local run = make()
local first = epoch(run)
local folder = os.tmpname()
os.remove(folder)
local checkpoints = assert(flare.io.Checkpoint(folder))
assert(checkpoints:save(1, run))
local straight
for _ = 2, 5 do straight = epoch(run) end
print(first, straight, run.schedule:lr())
assert(straight < first)

local again = make()
local saved = assert(assert(flare.io.Checkpoint(folder)):load())
checkpoints:restore(saved, again)
local resumed
for _ = 2, 5 do resumed = epoch(again) end
print(resumed)
assert(resumed == straight)
os.execute("rm -r " .. folder)

-- frozen, then thawed
local model = run.model
model[2]:freeze()
local before = model[2].weight:clone()
local opt = optim.SGD(model, {lr = 0.1})
local function step()
  opt:zero_grad()
  flare.cross_entropy(model(x), y):backward()
  opt:step()
end
step()
assert(model[2].weight:eq(before):all():item())
for _, p in ipairs(model[2]:parameters()) do p:requires_grad_() end
step()
assert(not model[2].weight:eq(before):all():item())
print "ok"
