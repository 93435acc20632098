--- The header of an .npy file: parsing untrusted ones, and making one.
--
-- A file is the magic, a version, the header's length, the header (a Python dict with descr,
-- fortran_order and shape, nothing else), then the elements. Nothing is ever unpickled.
local M = {}

M.LIMIT = 65535 -- bytes of the dict; NumPy itself refuses to read more than 10000

-- Type in the file without its byte order: the dtype that is read, its bytes, the dtype of the
-- result.
local types = {
  f8 = {"f64", 8}, f4 = {"f32", 4}, f2 = {"f16", 2}, i8 = {"i64", 8}, i4 = {"i32", 4},
  i2 = {"i16", 2}, i1 = {"i8", 1}, u1 = {"u8", 1}, b1 = {"u8", 1, "bool"},
  c8 = {"f32", 8, "complex"}, c16 = {"f64", 16, "complex"}, -- read as pairs
  u2 = {"i16", 2, "i32", 0xffff}, u4 = {"i32", 4, "i64", 0xffffffff}, u8 = {"i64", 8, "unsigned"},
}
M.names = {f64 = "<f8", f32 = "<f4", f16 = "<f2", i64 = "<i8", i32 = "<i4", i16 = "<i2",
           i8 = "|i1", u8 = "|u1", bool = "|b1", c64 = "<c8", c128 = "<c16"}

local others = {
  O = "pickled Python objects, which are never read", S = "byte strings", U = "strings",
  V = "records or a type that NumPy does not know (bf16 perhaps: save it as f32)",
  c = "complex numbers of this size", M = "dates", m = "time spans", f = "floats of this size",
}

-- A type's text, "<f4"; nil and a message.
local function parse_descr(descr)
  local order, kind = descr:match "^([<>|])(%a%d+)$"
  local type_ = types[kind]
  if type_ and (order ~= "|" or type_[2] == 1) then
    return {dtype = type_[1], size = type_[2], becomes = type_[3], mask = type_[4],
            big = order == ">"}
  end
  local what = types[descr:match "^[|=]?(.*)"] and "the order of its bytes is not said"
    or others[descr:match "^[<>|=]?(%a)" or ""]
  return nil, ("unsupported dtype '%s'%s"):format(descr:sub(1, 40), what and ": " .. what or "")
end

-- Parses the dict's text from left to right.
local Scan = {}
Scan.__index = Scan

function Scan:take(pattern)
  local first, last, found = self.text:find("^%s*" .. pattern, self.at)
  if first then self.at = last + 1 end
  return first and (found or true)
end

function Scan:bad(expected)
  return nil, ("invalid header at byte %d: expected %s"):format(self.at, expected)
end

function Scan:string()
  return self:take "'([^'\\]*)'" or self:take '"([^"\\]*)"'
end

function Scan:descr()
  if self:take "%[" then
    return nil, "unsupported dtype: records (a list of named fields)"
  end
  local text = self:string()
  if not text then return self:bad "a type" end
  return parse_descr(text)
end

function Scan:fortran_order()
  if self:take "True%f[^%w_]" then return true end
  if self:take "False%f[^%w_]" then return false end
  return self:bad "True or False"
end

function Scan:shape()
  if not self:take "%(" then return self:bad "a tuple of sizes" end
  local shape, comma = {}, true
  while not self:take "%)" do
    if not comma then return self:bad "',' or ')'" end
    local digits = self:take "([+-]?%w+)"
    if not digits then return self:bad "a size" end
    local size = math.tointeger(tonumber(digits:match "^(%d+)L?$"))
    if not size then
      return nil, ("dimension %d is %s, not an integer in range"):format(#shape + 1,
                                                                       digits:sub(1, 40))
    end
    shape[#shape + 1] = size
    comma = self:take ","
  end
  if #shape == 1 and not comma then return self:bad "a tuple, (n,)" end
  if #shape > 8 then return nil, ("%d dims, at most 8 are supported"):format(#shape) end
  return shape
end

local function parse_dict(text)
  local s = setmetatable({text = text, at = 1}, Scan)
  local found = {}
  if not s:take "{" then return s:bad "'{'" end
  while not s:take "}" do
    local key = s:string()
    if not key then return s:bad "a key" end
    if key ~= "descr" and key ~= "fortran_order" and key ~= "shape" then
      return nil, ("invalid header: unknown key '%s'"):format(key:sub(1, 40))
    end
    if found[key] ~= nil then return nil, ("invalid header: duplicate key '%s'"):format(key) end
    if not s:take ":" then return s:bad "':'" end
    local value, message = s[key](s)
    if value == nil then return nil, message end
    found[key] = value
    if not s:take "," then
      if not s:take "}" then return s:bad "',' or '}'" end
      break
    end
  end
  if not s:take "$" then return s:bad "the end" end
  for _, key in ipairs{"descr", "fortran_order", "shape"} do
    if found[key] == nil then return nil, ("invalid header: '%s' is missing"):format(key) end
  end
  return found
end

--- Reads a header.
-- @param source {size = bytes, read = function(first, n)}: where the file's bytes come from
-- @return {dtype, size, becomes, mask, big, fortran, shape, start, bytes}, or nil and a message
function M.parse(source)
  local head, message = source.read(0, 12)
  if not head then return nil, message end
  if head:sub(1, 6) ~= "\x93NUMPY" then
    return nil, "not an .npy file: it does not begin with \\x93NUMPY"
  end
  local major, minor = head:byte(7, 8)
  if not minor then return nil, "the file ends within its header" end
  if major < 1 or major > 3 or minor ~= 0 then
    return nil, ("format version %d.%d, this flare reads 1.0, 2.0 and 3.0"):format(major, minor)
  end
  local format = major == 1 and "<I2" or "<I4"
  local start = 8 + string.packsize(format)
  if #head < start then return nil, "the file ends within its header" end
  local length = string.unpack(format, head, 9)
  if length > M.LIMIT then
    return nil, ("header too large (%d bytes, the limit is %d)"):format(length, M.LIMIT)
  end
  if length > source.size - start then
    return nil, ("header length %d exceeds file size %d"):format(length, source.size)
  end
  local text
  text, message = source.read(start, length)
  if not text then return nil, message end
  local dict, problem = parse_dict(text)
  if not dict then return nil, problem end
  local h = dict.descr
  h.fortran, h.shape, h.start = dict.fortran_order, dict.shape, start + length
  local empty, bytes = false, h.size
  for _, size in ipairs(h.shape) do
    if size == 0 then
      empty = true
    elseif bytes > math.maxinteger // size then
      return nil, "the shape overflows"
    else
      bytes = bytes * size
    end
  end
  h.bytes = empty and 0 or bytes
  local there = source.size - h.start
  if h.bytes ~= there then
    return nil, ("(%s) of %d bytes each needs %d bytes, the file has %d"):format(
      table.concat(h.shape, ", "), h.size, h.bytes, there)
  end
  return h
end

--- A header for a tensor, padded so that the elements begin at a multiple of 64.
-- @param dtype one of those in `names`
function M.make(dtype, shape)
  local sizes = table.concat(shape, ", ") .. (#shape == 1 and "," or "")
  local text = ("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }"):format(
    M.names[dtype], sizes)
  local total = (10 + #text + 1 + 63) // 64 * 64
  text = text .. (" "):rep(total - 11 - #text) .. "\n"
  return "\x93NUMPY\1\0" .. string.pack("<I2", #text) .. text
end

return M
