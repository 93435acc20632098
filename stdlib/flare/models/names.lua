--- Names of a module's tensors in published files. The fields of the architectures have the names
-- of the published ones, whose lists count from 0; a class says where the two differ.
--
-- `class.tensor_names` is a list of rules {pattern, replacement, how}: the first whose pattern
-- fits a name of ours (lists count from 0 already) gives the name there. `how` is nil for the
-- same tensor, "transpose" for a matrix that is stored as (inputs, outputs), or "stack" if the
-- tensor there is divided along our first dim: "#" in the name is the number of the part, from 0.
-- A fourth field is how other files have it: {replacement}, or {replacement, k} for the k-th half,
-- along dim 2, of a tensor there.
local M = {}

local function zero_based(name)
  return (name:gsub("%f[%w_]%d+%f[.\0]", function(k) return tostring(math.tointeger(k) - 1) end))
end

--- The name in files of a tensor of ours, and how the two differ. Then the name in other files,
-- or nil, and which half of that tensor it is.
function M.there(class, name)
  name = zero_based(name)
  for _, rule in ipairs(class.tensor_names or {}) do
    local there, n = name:gsub(rule[1], rule[2])
    if n > 0 then
      local other = rule[4]
      return there, rule[3], other and name:gsub(rule[1], (other[1])) or nil, other and other[2]
    end
  end
  return name
end

--- The name of a part of a stacked tensor; parts count from 1.
function M.part(there, k)
  return (there:gsub("#", tostring(k - 1)))
end

--- Whether a class does not need the tensor of this name in a file.
function M.is_ignored(class, name)
  for _, pattern in ipairs(class.ignored_tensors or {}) do
    if name:find(pattern) then return true end
  end
  return false
end

return M
