-- Saving and resuming: a run that was interrupted ends with the same weights, bit for bit.
local flare = require "flare"
flare.args(arg, "Saves a training run, resumes it, and compares the weights.")
local nn, optim = flare.nn, flare.optim

local function make()
  flare.manual_seed(3)
  local model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
  return {model = model, optimizer = optim.Adam(model:parameters(), {lr = 0.01}),
          generator = flare.default_generator()}
end

local x = flare.randn(64, 8, {generator = flare.generator(1)})
local y = x:sum{dim = 2, keepdim = true}

local function train(run, steps)
  for _ = 1, steps do
    local loss = (run.model(x) - y):square():mean()
    run.optimizer:zero_grad()
    loss:backward()
    run.optimizer:step()
  end
end

local whole = make()
train(whole, 40)

local folder = os.tmpname()
os.remove(folder)
local checkpoints = assert(flare.io.Checkpoint(folder))
local first = make()
train(first, 20)
assert(checkpoints:save(20, first, {note = "half way"}))

local second = make()
local saved = assert(checkpoints:load())
checkpoints:restore(saved, second)
print("goes on from step", saved.step, saved.note)
train(second, 20)

local same = true
for name, p in whole.model:named_parameters() do
  local q = second.model:state_dict()[name]
  same = same and p:detach():eq(q):all():item()
end
print("the same bits:", same)
