--- The header of a safetensors file: parsing untrusted ones, and making one.
--
-- A file is eight bytes of length (little-endian), that many bytes of JSON, then data. Each
-- entry has dtype, shape and data_offsets from the start of the data; together they must
-- cover the data without gap or overlap. What is checked here needs no tensor.
local core = require "flare.core"

local M = {}

M.LIMIT = 100000000 -- bytes of JSON, as in the format's own library

-- Type in the file: ours, bytes of an element, what its bytes are read as if that differs, and how
-- they become ours ("unsigned" numbers are widened).
M.dtypes = {F64 = {"f64", 8}, F32 = {"f32", 4}, F16 = {"f16", 2}, BF16 = {"bf16", 2},
            I64 = {"i64", 8}, I32 = {"i32", 4}, I16 = {"i16", 2}, I8 = {"i8", 1},
            U8 = {"u8", 1}, BOOL = {"bool", 1, "u8"}, C64 = {"c64", 8},
            U16 = {"i32", 2, "i16", 0xffff}, U32 = {"i64", 4, "i32", 0xffffffff},
            U64 = {"i64", 8, "i64", -1}}
-- Types of other programs that flare does not have; those without a size here are not checked.
local others = {F8_E4M3 = 1, F8_E5M2 = 1, F8_E8M0 = 1, F8_E4M3FNUZ = 1, F8_E5M2FNUZ = 1}
M.names = {c128 = "F64"} -- with one more dim, see COMPLEX
for name, kind in pairs(M.dtypes) do
  if not kind[3] or kind[1] == "bool" then M.names[kind[1]] = name end
end

-- The format has no c128. Such a tensor is written as pairs of F64, (..., 2), and its name into a
-- list under this key of the metadata.
local COMPLEX = "flare.c128"

-- A JSON value as text, for messages.
local said, quote = core.json.encode, core.json.encode

local function whole(value)
  return math.type(value) == "integer" and value >= 0
end

-- An entry's shape, offsets and dtype; nil and a message if anything is wrong.
local function check_entry(name, entry, data_size)
  local function bad(format, ...)
    return nil, ('tensor "%s": '):format(name) .. format:format(...)
  end
  if type(entry) ~= "table" then return bad("the entry is not an object") end
  for key in pairs(entry) do
    if key ~= "dtype" and key ~= "shape" and key ~= "data_offsets" then
      return bad('unknown key "%s"', tostring(key))
    end
  end
  if type(entry.dtype) ~= "string" then return bad("the dtype is not a string") end
  local kind = M.dtypes[entry.dtype]
  local width = kind and kind[2] or others[entry.dtype]
  local shape, offsets = entry.shape, entry.data_offsets
  if type(shape) ~= "table" then return bad("the shape is not a list") end
  local count = 0
  for _ in pairs(shape) do count = count + 1 end
  if count ~= #shape or (count == 0 and not getmetatable(shape)) then -- an empty list is marked
    return bad("the shape is not a list")
  end
  if count > 8 then return bad("%d dims, at most 8 are supported", count) end
  local zero, elements = false, 1
  for i, size in ipairs(shape) do
    if not whole(size) then
      return bad("dimension %d is %s, not an integer in range", i, said(size))
    end
    zero = zero or size == 0
  end
  for _, size in ipairs(shape) do
    if size > 0 then
      if elements > math.maxinteger // (width or 1) // size then
        return bad("the shape overflows")
      end
      elements = elements * size
    end
  end
  if type(offsets) ~= "table" or #offsets ~= 2 or next(offsets, 2) ~= nil then
    return bad("data_offsets is not a list of two")
  end
  local first, last = offsets[1], offsets[2]
  if not (whole(first) and whole(last)) then
    return bad("data_offsets [%s, %s] are not integers in range", said(first), said(last))
  end
  if last < first then return bad("data_offsets [%d, %d] end before they begin", first, last) end
  if last > data_size then
    return bad("data_offsets [%d, %d] reach past the end of the data (%d bytes)", first, last,
               data_size)
  end
  local bytes = zero and 0 or elements * (width or 0)
  if width and last - first ~= bytes then
    return bad("%s of (%s) needs %d bytes, has %d", entry.dtype, table.concat(shape, ", "), bytes,
               last - first)
  end
  return {name = name, dtype = kind and kind[1] or entry.dtype, stored = entry.dtype,
          reads = kind and (kind[3] or kind[1]), mask = kind and kind[4],
          shape = table.move(shape, 1, count, 1, {}), first = first, last = last}
end

