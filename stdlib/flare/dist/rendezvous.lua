--- The rendezvous server: the launchers of a job connect to it, and its processes use it as a
-- key-value store. It runs in the launcher of node 0, for clients that know the job's secret.
--
--     hello NODE RANKS HOST NODES  ->  start HOSTS RANKS_BEFORE ALL_RANKS, when all nodes are
--                                      there, or refused WHY
--     set NAME VALUE          get NAME  ->  value VALUE, as soon as there is one
--     drop NAME
--     failed TEXT             ->  stop TEXT, to all nodes
--     ended ATTEMPT HOW       ->  turn again or turn over, to all nodes, when all have ended: again
--                                 if HOW was bad somewhere, nowhere final, and restarts are left
local core = require "flare.core"
local class = require "flare.class"
local Channel = require "flare.dist.channel"

local net = core.net

local Rendezvous = class "dist.Rendezvous"

-- Limits on connections that have not authenticated, and on stored data.
local limits = {strangers = 64, patience = 5, names = 4096, name = 128, value = 1 << 16,
  bytes = 16 << 20, backlog = 1 << 22}

--- @param o host, port (0: any), secret, nodes: how many will come, ranks: how many processes,
-- restarts: how often they may start again
-- @return the server; nil and a message
function Rendezvous.open(o)
  local file, port = net.listen(o.host, o.port)
  if not file then return nil, ("%s:%d: %s"):format(o.host, o.port, port) end
  local self = setmetatable({}, Rendezvous)
  self.file, self.port, self.secret = file, port, o.secret
  self.restarts, self.next = o.restarts or 0, 0
  self.nodes, self.most = o.nodes or 1, limits.strangers + (o.nodes or 1) + (o.ranks or 0)
  self.channels, self.count, self.here = {}, 0, {}
  self.values, self.names, self.bytes, self.asked = {}, 0, 0, {}
  self.accepted, self.refused = 0, 0
  return self
end

local function drop(self, channel)
  self.channels[channel.file] = nil
  self.count = self.count - 1
  if not channel.open then self.refused = self.refused + 1 end
  channel:close(not channel.open)
end

