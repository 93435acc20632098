--- Reductions of many tensors over the ranks of a group, in flat pieces of one dtype.
local core = require "flare.core"

local PIECE = 25 << 20 -- bytes

--- Writes the mean (or sum) over the ranks over each tensor. All ranks pass the same list.
-- @param tensors a list @param group @param how "mean" or "sum"
return function(tensors, group, how)
  if group.size == 1 then return end
  local _ <close> = core.no_grad()
  local at = 1
  while at <= #tensors do
    local first, list, bytes = tensors[at], {}, 0
    while tensors[at] and tensors[at].dtype == first.dtype and tensors[at].device == first.device
        and (bytes == 0 or bytes + tensors[at]:nbytes() <= PIECE) do
      list[#list + 1] = tensors[at]
      bytes = bytes + tensors[at]:nbytes()
      at = at + 1
    end
    if #list == 1 and first:is_contiguous() then
      group:all_reduce_(first, {reduce = how})
    else
      local flat = {}
      for k, t in ipairs(list) do flat[k] = t:reshape(-1) end
      flat = core.cat(flat, 1)
      group:all_reduce_(flat, {reduce = how})
      local from = 1
      for _, t in ipairs(list) do
        t:copy_(flat:narrow(1, from, t:numel()):view(t.shape))
        from = from + t:numel()
      end
    end
  end
end
