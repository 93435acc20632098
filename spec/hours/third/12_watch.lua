-- A run that is looked at from outside: attached, profiled, reported, at the prompt afterwards.
local flare = require "flare"
local file = flare.core.file
local folder = os.tmpname()
os.remove(folder)
assert(file.mkdir(folder))
assert(file.write_atomic(folder .. "/train.lua", [==[
local flare = require "flare"
local o = flare.args(arg, "Trains for a while.", {steps = 20, lr = 0.1})
flare.manual_seed(1)
model = flare.nn.Sequential(flare.nn.Linear(4, 8), flare.nn.Tanh(), flare.nn.Linear(8, 1))
local optimizer = flare.optim.SGD(model, {lr = o.lr})
local log = assert(flare.log.metrics "metrics.jsonl")
local x = flare.randn(64, 4)
local y = x:sum{dim = 2, keepdim = true}
local step = 0
while step < o.steps do
  step = step + 1
  local loss = flare.mse_loss(model(x), y)
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  if step % 10 == 0 then log:write{step = step, loss = loss, lr = optimizer.groups[1].lr} end
  os.execute "sleep 0.005"
end
log:close()
print("done after", step)
]==]))

local function run(command, input)
  assert(file.write_atomic(folder .. "/input", input or ""))
  local pipe = io.popen(("cd %s && { %s; } 2>&1 < input"):format(folder, command))
  local out = pipe:read "a"
  pipe:close()
  return out
end

local out = run "flare --report run.html train.lua --steps 20"
print(out:sub(1, 400))
assert(out:find "done after\t20")
assert(file.read(folder .. "/run.html"):find "loss")
out = run "flare train.lua --stepz 3"
print(out)
assert(out:find "steps")

out = run("flare -i train.lua", "#model:parameters()\n:time model(flare.ones(1, 4))\n?model\n")
print(out)
assert(out:find "\n4\n" or out:find "^4\n" or out:find "4\n")

-- attached while it runs
local pid = run("flare train.lua --steps 400 > out.txt 2>&1 & echo $!"):match "%d+"
os.execute "sleep 0.5"
out = run("flare attach " .. pid, "step > 0\noptimizer.groups[1].lr = 0.025\n:quit\n")
print(out)
assert(out:find "true")
for _ = 1, 100 do
  if (file.read(folder .. "/out.txt") or ""):find "done" then break end
  os.execute "sleep 0.1"
end
assert(file.read(folder .. "/out.txt"):find "done after\t400")
local rows = flare.log.read_metrics(folder .. "/metrics.jsonl")
print(rows[#rows].step, rows[#rows].lr)
assert(rows[#rows].lr == 0.025)
print(run "flare top metrics.jsonl --once")
os.execute("rm -r " .. folder)
