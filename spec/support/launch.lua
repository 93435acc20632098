--- Runs `flare launch` on a script in a folder of its own.
local tree = require "spec.support.tree"

local M = {}

local function realpath(path) return (tree.output("realpath " .. path):gsub("\n", "")) end
M.program = realpath(tree.build .. "/flare")

--- A fresh folder with the script in it as script.lua. @return its path
function M.folder(text)
  local path = tree.output "mktemp -d":gsub("\n", "")
  local file <close> = assert(io.open(path .. "/script.lua", "w"))
  file:write('local flare = require "flare"\nlocal dist = flare.dist\n',
    "local rank, size = dist.init()\n", text)
  return path
end

function M.remove(folder) os.execute("rm -rf " .. folder) end

--- Runs shell lines in the folder, with $F as the program and $J as flare launch --logs logs, at
-- most so many seconds.
-- @return status, what was written, seconds
function M.shell(folder, lines, seconds)
  local name = folder .. "/.shell"
  local file <close> = assert(io.open(name, "w"))
  file:write("cd ", folder, "\nF=", M.program, "\nJ=\"$F launch --logs logs\"\n", lines, "\n")
  file:close()
  local core = require "flare.core"
  local start = core.clock()
  local out = tree.output(("timeout -k 1 %d sh %s 2>&1; echo \"status $?\""):format(seconds or 300,
    name))
  local text, status = out:match "^(.*)status (%d+)\n$"
  return tonumber(status), text, core.clock() - start
end

--- flare launch --logs logs OPTIONS script.lua on a text. @return status, output, seconds, folder
-- @param variables "NAME=value ..." of the environment
function M.run(options, text, seconds, variables)
  local folder = M.folder(text)
  local status, out, took = M.shell(folder, ("exec env %s $J %s script.lua"):format(
    variables or "", options), seconds)
  return status, out, took, folder
end

--- What n ranks print that run the text; all have to end with 0, within `limit` seconds.
function M.good(n, text, limit)
  local status, out, _, folder = M.run(("-n %d --tee all"):format(n), text, limit)
  M.remove(folder)
  assert(status == 0, out)
  return out
end

--- How many seconds may pass on this machine, as busy as it is now, where `promised` may on an idle
-- one: by the time that a job of four ranks takes to come and go.
function M.within(promised)
  local _, _, took, folder = M.run("-n 4", "dist.barrier()")
  M.remove(folder)
  return promised + 10 * took
end

-- How many processes work in the folder.
local function alive(folder)
  local n = tree.output(("ls -l /proc/[0-9]*/cwd 2>/dev/null | grep -c -- '-> %s$'"):format(folder))
  return tonumber(n)
end

--- Fails if processes are left in the folder, after a while for those that are ending.
function M.gone(folder)
  for _ = 1, 300 do
    if alive(folder) == 0 then return end
    os.execute "sleep 0.1"
  end
  error(alive(folder) .. " processes are left")
end

function M.read(folder, name)
  local file <close> = assert(io.open(folder .. "/" .. name))
  return file:read "a"
end

return M
