--- Scripts that a prompt is attached to: one, or the ranks of a launcher, which stop together.
-- A rank that stopped at once would keep the others in a collective that it has not entered, where
-- they run no line. So each rank that comes to a line is held there, and goes on as long as another
-- is ahead of it. When all say that they are held, none waits for another, and all open.
local alert = require "flare.repl.alert"
local attach = require "flare.repl.attach"
local core = require "flare.core"
local signals = require "flare.repl.signals"
local Wire = require "flare.repl.dap.wire"

local Peers = {}
Peers.__index = Peers

Peers.patience = 5 -- seconds to wait for other scripts once one has stopped

local function connect(pid)
  local path, folder = attach.path(pid)
  local file = alert.folder(folder) and alert.connect(path) -- another user's is not trusted
  return file and {pid = pid, wire = Wire.new(file)}
end

--- Connects to a script or, if the process has none, to the scripts that it started.
-- @param pid a process
-- @param show function(peers, peer, text): what a script prints
-- @return a list with methods; it may be empty
function Peers.connect(pid, show)
  local self = setmetatable({show = show, question = 0}, Peers)
  self[1] = connect(pid)
  if self[1] then return self end
  local children = core.file.read(("/proc/%d/task/%d/children"):format(pid, pid)) or ""
  for child in children:gmatch "%d+" do self[#self + 1] = connect(math.tointeger(child)) end
  return self
end

--- Ends the connections: the scripts go on.
function Peers:close()
  for _, peer in ipairs(self) do core.net.close(peer.wire.reads) end
end

--- How many have a field that is true.
function Peers:count(field)
  local n = 0
  for _, peer in ipairs(self) do n = n + (peer[field] and 1 or 0) end
  return n
end

--- Sends a message to all that have a field, or to all that have not ended.
function Peers:send(message, field)
  for _, peer in ipairs(self) do
    if not peer.ended and (not field or peer[field]) then peer.wire:send(message) end
  end
end

-- Takes what has come from a script.
local function take(self, peer)
  while true do
    local message, ended = peer.wire:receive()
    if ended then
      peer.ended, peer.ready, peer.held = true, false, nil
      return
    end
    if not message then return end
    if message.output then self:show(peer, message.output) end
    if message.refused then self:show(peer, message.refused .. "\n") end
    if message.left or message.refused then peer.ended = true end
    if message.held then
      peer.held = message.held -- true: at a line; a number: the answer to this question
      self.fresh = self.fresh or message.held == true
    end
    if message.moving then peer.held = nil end
    if message.ready then
      peer.ready, peer.held = true, nil
      peer.mark, peer.commands = message.mark, message.commands
    end
  end
end

-- Asks the scripts, once all are held, whether they still are: one that went on meanwhile knows by
-- then what the others did before they were held. If all are, they open.
local function agree(self)
  local waiting = #self - self:count "ended" - self:count "ready"
  if waiting == 0 or self:count "held" < waiting then return end
  local sure = 0
  for _, peer in ipairs(self) do sure = sure + (peer.held == self.question and 1 or 0) end
  if sure == waiting then
    self:send({open = true}, "held")
  elseif self.fresh then
    self.fresh = false
    self.question = self.question + 1
    self:send({asks = self.question}, "held")
  end
end

--- Waits until the scripts have stopped; false if none is left, or at a Ctrl-C.
-- @param note function(text): tells the user why it takes long
function Peers:wait(note)
  local first, noted = nil, false
  local began = core.clock()
  while true do
    local files = {}
    for _, peer in ipairs(self) do
      if not peer.ended then take(self, peer) end
    end
    agree(self)
    local ready, held, ended = self:count "ready", self:count "held", self:count "ended"
    if ended == #self then return false end
    if ready + ended == #self then return true end
    first = first or ready + held > 0 and core.clock()
    if first and core.clock() - first > self.patience then
      if ready > 0 then
        note(("%d of %d scripts have stopped; the others wait for them"):format(ready, #self))
        return true
      end
      self:send({open = true}, "held")
      first = core.clock() - self.patience / 2
    end
    if not noted and core.clock() - began > 2 then
      noted = true
      note "waiting for the next line of the script; Ctrl-C gives up"
    end
    for _, peer in ipairs(self) do
      if not peer.ended and not peer.ready then files[#files + 1] = peer.wire.reads end
    end
    core.net.poll(files, {}, 200)
    if core.interrupted() then
      signals.resume()
      return false
    end
  end
end

--- Stops the scripts, several of them together.
function Peers:stop(note)
  self:send {stop = true, together = #self > 1}
  return self:wait(note)
end

--- Runs a line in all that have stopped.
function Peers:run(line, note)
  for _, peer in ipairs(self) do
    if peer.ready then
      peer.ready = false
      peer.wire:send {line = line}
    end
  end
  return self:wait(note)
end

return Peers
