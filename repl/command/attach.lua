--- flare attach PID: a prompt inside of a script that runs.
local alert = require "flare.repl.alert"
local commands = require "flare.repl.commands"
local core = require "flare.core"
local prompt = require "flare.repl.prompt"
local signals = require "flare.repl.signals"
local Wire = require "flare.repl.dap.wire"

local usage = [[
usage: flare attach PID
Opens a prompt inside of a running script, or of all ranks of a launcher, at the next line that it
runs. Ctrl-D and :quit leave it running. Scripts that run with FLARE_ATTACH=0 cannot be opened.]]

local function fail(format, ...)
  io.stderr:write("flare attach: ", format:format(...), "\n")
  return 1
end

local function connect(pid)
  local path, folder = require("flare.repl.attach").path(pid)
  local file = alert.folder(folder) and alert.connect(path) -- another user's is not trusted
  return file and {pid = pid, wire = Wire.new(file)}
end

-- Connections to a script or, if the process has none, to the scripts that it started.
local function connect_all(pid)
  local one = connect(pid)
  if one then return {one} end
  local list = {}
  local children = core.file.read(("/proc/%d/task/%d/children"):format(pid, pid)) or ""
  for child in children:gmatch "%d+" do list[#list + 1] = connect(math.tointeger(child)) end
  return list
end

-- Prints what a script sent; whose it is, if there are several.
local function show(peers, peer, text)
  if #peers > 1 then text = text:gsub("[^\n]+", ("[%d] %%0"):format(peer.pid)) end
  io.write(text)
  io.stdout:flush()
end

-- Takes what has come from a script.
local function take(peers, peer)
  while true do
    local message, ended = peer.wire:receive()
    if ended then
      peer.ended = true
      peer.ready = false
      return
    end
    if not message then return end
    if message.output then show(peers, peer, message.output) end
    if message.refused then show(peers, peer, message.refused .. "\n") end
    if message.left or message.refused then peer.ended = true end
    if message.ready then
      peer.ready, peer.mark, peer.commands = true, message.mark, message.commands
    end
  end
end

local function count(peers, field)
  local n = 0
  for _, peer in ipairs(peers) do n = n + (peer[field] and 1 or 0) end
  return n
end

local patience = 3 -- seconds to wait for the other ranks once one has stopped

-- Waits until the scripts have stopped; false if none is left, or at a Ctrl-C.
local function wait(peers)
  local first, noted = nil, false
  local began = core.clock()
  while true do
    for _, peer in ipairs(peers) do
      if not peer.ended then take(peers, peer) end
    end
    local ready, ended = count(peers, "ready"), count(peers, "ended")
    if ended == #peers then return false end
    if ready + ended == #peers then return true end
    first = first or ready > 0 and core.clock()
    if first and core.clock() - first > patience then
      print(("%d of %d scripts have stopped; the others wait for them"):format(ready, #peers))
      return true
    end
    if not noted and core.clock() - began > 2 then
      noted = true
      print "waiting for the next line of the script; Ctrl-C gives up"
    end
    local files = {}
    for _, peer in ipairs(peers) do
      if not peer.ended and not peer.ready then files[#files + 1] = peer.wire.reads end
    end
    core.net.poll(files, {}, 200)
    if core.interrupted() then
      signals.resume()
      return false
    end
  end
end

-- Candidates, from the first script that has stopped.
local function complete(peers, text, at)
  for _, peer in ipairs(peers) do
    if peer.ready then
      peer.wire:send {complete = text, at = at}
      local answer = peer.wire:wait()
      if not answer or not answer.list then return at, {} end
      local notes = {}
      for i, name in ipairs(answer.list) do notes[name] = answer.notes[i] end
      return answer.from, answer.list, function(name) return {notes[name]} end
    end
  end
  return at, {}
end

local function run(peers, pid)
  for _, peer in ipairs(peers) do peer.wire:send {stop = true} end
  if not wait(peers) then return end
  local env, kept = prompt.environment()
  local known = {}
  for _, peer in ipairs(peers) do
    for _, name in ipairs(peer.commands or {}) do known[name] = true end
  end
  commands.use(known)
  prompt.loop {env = env, kept = kept, mark = ("%d> "):format(pid), commands = known,
    complete = function(text, at) return complete(peers, text, at) end,
    forward = function(text)
      for _, peer in ipairs(peers) do
        if peer.ready then
          peer.ready = false
          peer.wire:send {line = text}
        end
      end
      return not wait(peers) and "quit" or nil
    end}
end

return function(arguments)
  if arguments[1] == "--help" or arguments[1] == "-h" then
    print(usage)
    return 0
  end
  local pid = math.tointeger(tonumber(arguments[1]))
  if not pid or arguments[2] then return fail("the number of a process is expected\n%s", usage) end
  local peers = connect_all(pid)
  if not peers[1] then
    return fail("process %d is no script of flare's that this user runs, or it runs with "
                .. "FLARE_ATTACH=0", pid)
  end
  run(peers, pid)
  for _, peer in ipairs(peers) do core.net.close(peer.wire.reads) end
  return 0
end
