--- Reads a TensorProto into a tensor.
local core = require "flare.core"
local refuse = require "flare.onnx.refuse"
local types = require "flare.onnx.types"

local M = {}

local max_dims = 8

-- The number of elements; sizes are checked, so that products cannot overflow.
local function count(dims, what)
  if #dims > max_dims then
    refuse.raise("%s has %d dims, at most %d are possible", what, #dims, max_dims)
  end
  local n, empty = 1, false
  for _, size in ipairs(dims) do
    if size < 0 then refuse.raise("%s has a size of %d", what, size) end
    if size == 0 then
      empty = true
    elseif n > (1 << 47) // size then
      refuse.raise("%s is too large: (%s)", what, table.concat(dims, ", "))
    else
      n = n * size
    end
  end
  return empty and 0 or n
end

-- The position of external data, in another file than the model's.
local function external(proto, files, what)
  local o = {}
  for _, entry in ipairs(proto.external_data or {}) do
    if entry.key then o[entry.key] = entry.value end
  end
  local first, length = math.tointeger(tonumber(o.offset or 0)), tonumber(o.length)
  if not first or first < 0 then refuse.raise("%s has a bad offset", what) end
  return files:beside(o.location or "", what), {first = first, length = length}
end

local function read(file, span, size, what)
  if span.length and span.length ~= size then
    refuse.raise("%s needs %d bytes, the file has %d", what, size, span.length)
  end
  local text, message = file:read(span.first, size)
  if not text then refuse.raise("%s: %s", what, message) end
  if #text ~= size then refuse.raise("%s needs %d bytes, the file has %d", what, size, #text) end
  return text
end

local function from_bytes(text, dtype, dims)
  if dtype ~= "bool" then return core.from_bytes(text, dtype, dims) end
  return core.from_bytes(text, "u8", dims):ne(0)
end

-- The typed fields, which store some types as others.
local function typed(proto, dtype, dims, n, what)
  local field = dtype == "f32" and "float_data" or dtype == "f64" and "double_data"
    or dtype == "i64" and "int64_data" or "int32_data"
  local text = table.concat(proto[field] or {})
  local stored = (dtype == "f32" or dtype == "f64") and dtype or "i64"
  if #text ~= n * types.bytes[stored] then
    refuse.raise("%s of (%s) has %d elements", what, table.concat(dims, ", "),
                 #text // types.bytes[stored])
  end
  local x = core.from_bytes(text, stored, dims)
  if dtype == "f16" or dtype == "bf16" then
    return core.from_bytes(x:to("i16"):bytes(), dtype, dims)
  end
  return dtype == "bool" and x:ne(0) or x:to(dtype)
end

--- The tensor of a TensorProto, on the CPU; a refusal if there is none.
-- @param files of the model that it came from (flare.onnx.files)
function M.read(proto, files)
  local what = proto.name and proto.name ~= "" and ("tensor '%s'"):format(proto.name)
    or "the tensor"
  local dtype = types.dtype(proto.data_type or 0, what)
  local dims = proto.dims or {}
  local n = count(dims, what)
  if n == 0 then return core.zeros(dims, {dtype = dtype}) end
  local bytes = n * types.bytes[dtype]
  if proto.data_location == 1 then
    local file, span = external(proto, files, what)
    return from_bytes(read(file, span, bytes, what), dtype, dims)
  elseif proto.raw_data then
    return from_bytes(read(files.main, proto.raw_data, bytes, what), dtype, dims)
  end
  return typed(proto, dtype, dims, n, what)
end

return M
