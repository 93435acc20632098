--- Constants, casts, ranges and triangular matrices.
local core = require "flare.core"
local types = require "flare.onnx.types"
local Node = require "flare.onnx.node"

local M = {}

local function cast(x, dtype)
  return dtype == "bool" and x.dtype ~= "bool" and x:ne(0) or x:to(dtype)
end

function M.Cast(n, x) return cast(x, types.dtype(types.code(n.attr.to), "the result of Cast")) end
function M.CastLike(_, x, like) return cast(x, like.dtype) end

function M.BitCast(n, x)
  local dtype = types.dtype(n.attr.to, "the result of BitCast")
  if types.bytes[dtype] ~= types.bytes[x.dtype] then
    n:fail("%s cannot be taken as %s: they differ in size", x.dtype, dtype)
  end
  local stored = dtype == "bool" and "u8" or dtype
  if x:numel() == 0 then return x:to(dtype) end
  local y = core.from_bytes(x:to("cpu"):contiguous():bytes(), stored, n:shape(x))
  return cast(y, dtype):to(x.device)
end

function M.Constant(n)
  local a = n.attr
  if a.value then return a.value end
  if a.value_ints then return n:ints(a.value_ints) end
  if a.value_int then return Node.remember(core.tensor(a.value_int, {dtype = "i64"}):to(n.device),
                                           {a.value_int}) end
  if a.value_float then return core.tensor(a.value_float):to(n.device) end
  if a.value_floats then return core.tensor(a.value_floats):to(n.device) end
  n:fail("a constant of strings, or without a value")
end

function M.ConstantOfShape(n, shape)
  local value = n.attr.value
  local dtype = value and value.dtype or "f32"
  local y = core.zeros(n:list(shape), {dtype = dtype, device = n.device})
  return value and y:to(dtype):copy_(value:reshape({}):expand(n:shape(y))) or y
end

function M.EyeLike(n, x)
  local dtype = n.attr.dtype and types.dtype(n.attr.dtype, "the result of EyeLike") or x.dtype
  local rows, columns = x.shape[1], x.shape[2]
  local r = core.arange(0, rows, {device = x.device}):unsqueeze(2)
  local c = core.arange(0, columns, {device = x.device})
  return (c - r):eq(n.attr.k or 0):to(dtype)
end

-- Sizes are computed as the standard does, elements as start + i * delta.
function M.Range(n, start, limit, delta)
  local first, last, step = n:number(start), n:number(limit), n:number(delta)
  if step == 0 then n:fail("delta is 0") end
  local count = math.max(math.ceil((last - first) / step), 0)
  local index = core.arange(0, count, {device = n.device})
  if types.is_float(start.dtype) then index = index:to("f64") end
  return (index * step + first):to(start.dtype)
end

function M.Trilu(n, x, k)
  local diagonal = n:number(k, 0)
  if n.attr.upper == 0 then return x:tril(diagonal) end
  return x:triu(diagonal)
end

return M
