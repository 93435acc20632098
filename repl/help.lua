--- Help from the rows: what an operator takes, gives and does.
local core = require "flare.core"

local M = {}

local function describe(row)
  print(row.name .. "  " .. row.signature)
  if row.doc then print("  " .. row.doc) end
  for _, p in ipairs(row.params) do
    if p.choices then print(("  %s: %s"):format(p.name, p.choices:gsub("|", ", "))) end
  end
  local forms = {("flare.%s(...)"):format(row.name)}
  if row.method then forms[#forms + 1] = ("x:%s(...)"):format(row.name) end
  if row.inplace then forms[#forms + 1] = ("x:%s_(...)"):format(row.name) end
  print("  " .. table.concat(forms, "   "))
end

--- Prints what is known of a name: an operator's row, or the nearest name there is.
function M.show(name)
  name = name:match "([%w_]+)$" or name
  local names = {}
  for _, row in ipairs(core.ops()) do
    if row.name == name or row.name .. "_" == name then return describe(row) end
    names[#names + 1] = row.name
  end
  local near = core.nearest(name, names)
  print(("there is no operator %s%s"):format(name, near and (": do you mean ?" .. near) or ""))
end

return M
