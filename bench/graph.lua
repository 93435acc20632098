-- Short programs at once, compiled, and as graphs of launches: microseconds a call, the best of
-- five times thirty. `flare bench/graph.lua DEVICE`, "cuda" by default.
local flare = require "flare"
local nn = flare.nn
local device = arg[1] or "cuda"
flare.set_default_device(device)

local function time(f, ...)
  for _ = 1, 20 do f(...) end
  flare.synchronize()
  local best = math.huge
  for _ = 1, 5 do
    local start = flare.clock()
    for _ = 1, 30 do f(...) end
    flare.synchronize()
    best = math.min(best, (flare.clock() - start) / 30)
  end
  return best * 1e6
end

-- {name, a function that makes the function, the shape of its input}
local programs = {
  {"MLP 4 x 256, batch 32", function()
    local net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
      nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)):to(device)
    return function(x) return flare.no_grad(net, x) end
  end, {32, 256}},
  {"its training step, SGD", function()
    local net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
      nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)):to(device)
    local opt = flare.optim.SGD(net:parameters(), {lr = 1e-4})
    return function(x)
      opt:zero_grad()
      local loss = (net(x) - x):square():mean()
      loss:backward()
      opt:step()
      return loss
    end
  end, {32, 256}},
  {"12 blocks of width 256, 8 tokens", function()
    local blocks = {}
    for i = 1, 12 do
      blocks[i] = {nn.LayerNorm(256):to(device), nn.Linear(256, 1024):to(device),
                   nn.Linear(1024, 256):to(device)}
    end
    return function(x)
      return flare.no_grad(function()
        for _, b in ipairs(blocks) do x = x + b[3](b[2](b[1](x)):gelu()) end
        return x
      end)
    end
  end, {8, 256}},
}

print("| program | launches | at once | compiled | graph | compiled graph |")
print("|---|--:|--:|--:|--:|--:|")
for _, program in ipairs(programs) do
  local name, make, shape = table.unpack(program)
  local x = flare.randn(shape)
  local plain, compiled = make(), flare.compile(make(), {wait = true})
  local graph, both = flare.cuda.graph(make(), x), flare.cuda.graph(flare.compile(make()), x)
  print(("| %s | %d, %d | %.1f | %.1f | %.1f | %.1f |"):format(name, graph:stats().launches,
    both:stats().launches, time(plain, x), time(compiled, x), time(graph, x), time(both, x)))
end
