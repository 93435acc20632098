--- flare bench NAME: runs bench/NAME.lua of the source tree, from the current folder or from
-- the one that FLARE_SOURCE names.
local core = require "flare.core"

-- The programs in a folder, by name.
local function programs(folder)
  local names = {}
  for _, file in ipairs(core.file.list(folder) or {}) do
    names[#names + 1] = file:match "^(.*)%.lua$"
  end
  table.sort(names)
  return table.concat(names, ", ")
end

return function(arguments)
  local name = table.remove(arguments, 1)
  local root = os.getenv "FLARE_SOURCE" or "."
  local path = name and not name:find "^%-" and ("%s/bench/%s.lua"):format(root, name)
  local chunk, problem = nil, "usage: flare bench NAME [arguments], in flare's source folder"
  if path then chunk, problem = loadfile(path, "t") end
  if not chunk then
    local there = programs(root .. "/bench")
    if there == "" then
      problem = ("there is no folder %s/bench: run it in flare's source folder, or name that "
                 .. "folder by the variable FLARE_SOURCE"):format(root)
    end
    io.stderr:write("flare: ", problem, there ~= "" and "; there are: " .. there or "", "\n")
    return 1
  end
  _G.arg = table.move(arguments, 1, #arguments, 1, {[0] = path})
  return chunk(table.unpack(arguments))
end
