-- A busted output handler for spec/run.lua: one line per test into the file
-- named by -Xoutput (what, seconds, name, reason; between tabs), so that a crash
-- leaves what ran before it; failures in full on standard output. What fails for
-- want of a library that this build or machine does without is skipped, by name.
local pretty = require "pl.pretty"
local tree = require "spec.support.tree"

local function text(message)
  if type(message) == "string" then return message end
  if type(message) == "table" and getmetatable(message) and getmetatable(message).__tostring then
    return tostring(message)
  end
  return pretty.write(message)
end

-- The library that a message says is missing, if `flare doctor` says so, too.
local lacking
local function missing(message)
  local name = message:match "built without (%w+)" or message:match "needs (LAPACK)"
  if name and not lacking then
    lacking = {}
    for library in tree.output(("'%s/flare' doctor"):format(tree.build)):gmatch "\nno +(%w+)" do
      lacking[library] = true
    end
  end
  return name and lacking[name] and "needs " .. name
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

  local wanted -- the library that the running test lacks

  local function failed(element, _, message, trace)
    wanted = missing(text(message))
    if wanted and element.descriptor ~= "it" then row("pending", element, wanted) end
    if wanted then return nil, true end
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
    if wanted then status, reason = "pending", wanted end
    row(status, element, status == "pending" and reason or nil)
    reason, wanted = "", nil
    return nil, true
  end)
  busted.subscribe({"suite", "end"}, function()
    report:write("done\t0\t\t\n")
    report:close()
    return nil, true
  end)
  return handler
end
