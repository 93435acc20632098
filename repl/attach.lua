--- The side of flare attach that is in a running script: a socket that only this user can open.
-- When a client asks for it, the script stops at its next line, and the client's lines are run
-- there. What they print goes through a file in memory, and sending it has a time limit, so that a
-- client that hangs or ends does not hold the script.
local alert = require "flare.repl.alert"
local core = require "flare.core"
local signals = require "flare.repl.signals"

local M = {}

local server -- the file that listens
local client -- {wire =, owns = whether breaks of the engine are its own}
local stopped = false

local limit = 5 -- seconds for a client to take what is sent

--- The socket's path for a process.
function M.path(pid)
  local uid, own = alert.ids()
  local base = os.getenv "XDG_RUNTIME_DIR"
  local folder = base and base ~= "" and base .. "/flare" or ("/tmp/flare-%d"):format(uid)
  return ("%s/%d"):format(folder, pid or own), folder
end

local front -- see below

local function drop()
  if not client then return end
  local engine = require "flare.debugger"
  core.net.close(client.wire.reads)
  engine.unpause(front)
  if client.owns then engine.clear() end
  client = nil
end

-- The prompt's lines from the client, and what they print back to it.
local function remote()
  local prompt = require "flare.repl.prompt"
  local commands = require "flare.repl.commands"
  local self = {}

  function self.read(mark, env)
    local names = {}
    for name in pairs(commands.names()) do names[#names + 1] = name end
    if not client or not client.wire:send {ready = true, mark = mark, commands = names} then
      return nil
    end
    while true do
      local message = client.wire:wait()
      if not message then return nil end
      if message.line then return message.line end
      if message.complete then
        local from, list, about = prompt.complete(env, message.complete, message.at)
        local notes = {}
        for i = 1, math.min(#list, 50) do notes[i] = table.concat(about(list[i]), "\n") end
        client.wire:send {from = from, list = core.json.array(list), notes = core.json.array(notes)}
      end
    end
  end

  function self.around(f)
    local text = alert.capture(f)
    if text ~= "" and client then client.wire:send {output = text} end
  end

  return self
end

-- The front end of a script that stopped for a client.
function front(stop)
  local engine = require "flare.debugger"
  local look, lines = require("flare.repl.debug").look(stop), remote()
  stopped = true
  lines.around(function() look:announce() end)
  look:run(lines)
  stopped = false
  local action = look.action
  local stays = action == "step" or action == "next" or action == "finish"
                or action == "continue" and client and client.owns and next(engine.lines) ~= nil
  if client and not stays then
    client.wire:send {left = true}
    drop()
  end
  return stays and client and action or "continue", look.values
end

-- Whether a rank stops at this line: when its client says so, which it does when all ranks are held
-- at a line and none is behind another. One that is behind runs on, so that the others get there.
local function gathered()
  local says = true -- that it is held
  while client and not client.open do
    local behind = core.comm.behind()
    if behind or core.interrupted() then
      if says ~= true then client.wire:send {moving = true} end
      return false
    end
    if says then client.wire:send {held = says} end
    core.net.poll({client.wire.reads}, {}, 2)
    local message, ended = client.wire:receive()
    says = message and message.asks or false
    if ended then drop() end
    if message and message.open then client.open = true end
  end
  return client ~= nil
end

-- A client asks to stop the script, together with other ranks or alone.
local function pause(together)
  local engine = require "flare.debugger"
  engine.poll(M.poll)
  if not engine.attached() then
    engine.attach(front, signals.root, signals.resume)
    client.owns = true
  end
  engine.pause("attach", front, together and gathered)
end

-- What the client asks for while the script runs.
local function serve()
  while client and not stopped do
    local message, ended = client.wire:receive()
    if ended then return drop() end
    if not message then return end
    if message.stop then pause(message.together) end
    if message.open then client.open = true end
  end
end

-- What has come: connections, and requests.
local function hear()
  local engine = package.loaded["flare.debugger"]
  if engine and engine.stopped() then return true end
  serve()
  local file = alert.accept(server)
  while file do
    local wire = require("flare.repl.dap.wire").new(file)
    wire.limit = limit
    if client then
      wire:send {refused = "another prompt is attached"}
      core.net.close(file)
    else
      client = {wire = wire}
      alert.watch(file)
      serve()
    end
    file = alert.accept(server)
  end
end

--- Hears what an alert was for, if there was one.
function M.poll()
  if alert.due() then hear() end
end

-- Removes what processes left that were killed.
local function clean(folder)
  for _, name in ipairs(core.file.list(folder) or {}) do
    if name:find "^%d+$" and not core.file.exists("/proc/" .. name) then
      core.file.remove(folder .. "/" .. name)
    end
  end
end

--- Listens, unless FLARE_ATTACH=0 or the folder cannot be had: a script runs without, too.
function M.open()
  if os.getenv "FLARE_ATTACH" == "0" then return end
  local path, folder = M.path()
  if not alert.folder(folder) then return end
  clean(folder)
  server = alert.listen(path)
  if not server then return end
  alert.on(hear)
  alert.watch(server)
  local engine = package.loaded["flare.debugger"]
  if engine then engine.poll(M.poll) end
end

return M
