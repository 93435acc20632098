--- The parameters of a CUDA kernel: read from its source, or from a list of declarations, and the
-- bytes of the numbers that are given for them.
local M = {}

local names = {
  f32 = {"float"}, f64 = {"double"}, f16 = {"half", "__half"}, bf16 = {"__nv_bfloat16", "bf16"},
  i64 = {"long long", "long long int", "int64_t", "long", "long int", "ptrdiff_t"},
  i32 = {"int", "int32_t", "signed", "signed int"}, i16 = {"short", "short int", "int16_t"},
  i8 = {"char", "signed char", "int8_t"}, u8 = {"unsigned char", "uint8_t"}, bool = {"bool"},
  u16 = {"unsigned short", "uint16_t"}, u32 = {"unsigned", "unsigned int", "uint32_t"},
  u64 = {"unsigned long long", "unsigned long", "size_t", "uint64_t"},
}
local dtype_of = {}
for dtype, list in pairs(names) do
  dtype_of[dtype] = dtype
  for _, name in ipairs(list) do dtype_of[name] = dtype end
end

local formats = {
  f32 = "f", f64 = "d", i64 = "<i8", i32 = "<i4", i16 = "<i2", i8 = "<i1",
  u8 = "<I1", u16 = "<I2", u32 = "<I4", u64 = "<I8",
}
local ranges = {u64 = {0, math.maxinteger}, i64 = {math.mininteger, math.maxinteger}}
for bits = 8, 32, 8 do
  ranges["i" .. bits] = {-(1 << (bits - 1)), (1 << (bits - 1)) - 1}
  ranges["u" .. bits] = {0, (1 << bits) - 1}
end

-- Replaces comments by blanks, so that positions in the text do not change.
local function bare(source)
  local function blank(text) return (text:gsub("[^\n]", " ")) end
  return (source:gsub("/%*.-%*/", blank):gsub("//[^\n]*", blank))
end

local function split(list)
  local parts, depth, from = {}, 0, 1
  for i = 1, #list + 1 do
    local c = list:sub(i, i)
    if c:find "[<(%[{]" then depth = depth + 1 end
    if c:find "[>)%]}]" then depth = depth - 1 end
    if i > #list or c == "," and depth == 0 then
      parts[#parts + 1] = list:sub(from, i - 1)
      from = i + 1
    end
  end
  return parts
end

-- "const float *__restrict__ x": {name =, dtype = (nil: unknown), text =, pointer =, const =}
local function parameter(text)
  local const = text:find "%f[%w_]const%f[^%w_][^*]*%*" ~= nil
  local pointer = text:find "[%*%[]" ~= nil
  text = text:gsub("%f[%w_][%w_]*restrict[%w_]*", " "):gsub("__grid_constant__", " ")
    :gsub("%f[%w_]const%f[^%w_]", " "):gsub("%f[%w_]volatile%f[^%w_]", " "):gsub("%b[]", " ")
  local kind, name = text:match "^%s*(.-)%s*([%a_][%w_]*)%s*$"
  if not name then return nil end
  local _, stars = kind:gsub("%*", "")
  kind = kind:gsub("%*", " "):gsub("%s+", " "):gsub("^ ", ""):gsub(" $", "")
  return {name = name, dtype = stars < 2 and dtype_of[kind] or nil, text = kind,
          pointer = pointer, const = const}
end

--- The parameters of kernel `name` in `source`.
-- @return a list of them, or nil and what is wrong
function M.read(source, name)
  local text, list = bare(source), nil
  local base = name:match "^[%w_:]+" or name
  for from in text:gmatch "()__global__" do
    local head = text:sub(from):match "^[^;{]*" or ""
    list = list or head:match("%f[%w_]" .. base .. "%s*(%b())%s*$")
  end
  if not list then return nil, ("the source has no __global__ function %s"):format(base) end
  local params = {}
  list = list:sub(2, -2)
  if not list:find "%S" or list:find "^%s*void%s*$" then return params end
  for i, part in ipairs(split(list)) do
    local p = parameter(part)
    if not p then return nil, ("parameter %d of %s is not understood: %s"):format(i, base, part) end
    params[i] = p
  end
  return params
end

--- Declarations like "x:f32*", "y:const f16*", "n:i32".
-- @return a list as `read` gives it, or nil and what is wrong
function M.declared(list)
  local params = {}
  for i, text in ipairs(list) do
    local name, const, dtype, star = tostring(text):match
      "^%s*([%a_][%w_]*)%s*:%s*(c?o?n?s?t?)%s*([%w_]+)%s*(%*?)%s*$"
    if not name or not dtype_of[dtype] or (const ~= "" and const ~= "const") then
      return nil, ("args[%d] must be like \"x:f32*\", \"x:const f32*\" or \"n:i32\", got %s")
        :format(i, tostring(text))
    end
    params[i] = {name = name, dtype = dtype_of[dtype], text = dtype, pointer = star == "*",
                 const = const == "const"}
  end
  return params
end

--- The bytes of a number for parameter `p`.
-- @return a string, or nil and what was expected
function M.bytes(p, value)
  if p.dtype == "bool" then
    if type(value) ~= "boolean" then return nil, "true or false" end
    return value and "\1" or "\0"
  end
  if p.dtype == "f32" or p.dtype == "f64" then
    if type(value) ~= "number" then return nil, "a number" end
    return string.pack(formats[p.dtype], value)
  end
  local range = ranges[p.dtype]
  if not range then return nil, ("a pointer: numbers cannot be %s"):format(p.dtype) end
  local n = type(value) == "number" and math.tointeger(value)
  if not n then return nil, "an integer" end
  if n < range[1] or n > range[2] then
    return nil, ("an integer from %d to %d"):format(range[1], range[2])
  end
  return string.pack(formats[p.dtype], n)
end

return M
