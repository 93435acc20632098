--- Meshes: the ranks of a job as a grid with named axes, with a group for each line of the grid.
local fail = require "flare.fail"
local Group = require "flare.dist.group"
local options = require "flare.options"

-- The default order, from the axis with the most distant neighbours to that with successive ranks.
local known = {pp = 1, dp = 2, ep = 3, cp = 4, tp = 5}

local function ordered(axes)
  if type(axes) ~= "table" then
    fail("mesh: axes are a table, as in mesh{dp = 4, tp = 2}, got %s", options.kind(axes))
  end
  local names = {}
  for name, size in pairs(axes) do
    if name ~= "order" then
      if type(name) ~= "string" or not math.tointeger(size) or size < 1 then
        fail("mesh: axes are names with sizes, as in mesh{dp = 4, tp = 2}")
      elseif name == "at" or name == "axes" or name == "lines" then
        fail("mesh: an axis cannot be named '%s': mesh.%s is something else", name, name)
      end
      names[#names + 1] = name
    end
  end
  local place = {}
  for k, name in ipairs(axes.order or {}) do
    if not axes[name] or name == "order" then
      fail("mesh: order has '%s', which is no axis", tostring(name))
    end
    place[name] = k
  end
  table.sort(names, function(a, b)
    local p, q = place[a] or known[a] or 0, place[b] or known[b] or 0
    if p ~= q then return p < q end
    return a < b
  end)
  return names
end

--- Makes a mesh, see dist.mesh.
-- @param axes sizes by name, and optionally `order`, the list of names
-- @param rank of this process
-- @param size of the job
-- @return a table: mesh.dp is the group of this rank along dp, mesh.at.dp its place in it, from 0,
--   mesh.lines.dp the ranks of all such groups
return function(axes, rank, size)
  local names, total = ordered(axes), 1
  for _, name in ipairs(names) do total = total * axes[name] end
  if total ~= size then
    fail("mesh: the sizes multiply to %d, but the job has %d ranks", total, size)
  end
  local mesh, step = {at = {}, axes = names, lines = {}}, 1
  for k = #names, 1, -1 do
    local name, n = names[k], axes[names[k]]
    mesh.at[name], mesh.lines[name] = rank // step % n, {}
    for first = 0, size - 1 do -- all lines, in the same order on every rank
      if first // step % n == 0 then
        local ranks = {}
        for i = 0, n - 1 do ranks[i + 1] = first + i * step end
        table.insert(mesh.lines[name], ranks)
        local group = Group(ranks)
        if group.rank then mesh[name] = group end
      end
    end
    step = step * n
  end
  return mesh
end
