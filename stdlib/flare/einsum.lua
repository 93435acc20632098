--- flare.einsum("bij,bjk->bik", a, b): sums of products over named dims; flare.tensordot.
-- Letters are dims; the sum is over those that are not in the result. A letter that occurs twice in
-- one input takes its diagonal; "..." stands for further dims, which broadcast. Without "->" the
-- result has the letters that occur once, in alphabetical order. Two inputs are contracted by a
-- matrix product; with more inputs, in the order with the fewest multiplications.
local core = require "flare.core"
local fail = require "flare.fail"
local product_of = require "flare.einsum_product"
local options = require "flare.options"

local M = {}

-- Labels of one input or of the result: letters, "." for the ellipsis.
local function labels_of(text, word)
  local list, rest, dots = {}, word, 0
  while rest ~= "" do
    local label = rest:match "^%a" or rest:match "^%.%.%." and "."
    if not label then
      fail('einsum "%s": "%s" should be letters and at most one "...", got \'%s\'', text, word,
        rest:match "^[%z\1-\127\194-\244][\128-\191]*")
    end
    list[#list + 1] = label
    if label == "." then dots = dots + 1 end
    rest = rest:sub(label == "." and 4 or 2)
  end
  if dots > 1 then fail('einsum "%s": "..." occurs twice in "%s"', text, word) end
  return list
end

local parsed, parsed_count = {}, 0

local function parse(text)
  local p = parsed[text]
  if p then return p end
  if type(text) ~= "string" then
    fail('einsum: expected an equation like "ij,jk->ik", got %s', options.kind(text))
  end
  local bare = text:gsub("%s", "")
  local left, right = bare:match "^(.-)%->(.*)$"
  p = {}
  for word in ((left or bare) .. ","):gmatch "([^,]*)," do p[#p + 1] = labels_of(text, word) end
  if right then
    p.out = labels_of(text, right)
    local seen = {}
    for _, label in ipairs(p.out) do
      if seen[label] then fail('einsum "%s": %s occurs twice in the result', text, label) end
      seen[label] = true
    end
  end
  if parsed_count > 500 then parsed, parsed_count = {}, 0 end
  parsed[text], parsed_count = p, parsed_count + 1
  return p
end

-- An input's labels, with a label for each dim of the ellipsis, counted from the last: ".1".
local function spelled(text, k, given, x)
  local more, list = x:dim() - #given, {}
  local dots = false
  for _, label in ipairs(given) do dots = dots or label == "." end
  if more < (dots and -1 or 0) or not dots and more > 0 then
    fail('einsum "%s": input %d has %d dims %s, its letters are %d', text, k, x:dim(),
      tostring(x.shape), #given - (dots and 1 or 0))
  end
  for _, label in ipairs(given) do
    if label == "." then
      for d = more + 1, 1, -1 do list[#list + 1] = "." .. d end
    else
      list[#list + 1] = label
    end
  end
  return list, dots and more + 1 or 0
end

local function index_of(list, label, from)
  for i = from or 1, #list do if list[i] == label then return i end end
end

-- Sizes of all labels: those other than 1 must agree.
local function sizes_of(text, inputs)
  local sizes, from = {}, {}
  for k, t in ipairs(inputs) do
    for d, label in ipairs(t.labels) do
      local n, known = t.x:size(d), sizes[label]
      if not known or known == 1 then
        sizes[label], from[label] = n, k
      elseif n ~= known and n ~= 1 then
        local what = label:sub(1, 1) == "." and "a dim of ..." or label
        fail('einsum "%s": %s is %d in input %d %s, but %d in input %d %s', text, what, known,
          from[label], tostring(inputs[from[label]].x.shape), n, k, tostring(t.x.shape))
      end
    end
  end
  return sizes
end

-- Takes diagonals for repeated labels; drops dims of 1 that broadcast.
local function simplify(t, sizes)
  for i = #t.labels, 1, -1 do
    local label = t.labels[i]
    if t.x:size(i) == 1 and sizes[label] ~= 1 then
      t.x = t.x:select(i, 1)
      table.remove(t.labels, i)
    end
  end
  for i = #t.labels, 1, -1 do
    local label = t.labels[i]
    local j = index_of(t.labels, label)
    if j < i then
      t.x = t.x:diagonal{dim1 = j, dim2 = i}
      table.remove(t.labels, i)
      table.remove(t.labels, j)
      t.labels[#t.labels + 1] = label
      return simplify(t, sizes)
    end
  end
end

-- Sums over dims that neither the result nor another input has.
local function sum_out(t, wanted)
  local dims, kept = {}, {}
  for d, label in ipairs(t.labels) do
    if wanted[label] then kept[#kept + 1] = label else dims[#dims + 1] = d end
  end
  if #dims > 0 then return {x = t.x:sum(dims), labels = kept} end
  return t
end

local function product(labels, sizes)
  local n = 1
  for _, label in ipairs(labels) do n = n * sizes[label] end
  return n
end

-- t's dims in the order of the groups, one dim for each group.
local function grouped(t, sizes, groups)
  local order, shape, moved = {}, {}, false
  for _, group in ipairs(groups) do
    for _, label in ipairs(group) do
      order[#order + 1] = index_of(t.labels, label)
      moved = moved or order[#order] ~= #order
    end
    shape[#shape + 1] = product(group, sizes)
  end
  local x = moved and t.x:permute(order) or t.x
  return x:reshape(shape)
end

local function shape_of(labels, sizes)
  local shape = {}
  for i, label in ipairs(labels) do shape[i] = sizes[label] end
  return shape
end

-- Contracts two inputs to one with the labels that are still needed.
local function contract(a, b, wanted, sizes)
  local in_a, in_b = {}, {}
  for _, label in ipairs(a.labels) do in_a[label] = true end
  for _, label in ipairs(b.labels) do in_b[label] = true end
  a = sum_out(a, setmetatable({}, {__index = function(_, l) return wanted[l] or in_b[l] end}))
  b = sum_out(b, setmetatable({}, {__index = function(_, l) return wanted[l] or in_a[l] end}))
  local both, summed, of_a, of_b = {}, {}, {}, {}
  for _, label in ipairs(a.labels) do
    local list = not in_b[label] and of_a or wanted[label] and both or summed
    list[#list + 1] = label
  end
  for _, label in ipairs(b.labels) do if not in_a[label] then of_b[#of_b + 1] = label end end
  local x
  if #summed == 0 then
    x = grouped(a, sizes, {both, of_a, {}}) * grouped(b, sizes, {both, {}, of_b})
  elseif #both == 0 then
    x = core.matmul(grouped(a, sizes, {of_a, summed}), grouped(b, sizes, {summed, of_b}))
  else
    x = core.matmul(grouped(a, sizes, {both, of_a, summed}),
      grouped(b, sizes, {both, summed, of_b}))
  end
  local labels = table.move(of_a, 1, #of_a, #both + 1, table.move(both, 1, #both, 1, {}))
  table.move(of_b, 1, #of_b, #labels + 1, labels)
  return {x = x:reshape(shape_of(labels, sizes)), labels = labels}
end

-- The number of multiplications for a contraction over the union of two lists of labels.
local function cost(a, b, sizes)
  local n, seen = 1, {}
  for _, list in ipairs {a, b} do
    for _, label in ipairs(list) do
      if not seen[label] then n = n * sizes[label] end
      seen[label] = true
    end
  end
  return n
end

-- Labels of inputs i and j that the result or another input has.
local function kept(inputs, i, j, out)
  local list, seen = {}, {}
  for _, k in ipairs {i, j} do
    for _, label in ipairs(inputs[k].labels) do
      local wanted = out[label]
      for other = 1, #inputs do
        if other ~= i and other ~= j then
          wanted = wanted or index_of(inputs[other].labels, label)
        end
      end
      if wanted and not seen[label] then
        list[#list + 1], seen[label] = label, true
      end
    end
  end
  return list, seen
end

-- The cheapest order of contractions: tries every order for up to 5 inputs, beyond that takes the
-- cheapest next pair. Returns the cost and the first pair.
local function plan(inputs, out, sizes)
  local best, bi, bj = math.huge, 1, 2
  for i = 1, #inputs - 1 do
    for j = i + 1, #inputs do
      local c = cost(inputs[i].labels, inputs[j].labels, sizes) + 0.0
      if #inputs > 2 and #inputs <= 5 and c < best then
        local rest = {{labels = kept(inputs, i, j, out)}}
        for k = 1, #inputs do
          if k ~= i and k ~= j then rest[#rest + 1] = inputs[k] end
        end
        c = c + plan(rest, out, sizes)
      end
      if c < best then best, bi, bj = c, i, j end
    end
  end
  return #inputs > 1 and best or 0, bi, bj
end

-- The labels of the result.
local function result_labels(text, p, inputs, dots)
  local out, count = {}, {}
  for d = dots, 1, -1 do out[#out + 1] = "." .. d end
  if not p.out then
    local once = {}
    for _, list in ipairs(p) do
      for _, label in ipairs(list) do count[label] = (count[label] or 0) + 1 end
    end
    for label, n in pairs(count) do
      if n == 1 and label ~= "." then once[#once + 1] = label end
    end
    table.sort(once)
    return table.move(once, 1, #once, #out + 1, out)
  end
  local all = {}
  for _, label in ipairs(p.out) do
    local found = label == "."
    for _, t in ipairs(inputs) do found = found or index_of(t.labels, label) end
    if not found then
      fail('einsum "%s": %s is in the result, but in no input', text, label)
    end
    if label == "." then table.move(out, 1, #out, #all + 1, all)
    else all[#all + 1] = label end
  end
  return all
end

--- Sums of products over named dims (Einstein summation).
-- @param text the equation, such as "bij,bjk->bik"
-- @param ... tensors, or one table of them
function M.einsum(text, ...)
  local p, a, b, more_given = parse(text), ...
  if p.fast == nil then p.fast = product_of.prepare(p) end
  local fast = p.fast
  if fast and more_given == nil and core.is_tensor(a) and core.is_tensor(b)
    and a:dim() == #p[1] and b:dim() == #p[2] then
    local y = product_of.run(fast, a, b)
    if y then return y end
  end
  local given = {...}
  if type(given[1]) == "table" then given = given[1] end
  local inputs, dots = {}, 0
  if #p ~= #given then
    fail('einsum "%s": it is for %d tensors, got %d', text, #p, #given)
  end
  for k, x in ipairs(given) do
    if not core.is_tensor(x) then
      fail('einsum "%s": input %d is %s, not a tensor', text, k, type(x))
    end
    local labels, more = spelled(text, k, p[k], x)
    inputs[k], dots = {x = x, labels = labels}, math.max(dots, more)
  end
  local sizes = sizes_of(text, inputs)
  local labels = result_labels(text, p, inputs, dots)
  local out = {}
  for _, label in ipairs(labels) do out[label] = true end
  for _, t in ipairs(inputs) do simplify(t, sizes) end
  while #inputs > 1 do
    local i, j = 1, 2
    if #inputs > 2 then
      local _
      _, i, j = plan(inputs, out, sizes)
    end
    local _, wanted = kept(inputs, i, j, out)
    local t = contract(inputs[i], inputs[j], wanted, sizes)
    table.remove(inputs, j)
    table.remove(inputs, i)
    table.insert(inputs, t)
  end
  local t = sum_out(inputs[1], out)
  local order, moved = {}, false
  for i, label in ipairs(labels) do
    order[i] = index_of(t.labels, label)
    moved = moved or order[i] ~= i
  end
  return moved and t.x:permute(order) or t.x
end

--- The tensor contraction of a and b: sums of products over pairs of dims.
-- @param dims a number n: the last n dims of a with the first n of b; or two lists of dims
function M.tensordot(a, b, dims)
  options.tensors("tensordot", "a", a, "b", b)
  local of_a, of_b = {}, {}
  if dims == nil then dims = 2 end
  if math.type(dims) == "integer" and dims >= 0 and dims <= a:dim() and dims <= b:dim() then
    for k = 1, dims do of_a[k], of_b[k] = a:dim() - dims + k, k end
  elseif type(dims) == "table" and type(dims[1]) == "table" and type(dims[2]) == "table"
    and #dims[1] == #dims[2] then
    of_a, of_b = dims[1], dims[2]
  else
    fail("tensordot: dims must be a number of dims to contract, or two equal lists; a is %s, b %s",
      tostring(a.shape), tostring(b.shape))
  end
  local function labelled(x, first, list, own)
    local labels = {}
    for k, d in ipairs(list) do
      local at = math.type(d) == "integer" and (d < 0 and d + x:dim() + 1 or d)
      if not at or at < 1 or at > x:dim() or labels[at] then
        fail("tensordot: %s is repeated or not a dim of %s", tostring(d), tostring(x.shape))
      end
      labels[at] = "s" .. k
    end
    for d = 1, x:dim() do
      if not labels[d] then
        labels[d] = first .. d
        own[#own + 1] = labels[d]
      end
    end
    return {x = x, labels = labels}
  end
  local own = {}
  local inputs = {labelled(a, "a", of_a, own), labelled(b, "b", of_b, own)}
  for k in ipairs(of_a) do
    local m, n = a:size(of_a[k]), b:size(of_b[k])
    if m ~= n then
      fail("tensordot: dim %d of %s is %d and dim %d of %s is %d; they must be the same", of_a[k],
        tostring(a.shape), m, of_b[k], tostring(b.shape), n)
    end
  end
  local wanted = {}
  for _, label in ipairs(own) do wanted[label] = true end
  return contract(inputs[1], inputs[2], wanted, sizes_of("tensordot", inputs)).x
end

return M
