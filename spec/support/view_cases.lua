--- Writes through views: the cases of bench/peers/view_cases.py, by name. Each returns what to
-- compare; `says` is the message of a refusal. Where a case differs from PyTorch, which refuses
-- it, `differs` says why and `like` names the case whose values it must give.
local flare = require "flare"

local M = {}

-- Known numbers: element k (from 1) is seed + k / 2 + (k^2 mod 5) / 4.
local function wave(shape, seed)
  local n, list = 1, {}
  for _, size in ipairs(shape) do n = n * size end
  for k = 1, n do list[k] = (seed or 0) + k / 2 + k * k % 5 / 4 end
  return flare.tensor(list, {dtype = "f64"}):reshape(shape):to(M.device or "cpu")
end
M.wave = wave

local function leaf(shape, seed) return wave(shape, seed):requires_grad_(true) end

-- Backward from y, each element weighed differently.
local function back(y, seed)
  (y * wave(y.shape, seed or 3)):sum():backward()
end

local function indices(list)
  return flare.tensor(list, {dtype = "i64"}):to(M.device or "cpu")
end

local cases = {}
M.cases = cases

local function case(name, f, more)
  more = more or {}
  cases[#cases + 1] = {name = name, run = f, says = more.says, differs = more.differs,
    like = more.like}
end

case("write_before_a_view", function()
  local x = leaf{4}
  local y = x * 2
  y:mul_(3)
  local v = y[{{2, 3}}]
  back(v)
  return {y = y, v = v, x = x.grad}
end)

case("write_after_a_view", function()
  local x = leaf{4}
  local y = x * 2
  local v = y[{{2, 3}}]
  y:mul_(3)
  back(v)
  return {y = y, v = v, x = x.grad}
end)

case("squared_then_viewed", function()
  local x = leaf{4}
  local y = x * 2
  local v = (y * y)[{{2, 3}}]
  back(v)
  return {v = v, x = x.grad}
end)

case("squared_in_place", function()
  local x = leaf{4}
  local y = x * 2
  local v = y[{{2, 3}}]
  y:mul_(y)
  back(v)
  return {v = v, x = x.grad}
end, {differs = "the tape keeps a copy of what a write destroys",
  like = "squared_then_viewed"})

