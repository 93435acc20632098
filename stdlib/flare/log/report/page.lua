--- The HTML of a report: sections of tables and inline SVG, without scripts.
local core = require "flare.core"
local base64 = require "flare.base64".encode
local escape = require "flare.escape"
local svg = require "flare.log.svg"

local head = [=[
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>@TITLE@</title>
<style>
body { font: 14px/1.4 system-ui, sans-serif; margin: 20px auto; max-width: 1000px; padding: 0 12px;
  color: #222; background: #fff; }
h1 { font-size: 20px; margin: 0 0 4px; }
h2 { font-size: 16px; margin: 28px 0 8px; border-bottom: 1px solid #ddd; }
h3 { font-size: 14px; margin: 16px 0 4px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: 2px 14px 2px 0; text-align: left; vertical-align: top; }
td.n, th.n { text-align: right; }
td { white-space: pre-line; }
th { color: #555; font-weight: normal; }
pre { background: #f6f6f4; padding: 8px; overflow-x: auto; white-space: pre-wrap; }
.error { color: #b91c1c; }
.charts { display: flex; flex-wrap: wrap; gap: 12px; }
svg, img { max-width: 100%; height: auto; }
p.note { color: #555; margin: 4px 0; }
</style>
</head>
<body>
]=]

local function number(x) return core.format("%.4g", x) end

-- A table: names of columns, or nil, and rows of texts; columns from the second on are numbers
-- where `numbers` says so.
local function table_of(columns, rows, numbers)
  local out = {"<table>"}
  local function line(cells, tag)
    local parts = {}
    for k, cell in ipairs(cells) do
      parts[k] = ("<%s%s>%s</%s>"):format(tag, numbers and k > 1 and ' class="n"' or "",
                                          escape(cell), tag)
    end
    out[#out + 1] = "<tr>" .. table.concat(parts) .. "</tr>"
  end
  if columns then line(columns, "th") end
  for _, row in ipairs(rows) do line(row, "td") end
  out[#out + 1] = "</table>"
  return table.concat(out, "\n")
end

local function charts(list)
  local out = {'<div class="charts">'}
  for _, c in ipairs(list) do
    out[#out + 1] = svg(c.series, {title = c.title, xlabel = c.xlabel or "step", width = 480,
                                   height = 260})
  end
  out[#out + 1] = "</div>"
  return table.concat(out, "\n")
end

-- --- sections: nil where there is nothing to show ---

local function duration(s)
  return s < 60 and core.format("%.1f s", s)
    or ("%d:%02d:%02d"):format(s // 3600, s // 60 % 60, math.floor(s % 60))
end

local function summary(r)
  local rows = {{"begun", r.date}, {"time", duration(r.seconds)}}
  for _, name in ipairs(r.names) do
    local s = r.series[name]
    if name:find "loss" and #s.y > 0 then
      local least = math.huge
      for _, y in ipairs(s.y) do least = math.min(least, y) end
      rows[#rows + 1] = {name, ("%s at the end, %s at least"):format(number(s.y[#s.y]),
                                                                     number(least))}
    end
  end
  if r.energy then rows[#rows + 1] = {"energy", number(r.energy) .. " J"} end
  return table_of(nil, rows)
end

local function configuration(r)
  local names, rows = {}, {{"flare", core.version}, {"devices", table.concat(core.devices(), ", ")},
                           {"threads", tostring(core.threads())}}
  for _, gpu in ipairs(r.gpus) do rows[#rows + 1] = {gpu.device, gpu.name} end
  for name in pairs(r.configuration) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    rows[#rows + 1] = {name, tostring(r.configuration[name])}
  end
  return table_of(nil, rows)
end

local function curves(r)
  local names, losses, list = {}, {}, {}
  for _, name in ipairs(r.names) do
    if name:find "loss" then
      losses[#losses + 1] = r.series[name]
    elseif not name:find "^host/" and not name:find "^process/" and not name:find "^cuda:" then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  table.sort(losses, function(a, b) return a.name < b.name end)
  if losses[1] then list[1] = {title = "loss", series = losses} end
  for _, name in ipairs(names) do
    list[#list + 1] = {title = name, series = {r.series[name]}}
  end
  return list[1] and charts(list)
end

local function samples(r)
  local out = {}
  for k, s in ipairs(r.samples) do
    local title = escape(s.name) .. (s.step and (", step %s"):format(escape(s.step)) or "")
    out[k] = "<h3>" .. title .. "</h3>\n" .. (s.text and "<pre>" .. escape(s.text) .. "</pre>"
      or ('<img alt="%s" src="data:image/png;base64,%s">'):format(title, base64(s.png)))
  end
  return out[1] and table.concat(out, "\n")
end

local function profile(r)
  local p, out = r.profile, {}
  if not p or p.count == 0 then return nil end
  for _, by in ipairs {"line", "module", "op"} do
    local list, rows, whole = p:sums(by), {}, 0
    for _, s in ipairs(list) do whole = whole + s.time end
    for k = 1, math.min(#list, 12) do
      local s = list[k]
      rows[k] = {s.name, tostring(s.calls), core.format("%.2f", s.time / 1e3),
                 core.format("%.1f %%", whole > 0 and 100 * s.time / whole or 0),
                 s.energy and number(s.energy * 1e-6)}
    end
    out[#out + 1] = table_of({by, "calls", "time in ms", "share", p.energy and "energy in J"}, rows,
                             true)
    if #list > 12 then
      out[#out + 1] = ('<p class="note">... and %d more</p>'):format(#list - 12)
    end
  end
  if p.lost > 0 then
    out[#out + 1] = ('<p class="note">of the first %d launches; %d more were not kept</p>')
      :format(p.count, p.lost)
  end
  if p.energy then
    out[#out + 1] = '<p class="note">Energy is divided in proportion to time.</p>'
  end
  return table.concat(out, "\n<br>\n")
end

local function memory(r)
  local rows = {}
  for _, peak in ipairs(r.profile and r.profile.peaks or {}) do
    rows[#rows + 1] = {peak.device, core.format("%.2f MiB", peak.bytes / (1 << 20)), peak.holders}
  end
  return rows[1] and table_of({"device", "in tensors at most", "held by"}, rows)
end

-- Figures of the machine by their ends, with the factor of what is shown.
local kinds = {
  {"use in percent", 100, {"cpu", "utilisation"}}, {"memory in GiB", 1 / (1 << 30), {"memory"}},
  {"power in W", 1, {"power"}}, {"temperature in °C", 1, {"temperature"}},
  {"clocks in MHz", 1, {"clock", "memory_clock"}},
}

local function machine_series(r, factor, ends)
  local by, list = {}, {}
  for _, sample in ipairs(r.machine) do
    for name, y in pairs(sample) do
      local last = name:match "/(.*)$"
      if last == ends[1] or last and last == ends[2] then
        local s = by[name]
        if not s then
          local source = name:match "^(.*)/"
          s = {name = last == "memory_clock" and source .. " memory" or source, x = {}, y = {}}
          by[name], list[#list + 1] = s, s
        end
        s.x[#s.x + 1], s.y[#s.y + 1] = sample.time - r.began, y * factor
      end
    end
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

local function machine(r)
  local list, out = {}, {}
  for _, kind in ipairs(kinds) do
    local series = machine_series(r, kind[2], kind[3])
    if series[1] then
      list[#list + 1] = {title = kind[1], series = series, xlabel = "seconds"}
    end
  end
  if list[1] then out[1] = charts(list) end
  if r.energy then
    local rows = {}
    for source, joules in pairs(r.sources) do rows[#rows + 1] = {source, number(joules)} end
    table.sort(rows, function(a, b) return a[1] < b[1] end)
    rows[#rows + 1] = {"in all", number(r.energy)}
    out[#out + 1] = table_of({"source", "joules"}, rows, true)
  end
  for _, text in ipairs(r.missing) do
    out[#out + 1] = '<p class="note">' .. escape(text) .. "</p>"
  end
  return table.concat(out, "\n")
end

local function output(r)
  return r.output[1] and "<pre>" .. escape(table.concat(r.output, "\n")) .. "</pre>"
end

--- The page of a report whose collection has ended.
return function(r, problem)
  local title = escape(r.title ~= "" and r.title or "A run of flare")
  local out = {(head:gsub("@TITLE@", function() return title end)), "<h1>" .. title .. "</h1>"}
  if problem then
    out[#out + 1] = '<pre class="error">' .. escape(problem) .. "</pre>"
  end
  for _, section in ipairs {{"Summary", summary}, {"Curves", curves}, {"Samples", samples},
    {"Time", profile}, {"Memory", memory}, {"Machine and energy", machine},
    {"Configuration", configuration}, {"Output", output}} do
    local text = section[2](r)
    if text and text ~= "" then
      out[#out + 1] = ('<h2 id="%s">%s</h2>'):format(section[1]:match "^%a+":lower(), section[1])
      out[#out + 1] = text
    end
  end
  out[#out + 1] = "</body>\n</html>\n"
  return table.concat(out, "\n")
end
