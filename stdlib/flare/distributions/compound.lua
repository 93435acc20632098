--- Distributions made from others: independent dims, mixtures, transformed variables.
local base = require "flare.distributions.base"
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Categorical = require("flare.distributions.discrete").Categorical
local transforms = require "flare.distributions.transforms"

local D = {}
local Distribution = base.Distribution

local function check(where, inner)
  if not class.is(inner, Distribution) then
    fail("%s: a distribution is expected, got %s", where, options.kind(inner))
  end
  return inner
end

-- The last n dims; nil for none.
local function last(n)
  local dims = {}
  for k = 1, n do dims[k] = -k end
  return n > 0 and dims or nil
end

local Independent = class("Independent", Distribution)
D.Independent = Independent

--- distributions.Independent(d, dims = 1): the last dims of a batch as one event
function Independent:init(inner, dims)
  self.inner, self.discrete = check("Independent", inner), inner.discrete
  self.dims = last(options.count("Independent", "dims", dims or 1))
  if #self.dims > #inner.batch then
    fail("Independent: %d dims of a batch of %d", #self.dims, #inner.batch)
  end
  self.events = inner.events + #self.dims
  self.batch = {table.unpack(inner.batch, 1, #inner.batch - #self.dims)}
end
function Independent:draw(shape) return self.inner:draw(shape) end
function Independent:mean() return self.inner:mean() end
function Independent:variance() return self.inner:variance() end
function Independent:entropy() return self.inner:entropy():sum{dims = self.dims} end
function Independent:log_prob(x) return self.inner:log_prob(x):sum{dims = self.dims} end

local Mixture = class("MixtureSameFamily", Distribution)
D.MixtureSameFamily = Mixture

--- distributions.MixtureSameFamily(classes, parts): a mixture; the Categorical `classes` chooses a
-- component along the last batch dim of `parts`
function Mixture:init(classes, parts)
  self.parts = check("MixtureSameFamily", parts)
  check("MixtureSameFamily", classes)
  local n = classes.probs and classes.probs:size(-1)
  if not n or #parts.batch == 0 or parts.batch[#parts.batch] ~= n then
    fail("MixtureSameFamily: the last dim of the parts' batch must have a part for each of %s "
      .. "classes", tostring(n))
  end
  self.classes = Categorical{logits = classes.logits:expand(parts.batch)}
  self.discrete, self.events = true, parts.events
  self.batch = {table.unpack(parts.batch, 1, #parts.batch - 1)}
end

-- Reshapes (..., classes) to broadcast with the components' (..., classes, event).
function Mixture:beside(x)
  for _ = 1, self.events do x = x:unsqueeze(-1) end
  return x
end

function Mixture:draw(shape)
  local dim = -1 - self.events
  local all = self.parts:draw(shape)
  local one = self.classes:draw(shape)
  local index = self:beside(one:unsqueeze(-1))
  local sizes = {table.unpack(all.shape)}
  sizes[#sizes + 1 + dim] = 1
  return all:gather(dim, index:expand(sizes)):squeeze(dim)
end

function Mixture:log_prob(x)
  return (self.classes.logits + self.parts:log_prob(x:unsqueeze(-1 - self.events)))
    :logsumexp{dims = {-1}}
end

function Mixture:cdf(x)
  return (self.classes.probs * self.parts:cdf(x:unsqueeze(-1))):sum(-1)
end

function Mixture:mean()
  return (self:beside(self.classes.probs) * self.parts:mean()):sum(-1 - self.events)
end

function Mixture:variance()
  local probs, dim = self:beside(self.classes.probs), -1 - self.events
  local apart = self.parts:mean() - self:mean():unsqueeze(dim)
  return (probs * (self.parts:variance() + apart ^ 2)):sum(dim)
end

local Transformed = class("TransformedDistribution", Distribution)
D.TransformedDistribution = Transformed

--- distributions.TransformedDistribution(d, transforms): the distribution of f(x), where x is drawn
-- from d and f is one or several of AffineTransform, ExpTransform, PowerTransform,
-- SigmoidTransform, TanhTransform, SoftplusTransform. log_prob of a sample uses the x from which it
-- was computed, so that it is finite where tanh is rounded to 1.
function Transformed:init(inner, list)
  self.inner = check("TransformedDistribution", inner)
  self.list = class.is(list, transforms.Transform) and {list} or list
  if type(self.list) ~= "table" or getmetatable(self.list) then
    fail("TransformedDistribution: a list of transforms is expected, got %s", options.kind(list))
  end
  for i, t in ipairs(self.list) do
    if not class.is(t, transforms.Transform) then
      fail("TransformedDistribution: entry %d is no transform, but %s", i, options.kind(t))
    end
  end
  self.discrete, self.events, self.batch = inner.discrete, inner.events, inner.batch
  self._made = setmetatable({}, {__mode = "k"}) -- of samples: the values on their way
end

function Transformed:draw(shape)
  local x = self.inner:draw(shape)
  local way = {x}
  for _, t in ipairs(self.list) do
    x = t:forward(x)
    way[#way + 1] = x
  end
  way[#way] = nil -- the sample itself is the key
  self._made[x] = way
  return x
end

function Transformed:log_prob(y)
  local way, slopes = self._made[y], nil
  for i = #self.list, 1, -1 do
    local t = self.list[i]
    local x = way and way[i] or t:inverse(y)
    local slope = t:log_slope(x, y)
    slopes, y = slopes and slopes + slope or slope, x
  end
  local p = self.inner:log_prob(y)
  if not slopes then return p end
  local dims = last(self.events)
  return p - (dims and slopes:sum{dims = dims} or slopes)
end

function Transformed:cdf(y)
  local turned = core.ones_like(y:detach())
  for i = #self.list, 1, -1 do
    y = self.list[i]:inverse(y)
    turned = turned * self.list[i]:direction(y)
  end
  local p = self.inner:cdf(y)
  return core.where(turned:gt(0), p, 1 - p)
end

return D
