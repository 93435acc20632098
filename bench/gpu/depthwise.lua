-- Depthwise convolutions on a GPU, contiguous and with channels innermost, and their gradients;
-- bench/peers/gpu_depthwise.py is the peer. GB/s are of x and y, each once.
local flare = require "flare"
local m = dofile((arg[0]:match "^(.*/)" or "") .. "measure.lua")

for _, c in ipairs{{"bf16", 128, 96, 56, 7, 1}, {"bf16", 128, 192, 28, 7, 1},
                   {"bf16", 128, 384, 14, 7, 1}, {"bf16", 128, 768, 7, 7, 1},
                   {"bf16", 128, 144, 56, 3, 1}, {"bf16", 128, 144, 56, 3, 2},
                   {"bf16", 128, 240, 28, 5, 2}, {"bf16", 32, 128, 56, 31, 1},
                   {"f32", 64, 144, 56, 3, 1}, {"f32", 64, 96, 56, 7, 1}} do
  local dtype, batch, channels, side, kernel, stride = table.unpack(c)
  local options = {stride = stride, padding = kernel // 2, groups = channels}
  local name = ("%s b%d %d %d^2 k%d s%d"):format(dtype, batch, channels, side, kernel, stride)
  for _, last in ipairs{false, true} do
    local lay = last and m.last or function(x) return x end
    local x = lay(m.normal(dtype, batch, channels, side, side))
    local w = m.normal(dtype, channels, 1, kernel, kernel)
    local y = flare.conv(x, w, nil, options)
    local dy, note = lay(m.normal(dtype, table.unpack(y.shape))), last and " last" or ""
    local bytes = (x:numel() + y:numel()) * (dtype == "f32" and 4 or 2)
    m.bytes(name .. note, bytes, function() return flare.conv(x, w, nil, options) end)
    m.bytes(name .. " dx" .. note, bytes, function()
      return flare.conv_input_grad(dy, w, x.shape, options)
    end)
    m.bytes(name .. " dw" .. note, bytes, function()
      return flare.conv_weight_grad(dy, x, w.shape, options)
    end)
  end
end
