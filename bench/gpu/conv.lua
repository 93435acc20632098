-- Convolutions on a GPU, contiguous and with channels innermost; bench/peers/gpu_conv.py is the
-- peer. "last": tensors have channels innermost; "last, weights too": the weight as well.
local flare = require "flare"
local m = dofile((arg[0]:match "^(.*/)" or "") .. "measure.lua")
local products, normal = m.products, m.normal
local function same(x) return x end

for _, c in ipairs{{"bf16", 256, 128, 28, 128, 3, 1}, {"bf16", 256, 64, 56, 64, 3, 1},
                   {"bf16", 256, 256, 14, 256, 3, 1}, {"bf16", 256, 512, 7, 512, 3, 1},
                   {"bf16", 256, 128, 56, 128, 3, 2}, {"bf16", 256, 256, 56, 64, 1, 1},
                   {"bf16", 256, 64, 56, 256, 1, 1}, {"bf16", 256, 3, 224, 64, 7, 2},
                   {"f32", 64, 128, 28, 128, 3, 1}} do
  local dtype, batch, from, side, to, kernel, stride = table.unpack(c)
  local function options() return {stride = stride, padding = kernel // 2} end
  local name = ("%s b%d %d to %d %d^2 k%d s%d"):format(dtype, batch, from, to, side, kernel, stride)
  local ways = {{"", same, same}}
  if dtype == "bf16" and from > 3 then
    ways[2], ways[3] = {" last", m.last, same}, {" last, weights too", m.last, m.last}
  end
  for _, way in ipairs(ways) do
    local note, lay, lay_weight = table.unpack(way)
    local x = lay(normal(dtype, batch, from, side, side))
    local w = lay_weight(normal(dtype, to, from, kernel, kernel))
    local y = flare.conv(x, w, nil, options())
    local dy, work = lay(normal(dtype, table.unpack(y.shape))), 2 * y:numel() * from * kernel ^ 2
    products(name .. note, work, function() return flare.conv(x, w, nil, options()) end)
    products(name .. " dx" .. note, work, function()
      return flare.conv_input_grad(dy, w, x.shape, options())
    end)
    if lay_weight == same then
      products(name .. " dw" .. note, work, function()
        return flare.conv_weight_grad(dy, x, w.shape, options())
      end)
    end
  end
end
