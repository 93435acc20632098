--- What diffusers computes: spec/data/diffusion.safetensors, which spec/support/diffusion_data.py
-- makes.
local flare = require "flare"

local M = {}

local tensors, metadata

local function read()
  if not tensors then
    tensors, metadata = assert(flare.io.safetensors.load "spec/data/diffusion.safetensors")
  end
end

--- The table of a case.
function M.about(name)
  read()
  return assert(flare.core.json.decode(metadata[name]))
end

--- The names of the cases with a field, such as "steps", in alphabetical order.
function M.names(field)
  read()
  local list = {}
  for name in pairs(metadata) do
    if name ~= "versions" and M.about(name)[field] then list[#list + 1] = name end
  end
  table.sort(list)
  return list
end

--- A result of diffusers, such as "samples", or nil.
function M.expected(name, what)
  read()
  return tensors[name .. "." .. what]
end

return M
