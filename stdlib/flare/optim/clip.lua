--- Gradient clipping, by the norm of all gradients or by value.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local walk = require "flare.nn.walk"

local M = {}

local function check_limit(where, limit)
  if type(limit) ~= "number" or limit < 0 or limit ~= limit then
    fail("%s: the limit must be a number of at least 0, got %s", where,
      type(limit) == "number" and limit or options.kind(limit))
  end
end

local function gradients(where, params)
  params = walk.parameters(params)
  if core.is_tensor(params) then params = {params} end
  local meta = type(params) == "table" and getmetatable(params)
  if type(params) ~= "table" or meta then
    fail("%s: a module or a list of parameters is expected, got %s%s", where,
      meta and meta.__name or type(params), meta and params[where]
      and (", which has %s itself"):format(where) or "")
  end
  local list = {}
  for _, p in ipairs(params) do
    options.tensor(where, "each parameter", p)
    local grad = p.grad
    if grad then list[#list + 1] = grad end
  end
  return list
end

--- The norm of the vector of all gradients, a 0-d tensor.
function M.grad_norm(params, opts)
  local o = options.check("grad_norm", opts, {p = 2})
  local grads = gradients("grad_norm", params)
  if #grads == 0 then return core.zeros({}) end
  local _ <close> = core.no_grad()
  return core.global_norm(grads, {p = o.p})
end

--- Scales all gradients so that the norm of the vector of all of them is at most `limit`. The host
-- does not wait for the device. With `group`, the ranks have different parameters, and the norm is
-- that over all ranks (p = 2 only).
-- @return the norm before scaling, a 0-d tensor
function M.clip_grad_norm_(params, limit, opts)
  local o = options.check("clip_grad_norm_", opts, {p = 2, group = options.none})
  check_limit("clip_grad_norm_", limit)
  local grads = gradients("clip_grad_norm_", params)
  if #grads == 0 then return core.zeros({}) end
  local _ <close> = core.no_grad()
  local norm = core.global_norm(grads, {p = o.p})
  if o.group and o.p ~= 2 then fail("clip_grad_norm_: over a group p must be 2, got %s", o.p) end
  if o.group then norm = o.group:all_reduce_(norm:square()):sqrt_() end
  local scale = (limit / (norm + 1e-6)):clamp_{max = 1}
  core.scale_step(scale, grads)
  return norm
end

--- Clamps each element of the gradients to [-limit, limit].
function M.clip_grad_value_(params, limit)
  check_limit("clip_grad_value_", limit)
  local _ <close> = core.no_grad()
  for _, grad in ipairs(gradients("clip_grad_value_", params)) do
    grad:clamp_{min = -limit, max = limit}
  end
end

return M
