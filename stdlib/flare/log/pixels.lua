--- Images as bytes in rows.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

-- Images beside each other: as many columns as rows, or one more.
local function grid(x)
  local n = #x
  local columns = math.ceil(n ^ 0.5)
  local rows = {}
  for first = 1, n, columns do
    local row = {}
    for k = first, first + columns - 1 do
      row[#row + 1] = k <= n and x:select(1, k) or core.zeros_like(x:select(1, 1))
    end
    rows[#rows + 1] = core.cat(row, 3)
  end
  return core.cat(rows, 2)
end

--- @param x (H, W), (C, H, W) with 1, 3 or 4 channels, or (N, C, H, W), which become a grid; floats
-- from 0 to 1, or u8
-- @return (H, W, C) u8 on the CPU
return function(x)
  options.tensor("image", "an image", x)
  local _ <close> = core.no_grad()
  local shape = tostring(x.shape)
  x = x:detach():cpu()
  if x.dtype ~= "u8" then
    x = (x:to("f32"):nan_to_num():clamp{min = 0, max = 1} * 255 + 0.5):floor():to "u8"
  end
  if x:dim() == 2 then x = x:unsqueeze(1) end
  if x:dim() == 4 and x:numel() > 0 then x = grid(x) end
  local channels = x:dim() == 3 and x:size(1)
  if channels ~= 1 and channels ~= 3 and channels ~= 4 or x:numel() == 0 then
    fail("image: (C, H, W) with 1, 3 or 4 channels is expected, got %s", shape)
  end
  return x:permute(2, 3, 1):contiguous()
end
