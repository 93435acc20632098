-- Writes protobuf files for specs, by the importer's schema turned round: a table of fields by
-- name becomes bytes, lists become repeated fields, packed where numbers may be.
local schema = require "flare.onnx.schema"

local M = {}

local function varint(n)
  local bytes = {}
  repeat
    local low = n & 127
    n = n >> 7
    bytes[#bytes + 1] = string.char(n ~= 0 and low | 128 or low)
  until n == 0
  return table.concat(bytes)
end

local function tagged(number, wire, text) return varint(number << 3 | wire) .. text end

local function block(number, text) return tagged(number, 2, varint(#text) .. text) end

local function one(number, kind, value)
  if type(kind) == "table" then return block(number, M.encode(kind, value)) end
  if kind == "int" then return tagged(number, 0, varint(value)) end
  if kind == "float" then return tagged(number, 5, string.pack("<f", value)) end
  if kind == "varints" then
    local parts = {}
    for k, v in ipairs(value) do parts[k] = varint(v) end
    return block(number, table.concat(parts))
  elseif kind == "fixed" then
    local format = number == 10 and "<d" or "<f"
    local parts = {}
    for k, v in ipairs(value) do parts[k] = format:pack(v) end
    return block(number, table.concat(parts))
  end
  return block(number, value)
end

--- The bytes of a message.
function M.encode(message, values)
  local parts, numbers = {}, {}
  for number, field in pairs(message) do
    if values[field[1]] ~= nil then numbers[#numbers + 1] = number end
  end
  table.sort(numbers)
  for _, number in ipairs(numbers) do
    local field = message[number]
    local value = values[field[1]]
    if field.many then
      for _, v in ipairs(value) do parts[#parts + 1] = one(number, field[2], v) end
    else
      parts[#parts + 1] = one(number, field[2], value)
    end
  end
  return table.concat(parts)
end

local types = {f32 = 1, u8 = 2, i8 = 3, i32 = 6, i64 = 7, bool = 9, f16 = 10, f64 = 11}

--- A TensorProto with its data in the field for its type.
function M.tensor(name, dtype, dims, values)
  local field = dtype == "f32" and "float_data" or dtype == "f64" and "double_data"
    or dtype == "i64" and "int64_data" or "int32_data"
  return {name = name, data_type = types[dtype], dims = dims, [field] = values}
end

--- A ValueInfoProto of a tensor; sizes that are strings are names.
function M.value(name, dtype, sizes)
  local dims = {}
  for k, size in ipairs(sizes) do
    dims[k] = type(size) == "string" and {param = size} or {value = size}
  end
  return {name = name, type = {tensor = {elem_type = types[dtype], shape = {dim = dims}}}}
end

local kinds = {f = 1, i = 2, s = 3, t = 4, g = 5, floats = 6, ints = 7}

--- A NodeProto; attributes are {name = {field, value}}, such as {axis = {"i", 1}}.
function M.node(op, inputs, outputs, attributes, domain)
  local list = {}
  for name, a in pairs(attributes or {}) do
    list[#list + 1] = {name = name, type = kinds[a[1]], [a[1]] = a[2]}
  end
  return {op_type = op, input = inputs, output = outputs, attribute = list, domain = domain}
end

--- The bytes of a model with a graph, and what `more` has of its other fields.
function M.model(graph, version, more)
  local all = {ir_version = 8, graph = graph, opset_import = {{version = version}}}
  for key, value in pairs(more or {}) do all[key] = value end
  return M.encode(schema.Model, all)
end

--- The bytes of a file with one tensor.
function M.tensor_file(...)
  return M.encode(schema.Tensor, M.tensor(...))
end

return M
