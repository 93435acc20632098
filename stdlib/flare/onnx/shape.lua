--- Shapes and layouts: reshape, slices, joins, padding.
local core = require "flare.core"
local Node = require "flare.onnx.node"

local M = {}

function M.Identity(_, x) return x end

function M.Shape(n, x)
  local shape = n:shape(x)
  local rank = #shape
  local function clamp(at)
    if at < 0 then at = at + rank end
    return math.min(math.max(at, 0), rank)
  end
  local first, last = clamp(n.attr.start or 0), clamp(n.attr["end"] or rank)
  return n:ints(table.move(shape, first + 1, last, 1, {}))
end

function M.Size(n, x)
  local size = x:numel()
  return Node.remember(core.tensor(size, {dtype = "i64"}):to(n.device), {size})
end

function M.Reshape(n, x, shape)
  local sizes, old = shape and n:list(shape) or n.attr.shape, n:shape(x)
  local known, open = 1, nil
  for d, size in ipairs(sizes) do
    if size == 0 and n.attr.allowzero ~= 1 then
      if not old[d] then n:fail("size %d is to be kept, there are %d dims", d, #old) end
      sizes[d] = old[d]
    end
    if size == -1 then open = d else known = known * sizes[d] end
  end
  if open then sizes[open] = known > 0 and x:numel() // known or 0 end
  return x:reshape(sizes)
end

function M.Flatten(n, x)
  local axis, rows = n.attr.axis or 1, 1
  if axis < 0 then axis = axis + x:dim() end
  for d = 1, axis do rows = rows * x.shape[d] end
  local columns = 1
  for d = axis + 1, x:dim() do columns = columns * x.shape[d] end
  return x:reshape(rows, columns)
end

function M.Squeeze(n, x, axes)
  local shape, drop = n:shape(x), {}
  local dims = n:axes(axes and n:list(axes) or n.attr.axes, #shape)
  for d, size in ipairs(shape) do drop[d] = not dims and size == 1 end
  for _, d in ipairs(dims or {}) do
    if shape[d] ~= 1 then n:fail("axis %d has size %d, not 1", d - 1, shape[d]) end
    drop[d] = true
  end
  local kept = {}
  for d, size in ipairs(shape) do
    if not drop[d] then kept[#kept + 1] = size end
  end
  return x:reshape(kept)
end

function M.Unsqueeze(n, x, axes)
  local list = axes and n:list(axes) or n.attr.axes
  local shape, new, old, rank = {}, {}, n:shape(x), x:dim() + #list
  for _, d in ipairs(n:axes(list, rank)) do new[d] = true end
  local at = 0
  for d = 1, rank do
    if not new[d] then at = at + 1 end
    shape[d] = new[d] and 1 or old[at]
  end
  return x:reshape(shape)
end

function M.Transpose(n, x)
  local rank = x:dim()
  if rank < 2 then return x end
  local order = n:axes(n.attr.perm, rank)
  if not order then
    order = {}
    for d = 1, rank do order[d] = rank + 1 - d end
  end
  return x:permute(order)
end

function M.Concat(n, ...)
  local parts = {...}
  local dim = n:axis(n.attr.axis or 1, parts[1]:dim())
  return core.cat(parts, dim)
end

-- Sizes of the parts of a split, as each version tells them.
local function parts_of(n, size, split)
  local sizes = split and n:list(split) or n.attr.split
  if sizes then return sizes end
  local count = n.attr.num_outputs or #n.outputs
  if count < 1 or count > #n.outputs then
    n:fail("%d parts for %d outputs", count, #n.outputs)
  end
  local each = (size + count - 1) // count
  sizes = {}
  for k = 1, count do
    sizes[k] = math.max(math.min(each, size - (k - 1) * each), 0)
  end
  return sizes
end
M.parts_of = parts_of

function M.Split(n, x, split)
  local dim = n:axis(n.attr.axis or 0, x:dim())
  local results, at = {}, 1
  for k, size in ipairs(parts_of(n, x.shape[dim], split)) do
    results[k] = x:narrow(dim, at, size)
    at = at + size
  end
  if at - 1 ~= x.shape[dim] then
    n:fail("the parts have %d elements, the axis has %d", at - 1, x.shape[dim])
  end
  return table.unpack(results)
end

-- Elements first, first + step, ... before last of one dim, as in Python's slices, but a start
-- before the first element is the first element for negative steps, too.
local function slice(x, dim, first, last, step)
  local size = x.shape[dim]
  step = math.max(math.min(step, size + 1), -size - 1)
  local low, high = step > 0 and 0 or -1, step > 0 and size or size - 1
  local function clamp(at)
    if at < 0 then at = at + size end
    return math.min(math.max(at, low), high)
  end
  last = clamp(last)
  low = 0
  first = clamp(first)
  local count = step > 0 and (last - first + step - 1) // step or (first - last - step - 1) // -step
  if count <= 0 then return x:narrow(dim, 1, 0) end
  if step > 0 then return x:narrow(dim, first + 1, count, step) end
  return x:flip(dim):narrow(dim, size - first, count, -step)
end

function M.Slice(n, x, starts, ends, axes, steps)
  local first = starts and n:list(starts) or n.attr.starts
  local last = ends and n:list(ends) or n.attr.ends
  local dims = n:axes(axes and n:list(axes) or n.attr.axes, x:dim())
  local by = n:list(steps)
  for k = 1, #first do
    local step = by and by[k] or 1
    if step == 0 then n:fail("a step is 0") end
    x = slice(x, dims and dims[k] or k, first[k], last[k], step)
  end
  return x
end

--- The shape to which two shapes broadcast, aligned at their last dims.
function M.broadcast(a, b)
  local rank, shape = math.max(#a, #b), {}
  for d = 1, rank do
    local p, q = a[d - rank + #a] or 1, b[d - rank + #b] or 1
    shape[d] = p == 1 and q or p
  end
  return shape
end

function M.Expand(n, x, shape)
  return x:expand(M.broadcast(n:shape(x), n:list(shape)))
end

function M.Tile(n, x, repeats, axis)
  if axis then -- version 1
    local counts = {}
    for d = 1, x:dim() do counts[d] = 1 end
    counts[n:axis(n:number(axis), x:dim())] = n:number(repeats)
    return x["repeat"](x, counts)
  end
  local counts = n:list(repeats)
  return #counts > 0 and x["repeat"](x, counts) or x
end

local modes = {constant = "constant", edge = "replicate", reflect = "reflect", wrap = "circular"}

-- One dim at a time; negative padding crops.
local function pad_dim(x, dim, before, after, mode, value)
  if before < 0 or after < 0 then
    local cut = math.max(-before, 0)
    x = x:narrow(dim, cut + 1, x.shape[dim] - cut - math.max(-after, 0))
    before, after = math.max(before, 0), math.max(after, 0)
  end
  if before == 0 and after == 0 then return x end
  if mode == "constant" then
    local pads = {}
    for _ = dim, x:dim() - 1 do pads[#pads + 1], pads[#pads + 2] = 0, 0 end
    pads[#pads + 1], pads[#pads + 2] = before, after
    return x:pad(pads, "constant", value)
  end
  local size, list = x.shape[dim], {}
  local period = mode == "reflect" and 2 * (size - 1) or size
  for at = -before, size - 1 + after do
    local from = math.min(math.max(at, 0), size - 1)
    if mode ~= "replicate" then from = period > 0 and at % period or 0 end
    if mode == "reflect" and from >= size then from = period - from end
    list[#list + 1] = from
  end
  local index = core.tensor(list, {dtype = "i64"}):to(x.device)
  return x:index_select(dim, index, {base = 0})
end
M.pad_dim = pad_dim

function M.Pad(n, x, pads, value, axes)
  local given = n:choice("mode", "constant", modes)
  local list = pads and n:list(pads) or n.attr.pads or n.attr.paddings
  local fill = value and n:number(value) or n.attr.value or 0
  if fill == true or fill == false then fill = fill and 1 or 0 end
  local dims = n:axes(n:list(axes), x:dim())
  local half = #list // 2
  for k = 1, half do
    x = pad_dim(x, dims and dims[k] or k, list[k], list[half + k], modes[given], fill)
  end
  return x
end

function M.CenterCropPad(n, x, shape)
  local sizes, rank = n:list(shape), x:dim()
  local dims = n:axes(n.attr.axes, rank)
  for k, size in ipairs(sizes) do
    local dim = dims and dims[k] or k
    local more = size - x.shape[dim]
    local before = more > 0 and more // 2 or -(-more // 2)
    x = pad_dim(x, dim, before, more - before, "constant", 0)
  end
  return x
end

function M.DepthToSpace(n, x)
  local s = n:shape(x)
  local b = n.attr.blocksize
  local c = s[2] // (b * b)
  if n:choice("mode", "DCR", {DCR = true, CRD = true}) == "DCR" then
    x = x:reshape(s[1], b, b, c, s[3], s[4]):permute(1, 4, 5, 2, 6, 3)
  else
    x = x:reshape(s[1], c, b, b, s[3], s[4]):permute(1, 2, 5, 3, 6, 4)
  end
  return x:reshape(s[1], c, s[3] * b, s[4] * b)
end

function M.SpaceToDepth(n, x)
  local s = n:shape(x)
  local b = n.attr.blocksize
  x = x:reshape(s[1], s[2], s[3] // b, b, s[4] // b, b)
  if n:choice("mode", "DCR", {DCR = true, CRD = true}) == "DCR" then
    x = x:permute(1, 4, 6, 2, 3, 5)
  else
    x = x:permute(1, 2, 4, 6, 3, 5)
  end
  return x:reshape(s[1], s[2] * b * b, s[3] // b, s[4] // b)
end

function M.ReverseSequence(n, x, lengths)
  local time = n:axis(n.attr.time_axis or 0, x:dim())
  local batch = n:axis(n.attr.batch_axis or 1, x:dim())
  local rows = {}
  for b, length in ipairs(n:list(lengths)) do
    local row = x:narrow(batch, b, 1)
    local turned = row:narrow(time, 1, length):flip(time)
    rows[b] = core.cat({turned, row:narrow(time, length + 1, x.shape[time] - length)}, time)
  end
  return core.cat(rows, batch)
end

return M