--- The files to poll for reading and for writing.
function Rendezvous:files()
  local read, write = {self.file}, {}
  for file, channel in pairs(self.channels) do
    read[#read + 1] = file
    if #channel.output > 0 then write[#write + 1] = file end
  end
  return read, write
end

local function start(self)
  local hosts, n, before = {}, 0, {}
  local all = 0
  for node = 0, self.nodes - 1 do
    local one = self.here[node]
    if not one then return end
    if not hosts[one.host] then n = n + 1 end
    hosts[one.host] = true
    before[node], all = all, all + one.ranks
  end
  for node, one in pairs(self.here) do
    one.channel:send("start", tostring(n), tostring(before[node]), tostring(all))
  end
  self.started = true
end

local verbs = {}

function verbs:hello(channel, node, ranks, host, nodes)
  node, ranks = math.tointeger(tonumber(node)), math.tointeger(tonumber(ranks))
  nodes = math.tointeger(tonumber(nodes))
  if not (node and ranks and host and nodes) or node < 0 or ranks < 1 then
    return "there is no such node"
  end
  if nodes ~= self.nodes then
    channel:send("refused", ("node %d was started with --nnodes %d, node 0 with %d"):format(node,
      nodes, self.nodes))
    return
  end
  if self.here[node] then
    channel:send("refused", ("node %d is here already"):format(node))
    return
  end
  self.here[node] = {channel = channel, ranks = ranks, host = host}
  channel.node = node
  start(self)
end

function verbs:set(_, name, value)
  if not value or #name > limits.name or #value > limits.value then return "too long" end
  if not self.values[name] then
    if self.names == limits.names then return "too many names" end
    self.names = self.names + 1
  end
  self.bytes = self.bytes + #value - #(self.values[name] or "")
  if self.bytes > limits.bytes then return "too much" end
  self.values[name] = value
  for _, channel in ipairs(self.asked[name] or {}) do
    if channel.file then channel:send("value", value) end
  end
  self.asked[name] = nil
end

function verbs:get(channel, name)
  if not name or #name > limits.name then return "too long" end
  if self.values[name] then
    channel:send("value", self.values[name])
    return
  end
  self.asked[name] = self.asked[name] or {}
  if #self.asked[name] >= self.most then return "too many ask" end
  table.insert(self.asked[name], channel)
end

function verbs:drop(_, name)
  if not name or not self.values[name] then return end
  self.bytes = self.bytes - #self.values[name]
  self.names, self.values[name] = self.names - 1, nil
end

function verbs:failed(channel, text)
  if not self.started then return end
  for _, one in pairs(self.here) do
    if one.channel ~= channel and one.channel.file then one.channel:send("stop", text or "") end
  end
end

-- After all nodes have ended an attempt, or disconnected: tells them whether another one follows.
local function turn(self, attempt)
  if attempt < self.next then return end
  local bad, final = false, attempt >= self.restarts
  for node = 0, self.nodes - 1 do
    local one = self.here[node]
    if not one.gone and one.attempt ~= attempt then return end
    bad, final = bad or one.how ~= "good", final or one.gone or one.how == "final"
  end
  self.next = attempt + 1
  for _, one in pairs(self.here) do
    if one.channel.file then one.channel:send("turn", bad and not final and "again" or "over") end
  end
end

function verbs:ended(channel, attempt, how)
  attempt = math.tointeger(tonumber(attempt))
  local one = self.here[channel.node]
  if not (attempt and how and one and self.started) then return "nothing has begun" end
  one.attempt, one.how = attempt, how
  turn(self, attempt)
end

function verbs:done(channel) channel.left = true end

--- The hello of the launcher in which the server runs. @param channel has send and file
function Rendezvous:hello(channel, ...)
  return verbs.hello(self, channel, ...)
end

function Rendezvous:ended(channel, ...) return verbs.ended(self, channel, ...) end

--- Tells all nodes but the sender to stop.
function Rendezvous:tell(text, channel)
  verbs.failed(self, channel, text)
end

local function read(self, channel)
  local list = channel:receive()
  if channel.open and not channel.counted then
    channel.counted = true
    self.accepted = self.accepted + 1
  end
  local good = list ~= nil
  for _, words in ipairs(list or {}) do
    local f = verbs[words[1]]
    good = good and f and not f(self, channel, table.unpack(words, 2))
  end
  if not good or #channel.output > limits.backlog then
    if channel.node and not channel.left then
      verbs.failed(self, channel, ("the launcher of node %d is gone"):format(channel.node))
    end
    drop(self, channel)
    local one = self.here[channel.node]
    if one and not self.started then -- it may connect again
      self.here[channel.node] = nil
    elseif one then
      one.gone = true
      for _, other in pairs(self.here) do
        if other.attempt then turn(self, other.attempt) end
      end
    end
  end
end

-- Closes connections that do not authenticate in time.
local function weed(self)
  local now, oldest = core.clock(), nil
  for _, channel in pairs(self.channels) do
    if not channel.open then
      if now - channel.born > limits.patience then drop(self, channel)
      elseif not oldest or channel.born < oldest.born then oldest = channel end
    end
  end
  if self.count > self.most and oldest then drop(self, oldest) end
end

--- Accepts connections and handles messages. @param ready the files that poll reported
function Rendezvous:step(ready)
  if ready[self.file] then
    for _ = 1, 16 do
      local file = net.accept(self.file)
      if not file then break end
      local channel = Channel(file, "server", self.secret)
      self.channels[file], self.count = channel, self.count + 1
      channel:flush()
      weed(self)
    end
  end
  local list = {}
  for file, channel in pairs(self.channels) do
    if ready[file] then list[#list + 1] = channel end
  end
  for _, channel in ipairs(list) do if channel.file then read(self, channel) end end
  for _, channel in pairs(self.channels) do channel:flush() end
  weed(self)
end

function Rendezvous:close()
  for _, channel in pairs(self.channels) do channel:close() end
  net.close(self.file)
end

return Rendezvous
