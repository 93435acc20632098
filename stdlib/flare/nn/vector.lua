--- Conversion of all parameters to one vector, and back.
local core = require "flare.core"
local fail = require "flare.fail"
local walk = require "flare.nn.walk"
local options = require "flare.options"

local M = {}

local function list(where, params)
  params = walk.parameters(params)
  if type(params) ~= "table" or #params == 0 then
    fail("%s: a module or a list of parameters is expected, got %s", where,
         type(params) == "table" and "an empty one" or type(params))
  end
  for _, p in ipairs(params) do options.tensor(where, "each parameter", p) end
  return params
end

--- One vector of the elements of all parameters, differentiable.
-- @param params a module or a list of tensors
function M.parameters_to_vector(params)
  local parts = {}
  for i, p in ipairs(list("parameters_to_vector", params)) do parts[i] = p:reshape(-1) end
  return core.cat(parts, 1)
end

--- Copies the elements of a vector into parameters, in their order.
-- @param params a module or a list of tensors
function M.vector_to_parameters(vector, params)
  params = list("vector_to_parameters", params)
  local total = 0
  for _, p in ipairs(params) do total = total + p:numel() end
  if not core.is_tensor(vector) or vector:dim() ~= 1 or #vector ~= total then
    fail("vector_to_parameters: a vector of %d elements is needed, got %s", total,
         core.is_tensor(vector) and tostring(vector.shape) or type(vector))
  end
  local _ <close> = core.no_grad()
  local at = 1
  for _, p in ipairs(params) do
    p:copy_(vector:narrow(1, at, p:numel()):view(p.shape))
    at = at + p:numel()
  end
end

return M
