-- Looking for a learning rate by going back; a script under the debugger; strict mode.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
flare.strict()
flare.manual_seed(11)

local x = flare.randn(256, 8)
local y = x:sum{dim = 2, keepdim = true}:tanh()
local model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
local optimizer = optim.Adam(model, {lr = 1e-3})
local run = {model = model, optimizer = optimizer, generator = flare.default_generator()}
local function train(steps)
  local loss
  for _ = 1, steps do
    local at = flare.randint(1, 257, {32})
    loss = flare.mse_loss(model(x[at]), y[at])
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
  end
  return loss:item()
end
train(20)
local s = flare.session(run)
local mark = s:mark()
local losses = {}
for k, rate in ipairs{1e-4, 1e-3, 1e-2, 1e-1} do
  s:back(mark)
  optimizer.groups[1].lr = rate
  losses[k] = train(40)
  print(rate, losses[k])
end
assert(losses[3] < losses[1])
s:back(mark)
assert(optimizer.groups[1].lr == 1e-3)
local once = train(5)
s:back(mark)
assert(train(5) == once)

local ok, why = pcall(function() return {lr = learning_rat} end) -- luacheck: ignore
assert(not ok and why:find "learning_rat", why)

-- the debugger: a script fails, is given a value, and goes on
local path = os.tmpname()
assert(flare.core.file.write_atomic(path, [[
local flare = require "flare"
local function scores(x, w)
  local z = x * 2
  return z:matmul(w)
end
local result = scores(flare.ones(2, 3), flare.ones(4, 2))
print("sum", result:sum():item())
]]))
assert(flare.core.file.write_atomic(path .. ".in", [[
:locals
z.shape
:continue z:matmul(flare.ones(3, 2))
]]))
local pipe = io.popen(("flare -d %s < %s.in 2>&1"):format(path, path))
local out = pipe:read "a"
pipe:close()
print(out)
assert(out:find "inner sizes 3 and 4 differ" and out:find "sum\t24.0")
os.remove(path)
os.remove(path .. ".in")
