--- Bytes of a terminal as named keys: "a", "ctrl+a", "alt+b", "left", "ctrl+left", and pastes.
local M = {}

local letters = {["\r"] = "enter", ["\n"] = "enter", ["\t"] = "tab", ["\127"] = "backspace",
                 ["\8"] = "backspace", ["\0"] = "ctrl+space", ["\31"] = "ctrl+_"}
local finals = {A = "up", B = "down", C = "right", D = "left", H = "home", F = "end",
                Z = "shift+tab", P = "f1", Q = "f2", R = "f3", S = "f4"}
local tildes = {[1] = "home", [2] = "insert", [3] = "delete", [4] = "end", [5] = "page_up",
                [6] = "page_down", [7] = "home", [8] = "end"}

local function with_modifiers(name, number)
  local bits = (number or 1) - 1
  if bits & 1 ~= 0 and name ~= "shift+tab" then name = "shift+" .. name end
  if bits & 2 ~= 0 then name = "alt+" .. name end
  if bits & 4 ~= 0 then name = "ctrl+" .. name end
  return name
end

-- The key of a whole control sequence; "unknown" is ignored.
local function of_sequence(parameters, final)
  local first, second = parameters:match "^(%d*);?(%d*)"
  first, second = tonumber(first), tonumber(second)
  if final == "~" then
    if first == 200 then return "paste" end
    return tildes[first] and with_modifiers(tildes[first], second) or "unknown"
  elseif final == "u" and first then -- the keyboard protocol of kitty, where it is on
    local name = first == 13 and "enter" or first == 9 and "tab" or first == 27 and "escape"
                 or first == 127 and "backspace" or first < 0x110000 and utf8.char(first)
    return with_modifiers(name or "unknown", second)
  end
  return finals[final] and with_modifiers(finals[final], second) or "unknown"
end

local function character(bytes, at)
  local byte = bytes:byte(at)
  local size = byte >= 0xf0 and 4 or byte >= 0xe0 and 3 or byte >= 0xc2 and 2 or 1
  local text = bytes:sub(at, at + size - 1)
  for i = 2, size do -- a wrong byte stands for itself
    local next_byte = text:byte(i)
    if next_byte and (next_byte < 0x80 or next_byte > 0xbf) then return text:sub(1, 1) end
  end
  return #text == size and text or nil
end

--- The first key of some bytes: its name, how many bytes it takes, and for letters their text; nil
-- if more bytes are to come. `final` says that none will.
function M.first(bytes, final)
  local letter = bytes:sub(1, 1)
  if letters[letter] then return letters[letter], 1 end
  if letter == "\27" then
    local parameters, last, after = bytes:match "^\27%[([\48-\63]*)[\32-\47]*([\64-\126])()"
    if after then
      local name = of_sequence(parameters, last)
      return name, after - 1
    end
    local single = bytes:match "^\27O(.)"
    if single then return finals[single] or "unknown", 3 end
    if bytes:find "^\27%[[\32-\63]*$" or bytes == "\27O" or bytes == "\27" then
      if not final then return nil end
      if bytes == "\27" then return "escape", 1 end
      return "alt+" .. bytes:sub(2, 2), 2
    end
    if bytes:find "^\27\27" then return "escape", 1 end
    local name, size = M.first(bytes:sub(2), final)
    return name and "alt+" .. name, name and size + 1
  end
  if letter < " " then return "ctrl+" .. string.char(letter:byte() + 96), 1 end
  local text = character(bytes, 1)
  if not text and final then text = letter end
  return text, text and #text, text
end

return M
