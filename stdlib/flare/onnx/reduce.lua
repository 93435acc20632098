--- Reductions.
local core = require "flare.core"
local types = require "flare.onnx.types"

local M = {}

-- Since this version the axes are an input.
local input_since = {ReduceSum = 13}

-- The dims of a reduction; nil: all of them.
local function dims_of(n, x, axes)
  local list = axes and n:list(axes)
  if not axes and (n.version or 18) < (input_since[n.name] or 18) then list = n.attr.axes end
  if list and #list > 0 then return n:axes(list, x:dim()) end
  return nil
end

-- f(x, {dims =, keepdim =}). With "no reduction" each element is a group of its own.
local function reduction(f, nothing)
  return function(n, x, axes)
    local dims, dtype = dims_of(n, x, axes), x.dtype
    local keepdim = n.attr.keepdims ~= 0
    if not dims and n.attr.noop_with_empty_axes == 1 then
      x, dims, keepdim = x:unsqueeze(-1), {-1}, false
    elseif not dims and x:dim() == 0 then
      x, dims, keepdim = x:unsqueeze(-1), {-1}, false
    end
    local o = {dims = dims, keepdim = keepdim}
    if nothing and x:numel() == 0 then
      local zeros = core.zeros(n:shape(x), {device = x.device}):sum(o)
      return (zeros + nothing(dtype)):to(dtype)
    end
    return f(x, o):to(dtype)
  end
end

local function wide(x) return types.is_float(x.dtype) and x or x:to("f64") end

local lowest = {i64 = math.mininteger, i32 = -(1 << 31), i16 = -(1 << 15), i8 = -128, u8 = 0,
                bool = 0}
local highest = {i64 = math.maxinteger, i32 = (1 << 31) - 1, i16 = (1 << 15) - 1, i8 = 127,
                 u8 = 255, bool = 1}

M.ReduceSum = reduction(core.sum)
M.ReduceProd = reduction(core.prod)
M.ReduceMean = reduction(core.mean)
M.ReduceMax = reduction(core.amax, function(dtype) return lowest[dtype] or -math.huge end)
M.ReduceMin = reduction(core.amin, function(dtype) return highest[dtype] or math.huge end)
M.ReduceL1 = reduction(function(x, o) return x:abs():sum(o) end)
M.ReduceL2 = reduction(function(x, o) return x:square():sum(o):sqrt() end)
M.ReduceSumSquare = reduction(function(x, o) return x:square():sum(o) end)
M.ReduceLogSum = reduction(function(x, o) return wide(x):sum(o):log() end)
M.ReduceLogSumExp = reduction(function(x, o) return wide(x):logsumexp(o) end,
                              function() return -math.huge end)

return M
