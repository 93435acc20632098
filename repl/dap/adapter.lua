--- The adapter: what an editor talks to. It starts the script in a process of its own, in which
-- server.lua answers what is asked about the script, and passes on what that prints. So it answers
-- while a kernel runs, and ends a script that does not answer.
local core = require "flare.core"
local alert = require "flare.repl.alert"
local process = require "flare.repl.process"
local Wire = require "flare.repl.dap.wire"

local array = core.json.array

local Adapter = {}
Adapter.__index = Adapter

local requests = {} -- command = function(adapter, request) -> body, or nil and a message

local capabilities = {
  supportsConfigurationDoneRequest = true, supportsConditionalBreakpoints = true,
  supportsHitConditionalBreakpoints = true, supportsLogPoints = true,
  supportsEvaluateForHovers = true, supportsSetVariable = true, supportsTerminateRequest = true,
  supportsExceptionInfoRequest = true, supportsCompletionsRequest = true,
  exceptionBreakpointFilters = {
    {filter = "uncaught", label = "Uncaught errors", default = true},
    {filter = "all", label = "All errors", default = false},
    {filter = "nan", label = "Results with NaN", default = false}},
}

-- --- to the editor ---

function Adapter:event(name, body)
  self.client:send {type = "event", event = name, body = body}
end

function Adapter:answer(request, body, message)
  if message then body = {error = {id = 1, format = message, showUser = true}} end
  self.client:send {type = "response", request_seq = request.seq, command = request.command,
                    success = message == nil, body = body, message = message}
end

function Adapter:output(category, text)
  if text ~= "" then self:event("output", {category = category, output = text}) end
end

-- --- the script's process ---

