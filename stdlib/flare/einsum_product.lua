--- The fast path of flare.einsum: most equations are a matrix product of two tensors with permuted
-- dims. The permutations are computed once for each equation.
local core = require "flare.core"

local M = {}

--- The permutations for an equation that is a product of two matrices, or of batches of them.
-- @return {order of a, order of b, order of the result, dims that must agree}, where an order is
--   nil
-- if the dims stay; false for other equations
function M.prepare(p)
  local out = p.out
  if #p ~= 2 or not out then return false end
  local a, b, at_out = {}, {}, {}
  for d, label in ipairs(out) do at_out[label] = d end
  for k, at in ipairs {a, b} do
    for d, label in ipairs(p[k]) do
      if at[label] or label == "." then return false end
      at[label] = d
    end
  end
  local order_a, order_b, labels, row, column, sum = {}, {}, {}, nil, nil, nil
  local pairs_of = {}
  for d, label in ipairs(p[1]) do
    if b[label] then pairs_of[#pairs_of + 1] = {d, b[label]} end
    if b[label] and at_out[label] then
      order_a[#order_a + 1], order_b[#order_b + 1] = d, b[label]
      labels[#labels + 1] = label
    elseif b[label] and not sum then sum = label
    elseif not b[label] and at_out[label] and not row then row = label
    else return false end
  end
  for _, label in ipairs(p[2]) do
    if not a[label] then
      if column or not at_out[label] then return false end
      column = label
    end
  end
  if not (row and column and sum) or #out ~= #labels + 2 then return false end
  local n = #labels
  order_a[n + 1], order_a[n + 2] = a[row], a[sum]
  order_b[n + 1], order_b[n + 2] = b[sum], b[column]
  labels[n + 1], labels[n + 2] = row, column
  local order_y = {}
  for d, label in ipairs(labels) do order_y[at_out[label]] = d end
  local function moves(order)
    for k, d in ipairs(order) do if k ~= d then return order end end
  end
  return {a = moves(order_a), b = moves(order_b), y = moves(order_y), pairs = pairs_of}
end

--- The product, or nil if sizes differ: dims of 1 that broadcast, or an error.
function M.run(f, a, b)
  for _, pair in ipairs(f.pairs) do
    if a:size(pair[1]) ~= b:size(pair[2]) then return end
  end
  if f.a then a = a:permute(f.a) end
  if f.b then b = b:permute(f.b) end
  local y = core.matmul(a, b)
  return f.y and y:permute(f.y) or y
end

return M
