--- The group of this rank along an axis of a mesh, or a group itself.
local class = require "flare.class"
local fail = require "flare.fail"
local Group = require "flare.dist.group"
local options = require "flare.options"

--- @param where the function's name @param mesh from dist.mesh, or a group @param axis its name
return function(where, mesh, axis)
  if class.is(mesh, Group) then return Group.of(where, mesh) end
  if type(mesh) ~= "table" or type(mesh.axes) ~= "table" then
    fail("%s: a mesh is expected, as dist.mesh{%s = 2} makes it, or a group, got %s", where, axis,
      options.kind(mesh))
  end
  if not mesh[axis] then
    fail("%s: the mesh has no axis '%s'; its axes are %s", where, axis,
      table.concat(mesh.axes, ", "))
  end
  return mesh[axis]
end
