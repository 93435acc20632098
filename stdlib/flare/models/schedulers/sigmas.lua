--- Other distributions of noise levels over the steps of an Euler scheduler.
local fail = require "flare.fail"

-- n numbers from the first to the last, in equal steps of f(x).
local function between(first, last, n, f, inverse)
  local out, a, b = {}, f(first), f(last)
  for k = 0, n - 1 do out[k + 1] = inverse(a + (n > 1 and k / (n - 1) or 0) * (b - a)) end
  return out
end

-- Fields of configurations, and functions of the levels.
local kinds = {
  use_karras_sigmas = function(first, last, n) -- arXiv:2206.00364
    return between(first, last, n, function(x) return x ^ (1 / 7) end,
                   function(x) return x ^ 7 end)
  end,
  use_exponential_sigmas = function(first, last, n)
    return between(first, last, n, math.log, math.exp)
  end,
}

--- The levels of n steps as a configuration asks for; nil if they remain as they are.
-- @param list of levels, the highest first
return function(c, list, n)
  local found, name
  for field, kind in pairs(kinds) do
    if c[field] and found then fail("%s and %s exclude each other", name, field) end
    if c[field] then found, name = kind, field end
  end
  if c.use_beta_sigmas then fail("use_beta_sigmas is not known; use_karras_sigmas is") end
  return found and found(c.sigma_max or list[1], c.sigma_min or list[#list], n)
end
