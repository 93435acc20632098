--- flare bench NAME: runs bench/NAME.lua of flare's sources. Their folder is the one that the
-- variable FLARE_SOURCE names; otherwise the current folder, if it has them; otherwise the folder
-- that the program was built from.
local core = require "flare.core"
local process = require "flare.repl.process"

-- The names of the programs in a source folder, in alphabetical order.
local function programs(root)
  local names = {}
  for _, file in ipairs(core.file.list(root .. "/bench") or {}) do
    names[#names + 1] = file:match "^(.*)%.lua$"
  end
  table.sort(names)
  return names
end

-- The current folder may have a bench/ of another project.
local function is_source(folder)
  return core.file.exists(folder .. "/runtime/ops.def") and #programs(folder) > 0
end

local function source_folder()
  local given = os.getenv "FLARE_SOURCE"
  if given and given ~= "" then return given end
  local built = process.source_folder
  return not is_source "." and built and is_source(built) and built or "."
end

local function complain(format, ...)
  io.stderr:write("flare bench: ", format:format(...), "\n")
  return 1
end

return function(arguments)
  local root = source_folder()
  local there = programs(root)
  if not there[1] then
    return complain("there is no folder %s/bench: run it in flare's source folder, or name that "
      .. "folder by the variable FLARE_SOURCE", root)
  end
  local listed = table.concat(there, ", ")
  local name = table.remove(arguments, 1)
  if name == "--help" or name == "-h" then
    print("usage: flare bench NAME [arguments]; there are: " .. listed)
    return 0
  elseif not name or name:find "^%-" then
    return complain("usage: flare bench NAME [arguments]; there are: %s", listed)
  end
  local path = ("%s/bench/%s.lua"):format(root, name)
  if not core.file.exists(path) then
    local near = core.nearest(name, there)
    return complain("there is no benchmark %s%s; there are: %s", name,
      near and (" (did you mean '%s'?)"):format(near) or "", listed)
  end
  local chunk, problem = loadfile(path, "t")
  if not chunk then return complain("%s", problem) end
  _G.arg = table.move(arguments, 1, #arguments, 1, {[0] = path})
  return chunk(table.unpack(arguments))
end
