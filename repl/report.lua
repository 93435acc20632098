--- flare --report FILE: runs a script and writes a page about its run.

-- The words of the command line from the script on.
local function command(args, i)
  local words = {}
  for k = i, #args do words[#words + 1] = args[k] end
  return table.concat(words, " ")
end

local function complain(text) io.stderr:write("flare: ", text, "\n") end

-- What print shows goes to the page as well, until the function that is returned is called.
local function listen(report)
  local print = print
  local function shown(...)
    local parts = table.pack(...)
    for k = 1, parts.n do parts[k] = tostring(parts[k]) end
    report:print(table.concat(parts, "\t"))
    print(...)
  end
  _G.print = shown
  return function()
    if _G.print == shown then _G.print = print end
  end
end

--- Runs the script at args[i] by run(args, i); the page is written after an error and at os.exit,
-- too. In a job, rank 0 writes it.
-- @param profiled whether --profile was asked for, which cannot be beside it
-- @return whether all went well
return function(path, args, i, profiled, run)
  if profiled then
    complain "--report has a profile; it cannot be used with --profile"
    return false
  end
  if (os.getenv "RANK" or "0") ~= "0" then return (run(args, i)) end
  local file, problem = io.open(path, "a") -- tells at once if it cannot be written
  if not file then
    complain("--report: " .. problem)
    return false
  end
  file:close()
  local report = require("flare.log").report {title = command(args, i)}
  local stop = listen(report)
  local function finish(failure)
    stop()
    local ok, written, message = pcall(report.save, report, path, failure)
    if not ok then written, message = nil, written end
    if not written then complain("--report: " .. tostring(message)) end
    return written
  end
  local exit = os.exit
  function os.exit(...) -- luacheck: ignore
    finish()
    exit(...)
  end
  local good, failure = run(args, i)
  os.exit = exit -- luacheck: ignore
  return finish(not good and tostring(failure) or nil) and good
end
