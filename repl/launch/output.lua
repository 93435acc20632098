--- The output of ranks: into a log each, and to the terminal for rank 0 and those of --tee.
local core = require "flare.core"

local net = core.net

local Output = {}
Output.__index = Output

local longest = 1 << 16 -- bytes of a line that are kept until it ends

-- The launcher's standard output and error. If no process reads them, text is buffered, and ranks
-- that write block on their pipes, but the launcher does not.
local screens = {{file = 1, name = "standard output", text = ""},
  {file = 2, name = "standard error", text = ""}}
local atom = 4096 -- bytes that a writable pipe accepts at once

local function give_up(name, message)
  io.stderr:write(("flare launch: %s: %s; no more is written there\n"):format(name, message))
end

local function drain(screen)
  while screen.text ~= "" and net.poll({}, {screen.file}, 0)[screen.file] do
    local n, message = net.write(screen.file, screen.text:sub(1, atom))
    if n then screen.text = screen.text:sub(n + 1)
    else
      screen.failed, screen.text = true, ""
      give_up(screen.name, message:gsub("^writing: ", ""))
    end
  end
end

-- Writes into a log; reports a failure once, and the job continues without the log.
local function put(self, text)
  if not self.log then return end
  local ok, message = self.log:write(text)
  if ok then ok, message = self.log:flush() end
  if ok then return end
  give_up(self.rank.log_file, message)
  self.log = nil
end

--- @param out, err files to read from
function Output.open(rank, out, err, o)
  local self = setmetatable({rank = rank}, Output)
  self.out = {file = out or nil, parts = {}, size = 0, screen = screens[1]}
  self.err = {file = err or nil, parts = {}, size = 0, screen = screens[2]}
  local message
  self.log, message = io.open(rank.log_file, rank.again and "a" or "w")
  if not self.log then io.stderr:write("flare launch: ", message, "\n") end
  self.shown = rank.number == 0 or o.tee.all or o.tee[tostring(rank.number)]
  local many = o.tee.all or next(o.tee)
  self.prefix = many and ("[%d] "):format(rank.number) or nil
  self.last = {}
  return self
end

function Output:files(list)
  for _, pipe in ipairs {self.out, self.err} do
    local waits = self.shown and pipe.screen.text ~= ""
    if pipe.file and not waits then list[#list + 1] = pipe.file end
  end
end

-- Keeps the last lines, for ranks that end without an error message.
local function remember(self, text)
  for line in text:gmatch "[^\n]+" do
    table.insert(self.last, line)
    if #self.last > 20 then table.remove(self.last, 1) end
  end
end

local function show(self, pipe, text)
  if not self.shown then return end
  if self.prefix then -- whole lines only, so that lines of several ranks do not mix
    local lines = text:match "^.*\n" or pipe.size + #text > longest and text .. "\n" or ""
    local rest = text:sub(#lines + 1)
    if lines ~= "" then
      lines = table.concat(pipe.parts) .. lines
      pipe.parts, pipe.size = {}, 0
    end
    pipe.parts[#pipe.parts + 1], pipe.size = rest, pipe.size + #rest
    text = lines:gsub("[^\n]*\n", self.prefix .. "%0")
  end
  if pipe.screen.failed then return end
  pipe.screen.text = pipe.screen.text .. text
  drain(pipe.screen)
end

--- @return whether something came
function Output:step(ready)
  local came = false
  for _, pipe in ipairs {self.out, self.err} do
    if pipe.file and ready[pipe.file] then
      local text = net.read(pipe.file)
      if text and text ~= "" then
        came = true
        put(self, text)
        remember(self, text)
        show(self, pipe, text)
      elseif not text then
        if pipe.size > 0 then show(self, pipe, "\n") end
        net.close(pipe.file)
        pipe.file = nil
      end
    end
  end
  return came
end

function Output:close()
  for _, pipe in ipairs {self.out, self.err} do
    if pipe.file then net.close(pipe.file) end
    pipe.file = nil
  end
  if self.log then self.log:close() end
  self.log = nil
end

local M = {open = Output.open}

--- Adds the files of screens with buffered text. @return whether there are any
function M.files(list)
  for _, screen in ipairs(screens) do
    if screen.text ~= "" then list[#list + 1] = screen.file end
  end
  return #list > 0
end

function M.step()
  for _, screen in ipairs(screens) do drain(screen) end
end

--- Whether a rank's pipe is still open.
function M.any(ranks)
  for _, rank in ipairs(ranks) do
    if rank.output and (rank.output.out.file or rank.output.err.file) then return true end
  end
  return false
end

--- The error that ended a rank: its traceback, or the last lines that it wrote.
function M.traceback(rank)
  local file <close> = io.open(rank.error_file)
  local text = file and file:read "a" or ""
  if text ~= "" then return text end
  if #rank.output.last == 0 then return "" end
  return "the last that it wrote:\n  " .. table.concat(rank.output.last, "\n  ") .. "\n"
end

return M
