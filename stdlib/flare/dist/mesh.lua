--- Meshes: the ranks of a job as a grid with named axes, and a group for each line of it.
local fail = require "flare.fail"
local Group = require "flare.dist.group"

-- From the axis whose neighbours are farthest apart to the one whose are next to each other.
local known = {pp = 1, dp = 2, ep = 3, cp = 4, tp = 5}

local function ordered(axes)
  if type(axes) ~= "table" then
    fail("mesh: axes are a table, as in mesh{dp = 4, tp = 2}, got %s", type(axes))
  end
  local names = {}
  for name, size in pairs(axes) do
    if name ~= "order" then
      if type(name) ~= "string" or not math.tointeger(size) or size < 1 then
        fail("mesh: axes are names with sizes, as in mesh{dp = 4, tp = 2}")
      elseif name == "at" or name == "axes" then
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

--- @param axes sizes by name; `order` lists the names if pp, dp, ep, cp, tp is not meant: ranks
-- that are neighbours along the last are next to each other
-- @return a table: mesh.dp is the group of this rank along dp; mesh.at.dp its place there, from 0
return function(axes, rank, size)
  local names, total = ordered(axes), 1
  for _, name in ipairs(names) do total = total * axes[name] end
  if total ~= size then
    fail("mesh: the sizes multiply to %d, but the job has %d ranks", total, size)
  end
  local mesh, step = {at = {}, axes = names}, 1
  for k = #names, 1, -1 do
    local name, n = names[k], axes[names[k]]
    mesh.at[name] = rank // step % n
    for first = 0, size - 1 do -- of every line, in the same order everywhere
      if first // step % n == 0 then
        local ranks = {}
        for i = 0, n - 1 do ranks[i + 1] = first + i * step end
        local group = Group(ranks)
        if group.rank then mesh[name] = group end
      end
    end
    step = step * n
  end
  return mesh
end
