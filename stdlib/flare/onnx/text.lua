--- TfIdfVectorizer: counts of n-grams of integers.
local core = require "flare.core"

local M = {}

local modes = {TF = true, IDF = true, TFIDF = true}

-- The n-grams of the pool: their numbers joined -> the column that counts them; and each
-- column's weight.
local function read_pool(n)
  local a, pool, weights = n.attr, {}, {}
  if not a.pool_int64s then n:fail("its pool is of strings") end
  local starts, at = a.ngram_counts, 1
  for size = 1, #starts do
    local last = starts[size + 1] or #a.pool_int64s
    for first = starts[size] + 1, last, size do
      local key = table.concat(a.pool_int64s, " ", first, first + size - 1)
      local column = a.ngram_indexes[at] + 1
      pool[key] = column
      weights[column] = a.weights and a.weights[at] or 1
      at = at + 1
    end
  end
  return pool, weights
end

local function count(row, pool, counts, a)
  for size = a.min_gram_length, a.max_gram_length do
    -- 1-grams do not depend on the skip
    for step = 1, size == 1 and 1 or a.max_skip_count + 1 do
      for first = 1, #row - (size - 1) * step do
        local gram = {}
        for k = 0, size - 1 do gram[k + 1] = row[first + k * step] end
        local column = pool[table.concat(gram, " ")]
        if column then counts[column] = counts[column] + 1 end
      end
    end
  end
end

function M.TfIdfVectorizer(n, x)
  local mode = n:choice("mode", nil, modes)
  local pool, weights = read_pool(n)
  local columns = 0
  for _, index in ipairs(n.attr.ngram_indexes) do columns = math.max(columns, index + 1) end
  local flat = x:dim() < 2
  local rows = {}
  for r, row in ipairs(x:numel() > 0 and (flat and x:reshape(1, -1) or x):totable() or {{}}) do
    local counts = {}
    for k = 1, columns do counts[k] = 0 end
    count(row, pool, counts, n.attr)
    for k = 1, columns do
      if mode == "IDF" then counts[k] = math.min(counts[k], 1) end
      if mode ~= "TF" then counts[k] = counts[k] * (weights[k] or 1) end
    end
    rows[r] = counts
  end
  local y = core.tensor(rows, {dtype = "f32"}):to(n.device)
  return flat and y:select(1, 1) or y
end

return M
