--- An explanation of a plan as text: a line for each kernel, what is not fused and why, memory, and
-- sums.
local step = require "flare.profile.step"

local function scaled(n, units, base)
  local k = 1
  while k < #units and n >= base do n, k = n / base, k + 1 end
  return ((n == n // 1 and n < base) and "%.0f %s" or n < 9.995 and "%.2f %s" or n < 99.95
    and "%.1f %s" or "%.0f %s"):format(n, units[k])
end

local function bytes(n) return scaled(n, {"B", "KiB", "MiB", "GiB", "TiB"}, 1024) end
local function flops(n) return scaled(n, {"", "k", "M", "G", "T"}, 1000) end
local function time(us) return scaled(us, {"us", "ms", "s"}, 1000) end

local WIDEST = 44 -- characters of a column

local function cut(text)
  return #text > WIDEST and text:sub(1, WIDEST - 3) .. "..." or text
end

-- Columns as wide as their widest cells; the first `left` ones begin at the left.
local function table_of(rows, right)
  local width, lines = {}, {}
  for _, row in ipairs(rows) do
    for k, cell in ipairs(row) do width[k] = math.max(width[k] or 0, utf8.len(cell) or #cell) end
  end
  for i, row in ipairs(rows) do
    local cells = {}
    for k, cell in ipairs(row) do
      local space = (" "):rep(width[k] - (utf8.len(cell) or #cell))
      cells[k] = right[k] and space .. cell or cell .. space
    end
    lines[i] = table.concat(cells, "  "):gsub("%s+$", "")
  end
  return lines
end

local function kernel_lines(e)
  local rows = {{"#", "kernel", "operators", "lines", "shapes", "read", "written", "FLOP", "time",
                 "floor", "", "live"}}
  for i, k in ipairs(e.kernels) do
    rows[i + 1] = {tostring(i), k.kind, k.operators, cut(step.lines(k.launches)),
                   cut(k.shapes), bytes(k.read), bytes(k.written), flops(k.flops), time(k.time),
                   k.floor and time(k.floor) or "-",
                   k.ratio and ("%.0f%%"):format(100 * k.ratio) or "-", bytes(k.live)}
  end
  local right = {[1] = true}
  for k = 6, 12 do right[k] = true end
  return table_of(rows, right)
end

-- Numbers as "2-4, 7".
local function numbers_text(list)
  local parts, from = {}, nil
  for k, n in ipairs(list) do
    from = from or n
    if list[k + 1] ~= n + 1 then
      parts[#parts + 1] = from == n and tostring(n) or ("%d-%d"):format(from, n)
      from = nil
    end
  end
  return table.concat(parts, ", ")
end

-- Reasons, each with the kernels that it keeps apart.
local function apart_lines(e)
  local by, order = {}, {}
  for i, k in ipairs(e.kernels) do
    if k.apart then
      if not by[k.apart] then
        by[k.apart] = {}
        order[#order + 1] = k.apart
      end
      table.insert(by[k.apart], i)
    end
  end
  local rows = {}
  for k, why in ipairs(order) do rows[k] = {"  " .. numbers_text(by[why]), why} end
  return table_of(rows, {})
end

local function append(to, list) table.move(list, 1, #list, #to + 1, to) end

return function(e)
  local out = {("%d launches in %d kernel%s"):format(e.eager.launches, #e.kernels,
    #e.kernels == 1 and "" or "s")}
  append(out, kernel_lines(e))
  local apart = apart_lines(e)
  if apart[1] then
    out[#out + 1] = "why a kernel begins:"
    append(out, apart)
  end
  out[#out + 1] = ("memory: at most %s on %s, held by"):format(bytes(e.memory.peak),
    e.memory.device)
  for _, h in ipairs(e.memory.holders) do
    out[#out + 1] = ("  %9s  %s"):format(h.bytes, h.line)
  end
  append(out, table_of({
    {"", "kernels", "bytes", "kernel time", "call", "memory"},
    {"eager", tostring(e.eager.launches), bytes(e.eager.bytes), time(e.eager.time),
     time(e.eager.seconds * 1e6), bytes(e.eager.peak)},
    {"plan", tostring(#e.kernels), bytes(e.bytes), time(e.time), time(e.seconds * 1e6),
     bytes(e.memory.peak)},
  }, {false, true, true, true, true, true}))
  if e.off then out[#out + 1] = "flare.compile does not use this plan: " .. e.off end
  return table.concat(out, "\n")
end
