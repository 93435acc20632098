--- Transforms of images and labels together.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local base = require "flare.data.transform.base"
local define, rectangle = base.define, base.rectangle

-- Labels from 1, or probabilities, as probabilities (batch, classes).
local function probabilities(self, labels, like)
  if not core.is_tensor(labels) then
    fail("transforms.%s: the labels of the images are needed", getmetatable(self).__name)
  end
  if labels:dim() == 2 then return labels end
  return core.one_hot(labels, self.classes):to(like.dtype)
end

-- The weight of each image in its mixture, drawn from Beta(alpha, alpha).
local function shares(self, x)
  local d = require("flare.distributions").Beta(self.alpha, self.alpha)
  return d:sample(x:size(1)):to{dtype = x.dtype, device = x.device}:view(-1, 1, 1, 1)
end

local function take_pairs(where, opts)
  local o = options.check(where, opts, {classes = options.none, alpha = 1})
  options.count(where, "classes", o.classes)
  return o
end

define("MixUp", "{classes =, alpha = 1}",
  "Mixup (arXiv:1710.09412): convex combinations of images and of their labels, which become "
    .. "probabilities.",
  take_pairs, {apply = function(self, x, labels, ...)
    local y, own = probabilities(self, labels, x), shares(self, x)
    local other = core.randperm(x:size(1)):to(x.device)
    local part = own:view(-1, 1)
    return x * own + x:index_select(1, other) * (1 - own),
           y * part + y:index_select(1, other) * (1 - part), ...
  end})

define("CutMix", "{classes =, alpha = 1}",
  "CutMix (arXiv:1905.04899): replaces a rectangle of each image by that of another image; labels "
    .. "become probabilities.",
  take_pairs, {apply = function(self, x, labels, ...)
    local y = probabilities(self, labels, x)
    local side = (1 - shares(self, x)):sqrt()
    local inside = rectangle(x, side, side)
    local other = core.randperm(x:size(1)):to(x.device)
    local part = 1 - inside:to(x.dtype):mean{dims = {2, 3, 4}}:view(-1, 1)
    return core.where(inside, x:index_select(1, other), x),
           y * part + y:index_select(1, other) * (1 - part), ...
  end})

return base
