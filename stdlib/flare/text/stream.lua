--- Decodes ids one by one. Decoders look at neighbours (the first token loses its space), so a
-- window of the last ids is decoded again and what is new is given out.
local class = require "flare.class"
local core = require "flare.core"

local Stream = class("Stream")

--- @param decode a function from a list of ids to a text in bytes
function Stream:init(decode)
  self.decode = decode
  self.ids, self.shown = {}, 0 -- a window, and how many bytes of its text are out
  self.settled = 0 -- ids of the window that need not be decoded with those to come
end

-- The length of the text without a character that has only begun, which is a few bytes or, where
-- each byte is a token, U+FFFD for each.
local function complete(text)
  local _, tail = core.text.repair(text:sub(-4))
  local n = #text - tail
  while text:sub(n - 2, n) == "\u{fffd}" do n = n - 3 end
  return n
end

--- Takes the next id.
-- @return the text that is certain by now, which may be empty
function Stream:push(id)
  local ids = self.ids
  ids[#ids + 1] = id
  local text = self.decode(ids)
  local whole = complete(text)
  if whole <= self.shown then return "" end
  local new = text:sub(self.shown + 1, whole)
  self.shown = whole
  if whole == #text then
    local window = table.move(ids, self.settled + 1, #ids, 1, {})
    self.settled = #ids - self.settled
    self.ids, self.shown = window, #self.decode(window)
  end
  return (core.text.repair(new))
end

--- Ends the stream.
-- @return the rest of the text: U+FFFD for a character that was not completed
function Stream:finish()
  local text = self.decode(self.ids)
  local rest = text:sub(self.shown + 1)
  self.ids, self.shown, self.settled = {}, 0, 0
  return (core.text.repair(rest))
end

return Stream
