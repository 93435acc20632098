--- Attention of several heads over (batch, time, width), for encoders.
local core = require "flare.core"

--- Attention of q to k and v.
-- @param q (batch, time, width), k and v (batch, other time, width)
-- @param o {heads =, mask = true where a query sees a key, causal =, scale =, dropout =}
-- @return (batch, time, width)
return function(q, k, v, o)
  local shape = q.shape
  local function split(x) return x:view(shape[1], x:size(2), o.heads, -1):transpose(2, 3) end
  local y = core.attention(split(q), split(k), split(v), o.mask,
    {causal = o.causal or false, scale = o.scale, dropout = o.dropout or 0})
  return y:transpose(2, 3):reshape(shape)
end
