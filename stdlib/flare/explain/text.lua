--- An explanation of a plan as text: a line for each kernel, what is not fused and why, memory, and
-- sums.
local step = require "flare.profile.step"
local units = require "flare.explain.units"

local bytes, flops, time = units.bytes, units.flops, units.time

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
  local rows = {{"#", "kernel", "operators", "lines", "shapes", "read", "written", "kept",
                 "FLOP", "time", "floor", "", "live"}}
  for i, k in ipairs(e.kernels) do
    rows[i + 1] = {tostring(i), k.kind, k.operators, cut(step.lines(k.launches)),
                   cut(k.shapes), bytes(k.read), bytes(k.written), bytes(k.kept), flops(k.flops),
                   time(k.time), k.floor and time(k.floor) or "-",
                   k.ratio and ("%.0f%%"):format(100 * k.ratio) or "-", bytes(k.live)}
  end
  local right = {[1] = true}
  for k = 6, 13 do right[k] = true end
  return table_of(rows, right)
end

-- Reasons, each with the kernels that it keeps apart: "3 (2)" is kernel 3, apart from kernel 2.
local function apart_lines(e)
  local by, lines = {}, {}
  for i, k in ipairs(e.kernels) do
    local list = by[k.why]
    if not list then
      list = {}
      by[k.why], by[#by + 1] = list, {why = k.why, list = list}
    end
    list[#list + 1] = k.from and ("%d (%d)"):format(i, k.from) or tostring(i)
  end
  for n, x in ipairs(by) do
    lines[n] = ("  %s: %s"):format(x.why:gsub("%%d", "(n)"), table.concat(x.list, ", "))
  end
  return lines
end

-- Operators that kernels compute again, with the numbers of these.
local function again_text(e)
  local parts = {}
  for i, k in ipairs(e.kernels) do
    local list = {}
    for _, x in ipairs(k.launches) do
      if x.again then list[#list + 1] = x end
    end
    if list[1] then parts[#parts + 1] = ("%s in %d"):format(step.operators(list), i) end
  end
  return table.concat(parts, ", ")
end

local function memory_lines(e)
  local m, lines = e.memory, {}
  local at = m.kernel and e.kernels[m.kernel]
  lines[1] = ("memory: at most %s on %s"):format(bytes(m.peak), m.device)
  if at then
    lines[1] = lines[1] .. (", at kernel %d (%s)%s"):format(m.kernel, at.operators,
      at.peak > at.live and (": %s in tensors, %s for the time of a kernel"):format(
        bytes(at.live), bytes(at.peak - at.live)) or "")
  end
  if m.holders[1] then lines[2] = "most tensors are held by" end
  for _, h in ipairs(m.holders) do
    lines[#lines + 1] = ("  %9s  %s"):format(h.bytes, h.line)
  end
  return lines
end

local function append(to, list) table.move(list, 1, #list, #to + 1, to) end

return function(e)
  local n = #e.kernels
  local out = {("%d launches in %d kernel%s"):format(e.launches, n, n == 1 and "" or "s")}
  if (e.dropped or 0) > 0 then
    out[1] = ("%s; %d more do not run: nothing reads their results, or they repeat others"):format(
      out[1], e.dropped)
  end
  if n > 0 then
    append(out, kernel_lines(e))
    out[#out + 1] = "why a kernel is not part of an earlier one, (n):"
  end
  append(out, apart_lines(e))
  local again = again_text(e)
  if again ~= "" then out[#out + 1] = "computed again instead of read: " .. again end
  append(out, memory_lines(e))
  append(out, table_of({
    {"", "kernels", "bytes", "kernel time", "call", "memory"},
    {"eager", tostring(e.eager.launches), bytes(e.eager.bytes), time(e.eager.time),
     time(e.eager.seconds * 1e6), bytes(e.eager.peak)},
    {"plan", tostring(n), bytes(e.bytes), time(e.time), time(e.seconds * 1e6),
     bytes(e.memory.peak)},
  }, {false, true, true, true, true, true}))
  if n > 0 then
    out[#out + 1] = e.off and "flare.compile does not use this plan: " .. e.off
      or "flare.compile uses this plan"
  end
  return table.concat(out, "\n")
end
