-- A training step whose allocations fail, one after the other: for
-- spec/allocation_spec.lua and spec/long/allocation.lua.
local flare = require "flare"
local core, nn, optim = flare.core, flare.nn, flare.optim

local starve = {}

--- The steps to starve: a small transformer with everything around it, one with
-- convolutions, one whose gradients come from Lua.
function starve.steps()
  flare.manual_seed(1)
  local steps = {}

  local embed, block, head = nn.Embedding(11, 8), nn.TransformerBlock(8, 2, {dropout = 0.2}),
                             nn.Linear(8, 11)
  local model = nn.Sequential(embed, block, nn.LayerNorm(8), head)
  local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3})
  local x, y = flare.randint(1, 12, {2, 5}), flare.randint(1, 12, {10})
  steps.transformer = function()
    local loss = nn.functional.cross_entropy(model(x):view(-1, 11), y)
    optimizer:zero_grad()
    loss:backward()
    optim.clip_grad_norm_(model:parameters(), 1)
    optimizer:step()
    return loss:item()
  end

  local net = nn.Sequential(nn.Conv2d(1, 4, 3, {padding = 1}), nn.BatchNorm2d(4), nn.ReLU(),
                            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
  local sgd = optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
  local images = flare.rand(2, 1, 6, 6)
  steps.convolution = function()
    local loss = net(images):square():mean()
    sgd:zero_grad()
    loss:backward()
    sgd:step()
    return loss:item()
  end

  local w = flare.rand{4, 4, requires_grad = true}
  local double = core.custom("double", function(ctx, t) ctx:save(t) return t * 2 end,
                              function(ctx, dy) return dy * 2 + 0 * ctx.saved[1] end)
  steps.functions = function()
    local h = double(w)
    h:register_hook(function(g) return g * 1 end)
    local z = flare.checkpoint(function(t) return (t:matmul(t)):tanh() end, h)
    local rows = z:clone()
    rows[{1, {1, 2}}] = 0
    local top = flare.cat({rows, z}, 2):topk(2)
    top:sum():backward()
    local g = flare.grad((w * w):sum(), w, {create_graph = true})
    local second = (g * g):sum()
    second:backward()
    w:zero_grad()
    return second:item()
  end
  return steps
end

-- What is alive, after all garbage is gone.
local function alive()
  core.collect()
  return core.tensors(), core.memory.stats().live
end

--- Lets allocations of a step fail: every stride'th, in each of the modes (how many in a
-- row, -1: all that follow). Fails if a step breaks otherwise than by a clear error, leaves
-- something behind, or cannot be repeated.
-- @return how many failures were ordered, and how many became errors
function starve.run(name, step, stride, modes)
  for _ = 1, 3 do step() end
  local tensors, bytes = alive()
  local tries, errors = 0, 0
  for _, mode in ipairs(modes) do
    local n = 0
    while true do
      core.memory.fail(n, mode)
      local ok, message = pcall(step)
      local asked = core.memory.fail(0, 0)
      local where = ("%s, allocation %d, %d in a row: "):format(name, n, mode)
      tries = tries + 1
      if not ok then
        errors = errors + 1
        if not tostring(message):find("out of memory", 1, true) then
          error(where .. tostring(message), 0)
        end
      end
      local again, problem = pcall(step)
      if not again then error(where .. "the retry failed: " .. tostring(problem), 0) end
      if problem ~= problem then error(where .. "the loss is nan afterwards", 0) end
      local left, left_bytes = alive()
      if left ~= tensors or left_bytes ~= bytes then
        error(("%s%d tensors and %d bytes are left behind"):format(where, left - tensors,
          left_bytes - bytes), 0)
      end
      if ok and asked <= n then break end
      n = n + stride
    end
  end
  return tries, errors
end

return starve
