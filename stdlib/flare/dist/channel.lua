--- An authenticated connection. Both ends prove by a challenge that they know the job's secret, and
-- every message carries an authentication code over its payload and sequence number, so messages
-- cannot be forged, changed, reordered or replayed.
--
--     server: "flare1" S        client: C hmac(secret, "client" S C)
--     server: hmac(secret, "server" S C), then both: length, payload, hmac(key, number payload)
--
-- S and C are random nonces; each direction has a key of its own, derived from the secret, S and C.
-- A payload is a list of strings. A message longer than `most` is refused.
local core = require "flare.core"
local class = require "flare.class"

local net, secret = core.net, core.secret

local Channel = class "dist.Channel"

local magic, most = "flare1", 1 << 20
local roles = {client = {mine = "to server", theirs = "to client"},
  server = {mine = "to client", theirs = "to server"}}

--- @param file of a connection
-- @param role "client" or "server"
function Channel:init(file, role, key)
  self.file, self.role, self.secret = file, role, key
  self.input, self.output = "", ""
  self.sent, self.received = 0, 0
  self.born = core.clock()
  self.open = false -- true: both ends have proved that they know the secret
  if role == "server" then
    self.nonce = secret.random(32)
    self.output = magic .. self.nonce
  end
end

local function keys(self, s, c)
  local words = roles[self.role]
  self.key_out = secret.hmac(self.secret, words.mine .. s .. c)
  self.key_in = secret.hmac(self.secret, words.theirs .. s .. c)
  self.open = true
end

-- Removes n bytes from the input buffer; nil if there are fewer.
local function take(self, n)
  if #self.input < n then return nil end
  local bytes = self.input:sub(1, n)
  self.input = self.input:sub(n + 1)
  return bytes
end

-- One step of the handshake: true if another may follow, false to wait for input, nil and a message
-- if the other end does not know the secret.
local function prove(self)
  if self.role == "server" then
    local proof = take(self, 64)
    if not proof then return false end
    local c, mac = proof:sub(1, 32), proof:sub(33)
    if not secret.same(mac, secret.hmac(self.secret, "client" .. self.nonce .. c)) then
      return nil, "the proof is wrong"
    end
    self.output = self.output .. secret.hmac(self.secret, "server" .. self.nonce .. c)
    keys(self, self.nonce, c)
    return true
  end
  if not self.nonce then
    local hello = take(self, #magic + 32)
    if not hello then return false end
    if hello:sub(1, #magic) ~= magic then return nil, "it is no launcher" end
    self.server_nonce, self.nonce = hello:sub(#magic + 1), secret.random(32)
    self.output = self.output .. self.nonce
      .. secret.hmac(self.secret, "client" .. self.server_nonce .. self.nonce)
    return true
  end
  local mac = take(self, 32)
  if not mac then return false end
  local nonces = self.server_nonce .. self.nonce
  if not secret.same(mac, secret.hmac(self.secret, "server" .. nonces)) then
    return nil, "the launcher does not know the secret"
  end
  keys(self, self.server_nonce, self.nonce)
  return true
end

-- The next message; false if it is not complete yet, nil and a message if it is invalid.
local function message(self)
  if #self.input < 4 then return false end
  local n = string.unpack(">I4", self.input)
  if n > most then return nil, "a message is too long" end
  local frame = take(self, 4 + n + 32)
  if not frame then return false end
  local payload = frame:sub(5, 4 + n)
  local number = string.pack(">I8", self.received)
  if not secret.same(frame:sub(5 + n), secret.hmac(self.key_in, number .. payload)) then
    return nil, "a message is not from the other end"
  end
  self.received = self.received + 1
  local list, at = {}, 1
  while at <= #payload do
    local ok, word, next_at = pcall(string.unpack, ">s4", payload, at)
    if not ok then return nil, "a message makes no sense" end
    list[#list + 1], at = word, next_at
  end
  return list
end

--- Queues a message, the strings that are given.
function Channel:send(...)
  local parts = {}
  for k, word in ipairs {...} do parts[k] = string.pack(">s4", word) end
  local payload = table.concat(parts)
  local mac = secret.hmac(self.key_out, string.pack(">I8", self.sent) .. payload)
  self.sent = self.sent + 1
  self.output = self.output .. string.pack(">I4", #payload) .. payload .. mac
end

--- Writes queued bytes. @return true, or nil and a message
function Channel:flush()
  while #self.output > 0 do
    local n, problem = net.write(self.file, self.output)
    if not n then return nil, problem end
    if n == 0 then break end
    self.output = self.output:sub(n + 1)
  end
  return true
end

--- Reads available bytes. @return a list of messages; nil and a message: the caller closes it
function Channel:receive()
  local bytes, problem = net.read(self.file)
  if not bytes then return nil, problem end
  self.input = self.input .. bytes
  local list = {}
  while not self.open do
    local more, why = prove(self)
    if more == nil then return nil, why end
    if not more then return list, self:flush() end
  end
  while true do
    local one, why = message(self)
    if one == nil then return nil, why end
    if not one then break end
    list[#list + 1] = one
  end
  local ok, why = self:flush()
  if not ok then return nil, why end
  return list
end

--- @param at_once resets the connection, for peers that did not authenticate
function Channel:close(at_once)
  if self.file then net.close(self.file, at_once) end
  self.file = nil
end

-- Why the handshake failed, by the step that it had reached.
local function stranger(channel, why)
  if not channel.nonce then return why or "it is no launcher: it says nothing" end
  if channel.server_nonce and why ~= "the launcher does not know the secret" then
    return "the launcher there does not take our secret: --secret must be the same file everywhere"
  end
  return why
end

--- Connects to a launcher and does the handshake.
-- @param wait is called with the problem as long as the connection is refused; true stops it
-- @return a channel; nil and a message
function Channel.connect(host, port, key, seconds, wait)
  local deadline = core.clock() + seconds
  local file, problem = net.connect(host, port, 2)
  while not file and core.clock() < deadline do
    if wait and wait(problem) then return nil, "interrupted" end
    net.poll({}, {}, 100)
    file, problem = net.connect(host, port, 2)
  end
  if not file then return nil, problem end
  local channel = Channel(file, "client", key)
  channel.waiting = {}
  deadline = core.clock() + 10
  while not channel.open do
    net.poll({file}, {}, 100)
    local list, why = channel:receive()
    if not list or core.clock() > deadline then
      channel:close()
      return nil, stranger(channel, not list and why or nil)
    end
    for _, m in ipairs(list) do table.insert(channel.waiting, m) end
  end
  return channel
end

--- The next message, waiting up to so many seconds. @return a list of strings; nil and a message
function Channel:next(seconds)
  local deadline = core.clock() + seconds
  while #self.waiting == 0 do
    if core.clock() > deadline then return nil, "no answer" end
    net.poll({self.file}, #self.output > 0 and {self.file} or {}, 100)
    local list, why = self:receive()
    if not list then return nil, why end
    self.waiting = list
  end
  return table.remove(self.waiting, 1)
end

return Channel
