--- A simulation in Chrome's trace event format, which Perfetto reads: a process for each device, a
-- thread for each stream, a counter for the memory of each place.
local core = require "flare.core"

local function quoted(text)
  return '"' .. text:gsub('[%c"\\]', function(c) return ("\\u%04x"):format(c:byte()) end) .. '"'
end

return function(s)
  local parts, threads = {}, {}
  for n, stream in ipairs(s.streams) do
    threads[stream.device .. " " .. stream.name] = n
    parts[#parts + 1] = ('{"name":"thread_name","ph":"M","pid":%d,"tid":%d,"args":{"name":%s}}')
      :format(stream.device, n, quoted(stream.name))
  end
  for d = 1, #s.devices do
    parts[#parts + 1] = ('{"name":"process_name","ph":"M","pid":%d,"args":{"name":"device %d"}}')
      :format(d, d)
  end
  for _, t in ipairs(s.tasks) do
    parts[#parts + 1] = core.format('{"name":%s,"cat":%s,"ph":"X","pid":%d,"tid":%d,"ts":%.3f,'
      .. '"dur":%.3f,"args":{"flops":%.0f,"bytes":%.0f,"bound":%s,"waited":%.3f}}', quoted(t.name),
      quoted(t.stream), t.device, threads[t.device .. " " .. t.stream], t.start * 1e6,
      (t.stop - t.start) * 1e6, t.flops, t.transfer or 0, quoted(t.bound or ""),
      (t.start - t.ready) * 1e6)
  end
  for _, place in ipairs(s.places) do
    local number = place.name:match "^device (%d+)$"
    for _, step in ipairs(s.memory[place.name]) do
      parts[#parts + 1] = core.format('{"name":%s,"ph":"C","pid":%d,"ts":%.3f,"args":'
        .. '{"bytes":%.0f}}', quoted("memory of " .. place.name), number and tonumber(number) or 0,
        step[1] * 1e6, step[2])
    end
  end
  return '{"traceEvents":[\n' .. table.concat(parts, ",\n") .. "\n]}\n"
end
