-- Gradients: flare records operations on tensors that require gradients; backward computes them.
local flare = require "flare"
flare.args(arg, "Computes gradients, and gradients of gradients.")

local x = flare.tensor({1, 2, 3}, {requires_grad = true})
local y = (x ^ 2):sum()
y:backward()
print(x.grad)                  -- 2 * x

-- the functional form, and the derivative of a derivative
local z = (x ^ 3):sum()
local dz = flare.grad(z, {x}, {create_graph = true})
print(dz)                      -- 3 * x^2
print((flare.grad(dz:sum(), {x})))   -- 6 * x

-- nothing is recorded in here
do
  local _ <close> = flare.no_grad()
  print((x * 2).requires_grad)
end
print(x:detach().requires_grad)
