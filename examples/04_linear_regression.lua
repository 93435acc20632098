-- A straight line through noisy points, by hand: no layers, no optimizer.
local flare = require "flare"
flare.args(arg, "Fits a straight line to noisy points, without layers or an optimizer.")

flare.manual_seed(1)
local x = flare.rand(200, 1) * 4 - 2
local y = x * 3 + 0.5 + flare.randn(200, 1) * 0.1

local slope = flare.zeros(1, 1, {requires_grad = true})
local offset = flare.zeros(1, {requires_grad = true})

for step = 1, 200 do
  local loss = (flare.linear(x, slope, offset) - y):square():mean()
  loss:backward()
  do
    local _ <close> = flare.no_grad()
    slope:sub_(slope.grad * 0.1)
    offset:sub_(offset.grad * 0.1)
  end
  slope.grad, offset.grad = nil, nil
  if step % 50 == 0 then print(("step %d  loss %.4f"):format(step, loss:item())) end
end
print(("y = %.2f x + %.2f"):format(slope:item(), offset:item()))
