-- Runs a text by the program, for what it writes to its outputs.
local tree = require "spec.support.tree"

-- The text after `local flare = require "flare"` in a file. Returns what the program writes to
-- stdout and stderr, and the file's name.
return function(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write("local flare = require 'flare'\n", text)
  file:close()
  local out = tree.output(("'%s/flare' '%s' 2>&1"):format(tree.build, path))
  os.remove(path)
  return out, path
end
