--- Messages of the Debug Adapter Protocol on files: a header with their length, then JSON.
local core = require "flare.core"

local Wire = {}
Wire.__index = Wire

--- @param reads, writes numbers of open files
function Wire.new(reads, writes)
  return setmetatable({reads = reads, writes = writes or reads, pending = "", seq = 0}, Wire)
end

--- Sends a message, as a whole; nil if the other side is gone, or reads nothing for `limit`
-- seconds, a field that may be set.
function Wire:send(message)
  self.seq = self.seq + 1
  message.seq = self.seq
  local body = core.json.encode(message)
  local bytes = ("Content-Length: %d\r\n\r\n%s"):format(#body, body)
  while #bytes > 0 do
    local count = core.net.write(self.writes, bytes)
    if not count then return nil end -- the other side is gone
    bytes = bytes:sub(count + 1)
    if #bytes > 0 and not next(core.net.poll({}, {self.writes}, (self.limit or 1) * 1000))
       and self.limit then
      return nil
    end
  end
  return true
end

-- The first whole message of what has come; nil if there is none.
local function take(self)
  local head, after = self.pending:match "^(.-)\r\n\r\n()"
  if not head then return nil end
  local size = math.tointeger(tonumber(head:lower():match "content%-length:%s*(%d+)"))
  if not size then
    self.pending = self.pending:sub(after)
    return take(self)
  end
  if #self.pending < after + size - 1 then return nil end
  local body = self.pending:sub(after, after + size - 1)
  self.pending = self.pending:sub(after + size)
  local message = core.json.decode(body)
  if type(message) ~= "table" then return take(self) end
  return message
end

--- A message that has come; nil if there is none yet, nil and true at the end.
function Wire:receive()
  local message = take(self)
  while not message do
    -- the standard input may be one that blocks
    if not core.net.poll({self.reads}, {}, 0)[self.reads] then return nil end
    local bytes = core.net.read(self.reads)
    if not bytes then return nil, true end
    if bytes == "" then return nil end
    self.pending = self.pending .. bytes
    message = take(self)
  end
  return message
end

--- Waits for a message; nil at the end.
function Wire:wait()
  while true do
    local message, ended = self:receive()
    if message or ended then return message end
    core.net.poll({self.reads}, {}, 1000)
  end
end

return Wire
