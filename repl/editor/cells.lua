--- Where characters stand: the clusters of a text that a reader takes for one character, the
-- columns that they fill, and lines broken at the width of the terminal.
local terminal = require "flare.repl.terminal"

local M = {}

local cached = setmetatable({}, {__mode = "v"}) -- text: {ends, widths}

--- The positions of the last bytes of the clusters of a line, and their widths; nil where all
-- characters are plain ASCII, one byte and one column each.
function M.clusters(text)
  if not text:find "[^\32-\126]" then return nil end
  local known = cached[text]
  if not known then
    known = table.pack(terminal.clusters(text))
    for i, width in ipairs(known[2]) do
      if width == 0 or text:byte(known[1][i]) < 32 then
        local from = (known[1][i - 1] or 0) + 1
        known[2][i] = #M.shown(text:sub(from, known[1][i]))
      end
    end
    cached[text] = known
  end
  return known[1], known[2]
end

--- How a cluster is shown: control characters and lone combining marks have no width of their own.
function M.shown(cluster)
  local byte = cluster:byte()
  if cluster == "\t" then return "    " end
  if byte < 32 then return "^" .. string.char(byte + 64) end
  if byte == 127 then return "^?" end
  if utf8.len(cluster) then
    if terminal.clusters(cluster) and select(2, terminal.clusters(cluster))[1] > 0 then
      return cluster
    end
    return ("<%x>"):format(utf8.codepoint(cluster))
  end
  return ("<%02x>"):format(byte)
end

--- The columns of a text without colours.
function M.width(text)
  local _, widths = M.clusters(text)
  if not widths then return #text end
  local sum = 0
  for _, width in ipairs(widths) do sum = sum + width end
  return sum
end

--- The position behind the cluster that begins behind `at`, or before the one that ends there.
function M.step(text, at, by)
  local ends = M.clusters(text)
  if not ends then return math.max(0, math.min(#text, at + by)) end
  local before = 0
  for _, stop in ipairs(ends) do
    if by > 0 and stop > at then return stop end
    if by < 0 and stop >= at then return before end
    before = stop
  end
  return by > 0 and #text or before
end

--- The column of a position in a line.
function M.column(text, at)
  return M.width(text:sub(1, at))
end

--- The position in a line that is nearest to a column from the left.
function M.position(text, column)
  local ends, widths = M.clusters(text)
  if not ends then return math.min(#text, column) end
  local sum, at = 0, 0
  for i, stop in ipairs(ends) do
    sum = sum + widths[i]
    if sum > column then return at end
    at = stop
  end
  return at
end

--- The text cut to so many columns, with "..." where something was left out.
function M.cut(text, columns)
  if M.width(text) <= columns then return text end
  return text:sub(1, M.position(text, math.max(0, columns - 3))) .. "..."
end

return M
