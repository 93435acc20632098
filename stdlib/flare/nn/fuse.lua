--- Folds a BatchNorm into the layer before it, for evaluation.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local walk = require "flare.nn.walk"

--- nn.fuse_norm(layer, norm): one layer that computes norm(layer(x)) in evaluation.
-- @param layer a Linear, a convolution or a transposed convolution
-- @param norm a BatchNorm with running statistics and as many channels as the layer has outputs
-- @return a copy of the layer with weights of its own
return function(layer, norm)
  if not walk.is_module(layer) or not core.is_tensor(layer.weight) or not layer.outputs then
    fail("fuse_norm: a Linear or a convolution is expected, got %s",
         walk.is_module(layer) and getmetatable(layer).__name or options.kind(layer))
  elseif not walk.is_module(norm) or not norm.running_mean or norm.channels ~= layer.outputs then
    fail("fuse_norm: a BatchNorm of %d channels with statistics is expected, got %s",
         layer.outputs, walk.is_module(norm) and tostring(norm) or options.kind(norm))
  end
  local _ <close> = core.no_grad()
  local fused = layer:clone():eval()
  local scale = (norm.running_var + norm.eps):rsqrt()
  if norm.weight then scale = scale * norm.weight end
  local w = fused.weight
  local transposed = getmetatable(layer).__name:find "^ConvTranspose"
  if transposed then -- (inputs, outputs / groups, ...): outputs by groups
    local groups = layer.groups
    local parts = w:unflatten(1, {groups, -1})
    local shape = {groups, 1, w:size(2)}
    for d = 4, parts:dim() do shape[d] = 1 end
    w:copy_((parts * scale:view(shape)):view(w.shape))
  else
    local shape = {layer.outputs}
    for d = 2, w:dim() do shape[d] = 1 end
    w:mul_(scale:view(shape))
  end
  local bias = (fused.bias and fused.bias - norm.running_mean or -norm.running_mean) * scale
  if norm.bias then bias = bias + norm.bias end
  fused.bias = fused:param(bias:detach())
  return fused
end
