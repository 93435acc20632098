--- Zip archives, as far as .npz files need them: members stored or deflated, sizes of 64 bits.
--
-- Reading uses the central directory at the end and does not trust it: members must not overlap,
-- names must not lead out of the folder, and decompression stops at the largest size that deflate
-- can make of so many bytes.
local core = require "flare.core"

local M = {}

local RATIO = 1032              -- the most that deflate can expand
local DIRECTORY = 25 << 20      -- bytes of the directory
local NARROW, SHORT = 0xffffffff, 0xffff -- "see the 64-bit field"

-- The 64-bit values in an entry's extra field, for those of its fields that are NARROW.
local function widen(extra, fields)
  local at = 1
  while at + 3 <= #extra do
    local kind, size = string.unpack("<I2I2", extra, at)
    at = at + 4
    if at + size > #extra + 1 then return nil end
    if kind == 1 then
      local last = at + size
      for _, name in ipairs{"size", "packed", "offset"} do
        if fields[name] == NARROW then
          if at + 8 > last then return nil end
          fields[name] = string.unpack("<i8", extra, at)
          at = at + 8
        end
      end
      return true
    end
    at = at + size
  end
  -- without one, the largest size of 32 bits means itself
  return true
end

local function check_name(name)
  if #name > SHORT then
    return nil, ("a name of %d bytes, at most %d are possible"):format(#name, SHORT)
  elseif name == "" or name:find "[%z\\]" or not utf8.len(name) then
    return nil, ("bad name '%s'"):format(name:gsub("[^%g ]", "?"):sub(1, 80))
  end
  if name:sub(1, 1) == "/" or name:find "^%a:" or ("/" .. name .. "/"):find("/../", 1, true) then
    return nil, ("the name '%s' leads out of the archive"):format(name:sub(1, 80))
  end
  return true
end

--- Whether this can be a member's name.
-- @return true, or nil and a message
M.check_name = check_name

-- One entry of the directory and where the next begins; nil and a message.
local function parse_entry(text, at)
  if at + 46 > #text + 1 or text:sub(at, at + 3) ~= "PK\1\2" then
    return nil, "the directory is damaged"
  end
  local flags, method, _, _, crc, packed, size, n, extra, comment, _, _, _, offset =
    string.unpack("<I2I2I2I2I4I4I4I2I2I2I2I2I4I4", text, at + 8)
  local next_at = at + 46 + n + extra + comment
  if next_at > #text + 1 then return nil, "the directory is damaged" end
  local name = text:sub(at + 46, at + 45 + n)
  local ok, message = check_name(name)
  if not ok then return nil, message end
  local e = {name = name, method = method, crc = crc, packed = packed, size = size,
             offset = offset}
  local function bad(format, ...)
    return nil, ("member '%s': "):format(name) .. format:format(...)
  end
  if not widen(text:sub(at + 46 + n, at + 45 + n + extra), e) then
    return bad "its 64-bit sizes are cut off"
  end
  if flags & 0x2041 ~= 0 then return bad "it is encrypted" end
  if method ~= 0 and method ~= 8 then
    return bad("compression method %d, this flare reads 0 (stored) and 8 (deflated)", method)
  end
  if e.size < 0 or e.packed < 0 or e.offset < 0 then return bad "sizes above 2^63" end
  if method == 0 and e.size ~= e.packed then
    return bad("%d bytes stored as %d", e.size, e.packed)
  end
  if e.size // RATIO > e.packed then
    return bad("%d bytes cannot come from %d (deflate's best ratio is %d)", e.size, e.packed,
               RATIO)
  end
  return e, next_at
end

-- The position of the central directory: first byte, bytes, entries; nil and a message.
local function find_directory(read, size)
  local from = math.max(0, size - 22 - SHORT)
  local tail, message = read(from, size - from)
  if not tail then return nil, message end
  local at
  for k = #tail - 21, 1, -1 do
    if tail:sub(k, k + 3) == "PK\5\6" and string.unpack("<I2", tail, k + 20) == #tail - k - 21 then
      at = k
      break
    end
  end
  if not at then return nil, "not a zip file, or cut off: it has no directory at its end" end
  local disk, disk2, here, count, bytes, first = string.unpack("<I2I2I2I2I4I4", tail, at + 4)
  local stop = from + at - 1
  local wide = stop >= 20 and read(stop - 20, 20)
  if wide and wide:sub(1, 4) == "PK\6\7" then
    local where = string.unpack("<i8", wide, 9)
    if where < 0 or where > stop - 20 - 56 then return nil, "its zip64 directory is cut off" end
    wide, message = read(where, 56)
    if not wide then return nil, message end
    if #wide ~= 56 or wide:sub(1, 4) ~= "PK\6\6" then
      return nil, "its zip64 directory is damaged"
    end
    disk, disk2, here, count, bytes, first = string.unpack("<I4I4i8i8i8i8", wide, 17)
    stop = where
  elseif count == SHORT or bytes == NARROW or first == NARROW then
    return nil, "its zip64 directory is missing"
  end
  if disk ~= 0 or disk2 ~= 0 or here ~= count then return nil, "archives of parts are not read" end
  if first < 0 or bytes < 0 or count < 0 or first > stop or bytes ~= stop - first then
    return nil, "the directory is not where it should be"
  end
  if bytes > DIRECTORY then
    return nil, ("directory too large (%d bytes, the limit is %d)"):format(bytes, DIRECTORY)
  end
  return first, bytes, count
end

--- Reads an archive's directory.
-- @param read function(first, n) gives bytes, or nil and a message
-- @param size of the whole file
-- @return a list of entries {name, size, ...} in the order of the file, or nil and a message
function M.entries(read, size)
  local first, bytes, count = find_directory(read, size)
  if not first then return nil, bytes end
  local text, message = read(first, bytes)
  if not text then return nil, message end
  if #text ~= bytes then return nil, "the file became shorter while it was read" end
  local list, seen, at = {}, {}, 1
  for k = 1, count do
    local e, next_at = parse_entry(text, at)
    if not e then return nil, next_at end
    if seen[e.name] then return nil, ("duplicate name '%s'"):format(e.name) end
    seen[e.name] = true
    list[k], at = e, next_at
  end
  if at ~= #text + 1 then return nil, "the directory is damaged" end
  table.sort(list, function(a, b) return a.offset < b.offset end)
  for k, e in ipairs(list) do
    -- the local header repeats the name
    e.stop = list[k + 1] and list[k + 1].offset or first
    if e.offset + 30 + #e.name > e.stop or e.packed > e.stop - e.offset - 30 - #e.name then
      return nil, ("member '%s' overlaps what follows it"):format(e.name)
    end
  end
  return list
end

--- The position at which a member's data begin.
-- @return a position, or nil and a message
function M.data_start(read, e)
  local head, message = read(e.offset, 30 + #e.name)
  if not head then return nil, message end
  if #head ~= 30 + #e.name or head:sub(1, 4) ~= "PK\3\4" or head:sub(31) ~= e.name then
    return nil, ("member '%s': its own header is damaged"):format(e.name)
  end
  local method, n, extra = string.unpack("<I2", head, 9), string.unpack("<I2I2", head, 27)
  local start = e.offset + 30 + n + extra
  if method ~= e.method or n ~= #e.name or start + e.packed > e.stop then
    return nil, ("member '%s': its own header differs from the directory"):format(e.name)
  end
  return start
end

--- A member's contents, with its checksum verified.
-- @param limit the largest decompressed size in bytes
-- @return a string, or nil and a message
function M.extract(read, e, limit)
  local start, message = M.data_start(read, e)
  if not start then return nil, message end
  local function bad(format, ...)
    return nil, ("member '%s': "):format(e.name) .. format:format(...)
  end
  if e.method == 8 and e.size > limit then
    return bad("%d bytes would come out of %d, the limit is %d", e.size, e.packed, limit)
  end
  local text
  text, message = read(start, e.packed)
  if not text then return nil, message end
  if #text ~= e.packed then return bad "the file became shorter while it was read" end
  if e.method == 8 then
    text, message = core.inflate(text, e.size)
    if not text then return bad("%s", message) end
  end
  local crc
  crc, message = core.crc32(text)
  if not crc then return bad("%s", message) end
  if crc ~= e.crc then return bad "the checksum does not match: the file is damaged" end
  return text
end

-- A header's fixed part; both kinds of header share most of it. The time is constant, so that the
-- same members make the same archive.
local function fields(e, wide)
  local utf8_name = e.name:find "[\x80-\xff]" and 0x800 or 0
  return string.pack("<I2I2I2I2I2I4I4I4I2", wide and 45 or 20, utf8_name, e.method, 0, 0x21,
                     e.crc, wide and NARROW or e.packed, wide and NARROW or e.size, #e.name)
end

--- The pieces of an archive, for file.write_atomic.
-- @param members a list of {name, pieces = strings and tensors, bytes, crc, and if it is
--   deflated: deflated = true, size}
-- @param narrow the largest size that is written in 32 bits (for tests)
-- @return the pieces, or nil and a message if M.entries would refuse the archive
function M.pack(members, narrow)
  narrow = narrow or NARROW - 1
  local pieces, directory, at = {}, {}, 0
  for _, m in ipairs(members) do
    local e = {name = m.name, method = m.deflated and 8 or 0, crc = m.crc, packed = m.bytes,
               size = m.size or m.bytes}
    local wide = e.size > narrow or e.packed > narrow
    local own = wide and string.pack("<I2I2i8i8", 1, 16, e.size, e.packed) or ""
    local head = "PK\3\4" .. fields(e, wide) .. string.pack("<I2", #own) .. e.name .. own
    table.move({head, m.pieces}, 1, 2, #pieces + 1, pieces)
    local far = wide or at > narrow
    local extra = far and string.pack("<I2I2i8i8i8", 1, 24, e.size, e.packed, at) or ""
    directory[#directory + 1] = table.concat {
      "PK\1\2", string.pack("<I2", 45), fields(e, far),
      string.pack("<I2I2I2I2I4I4", #extra, 0, 0, 0, 0, far and NARROW or at), e.name, extra}
    at = at + #head + e.packed
  end
  local text, count = table.concat(directory), #members
  if #text > DIRECTORY then
    return nil, ("directory too large (%d bytes of names, the limit is %d)"):format(#text,
                                                                                  DIRECTORY)
  end
  if at > narrow or count >= SHORT then
    text = text .. "PK\6\6" .. string.pack("<i8I2I2I4I4i8i8i8i8", 44, 45, 45, 0, 0, count, count,
                                         #text, at)
           .. "PK\6\7" .. string.pack("<I4i8I4", 0, at + #text, 1)
           .. "PK\5\6" .. string.pack("<I2I2I2I2I4I4I2", 0, 0, SHORT, SHORT, NARROW, NARROW, 0)
  else
    text = text .. "PK\5\6" .. string.pack("<I2I2I2I2I4I4I2", 0, 0, count, count, #text, at, 0)
  end
  pieces[#pieces + 1] = text
  return pieces
end

return M
