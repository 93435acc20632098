--- A kernel of Jupyter: serves the five sockets of a connection file until a client ends it.
local core = require "flare.core"
local signals = require "flare.repl.signals"
local wire = require "flare.repl.jupyter.wire"

local M = {}

local Kernel = {}
Kernel.__index = Kernel

-- --- messages ---

local function write(self, socket, ids, kind, content, parent)
  assert(self.net:send(socket, wire.write(ids, {key = self.key, session = self.session,
    kind = kind, content = content, parent = parent and parent.header})))
end

-- Publishes what belongs to the request that is answered now.
local function publish(self, kind, content)
  write(self, self.iopub, {kind}, kind, content, self.request)
end

local function reply(self, socket, request, kind, content)
  content.status = content.status or "ok"
  write(self, socket, request.ids, kind, content, request)
end

local object = setmetatable({}, {}) -- {} in JSON

-- A bundle in what displays carry.
local function shown(bundle, id)
  return {data = bundle, metadata = object, transient = id and {display_id = id} or object}
end

-- Characters of a text, which the protocol counts in; bytes up to a character.
local function bytes_before(text, characters)
  local at = utf8.len(text) and utf8.offset(text, math.min(characters, utf8.len(text)) + 1)
  return at and at - 1 or math.min(characters, #text)
end

local function characters_before(text, bytes)
  return utf8.len(text:sub(1, bytes)) or bytes
end

-- --- what cells write and read ---

-- Whether the program that started the kernel is gone.
local function orphaned(self)
  return self.parent and core.file.exists "/proc/self"
    and not core.file.exists("/proc/" .. self.parent)
end

-- A line from the user, through the front end; nil without one.
local function ask(self)
  if not self.allow_stdin then return nil end
  while self.net:receive(self.stdin) do end -- answers to what was interrupted
  write(self, self.stdin, self.request.ids, "input_request", {prompt = "", password = false},
        self.request)
  while not orphaned(self) do
    self.net:poll(100)
    local frames = self.net:receive(self.stdin)
    local answer = frames and wire.read(frames, self.key)
    if answer and answer.header.msg_type == "input_reply" then
      return tostring(answer.content.value or "")
    end
  end
end

local function flush(self)
  local texts = self.texts
  if texts[1] then
    self.texts = {}
    publish(self, "stream", {name = texts.name, text = table.concat(texts)})
  end
end

-- Texts of one stream go out together, at the latest after a tenth of a second.
local function emit(self, name, text)
  if self.texts.name ~= name then flush(self) end
  self.texts.name = name
  self.texts[#self.texts + 1] = text
  local now = core.clock()
  if now - self.sent > 0.1 or #self.texts > 1000 then
    self.sent = now
    flush(self)
  end
end

-- --- requests ---

local handlers = {}

function handlers.kernel_info_request()
  local info = {protocol_version = "5.3", implementation = "flare",
    implementation_version = core.version, banner = "flare " .. core.version .. ", " .. _VERSION,
    language_info = {name = "lua", version = _VERSION:match "[%d.]+", mimetype = "text/x-lua",
                     file_extension = ".lua", pygments_lexer = "lua", codemirror_mode = "lua",
                     nbconvert_exporter = "script"},
    help_links = core.json.array{}, debugger = false}
  return "kernel_info_reply", info
end

-- The parts of an error: its first line, and all of it by lines.
local function failure(text)
  local lines = {}
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
  local stopped = lines[1]:find "interrupted!"
  return {ename = stopped and "Interrupt" or "Error", evalue = lines[1],
          traceback = core.json.array(lines)}
end

-- f(), which a Ctrl-C stops; everything else it does not.
-- @return what f returns, or false and the error's text
local function guarded(self, f)
  local results = table.pack(xpcall(function()
    signals.resume()
    core.interruptible(true)
    local ok, last = f()
    core.interruptible(false)
    signals.ignore()
    return ok, last
  end, self.cell.traced))
  core.interruptible(false)
  signals.ignore()
  if not results[1] then return false, tostring(results[2]) end
  return results[2], results[3]
end

-- Expressions that the client wants to know after a cell.
local function values_of(self, asked)
  local out = setmetatable({}, {})
  for name, text in pairs(type(asked) == "table" and asked or {}) do
    local bundle, problem = guarded(self, function() return self.cell:value(tostring(text)) end)
    out[name] = bundle and {status = "ok", data = bundle, metadata = object} or failure(problem)
    out[name].status = out[name].status or "error"
  end
  return out
end

-- The requests of a socket that are there.
local function waiting(self, socket)
  local list = {}
  while true do
    local frames = self.net:receive(socket)
    if not frames then return list end
    list[#list + 1] = wire.read(frames, self.key) -- what has no right signature is dropped
  end
end

function handlers.execute_request(self, content)
  local silent, text = content.silent, tostring(content.code or "")
  local keep = not silent and content.store_history ~= false
  if keep then
    self.count = self.count + 1
    self.history[self.count] = text
  end
  if not silent then
    publish(self, "execute_input", {code = text, execution_count = self.count})
  end
  self.allow_stdin = content.allow_stdin
  local ok, last = guarded(self, function()
    return self.cell:execute(text, function(bundle)
      flush(self)
      if not silent then publish(self, "display_data", shown(bundle)) end
    end)
  end)
  flush(self)
  if ok then
    if last and not silent then
      publish(self, "execute_result", {data = last, metadata = object,
                                       execution_count = self.count})
    end
    return "execute_reply", {execution_count = self.count, payload = core.json.array{},
                             user_expressions = values_of(self, content.user_expressions)}
  end
  local answer = failure(last)
  if not silent then publish(self, "error", failure(last)) end
  answer.status, answer.execution_count = "error", self.count
  -- cells that were waiting when this one failed are not run
  self.aborted = content.stop_on_error ~= false and waiting(self, self.shell) or nil
  return "execute_reply", answer
end

function handlers.complete_request(self, content)
  local text, at = tostring(content.code or ""), content.cursor_pos or 0
  local before = bytes_before(text, at)
  local from, list = self.cell:complete(text, before)
  return "complete_reply", {matches = core.json.array(list), cursor_end = at,
                            cursor_start = characters_before(text, from), metadata = object}
end

-- The name of what is called where a text ends: "nn.Linear" of "nn.Linear(2, ".
local function called(text)
  local bare = text:gsub("%b()", ""):gsub("%b{}", "")
  return bare:match "([%a_][%w_.:]*)%s*%([^()]*$" or bare:match "([%a_][%w_.:]*)%s*{[^{}]*$"
end

function handlers.inspect_request(self, content)
  local text = tostring(content.code or "")
  local at = bytes_before(text, content.cursor_pos or #text)
  local first = text:sub(1, at):match "[%a_][%w_.:]*$" or ""
  local path = first .. text:sub(at + 1):match "^[%w_]*"
  local outer = called(text:sub(1, at))
  local found = path ~= "" and self.cell:inspect(path, content.detail_level or 0)
                or outer and self.cell:inspect(outer, content.detail_level or 0)
  return "inspect_reply", {found = found and true or false, metadata = object,
                           data = found and {["text/plain"] = found} or object}
end

function handlers.is_complete_request(self, content)
  local state = self.cell:state(tostring(content.code or ""))
  return "is_complete_reply", {status = state, indent = state == "incomplete" and "  " or nil}
end

function handlers.history_request(self, content)
  local list, n = {}, tonumber(content.n)
  local pattern = content.hist_access_type == "search" and tostring(content.pattern or "*")
    :gsub("%p", "%%%0"):gsub("%%%*", ".*"):gsub("%%%?", ".")
  local from, to = 1, #self.history
  if content.hist_access_type == "range" then
    from, to = content.start or 1, math.min((content.stop or to + 1) - 1, to)
  end
  for k = math.max(from, 1), to do
    local text = self.history[k]
    if not pattern or text:find("^" .. pattern .. "$") then
      list[#list + 1] = core.json.array{0, k, content.output and core.json.array{text,
        core.json.null} or text}
    end
  end
  if n and content.hist_access_type ~= "range" then
    list = table.move(list, math.max(1, #list - n + 1), #list, 1, {})
  end
  return "history_reply", {history = core.json.array(list)}
end

function handlers.comm_info_request() return "comm_info_reply", {comms = object} end

function handlers.interrupt_request() return "interrupt_reply", {} end

function handlers.shutdown_request(self, content)
  self.ended = true
  return "shutdown_reply", {restart = content.restart or false}
end

--- Answers a request of a socket.
-- @param aborts whether cells are not run
function Kernel:answer(socket, request, aborts)
  local handler = handlers[request.header.msg_type]
  self.request = request
  publish(self, "status", {execution_state = "busy"})
  if aborts and request.header.msg_type == "execute_request" then
    reply(self, socket, request, "execute_reply",
          {status = "aborted", execution_count = self.count})
  elseif handler then
    local ok, kind, content = xpcall(handler, self.cell.traced, self, request.content)
    if not ok then -- a value that is no JSON, for example
      self.texts = {}
      kind, content = request.header.msg_type:gsub("_request$", "_reply"), failure(tostring(kind))
      content.status, content.execution_count = "error", self.count
    end
    reply(self, socket, request, kind, content)
  end
  publish(self, "status", {execution_state = "idle"})
end

-- --- the loop ---

--- Serves a connection.
-- @param c what its file has: transport, ip, ports, key, signature_scheme
-- @return true, or nil and a message
function M.serve(c)
  if c.key ~= "" and c.signature_scheme ~= "hmac-sha256" then
    return nil, ("the signature scheme %s is unknown"):format(tostring(c.signature_scheme))
  end
  local net, problem = core.zmq()
  if not net then return nil, problem end
  local self = setmetatable({net = net, key = c.key or "", session = wire.id(), count = 0,
    history = {}, texts = {}, sent = 0}, Kernel)
  local function address(port)
    return ("%s://%s%s%d"):format(c.transport, c.ip, c.transport == "tcp" and ":" or "-", port)
  end
  for _, one in ipairs {{"shell", "router"}, {"control", "router"}, {"stdin", "router"},
                        {"iopub", "pub"}} do
    self[one[1]], problem = net:socket(one[2], address(c[one[1] .. "_port"]), true)
    if not self[one[1]] then return nil, problem end
  end
  local ok
  ok, problem = net:echo(address(c.hb_port))
  if not ok then return nil, problem end
  self.cell = require("flare.repl.jupyter.cell").open {
    emit = function(name, text) emit(self, name, text) end,
    read = function()
      flush(self)
      return ask(self)
    end,
    publish = function(kind, bundle, id)
      flush(self)
      publish(self, kind, shown(bundle, id))
    end}
  self.parent = os.getenv "JPY_PARENT_PID"
  signals.ignore()
  publish(self, "status", {execution_state = "starting"})
  self:loop()
  self.cell.close()
  net:close()
  return true
end

function Kernel:loop()
  while not self.ended do
    local ready = self.net:poll(1000)
    if #ready == 0 and orphaned(self) then return end
    for _, socket in ipairs {self.control, self.shell} do
      local frames = not self.ended and self.net:receive(socket)
      local request = frames and wire.read(frames, self.key)
      if request then self:answer(socket, request) end
      local aborted = self.aborted or {}
      self.aborted = nil
      for _, other in ipairs(aborted) do self:answer(socket, other, true) end
    end
  end
end

return M
