--- The reference page of the operators, out of their rows. Writes docs/ops.md:
--   build/flare spec/support/ops_page.lua > docs/ops.md
-- As a module: a function that gives the page's text.
local core = require "flare.core"
local rows = require "flare.help.rows"
local tree = require "spec.support.tree"

local head = [[
# Operators

Made from the rows of [runtime/ops.def](../runtime/ops.def) by `spec/support/ops_page.lua`; do not
edit. `?name` at the prompt and `flare help name` say the same.

Each is a function `flare.name(...)`. *method*: also `x:name(...)`, x being the first input.
*in place*: also `x:name_(...)`, which writes the result into x. *grad*: gradients pass through it.

The signature lists the arguments in the order of a call, each with its type. For a tensor the type
gives the dtypes that it may have; `?` marks an argument that may be left out, `*` a table of
tensors, and `=` a default. Dims and positions count from 1; -1 is the last. Behind `->` are the
dtypes of the results: `x` is the dtype of x, `promote(a,b)` the smallest that holds both,
`float(x)` the same with integers as f32, `acc(x)` with integers as i64, `wide(x)` f64 for f64 and
f32 otherwise.
]]

-- The titles of the families of the op table, by operator.
local function sections()
  local of, order, section = {}, {}, nil
  for line in tree.op_table():gmatch "[^\n]+" do
    local title = line:match "^/%* (.-)%. The columns are explained"
    if title then
      section = title
      order[#order + 1] = title
    end
    local name = line:match "^FL_%u+%s*%(%s*([%w_]+)"
    if name and section then of[name] = section end
  end
  order[#order + 1] = "derivatives"
  return of, order
end

local function cell(text)
  return (text:gsub("|", "\\|"):gsub("%*", "\\*"))
end

local function forms(row)
  local list = {}
  if row.method then list[#list + 1] = "method" end
  if row.method and row.inplace then list[#list + 1] = "in place" end
  if row.differentiable then list[#list + 1] = "grad" end
  return table.concat(list, ", ")
end

local function page()
  local of, order = sections()
  local groups = {}
  for _, row in ipairs(core.ops()) do
    if row.family ~= "backward" then -- those derive from the formulas of unary rows
      local section = rows.is_inner(row) and "derivatives" or of[row.name]
      groups[section] = groups[section] or {}
      table.insert(groups[section], row)
    end
  end
  local out = {head}
  for _, section in ipairs(order) do
    if groups[section] then
      out[#out + 1] = ("## %s\n"):format(section:gsub("^%l", string.upper))
      out[#out + 1] = "| name | signature | what it does | |\n|---|---|---|---|"
      for _, row in ipairs(groups[section]) do
        out[#out + 1] = ("| `%s` | `%s` | %s | %s |"):format(row.name,
          rows.signature(row):gsub("|", "\\|"), cell(row.doc or ""), forms(row))
      end
      out[#out + 1] = ""
    end
  end
  return table.concat(out, "\n")
end

if ... ~= "spec.support.ops_page" then
  io.write(page())
  return
end
return page
