--- The base class of models that tell classes of images apart.
local class = require "flare.class"
local core = require "flare.core"
local Model = require "flare.models.model"

local Images = class("Images", Model)

--- The mean cross entropy of classes.
-- @param images (batch, channels, height, width)
-- @param labels (batch), from 0, as the configuration's id2label has them
function Images:loss(images, labels)
  return (core.cross_entropy(self(images), labels, {base = 0}))
end

return Images
