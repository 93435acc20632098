--- Losses as modules: one row each, called as loss(prediction, target).
--
-- All take {reduction = "mean" | "sum" | "none"}. Class labels count from 1;
-- those of the classifying losses that are `ignore_index`, -100, are left out.
local class = require "flare.class"
local core = require "flare.core"
local options = require "flare.options"
local Module = require "flare.nn.module"

local none = options.none
-- tensors: options that are further tensor inputs of the operator, in its order
local rows = {
  CrossEntropyLoss = {"cross_entropy", tensors = {"weight"},
                      {weight = none, ignore_index = -100, label_smoothing = 0}},
  NLLLoss = {"nll_loss", tensors = {"weight"}, {weight = none, ignore_index = -100}},
  MSELoss = {"mse_loss", {}},
  L1Loss = {"l1_loss", {}},
  SmoothL1Loss = {"smooth_l1_loss", {beta = 1}},
  HuberLoss = {"huber_loss", {delta = 1}},
  BCELoss = {"bce_loss", tensors = {"weight"}, {weight = none}},
  BCEWithLogitsLoss = {"bce_with_logits", tensors = {"weight", "pos_weight"},
                       {weight = none, pos_weight = none}},
  KLDivLoss = {"kl_div", {log_target = false}},
}

local classes = {}
for name, row in pairs(rows) do
  local op, defaults = row[1], row[2]
  local tensors = row.tensors or {}
  defaults.reduction = "mean"
  local cls = class(name, Module)
  cls.operator, cls.defaults = op, defaults

  function cls:init(opts)
    local o = options.check("nn." .. name, opts, defaults)
    -- tensors are buffers, so that they move with the module
    for _, key in ipairs(tensors) do
      if o[key] then self[key] = self:buffer(o[key]) end
      o[key] = nil
    end
    self._options = o
  end

  --- (prediction, target) -> a scalar, or one value for each with reduction "none"
  function cls:forward(x, target)
    local opts = self._options
    if #tensors == 0 then return (core[op](x, target, opts)) end
    local given = {}
    for i, key in ipairs(tensors) do given[i] = self[key] end
    if #tensors == 1 then return (core[op](x, target, given[1], opts)) end
    return (core[op](x, target, given[1], given[2], opts))
  end

  function cls:describe()
    return self._options.reduction ~= "mean" and "reduction=" .. self._options.reduction or ""
  end

  classes[name] = cls
end
return classes