-- Makes the pairs of numbers that the metadata name complex numbers again.
local function join_pairs(entries, metadata)
  local text = metadata[COMPLEX]
  if not text then return true end
  local names, by_name = core.json.decode(text), {}
  for _, e in ipairs(entries) do by_name[e.name] = e end
  for _, name in ipairs(type(names) == "table" and names[1] ~= nil and names or {false}) do
    local e = by_name[name]
    if not e or e.stored ~= "F64" or e.shape[#e.shape] ~= 2 then
      return nil, ('__metadata__: "%s" is not a list of pairs of F64'):format(COMPLEX)
    end
    e.dtype, e.reads, by_name[name] = "c128", "c128", nil
    e.shape[#e.shape] = nil
  end
  metadata[COMPLEX] = nil
  return true
end

local function overlap(a, b, at)
  if a > b then a, b = b, a end
  return nil, ('tensors "%s" and "%s" overlap at byte %d'):format(a, b, at)
end

-- No gap, no overlap: each begins where the one before it ended.
local function check_cover(entries, data_size)
  table.sort(entries, function(a, b)
    if a.first ~= b.first then return a.first < b.first end
    if a.last ~= b.last then return a.last < b.last end
    return a.name < b.name
  end)
  local at, before = 0, nil
  for _, entry in ipairs(entries) do
    if entry.first < at then
      return overlap(before.name, entry.name, entry.first)
    end
    if entry.first > at then
      return nil, ('%d bytes of no tensor before "%s" (gap at byte %d)'):format(
        entry.first - at, entry.name, at)
    end
    at, before = entry.last, entry
  end
  if at ~= data_size then
    return nil, ("%d bytes behind the last tensor"):format(data_size - at)
  end
  return true
end

--- The length in the first eight bytes, checked against the file's size.
-- @param head the first bytes of the file
-- @return the length, or nil and a message
function M.length(head, file_size)
  if file_size < 8 then
    return nil, ("header too small (%d bytes, need 8)"):format(file_size)
  end
  local length = string.unpack("<i8", head)
  if length < 0 or length > file_size - 8 then
    return nil, ("header length %s exceeds file size %d"):format(
      length < 0 and "above 2^63" or length, file_size)
  end
  if length > M.LIMIT then
    return nil, ("header too large (%d bytes of names, shapes and metadata, the limit is %d)")
      :format(length, M.LIMIT)
  end
  return length
end

--- Parses and checks a header.
-- @param text the JSON
-- @param data_size bytes behind it
-- @return a list of {name, dtype, shape, first, last} in the order of the data, and the
--   __metadata__ table; or nil and a message
function M.parse(text, data_size)
  if text:sub(1, 1) ~= "{" then return nil, "invalid header: it does not begin with '{'" end
  local json, message = core.json.decode(text)
  if json == nil then return nil, "invalid header: " .. tostring(message) end
  if type(json) ~= "table" then return nil, "invalid header: not an object" end
  local metadata, entries = {}, {}
  local begins = {} -- first byte: name; many on one block are refused before they are sorted
  for name, entry in pairs(json) do
    if type(name) ~= "string" then return nil, "invalid header: a list, not an object" end
    if name == "__metadata__" then
      if type(entry) ~= "table" or getmetatable(entry) then
        return nil, "__metadata__ is not an object"
      end
      for key, value in pairs(entry) do
        if type(key) ~= "string" or type(value) ~= "string" then
          return nil, "__metadata__ must map names to strings"
        end
      end
      metadata = entry
    else
      local checked, problem = check_entry(name, entry, data_size)
      if not checked then return nil, problem end
      if checked.last > checked.first then
        if begins[checked.first] then return overlap(begins[checked.first], name, checked.first) end
        begins[checked.first] = name
      end
      entries[#entries + 1] = checked
    end
  end
  local ok, problem = check_cover(entries, data_size)
  if ok then ok, problem = join_pairs(entries, metadata) end
  if not ok then return nil, problem end
  return entries, metadata
end

-- What is written of a tensor: dtype and sizes in the file.
local function written(entry)
  local shape = table.concat(entry.shape, ",")
  if entry.dtype == "c128" then shape = shape .. (shape == "" and "2" or ",2") end
  return M.names[entry.dtype], shape
end

--- A header for tensors that will follow it in this order.
-- @param entries a list of {name, dtype (ours), shape, bytes}
-- @param metadata names and strings, or nil
-- @return eight bytes of length and the JSON, padded so that the data begins at a multiple
--   of 64; or nil and a message if M.parse would refuse it
function M.make(entries, metadata)
  local parts, complex, strings = {}, {}, {}
  for _, entry in ipairs(entries) do
    if entry.dtype == "c128" then complex[#complex + 1] = entry.name end
  end
  for key, value in pairs(metadata or {}) do
    if key == COMPLEX then return nil, ('the name "%s" in the metadata is taken'):format(key) end
    strings[key] = value
  end
  if #complex > 0 then strings[COMPLEX] = quote(complex) end
  if next(strings) then parts[1] = '"__metadata__":' .. quote(strings) end
  local at = 0
  for _, entry in ipairs(entries) do
    local dtype, shape = written(entry)
    parts[#parts + 1] = ('%s:{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'):format(
      quote(entry.name), dtype, shape, at, at + entry.bytes)
    at = at + entry.bytes
  end
  local text = "{" .. table.concat(parts, ",") .. "}"
  local padded = (8 + #text + 63) // 64 * 64 - 8
  text = text .. (" "):rep(padded - #text)
  local head = string.pack("<I8", #text) .. text
  local ok, problem = M.length(head, #head + at)
  if ok then ok, problem = M.parse(text, at) end
  if not ok then return nil, problem end
  return head
end

return M
