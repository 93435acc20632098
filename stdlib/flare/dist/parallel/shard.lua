--- Tensors that are divided over a mesh: each dim over an axis or whole, and possibly *partial*, if
-- the ranks of an axis have summands. Operators work on the ranks' parts; where operands do not
-- fit, the rule of the operator moves them first.
--
--     local x = flare.shard(x, mesh, {"dp", nil})      -- rows over dp
--     local w = flare.shard(w, mesh, {nil, "tp"})      -- columns over tp
--     local y = x:matmul(w)                            -- {"dp", "tp"}, without communication
--     local loss = y:square():sum():whole()            -- an ordinary tensor, on all ranks
--
-- Gradients follow from one rule: an operand that is whole on an axis along which another is
-- divided has a gradient that is the sum over that axis.
local class = require "flare.class"
local core = require "flare.core"
local fail = require "flare.fail"
local options = require "flare.options"
local regions = require "flare.dist.parallel.regions"

local Sharded = class "Sharded"
Sharded.__keeps = true

local is_tensor = core.is_tensor

local function axes_text(self)
  local words = {}
  for d = 1, #self.shape do words[d] = self.spec[d] and ('"%s"'):format(self.spec[d]) or "nil" end
  local text = "{" .. table.concat(words, ", ") .. "}"
  for _, axis in ipairs(self.mesh.axes) do
    if self.partial[axis] then text = text .. ", partial over " .. axis end
  end
  return text
end

-- A divided tensor from the rank's part.
local function wrap(mesh, part, shape, spec, partial)
  local self = setmetatable({}, Sharded)
  core.keeper(self)
  rawset(self, "mesh", mesh)
  rawset(self, "part", part)
  rawset(self, "shape", shape)
  rawset(self, "spec", spec)
  rawset(self, "partial", partial or {})
  return self
end

local function sizes(x) return {table.unpack(x.shape, 1, x:dim())} end