case("write_through_a_view", function()
  local x, w = leaf{4}, leaf({2}, 1)
  local y = x * 2
  y[{{2, 3}}]:mul_(w)
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("write_through_a_view_read_from_it", function()
  local x, w = leaf{4}, leaf({2}, 1)
  local y = x * 2
  local v = y[{{2, 3}}]
  v:mul_(w)
  back(v)
  return {v = v, x = x.grad, w = w.grad}
end)

case("chain_of_views", function()
  local x, w = leaf{3, 4}, leaf({2}, 1)
  local y = x * 2
  y[2][{{2, 3}}]:add_(w)
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("chain_of_views_base_written", function()
  local x, w = leaf{3, 4}, leaf({3, 1}, 1)
  local y = x * 2
  local u = y[2][{{2, 3}}]
  y:mul_(w)
  back(u)
  return {u = u, x = x.grad, w = w.grad}
end)

case("chain_of_views_middle_written", function()
  local x, w = leaf{3, 4}, leaf({4}, 1)
  local y = x * 2
  local v = y[2]
  local u = v[{{2, 3}}]
  v:mul_(w)
  back(u)
  return {u = u, y = y, x = x.grad, w = w.grad}
end)

case("three_views_deep", function()
  local x, w = leaf{3, 4}, leaf({2}, 1)
  local y = x * 2
  y:t()[{{2, -1}}][{{}, {2, -1}}][1]:mul_(w)
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("overlapping_siblings", function()
  local x, w = leaf{5}, leaf({3}, 1)
  local y = x * 2
  local a, b = y[{{1, 3}}], y[{{3, 5}}]
  a:mul_(w)
  back(b)
  return {b = b, x = x.grad, w = w.grad}
end)

case("overlapping_siblings_both_written", function()
  local x, w = leaf{5}, leaf({3}, 1)
  local y = x * 2
  local a, b = y[{{1, 3}}], y[{{3, 5}}]
  a:mul_(w)
  b:mul_(w)
  back(y)
  return {a = a, b = b, y = y, x = x.grad, w = w.grad}
end)

case("transpose_written", function()
  local x, w = leaf{2, 3}, leaf({3, 1}, 1)
  local y = x * 2
  y:t():mul_(w)
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("transpose_seen_after_a_write", function()
  local x, w = leaf{2, 3}, leaf({3}, 1)
  local y = x * 2
  local t = y:t()
  y[2]:mul_(w)
  back(t)
  return {t = t, x = x.grad, w = w.grad}
end)

case("permuted_part_written", function()
  local x, w = leaf{2, 3, 2}, leaf({2, 3}, 1)
  local y = x * 2
  y:permute(3, 1, 2)[2]:add_(w)
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("reshaped_view_written", function()
  local x, w = leaf{6}, leaf({3}, 1)
  local y = x * 2
  y:view(2, 3)[2]:mul_(w)
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("reshaped_copy_written", function()
  local x = leaf{2, 3}
  local y = x * 2
  local c = y:t():reshape(-1)
  c:mul_(wave{6})
  back(y)
  return {y = y, c = c, x = x.grad}
end)

case("diagonal_written", function()
  local x, w = leaf{3, 3}, leaf({3}, 1)
  local y = x * 2
  y:diagonal():mul_(w)
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("unsqueezed_view_written", function()
  local x, w = leaf{3}, leaf({1}, 1)
  local y = x * 2
  y:unsqueeze(1)[{1, {2, -1}}]:mul_(w)
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("slice_assigned", function()
  local x, w = leaf{3, 4}, leaf({2, 4}, 1)
  local y = x * 2
  y[{{2, 3}}] = w
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("slice_assigned_broadcast", function()
  local x, w = leaf{3, 4}, leaf({4}, 1)
  local y = x * 2
  y[{{2, 3}}] = w
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("slice_assigned_a_number", function()
  local x = leaf{3, 4}
  local y = x * 2
  y[1] = 5
  back(y)
  return {y = y, x = x.grad}
end)

case("column_assigned", function()
  local x, w = leaf{3, 4}, leaf({3}, 1)
  local y = x * 2
  y[{{}, 2}] = w
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("steps_assigned", function()
  local x, w = leaf{5}, leaf({3}, 1)
  local y = x * 2
  y[{{1, -1, 2}}] = w * w
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("element_assigned", function()
  local x, w = leaf{3, 4}, leaf({2}, 1)
  local y = x * 2
  y[{2, 3}] = w[1] * w[2]
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("mask_assigned_a_number", function()
  local x = leaf{6}
  local y = x * 2
  y[y:gt(2.5)] = 1
  back(y)
  return {y = y, x = x.grad}
end)

case("mask_assigned_a_tensor", function()
  local x, w = leaf{4}, leaf({2}, 1)
  local y = x * 2
  y[flare.tensor{true, false, false, true}:to(y.device)] = w
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("positions_assigned", function()
  local x, w = leaf{4, 2}, leaf({2, 2}, 1)
  local y = x * 2
  y[indices{4, 1}] = w
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("slice_assigned_from_the_same_tensor", function()
  local x = leaf{4}
  local y = x * 2
  y[{{1, 2}}] = y[{{3, 4}}]
  back(y)
  return {y = y, x = x.grad}
end)

case("filled", function()
  local x = leaf{3, 2}
  local y = x * 2
  local v = y[2]
  v:fill_(3)
  y[3]:zero_()
  back(y)
  return {y = y, x = x.grad}
end)

case("all_copied_over", function()
  local x, w = leaf{4}, leaf({4}, 1)
  local y = x * 2
  local v = y[{{1, 2}}]
  y:copy_(w)
  back(v)
  return {v = v, x = x.grad, w = w.grad}
end)

case("base_gets_a_history", function()
  local x = leaf{2}
  local z = wave{4} * 0
  z[{{2, 3}}] = x
  back(z)
  return {z = z, x = x.grad}
end)

case("older_view_gets_a_history", function()
  local x = leaf{2}
  local z = wave{4} * 0
  local v = z[{{1, 2}}]
  z[{{2, 3}}]:add_(x)
  back(v)
  return {v = v, x = x.grad}
end)

case("sum_taken_before_a_write", function()
  local x, w = leaf{4}, leaf({2}, 1)
  local y = x * 2
  local s = y:sum()
  y[{{1, 2}}]:mul_(w)
  back(s + y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("two_views_after_a_write", function()
  local x, w = leaf{2, 3}, leaf({3}, 1)
  local y = x * 2
  local u, v = y[1], y[2]
  y:add_(w)
  back(u * v)
  return {u = u, v = v, x = x.grad, w = w.grad}
end)

case("no_grad_write_to_a_leaf", function()
  local x = leaf{4}
  flare.no_grad(function() x[{{2, 3}}]:mul_(10) end)
  back(x * x)
  return {value = x, x = x.grad}
end)

case("no_grad_write_to_a_base", function()
  local x = leaf{4}
  local y = x * 2
  local v = y[{{1, 2}}]
  flare.no_grad(function() y:mul_(3) end)
  back(v)
  return {v = v, x = x.grad}
end)

case("detached_shares", function()
  local x = leaf{4}
  local y = x * 2
  y:detach()[{{2, 3}}]:mul_(3)
  back(y)
  return {y = y, x = x.grad}
end)

-- who needs what was changed, and who changed it
local both_lines = " %(.-view_cases.lua:%d+%) needs a tensor %(4%) .- changed in place since, "
  .. "at .-view_cases.lua:%d+"

case("detached_write_to_what_is_saved", function()
  local x = leaf{4}
  local y = x:exp()
  y:detach()[{{1}}]:mul_(2)
  back(y)
end, {says = "exp" .. both_lines})

case("saved_changed", function()
  local x = leaf{4}
  local y = x * 2
  local z = y * y
  y:mul_(3)
  back(z)
end, {says = "mul" .. both_lines})

case("saved_changed_through_a_view", function()
  local x = leaf{4}
  local y = x * 2
  local z = y * y
  y[{{2}}]:zero_()
  back(z)
end, {says = "mul" .. both_lines})

case("factor_of_a_write_changed", function()
  local x, w = leaf{4}, leaf({2}, 1)
  local y = x * 2
  local u = w * 1
  y[{{2, 3}}]:mul_(u)
  u:add_(1)
  back(y)
end, {says = "mul %(.-view_cases.lua:%d+%) needs a tensor %(2%) .- changed in place since"})

case("leaf_written", function()
  leaf{4}:mul_(2)
end, {says = "leaf"})

case("view_of_a_leaf_written", function()
  leaf{4}[{{1, 2}}]:mul_(2)
end, {says = "leaf"})

case("expanded_view_written", function()
  local y = leaf{3} * 2
  y:expand(2, 3):add_(1)
end, {says = "several elements share memory"})

case("view_made_without_gradients_written", function()
  local x, w = leaf{4}, leaf({2}, 1)
  local y = x * 2
  local v = flare.no_grad(function() return y[{{1, 2}}] end)
  v:mul_(w)
end, {says = "no_grad"})

case("selected_part_written", function()
  local x, w = leaf{2, 3}, leaf({3}, 1)
  local y = x * 2
  y[1]:mul_(w)
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("unbound_views_written", function()
  local x, w = leaf{2, 3}, leaf({3}, 1)
  local y = x * 2
  local parts = y:unbind()
  parts[1]:mul_(w)
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end, {differs = "parts are views like any other", like = "selected_part_written"})

case("half_written", function()
  local x, w = leaf{4}, leaf({2}, 1)
  local y = x * 2
  y[{{3, 4}}]:mul_(w)
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end)

case("split_views_written", function()
  local x, w = leaf{4}, leaf({2}, 1)
  local y = x * 2
  local parts = y:split(2)
  parts[2]:mul_(w)
  back(y)
  return {y = y, x = x.grad, w = w.grad}
end, {differs = "parts are views like any other", like = "half_written"})

case("second_gradient_through_a_view", function()
  local x, w = leaf{4}, leaf({2}, 1)
  local y = x * x
  y[{{2, 3}}]:mul_(w)
  local g = flare.grad((y * y):sum(), {x}, {create_graph = true})
  back(g)
  return {g = g, x = x.grad, w = w.grad}
end)

require "spec.support.view_grads"(case, wave, leaf, back)

return M
