--- Products of matrices.
local core = require "flare.core"
local refuse = require "flare.onnx.refuse"

local M = {}

function M.MatMul(_, a, b) return a:matmul(b) end

function M.Gemm(n, a, b, c)
  if n.attr.transA == 1 then a = a:transpose(1, 2) end
  if n.attr.transB == 1 then b = b:transpose(1, 2) end
  local alpha, beta = n.attr.alpha or 1, n.attr.beta or 1
  local dtype = a.dtype
  local y = a:matmul(b)
  if alpha ~= 1 then y = (y * alpha):to(dtype) end
  if c and beta ~= 0 then y = y + (beta ~= 1 and (c * beta):to(dtype) or c) end
  return y
end

-- The labels of one side of an equation; "..." becomes upper-case labels of its own, counted
-- from the last.
local function labels_of(text, rank)
  local list = {}
  text = text:gsub("%s", "")
  local before, after = text:match "^(.-)%.%.%.(.*)$"
  before = before or text
  for label in before:gmatch "." do list[#list + 1] = label end
  if after then
    for k = rank - #before - #after, 1, -1 do list[#list + 1] = k end
    for label in after:gmatch "." do list[#list + 1] = label end
  end
  return list
end

-- The operand with one dim for each label of `order`, in that order; repeated labels are taken
-- along the diagonal.
local function laid_out(x, labels, order)
  local place, d = {}, 1
  labels = table.move(labels, 1, #labels, 1, {})
  while d <= #labels do
    local first = place[labels[d]]
    if first then
      x = x:diagonal(0, first, d)
      local label = table.remove(labels, d)
      table.remove(labels, first)
      labels[#labels + 1] = label
      place, d = {}, 1
    else
      place[labels[d]] = d
      d = d + 1
    end
  end
  local dims, shape = {}, {}
  for k, label in ipairs(order) do
    local at = place[label]
    if at then dims[#dims + 1] = at end
    shape[k] = at and x.shape[at] or 1
  end
  if #dims > 1 then x = x:permute(dims) end
  return x:reshape(shape)
end

local function add_labels(order, seen, list, keep)
  for _, label in ipairs(list) do
    if not seen[label] and keep(label) then
      seen[label] = true
      order[#order + 1] = label
    end
  end
end

function M.Einsum(n, ...)
  local operands = {...}
  local left, right = n.attr.equation:match "^(.-)%->(.*)$"
  left = left or n.attr.equation
  local sides, counts, ellipsis = {}, {}, 0
  for text in (left .. ","):gmatch "(.-)," do
    local x = operands[#sides + 1]
    if not x then n:fail("'%s' has more operands than there are inputs", n.attr.equation) end
    local list = labels_of(text, x:dim())
    sides[#sides + 1] = list
    for _, label in ipairs(list) do
      counts[label] = (counts[label] or 0) + 1
      if math.type(label) then ellipsis = math.max(ellipsis, label) end
    end
  end
  local out
  if right then
    out = labels_of(right, ellipsis + #right:gsub("[%s%.]", ""))
  else -- labels that occur once, in alphabetical order
    out = {}
    for k = ellipsis, 1, -1 do out[#out + 1] = k end
    local single = {}
    for label, count in pairs(counts) do
      if count == 1 and not math.type(label) then single[#single + 1] = label end
    end
    table.sort(single)
    table.move(single, 1, #single, #out + 1, out)
  end
  local order, seen = {}, {}
  local function any() return true end
  add_labels(order, seen, out, any)
  local kept = #order
  for _, list in ipairs(sides) do add_labels(order, seen, list, any) end
  local y
  for k, x in ipairs(operands) do
    local part = laid_out(x, sides[k], order)
    y = y and y * part or part
  end
  local dims = {}
  for d = kept + 1, #order do dims[#dims + 1] = d end
  return #dims > 0 and y:sum(dims):to(y.dtype) or y
end

-- Refused when a model is loaded, where there is no LAPACK.
M.Det = {load = function()
  local ok, why = pcall(core.det, core.eye(2))
  if not ok then refuse.raise("libraries: %s", tostring(why):gsub("^.-: ", "", 1)) end
  return function(_, x) return x:det() end
end}

return M
