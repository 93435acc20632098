--- The text of generated tokens, in pieces of whole characters, up to the first of some strings
-- that end it. These may begin and end within tokens; what may be the start of one is held back.
local class = require "flare.class"
local core = require "flare.core"

local Writer = class("Writer")

--- @param tokenizer what the ids belong to
-- @param stops a list of strings, of which the first that occurs ends the text and is left out
function Writer:init(tokenizer, stops)
  self.tokenizer, self.stops = tokenizer, stops or {}
  self.held = "" -- bytes that are not out yet
end

-- The first place where a stop begins, or nil.
local function find_stop(text, stops)
  local first
  for _, stop in ipairs(stops) do
    local at = text:find(stop, 1, true)
    if at and (not first or at < first) then first = at end
  end
  return first
end

-- How many bytes at the end of a text may be the start of a stop.
local function begun(text, stops)
  local most = 0
  for _, stop in ipairs(stops) do
    for n = math.min(#stop - 1, #text), most + 1, -1 do
      if text:sub(-n) == stop:sub(1, n) then
        most = n
        break
      end
    end
  end
  return most
end

--- Takes the next id.
-- @return the text that is certain by now, and whether a stop has ended the text
function Writer:push(id)
  if not self.tokenizer.special[id] then self.held = self.held .. self.tokenizer:bytes(id) end
  local text = self.held
  local stop = find_stop(text, self.stops)
  if stop then
    self.held = ""
    return (core.text.repair(text:sub(1, stop - 1))), true
  end
  local sure = #text - begun(text, self.stops)
  local _, tail = core.text.repair(text:sub(math.max(1, sure - 3), sure))
  sure = sure - tail
  self.held = text:sub(sure + 1)
  return (core.text.repair(text:sub(1, sure))), false
end

--- Ends the text.
-- @return what was held back; U+FFFD for a character that was not completed
function Writer:finish()
  local rest = self.held
  self.held = ""
  return (core.text.repair(rest))
end

return Writer
