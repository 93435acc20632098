-- A function with a custom gradient: forward computes the result, backward the gradient that the
-- chain rule uses. Here rounding, whose gradient is zero, passes gradients (straight-through).
local flare = require "flare"
flare.args(arg, "Trains through rounding, by a function with a gradient of its own.")

local round = flare.func{
  name = "round_through",
  forward = function(_, x) return x:round() end,
  backward = function(_, dy) return dy end,
}

flare.manual_seed(1)
local target = flare.tensor{3, -1, 2, 0}
local x = flare.randn(4, {requires_grad = true})
for _ = 1, 100 do
  local loss = (round(x) - target):square():sum()
  loss:backward()
  local _ <close> = flare.no_grad()
  x:sub_(x.grad * 0.1)
  x.grad = nil
end
print(round(x))
