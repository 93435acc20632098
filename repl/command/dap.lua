--- flare dap: the Debug Adapter Protocol, by which editors debug scripts.
local Adapter = require "flare.repl.dap.adapter"
local core = require "flare.core"
local words = require "flare.repl.words"

local usage = [[
usage: flare dap [options]
  --port NUMBER    listens there instead of using the standard input and output; 0: a free one.
                   All users of this machine can connect, and run programs.
  --host ADDRESS   where to listen, 127.0.0.1 by default]]

local function fail(text)
  io.stderr:write("flare dap: ", text, "\n")
  return 1
end

-- Serves one editor after another.
local function listen(o)
  local file, port = core.net.listen(o.host or "127.0.0.1", o.port)
  if not file then return fail(port) end
  print(("listening on %s:%d"):format(o.host or "127.0.0.1", port))
  io.stdout:flush()
  while true do
    core.net.poll({file}, {}, 1000)
    local connection = core.net.accept(file)
    if connection then
      Adapter.serve(connection, connection)
      core.net.close(connection)
    end
  end
end

return function(arguments)
  if words.asks_help(arguments) then
    print(usage)
    return 0
  end
  local o, problem = words.options(arguments, {host = true}, {port = true})
  if o and problem[1] then o, problem = nil, "unknown word " .. problem[1] end
  if not o then return fail(problem .. "\n" .. usage) end
  if o.port then return listen(o) end
  Adapter.serve(0, 1)
  return 0
end
