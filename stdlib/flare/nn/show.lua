--- Modules as text: the tree that tostring gives, and the table of summary.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

local function name_of(module)
  return getmetatable(module).__name or "Module"
end

-- The children of a module with their keys, also those in plain tables.
local function children(module)
  local list = {}
  for name, child in module:named_modules() do
    if name ~= "" then list[#list + 1] = {name = name, module = child} end
  end
  local direct, inside = {}, nil
  for _, entry in ipairs(list) do
    -- names are in depth-first order: the modules in a child follow it
    if not (inside and entry.name:sub(1, #inside + 1) == inside .. ".") then
      direct[#direct + 1] = entry
      inside = entry.name
    end
  end
  return direct
end

--- A line for a leaf, an indented block for a module with children.
function M.tree(module, indent)
  indent = indent or ""
  local direct = children(module)
  local head = ("%s(%s"):format(name_of(module), module:describe())
  if #direct == 0 then return head .. ")" end
  local lines = {head}
  for _, entry in ipairs(direct) do
    lines[#lines + 1] = ("%s  (%s): %s"):format(indent, entry.name,
                                               M.tree(entry.module, indent .. "  "))
  end
  lines[#lines + 1] = indent .. ")"
  return table.concat(lines, "\n")
end

local function shape_text(value)
  if core.is_tensor(value) then return "(" .. table.concat(value.shape, ", ") .. ")" end
  return type(value)
end

local function thousands(n)
  local text = tostring(n):reverse():gsub("(%d%d%d)", "%1,"):reverse()
  return (text:gsub("^,", ""))
end

-- Parameters that a module has itself, not through a child.
local function own_count(module)
  local n = module:count()
  for _, entry in ipairs(children(module)) do n = n - entry.module:count() end
  return math.max(n, 0)
end

local function inputs_of(...)
  local inputs = {}
  for i, given in ipairs{...} do
    if core.is_tensor(given) then
      inputs[i] = given
    elseif type(given) == "table" then
      inputs[i] = core.zeros(given)
    else
      fail("summary: input %d must be a shape like {32, 784} or a tensor, got %s", i,
        options.kind(given))
    end
  end
  if #inputs == 0 then fail("summary: give the shape of the input, like {32, 784}") end
  return inputs
end

-- Bytes of the tensors of a result, also in a table.
local function bytes_of(value)
  if core.is_tensor(value) then return value:nbytes() end
  local sum = 0
  if type(value) == "table" then
    for _, inner in next, value do sum = sum + bytes_of(inner) end
  end
  return sum
end

local function scaled(n, unit, step)
  local prefixes = {"", "K", "M", "G", "T", "P"}
  local i = 1
  while n >= step and prefixes[i + 1] do n, i = n / step, i + 1 end
  return (i == 1 and "%d %s%s" or "%.1f %s%s"):format(n, prefixes[i], unit)
end

-- Calls f in meta mode; the FLOPs by the path of the module that they are in, or nil while another
-- profile runs.
local function count_flops(f)
  local profiles, stop = pcall(require("flare.profile").start, {meta = true})
  local ok, message = pcall(function()
    local _ <close> = core.no_grad()
    local _ <close> = core.meta()
    f()
  end)
  local report = profiles and stop()
  if not ok then error(message, 0) end
  if not report then return nil end
  local flops = {}
  for i = 1, report.count do
    local row = report:row(i)
    flops[row.module] = (flops[row.module] or 0) + row.flops
  end
  return flops
end

local function add_flops(rows, root, flops)
  local calls, total = {}, 0
  for _, row in ipairs(rows) do calls[row.path] = (calls[row.path] or 0) + 1 end
  for _, sum in pairs(flops) do total = total + sum end
  for _, row in ipairs(rows) do
    local path = row.path == "" and root or root .. "." .. row.path
    row[#row + 1] = scaled((flops[path] or 0) / calls[row.path], "FLOP", 1000)
  end
  return total
end

local function columns(rows)
  local widths, lines = {}, {}
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do widths[i] = math.max(widths[i] or 0, #cell) end
  end
  for _, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do
      cells[i] = ((i <= 3 and "%%-%ds" or "%%%ds"):format(widths[i])):format(cell)
    end
    lines[#lines + 1] = table.concat(cells, "  ")
  end
  return lines
end

--- Layers in the order in which they run, with output shapes and bytes, parameter counts, and FLOPs
-- of a forward pass. Runs forward in meta mode: no memory, no arithmetic.
function M.summary(module, ...)
  local rows, handles, results = {}, {}, 0
  for name, inner in module:named_modules() do
    handles[#handles + 1] = inner:register_forward_hook(function(_, _, y)
      local bytes = bytes_of(y)
      if #children(inner) == 0 then results = results + bytes end
      rows[#rows + 1] = {name == "" and "(whole)" or name, name_of(inner), shape_text(y),
                         thousands(own_count(inner)), scaled(bytes, "B", 1024), path = name}
    end)
  end
  local arguments = table.pack(...)
  local ok, flops = pcall(count_flops, function()
    module(table.unpack(inputs_of(table.unpack(arguments, 1, arguments.n))))
  end)
  for _, handle in ipairs(handles) do handle:remove() end
  if not ok then error(flops, 0) end
  local total = flops and add_flops(rows, name_of(module), flops)
  table.insert(rows, 1, {"name", "layer", "output", "parameters", "bytes", flops and "FLOPs"})
  local lines = columns(rows)
  lines[#lines + 1] = ("%s parameters, %.1f MB in f32"):format(thousands(module:count()),
                                                              module:count() * 4 / 2 ^ 20)
  lines[#lines + 1] = ("a forward pass: %s%s of results"):format(
    total and scaled(total, "FLOP", 1000) .. ", " or "", scaled(results, "B", 1024))
  return table.concat(lines, "\n")
end

return M
