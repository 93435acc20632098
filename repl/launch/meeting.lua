--- The rendezvous of a job's launchers: node 0 runs the server, the other nodes connect to it.
local core = require "flare.core"
local Channel = require "flare.dist.channel"
local env = require "flare.dist.env"
local Rendezvous = require "flare.dist.rendezvous"

local quiet = 5 -- seconds of waiting before the launcher says what it waits for

-- Seconds to wait for all nodes: those of --timeout, 0 for no limit.
local function patience_of(o)
  if o.timeout == 0 then return math.huge end
  return o.timeout or 300
end

-- How long the launcher waits, for messages.
local function limit_text(patience)
  return patience == math.huge and "without limit" or ("for %g s"):format(patience)
end

local function tell(text) io.stderr:write("flare launch: ", text, "\n") end

-- Identifies the machine: the kernel's random number of this boot.
local function host()
  local file <close> = io.open "/proc/sys/kernel/random/boot_id"
  return file and file:read "l" or "?"
end

-- Handles a message of the server, on every node.
local function hear(self, words)
  if words[1] == "start" then
    self.hosts, self.before, self.all = table.unpack(words, 2)
    self.hosts = math.tointeger(tonumber(self.hosts))
    self.before = math.tointeger(tonumber(self.before))
    self.all = math.tointeger(tonumber(self.all))
  elseif words[1] == "stop" then
    self.stop = words[2] or "?"
  elseif words[1] == "turn" then
    self.turn, self.told, self.stop = words[2], nil, nil
  elseif words[1] == "refused" then
    self.problem = words[2]
  end
end

-- Whether the launcher still waits for other nodes. Tells the user once, after a while, for which.
local function waiting(self)
  if self.all or self.problem then return false end
  local now = core.clock()
  if now > self.deadline then
    self.problem = ("%s did not come within %g s"):format(self:missing(), self.patience)
  elseif now > self.began + quiet and not self.said then
    self.said = true
    tell(("waiting for %s, %s"):format(self:missing(), limit_text(self.patience)))
  end
  return not self.problem
end

local function start_waiting(self, o)
  self.began, self.patience = core.clock(), patience_of(o)
  self.deadline = self.began + self.patience
end

-- --- node 0 ---

local First = {waiting = waiting}
First.__index = First

function First:missing()
  local list = {}
  for node = 1, self.server.nodes - 1 do
    if not self.server.here[node] then list[#list + 1] = node end
  end
  return (#list == 1 and "node " or "nodes ") .. table.concat(list, ", ")
end

function First:files() return self.server:files() end

function First:step(ready) self.server:step(ready) end

function First:failed(text)
  if not self.told then
    self.told = true
    self.server:tell(text, self.here)
  end
end

--- Reports that this node's attempt has ended, "good", "bad" or "final"; the answer is in
-- meeting.turn.
function First:ended(attempt, how)
  self.turn = nil
  self.server:ended(self.here, tostring(attempt), how)
end

function First:close()
  local deadline = core.clock() + 1
  repeat
    local read, write = self.server:files()
    self.server:step(core.net.poll(read, write, 10))
  until #write == 0 or core.clock() > deadline
  self.server:close()
end

local function first(o)
  -- at a prompt the ranks use the rendezvous as well, with the secret of their attempt
  local secret = o.prompt and env.key(o.secret, "attempt 0") or o.secret
  local server, message = Rendezvous.open{host = o.host, port = o.port, secret = secret,
    nodes = o.nnodes, ranks = o.n * o.nnodes, restarts = o.restarts}
  if not server then return nil, message end
  local self = setmetatable({server = server, port = server.port}, First)
  start_waiting(self, o)
  self.here = {file = true, node = 0, send = function(_, ...) hear(self, {...}) end}
  server:hello(self.here, "0", tostring(o.n), host(), tostring(o.nnodes))
  return self
end

-- --- the other nodes ---

local Other = {waiting = waiting}
Other.__index = Other

function Other:missing() return "other nodes" end

function Other:files()
  if not self.channel then return {}, {} end
  return {self.channel.file}, #self.channel.output > 0 and {self.channel.file} or {}
end

function Other:step(ready)
  if not self.channel then return end
  self.channel:flush()
  if not ready[self.channel.file] then return end
  local list = self.channel:receive()
  if not list then
    self.channel:close()
    self.channel = nil
    self.turn = "over"
    if self.all then self.stop = self.stop or "the launcher of node 0 is gone"
    else self.problem = "the launcher of node 0 is gone" end
    return
  end
  for _, words in ipairs(list) do hear(self, words) end
end

function Other:failed(text)
  if self.channel and not self.told then
    self.told = true
    self.channel:send("failed", text)
    self.channel:flush()
  end
end

function Other:ended(attempt, how)
  self.turn = not self.channel and "over" or nil
  if not self.channel then return end
  self.channel:send("ended", tostring(attempt), how)
  self.channel:flush()
end

function Other:close(well)
  if not self.channel then return end
  if well then self.channel:send "done" end
  self.channel:flush()
  self.channel:close()
end

local function other(o)
  local place, began, said = ("%s:%d"):format(o.host, o.port), core.clock(), false
  local patience = patience_of(o)
  local channel, message = Channel.connect(o.host, o.port, o.secret, patience, function(problem)
    if not said and core.clock() > began + quiet then
      said = true
      tell(("waiting for node 0, %s: %s"):format(limit_text(patience), problem))
    end
    return o.interrupted()
  end)
  if not channel then
    return nil, message:find(place, 1, true) and message or place .. ": " .. message
  end
  local self = setmetatable({channel = channel, port = o.port}, Other)
  start_waiting(self, o)
  channel:send("hello", tostring(o.node), tostring(o.n), host(), tostring(o.nnodes))
  channel:flush()
  return self
end

return {open = function(o) return (o.node == 0 and first or other)(o) end}
