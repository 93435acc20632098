-- The rendezvous of a job's launchers against those who are none of it: garbage, replays, messages
-- that are too long or changed on the way. None is accepted, and nothing of them is kept.
local core = require "flare.core"
local Channel = require "flare.dist.channel"
local Rendezvous = require "flare.dist.rendezvous"

local net = core.net
local secret = ("s"):rep(64)

local function open()
  return assert(Rendezvous.open{host = "127.0.0.1", port = 0, secret = secret})
end

-- Lets the server work until it has nothing to do.
local function settle(server, times)
  for _ = 1, times or 3 do
    local read, write = server:files()
    server:step(net.poll(read, write, 0))
  end
end

-- The same until done() is true, which it has to be one day.
local function work(server, done)
  for _ = 1, 10000 do
    if done() then return end
    local read, write = server:files()
    server:step(net.poll(read, write, 1))
  end
  error "nothing comes of it"
end

local function stranger(server) return assert(net.connect("127.0.0.1", server.port, 60)) end

-- A channel of a client that knows the secret, with the server in this process.
local function friend(server, key)
  local channel, gone = Channel(stranger(server), "client", key or secret), false
  work(server, function()
    gone = not channel:receive()
    return gone or channel.open
  end)
  return not gone and channel or nil
end

describe("the rendezvous", function()
  it("keeps words of those who know the secret", function()
    local server = open()
    local a, b = assert(friend(server)), assert(friend(server))
    b:send("get", "name")
    b:flush()
    work(server, function() return server.asked.name end)
    a:send("set", "name", ("x"):rep(50000))
    local list = {}
    work(server, function()
      assert(a:flush())
      for _, m in ipairs(assert(b:receive())) do list[#list + 1] = m end
      return #list > 0
    end)
    assert.same({{"value", ("x"):rep(50000)}}, list)
    a:close()
    b:close()
    server:close()
  end)

  it("does not talk to those who do not", function()
    local server = open()
    assert.is_nil(friend(server, ("t"):rep(64)))
    assert.equal(0, server.accepted)
    server:close()
  end)

  it("accepts none of 100000 bad messages, and keeps nothing of them", function()
    local server = open()
    math.randomseed(5)
    local pieces = {}
    for k = 1, 64 do
      local bytes = {}
      for i = 1, 96 do bytes[i] = string.char(math.random(0, 255)) end
      pieces[k] = table.concat(bytes)
    end
    -- what a good client once wrote, word for word
    local good, sent = Channel(stranger(server), "client", secret), ""
    local before = good.flush
    good.flush = function(self)
      sent = sent .. self.output
      return before(self)
    end
    work(server, function()
      assert(good:receive())
      return good.open
    end)
    good:send("set", "mine", "1")
    good:flush()
    good.flush = nil
    work(server, function() return server.values.mine end)
    assert.equal("1", server.values.mine)
    server.values.mine = nil
    server.names = 0
    collectgarbage()
    local kept, total = collectgarbage "count", 100000
    local open_ones, done = {}, 0
    local function close_all()
      settle(server, 6)
      for _, file in ipairs(open_ones) do net.close(file, true) end
      open_ones = {}
      settle(server, 2)
    end
    while done < total do
      local file = stranger(server)
      local kind = done % 4
      if kind == 0 then net.write(file, pieces[done // 4 % 64 + 1])
      elseif kind == 1 then net.write(file, sent) -- a replay: the server's nonce is another
      elseif kind == 2 then net.write(file, string.pack(">I4", 0xffffffff) .. pieces[1])
      else net.write(file, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" .. pieces[2]) end
      open_ones[#open_ones + 1] = file
      done = done + 1
      if #open_ones == 16 then close_all() end
    end
    close_all()
    work(server, function() return server.refused >= total and server.count == 1 end)
    assert.equal(1, server.accepted)
    assert.equal(total, server.refused)
    assert.is_nil(next(server.values))
    collectgarbage()
    collectgarbage()
    assert.is_true(collectgarbage "count" < kept + 512)
    -- one who has proved himself and then lies, or says too much, is put out
    local lies = {string.pack(">I4", 2 ^ 20 + 1 | 0), string.pack(">I4", 4) .. ("z"):rep(36)}
    for k, lie in ipairs(lies) do
      local liar = assert(friend(server))
      assert.equal(2, server.count, "lie " .. k)
      net.write(liar.file, lie)
      work(server, function() return server.count == 1 end)
      liar:close()
    end
    good:send("set", ("n"):rep(200), "1")
    good:flush()
    work(server, function() return server.count == 0 end)
    good:close()
    server:close()
  end)

  it("does not wait for those who say nothing", function()
    local server = open()
    local files = {}
    for k = 1, 200 do
      files[k] = stranger(server)
      settle(server, 1)
    end
    assert.is_true(server.count <= server.most + 1)
    local channel = friend(server)
    assert.is_truthy(channel and channel.open)
    for _, file in ipairs(files) do net.close(file, true) end
    channel:close()
    server:close()
  end)
end)
