--- What diffusers computes: spec/data/diffusion.safetensors, which spec/support/diffusion_data.py
-- makes.
local flare = require "flare"
local support = require "spec.support.models"

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

local function tensor(list) return list and flare.tensor(list, {dtype = "i64"}) end

--- What a model makes of the inputs of a case.
function M.call(model, inputs, dtype)
  local function given(name)
    local shape = inputs[name]
    return shape and (support.numbers(name, table.move(shape, 1, #shape, 1, {})) * 4)
      :to(dtype or "f32")
  end
  local x, t, labels = given "sample", tensor(inputs.times), tensor(inputs.labels)
  if not t then return model(x) end
  if not inputs.context then return model(x, t, labels) end
  local mask = inputs.mask and flare.arange(5):unsqueeze(1):lt(tensor(inputs.mask):unsqueeze(2))
  local sizes = inputs.sizes and flare.arange(12):view(2, 6) * 100
  return model(x, t, given "context", {labels = labels, mask = mask, pooled = given "pooled",
                                       sizes = sizes, guidance = given "guidance"})
end

return M
