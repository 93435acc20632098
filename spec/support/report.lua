-- A busted output handler for spec/run.lua: one line per test into the file
-- named by -Xoutput (what, seconds, name, reason; between tabs), so that a crash
-- leaves what ran before it; failures in full on standard output.
local pretty = require "pl.pretty"

local function text(message)
  if type(message) == "string" then return message end
  if type(message) == "table" and getmetatable(message) and getmetatable(message).__tostring then
    return tostring(message)
  end
  return pretty.write(message)
end

return function(options)
  local busted = require "busted"
  local handler = require "busted.outputHandlers.base"()
  local report = assert(io.open(options.arguments[1], "w"))
  local reason = ""

  local function row(what, element, why)
    local name = handler.getFullName(element):gsub("%s+", " ")
    why = why and text(why):gsub("%s+", " ") or ""
    report:write(("%s\t%.4f\t%s\t%s\n"):format(what, element.duration or 0, name, why))
    report:flush()
  end

  local function failed(element, _, message, trace)
    io.write(("\n%s\n%s\n"):format(handler.getFullName(element), text(message)))
    if element.descriptor ~= "it" then row("error", element) end
    if trace and trace.traceback then io.write(trace.traceback, "\n") end
    io.flush()
    return nil, true
  end

  busted.subscribe({"failure"}, failed)
  busted.subscribe({"error"}, failed)
  busted.subscribe({"pending"}, function(_, _, message)
    reason = message
    return nil, true
  end)
  busted.subscribe({"test", "end"}, function(element, _, status)
    row(status, element, status == "pending" and reason or nil)
    reason = ""
    return nil, true
  end)
  busted.subscribe({"suite", "end"}, function()
    report:write("done\t0\t\t\n")
    report:close()
    return nil, true
  end)
  return handler
end
