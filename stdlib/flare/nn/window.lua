--- Shared by convolutions and pooling: options with one number for each dim of the window, and the
-- sizes and parameters of both kinds of convolutions.
local fail = require "flare.fail"
local init = require "flare.nn.initialize"
local options = require "flare.options"

local M = {}

--- `value` as a list of n integers >= least; a number stands for all dims.
function M.list(where, name, value, n, least)
  local list = {}
  if type(value) == "number" then
    for i = 1, n do list[i] = value end
  elseif type(value) == "table" then
    if #value ~= n then
      local key = next(value)
      fail("%s: %s must be a number or %d of them, got %s", where, name, n,
           type(key) == "string" and "a table with '" .. key .. "'" or #value)
    end
    for i = 1, n do list[i] = value[i] end
  else
    fail("%s: %s must be a number or a table of %d, got %s", where, name, n, options.kind(value))
  end
  for i = 1, n do
    local whole = math.tointeger(list[i])
    if not whole or whole < least then
      fail("%s: %s must be integers of at least %d, got %s", where, name, least,
           tostring(list[i]))
    end
    list[i] = whole
  end
  return list
end

--- Sets the sizes, groups and window of a convolution from its options.
function M.sizes(layer, where, inputs, outputs, kernel, o)
  local n = layer.dims
  layer.inputs = options.count(where, "inputs", inputs)
  layer.outputs = options.count(where, "outputs", outputs)
  layer.groups = options.count(where, "groups", o.groups)
  if inputs % o.groups ~= 0 or outputs % o.groups ~= 0 then
    fail("%s: %d inputs and %d outputs cannot be cut into %d equal groups", where, inputs,
         outputs, o.groups)
  end
  layer.kernel = M.list(where, "kernel", kernel, n, 1)
  layer.stride = M.list(where, "stride", o.stride or 1, n, 1)
  layer.dilation = M.list(where, "dilation", o.dilation or 1, n, 1)
end

--- Makes its weight (first, second, kernel...) and bias, with PyTorch's default initialization.
function M.parameters(layer, first, second, bias)
  local shape, fan = {first, second, table.unpack(layer.kernel)}, second
  for i = 1, layer.dims do fan = fan * layer.kernel[i] end
  local range = {low = -1 / math.sqrt(fan), high = 1 / math.sqrt(fan)}
  layer.weight = layer:param(init.uniform(shape, range))
  if bias then layer.bias = layer:param(init.uniform({layer.outputs}, range)) end
end

--- "3" when all are equal, "3x5" otherwise.
function M.text(list)
  for i = 2, #list do
    if list[i] ~= list[1] then return table.concat(list, "x") end
  end
  return tostring(list[1])
end

return M
