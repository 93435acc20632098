--- What is in a tensor, in figures.
local core = require "flare.core"
local options = require "flare.options"

local M = {}

local function text(value)
  if value ~= value then return "nan" end
  return core.format("%.4g", value)
end

--- The figures that describe a tensor's elements: how many there are, mean and standard deviation,
-- the smallest and largest, quartiles, and how many are zero, NaN or infinite. The others are of
-- the finite elements alone.
--
--     print(flare.randn(1000):describe())
-- @param x a tensor of real numbers
-- @return a text of several lines
function M.describe(x)
  if not core.is_tensor(x) then
    require("flare.fail")("describe: a tensor is expected, got %s", options.kind(x))
  end
  if x.dtype:find "^c%d" then
    require("flare.fail")("describe: real numbers are expected, got %s", x.dtype)
  end
  local _ <close> = core.no_grad()
  local flat = x:detach():to("f64"):reshape(x:numel())
  local rows = {{"elements", ("%d, %s %s on %s"):format(x:numel(), x.dtype, x.shape, x.device)}}
  local finite = flat:isfinite()
  local good = flat:masked_select(finite)
  local count = good:numel()
  if count > 0 then
    rows[#rows + 1] = {"mean", text(good:mean():item())}
    if count > 1 then rows[#rows + 1] = {"std", text(good:std():item())} end
    rows[#rows + 1] = {"min", text(good:min():item())}
    for _, part in ipairs {25, 50, 75} do
      rows[#rows + 1] = {part .. "%", text(good:quantile(part / 100):item())}
    end
    rows[#rows + 1] = {"max", text(good:max():item())}
    rows[#rows + 1] = {"zero", ("%d"):format(count - good:count_nonzero():item())}
  end
  if count < x:numel() then
    local nan = flat:isnan():count_nonzero():item()
    rows[#rows + 1] = {"nan", ("%d"):format(nan)}
    rows[#rows + 1] = {"infinite", ("%d"):format(x:numel() - count - nan)}
  end
  for i, row in ipairs(rows) do rows[i] = ("%-8s  %s"):format(row[1], row[2]) end
  return table.concat(rows, "\n")
end

return M
