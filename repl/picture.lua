--- Tensors as pictures in the terminal: curves, histograms, heat maps and images. A half block
-- shows two points above each other; without colours the points are letters.
local core = require "flare.core"
local style = require "flare.repl.editor.style"

local M = {}

-- Copies a tensor to the host as nested lists of numbers.
local function numbers(x)
  local _ <close> = core.no_grad()
  return x:detach():to("cpu"):to("f64"):tolist()
end

local function expect(x, least, most, what)
  if not core.is_tensor(x) then
    return nil, ("%s wants a tensor, got %s"):format(what, type(x))
  end
  if x.ndim < least or x.ndim > most then
    return nil, ("%s wants %s dims, got %s"):format(what,
      least == most and tostring(least) or least .. " to " .. most, x.shape)
  end
  if x:numel() == 0 then return nil, what .. " wants a tensor with elements" end
  return x
end

--- Curves: a vector is one, the rows of a matrix are several.
function M.plot(x, columns)
  local ok, problem = expect(x, 1, 2, ":plot")
  if not ok then return nil, problem end
  local list = numbers(x)
  if x.ndim == 2 then
    local named = {}
    for i, row in ipairs(list) do named["row " .. i] = row end
    list = named
  end
  return require("flare.log").plot(list, {width = math.max(20, math.min(columns - 16, 100))})
end

