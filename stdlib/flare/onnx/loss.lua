--- Losses of classes, which ONNX counts from 0.
local core = require "flare.core"

local M = {}

local ways = {none = true, mean = true, sum = true}

-- Minus the log-probability of each target, times its weight; 0 for ignored targets.
local function nll(n, x, target, weight)
  target = target:to("i64")
  local way, ignored = n:choice("reduction", "mean", ways), n.attr.ignore_index
  local keep = ignored and target:ne(ignored)
  local index = keep and core.where(keep, target, core.zeros_like(target)) or target
  local loss = -x:gather(2, index:unsqueeze(2), {base = 0}):squeeze(2)
  local w
  if weight then
    w = weight:index_select(1, index:reshape(-1), {base = 0}):reshape(n:shape(index))
  elseif keep then
    w = core.ones_like(loss)
  end
  if keep then w = core.where(keep, w, core.zeros_like(w)) end
  if w then loss = core.where(w:eq(0), core.zeros_like(loss), loss * w) end
  if way == "none" then return loss end
  if way == "sum" then return loss:sum() end
  return w and loss:sum() / w:sum() or loss:mean()
end

M.NegativeLogLikelihoodLoss = nll

function M.SoftmaxCrossEntropyLoss(n, x, target, weight)
  local logs = x:log_softmax(2)
  return nll(n, logs, target, weight), logs
end

return M
