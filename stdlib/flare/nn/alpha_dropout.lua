--- Alpha dropout (arXiv:1706.02515), for networks with SELU: it keeps the mean and the variance of
-- its input.
local class = require "flare.class"
local F = require "flare.nn.functional"
local Dropout = require "flare.nn.dropout"

local classes = {}
for name, op in pairs{AlphaDropout = "alpha_dropout",
                      FeatureAlphaDropout = "feature_alpha_dropout"} do
  local cls = class(name, Dropout)
  cls.about = {("nn.%s(p) or nn.%s{p = 0.5}"):format(name, name)}
  cls.operator = op
  function cls:forward(x) return F[op](x, {p = self.p, training = self.training}) end
  classes[name] = cls
end
return classes
