-- The repository's own files, for specs that read sources or build trees.
local tree = {}

--- The build folder that the specs run from.
tree.build = os.getenv "FLARE_BUILD" or "build"

--- What a shell command prints.
function tree.output(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  pipe:close()
  return text
end

--- The paths of all files below folders whose names end as said, sorted.
-- tree.files("runtime kernels", ".c", ".h")
function tree.files(folders, ...)
  local names = {}
  for _, ending in ipairs {...} do names[#names + 1] = ("-name '*%s'"):format(ending) end
  local list = {}
  local command = "find %s -type f \\( %s \\) 2>/dev/null | sort"
  for path in tree.output(command:format(folders, table.concat(names, " -o "))):gmatch "[^\n]+" do
    list[#list + 1] = path
  end
  return list
end

--- The op table: runtime/ops.def with the families that it includes, or that of a copy of the
-- sources in `root`.
function tree.op_table(root)
  local folder = (root and root .. "/" or "") .. "runtime/"
  return (tree.read(folder .. "ops.def"):gsub('#include "(ops/%w+%.def)"\n', function(path)
    return tree.read(folder .. path)
  end))
end

--- A temporary file with this text.
-- @return its path
function tree.written(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  return path
end

--- Makes generated/op_slots.h in a copy of the sources: the positions of what its table declares.
function tree.name_slots(root)
  local lua = tree.read(tree.build .. "/CMakeCache.txt"):match "LUA_PROGRAM:%w+=([^\n]+)"
  local out = tree.output(("mkdir -p '%s/generated' && '%s' cmake/op_slots.lua '%s/runtime' "
    .. "'%s/generated/op_slots.h' 2>&1"):format(root, lua, root, root))
  assert(out == "", out)
end

function tree.read(path)
  local file = assert(io.open(path))
  local text = file:read "a"
  file:close()
  return text
end

function tree.exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

--- Whether a sanitizer or the counting of lines is in the build.
function tree.instrumented()
  local cache = tree.build .. "/CMakeCache.txt"
  local text = tree.exists(cache) and tree.read(cache) or ""
  return text:find "FLARE_SANITIZE:[^\n]*=%a" ~= nil or text:find "FLARE_COVERAGE:[^\n]*=ON" ~= nil
end

return tree
