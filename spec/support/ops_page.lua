--- The reference page of the operators, out of their rows. Writes docs/ops.md:
--   build/flare spec/support/ops_page.lua > docs/ops.md
-- As a module: a function that gives the page's text.
local core = require "flare.core"
local rows = require "flare.help.rows"
local tree = require "spec.support.tree"

local head = [=[
# Operators

After this page you know every operator of flare, its arguments, dtypes and gradient. The page is
made from the op table, [runtime/ops.def](../runtime/ops.def), by `spec/support/ops_page.lua`; do
not edit it. `?name` at the prompt and `flare help name` show the same.

```lua
local flare = require "flare"
local x = flare.tensor {{1, 3, 2}, {6, 5, 4}}
print(flare.amax(x, 2), x:amax(2), x:amax {dims = 1, keepdim = true})
```
```output
[3, 6]
flare.tensor f32 [2] cpu	[3, 6]
flare.tensor f32 [2] cpu	[[6, 5, 4]]
flare.tensor f32 [1 x 3] cpu
```

An operator is a function `flare.name(...)`. *method*: also a method `x:name(...)` of the first
input. *in place*: also a method `x:name_(...)`, which writes the result into x. *grad*: it has a
gradient. *Also* lists other names of the function and the method.

The signature lists the arguments in the order of a call, each with its type. The type of a tensor
is the set of dtypes that it may have; `?` marks an optional argument, `*` a table of tensors, and
`=` a default value. Dims and positions count from 1; -1 is the last. After `->` are the dtypes of
the results: `x` is the dtype of x; `promote(a,b)` the smallest dtype that holds both; `float(x)`
the same, but f32 for integers; `acc(x)` i64 for integers; `wide(x)` f64 for f64, otherwise f32.
]=]

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

-- What it does, and its other names.
local function described(row)
  local text = cell(row.doc or "")
  if not row.aliases[1] then return text end
  local names = {}
  for k, name in ipairs(row.aliases) do names[k] = ("`%s`"):format(name) end
  return ("%s Also %s."):format(text, table.concat(names, ", "))
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
          rows.signature(row):gsub("|", "\\|"), described(row), forms(row))
      end
      out[#out + 1] = ""
    end
  end
  out[#out + 1] = "See also: [tensors](tensors.md), [linear algebra](linalg.md), "
    .. "[autograd](autograd.md),\n[adding an operator](add-an-op.md).\n"
  return table.concat(out, "\n")
end

if ... ~= "spec.support.ops_page" then
  io.write(page())
  return
end
return page
