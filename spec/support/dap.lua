-- A client of the Debug Adapter Protocol: sends requests, waits for answers and events, and checks
-- every message that comes against the protocol's published schema (spec/data/dap_schema.json).
local core = require "flare.core"
local tree = require "spec.support.tree"

local Client = {}
Client.__index = Client

local program = os.getenv "FLARE_PROGRAM" or tree.build .. "/flare"
local schema

-- --- the schema ---

local kinds = {
  string = function(v) return type(v) == "string" end,
  boolean = function(v) return type(v) == "boolean" end,
  integer = function(v) return math.type(v) == "integer" end,
  number = function(v) return type(v) == "number" end,
  array = function(v) return type(v) == "table" and (#v > 0 or next(v) == nil) end,
  object = function(v) return type(v) == "table" and #v == 0 end,
  null = function(v) return v == core.json.null end,
}

local function has_kind(value, wanted)
  if type(wanted) == "string" then return kinds[wanted](value) end
  for _, one in ipairs(wanted) do
    if kinds[one](value) then return true end
  end
  return false
end

-- What is wrong with a value, or nil.
local function problem_of(value, rule, path)
  if rule["$ref"] then
    return problem_of(value, schema.definitions[rule["$ref"]:match "[^/]*$"], path)
  end
  for _, part in ipairs(rule.allOf or {}) do
    local problem = problem_of(value, part, path)
    if problem then return problem end
  end
  if rule.type and not has_kind(value, rule.type) then
    local wanted = type(rule.type) == "table" and table.concat(rule.type, " or ") or rule.type
    return ("%s is no %s: %s"):format(path, wanted, tostring(value))
  end
  if rule.enum then
    local known = false
    for _, one in ipairs(rule.enum) do known = known or one == value end
    if not known then return ("%s is %s"):format(path, tostring(value)) end
  end
  if type(value) ~= "table" then return nil end
  for _, name in ipairs(rule.required or {}) do
    if value[name] == nil then return ("%s has no %s"):format(path, name) end
  end
  for name, inner in pairs(rule.properties or {}) do
    if value[name] ~= nil then
      local problem = problem_of(value[name], inner, path .. "." .. name)
      if problem then return problem end
    end
  end
  for i, one in ipairs(rule.items and value or {}) do
    local problem = problem_of(one, rule.items, ("%s[%d]"):format(path, i))
    if problem then return problem end
  end
end

local function definition_of(message)
  local word, ending = message.event, "Event"
  if message.type == "response" then
    if not message.success then return "ErrorResponse" end
    word, ending = message.command, "Response"
  end
  return word:sub(1, 1):upper() .. word:sub(2) .. ending
end

local function check(message)
  local name = definition_of(message)
  local rule = schema.definitions[name]
  if not rule then error("the schema has no " .. name, 0) end
  local problem = problem_of(message, rule, name)
  if problem then error(problem .. "\n" .. core.json.encode(message), 0) end
end

-- --- the connection ---

local function new(transport)
  schema = schema or assert(core.json.decode(tree.read "spec/data/dap_schema.json"))
  return setmetatable({transport = transport, seq = 0, seen = 0, events = {}}, Client)
end

--- Starts `flare dap` with its standard input and output.
function Client.open()
  local fifo = os.tmpname()
  assert(os.execute(("rm '%s' && mkfifo '%s'"):format(fifo, fifo)))
  local to = assert(io.popen(("exec timeout 30 '%s' dap > '%s'"):format(program, fifo), "w"))
  local from = assert(io.open(fifo, "r"))
  os.remove(fifo)
  return new {
    write = function(bytes)
      to:write(bytes)
      to:flush()
    end,
    line = function() return from:read "L" end,
    bytes = function(n) return from:read(n) end,
    close = function()
      to:close()
      from:close()
    end,
  }
end

--- Connects to a port.
function Client.connect(port)
  local file, pending = assert(core.net.connect("127.0.0.1", port)), ""
  local function more()
    core.net.poll({file}, {}, 10000)
    local bytes = core.net.read(file)
    if not bytes then return false end
    pending = pending .. bytes
    return true
  end
  return new {
    write = function(bytes) core.net.write(file, bytes) end,
    line = function()
      while not pending:find "\n" do
        if not more() then return nil end
      end
      local line = pending:match "^.-\n"
      pending = pending:sub(#line + 1)
      return line
    end,
    bytes = function(n)
      while #pending < n do
        if not more() then return nil end
      end
      local bytes = pending:sub(1, n)
      pending = pending:sub(n + 1)
      return bytes
    end,
    close = function() core.net.close(file) end,
  }
end

function Client:close() self.transport.close() end

-- The next message, which is checked; nil at the end.
function Client:receive()
  local size
  while true do
    local line = self.transport.line()
    if not line then return nil end
    if line == "\r\n" then break end
    size = line:match "^Content%-Length: (%d+)\r\n$" or size
  end
  local message = assert(core.json.decode(self.transport.bytes(math.tointeger(tonumber(size)))))
  assert(message.seq == self.seen + 1, "messages are not numbered one by one")
  self.seen = message.seq
  check(message)
  if message.type == "event" then self.events[#self.events + 1] = message end
  return message
end

function Client:send(command, arguments)
  self.seq = self.seq + 1
  local body = core.json.encode {seq = self.seq, type = "request", command = command,
                                 arguments = arguments}
  self.transport.write(("Content-Length: %d\r\n\r\n%s"):format(#body, body))
  return self.seq
end

--- Sends a request and returns its answer's body, or nil and the message of a refusal.
function Client:ask(command, arguments)
  local seq = self:send(command, arguments)
  while true do
    local message = assert(self:receive(), "the adapter ended")
    if message.type == "response" and message.request_seq == seq then
      assert(message.command == command)
      if message.success then return message.body or {} end
      return nil, message.message
    end
  end
end

--- The next event of a kind that was not taken yet.
function Client:event(name)
  while true do
    for i, event in ipairs(self.events) do
      if event.event == name then
        table.remove(self.events, i)
        return event.body or {}
      end
    end
    assert(self:receive(), "the adapter ended before " .. name)
  end
end

--- All that was printed until now, by category.
function Client:output(category)
  local parts = {}
  for _, event in ipairs(self.events) do
    if event.event == "output" and event.body.category == category then
      parts[#parts + 1] = event.body.output
    end
  end
  return table.concat(parts)
end

--- Goes through what comes before a script runs.
-- @param o what launch gets, and breakpoints = {[path] = list}, filters = list
-- @return the answers to setBreakpoints, by path
function Client:launch(o)
  self:ask("initialize", {adapterID = "flare", linesStartAt1 = true, columnsStartAt1 = true})
  local launch = self:send("launch", {program = o.program, args = o.args, cwd = o.cwd, env = o.env,
                                      stopOnEntry = o.stopOnEntry, noDebug = o.noDebug})
  self:event "initialized"
  local answers = {}
  for path, list in pairs(o.breakpoints or {}) do
    answers[path] = assert(self:ask("setBreakpoints", {source = {path = path}, breakpoints = list}))
      .breakpoints
  end
  assert(self:ask("setExceptionBreakpoints", {filters = core.json.array(o.filters or {})}))
  assert(self:ask("configurationDone"))
  return answers, launch
end

--- Waits until the script stops; returns the event's body and the stack.
function Client:stopped()
  local body = self:event "stopped"
  return body, self:ask("stackTrace", {threadId = body.threadId}).stackFrames
end

--- The variables of a scope of a frame, by name.
function Client:variables(frame, scope)
  for _, one in ipairs(self:ask("scopes", {frameId = frame.id}).scopes) do
    if one.name == scope then return self:children(one) end
  end
end

--- What is inside of a variable, by name.
function Client:children(variable, more)
  local o = {variablesReference = variable.variablesReference}
  for key, value in pairs(more or {}) do o[key] = value end
  local by_name = {}
  for _, one in ipairs(assert(self:ask("variables", o)).variables) do by_name[one.name] = one end
  return by_name
end

return Client
