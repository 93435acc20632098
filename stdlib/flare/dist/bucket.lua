--- Gradients of many parameters in a few flat tensors, in the order in which backward makes them,
-- which writes them there.
local class = require "flare.class"
local core = require "flare.core"

local Bucket = class "dist.Bucket"

--- @param params of one dtype and device
function Bucket:init(params)
  local n, first = 0, params[1]
  for _, p in ipairs(params) do n = n + p:numel() end
  self.params, self.parts = params, {}
  self.flat = core.zeros({n}, {dtype = first.dtype, device = first.device})
  self:clear()
  n = 1
  for k, p in ipairs(params) do
    self.parts[k] = self.flat:narrow(1, n, p:numel()):view(p.shape)
    core.place_grad(p, self.parts[k])
    n = n + p:numel()
  end
end

function Bucket:clear()
  self.grads, self.missing = {}, #self.params
end

--- Takes the gradient of the k-th parameter, false: zeros.
function Bucket:take(k, grad)
  if self.grads[k] == nil then self.missing = self.missing - 1 end
  self.grads[k] = grad
end

--- Puts what was taken into the flat tensor, where it does not lie there already.
function Bucket:pack()
  for k, grad in pairs(self.grads) do
    local part = self.parts[k]
    if not grad then part:zero_()
    elseif not grad:shares(self.flat) then part:copy_(grad) end
  end
end

--- Makes the parts the gradients of their parameters.
function Bucket:give()
  for k, p in ipairs(self.params) do p.grad = self.parts[k] end
end

--- How much goes at a time: `mb`, or 25 MB and at least a 64th of all, since a call that takes the
-- place of others' work should be worth it.
function Bucket.bytes(params, mb)
  local all = 0
  for _, p in ipairs(params) do all = all + p:nbytes() end
  return mb and math.floor(mb * 2 ^ 20) or math.max(25 << 20, all // 64)
end

--- Buckets of up to so many bytes, the first one small: it is to leave early.
-- @param params in the order in which gradients come
function Bucket.divide(params, bytes)
  local list, current, size = {}, {}, 0
  local limit = math.min(bytes, 1 << 20)
  for _, p in ipairs(params) do
    local first = current[1]
    local more = p:numel() * p:element_size()
    if first and (size + more > limit or first.dtype ~= p.dtype or first.device ~= p.device) then
      list[#list + 1] = Bucket(current)
      current, size, limit = {}, 0, bytes
    end
    current[#current + 1], size = p, size + more
  end
  if #current > 0 then list[#list + 1] = Bucket(current) end
  return list
end

return Bucket
