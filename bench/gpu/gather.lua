-- Reads and sums at positions, written with plain operators, on a GPU: at once and compiled, after
-- a comparison of both; microseconds a call. bench/peers/gather.py has the same in PyTorch.
-- `flare bench/gpu/gather.lua`.
local flare = require "flare"
local device = arg[1] or "cuda"
local small = device ~= "cuda"
flare.set_default_device(device)
flare.manual_seed(1)

local function ids(n, ...)
  return (flare.rand({...}) * n):floor():clamp(0, n - 1):to "i64" + 1
end

local function time(f)
  for _ = 1, 5 do f() end
  flare.synchronize()
  local best = math.huge
  for _ = 1, 5 do
    local start = flare.clock()
    for _ = 1, 10 do f() end
    flare.synchronize()
    best = math.min(best, (flare.clock() - start) / 10)
  end
  return best * 1e6
end

-- Whether results differ by more than the order of sums explains.
local function differ(want, got)
  local off, most = (want:to "f64" - got:to "f64"):abs():max():item(), want:abs():max():item()
  return off > 1e-4 * (1 + most) and ("%.3g of %.3g"):format(off, most)
end

local nodes, edges, heads, size = 65536, 1048576, 4, 64
if small then nodes, edges, size = 64, 256, 8 end
local width = heads * size
local source, target = ids(nodes, edges), ids(nodes, edges)
local h, score = flare.randn({nodes, width}), flare.randn({edges, heads})
local total, dy = flare.rand({nodes, heads}) + 1, flare.randn({nodes, width})
local by_head = target:unsqueeze(2):expand(edges, heads)
local by_width = target:unsqueeze(2):expand(edges, width)
local rows, batch, bag = small and 100 or 100000, small and 32 or 8192, 32
local tables, words = flare.randn({rows, 128}), ids(rows, batch, bag)
local grads = flare.randn({batch, bag, 128})
local experts, tokens = small and 32 or 16384, small and 64 or 32768
local slots = ids(experts, tokens)
local x, gate = flare.randn({experts, 1024}), flare.rand({tokens, 1})
local logits, label = flare.randn({experts, 1024}), ids(1024, experts, 1)

local functions = {
  {"messages to nodes", function()
    local weight = score:exp() / (total:gather(1, by_head) + 1e-16)
    local message = h:index_select(1, source):view(edges, heads, size) * weight:unsqueeze(3)
    return flare.zeros({nodes, width}):scatter_add(1, by_width, message:view(edges, width))
  end},
  {"gradients of messages", function()
    local d = dy:gather(1, by_width):view(edges, heads, size)
    local of = h:index_select(1, source):view(edges, heads, size)
    return (d * of):sum(3)
  end},
  {"sums of gradients", function()
    local d = dy:gather(1, by_width):view(edges, heads, size)
    return flare.zeros({nodes, width}):index_add(1, source,
      (d * score:unsqueeze(3)):view(edges, width))
  end},
  {"softmax of segments", function()
    local e = (score - 1):exp()
    return e / (flare.zeros({nodes, heads}):scatter_add(1, by_head, e):gather(1, by_head) + 1e-16)
  end},
  {"mean of embeddings", function() return flare.embedding(tables, words):mean(2) end},
  {"gradient of a table", function()
    local t = tables:detach():requires_grad_()
    local y = flare.embedding(t, words)
    return flare.grad((y * grads):sum(), t)
  end},
  {"routing to experts", function() return x:index_select(1, slots) * gate end},
  {"routing back", function()
    return flare.zeros({experts, 1024}):index_add(1, slots, (x:index_select(1, slots) * 2) * gate)
  end},
  {"loss of labels", function() return logits:log_softmax(2):gather(2, label):neg():mean() end},
}

local failed = false
for _, f in ipairs(functions) do
  local compiled, want = flare.compile(f[2], {wait = true}), f[2]()
  local off
  for _ = 1, 3 do off = off or differ(want, compiled()) end
  failed = failed or off
  local stats = flare.compile_stats(compiled)
  local eager, fused = time(f[2]), time(compiled)
  print(("%-22s eager %9.1f us  compiled %9.1f us  %5.2fx  %2d -> %d kernels%s"):format(f[1], eager,
    fused, eager / fused, stats.launches, stats.kernels, off and "  WRONG: " .. off or ""))
end
local bad = source:clone()
bad[7] = nodes + 1
local compiled = flare.compile(function(at) return (h * 2):index_select(1, at) + 1 end,
  {wait = true})
for _ = 1, 3 do compiled(source) end
local ok, why = pcall(function() return compiled(bad):sum():item() end)
local said = ("index_select: position %d is out of range 1..%d"):format(nodes + 1, nodes)
failed = failed or ok or not why:find(said, 1, true)
print(not ok and why or "WRONG: a bad position is not reported")
print(failed and "FAIL" or "PASS")
os.exit(not failed)
