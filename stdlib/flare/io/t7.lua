--- Files of Torch7 (.t7), in its binary mode: tensors, tables, numbers, strings. An object, such as
-- a layer of nn, becomes the table of its fields with its class in `torch_class`; functions are
-- refused.
--
--     local model = assert(flare.io.t7.load "lenet.t7")
--     print(model.torch_class, model.modules[1].weight.shape)
local core = require "flare.core"
local fail = require "flare.fail"
local kind = require "flare.io.kind"
local options = require "flare.options"
local Cursor = require "flare.io.cursor"

local M = {}

local NIL, NUMBER, STRING, TABLE, OBJECT, BOOLEAN = 0, 1, 2, 3, 4, 5
local DEPTH = 1000

-- Class of elements: dtype, bytes.
local elements = {Float = {"f32", 4}, Double = {"f64", 8}, Half = {"f16", 2}, Long = {"i64", 8},
                  Int = {"i32", 4}, Short = {"i16", 2}, Char = {"i8", 1}, Byte = {"u8", 1},
                  Cuda = {"f32", 4}, CudaDouble = {"f64", 8}, CudaHalf = {"f16", 2},
                  CudaLong = {"i64", 8}, CudaInt = {"i32", 4}, CudaByte = {"u8", 1}}

local function read_string(c)
  return c:take(c:count("<i4", 1, "the length of a string"), "a string")
end

local function read_storage(c, kind_)
  local n = c:count("<i8", kind_[2], "the size of a storage")
  return core.from_bytes(c:take(n * kind_[2], "a storage"), kind_[1], {n})
end

local read_value

local function read_tensor(c, kind_, depth)
  local dims = c:count("<i4", 16, "the number of dims")
  if dims > 8 then c:fail("a tensor of %d dims, at most 8 are supported", dims) end
  local shape, stride, empty = {}, {}, dims == 0
  for k = 1, dims do shape[k] = c:unpack "<i8" end
  for k = 1, dims do stride[k] = c:unpack "<i8" end
  local offset = c:unpack "<i8" - 1
  local storage = read_value(c, depth + 1)
  local count = core.is_tensor(storage) and storage:numel() or 0
  for k = 1, dims do
    if shape[k] < 0 or stride[k] < 0 then c:fail "a tensor has a negative size or stride" end
    empty = empty or shape[k] == 0
  end
  if empty then return core.zeros(dims == 0 and {0} or shape, {dtype = kind_[1]}) end
  if offset < 0 or offset >= count or not core.is_tensor(storage) or storage:dim() ~= 1
     or storage.dtype ~= kind_[1] then
    c:fail "a tensor begins outside of its storage"
  end
  local last = offset
  for k = 1, dims do
    if shape[k] > 1 and stride[k] > (count - 1 - last) // (shape[k] - 1) then
      c:fail("a tensor of (%s) reaches beyond its storage of %d elements",
             table.concat(shape, ", "), count)
    end
    last = last + (shape[k] - 1) * stride[k]
  end
  return storage:as_strided(shape, stride, offset)
end

local function read_object(c, depth)
  local index = c:unpack "<i4"
  if c.seen[index] then return c.seen[index] end
  local version = read_string(c)
  local name = version:find "^V %d+$" and read_string(c) or version
  local element, what = name:match "^torch%.(%a+)(Tensor)$", "Tensor"
  if not element then element, what = name:match "^torch%.(%a+)(Storage)$", "Storage" end
  if element then
    if not elements[element] then c:fail("%s is not read", name:sub(1, 60)) end
    local read = what == "Tensor" and read_tensor or read_storage
    c.seen[index] = read(c, elements[element], depth)
    return c.seen[index]
  end
  local object = {torch_class = name}
  c.seen[index] = object
  local fields = read_value(c, depth + 1)
  if type(fields) ~= "table" then c:fail("the object of %s has no table of fields",
                                         name:sub(1, 60)) end
  for key, value in next, fields do
    if key ~= "torch_class" then object[key] = value end
  end
  return object
end

local function read_table(c, depth)
  local index = c:unpack "<i4"
  if c.seen[index] then return c.seen[index] end
  local t = {}
  c.seen[index] = t
  for _ = 1, c:count("<i4", 8, "the size of a table") do
    local key = read_value(c, depth + 1)
    local value = read_value(c, depth + 1)
    if key == nil or key ~= key then c:fail "a key of a table is nil or NaN" end
    t[key] = value
  end
  return t
end

function read_value(c, depth)
  if depth > DEPTH then c:fail("values are nested more than %d deep", DEPTH) end
  local kind_ = c:unpack("<i4", "a value")
  if kind_ == NIL then return nil end
  if kind_ == NUMBER then
    local x = c:unpack "<d"
    return math.tointeger(x) or x
  end
  if kind_ == STRING then return read_string(c) end
  if kind_ == BOOLEAN then return c:unpack "<i4" ~= 0 end
  if kind_ == TABLE then return read_table(c, depth) end
  if kind_ == OBJECT then return read_object(c, depth) end
  if kind_ >= 6 and kind_ <= 8 then
    c:fail("a function at byte %d, which could run code; flare reads tensors and tables", c.at)
  end
  c:fail("a value of type %d at byte %d; files in Torch7's text mode are not read", kind_, c.at)
end

--- Reads what torch.save wrote in Torch7.
-- @return the value, or nil and a message
function M.load(path)
  if type(path) ~= "string" then
    fail("t7.load: the path must be a string, got %s", options.kind(path))
  end
  local file, message = core.file.open(path)
  if not file then return nil, message end
  local _ <close> = file
  return Cursor.guard(function()
    local c = Cursor(file, path)
    c.seen = {}
    local first = c.size >= 4 and c:unpack "<i4"
    if not first or first < 0 or first > 8 then
      c:fail("not a file of Torch7%s", kind.hint(file:read(0, kind.BYTES) or "", path))
    end
    c.at = 0
    local value = read_value(c, 0)
    if value == nil then c:fail "it holds nil" end
    return value
  end)
end

return M
