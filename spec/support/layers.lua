--- Modules beside those of PyTorch, whose figures spec/support/layers_data.py has made: all that
-- specs of them need.
local assert = require "luassert"
local flare = require "flare"
local nn = flare.nn
local expect = require "spec.support.expect"
local peers = require "spec.support.layers_data"
local support = require "spec.support.fill"
local fill, near = support.fill, support.near

local M = {fill = fill, near = near, i64 = expect.i64, refused = expect.refused, peers = peers}

function M.leaf(shape, c) return fill(shape, c):requires_grad_(true) end

--- A module in f64 whose tensors, by the order of PyTorch's names, have known values.
function M.known(module)
  local state, names = nn.to_pytorch(module:double()), {}
  for name in pairs(state) do names[#names + 1] = name end
  table.sort(names)
  for number, name in ipairs(names) do state[name] = fill(state[name].shape, number) * 0.3 end
  return module:load_state_dict(nn.from_pytorch(state))
end

--- Whether sums of y and of gradients are those that layers_data.py's `row` has made.
function M.check(name, y, leaves, module)
  local want = peers[name]
  local all = table.move(leaves, 1, #leaves, 1, {})
  for _, p in ipairs(module and module:parameters() or {}) do all[#all + 1] = p end
  local value = (y * fill(y.shape, 3)):sum()
  local got, total = {value:item()}, 0
  for k, grad in ipairs{flare.grad(value, all)} do
    local sum = grad:abs():sum():item()
    if k <= #leaves then got[#got + 1] = sum else total = total + sum end
  end
  if module then got[#got + 1] = total end
  near(flare.tensor(got, {dtype = "f64"}), want, 1e-10)
end

--- Whether PyTorch has these names for the module's tensors, and they come back.
function M.named(name, module)
  local there, list = nn.to_pytorch(module), {}
  for key in pairs(there) do list[#list + 1] = key end
  table.sort(list)
  assert.same(peers[name .. "_names"], list)
  module:clone():load_state_dict(nn.from_pytorch(there))
end

--- Whether f has the gradients, and those of the gradients, that differences have.
function M.second(f, inputs)
  assert.is_true(flare.gradcheck(f, inputs, {second = true}))
end

return M
