--- A profile in Chrome's trace event format, which Perfetto reads as well: tracks of launches for
-- the host and for each device, with modules around them.
local core = require "flare.core"

-- Strings inside JSON.
local function quoted(text) return '"' .. text:gsub('[%c"\\]', function(c)
  return ("\\u%04x"):format(c:byte())
end) .. '"' end

-- The rows to show: all, or the longest `most` of them in their order.
local function chosen(report, most)
  if report.count <= most then return nil end
  local times = {}
  for i = 1, report.count do times[i] = report:row(i).device_time end
  table.sort(times, function(a, b) return a > b end)
  local least, above = times[most], 0
  for i = 1, most do if times[i] > least then above = above + 1 end end
  return least, most - above -- of those that take exactly that long, so many
end

local function gzip(text)
  local packed, crc = core.deflate(text)
  if not packed then return nil, crc end -- the message
  return "\31\139\8\0\0\0\0\0\0\255" .. packed .. string.pack("<I4I4", crc, #text & 0xffffffff)
end

--- Writes it, compressed where the path ends in .gz.
-- @param most the largest number of launches to write; the shortest are left out
-- @return true, or nil and a message
return function(report, path, most)
  local parts, threads, order = {}, {}, {}
  local least, ties = chosen(report, most)
  local function thread(name)
    if not threads[name] then
      order[#order + 1] = name
      threads[name] = #order
    end
    return threads[name]
  end
  local function event(r, name, on, start, time)
    parts[#parts + 1] = core.format(
      '{"name":%s,"cat":"%s","ph":"X","pid":1,"tid":%d,"ts":%.3f,"dur":%.3f,'
      .. '"args":{"line":%s,"module":%s,"flops":%.0f,"bytes":%.0f}}', quoted(name),
      r.transfer and "transfer" or r.backward and "backward" or "forward",
      thread(on), start, time, quoted(r.line), quoted(r.module), r.flops, r.bytes)
  end
  for i = 1, report.count do
    local r = report:row(i)
    local keep = not least or r.device_time > least
    if not keep and r.device_time == least and ties > 0 then keep, ties = true, ties - 1 end
    if keep then
      local name = r.op .. (r.backward and " (backward)" or "")
      event(r, name, "host", r.start, r.host)
      if r.device ~= "cpu" then event(r, name, r.device, r.device_start, r.device_time) end
    end
  end
  for id, name in ipairs(order) do
    parts[#parts + 1] = ('{"name":"thread_name","ph":"M","pid":1,"tid":%d,"args":{"name":%s}}')
      :format(id, quoted(name))
  end
  local text = '{"traceEvents":[\n' .. table.concat(parts, ",\n") .. "\n]}\n"
  if path:find "%.gz$" then
    local packed, message = gzip(text)
    if not packed then return nil, ("%s: %s"):format(path, message) end
    text = packed
  end
  return core.file.write_atomic(path, text)
end
