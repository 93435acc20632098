--- Starts a side of a comparison (suite.lua, peers/suite.py) on the cores that taskset names.
-- @return a function that sends a line and returns the number that is answered, or nil
return function(command, cores)
  local path = os.tmpname()
  os.remove(path)
  assert(os.execute("mkfifo " .. path))
  local to = assert(io.popen(("taskset -c %s %s > %s"):format(cores, command, path), "w"))
  local from = assert(io.open(path))
  os.remove(path)
  return function(line)
    to:write(line, "\n")
    to:flush()
    return tonumber(from:read "l" or "")
  end
end
