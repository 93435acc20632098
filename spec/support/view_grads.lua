--- More cases of view_cases.lua: views made without gradients, gradients of results and of older
-- views, gradients that are kept.
local flare = require "flare"

return function(case, wave, leaf, back)

case("view_made_without_gradients_changed", function()
  local y = leaf{4} * 2
  local v = flare.no_grad(function() return y[{{1, 2}}] end)
  v:mul_(3)
end, {says = "no_grad"})

case("view_of_a_view_made_without_gradients_changed", function()
  local y = leaf{4} * 2
  local v = flare.no_grad(function() return y[{{1, 3}}] end)
  v[{{1, 2}}]:mul_(3)
end, {says = "no_grad"})

case("view_of_a_leaf_made_without_gradients_changed", function()
  local x = leaf{4}
  local v = flare.no_grad(function() return x[{{1, 2}}] end)
  v:mul_(3)
  back(x * x)
  return {value = x, v = v, x = x.grad}
end)

case("zeroed", function()
  local x = leaf{4}
  local y = x * 2
  y:zero_()
  back(y)
  return {y = y, x = x.grad}
end)

case("older_view_asked_for_gradients", function()
  local x, w = leaf{3, 1}, leaf({2, 1}, 1)
  local y = x * 2
  local v = y:unsqueeze(1)[{{}, {}, 1}]
  y[{{2, -1}}] = w * y[{{1, -2}}]:clone()
  local gx, gw = flare.grad((v * wave({1, 3}, 3)):sum(), {x, w})
  return {v = v, x = gx, w = gw}
end)

case("older_views_of_two_bases_asked_for_gradients", function()
  local x, w = leaf{4}, leaf({4}, 1)
  local y, z = x * 2, w * w
  local u, v = y[{{2, 3}}], z[{{1, 2}}]
  y:mul_(w)
  z:mul_(x)
  local g = flare.grad((u * v):sum(), {x}, {create_graph = true})
  back(g)
  return {g = g, x = x.grad, w = w.grad}
end)

case("gradients_of_a_result_leave_what_made_it", function()
  local x = leaf{4}
  local y = x * x
  local g = flare.grad((y * y):sum(), {y})
  back(y)
  return {g = g, x = x.grad}
end)

case("gradients_of_a_result_need_not_what_made_it", function()
  local x = leaf{4}
  local u = x * 2
  local y = u * x
  u:zero_()
  return {g = flare.grad((y * y):sum(), {y})}
end)

case("retained_before_a_write", function()
  local x = leaf{4}
  local y = x * 2
  y:retain_grad()
  y:square_()
  back(y * 2)
  return {x = x.grad, y = y.grad}
end)

case("retained_of_a_view_before_a_write", function()
  local x, w = leaf{4}, leaf({4}, 1)
  local y = x * 2
  local v = y[{{2, 3}}]
  v:retain_grad()
  y:mul_(w)
  back(v)
  return {x = x.grad, v = v.grad}
end)

case("retained_adds_up", function()
  local x = leaf{4}
  local y = x * 2
  y:retain_grad()
  y:register_hook(function(g) return g * 2 end);
  (y * wave({4}, 3)):sum():backward{retain_graph = true}
  back(y * y, 1)
  return {x = x.grad, y = y.grad}
end)

case("frozen_after_it_was_used", function()
  local x, w = leaf{4}, leaf({4}, 1)
  local y = x * w
  x:requires_grad_(false)
  back(y)
  return {x = x.grad, w = w.grad}
end)

end
