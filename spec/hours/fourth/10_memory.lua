-- Less memory: what holds it, recomputation, a cap on a compiled step, scopes, a plan, a forecast.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
flare.manual_seed(10)

local Block = flare.class("Block", nn.Module)
function Block:init(width)
  self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 4 * width)
  self.down = nn.Linear(4 * width, width)
end
function Block:forward(x) return x + self.down(self.up(self.norm(x)):gelu()) end
local function make()
  flare.manual_seed(10)
  local blocks = {}
  for k = 1, 6 do blocks[k] = Block(128) end
  return nn.Sequential(table.unpack(blocks))
end
local x = flare.randn(1024, 128)

local function peak_of(f)
  collectgarbage()
  flare.memory.reset_peak()
  local before = flare.memory.stats().live
  f()
  return flare.memory.stats().peak - before
end
local model = make()
local function plain()
  model:zero_grad()
  model(x):square():mean():backward()
end
local function again()
  model:zero_grad()
  local h = x
  for _, block in ipairs(model) do h = flare.checkpoint(block, h) end
  h:square():mean():backward()
end
plain()
local grad = model[1].up.weight.grad:clone()
local a, b = peak_of(plain), peak_of(again)
print(("peak %.1f MB, with checkpoints %.1f MB"):format(a / 1e6, b / 1e6))
assert(b < 0.7 * a)
assert(model[1].up.weight.grad:eq(grad):all():item())

-- a compiled step under a cap
local capped = make()
local optimizer = optim.SGD(capped, {lr = 0.1})
local function body()
  optimizer:zero_grad()
  local loss = capped(x):square():mean()
  loss:backward()
  optimizer:step()
  return loss
end
local limit = flare.memory.stats().live + math.floor(0.8 * a)
local step = flare.compile(body, {memory = limit})
local first = step():item()
for _ = 1, 3 do step() end
print("under the cap", first, step():item(), flare.compile_stats(step).repeats)
assert(step():item() < first)

-- holders, and a scope
local big = flare.zeros(1000, 1000)
print(flare.memory.holders())
assert(flare.memory.holders():find "10_memory.lua:63")
big:close()
local before = flare.memory.stats().live
local sum = flare.scope(function()
  local y = flare.randn(500, 500)
  return (y * y):sum()
end)
assert(flare.memory.stats().live <= before + 4096 and sum:item() > 0)

-- a model that is too large to make, and what it would need
local large = flare.meta(function() return nn.Sequential(nn.Linear(40000, 40000), nn.ReLU()) end)
print(large:summary{16, 40000})
