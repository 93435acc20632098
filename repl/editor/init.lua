--- The line editor: keys in, a text out, which may have many lines. What a key does is in
-- bindings.lua; this file reads keys, and shows the text after each of them.
local Buffer = require "flare.repl.editor.buffer"
local Screen = require "flare.repl.editor.screen"
local bindings = require "flare.repl.editor.bindings"
local keys = require "flare.repl.editor.keys"
local terminal = require "flare.repl.terminal"

local Editor = {}
Editor.__index = Editor

local escape_wait = 0.05 -- seconds in which the rest of a key's bytes comes

--- Whether there is a terminal that the editor can draw on.
function Editor.usable()
  local name = os.getenv "TERM"
  return terminal.is_terminal(0) and terminal.is_terminal(1) and name ~= nil
         and name ~= "" and name ~= "dumb"
end

--- @param options {complete = function(text, at) -> position, list, function(candidate) -> lines
-- that describe it; whole = function(text) -> whether Enter ends it; goes_on = function(text, more)
-- -> whether more continues it; history = texts}
function Editor.new(options)
  return setmetatable({options = options, history = options.history or {}, pending = "",
                       cuts = {}}, Editor)
end

-- --- keys ---

-- More bytes of the terminal; nil and what happened instead.
function Editor:more(wait)
  local bytes, event = terminal.keys(wait)
  if bytes then self.pending = self.pending .. bytes end
  return bytes, event
end

-- The text of a bracketed paste, whose first mark was read.
function Editor:take_paste()
  local mark, parts = "\27[201~", {}
  while true do
    local from, to = self.pending:find(mark, 1, true)
    if from then
      parts[#parts + 1] = self.pending:sub(1, from - 1)
      self.pending = self.pending:sub(to + 1)
      break
    end
    -- the mark may be cut in two
    parts[#parts + 1] = self.pending:sub(1, -#mark)
    self.pending = self.pending:sub(math.max(1, #self.pending - #mark + 2))
    local bytes, event = self:more()
    if not bytes and event == "end" then break end
  end
  return (table.concat(parts):gsub("\r\n?", "\n"))
end

-- The next key and its text, or nil and an event.
function Editor:key()
  while true do
    local name, size, text
    if self.pending ~= "" then name, size, text = keys.first(self.pending) end
    if not name then
      local bytes, event = self:more(self.pending ~= "" and escape_wait or nil)
      if not bytes and event == "timeout" then
        name, size, text = keys.first(self.pending, true)
      elseif not bytes then
        return nil, event
      end
    end
    if name then
      self.pending = self.pending:sub(size + 1)
      if name == "paste" then return name, self:take_paste() end
      return name, text
    end
  end
end

-- --- showing ---

function Editor:view()
  local below = {}
  if self.menu then
    below = self.menu:rows(self.screen.columns, self.screen.height)
  elseif self.search then
    below = {self.search:row(self.screen.columns)}
  elseif self.notes then
    below = self.notes
  end
  return {text = self.buffer.text, at = self.buffer.at, below = below, brackets = true,
          prompt = self.prompt, more = self.continued}
end

function Editor:show() self.screen:draw(self:view()) end

-- --- reading ---

local function on_event(self, event)
  if event == "resize" or event == "continue" then
    self.screen:resize()
  elseif event == "suspend" then
    bindings.suspend(self)
  elseif event == "interrupt" then
    return "drop"
  elseif event == "end" then
    return "end"
  end
end

local function loop(self)
  self:show()
  while true do
    local name, text = self:key()
    local outcome
    if not name then
      outcome = on_event(self, text)
    else
      outcome = bindings.press(self, name, text)
    end
    if outcome then return outcome end
    if self.pending == "" then self:show() end
  end
end

-- Editor.typed: keys that came while the terminal was asked for something.

--- The next text: nil at the end of the input, "" and true when Ctrl-C dropped it.
function Editor:read(prompt, continued)
  self.prompt, self.continued = prompt, continued
  self.pending, Editor.typed = self.pending .. (Editor.typed or ""), nil
  self.buffer = Buffer.new()
  self.buffer.cuts = self.cuts
  self.recalled = nil
  self.place, self.menu, self.search, self.notes = #self.history + 1, nil, nil, nil
  if not terminal.raw(true) then return nil end
  self.screen = Screen.new()
  self.screen:begin()
  local ok, outcome = xpcall(loop, debug.traceback, self)
  self.menu, self.search, self.notes = nil, nil, nil
  if ok then
    local view = self:view()
    if outcome == "drop" then view.text = view.text .. "^C" end
    self.screen:finish(view)
  end
  terminal.raw(false)
  if not ok then error(outcome, 0) end
  if outcome == "end" then return nil end
  if outcome == "drop" then return "", true end
  return self.buffer.text
end

--- Adds a text to what Up brings back.
function Editor:remember(text)
  if self.history[#self.history] ~= text then self.history[#self.history + 1] = text end
end

return Editor
