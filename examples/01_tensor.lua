-- Tensors: making them, looking at them, computing with them.
local flare = require "flare"
flare.args(arg, "Makes tensors, shows them and computes with them.")

local x = flare.tensor{{1, 2, 3}, {4, 5, 6}}
print(x)                       -- elements, then dtype, shape and device
print(x.shape, x.dtype, x.device, #x, x:numel())

local y = flare.ones(2, 3) * 10
print(x + y)                   -- element by element
print(x * flare.tensor{1, 0, -1})   -- a row is used for every row of x
print(x:matmul(x.T))           -- products of matrices
print(x:sum(), x:mean{dim = 1}, x:amax{dim = 2, keepdim = true})

print(x:gt(3))                 -- comparisons are methods and give booleans
print(x:view(3, 2), x:transpose(1, 2))   -- other views of the same memory

x:mul_(2)                      -- a trailing underscore changes x itself
print(x[{2, 3}]:item())        -- one element as a Lua number

flare.manual_seed(1)
print(flare.randn(2, 2), flare.randint(1, 7, {5}))
