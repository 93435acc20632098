--- Kernels that hold several operators, as text: their names and their lines, shortened.
local M = {}

local MOST = 8 -- names

--- "mul x3+add+tanh": the names of launches, each once, in the order of the calls.
-- @param launches a list of {op = name, ...} @param most names, 8 by default
function M.operators(launches, most)
  local count, names = {}, {}
  for _, x in ipairs(launches) do
    if not count[x.op] then names[#names + 1] = x.op end
    count[x.op] = (count[x.op] or 0) + 1
  end
  local parts, more = {}, 0
  for k, name in ipairs(names) do
    if k <= (most or MOST) then
      parts[k] = count[name] > 1 and ("%s x%d"):format(name, count[name]) or name
    else
      more = more + count[name]
    end
  end
  return table.concat(parts, "+") .. (more > 0 and ("+%d more"):format(more) or "")
end

-- "3-5,9" of sorted numbers.
local function ranges(numbers)
  local parts, from = {}, nil
  for k, n in ipairs(numbers) do
    from = from or n
    if numbers[k + 1] ~= n + 1 then
      parts[#parts + 1] = from == n and tostring(n) or ("%d-%d"):format(from, n)
      from = nil
    end
  end
  return table.concat(parts, ",")
end

--- The lines of launches, each once, in the order of the calls.
-- @param launches a list of {line = "file:number", ...}
function M.list(launches)
  local seen, list = {}, {}
  for _, x in ipairs(launches) do
    if not seen[x.line] then
      seen[x.line] = true
      list[#list + 1] = x.line
    end
  end
  return list
end

--- The same as text: "train.lua:3-5,9 model.lua:12".
function M.lines(launches)
  local files, by, others = {}, {}, {}
  for _, line in ipairs(M.list(launches)) do
    local file, number = line:match "^(.*):(%d+)$"
    if not file then
      others[#others + 1] = line
    else
      if not by[file] then
        by[file] = {}
        files[#files + 1] = file
      end
      table.insert(by[file], tonumber(number))
    end
  end
  local parts = {}
  for _, file in ipairs(files) do
    table.sort(by[file])
    parts[#parts + 1] = file .. ":" .. ranges(by[file])
  end
  table.move(others, 1, #others, #parts + 1, parts)
  return table.concat(parts, " ")
end

return M
