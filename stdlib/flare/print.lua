--- Tensors as text: the elements in nested brackets, long dims cut to three at each end, and a line
-- with dtype, shape, device and the operator that made the tensor.
local core = require "flare.core"

local M = {}

local MANY = 240  -- elements; more, and dims longer than 2 * EDGE are cut
local EDGE = 3
local WIDTH = 80

local function number_text(value)
  if type(value) == "table" then -- a complex number
    local im = number_text(value[2])
    return number_text(value[1]) .. (im:find "^-" and im or "+" .. im) .. "i"
  end
  if type(value) == "boolean" then return tostring(value) end
  if math.type(value) == "integer" then return ("%d"):format(value) end
  if value ~= value then return "nan" end
  return core.format("%.4g", value)
end

-- The shown elements as nested lists. They are selected on the tensor's device, so that a large
-- tensor is not copied to the host. `cut[d]` is true for dims that were cut.
local function shown(x)
  local _ <close> = core.no_grad()
  local shape, cut = x.shape, {}
  local y = x:detach()
  if x:numel() > MANY then
    for d, size in ipairs(shape) do
      if size > 2 * EDGE then
        cut[d] = true
        y = core.cat({y:narrow(d, 1, EDGE), y:narrow(d, size - EDGE + 1, EDGE)}, d)
      end
    end
  end
  return y:to("cpu"):tolist(), cut
end

-- Turns all numbers into texts of one width, in place; returns the width.
local function texts(list, depth, ndim)
  local widest = 0
  for i, item in ipairs(list) do
    if depth < ndim then
      widest = math.max(widest, texts(item, depth + 1, ndim))
    else
      list[i] = number_text(item)
      widest = math.max(widest, #list[i])
    end
  end
  return widest
end

-- A row: items separated by commas, broken when the line is full.
local function row(list, width, cut, indent)
  local lines, line = {}, "["
  local room = WIDTH - 4
  for i, text in ipairs(list) do
    local item = (" "):rep(width - #text) .. text
    if i < #list then item = item .. "," end
    if cut and i == EDGE then item = item .. " ...," end
    local gap = line == "[" and "" or " "
    if #indent + #line + #gap + #item > room and line ~= "[" then
      lines[#lines + 1] = line
      line, gap = indent .. " ", ""
    end
    line = line .. gap .. item
  end
  lines[#lines + 1] = line .. "]"
  return table.concat(lines, "\n")
end

local function nested(list, depth, ndim, width, cut)
  local indent = (" "):rep(depth - 1)
  if depth == ndim then return row(list, width, cut[depth], indent) end
  local gap = ("\n"):rep(ndim - depth) .. indent .. " "
  local parts = {"["}
  for i, inner in ipairs(list) do
    parts[#parts + 1] = nested(inner, depth + 1, ndim, width, cut)
    if i < #list then parts[#parts + 1] = "," .. gap end
    if cut[depth] and i == EDGE then parts[#parts + 1] = "..." .. gap end
  end
  parts[#parts + 1] = "]"
  return table.concat(parts)
end

--- The last line: "flare.tensor f32 [2 x 3] cpu grad_fn=mul".
function M.footer(x)
  local parts = {"flare.tensor", x.dtype, "[" .. table.concat(x.shape, " x ") .. "]", x.device}
  if x.grad_fn then
    parts[#parts + 1] = "grad_fn=" .. x.grad_fn
  elseif x.requires_grad then
    parts[#parts + 1] = "requires_grad"
  end
  return table.concat(parts, " ")
end

--- The result of tostring for a tensor.
function M.format(x)
  local footer = M.footer(x)
  if x:numel() == 0 then return "[]\n" .. footer end
  local ok, list, cut = pcall(shown, x)
  if not ok then
    -- a meta tensor, or a device that has failed: prints the reason in place of the elements
    local reason = tostring(list):gsub("^[^\n]-:%d+: ", "")
    return ("(%s)\n%s"):format(reason, footer)
  end
  local ndim = x.ndim
  if ndim == 0 then return number_text(list) .. "\n" .. footer end
  local width = texts(list, 1, ndim)
  return nested(list, 1, ndim, width, cut) .. "\n" .. footer
end

return M
