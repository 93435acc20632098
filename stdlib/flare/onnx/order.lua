--- Largest, smallest, sorted and distinct elements.
local M = {}

local function arg(row)
  return function(n, x)
    local dim = n:axis(n.attr.axis or 0, x:dim())
    local o = {dim = dim, keepdim = n.attr.keepdims ~= 0, base = 0}
    if n.attr.select_last_index ~= 1 then return x[row](x, o) end
    return x.shape[dim] - 1 - x:flip(dim)[row](x:flip(dim), o)
  end
end

M.ArgMax, M.ArgMin = arg "argmax", arg "argmin"

function M.TopK(n, x, k)
  local count = k and n:number(k) or n.attr.k
  local dim = n:axis(n.attr.axis or -1, x:dim())
  return x:topk{k = count, dim = dim, largest = n.attr.largest ~= 0, base = 0}
end

-- All NaN are equal, and sorted last.
local function equal(p, q) return p == q or (p ~= p and q ~= q) end

local function less(a, b)
  for k = 1, #a do
    if not equal(a[k], b[k]) then return a[k] < b[k] or b[k] ~= b[k] end
  end
  return false
end

local function same(a, b)
  for k = 1, #a do
    if not equal(a[k], b[k]) then return false end
  end
  return true
end

-- Groups of equal rows: the place of the first, how many there are; and each row's group.
local function groups_of(rows, sorted)
  local order = {}
  for k = 1, #rows do order[k] = k end
  table.sort(order, function(i, j)
    if same(rows[i], rows[j]) then return i < j end
    return less(rows[i], rows[j])
  end)
  local groups, group_of = {}, {}
  for k, i in ipairs(order) do
    local last = groups[#groups]
    if k > 1 and same(rows[i], rows[last.first]) then
      last.count = last.count + 1
    else
      last = {first = i, count = 1}
      groups[#groups + 1] = last
    end
    group_of[i] = last
  end
  if not sorted then table.sort(groups, function(a, b) return a.first < b.first end) end
  for k, group in ipairs(groups) do group.number = k - 1 end
  return groups, group_of
end

function M.Unique(n, x)
  local dim = n.attr.axis and n:axis(n.attr.axis, x:dim())
  local whole = dim and x or x:reshape(-1)
  dim = dim or 1
  local size = whole.shape[dim]
  local table_of = whole:transpose(1, dim):reshape(size, size > 0 and -1 or 1):to("cpu")
  local rows = size > 0 and table_of:totable() or {}
  for _, row in ipairs(rows) do
    for k, v in ipairs(row) do
      if v == true or v == false then row[k] = v and 1 or 0 end
    end
  end
  local groups, group_of = groups_of(rows, n.attr.sorted ~= 0)
  local first, inverse, counts = {}, {}, {}
  for k, group in ipairs(groups) do first[k], counts[k] = group.first - 1, group.count end
  for k = 1, size do inverse[k] = group_of[k].number end
  local places = n:ints(first)
  return whole:index_select(dim, places, {base = 0}), places, n:ints(inverse), n:ints(counts)
end

return M
