--- Modules as text: the tree that tostring gives, and the table of summary.
local core = require "flare.core"
local fail = require "flare.fail"

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
      fail("summary: input %d must be a shape like {32, 784} or a tensor, got %s", i, type(given))
    end
  end
  if #inputs == 0 then fail("summary: give the shape of the input, like {32, 784}") end
  return inputs
end

--- Layers in the order in which they run, with output shapes and parameter counts.
-- Runs forward in meta mode: no memory, no arithmetic.
function M.summary(module, ...)
  local rows, handles = {}, {}
  for name, inner in module:named_modules() do
    handles[#handles + 1] = inner:register_forward_hook(function(_, _, y)
      rows[#rows + 1] = {name == "" and "(whole)" or name, name_of(inner), shape_text(y),
                         thousands(own_count(inner))}
    end)
  end
  local arguments = table.pack(...)
  local ok, message = pcall(function()
    local _ <close> = core.no_grad()
    local _ <close> = core.meta()
    module(table.unpack(inputs_of(table.unpack(arguments, 1, arguments.n))))
  end)
  for _, handle in ipairs(handles) do handle:remove() end
  if not ok then error(message, 0) end
  table.insert(rows, 1, {"name", "layer", "output", "parameters"})
  local widths = {0, 0, 0, 0}
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do widths[i] = math.max(widths[i], #cell) end
  end
  local lines = {}
  for _, row in ipairs(rows) do
    local format = ("%%-%ds  %%-%ds  %%-%ds  %%%ds"):format(table.unpack(widths))
    lines[#lines + 1] = format:format(table.unpack(row))
  end
  lines[#lines + 1] = ("%s parameters, %.1f MB in f32"):format(thousands(module:count()),
                                                              module:count() * 4 / 2 ^ 20)
  return table.concat(lines, "\n")
end

return M
