--- The reference page of the operators, out of their rows. Writes docs/ops.md:
--   build/flare spec/support/ops_page.lua > docs/ops.md
-- As a module: a function that gives the page's text.
local core = require "flare.core"

local head = [[
# Operators

Made from the rows of [runtime/ops.def](../runtime/ops.def) by `spec/support/ops_page.lua`; do not
edit. `?name` at the prompt and `flare help name` say the same.

Each is a function `flare.name(...)`. *method*: also `x:name(...)`, x being the first input.
*in place*: also `x:name_(...)`, which writes the result into x. *grad*: gradients go through it.

In a signature `x:float` is an input and the dtypes it may have, `?` one that may be left out, `*`
any number of them (a table), `=` a default. Behind `->` are the results and their dtypes: `x` is
x's own, `promote(a,b)` the smallest that holds both, `float(x)` the same with integers as f32,
`acc(x)` with integers as i64, `wide(x)` f64 for f64 and otherwise f32. Dims and positions count
from 1 in Lua and from 0 in C; defaults are shown as C counts them. Results behind a `;` are kept
for the gradient and not returned.
]]

-- Names of the sections in ops.def, by operator.
local function sections()
  local of, order, section = {}, {}, nil
  for line in io.lines "runtime/ops.def" do
    local title = line:match "^/%* %-%-%- (.-) %-%-%- %*/"
    if title and title:find "reference page" then break end
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

-- Rows that gradients are made of, apart from what people call.
local function is_inner(row)
  return row.name:find "_backward$" or row.name:find "^conv_%w+_grad$"
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
      local section = is_inner(row) and "derivatives" or of[row.name]
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
          row.signature:gsub("|", "\\|"), cell(row.doc or ""), forms(row))
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
