--- How many elements of a tensor are in each of up to 20 ranges of one width.
local core = require "flare.core"
local pixels = require "flare.plot.pixels"

--- @return {counts = list, low =, high =, rest = elements that are not finite}, or nil and what is
-- wrong
return function(x)
  local problem = pixels.problem(x, 0, math.huge)
  if problem then return nil, problem end
  local _ <close> = core.no_grad()
  x = x:detach():to("cpu"):to("f64"):reshape(x:numel())
  local low, high = pixels.range(x)
  if not low then return nil, "a tensor with finite elements is expected" end
  local known = x:masked_select(x:isfinite())
  local bins = high > low and math.min(20, math.max(5, math.ceil(known:numel() ^ 0.5))) or 1
  local at = core.zeros_like(known)
  if bins > 1 then at = ((known / 2 - low / 2) / (high / 2 - low / 2) * bins):floor() end
  local counts = {}
  for i = 1, bins do
    counts[i] = at:clamp(0, bins - 1):eq(i - 1):to("i64"):sum():item()
  end
  return {counts = counts, low = low, high = high, rest = x:numel() - known:numel()}
end
