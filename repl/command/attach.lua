--- flare attach PID: a prompt inside of a script that runs.
local Peers = require "flare.repl.peers"
local commands = require "flare.repl.commands"
local prompt = require "flare.repl.prompt"

local usage = [[
usage: flare attach PID
Opens a prompt inside of a running script, or of all ranks of a launcher, at the next line that it
runs. Ctrl-D and :quit leave it running. Scripts that run with FLARE_ATTACH=0 cannot be opened.]]

local function fail(format, ...)
  io.stderr:write("flare attach: ", format:format(...), "\n")
  return 1
end

-- Prints what a script sent; whose it is, if there are several.
local function show(peers, peer, text)
  if #peers > 1 then text = text:gsub("[^\n]+", ("[%d] %%0"):format(peer.pid)) end
  io.write(text)
  io.stdout:flush()
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
  if not peers:stop(print) then return end
  local env, kept = prompt.environment()
  local known = {}
  for _, peer in ipairs(peers) do
    for _, name in ipairs(peer.commands or {}) do known[name] = true end
  end
  commands.use(known)
  prompt.loop {env = env, kept = kept, mark = ("%d> "):format(pid), commands = known,
    complete = function(text, at) return complete(peers, text, at) end,
    forward = function(text) return not peers:run(text, print) and "quit" or nil end}
end

return function(arguments)
  if arguments[1] == "--help" or arguments[1] == "-h" then
    print(usage)
    return 0
  end
  local pid = math.tointeger(tonumber(arguments[1]))
  if not pid or arguments[2] then return fail("the number of a process is expected\n%s", usage) end
  local peers = Peers.connect(pid, show)
  if not peers[1] then
    return fail("process %d is no script of flare's that this user runs, or it runs with "
                .. "FLARE_ATTACH=0", pid)
  end
  run(peers, pid)
  peers:close()
  return 0
end
