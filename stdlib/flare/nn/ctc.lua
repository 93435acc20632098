--- Connectionist temporal classification (Graves and others, 2006): a loss for sequences of labels
-- whose alignment with the input is not known.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local steps = require "flare.nn.steps"
local Module = require "flare.nn.module"

local defaults = {blank = 1, reduction = "mean", zero_infinity = false}
local NEVER = -1e30 -- in place of log(0); finite, so that gradients are finite

-- A list or tensor of n lengths as an i64 tensor on the device.
local function counts(name, given, n, most, device)
  local t = type(given) == "table" and core.tensor(given, {dtype = "i64"}) or given
  if not core.is_tensor(t) or t:dim() ~= 1 or #t ~= n then
    fail("ctc_loss: %s must be %d numbers, one for each sequence", name, n)
  end
  local largest = t:amax():item()
  if largest > most or t:amin():item() < 0 then
    fail("ctc_loss: %s must be in 0..%d, got %d", name, most, largest)
  end
  return t:to{device = device, dtype = "i64"}
end

-- The labels with blanks between and around them, (n, 2 most + 1), and the states that may follow
-- the state two before them: a label that differs from the label before the blank.
local function spread(targets, lengths, blank)
  local n, most = targets:size(1), targets:size(2)
  local device = targets.device
  local real = core.arange(1, most + 1):to(device):unsqueeze(1):le(lengths:unsqueeze(2))
  local labels = core.where(real, targets:to "i64", blank)
  local blanks = core.full({n, most}, blank, {dtype = "i64", device = device})
  local states = core.cat({core.stack({blanks, labels}, 3):view(n, 2 * most),
                           core.full({n, 1}, blank, {dtype = "i64", device = device})}, 2)
  local skips = states:ne(blank)
  if most > 0 then
    skips = skips & core.cat({core.zeros({n, 2}, {dtype = "bool", device = device}),
                              states[{{}, {3, -1}}]:ne(states[{{}, {1, -3}}])}, 2)
  end
  return states, skips
end

-- x shifted by k states; the first k states are NEVER.
local function later(x, k)
  return core.pad(x, {k, 0}, "constant", NEVER):narrow(2, 1, x:size(2))
end

local M = {}

--- See nn.functional.ctc_loss.
function M.loss(log_probs, targets, input_lengths, target_lengths, opts)
  local o = options.check("ctc_loss", opts, defaults)
  options.tensors("ctc_loss", "log_probs", log_probs, "targets", targets)
  if log_probs:dim() ~= 3 or targets:dim() ~= 2 or targets:size(1) ~= log_probs:size(2) then
    fail("ctc_loss: (time, n, classes) and targets (n, labels) are expected, got (%s) and (%s)",
         table.concat(log_probs.shape, ", "), table.concat(targets.shape, ", "))
  end
  local time, n, device = log_probs:size(1), log_probs:size(2), log_probs.device
  local inputs = counts("input_lengths", input_lengths, n, time, device)
  local lengths = counts("target_lengths", target_lengths, n, targets:size(2), device)
  local states, skips = spread(targets, lengths, o.blank)
  local many = states:size(2)
  local p = steps.unbind(log_probs:gather(3, states:unsqueeze(1):expand(time, n, many)))
  local first = core.arange(1, many + 1):to(device):le(2)
  local a = core.where(first, p[1], NEVER)
  for t = 2, time do
    local b = core.logaddexp(a, later(a, 1))
    if many > 2 then b = core.logaddexp(b, core.where(skips, later(a, 2), NEVER)) end
    a = core.where(inputs:ge(t):unsqueeze(2), b + p[t], a)
  end
  local last = (lengths * 2 + 1):unsqueeze(2)
  local before = core.where(last:gt(1), a:gather(2, (last - 1):clamp(1)), NEVER)
  local loss = -core.logaddexp(a:gather(2, last), before):squeeze(2)
  loss = core.where(loss:lt(-NEVER / 2), loss, o.zero_infinity and 0 or math.huge)
  if o.reduction == "mean" then return (loss / lengths:clamp(1)):mean() end
  if o.reduction == "sum" then return loss:sum() end
  if o.reduction == "none" then return loss end
  fail("ctc_loss: reduction is 'mean', 'sum' or 'none', got '%s'", o.reduction)
end

--- nn.CTCLoss({blank = 1, reduction = "mean", zero_infinity = false})
local CTCLoss = class("CTCLoss", Module)
CTCLoss.operator, CTCLoss.defaults = "ctc_loss", defaults

function CTCLoss:init(opts)
  self._options = options.check("nn.CTCLoss", opts, defaults)
end

--- (log probabilities, targets, input lengths, target lengths); see nn.functional.ctc_loss
function CTCLoss:forward(log_probs, targets, input_lengths, target_lengths)
  return M.loss(log_probs, targets, input_lengths, target_lengths, self._options)
end

M.CTCLoss = CTCLoss
return M
