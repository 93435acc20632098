-- A loss becomes NaN: where from? Then a profile, a log, a curve and a page about the run.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
flare.manual_seed(1)

local Net = flare.class("Net", nn.Module)
function Net:init()
  self.inner = nn.Linear(4, 8)
  self.outer = nn.Linear(8, 1)
end
function Net:forward(x)
  local h = self.inner(x)
  return self.outer((h - h:amax()):log())
end

local model = Net()
local loss = model(flare.randn(16, 4)):mean()
assert(loss:isnan():item())
local ok, message = pcall(function()
  flare.anomaly(function() return model(flare.randn(16, 4)):mean() end)
end)
print(ok, message)
assert(not ok and message:find "log" and message:find "03_find_nan.lua:13", message)

function Net:forward(x) return self.outer(self.inner(x):relu()) end

local folder = os.tmpname()
os.remove(folder)
assert(flare.core.file.mkdir(folder))
local report = flare.log.report{title = "after the repair"}
local log = assert(flare.log.metrics(folder .. "/metrics.jsonl"))
local optimizer = optim.SGD(model, {lr = 0.05, momentum = 0.9})
local x = flare.randn(64, 4)
local y = x:sum{dim = 2, keepdim = true}
local bar = flare.log.progress{total = 60, label = "training"}
for step = 1, 60 do
  loss = flare.mse_loss(model(x), y)
  optimizer:zero_grad()
  loss:backward()
  local norm = optim.clip_grad_norm_(model, 5)
  optimizer:step()
  log:write{step = step, loss = loss, norm = norm}
  bar:update(step, {loss = loss})
end
bar:finish()
log:close()
report:options{lr = 0.05}
assert(report:save(folder .. "/run.html"))
local rows = flare.log.read_metrics(folder .. "/metrics.jsonl")
print(#rows, rows[60].loss)
assert(rows[60].loss < rows[1].loss / 4)
print(flare.log.curve(folder .. "/metrics.jsonl", {keys = {"loss"}, height = 5}))
assert(flare.core.file.read(folder .. "/run.html"):find "after the repair")
local profile = flare.profile(function() model(x):mean():backward() end)
print(profile:text{by = "line", floor = false, most = 3})
print(flare.mse_loss(model(x), y):graph())
print(x:describe())
os.execute("rm -r " .. folder)
