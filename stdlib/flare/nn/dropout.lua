--- Dropout (Srivastava and others, 2014): in training, sets elements to zero with probability p and
-- scales the others by 1 / (1 - p); in evaluation, returns its input.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Module = require "flare.nn.module"

local Dropout = class("Dropout", Module)

--- nn.Dropout(p) or nn.Dropout{p = 0.5}; 0.5 is the default
function Dropout:init(p)
  if type(p) == "table" then p = options.check("nn.Dropout", p, {p = 0.5}).p end
  p = p or 0.5
  if type(p) ~= "number" or p < 0 or p >= 1 then
    fail("nn.%s: p must be a number in [0, 1), got %s", getmetatable(self).__name, tostring(p))
  end
  self.p = p
end

function Dropout:forward(x)
  if not self.training or self.p == 0 then return x end
  return core.dropout(x, self.p)
end

function Dropout:describe()
  return ("p=%g"):format(self.p)
end

return Dropout