local function check_spec(where, mesh, shape, spec)
  if type(spec) ~= "table" then
    fail("%s: placements are a list with the axis of each dim, as in {\"dp\", nil}, got %s", where,
      options.kind(spec))
  end
  local seen = {}
  for d, axis in pairs(spec) do
    if math.type(d) ~= "integer" or d < 1 or d > #shape then
      fail("%s: a placement for dim %s, but the tensor has %d dims", where, tostring(d), #shape)
    end
    if axis then
      local group = require "flare.dist.parallel.axis"(where, mesh, axis)
      if seen[axis] then
        fail("%s: dims %d and %d cannot both be divided over '%s'", where, math.min(seen[axis], d),
          math.max(seen[axis], d), axis)
      end
      seen[axis] = d
      if shape[d] % group.size ~= 0 then
        fail("%s: dim %d of (%s) cannot be divided equally over the %d ranks of '%s'", where, d,
          table.concat(shape, ", "), group.size, axis)
      end
    end
  end
end

--- flare.shard(x, mesh, {"dp", nil}): a tensor divided over a mesh. A leaf that requires gradients
-- becomes one of which each rank has its part.
-- @param x the whole tensor, the same on all ranks
-- @param mesh from dist.mesh
-- @param placements the axis of each dim, nil for a dim that is whole
-- @return a divided tensor: `part` is the rank's part, `shape` that of the whole
local function shard(x, mesh, placements)
  if not is_tensor(x) then fail("shard: a tensor is expected, got %s", options.kind(x)) end
  local shape = sizes(x)
  if type(mesh) ~= "table" or not mesh.axes then
    fail("shard: a mesh is expected, as dist.mesh{dp = 2} makes it, got %s", options.kind(mesh))
  end
  check_spec("shard", mesh, shape, placements)
  local spec, leaf = {}, x.is_leaf and x.requires_grad
  local part = leaf and x:detach() or x
  for d = 1, #shape do
    spec[d] = placements[d] or false
    if spec[d] then
      local at, n = regions.range("shard", "", shape[d], mesh[spec[d]])
      part = leaf and part:narrow(d, at, n) or regions.own(part, mesh[spec[d]], d)
    end
  end
  if leaf then part = part:clone():requires_grad_(true) end
  return wrap(mesh, part, shape, spec)
end

---------------------------------------------------------------- moving

-- Adds up what is partial.
local function resolved(self)
  local part = self.part
  for _, axis in ipairs(self.mesh.axes) do
    if self.partial[axis] then part = regions.reduce(part, self.mesh[axis]) end
  end
  return part == self.part and self or wrap(self.mesh, part, self.shape, self.spec)
end

--- The same tensor, divided otherwise.
-- @param placements as of flare.shard
function Sharded:redistribute(placements)
  check_spec("redistribute", self.mesh, self.shape, placements)
  self = resolved(self)
  local part, spec = self.part, {}
  for d = 1, #self.shape do
    local to = placements[d] or false
    if self.spec[d] and self.spec[d] ~= to then
      part = regions.join(part, self.mesh[self.spec[d]], d)
    end
    spec[d] = to
  end
  for d = 1, #self.shape do
    if spec[d] and spec[d] ~= self.spec[d] then part = regions.own(part, self.mesh[spec[d]], d) end
  end
  return wrap(self.mesh, part, self.shape, spec)
end

--- The whole tensor, on all ranks.
-- @return an ordinary tensor
function Sharded:whole() return self:redistribute({}).part end

--- The gradient of a leaf, divided as it is; nil before backward.
function Sharded:grad()
  return self.part.grad and wrap(self.mesh, self.part.grad, self.shape, self.spec)
end

-- The part of an operand for an operator whose operands are divided along `varying` axes.
local function operand(self, varying)
  local own, part = {}, self.part
  for _, axis in pairs(self.spec) do if axis then own[axis] = true end end
  for _, axis in ipairs(self.mesh.axes) do
    if varying[axis] and not own[axis] and not self.partial[axis] then
      part = regions.copy(part, self.mesh[axis])
    end
  end
  return part
end

local function varying_of(...)
  local axes = {}
  for _, x in ipairs {...} do
    for _, axis in pairs(x.spec) do if axis then axes[axis] = true end end
    for axis in pairs(x.partial) do axes[axis] = true end
  end
  return axes
end

local function as_sharded(x, like, where)
  if class.is(x, Sharded) then
    if x.mesh ~= like.mesh then
      fail("%s: the operands are divided over different meshes", where)
    end
    return x
  end
  if not is_tensor(x) then fail("%s: a tensor is expected, got %s", where, options.kind(x)) end
  return shard(x, like.mesh, {})
end

---------------------------------------------------------------- rules

--- The matrix product of (rows, inner) and (inner, columns). Rows keep the axis of the first,
-- columns that of the second; if both inner dims are divided over one axis, the result is partial
-- over it, and nothing is sent.
-- @param other divided or whole
function Sharded:matmul(other)
  local a, b = resolved(self), resolved(as_sharded(other, self, "matmul"))
  if #a.shape ~= 2 or #b.shape ~= 2 or a.shape[2] ~= b.shape[1] then
    fail("matmul: divided matrices must be (rows, inner) and (inner, columns), got (%s) and (%s)",
      table.concat(a.shape, ", "), table.concat(b.shape, ", "))
  end
  local rows, inner, columns = a.spec[1], a.spec[2] or b.spec[1], b.spec[2]
  -- an axis divides one dim of the result; the second operand gives way, which is often a weight
  if columns and (columns == rows or columns == inner and a.spec[2]) then columns = false end
  if inner and (inner == rows or inner == columns) then inner = false end
  a, b = a:redistribute{rows, inner}, b:redistribute{inner, columns}
  local varying = varying_of(a, b)
  local y = operand(a, varying):matmul(operand(b, varying))
  return wrap(self.mesh, y, {a.shape[1], b.shape[2]}, {rows or false, columns or false},
    inner and {[inner] = true} or nil)
end

-- Elementwise rules. Sums of partial tensors, and products with numbers, stay partial.
local function binary(name, linear)
  return function(a, b)
    local f = core[name]
    if type(b) == "number" and class.is(a, Sharded) then
      a = linear == "scale" and a or resolved(a)
      return wrap(a.mesh, f(a.part, b), a.shape, a.spec, a.partial)
    elseif type(a) == "number" then
      b = linear == "scale" and name ~= "div" and b or resolved(b)
      return wrap(b.mesh, f(a, b.part), b.shape, b.spec, b.partial)
    end
    local like = class.is(a, Sharded) and a or b
    a, b = as_sharded(a, like, name), as_sharded(b, like, name)
    if #a.shape < #b.shape and (name == "add" or name == "mul") then a, b = b, a end
    local same = #a.shape == #b.shape
    for d = 1, #a.shape do same = same and a.shape[d] == b.shape[d] end
    local alike = same
    for d = 1, #a.shape do alike = alike and a.spec[d] == b.spec[d] end
    for axis in pairs(a.partial) do alike = alike and b.partial[axis] end
    for axis in pairs(b.partial) do alike = alike and a.partial[axis] end
    if linear == "sum" and alike and next(a.partial) then
      return wrap(a.mesh, f(a.part, b.part), a.shape, a.spec, a.partial)
    end
    a, b = resolved(a), resolved(b)
    if same then
      b = b:redistribute(a.spec)
    else -- b broadcasts: its last dims are those of a, or 1
      local spec, shift = {}, #a.shape - #b.shape
      for d = 1, #b.shape do
        if shift < 0 or b.shape[d] ~= a.shape[d + shift] and b.shape[d] ~= 1 then
          fail("%s: (%s) and (%s) do not fit; the second may broadcast to the first", name,
            table.concat(a.shape, ", "), table.concat(b.shape, ", "))
        end
        spec[d] = b.shape[d] > 1 and a.spec[d + shift] or nil
      end
      b = b:redistribute(spec)
    end
    local varying = varying_of(a, b)
    return wrap(a.mesh, f(operand(a, varying), operand(b, varying)), a.shape, a.spec)
  end
end

for name, linear in pairs {add = "sum", sub = "sum", mul = "scale", div = "scale"} do
  local f = binary(name, linear)
  Sharded[name], Sharded["__" .. name] = f, f
end

function Sharded:__unm() return wrap(self.mesh, -self.part, self.shape, self.spec, self.partial) end

for _, name in ipairs {"relu", "gelu", "silu", "tanh", "sigmoid", "exp", "log", "sqrt", "square",
                       "abs", "neg"} do
  Sharded[name] = function(self, ...)
    self = resolved(self)
    return wrap(self.mesh, core[name](self.part, ...), self.shape, self.spec)
  end
end

-- The dim that an argument names: the first argument, or {dim =}.
local function dim_of(self, name, o)
  local dim = type(o) == "table" and (o.dim or o[1]) or o
  if dim == nil then return end
  local n = math.tointeger(dim)
  if n and n < 0 then n = #self.shape + 1 + n end
  if not n or n < 1 or n > #self.shape then
    fail("%s: no dim %s in (%s)", name, tostring(dim), table.concat(self.shape, ", "))
  end
  return n
end

--- The sum along a dim, or of all elements; partial over the axes that were summed.
function Sharded:sum(o)
  local dim = dim_of(self, "sum", o)
  local shape, spec, partial = {}, {}, {}
  for axis in pairs(self.partial) do partial[axis] = true end
  for d = 1, #self.shape do
    if dim and d ~= dim then
      shape[#shape + 1], spec[#spec + 1] = self.shape[d], self.spec[d]
    elseif self.spec[d] then
      partial[self.spec[d]] = true
    end
  end
  return wrap(self.mesh, dim and self.part:sum(dim) or self.part:sum(), shape, spec, partial)
end

--- The mean along a dim, or of all elements.
function Sharded:mean(o)
  local dim, n = dim_of(self, "mean", o), 1
  for d = 1, #self.shape do n = (not dim or d == dim) and n * self.shape[d] or n end
  return self:sum(dim) / n
end

--- Softmax along a dim that is whole; one that is divided is joined first.
function Sharded:softmax(o)
  local dim = dim_of(self, "softmax", o or -1)
  self = resolved(self)
  local spec = {table.unpack(self.spec, 1, #self.shape)}
  spec[dim] = false
  self = self:redistribute(spec)
  return wrap(self.mesh, self.part:softmax(dim), self.shape, self.spec)
end

--- A matrix with its dims exchanged.
function Sharded:t()
  if #self.shape ~= 2 then
    fail("t: a divided matrix is expected, got (%s)", table.concat(self.shape, ", "))
  end
  return wrap(self.mesh, self.part:t(), {self.shape[2], self.shape[1]},
    {self.spec[2], self.spec[1]}, self.partial)
end

function Sharded:dim() return #self.shape end
function Sharded:size(d) return self.shape[dim_of(self, "size", d)] end

function Sharded:__tostring()
  return ("divided tensor (%s) over %s, part (%s)"):format(table.concat(self.shape, ", "),
    axes_text(self), table.concat(self.part.shape, ", "))
end

local methods = {}
for name in pairs(Sharded) do methods[name] = true end
Sharded.__index = function(_, name)
  local value = rawget(Sharded, name)
  if value == nil and type(name) == "string" then
    fail("divided tensors have no '%s'%s; x:whole() is an ordinary tensor, x.part the rank's part",
      name, options.hint(name, methods))
  end
  return value
end

return shard
