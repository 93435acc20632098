--- Reading a binary file from front to back: every read is checked against the file's size, so a
-- length in a file that was made to do harm ends in a message and not in memory taken.
local class = require "flare.class"

local Cursor = class("Cursor")

local WINDOW = 1 << 16 -- bytes that are read at once

--- Cursor(file, path, at): over an open file of core.file, or over a string, from byte `at` on,
-- which counts from 0.
function Cursor:init(source, path, at)
  self.path, self.size, self.at = path, #source, at or 0
  self._source = source
  self._buffer, self._from = type(source) == "string" and source or "", 0
end

--- Raises an error that Cursor.guard turns into nil and a message.
function Cursor:fail(format, ...)
  error(setmetatable({("%s: "):format(self.path) .. format:format(...)}, Cursor), 0)
end

--- Calls f(...); nil and a message if a cursor failed in it.
function Cursor.guard(f, ...)
  local function done(ok, first, ...)
    if ok then return first, ... end
    if type(first) == "table" and getmetatable(first) == Cursor then return nil, first[1] end
    error(first, 0)
  end
  return done(pcall(f, ...))
end

-- Makes n bytes from the cursor on be in the buffer; they are in the file.
local function fill(self, n)
  local start = self.at - self._from
  if start >= 0 and start + n <= #self._buffer then return end
  local text, message = self._source:read(self.at, math.min(math.max(n, WINDOW),
                                                           self.size - self.at))
  if not text then self:fail("%s", message) end
  if #text < n then self:fail "the file became shorter while it was read" end
  self._buffer, self._from = text, self.at
end

--- The next n bytes as a string.
-- @param what they are, for the message
function Cursor:take(n, what)
  if n < 0 or n > self.size - self.at then
    self:fail("%s at byte %d needs %s bytes, the file has %d more", what or "a value", self.at,
              n < 0 and "above 2^63" or tostring(n), self.size - self.at)
  end
  fill(self, n)
  local first = self.at - self._from + 1
  self.at = self.at + n
  return self._buffer:sub(first, first + n - 1)
end

--- The next value of a fixed size, by a format of string.unpack.
function Cursor:unpack(format, what)
  return (string.unpack(format, self:take(string.packsize(format), what)))
end

--- A count of things that take at least `least` bytes each: no more than the file can hold.
function Cursor:count(format, least, what)
  local n = self:unpack(format, what)
  if n < 0 or n > (self.size - self.at) // least then
    self:fail("%s at byte %d is %s, the file has %d more bytes", what, self.at,
              n < 0 and "negative or above 2^63" or tostring(n), self.size - self.at)
  end
  return n
end

--- Whether all bytes were taken.
function Cursor:done() return self.at >= self.size end

return Cursor
