--- Runs a script as several ranks of a job, each a process of its own, without a launcher.
local tree = require "spec.support.tree"

local M = {}

local count = 0

--- A key that no other job has.
function M.key()
  count = count + 1
  return ("spec-%s-%d"):format(tostring({}):match "0x(%x+)" .. os.time(), count)
end

--- Runs `text` as n ranks, with the locals flare, comm, rank, size and argument; the job is joined
-- and group 0 has the host's engine. `o`: seconds (limit for the whole), check, timeout (not for
-- first calls: ranks may start far apart), argument, settings (variables of the environment, as
-- a shell writes them).
-- @return a list of {status, output} by rank, from 1
function M.run(n, text, o)
  o = o or {}
  local base = os.tmpname()
  local file <close> = assert(io.open(base, "w"))
  file:write(([[
    local flare = require "flare"
    local comm = flare.core.comm
    local rank, size, argument = tonumber(arg[1]), %d, %q
    comm.open{key = %q, rank = rank, size = size, timeout = %g, first = %g, check = %s}
    comm.attach(0, "host", "cpu")
    ]]):format(n, o.argument or "", M.key(), o.timeout or 60, 60,
    o.check and "true" or "false"):gsub("\n%s*", " "), "\n", text)
  file:close()
  local lines = {}
  for rank = 0, n - 1 do
    lines[#lines + 1] = ("%s timeout -s KILL %d %s/flare %s %d >%s.%d 2>&1 & pids=\"$pids $!\"")
      :format(o.settings or "", o.seconds or 300, tree.build, base, rank, base, rank)
  end
  lines[#lines + 1] = "for p in $pids; do wait $p; echo $?; done"
  local shell <close> = assert(io.popen("exec 2>/dev/null; " .. table.concat(lines, "\n")))
  local results = {}
  for rank = 0, n - 1 do
    local status = tonumber(shell:read "l")
    local out <close> = assert(io.open(base .. "." .. rank))
    results[rank + 1] = {status = status, output = out:read "a"}
    os.remove(base .. "." .. rank)
  end
  os.remove(base)
  return results
end

--- The same; fails with what a rank wrote if it did not end well. @return outputs by rank, from 1
function M.good(n, text, o)
  local outputs = {}
  for rank, r in ipairs(M.run(n, text, o)) do
    assert(r.status == 0, ("rank %d ended with %s:\n%s"):format(rank - 1, r.status, r.output))
    outputs[rank] = r.output
  end
  return outputs
end

return M
