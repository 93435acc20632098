--- A batch of a data set: the result of `fetch` for a tensor of positions or, if the data set has
-- `get` instead, its samples one by one, collated.
local core = require "flare.core"

-- Tensors are stacked, numbers become a tensor, anything else stays a list.
local function collate(list)
  if core.is_tensor(list[1]) then return core.stack(list, {dim = 1}) end
  if type(list[1]) ~= "number" then return list end
  local whole = true
  for _, value in ipairs(list) do whole = whole and math.type(value) == "integer" end
  return core.tensor(list, {dtype = whole and "i64" or "f32"})
end

return function(dataset, index)
  if dataset.fetch then return dataset:fetch(index) end
  local columns, n = {}, 0
  for k, i in ipairs(index:totable()) do
    local sample = table.pack(dataset:get(i))
    n = sample.n
    for c = 1, n do
      columns[c] = columns[c] or {}
      columns[c][k] = sample[c]
    end
  end
  for c = 1, n do columns[c] = collate(columns[c]) end
  return table.unpack(columns, 1, n)
end
