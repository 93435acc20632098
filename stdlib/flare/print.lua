--- Tensors as text: the elements in nested brackets, long dims cut to three at each end, and a line
-- with dtype, shape, device and the operator that made the tensor.
local core = require "flare.core"
local options = require "flare.options"

local M = {}

local MANY = 240  -- elements; more, and dims longer than twice the edge are cut

local defaults = {digits = 4, edge = 3, width = options.none, scientific = options.none}
local settings = {digits = 4, edge = 3}

--- How tensors are printed from now on; options that are left out get their defaults.
--
--     flare.printing{digits = 8, edge = 5}
--     flare.printing() -- as in the beginning
-- @param opts {digits = 4, edge = 3, width, scientific}: `digits` are significant ones, `edge` is
--   the number of elements at each end of a dim that is cut, `width` the columns of a line, by
--   default those of the terminal at the prompt and 80 elsewhere. `scientific = true` writes an
--   exponent with all numbers, false writes all with as many decimals
-- @return the options that were in use before, for flare.printing
function M.printing(opts)
  local o = options.check("printing", opts, defaults)
  local function whole(name, least)
    if o[name] ~= nil and (math.type(o[name]) ~= "integer" or o[name] < least) then
      require("flare.fail")("printing: %s must be an integer of at least %d, got %s", name, least,
                            tostring(o[name]))
    end
  end
  whole("digits", 1)
  whole("edge", 1)
  whole("width", 20)
  if o.scientific ~= nil and type(o.scientific) ~= "boolean" then
    require("flare.fail")("printing: scientific must be true or false, got %s",
                          tostring(o.scientific))
  end
  local before = settings
  settings = o
  return before
end

-- The columns of a line. `M.terminal` is what the prompt has found.
local function width_of_line()
  return settings.width or M.terminal or 80
end

local function number_text(value, form)
  if type(value) == "table" then -- a complex number
    local im = number_text(value[2], form)
    return number_text(value[1], form) .. (im:find "^-" and im or "+" .. im) .. "i"
  end
  if type(value) == "boolean" then return tostring(value) end
  if math.type(value) == "integer" then return ("%d"):format(value) end
  if value ~= value then return "nan" end
  return core.format(form, value)
end

-- The largest finite magnitude of the numbers in nested lists.
local function largest(list)
  if type(list) ~= "table" then
    local size = type(list) == "number" and math.abs(list) or 0
    return size == size and size < math.huge and size or 0
  end
  local most = 0
  for _, inner in ipairs(list) do most = math.max(most, largest(inner)) end
  return most
end

-- The format of floats: with a fixed number of decimals, the largest has the digits asked for.
local function form_of(list)
  if settings.scientific == true then return ("%%.%de"):format(settings.digits - 1) end
  if settings.scientific == false then
    local most = largest(list)
    local before = most >= 1 and math.floor(math.log(most, 10)) + 1 or 1
    return ("%%.%df"):format(math.max(0, settings.digits - before))
  end
  return ("%%.%dg"):format(settings.digits)
end

-- The shown elements as nested lists. They are selected on the tensor's device, so that a large
-- tensor is not copied to the host. `cut[d]` is true for dims that were cut.
local function shown(x)
  local _ <close> = core.no_grad()
  local shape, cut, edge = x.shape, {}, settings.edge
  local y = x:detach()
  if x:numel() > MANY then
    for d, size in ipairs(shape) do
      if size > 2 * edge then
        cut[d] = true
        y = core.cat({y:narrow(d, 1, edge), y:narrow(d, size - edge + 1, edge)}, d)
      end
    end
  end
  return y:to("cpu"):tolist(), cut
end

-- Turns all numbers into texts of one width, in place; returns the width.
local function texts(list, depth, ndim, form)
  local widest = 0
  for i, item in ipairs(list) do
    if depth < ndim then
      widest = math.max(widest, texts(item, depth + 1, ndim, form))
    else
      list[i] = number_text(item, form)
      widest = math.max(widest, #list[i])
    end
  end
  return widest
end

-- A row: items separated by commas, broken when the line is full.
local function row(list, width, cut, indent)
  local lines, line = {}, "["
  local room = width_of_line() - 4
  for i, text in ipairs(list) do
    local item = (" "):rep(width - #text) .. text
    if i < #list then item = item .. "," end
    if cut and i == settings.edge then item = item .. " ...," end
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
    if cut[depth] and i == settings.edge then parts[#parts + 1] = "..." .. gap end
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
  local form = form_of(list)
  if ndim == 0 then return number_text(list, form) .. "\n" .. footer end
  local width = texts(list, 1, ndim, form)
  return nested(list, 1, ndim, width, cut) .. "\n" .. footer
end

return M
