--- Derivatives of functions: Jacobian, Hessian, and their products with vectors.
--
-- In all of them x is a tensor, or a list of tensors that f takes as arguments. Results that
-- correspond to x have x's form: one value, or a list.
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local vmap = require "flare.vmap".vmap

local M = {}

local function as_list(where, name, x)
  if core.is_tensor(x) then return {x}, true end
  if type(x) ~= "table" or #x == 0 then
    fail("%s: %s must be a tensor or a list of tensors, got %s", where, name, options.kind(x))
  end
  for i, t in ipairs(x) do
    if not core.is_tensor(t) then
      fail("%s: %s[%d] is a %s, not a tensor", where, name, i, type(t))
    end
  end
  return x, false
end

-- Leaves with x's values, or x itself where derivatives must flow further back.
local function leaves(list, create)
  local out = {}
  for i, x in ipairs(list) do
    out[i] = create and x.requires_grad and x:view(x.shape) or x:detach():requires_grad_(true)
  end
  return out
end

local function in_form(list, single)
  if single then return list[1] end
  return list
end

-- f's one result.
local function value(where, f, xs)
  local y = options.callable(where, f)(table.unpack(xs))
  if not core.is_tensor(y) then
    fail("%s: the function must return a tensor, got %s", where, options.kind(y))
  end
  return y
end

-- Gradients of sum(y * v); zeros for inputs that y does not depend on.
local function pull(y, xs, v, create)
  local grads = {}
  if y.requires_grad then
    grads = table.pack(core.grad(y, xs, {gradient = v, create_graph = create, retain_graph = true,
                                         allow_unused = true}))
  end
  for i, x in ipairs(xs) do grads[i] = grads[i] or core.zeros_like(x) end
  grads.n = nil
  return grads
end

local function joined(a, b)
  local shape = {}
  for _, size in ipairs(a) do shape[#shape + 1] = size end
  for _, size in ipairs(b) do shape[#shape + 1] = size end
  return shape
end

-- dy/dx for each x, of shape (y's shape..., x's shape...).
local function jacobian(y, xs, create)
  local n = y:numel()
  local units = core.eye(n, {dtype = y.dtype}):to(y.device):view(joined({n}, y.shape))
  local rows = vmap(function(v) return pull(y, xs, v, create) end)(units)
  for i, x in ipairs(xs) do rows[i] = rows[i]:reshape(joined(y.shape, x.shape)) end
  return rows
end

--- The Jacobian of f at x.
-- @param opts {create_graph = true}: the result can be differentiated
-- @return a tensor (y's shape..., x's shape...), or a list of them
function M.jacobian(f, x, opts)
  local o = options.check("jacobian", opts, {create_graph = false})
  local list, single = as_list("jacobian", "x", x)
  local xs = leaves(list, o.create_graph)
  return in_form(jacobian(value("jacobian", f, xs), xs, o.create_graph), single)
end

local function scalar(where, f, xs)
  local y = value(where, f, xs)
  if y:numel() ~= 1 then
    fail("%s: the function must return one number, got shape %s", where, tostring(y.shape))
  end
  return y:reshape({})
end

--- The Hessian at x of f, which returns one number.
-- @param opts {create_graph = true}: the result can be differentiated
-- @return a tensor (x's shape..., x's shape...); for a list x, h[i][j] of shape (x[i]'s shape...,
--   x[j]'s shape...)
function M.hessian(f, x, opts)
  local o = options.check("hessian", opts, {create_graph = false})
  local list, single = as_list("hessian", "x", x)
  local xs = leaves(list, o.create_graph)
  local y = scalar("hessian", f, xs)
  local h = {}
  for i, g in ipairs(pull(y, xs, nil, true)) do
    h[i] = in_form(jacobian(g, xs, o.create_graph), single)
  end
  return in_form(h, single)
end

-- v as a list of tensors with the shapes of `like`.
local function directions(where, v, like)
  local list = as_list(where, "v", v)
  if #list ~= #like then fail("%s: v has %d tensors, not %d", where, #list, #like) end
  for i, t in ipairs(list) do
    if t.shape ~= like[i].shape then
      fail("%s: v has shape %s, expected %s", where, tostring(t.shape),
           tostring(like[i].shape))
    end
  end
  return list
end

local function dot(a, b)
  local sum
  for i, x in ipairs(a) do
    if x.requires_grad then
      local part = (x * b[i]):sum()
      sum = sum and sum + part or part
    end
  end
  return sum
end

--- The Hessian-vector product of f at x, computed without the Hessian.
-- @return f(x), the Hessian times v
function M.hvp(f, x, v)
  local list, single = as_list("hvp", "x", x)
  local xs = leaves(list)
  local vs = directions("hvp", v, xs)
  local y = scalar("hvp", f, xs)
  local slope = dot(pull(y, xs, nil, true), vs)
  local out = {}
  if slope then
    out = pull(slope, xs)
  else
    for i, t in ipairs(xs) do out[i] = core.zeros_like(t) end
  end
  return y:detach(), in_form(out, single)
end

--- The vector-Jacobian product of f at x, by one backward pass.
-- @param v of f(x)'s shape; nil if f returns one number
-- @return f(x), v times the Jacobian
function M.vjp(f, x, v)
  local list, single = as_list("vjp", "x", x)
  local xs = leaves(list)
  local y = value("vjp", f, xs)
  if v ~= nil then
    directions("vjp", v, {y})
  elseif y:numel() ~= 1 then
    fail("vjp: v is missing: the function gives shape %s", tostring(y.shape))
  end
  return y:detach(), in_form(pull(y, xs, v), single)
end

--- The Jacobian-vector product of f at x, by two backward passes: vjp is linear in its v.
-- @param v in the form of x
-- @return f(x), the Jacobian times v
function M.jvp(f, x, v)
  local list = as_list("jvp", "x", x)
  local xs = leaves(list)
  local vs = directions("jvp", v, xs)
  local y = value("jvp", f, xs)
  local u = core.zeros_like(y):requires_grad_(true)
  local slope = y.requires_grad and dot(pull(y, xs, u, true), vs)
  return y:detach(), slope and pull(slope, {u})[1] or core.zeros_like(y)
end

return M
