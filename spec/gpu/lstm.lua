-- us of nn.LSTM forward, and forward and backward: lines of a name and a figure, as lstm.py's.
local flare = require "flare"
local cuda = {device = "cuda"}

local function show(name, f)
  for _ = 1, 3 do f() end
  flare.synchronize()
  local start = flare.clock()
  f()
  flare.synchronize()
  local count = math.max(3, math.min(100, math.floor(0.02 / (flare.clock() - start))))
  local all = {}
  for round = 1, 5 do
    start = flare.clock()
    for _ = 1, count do f() end
    flare.synchronize()
    all[round] = (flare.clock() - start) / count * 1e6
  end
  table.sort(all)
  print(("%s\t%.1f"):format(name, all[3]))
end

for _, s in ipairs {{256, 4, 32, 128}, {50, 16, 64, 128}, {100, 32, 128, 256}, {100, 64, 512, 512},
                    {50, 8, 512, 1024}} do
  local time, batch, inputs, n = table.unpack(s)
  for _, dtype in ipairs {"f32", "bf16", "f16"} do
    local name = ("%s %s"):format(table.concat(s, "x"), dtype)
    local layer = flare.nn.LSTM(inputs, n):to "cuda":to(dtype)
    local params = layer:parameters()
    local x = flare.randn({time, batch, inputs}, cuda):to(dtype)
    local w = flare.randn({time, batch, n}, cuda):to(dtype)
    flare.no_grad(function()
      show(name, function() layer(x):close() end)
    end)
    x:requires_grad_(true)
    show(name .. " grad", function()
      x.grad = nil
      for _, p in ipairs(params) do p.grad = nil end
      local y, h, c = layer(x)
      y:backward(w)
      y:close()
      h:close()
      c:close()
    end)
  end
end
