--- How the launchers of a job find each other: node 0 has the rendezvous, the others go there.
local core = require "flare.core"
local Channel = require "flare.dist.channel"
local env = require "flare.dist.env"
local Rendezvous = require "flare.dist.rendezvous"

local patience = 300 -- seconds for all nodes to come
local quiet = 5 -- seconds of them without a word

local function tell(text) io.stderr:write("flare launch: ", text, "\n") end

-- The machine, as the kernel names it since it started.
local function host()
  local file <close> = io.open "/proc/sys/kernel/random/boot_id"
  return file and file:read "l" or "?"
end

-- What both kinds of node do with a message.
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

-- Whether to wait on for all nodes; says once, after a while, for whom.
local function waiting(self)
  if self.all or self.problem then return false end
  local now = core.clock()
  if now > self.deadline then
    self.problem = ("%s did not come within %d s"):format(self:missing(), patience)
  elseif now > self.deadline - patience + quiet and not self.said then
    self.said = true
    tell(("waiting for %s, for %d s"):format(self:missing(), patience))
  end
  return not self.problem
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

--- This node's attempt has ended, "good", "bad" or "final"; meeting.turn says what is next.
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
  -- at a prompt, ranks are those that talk, and they know the secret of their attempt
  local secret = o.prompt and env.key(o.secret, "attempt 0") or o.secret
  local server, message = Rendezvous.open{host = o.host, port = o.port, secret = secret,
    nodes = o.nnodes, ranks = o.n * o.nnodes, restarts = o.restarts}
  if not server then return nil, message end
  local self = setmetatable({server = server, port = server.port}, First)
  self.deadline = core.clock() + patience
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
  local channel, message = Channel.connect(o.host, o.port, o.secret, patience, function(problem)
    if not said and core.clock() > began + quiet then
      said = true
      tell(("waiting for node 0, for %d s: %s"):format(patience, problem))
    end
    return o.interrupted()
  end)
  if not channel then
    return nil, message:find(place, 1, true) and message or place .. ": " .. message
  end
  local self = setmetatable({channel = channel, port = o.port}, Other)
  self.deadline = core.clock() + patience
  channel:send("hello", tostring(o.node), tostring(o.n), host(), tostring(o.nnodes))
  channel:flush()
  return self
end

return {open = function(o) return (o.node == 0 and first or other)(o) end}
