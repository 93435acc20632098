--- Adaptive softmax (arXiv:1609.04309): log_softmax over many classes, most of them rare. The first
-- layer predicts the frequent classes and groups of rare ones; smaller and smaller layers predict
-- the classes of a group.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local Linear = require "flare.nn.linear"
local Module = require "flare.nn.module"
local containers = require "flare.nn.containers"

local Adaptive = class("AdaptiveLogSoftmaxWithLoss", Module)

--- nn.AdaptiveLogSoftmaxWithLoss(inputs, classes, cutoffs, {shrink = 4, bias = false})
-- Classes are ordered from the most to the least frequent. With cutoffs {100, 1000} the first layer
-- predicts classes up to 100; those up to 1000 are one group, the rest another. The k-th group has
-- a layer of width inputs / shrink^k; `bias` is for the first layer.
function Adaptive:init(inputs, classes, cutoffs, opts)
  local where = "nn.AdaptiveLogSoftmaxWithLoss"
  local o = options.check(where, opts, {shrink = 4, bias = false})
  self.inputs = options.count(where, "inputs", inputs)
  self.classes = options.count(where, "classes", classes)
  if type(cutoffs) ~= "table" or #cutoffs == 0 then
    fail("%s: cutoffs must be a list, like {100, 1000}", where)
  end
  self.cutoffs = {0, table.unpack(cutoffs)}
  self.cutoffs[#self.cutoffs + 1] = classes
  for k = 2, #self.cutoffs do
    if options.count(where, "cutoff", self.cutoffs[k]) <= self.cutoffs[k - 1] then
      fail("%s: cutoffs must rise and stay below %d classes, got %s", where, classes,
           table.concat(cutoffs, ", "))
    end
  end
  self.head = Linear(inputs, cutoffs[1] + #cutoffs, {bias = o.bias})
  self.tail = containers.ModuleList()
  for k = 1, #cutoffs do
    local width = math.max(1, math.floor(inputs / o.shrink ^ k))
    self.tail:append(containers.Sequential(Linear(inputs, width, {bias = false}),
      Linear(width, self.cutoffs[k + 2] - self.cutoffs[k + 1], {bias = false})))
  end
end

local function check(self, x)
  if not core.is_tensor(x) or x:dim() ~= 2 or x:size(2) ~= self.inputs then
    fail("AdaptiveLogSoftmaxWithLoss: the input must be (batch, %d), got %s", self.inputs,
         core.is_tensor(x) and tostring(x.shape) or options.kind(x))
  end
end

--- (batch, inputs), labels (batch) -> the log-probability of each label, and the loss: minus their
-- mean
function Adaptive:forward(x, target)
  check(self, x)
  options.tensor("AdaptiveLogSoftmaxWithLoss", "target", target)
  if target:dim() ~= 1 or #target ~= #x then
    fail("AdaptiveLogSoftmaxWithLoss: the labels must be (%d), got %s", #x,
         tostring(target.shape))
  elseif #x > 0 and (target:amin():item() < 1 or target:amax():item() > self.classes) then
    fail("AdaptiveLogSoftmaxWithLoss: labels are from 1 to %d, got %d to %d", self.classes,
         target:amin():item(), target:amax():item())
  end
  local common, at = self.cutoffs[2], target
  local parts = core.zeros({#x}, {dtype = x.dtype, device = x.device})
  for k, layer in ipairs(self.tail) do
    local low, high = self.cutoffs[k + 1], self.cutoffs[k + 2]
    local inside = target:gt(low) & target:le(high)
    local rows = inside:nonzero():view(-1)
    if #rows > 0 then
      local logs = layer(x:index_select(1, rows)):log_softmax(-1)
      local labels = target:index_select(1, rows) - low
      parts = parts:index_add(1, rows, logs:gather(2, labels:unsqueeze(2)):squeeze(2):to(x.dtype))
      at = at:masked_fill(inside, common + k)
    end
  end
  local y = parts + self.head(x):log_softmax(-1):gather(2, at:unsqueeze(2)):squeeze(2)
  return y, -y:mean()
end

--- (batch, inputs) -> the log-probabilities of all classes, (batch, classes)
function Adaptive:log_prob(x)
  check(self, x)
  local head, common = self.head(x):log_softmax(-1), self.cutoffs[2]
  local parts = {head:narrow(2, 1, common)}
  for k, layer in ipairs(self.tail) do
    parts[k + 1] = layer(x):log_softmax(-1) + head:narrow(2, common + k, 1)
  end
  return core.cat(parts, 2)
end

--- (batch, inputs) -> the most probable class of each row, (batch)
function Adaptive:predict(x)
  return self:log_prob(x):argmax(2)
end

function Adaptive:describe() return ("%d -> %d"):format(self.inputs, self.classes) end

return Adaptive