local function environment(changes)
  local list = {}
  for _, line in ipairs(process.environment()) do
    if changes[line:match "^[^=]*"] == nil then list[#list + 1] = line end
  end
  for name, value in pairs(changes) do
    if value ~= core.json.null then list[#list + 1] = ("%s=%s"):format(name, value) end
  end
  return list
end

-- Starts the script once it is known what to start and where it stops.
local function start(self)
  if not self.launch or not self.configured or self.pid then return end
  local o = self.launch
  local mine, theirs = alert.pair()
  local argv = {"/bin/sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", o.cwd or ".",
                core.file.real "/proc/self/exe", "--dap=" .. theirs, o.program}
  for _, argument in ipairs(o.args or {}) do argv[#argv + 1] = tostring(argument) end
  self.dog = self.dog or process.watchdog()
  local pid, out, err = process.spawn {argv = argv, env = environment(o.env or {}),
    dog = self.dog, keep = theirs, pipes = true}
  core.net.close(theirs)
  if not pid then
    core.net.close(mine)
    return self:ended(1)
  end
  self.pid, self.script = pid, Wire.new(mine)
  self.pipes = {[out] = "stdout", [err] = "stderr"}
  self.script:send {type = "start", stopOnEntry = o.stopOnEntry == true,
                    noDebug = o.noDebug == true, breakpoints = self.points, filters = self.filters}
  self:event("process", {name = o.program, systemProcessId = pid, isLocalProcess = true,
                         startMethod = "launch"})
  self:event("thread", {reason = "started", threadId = 1})
end

-- What the script has printed until now.
function Adapter:drain()
  for fd, category in pairs(self.pipes or {}) do
    while true do
      local text = core.net.read(fd)
      if not text then
        core.net.close(fd)
        self.pipes[fd] = nil
        break
      end
      if text == "" then break end
      self:output(category, text)
    end
  end
end

function Adapter:ended(code)
  if self.over then return end
  self.over = true
  if code then self:event("exited", {exitCode = code}) end
  self:event("terminated", {})
end

-- Notices the end of the script's process.
function Adapter:reap()
  local pid, status = process.ended()
  if not pid then return end
  process.reap(pid)
  if pid ~= self.pid then return end
  self:drain()
  core.net.close(self.script.reads)
  self.pid, self.script = nil, nil
  self:ended(status >> 8 ~= 0 and status >> 8 or status & 127 ~= 0 and 128 + (status & 127) or 0)
end

function Adapter:kill()
  if not self.pid then return end
  process.kill(self.pid, 15)
  for _ = 1, 20 do
    core.net.poll({}, {}, 50)
    self:reap()
    if not self.pid then return end
  end
  process.kill(self.pid, 9)
  while self.pid do
    core.net.poll({}, {}, 20)
    self:reap()
  end
end

-- --- requests ---

function requests.initialize(self, request)
  self.greeted = true
  local o = request.arguments or {}
  self.from = o.linesStartAt1 == false and 0 or 1
  return capabilities, nil, function() self:event("initialized") end
end

function requests.launch(self, request)
  local o = request.arguments or {}
  if type(o.program) ~= "string" then
    return nil, "launch: the path of the script is missing: program"
  end
  local path = o.program:sub(1, 1) == "/" and o.program or (o.cwd or ".") .. "/" .. o.program
  if not core.file.exists(path) then return nil, ("launch: there is no %s"):format(o.program) end
  self.launch = o
  return nil, nil, function() start(self) end
end

function requests.attach()
  return nil, "attach: start the script by launch; flare attach opens a prompt in one that runs"
end

function requests.configurationDone(self)
  self.configured = true
  return nil, nil, function() start(self) end
end

-- A breakpoint as the script's process takes it; nil and what is wrong.
local function point_of(self, asked, path)
  local line = require("flare.repl.debug.breaks").line_with_code(path, asked.line + 1 - self.from)
  if not line then return nil, "there is no code from this line on" end
  if asked.condition and not load("return " .. asked.condition) then
    return nil, "the condition is no expression"
  end
  local hits = asked.hitCondition
  if hits and not hits:find "^%s*[<>=%%]*%s*%d+%s*$" then
    return nil, "a hit condition is a number, or >, >=, ==, <, <=, % and one"
  end
  self.points_made = (self.points_made or 0) + 1
  return {id = self.points_made, line = line, condition = asked.condition, hits = hits,
          log = asked.logMessage}
end

function requests.setBreakpoints(self, request)
  local o = request.arguments
  local path, list, answers = o.source.path, {}, {}
  for i, asked in ipairs(o.breakpoints or {}) do
    local point, problem
    if path then point, problem = point_of(self, asked, path) end
    if point then list[#list + 1] = point end
    answers[i] = {verified = point ~= nil, message = problem, id = point and point.id,
                  line = point and point.line - 1 + self.from or asked.line, source = o.source}
  end
  if path then
    self.points[path] = array(list)
    if self.script then self.script:send {type = "breakpoints", path = path, list = array(list)} end
  end
  return {breakpoints = array(answers)}
end

function requests.setExceptionBreakpoints(self, request)
  local o = request.arguments
  self.filters = array {}
  for _, name in ipairs(o.filters or {}) do self.filters[#self.filters + 1] = name end
  for _, one in ipairs(o.filterOptions or {}) do
    self.filters[#self.filters + 1] = one.filterId
  end
  if self.script then self.script:send {type = "filters", filters = self.filters} end
  return nil
end

function requests.setFunctionBreakpoints() return {breakpoints = array {}} end

function requests.threads() return {threads = array {{id = 1, name = "main"}}} end

function requests.disconnect(self)
  self:kill()
  return nil, nil, function() self.left = true end
end

function requests.terminate(self) return nil, nil, function() self:kill() end end

-- What the script's process answers.
local passed = {}
for name in ([[stackTrace scopes variables setVariable evaluate continue next stepIn stepOut pause
    exceptionInfo completions]]):gmatch "%S+" do
  passed[name] = true
end

function Adapter:request(request)
  local command = request.command
  if not self.greeted and command ~= "initialize" then
    return self:answer(request, nil, "the first request is initialize")
  end
  if passed[command] then
    if not self.script then return self:answer(request, nil, "no script runs") end
    self.script:send {type = "request", command = command, arguments = request.arguments,
                      number = request.seq, from = self.from}
    return
  end
  local f = requests[command]
  if not f then
    return self:answer(request, nil, ("there is no request %s"):format(tostring(command)))
  end
  local ok, body, message, after = pcall(f, self, request)
  if not ok then return self:answer(request, nil, tostring(body)) end
  self:answer(request, body, message)
  if after then after() end
end

-- --- the loop ---

-- What the script's process has sent: answers and events for the editor.
function Adapter:pass_on()
  while self.script do
    local message, ended = self.script:receive()
    if ended then return true end
    if not message then return end
    self:drain() -- what was printed before comes first
    self.client:send(message)
  end
end

--- Serves an editor until it leaves.
-- @param reads, writes the files of its connection
function Adapter.serve(reads, writes)
  local self = setmetatable({client = Wire.new(reads, writes), points = {}, filters = array {},
                             from = 1}, Adapter)
  while not self.left do
    local files = {reads}
    for fd in pairs(self.pipes or {}) do files[#files + 1] = fd end
    local silent = not self.script
    if not silent then files[#files + 1] = self.script.reads end
    core.net.poll(files, {}, self.pid and 200 or 1000)
    self:drain()
    local gone = self:pass_on()
    if gone or self.pid then self:reap() end
    while not self.left do
      local message, ended = self.client:receive()
      if ended then self.left = true end
      if not message then break end
      if message.type == "request" then self:request(message) end
    end
  end
  self:kill()
end

return Adapter
