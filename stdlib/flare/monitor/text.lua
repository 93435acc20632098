--- Figures of a monitor as lines of text: a line for each source.
local M = {}

local sizes = {{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

local function bytes(n)
  for _, unit in ipairs(sizes) do
    if n >= unit[2] then return ("%.1f %s"):format(n / unit[2], unit[1]) end
  end
  return ("%.0f B"):format(n)
end

-- A bar of `width` characters for a share from 0 to 1.
local function bar(share, width)
  local full = math.floor(math.min(math.max(share, 0), 1) * width + 0.5)
  return "[" .. ("|"):rep(full) .. (" "):rep(width - full) .. "]"
end

-- What is shown of a figure, by the name behind its source, in this order.
local shown = {
  {"cpu", function(x) return ("cpu %3.0f %%"):format(100 * x) end, 1},
  {"cores", function(x) return ("%.2f cores"):format(x) end},
  {"utilisation", function(x) return ("use %3.0f %%"):format(100 * x) end, 1},
  {"memory", function(x, total)
    return "memory " .. bytes(x) .. (total and " of " .. bytes(total) or "")
  end},
  {"temperature", function(x) return ("%.0f °C"):format(x) end},
  {"power", function(x) return ("%.1f W"):format(x) end},
  {"clock", function(x) return ("%.0f MHz"):format(x) end},
  {"memory_clock", function(x) return ("memory %.0f MHz"):format(x) end},
}

-- The sources of a sample: the host, the process, GPUs in their order.
local function sources(sample)
  local seen, list = {}, {}
  for name in pairs(sample) do
    local source = name:match "^(.-)/"
    if source and not seen[source] then
      seen[source] = true
      list[#list + 1] = source
    end
  end
  local function rank(source)
    local number = source:match "^cuda:(%d+)$"
    return source == "host" and -2 or source == "process" and -1 or number and tonumber(number)
      or math.huge
  end
  table.sort(list, function(a, b)
    if rank(a) ~= rank(b) then return rank(a) < rank(b) end
    return a < b
  end)
  return list
end

--- A line for each source of a sample, or of figures from a metrics file.
-- @param sample a table such as {["host/cpu"] = 0.5, ["cuda:0/power"] = 412}
-- @param gpus nil, or a list of {device =, name =}, whose names are shown
-- @param width nil, or characters of a bar of the use
function M.lines(sample, gpus, width)
  local names, lines = {}, {}
  for _, gpu in ipairs(gpus or {}) do names[gpu.device] = gpu.name end
  for _, source in ipairs(sources(sample)) do
    local parts = {}
    for _, s in ipairs(shown) do
      local x = tonumber(sample[source .. "/" .. s[1]])
      if x then
        if width and s[3] then parts[#parts + 1] = bar(x, width) end
        parts[#parts + 1] = s[2](x, tonumber(sample[source .. "/" .. s[1] .. "_total"]))
      end
    end
    if names[source] then parts[#parts + 1] = names[source] end
    if parts[1] then lines[#lines + 1] = ("%-8s "):format(source) .. table.concat(parts, "  ") end
  end
  return lines
end

return M
