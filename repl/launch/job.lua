--- A running job: starts the ranks of this machine, forwards their output, watches for their exit,
-- and ends the others when one fails.
local core = require "flare.core"
local Elastic = require "flare.repl.launch.elastic"
local env = require "flare.dist.env"
local Logs = require "flare.repl.launch.logs"
local meeting = require "flare.repl.launch.meeting"
local output = require "flare.repl.launch.output"
local process = require "flare.repl.process"
local Restart = require "flare.repl.launch.restart"

local net = core.net
local INT, KILL, PIPE, TERM, CHLD = 2, 9, 13, 15, 17

-- Seconds after a failure, or after Ctrl-C, until remaining ranks get SIGTERM and then SIGKILL, so
-- that a job ends within five seconds.
local ask, force = 2.5, 4

local Job = {}
Job.__index = Job

-- --- starting ---

-- The cores of rank k of n: equal shares; with fewer cores than ranks, ranks share them.
local function share(cpus, k, n)
  if #cpus < n then return {cpus[k * #cpus // n + 1]} end
  return table.move(cpus, k * #cpus // n + 1, (k + 1) * #cpus // n, 1, {})
end

local function variables(self, rank)
  local o = self.o
  local set = {
    RANK = rank.number, LOCAL_RANK = rank.here, WORLD_SIZE = self.size, LOCAL_WORLD_SIZE = o.n,
    NODE_RANK = o.node, MASTER_ADDR = o.host, MASTER_PORT = self.meeting.port,
    FLARE_HOSTS = self.meeting.hosts, FLARE_RESTART = self.attempt,
    FLARE_ERROR_FILE = rank.error_file, FLARE_DIST_TIMEOUT = o.timeout,
    FLARE_PROMPT = o.prompt and 1 or nil,
  }
  return set
end

local function environment(set)
  local list, names = {}, {}
  for _, entry in ipairs(process.environment()) do
    if set[entry:match "^[^=]*"] == nil then list[#list + 1] = entry end
  end
  for name in pairs(set) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do list[#list + 1] = name .. "=" .. tostring(set[name]) end
  return list, names
end

local function command(o, rank)
  local line = {"/proc/self/exe"}
  if o.prompt then
    local part = rank.number == 0 and "lead" or "follow"
    line[2] = ("-e require 'flare.dist.prompt'.%s()"):format(part)
    if rank.number == 0 then line[3] = "-i" end
    return line
  end
  return table.move(o.command, 1, #o.command, 2, line)
end

local function describe(self, rank)
  local set = variables(self, rank)
  local _, names = environment(set)
  local words = {("rank %d: cores %s:"):format(rank.number, table.concat(rank.cpus, ","))}
  for _, name in ipairs(names) do words[#words + 1] = name .. "=" .. tostring(set[name]) end
  words[#words + 1] = "flare " .. table.concat(self.o.command, " ")
  return table.concat(words, " ")
end

local function start(self, rank)
  local set = variables(self, rank)
  local letter = assert(process.letter(self.secret))
  set.FLARE_SECRET_FD = letter
  os.remove(rank.error_file)
  local at_prompt = self.o.prompt and rank.number == 0
  local pid, out, err = process.spawn{argv = command(self.o, rank), env = environment(set),
    cpus = rank.cpus, dog = self.dog, keep = letter, pipes = not at_prompt}
  net.close(letter)
  if not pid then return nil, out end
  rank.pid, rank.status = pid, nil
  rank.output = output.open(rank, not at_prompt and out, not at_prompt and err, self.o)
  self.by_pid[pid] = rank
  return true
end

local function make_ranks(self)
  local list = {}
  for k = 0, self.o.n - 1 do
    local number = self.meeting.before + k
    list[k + 1] = {number = number, here = k, cpus = share(self.o.cpus, k, self.o.n),
      error_file = ("%s/.rank-%d.error"):format(self.logs.folder, number),
      log_file = self.logs:path(number), again = self.attempt > 0}
  end
  return list
end

-- --- watching ---

local function signal_all(self, number)
  for _, rank in ipairs(self.ranks) do
    if rank.pid and not rank.gone then process.kill(rank.pid, number) end
  end
end

-- Starts the countdown to SIGTERM and SIGKILL.
local function begin_end(self)
  self.ending = self.ending or core.clock()
end

local function fail(self, rank)
  self.first = self.first or rank
  begin_end(self)
  self.meeting:failed(("rank %d failed"):format(rank.number))
end

local function exited(self, pid, status)
  local rank = self.by_pid[pid]
  if rank then
    self.board:exited(rank.number, status)
    process.kill(pid, KILL) -- its process group
    rank.status, rank.gone, rank.ended = status, true, core.clock()
    rank.died = status & 127 ~= 0 and not self.asked
    self.left = self.left - 1
    process.watched(self.dog, -pid)
    if status ~= 0 and not self.closing then fail(self, rank) end
    if self.o.prompt and rank.number == 0 and not self.ending then -- the others serve it
      self.closing = true
      signal_all(self, TERM)
      begin_end(self)
    end
  end
  process.reap(pid)
end

local function on_signal(self, number)
  if number == CHLD then
    local pid, status = process.ended()
    while pid do
      exited(self, pid, status)
      pid, status = process.ended()
    end
    return
  end
  if self.interrupted then -- a second signal: end at once
    if number ~= PIPE then signal_all(self, KILL) end
    return
  end
  self.interrupted = number
  signal_all(self, number == INT and INT or TERM)
  begin_end(self)
  self.meeting:failed "interrupted"
end

local function take_signals(self)
  for byte in net.read(self.signals):gmatch "." do on_signal(self, byte:byte()) end
end

local function press(self)
  if not self.ending then return end
  local since = core.clock() - self.ending
  if since > force and not self.forced then
    self.forced = true
    signal_all(self, KILL)
  elseif since > ask and not self.asked then
    self.asked = true
    signal_all(self, TERM)
  end
end

-- @return whether ranks have written something
local function pump(self, ms)
  local read, write = self.meeting:files()
  read[#read + 1] = self.signals
  for _, rank in ipairs(self.ranks) do
    if rank.output then rank.output:files(read) end
  end
  output.files(write)
  local ready = net.poll(read, write, ms)
  output.step()
  local came = false
  for _, rank in ipairs(self.ranks) do
    if rank.output and rank.output:step(ready) then came = true end
  end
  if ready[self.signals] then take_signals(self) end
  self.meeting:step(ready)
  if self.meeting.stop and not self.ending then
    self.stopped = self.meeting.stop
    begin_end(self)
  end
  if self.elastic and not self.ending and self.elastic:changed(self.size) then
    self.resized = true
    signal_all(self, TERM)
    begin_end(self)
    self.asked = true
  end
  press(self)
  return came
end

-- --- the end ---

local function how(status)
  if status & 127 ~= 0 then
    return ("ended by signal %d (%s)"):format(status & 127, process.signal_name(status & 127))
  end
  return ("ended with status %d"):format(status >> 8)
end

local function code(status)
  return status & 127 ~= 0 and 128 + (status & 127) or status >> 8
end

-- Reports the ranks that failed, the one at fault last, with its traceback.
local function report(self)
  local verdict, guilty = self.board:verdict()
  local first = self.first
  for _, rank in ipairs(self.ranks) do
    if rank.number == guilty and rank.status and rank.status ~= 0 and not self.asked then
      first = rank
    end
  end
  if verdict ~= "" then io.stderr:write("flare launch: ", verdict) end
  for _, rank in ipairs(self.ranks) do
    if rank ~= first and rank.status ~= 0 then
      io.stderr:write(("flare launch: rank %d %s; see %s\n"):format(rank.number, how(rank.status),
        rank.log_file))
    end
  end
  if first then
    io.stderr:write(("flare launch: rank %d %s\n"):format(first.number, how(first.status)))
    io.stderr:write(output.traceback(first))
    return code(first.status)
  end
  return 1
end

local function attempt(self, number)
  self.attempt, self.by_pid, self.left = number, {}, 0
  self.first, self.ending, self.asked, self.forced, self.stopped = nil, nil, nil, nil, nil
  self.resized = nil
  self.secret = env.key(self.o.secret, "attempt " .. number)
  local ok, board = pcall(core.comm.watch, env.key(self.secret, "board"), self.size)
  if not ok then return nil, (board:gsub("^[^:]*:%d+: ", "")) end
  self.board = board
  self.ranks = make_ranks(self)
  for _, rank in ipairs(self.ranks) do
    if self.o.verbose then io.stderr:write(describe(self, rank), "\n") end
    local started, message = start(self, rank)
    if not started then
      signal_all(self, KILL)
      return nil, message
    end
    self.left = self.left + 1
  end
  while self.left > 0 do pump(self, 200) end
  local deadline = core.clock() + 1 -- drain the pipes, which other processes may hold open
  while (output.any(self.ranks) or output.files {}) and core.clock() < deadline do
    if pump(self, 20) then deadline = core.clock() + 1 end
    if output.files {} and not self.interrupted then deadline = core.clock() + 1 end
  end
  local status = self.resized and not self.interrupted and 1 or 0
  if self.resized and not self.interrupted then
    self.first = nil
  elseif self.first or self.interrupted or self.stopped then
    status = self.interrupted and 128 + self.interrupted or nil
    self.logs:tell()
    if not self.interrupted then
      if self.stopped then io.stderr:write("flare launch: stopped: ", self.stopped, "\n") end
      status = self.first and report(self) or 1
    end
  end
  for _, rank in ipairs(self.ranks) do
    rank.output:close()
    os.remove(rank.error_file)
  end
  self.board:close()
  return status
end

-- Waits for the launchers of all nodes, and numbers the ranks.
-- @return true; nil and a status
local function meet(self)
  local o, message = self.o
  self.ranks, self.meeting = {}, {failed = function() end}
  function o.interrupted() -- polled while it connects to node 0
    take_signals(self)
    return self.interrupted
  end
  self.meeting, message = meeting.open(o)
  if self.meeting then
    while self.meeting:waiting() and not self.interrupted do pump(self, 200) end
    message = self.meeting.problem
  end
  if message or self.interrupted then
    io.stderr:write("flare launch: ", self.interrupted and "interrupted" or message, "\n")
    return nil, self.interrupted and 128 + self.interrupted or 1
  end
  self.size, self.attempt = self.meeting.all, 0
  for _, rank in ipairs(make_ranks(self)) do
    if not process.hold(rank.log_file) then
      io.stderr:write(("flare launch: another job writes %s: give this one a folder of its own, as "
        .. "in --logs logs-2\n"):format(rank.log_file))
      self.meeting:close(false)
      return nil, 2
    end
  end
  return true
end

-- Waits before the next attempt. @return whether it is to begin
local function pause(self, seconds, number)
  io.stderr:write(("flare launch: starting again (%d of %s) in %g s\n"):format(number,
    self.o.restarts or "?", seconds))
  local deadline = core.clock() + seconds
  while core.clock() < deadline and not self.interrupted and self.meeting.turn == "again" do
    pump(self, math.ceil(1000 * math.min(0.2, math.max(0, deadline - core.clock()))))
  end
  return not self.interrupted and self.meeting.turn == "again"
end

-- The number of ranks of the next attempt. @return whether there are enough
local function resize(self)
  if not self.elastic then return true end
  local n, message = self.elastic:next(self.ranks, self.resized)
  if not n then
    io.stderr:write("flare launch: ", message, "\n")
    return false
  end
  if n ~= self.size then
    io.stderr:write(("flare launch: %d ranks instead of %d\n"):format(n, self.size))
  end
  self.o.n, self.size = n, n
  return true
end

-- Attempts until one ends well or there are no restarts left. @return the job's status
local function run_attempts(self)
  local number, restart = 0, Restart.new()
  while true do
    local began = core.clock()
    local status, message = attempt(self, number)
    if not status then io.stderr:write("flare launch: ", message, "\n") end
    self.meeting:ended(number, (not status or self.interrupted) and "final"
      or status == 0 and "good" or "bad")
    status = status or 1
    while not self.meeting.turn and not self.interrupted do pump(self, 200) end
    if self.meeting.turn ~= "again" then return status end
    number = number + 1
    if not resize(self) then return status end
    if not pause(self, self.elastic and 0 or restart:pause(core.clock() - began), number) then
      return self.interrupted and 128 + self.interrupted or status
    end
  end
end

--- Runs a job as the options of the command say. @return its status
function Job.run(o)
  local self = setmetatable({o = o}, Job)
  local logs, message = Logs.open(o.logs, o.dry)
  self.logs = logs
  if not logs then
    io.stderr:write("flare launch: ", message, "\n")
    return 2
  end
  if o.dry then
    self.meeting = {before = o.node * o.n, port = o.port, hosts = 1}
    self.size, self.attempt = o.n * o.nnodes, 0
    for _, rank in ipairs(make_ranks(self)) do print(describe(self, rank)) end
    return 0
  end
  self.elastic = o.elastic and Elastic.new(o)
  self.signals = assert(process.signals())
  self.dog = assert(process.watchdog())
  local met, status = meet(self)
  if met then
    status = run_attempts(self)
    self.meeting:close(status == 0)
  end
  self.logs:close(status == 0 or not met)
  return status
end

return Job