--- How many elements are in each of up to 20 ranges.
function M.hist(x, columns)
  if not core.is_tensor(x) then return expect(x, 0, 0, ":hist") end
  local values = {}
  for _, value in ipairs(x:numel() == 0 and {} or numbers(x:reshape(x:numel()))) do
    if value == value and math.abs(value) < math.huge then values[#values + 1] = value end
  end
  if #values == 0 then return nil, ":hist wants a tensor with finite elements" end
  local low, high = math.huge, -math.huge
  for _, value in ipairs(values) do low, high = math.min(low, value), math.max(high, value) end
  local bins = high > low and math.min(20, math.max(5, math.ceil((#values) ^ 0.5))) or 1
  local counts, most = {}, 0
  for i = 1, bins do counts[i] = 0 end
  for _, value in ipairs(values) do
    local i = bins == 1 and 1
              or math.min(bins, math.floor((value - low) / (high - low) * bins) + 1)
    counts[i] = counts[i] + 1
    most = math.max(most, counts[i])
  end
  local eighths = {"\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}",
                   "\u{2589}"}
  local lines, room = {}, math.max(10, columns - 24)
  for i, count in ipairs(counts) do
    local edge = low + (high - low) / bins * (i - 1)
    local parts = math.floor(count / most * room * 8)
    local bar = ("\u{2588}"):rep(parts // 8) .. (eighths[parts % 8] or "")
    lines[i] = ("%10s %s %d"):format(core.format("%.4g", edge), bar, count)
  end
  lines[#lines + 1] = ("%10s"):format(core.format("%.4g", high))
  if #values < x:numel() then
    lines[#lines + 1] = ("%d elements are not finite"):format(x:numel() - #values)
  end
  return table.concat(lines, "\n")
end

-- --- points ---

local function true_colours()
  local name = os.getenv "COLORTERM"
  return name == "truecolor" or name == "24bit"
end

-- The code of a colour in front ("38") or behind ("48").
local function code(place, r, g, b)
  if true_colours() then return ("%s;2;%d;%d;%d"):format(place, r, g, b) end
  if math.max(r, g, b) - math.min(r, g, b) < 12 then -- one of 24 greys
    return ("%s;5;%d"):format(place, 232 + math.min(23, r * 24 // 256))
  end
  local function level(v) return (v * 5 + 127) // 255 end
  return ("%s;5;%d"):format(place, 16 + 36 * level(r) + 6 * level(g) + level(b))
end

local ramp = {" ", ".", ":", "-", "=", "+", "*", "#", "%", "@"}

-- Rows of {r, g, b}, from 0 to 255, as text.
local function points(rows)
  local lines = {}
  if not style.wanted() then
    for y = 1, #rows, 2 do
      local parts = {}
      for x, p in ipairs(rows[y]) do
        parts[x] = ramp[(p[1] * 3 + p[2] * 6 + p[3]) // 10 * 10 // 256 + 1]
      end
      lines[#lines + 1] = (table.concat(parts):gsub(" +$", ""))
    end
    return table.concat(lines, "\n")
  end
  for y = 1, #rows, 2 do
    local parts, last = {}, nil
    for x, top in ipairs(rows[y]) do
      local bottom = rows[y + 1] and rows[y + 1][x]
      local colours = code("38", top[1], top[2], top[3])
                      .. (bottom and ";" .. code("48", bottom[1], bottom[2], bottom[3]) or "")
      parts[#parts + 1] = (colours ~= last and "\27[" .. colours .. "m" or "") .. "\u{2580}"
      last = colours
    end
    lines[#lines + 1] = table.concat(parts) .. "\27[0m"
  end
  return table.concat(lines, "\n")
end

-- Which rows and columns are shown where there are more than points: the nearest ones.
local function sample(size, most)
  local n = math.min(size, most)
  local list = {}
  for i = 1, n do list[i] = math.floor((i - 0.5) * size / n) + 1 end
  return list
end

-- From dark blue by green to yellow, as matplotlib's viridis.
local stops = {{68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}}

local function heat_colour(t)
  if not style.wanted() then
    local grey = math.floor(t * 255)
    return {grey, grey, grey}
  end
  local at = math.max(0, math.min(1, t)) * (#stops - 1)
  local i = math.min(#stops - 1, math.floor(at) + 1)
  local a, b, part = stops[i], stops[i + 1], at - (i - 1)
  local colour = {}
  for k = 1, 3 do colour[k] = math.floor(a[k] + (b[k] - a[k]) * part + 0.5) end
  return colour
end

--- A matrix by colours, with the values of the darkest and the lightest.
function M.heat(x, columns, height)
  local ok, problem = expect(x, 1, 2, ":heat")
  if not ok then return nil, problem end
  local list = numbers(x)
  if x.ndim == 1 then list = {list} end
  local low, high = math.huge, -math.huge
  for _, row in ipairs(list) do
    for _, value in ipairs(row) do
      if value == value and math.abs(value) < math.huge then
        low, high = math.min(low, value), math.max(high, value)
      end
    end
  end
  local rows, across = {}, sample(#list[1], columns - 1)
  for y, from in ipairs(sample(#list, math.max(2, (height - 3) * 2))) do
    rows[y] = {}
    for k, column in ipairs(across) do
      local value = list[from][column]
      if value ~= value then rows[y][k] = {200, 0, 0} -- no number
      else rows[y][k] = heat_colour(high > low and (value - low) / (high - low) or 0.5) end
    end
  end
  return points(rows) .. ("\n%s (dark) to %s (light)"):format(core.format("%.4g", low),
                                                             core.format("%.4g", high))
end

--- An image: (height, width), (1 or 3, height, width) or (height, width, 1 or 3), from 0 to 1 or
-- from 0 to 255.
function M.image(x, columns, height)
  local ok, problem = expect(x, 2, 3, ":image")
  if not ok then return nil, problem end
  local shape = x.shape
  if x.ndim == 2 then
    x = x:unsqueeze(1)
  elseif shape[1] ~= 1 and shape[1] ~= 3 then
    if shape[3] ~= 1 and shape[3] ~= 3 then
      return nil, (":image wants 1 or 3 channels first or last, got %s"):format(shape)
    end
    x = x:permute(3, 1, 2)
  end
  local planes = numbers(x)
  local high = 0
  for _, plane in ipairs(planes) do
    for _, row in ipairs(plane) do
      for _, value in ipairs(row) do if value == value then high = math.max(high, value) end end
    end
  end
  local scale = high <= 1 and 255 or 1
  local rows, h, w = {}, #planes[1], #planes[1][1]
  local fit = math.min(1, (columns - 1) / w, math.max(2, (height - 2) * 2) / h)
  local function size(n) return math.max(1, math.floor(n * fit)) end
  local down, across = sample(h, size(h)), sample(w, size(w))
  for y, from in ipairs(down) do
    rows[y] = {}
    for k, column in ipairs(across) do
      local colour = {}
      for c = 1, 3 do
        local value = (planes[c] or planes[1])[from][column] * scale
        colour[c] = value == value and math.floor(math.max(0, math.min(255, value)) + 0.5) or 0
      end
      rows[y][k] = colour
    end
  end
  return points(rows)
end

return M
