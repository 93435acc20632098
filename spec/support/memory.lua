-- What memory a piece of Lua needs: for spec/memory_spec.lua and spec/long/memory.lua.
local flare = require "flare"
local core, nn, optim, data = flare.core, flare.nn, flare.optim, flare.data

local memory = {}

local function number_after(path, word)
  local file = assert(io.open(path))
  local text = file:read "a"
  file:close()
  return tonumber(text:match(word .. ":%s+(%d+)"))
end

--- What the process has in memory, in bytes.
function memory.resident() return number_after("/proc/self/status", "VmRSS") * 1024 end

--- Runs f and measures.
-- @return the tensors' greatest number of bytes over those before, the process's likewise
function memory.peak(f)
  core.collect()
  core.memory.flush()
  core.memory.reset_peak()
  local before, resident = core.memory.stats().live, memory.resident()
  local file = io.open("/proc/self/clear_refs", "w")
  if file then
    file:write "5" -- the peak begins anew
    file:close()
  end
  f()
  local whole = number_after("/proc/self/status", "VmHWM") * 1024 - resident
  return core.memory.stats().peak - before, whole
end

--- The tensors' greatest number of bytes while f runs, all that lives counted.
function memory.needed(f)
  core.collect()
  core.memory.reset_peak()
  f()
  return core.memory.stats().peak
end

--- The same with all garbage collected before every call of a C function, and only those
-- make tensors: what exact reference counting would have needed.
function memory.exact(f)
  local getinfo = debug.getinfo
  return memory.needed(function()
    debug.sethook(function()
      if getinfo(2, "S").what == "C" then collectgarbage() end
    end, "c")
    f()
    debug.sethook()
  end)
end

--- `count` temporaries of so many bytes, one after the other.
function memory.temporaries(count, bytes)
  local x = core.zeros(bytes, {dtype = "u8"})
  for _ = 1, count do local _ = x:clone() end
end

--- The same, each closed at once.
function memory.closed(count, bytes)
  local x = core.zeros(bytes, {dtype = "u8"})
  for _ = 1, count do local _ <close> = x:clone() end
end

--- Makes temporaries on a device.
-- @return the greatest number of bytes that lived, and that were reserved
function memory.reserved(device, count, bytes)
  local x <close> = core.zeros(bytes, {dtype = "u8", device = device})
  core.collect()
  core.memory.reset_peak(device)
  for _ = 1, count do local _ = x:clone() end
  core.synchronize(device)
  local stats = core.memory.stats(device)
  return stats.peak, stats.peak_reserved
end

--- Training steps, by name, each a function that makes one.
function memory.steps()
  flare.manual_seed(1)
  local steps = {}
  local mlp = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                            nn.Linear(128, 10))
  local adam = optim.Adam(mlp:parameters(), {lr = 1e-3})
  local images, digits = flare.rand(128, 784), flare.randint(1, 11, {128})
  function steps.mlp()
    local loss = nn.functional.cross_entropy(mlp(images), digits)
    adam:zero_grad()
    loss:backward()
    adam:step()
  end
  local gpt = nn.Sequential(nn.Embedding(65, 128), nn.TransformerBlock(128, 4),
                            nn.TransformerBlock(128, 4), nn.LayerNorm(128), nn.Linear(128, 65))
  local adamw = optim.AdamW(gpt:parameters(), {lr = 1e-3})
  local tokens, targets = flare.randint(1, 66, {12, 64}), flare.randint(1, 66, {12 * 64})
  function steps.transformer()
    local loss = nn.functional.cross_entropy(gpt(tokens):view(-1, 65), targets)
    adamw:zero_grad()
    loss:backward()
    optim.clip_grad_norm_(gpt:parameters(), 1)
    adamw:step()
  end
  local w = flare.rand{512, 512, requires_grad = true}
  local x = flare.rand(512, 512)
  function steps.plain()
    local h = x
    for _ = 1, 12 do h = (h:matmul(w) * 0.01):tanh() + x end
    local loss = h:square():mean()
    loss:backward()
    flare.no_grad(function() w:sub_(w.grad * 0.1) end)
    w:zero_grad()
  end
  return steps
end

--- Goes through a chain of so many operations backward.
function memory.chain(length)
  local w = core.ones(1, {requires_grad = true})
  local y = w
  for _ = 1, length do y = y + 1 end
  y:backward()
  assert(w.grad:item() == 1 and y:item() == length + 1)
end

local function registry()
  local n = 0
  for _ in pairs(debug.getregistry()) do n = n + 1 end
  return n
end

--- Steps with hooks and functions that capture tensors, the module and the loss.
-- @return how much more there is after `count` steps than after half of them: tensors,
--   entries of the registry, bytes of the process
function memory.captured(count)
  local module = nn.Linear(4, 4)
  local optimizer = optim.SGD(module:parameters(), {lr = 1e-4})
  module.weight:register_hook(function(g)
    module.calls = (module.calls or 0) + 1
    return g
  end)
  local x = flare.rand(2, 4)
  local function step()
    local y, loss
    local f = core.custom("twice", function(ctx, t)
      ctx:save(t)
      ctx.module, ctx.me = module, ctx
      return t * 2
    end, function(ctx, dy)
      assert(ctx.module == module and y and loss)
      return dy * 2
    end)
    y = f(module(x))
    local hook = y:register_hook(function(g) return g + 0 * (y + loss) end)
    loss = y:square():mean()
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    module.last = {y, hook, loss}
  end
  local function settle()
    core.collect()
    return core.tensors(), registry(), memory.resident()
  end
  for _ = 1, count // 2 do step() end
  local tensors, entries, resident = settle()
  for _ = 1, count - count // 2 do step() end
  local tensors2, entries2, resident2 = settle()
  return tensors2 - tensors, entries2 - entries, resident2 - resident
end

--- Reads so many batches with a threaded loader.
-- @return how many more bytes the process has at the end than after a tenth of them
function memory.batches(count)
  local set = data.Tensors(flare.rand(512, 32), flare.arange(1, 513))
  local loader = data.Loader(set, {batch = 8, shuffle = true, seed = 1, workers = 2})
  local n, first = 0, nil
  for x, y in loader:forever() do
    n = n + 1
    assert(#x == #y)
    if n == count // 10 then
      core.collect()
      first = memory.resident()
    elseif n == count then
      break
    end
  end
  core.collect()
  local last = memory.resident()
  loader:close()
  return last - first
end

return memory
