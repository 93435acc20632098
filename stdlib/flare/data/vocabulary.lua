--- A vocabulary of characters: ids count from 1, in the order of the characters' codes.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"

local Vocabulary = class("Vocabulary")

-- The characters of a text: those of UTF-8 if it is that, else its bytes.
local function each(text, bytes)
  return text:gmatch(bytes and "." or utf8.charpattern)
end

--- data.Vocabulary(text), or data.Vocabulary(characters) with a list of them
function Vocabulary:init(source)
  self.characters = {}
  if type(source) == "table" then
    for i, character in ipairs(source) do
      self.characters[i] = options.text("data.Vocabulary", "each character", character)
    end
    self.bytes = true
    for _, character in ipairs(source) do self.bytes = self.bytes and #character == 1 end
  elseif type(source) == "string" then
    local seen = {}
    local high = source:find("[\x80-\xff]")
    self.bytes = not high or not utf8.len(source)
    if self.bytes then
      -- 256 searches for a byte are faster than a loop over a long text in Lua
      for byte = 0, 255 do
        local character = string.char(byte)
        if source:find(character, 1, true) then
          self.characters[#self.characters + 1] = character
        end
      end
    else
      for character in each(source, false) do
        if not seen[character] then
          seen[character] = true
          self.characters[#self.characters + 1] = character
        end
      end
      table.sort(self.characters, function(a, b) return utf8.codepoint(a) < utf8.codepoint(b) end)
    end
  else
    fail("data.Vocabulary: a text or a list of characters is expected, got %s",
      options.kind(source))
  end
  self.numbers = {}
  for i, character in ipairs(self.characters) do self.numbers[character] = i end
end

function Vocabulary:size()
  return #self.characters
end
Vocabulary.__len = Vocabulary.size

function Vocabulary:__tostring()
  return ("Vocabulary: %d %s"):format(#self.characters, self.bytes and "bytes" or "characters")
end

--- The ids of a text's characters.
-- @return a tensor (n) of i64, or nil and a message that names the unknown character
function Vocabulary:encode(text)
  if self.bytes then
    local map = {}
    for byte = 0, 255 do map[byte + 1] = self.numbers[string.char(byte)] or 0 end
    local bytes = core.from_bytes(text, "u8", {#text})
    local numbers = core.tensor(map, {dtype = "i64"}):index_select(1, bytes:to("i64") + 1)
    if #text > 0 and numbers:amin():item() == 0 then
      local at = numbers:argmin(1):item()
      return nil, ("character %q at %d is not in the vocabulary"):format(text:sub(at, at), at)
    end
    return numbers
  end
  local list, n = {}, 0
  for character in each(text, false) do
    local number = self.numbers[character]
    if not number then
      return nil, ("character %q is not in the vocabulary"):format(character)
    end
    n = n + 1
    list[n] = number
  end
  if n == 0 then return core.zeros({0}, {dtype = "i64"}) end
  return core.tensor(list, {dtype = "i64"})
end

--- The text of ids: a tensor of 1 dim, a list or one number.
function Vocabulary:decode(numbers)
  if core.is_tensor(numbers) then
    numbers = numbers:tolist()
  end
  if type(numbers) == "number" then numbers = {numbers} end
  local parts = {}
  for i, number in ipairs(numbers) do
    local character = self.characters[math.tointeger(number)]
    if not character then
      fail("Vocabulary:decode: %s is not in 1..%d", tostring(number), #self.characters)
    end
    parts[i] = character
  end
  return table.concat(parts)
end

function Vocabulary:state_dict()
  return {characters = table.move(self.characters, 1, #self.characters, 1, {})}
end

function Vocabulary:load_state_dict(saved, message)
  options.state("Vocabulary", saved, message)
  self:init(saved.characters)
  return self
end

return Vocabulary
