--- flare record: runs a script and writes its operators as a recording, for flare simulate.
local words = require "flare.repl.words"
local syntax = require "flare.repl.syntax"

local usage = [[
usage: flare record --out FILE [--skip N] SCRIPT [arguments]
  --out FILE   the recording, of JSON; flare simulate FILE --machine NAME replays it
  --skip N     operators at the beginning that are left out, such as those that make the model]]

local function complain(format, ...)
  io.stderr:write("flare record: ", format:format(...), "\n")
  return 1
end

-- Options, the script and its arguments; nil and what is wrong.
local function read(arguments)
  local o, k = {skip = 0}, 1
  while arguments[k] and arguments[k]:find "^%-" do
    local name, value = arguments[k]:match "^%-%-(%a+)=?(.*)$"
    if name ~= "out" and name ~= "skip" then
      return nil, ("unknown option %s"):format(arguments[k])
    end
    if value == "" then
      k = k + 1
      value = arguments[k]
    end
    if not value or value:find "^%-" then return nil, ("--%s needs a value"):format(name) end
    o[name] = value
    k = k + 1
  end
  o.skip = math.tointeger(tonumber(o.skip))
  if not o.skip or o.skip < 0 then return nil, "--skip needs a whole number" end
  if not o.out then return nil, "--out FILE is missing" end
  if not arguments[k] then return nil, "the script is missing" end
  return o, arguments[k], table.move(arguments, k + 1, #arguments, 1, {})
end

return function(arguments)
  -- what follows the script is its own
  if words.asks_help {arguments[1]} then
    print(usage)
    return 0
  end
  local o, path, rest = read(arguments)
  if not o then return complain("%s\n%s", path, usage) end
  local chunk, problem = loadfile(path, "t")
  if not chunk then return complain("%s", syntax.hint(problem, nil, path)) end
  rest[0] = path
  _G.arg = rest
  local stop = require "flare.profile".start {peaks = true}
  local ok, message = xpcall(chunk, debug.traceback, table.unpack(rest))
  local report = stop()
  if not ok then return complain("%s", message) end
  local recording = require "flare.dataflow".recording(report)
  local count = #recording.operators
  if o.skip >= count then
    return complain("the script ran %d operators; --skip %d leaves none", count, o.skip)
  end
  recording = recording:skip(o.skip)
  recording.name = path:match "[^/]*$"
  local written
  written, problem = recording:save(o.out)
  if not written then return complain("%s", problem) end
  print(("%d operators in %s"):format(#recording.operators, o.out))
  return 0
end
