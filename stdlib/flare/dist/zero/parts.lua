--- What all stages of ZeRO do with a rank's parts of the parameters: make them and add gradients.
local core = require "flare.core"
local Bucket = require "flare.dist.gradients.bucket"
local Shard = require "flare.dist.zero.shard"

local M = {}

--- Shards of parameters of one kind each, in the order that backward meets them.
-- @param named the parameters, {name, tensor} each
-- @param bytes how many a shard has at most
-- @param stay the parameters stay whole, see Shard
function M.divide(zero, named, bytes, stay)
  local kinds, of, list = {}, {}, {}
  for _, pair in ipairs(named) do
    local kind = zero.kind and zero.kind(pair[1], pair[2]) or false
    if not of[kind] then
      kinds[#kinds + 1], of[kind] = kind, {}
    end
    table.insert(of[kind], pair)
  end
  for _, kind in ipairs(kinds) do
    for _, part in ipairs(Bucket.divide(of[kind], bytes)) do
      local shard = Shard(part, zero.group, zero.compress, stay)
      shard.kind = kind
      list[#list + 1] = shard
    end
  end
  return list
end

--- Adds reduced gradients to those of the parts, except where no rank has one.
-- @param list of {part, handle of the gradient}
-- @param has 1 for each entry of the list for which this rank has one, else 0
function M.add(zero, list, has)
  if zero.find_unused and #list > 0 then
    has = zero.group:all_reduce(core.tensor(has, {dtype = "i32"}), {reduce = "max"}):tolist()
  end
  for k, pair in ipairs(list) do
    local part, grad = pair[1], pair[2]:wait()
    if not zero.find_unused or has[k] == 1 then
      if part.grad then part.grad:add_(grad) else part.grad = grad end
    end
  end
end

return M
