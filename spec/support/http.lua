--- A small client of HTTP, for servers in the same thread: it sends a request and reads what comes
-- while a function lets the server work.
local core = require "flare.core"

local M = {}

local Client = {}
Client.__index = Client

--- Connects and sends a request.
-- @param o {method =, path =, headers = lines, body =} or the bytes to send
function M.open(port, o)
  local text = o
  if type(o) == "table" then
    local body = o.body or ""
    text = ("%s %s HTTP/1.1\r\nHost: here\r\n%sContent-Length: %d\r\n\r\n%s"):format(
      o.method or (o.body and "POST" or "GET"), o.path, o.headers or "", #body, body)
  end
  local fd = assert(core.net.connect("127.0.0.1", port))
  return setmetatable({fd = fd, rest = text, got = ""}, Client)
end

--- Sends and reads what can be sent and read now; true once the server has closed the connection.
function Client:pump()
  if #self.rest > 0 then
    self.rest = self.rest:sub((core.net.write(self.fd, self.rest) or 0) + 1)
  end
  while true do
    local part, why = core.net.read(self.fd)
    if not part then
      self.ended = why
      return true
    elseif part == "" then
      return false
    end
    self.got = self.got .. part
  end
end

function Client:close()
  if self.fd then core.net.close(self.fd, true) end
  self.fd = nil
end

-- The body in chunks, and whether its end is here.
local function joined(text)
  local out, at = {}, 1
  while true do
    local size, from = text:match("^(%x+)\r\n()", at)
    if not size then return table.concat(out), false end
    size = tonumber(size, 16)
    if size == 0 then return table.concat(out), true end
    out[#out + 1] = text:sub(from, from + size - 1)
    at = from + size + 2
  end
end

--- The status, the body so far, whether it is whole, and the head, of what has come.
function Client:answer()
  local head, rest = self.got:match "^(.-\r\n)\r\n(.*)$"
  if not head then return nil end
  local status = math.tointeger(tonumber(head:match "^HTTP/1%.1 (%d+)"))
  local length = head:lower():match "content%-length: (%d+)"
  if length then return status, rest, #rest >= tonumber(length), head end
  local body, whole = joined(rest)
  return status, body, whole, head
end

--- Lets a server work until the answers of all clients are whole.
-- @param work a function that lets the server work a little
-- @return the status and the body of the first one
function M.wait(clients, work)
  for _ = 1, 20000 do
    local left = 0
    for _, client in ipairs(clients) do
      local closed = client:pump()
      local _, _, whole = client:answer()
      if not whole and not closed then left = left + 1 end
    end
    if left == 0 then return clients[1]:answer() end
    work()
  end
  error "the server does not answer"
end

--- The events of a stream, decoded, without the last one, which must be [DONE].
function M.events(body)
  local out, done = {}, false
  for line in body:gmatch "data: ([^\n]*)\n\n" do
    assert(not done, "events behind [DONE]")
    if line == "[DONE]" then done = true else out[#out + 1] = assert(core.json.decode(line)) end
  end
  return out, done
end

return M
