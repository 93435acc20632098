-- Positions count from 1, -1 is the last, ranges include both ends.
local flare = require "flare"
flare.args(arg, "Reads and writes parts of tensors by position, range and mask.")

local x = flare.arange(1, 13):view(3, 4)
print(x)
print(x[1])                    -- the first row
print(x[{2, -1}])              -- row 2, last column
print(x[{{1, 2}, {}}])         -- rows 1 to 2, all columns
print(x[{{}, {1, 4, 2}}])      -- every second column

local mask = x:gt(6)
print(x[mask])                 -- the elements where mask is true
print(x[flare.tensor({3, 1}, {dtype = "i64"})])   -- rows by position

x[{1, {}}] = 0                 -- all of these can be assigned to
x[mask] = -1
print(x)

-- 0 is no position, and the message says so
print(pcall(function() return x[0] end))
