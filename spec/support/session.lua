-- A person at the prompt: flare behind a pseudo-terminal, keys in and a screen out. What is waited
-- for is a state of the screen, never a time; a session that does not get there fails with its
-- screen.
local Screen = require "spec.support.screen"
local tree = require "spec.support.tree"

local Session = {}
Session.__index = Session

local limit = 20 -- seconds: only for a session that fails

local function pty()
  local path = tree.build .. "/spec/pty_module.so"
  local open = assert(package.loadlib(path, "luaopen_pty"))
  return open()
end

-- A line for each session, which spec/run.lua counts.
local function note()
  local file <close> = io.open(tree.build .. "/spec-results/sessions", "a")
  if file then file:write "session\n" end
end

--- Starts flare, or says why not.
-- @param options {columns =, rows =, setup = "export A=1", arguments = "-i x.lua", answers =
-- {attributes =, cell =}: what the terminal answers to questions, by default as a VT100}
function Session.open(options)
  options = options or {}
  local columns, rows = options.columns or 80, options.rows or 24
  local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
  local command = ([[unset NO_COLOR; export TERM=xterm FLARE_HISTORY=; program=$(realpath '%s')
    %s
    exec "$program" %s]]):format(program, options.setup or "", options.arguments or "-i")
  local terminal, problem = pty().spawn(columns, rows, command)
  if not terminal then return nil, problem end
  note()
  local self = setmetatable({terminal = terminal, screen = Screen.new(columns, rows), raw = "",
                             answers = options.answers or {attributes = "\27[?1;2c"}}, Session)
  if options.wait ~= false then self:ready() end
  return self
end

--- Reads until f(screen) is true.
function Session:wait(f, what)
  local ends = os.time() + limit
  while not f(self.screen) do
    local bytes = self.terminal:read(0.5)
    if not bytes then
      self.ended = true
      if f(self.screen) then return self.screen end
      error(("the program ended before %s:\n%s"):format(what or "it", self.screen:text()), 2)
    end
    self.raw = self.raw .. bytes
    self.screen:feed(bytes)
    for _, question in ipairs(self.screen.asked) do
      self.terminal:write(self.answers[question] or "")
    end
    self.screen.asked = {}
    if os.time() > ends then
      error(("%s does not come; the screen:\n%s\ncursor %d, %d"):format(what or "it",
        self.screen:text(), self.screen.row, self.screen.column), 2)
    end
  end
  return self.screen
end

-- The editor waits for keys when it has turned bracketed paste on and drawn its text: the cursor is
-- shown again behind a prompt.
function Session:ready()
  return self:wait(function(screen)
    return screen.modes[2004] and screen.modes[25] ~= false
           and self.raw:find "\27%[%?25h$" ~= nil
  end, "the prompt")
end

--- Presses keys, and waits until the editor has shown what they do.
function Session:keys(...)
  for _, bytes in ipairs {...} do
    self.raw = ""
    self.terminal:write(bytes)
    self:ready()
  end
  return self.screen
end

--- Types a line and waits for its answer and the next prompt.
function Session:enter(text)
  if text ~= "" then self:keys(text) end
  self.raw = ""
  self.terminal:write "\r"
  self:wait(function() return self.raw:find "\27%[%?2004l.*\27%[%?2004h" ~= nil end, "the answer")
  self:ready()
  return self.screen
end

--- Pastes a text with the marks of bracketed paste.
function Session:paste(text)
  return self:keys("\27[200~" .. text .. "\27[201~")
end

--- Waits until the screen shows a text.
function Session:see(text)
  return self:wait(function(screen) return screen:text():find(text, 1, true) ~= nil end,
                   ("%q"):format(text))
end

--- The rows below the last one that holds a text, without prompts.
function Session:after(text)
  local lines, found = self.screen:lines(), nil
  for i, line in ipairs(lines) do
    if line:find(text, 1, true) then found = i end
  end
  local list = table.move(lines, (found or #lines) + 1, #lines, 1, {})
  while list[1] and list[#list]:find "^>?>? *$" do list[#list] = nil end
  return table.concat(list, "\n")
end

function Session:resize(columns, rows)
  self.screen:resize(columns, rows)
  self.raw = ""
  self.terminal:resize(columns, rows)
  return self:ready()
end

function Session:close()
  self.terminal:close()
end

return Session
