-- A sweep: a script with options and a config file, run several times, its logs compared.
local flare = require "flare"
local file = flare.core.file
local folder = os.tmpname()
os.remove(folder)
assert(file.mkdir(folder))
assert(file.write_atomic(folder .. "/fit.lua", [==[
local flare = require "flare"
local o = flare.args(arg, "Fits a network.", {lr = {0.1, "learning rate"}, width = 8, steps = 50,
  optimizer = "sgd", quiet = false, out = "metrics.jsonl"})
flare.manual_seed(1)
local nn = flare.nn
local model = nn.Sequential(nn.Linear(2, o.width, {act = "tanh"}), nn.Linear(o.width, 1))
local make = {sgd = flare.optim.SGD, adam = flare.optim.Adam}
local optimizer = make[o.optimizer](model, {lr = o.lr})
local log = assert(flare.log.metrics(o.out))
local x = flare.randn(128, 2)
local y = (x:select(2, 1) * x:select(2, 2)):unsqueeze(2)
for step = 1, o.steps do
  local loss = flare.mse_loss(model(x), y)
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  log:write{step = step, loss = loss}
end
log:close()
if not o.quiet then print("done", o.lr, o.width, o.optimizer) end
]==]))
assert(file.write_atomic(folder .. "/base.json", '{"steps": 80, "optimizer": "adam"}'))
local function run(options)
  local pipe = io.popen(("cd %s && flare fit.lua %s 2>&1"):format(folder, options))
  local out = pipe:read "a"
  pipe:close()
  return out
end

print(run "--help")
assert(run "--help":find "learning rate")
assert(run "--width eight":find "width")
assert(run "--optimiser sgd":find "optimizer")
local results = {}
for _, lr in ipairs{0.003, 0.03} do
  for _, width in ipairs{4, 32} do
    local name = ("lr-%g-width-%d.jsonl"):format(lr, width)
    local out = run(("--config base.json --lr %g --width %d --out %s"):format(lr, width, name))
    assert(out:find "done", out)
    local rows = assert(flare.log.read_metrics(folder .. "/" .. name))
    assert(#rows == 80)
    results[#results + 1] = {lr = lr, width = width, loss = rows[#rows].loss}
  end
end
table.sort(results, function(a, b) return a.loss < b.loss end)
for _, r in ipairs(results) do print(r.lr, r.width, r.loss) end
assert(results[1].lr == 0.03 and results[1].width == 32)
assert(run "--config base.json --quiet" == "")
local paths = {}
for _, name in ipairs(file.list(folder)) do
  if name:find "^lr" then paths[#paths + 1] = folder .. "/" .. name end
end
assert(#paths == 4)
print(flare.log.curve(paths[1], {keys = {"loss"}, height = 4}))
os.execute("rm -r " .. folder)
