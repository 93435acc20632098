--- A gradient bucket: parameters whose gradients are adjacent in one flat tensor, which is
-- communicated as a whole. Between open and close backward writes gradients into it; at other times
-- it occupies no memory.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local Bucket = class "dist.Bucket"
Bucket.__keeps = true

--- @param named parameters of one dtype and device, {name, tensor} each
-- @param parts the flat tensor is padded with zeros to a multiple of this (1)
-- @param compress the dtype in which f32 and f64 gradients are sent; nil: their own
function Bucket:init(named, parts, compress)
  self.params, self.names, self.shapes, self.from = {}, {}, {}, {}
  local n = 0
  for k, pair in ipairs(named) do
    local p = pair[2]
    self.names[k], self.params[k] = pair[1], p
    self.shapes[k], self.from[k] = {table.unpack(p.shape, 1, p:dim())}, n + 1
    n = n + p:numel()
  end
  parts = parts or 1
  self.numel, self.size = n, -(-n // parts) * parts
  self.dtype, self.device = named[1][2].dtype, named[1][2].device
  self.sends = (self.dtype == "f32" or self.dtype == "f64") and compress or self.dtype
  self:clear()
end

--- The view of the k-th parameter in a flat tensor.
function Bucket:view(flat, k)
  local n = 1
  for _, size in ipairs(self.shapes[k]) do n = n * size end
  local part <close> = flat:narrow(1, self.from[k], n)
  return part:view(self.shapes[k])
end

--- Whether `grad` is the k-th parameter's view of the bucket, which backward wrote.
function Bucket:holds(k, grad)
  return self.flat and grad and grad:shares(self.flat)
    and grad:storage_offset() == self.from[k] - 1
end

--- Packs tensors into a flat tensor, zeros for those that are missing: into the bucket's own while
-- it is open, where most are in place already, otherwise into a new one of the dtype.
function Bucket:pack(list, dtype)
  local flat = self.flat or core.empty({self.size}, {dtype = dtype, device = self.device})
  for k in ipairs(self.shapes) do
    if not self:holds(k, list[k]) then
      local place <close> = self:view(flat, k)
      if list[k] then place:copy_(list[k]) else place:zero_() end
    end
  end
  if self.size > self.numel then
    flat:narrow(1, self.numel + 1, self.size - self.numel):zero_()
  end
  return flat
end

--- Allocates the flat tensor and lets backward write gradients into it.
-- @param hold gradients will be accumulated: does nothing if the bucket would round them
function Bucket:open(hold)
  if self.flat or hold and self.sends ~= self.dtype then return end
  self.flat = core.empty({self.size}, {dtype = self.sends, device = self.device})
  for k, p in ipairs(self.params) do
    if p.requires_grad then core.place_grad(p, self.flat, self.from[k]) end
  end
end

--- Releases the flat tensor; views of it keep its memory.
function Bucket:close()
  if not self.flat then return end
  for _, p in ipairs(self.params) do core.place_grad(p, nil) end
  self.flat:close()
  self.flat = nil
end

function Bucket:clear()
  for _, grad in pairs(self.grads or {}) do grad:close() end -- handles made by Queue:ready
  self.grads, self.missing = {}, #self.params
end

--- Stores the gradient of the k-th parameter.
function Bucket:take(k, grad)
  if self.grads[k] then self.grads[k]:close() end
  self.grads[k] = grad
end

--- The size of a bucket in bytes: `mb`, or the larger of 25 MB and a 64th of all parameters, since
-- each collective delays other work on the device.
function Bucket.bytes(params, mb)
  local all = 0
  for _, p in ipairs(params) do all = all + p:nbytes() end
  if mb and (type(mb) ~= "number" or mb < 0 or mb ~= mb or mb == math.huge) then
    fail("bucket_mb must be a number of at least 0, got %s", tostring(mb))
  end
  return mb and math.floor(mb * 2 ^ 20) or math.max(25 << 20, all // 64)
end

--- Checks an option that names a lower dtype.
function Bucket.check_low(where, option, dtype)
  if dtype ~= nil and dtype ~= "bf16" and dtype ~= "f16" then
    fail("%s: %s must be \"bf16\" or \"f16\", got %s", where, option,
      type(dtype) == "string" and ("%q"):format(dtype) or options.kind(dtype))
  end
end

--- Checks that names, shapes and dtypes are the same on all ranks, before a collective can hang.
function Bucket.compare(where, group, named)
  if group.size == 1 then return end
  local words = {}
  for k, pair in ipairs(named) do
    local p = pair[2]
    words[k] = ("%s %s %s"):format(pair[1], p.dtype, table.concat(p.shape, "x"))
  end
  local mine = core.tensor({core.crc32c(table.concat(words, "\n")), #named}, {dtype = "i64"})
  local all = group:all_gather(mine):tolist()
  for rank = 1, group.size - 1 do
    if all[2 * rank + 1] ~= all[1] then
      fail("%s: the model of rank %d has other parameters (%d tensors) than that of rank %d "
        .. "(%d tensors)", where, group.ranks[rank + 1], all[2 * rank + 2], group.ranks[1], all[2])
    end
  end
end

--- Divides parameters, the last one first, into lists of one dtype and device and at most `bytes`.
-- @param named {name, tensor} each
-- @param first the limit of the first list, if lower
function Bucket.divide(named, bytes, first)
  local lists, size, limit = {}, 0, math.min(bytes, first or bytes)
  local current, before
  for k = #named, 1, -1 do
    local p = named[k][2]
    local more = p:nbytes()
    if not current or size + more > limit or before.dtype ~= p.dtype or before.device ~= p.device
    then
      limit = current and bytes or limit
      current, size = {}, 0
      lists[#lists + 1] = current
    end
    current[#current + 1], size, before = named[k], size + more, p
  end
  return lists
end

--- The parameters of a module that require gradients, {name, tensor} each.
function Bucket.learning(module)
  local list = {}
  for name, p in module:named_parameters() do
    if p.requires_grad then list[#list + 1] = {name, p} end
  end
  return list
end

return Bucket
