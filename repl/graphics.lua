--- Pictures in terminals that show pixels: by the graphics protocol of kitty where the environment
-- names a terminal that has it, by sixels where the terminal's answer to "primary device
-- attributes" lists them. A terminal that does not answer in time shows none.
local core = require "flare.core"
local editor = require "flare.repl.editor"
local style = require "flare.repl.editor.style"
local terminal = require "flare.repl.terminal"

local M = {}

local limit = 0.4 -- seconds for an answer; terminals answer at once, connections may be slow
local known -- {protocol = "kitty", "sixel" or nil, width =, height = pixels of a cell}

-- --- what the terminal can do ---

-- Terminals that have the protocol of kitty. A multiplexer in between does not pass it on.
local function speaks_kitty()
  local term, program = os.getenv "TERM" or "", os.getenv "TERM_PROGRAM" or ""
  if os.getenv "TMUX" or os.getenv "STY" or term:find "^screen" or term:find "^tmux" then
    return false
  end
  return term == "xterm-kitty" or term == "xterm-ghostty" or os.getenv "KITTY_WINDOW_ID" ~= nil
         or program == "WezTerm" or program == "ghostty"
end

-- Asks for the size of a cell and for the attributes, which every terminal answers last. Keys that
-- come meanwhile are the editor's.
local function ask()
  if not terminal.raw(true) then return "" end
  terminal.write "\27[16t\27[c"
  local bytes, ends = "", core.clock() + limit
  repeat
    local more, event = terminal.keys(math.max(0, ends - core.clock()))
    bytes = bytes .. (more or "")
    local answered = bytes:find "\27%[%?[%d;]*c"
  until answered or not more and (event ~= "resize" and event ~= "continue")
        or core.clock() >= ends
  terminal.raw(false)
  return bytes
end

local function look()
  known = {width = 10, height = 20}
  if os.getenv "TERM" == "linux" then return known end
  local bytes = ask()
  local height, width = bytes:match "\27%[6;(%d+);(%d+)t"
  if height and tonumber(height) > 0 and tonumber(width) > 0 then
    known.width, known.height = tonumber(width), tonumber(height)
  end
  local attributes = bytes:match "\27%[%?([%d;]*)c"
  local sixel = attributes and (";" .. attributes .. ";"):find(";4;", 1, true)
  known.protocol = speaks_kitty() and "kitty" or sixel and "sixel" or nil
  editor.typed = bytes:gsub("\27%[6;%d+;%d+t", ""):gsub("\27%[%?[%d;]*c", "")
  return known
end

--- The protocol of this terminal, "kitty" or "sixel", and the pixels of a cell; nil where pictures
-- are made of characters.
function M.protocol()
  if not style.wanted() or not editor.usable() then return nil end
  known = known or look()
  return known.protocol, known.width, known.height
end

-- --- kitty ---

local function kitty(pixels)
  local data = require "flare.base64".encode(require "flare.log.png"(pixels))
  local parts, most = {}, 4096
  for at = 1, #data, most do
    parts[#parts + 1] = ("\27_G%sm=%d;%s\27\\"):format(at == 1 and "a=T,f=100,q=2," or "",
      at + most <= #data and 1 or 0, data:sub(at, at + most - 1))
  end
  return table.concat(parts)
end

-- --- sixels ---

local levels = {6, 7, 6} -- of red, green and blue, where there are more colours than 256

-- A register for each pixel, from 0, as rows of numbers; and the colours of the registers.
local function registers(x)
  local height, width = x:size(1), x:size(2)
  local parts = x:to "i64"
  local function joined(y)
    return y:select(3, 1) * 65536 + y:select(3, 2) * 256 + y:select(3, 3)
  end
  local codes, inverse = joined(parts):reshape(height * width):unique()
  if codes:numel() > 256 then -- between the two nearest levels by an ordered pattern
    local pattern = core.tensor {{0, 8, 2, 10}, {12, 4, 14, 6}, {3, 11, 1, 9}, {15, 7, 13, 5}}
    local noise = ((pattern + 0.5) / 16):tile((height + 3) // 4, (width + 3) // 4)
                  :narrow(1, 1, height):narrow(2, 1, width):unsqueeze(3)
    local most = core.tensor(levels) - 1
    local level = (parts:to "f32" * most / 255 + noise):floor():minimum(most)
    local near = (level * 255 / most + 0.5):floor():to "i64"
    codes, inverse = joined(near):reshape(height * width):unique()
  end
  return (inverse - 1):reshape(height, width):totable(), codes:totable()
end

-- Six rows: for each colour in them, a character for each column, repeated ones as a count.
local function band(rows, first)
  local masks, order, width = {}, {}, #rows[first]
  for k = 0, 5 do
    for x, colour in ipairs(rows[first + k] or {}) do
      local mask = masks[colour]
      if not mask then
        mask = {}
        masks[colour], order[#order + 1] = mask, colour
      end
      mask[x] = (mask[x] or 0) | 1 << k
    end
  end
  local out = {}
  for i, colour in ipairs(order) do
    local mask, line, x = masks[colour], {"#" .. colour}, 1
    while x <= width do
      local bits, n = mask[x] or 0, 1
      while x + n <= width and (mask[x + n] or 0) == bits do n = n + 1 end
      local letter = string.char(63 + bits)
      line[#line + 1] = n > 3 and "!" .. n .. letter or letter:rep(n)
      x = x + n
    end
    out[i] = table.concat(line)
  end
  return table.concat(out, "$")
end

local function sixel(pixels)
  local rows, colours = registers(pixels)
  local out = {('\27P0;1q"1;1;%d;%d'):format(#rows[1], #rows)}
  local function percent(byte) return (byte * 100 + 127) // 255 end
  for i, code in ipairs(colours) do
    out[#out + 1] = ("#%d;2;%d;%d;%d"):format(i - 1, percent(code >> 16), percent(code >> 8 & 255),
                                              percent(code & 255))
  end
  local bands = {}
  for first = 1, #rows, 6 do bands[#bands + 1] = band(rows, first) end
  return table.concat(out) .. table.concat(bands, "-") .. "\27\\"
end

--- A picture as what the terminal takes.
-- @param protocol of M.protocol
-- @param pixels (height, width, 3) u8
function M.text(protocol, pixels)
  return (protocol == "kitty" and kitty or sixel)(pixels)
end

return M
