--- The base class of models in folders of diffusers: config.json with _class_name, and weights in
-- diffusion_pytorch_model.safetensors. Layers keep the values that they draw.
local class = require "flare.class"
local configs = require "flare.models.config"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Model = require "flare.models.model"

local Diffuser = class("Diffuser", Model)
Diffuser.library = "diffusers"

function Diffuser:init(given)
  self.config = configs.make(getmetatable(self), given)
  self:build(self.config)
end

--- The loss of predicting what a scheduler's `target` says of samples at random times: the mean
-- square of the difference.
-- @param scheduler of the training
-- @param x samples (batch, channels, height, width)
-- @param ... what the model takes besides a sample and times
function Diffuser:loss(scheduler, x, ...)
  options.tensor("loss", "the samples", x)
  local times = scheduler:random_times(x:size(1), {device = x.device})
  local noise = core.randn(x.shape, {dtype = x.dtype, device = x.device})
  local noisy = scheduler:scale_model_input(scheduler:add_noise(x, noise, times), times)
  local y, target = self(noisy, times, ...), scheduler:target(x, noise, times)
  return (y:to "f32" - target:to "f32"):square():mean()
end

-- Times as a model computes with them: (batch), f32, on the device of a sample. t is a number or a
-- tensor, of one time or of one for each sample.
function Diffuser.times(t, x)
  if type(t) == "number" then return core.full({x:size(1)}, t, {device = x.device}) end
  options.tensor("the model", "the times", t)
  t = t:to(x.device):to "f32"
  return t:numel() == 1 and t:reshape(1):expand(x:size(1)) or t
end

-- Refuses fields of a configuration that have other values than those of `only`.
function Diffuser.refuse(config, only)
  for name, value in pairs(only) do
    local got = config[name]
    if got ~= nil and got ~= false and got ~= value then
      fail("%s = %s is not known", name, type(got) == "table" and "{...}" or tostring(got))
    end
  end
end

-- The entry of a table by a configuration's word.
function Diffuser.find(what, name, entries)
  local entry = entries[name]
  if entry ~= nil then return entry end
  fail("unknown %s '%s'%s", what, tostring(name), options.hint(tostring(name), entries))
end

return Diffuser
