--- The graph behind a tensor as a picture: x:graph{as = "svg"}, x:graph{path = "graph.dot"}.
local core = require "flare.core"
local escape = require "flare.escape"
local fail = require "flare.fail"
local options = require "flare.options"

local M = {}

-- The lines of core's text as nodes: {key =, label =, note =, inputs = keys}; the first is that of
-- the tensor itself. Leaves are nodes, too.
local function read(text, names, id)
  local nodes, by_key = {}, {}
  local function node(key, label, note)
    local one = by_key[key] or {key = key, inputs = {}, readers = {}}
    if not by_key[key] then
      by_key[key] = one
      nodes[#nodes + 1] = one
    end
    if label then one.label, one.note = label, note end
    return one
  end
  for line in text:gmatch "[^\n]+" do
    local seq, name, shape, site, saves, inputs =
      line:match "^#(%d+) (.-) (%([%d, ]*%)) (.-) saves (%d+):(.*)$"
    local one = node("n" .. seq, ("%s %s"):format(name, shape),
                     saves == "0" and site or ("%s, saves %s"):format(site, saves))
    one.is_operator = true
    for kind, number in inputs:gmatch " (%a*) ?#?(%d+)" do
      local key = (kind == "leaf" and "l" or "n") .. number
      one.inputs[#one.inputs + 1] = key
      local inner = node(key)
      inner.readers[#inner.readers + 1] = one.key
      if kind == "leaf" then inner.label = names[math.tointeger(number)] or "leaf " .. number end
    end
  end
  if not nodes[1] then node("l" .. id, names[id] or "leaf " .. id) end
  for _, one in ipairs(nodes) do one.label = one.label or "..." end -- beyond `most`
  return nodes, by_key
end

-- How far each node is from the first one, by the longest way: no node is beside its input.
local function rank(nodes, by_key)
  local left, ready = {}, {}
  for _, one in ipairs(nodes) do
    one.row, left[one.key] = 0, #one.readers
    if #one.readers == 0 then ready[#ready + 1] = one end
  end
  while ready[1] do
    local one = table.remove(ready)
    for _, key in ipairs(one.inputs) do
      local inner = by_key[key]
      inner.row = math.max(inner.row, one.row + 1)
      left[key] = left[key] - 1
      if left[key] == 0 then ready[#ready + 1] = inner end
    end
  end
end

local HEIGHT, GAP, STEP = 34, 18, 70

-- Puts the nodes of a row side by side: those with the same readers around the middle of these, as
-- far as the row has room.
local function place_row(row, by_key)
  for i, one in ipairs(row) do
    local sum = 0
    for _, key in ipairs(one.readers) do sum = sum + by_key[key].x end
    one.wish, one.order = #one.readers > 0 and sum / #one.readers or 0, i
  end
  table.sort(row, function(a, b)
    return a.wish < b.wish or a.wish == b.wish and a.order < b.order
  end)
  local free, first = -math.huge, 1
  while row[first] do
    local last, width = first, row[first].width
    while row[last + 1] and row[last + 1].wish == row[first].wish do
      last = last + 1
      width = width + GAP + row[last].width
    end
    local x = math.max(free, row[first].wish - width / 2)
    for i = first, last do
      row[i].x = x + row[i].width / 2
      x = x + row[i].width + GAP
    end
    free, first = x, last + 1
  end
end

-- The places of the nodes: rows, with the inputs above.
-- @return the width and the height of all
local function place(nodes, by_key)
  rank(nodes, by_key)
  local rows, last = {}, 0
  for _, one in ipairs(nodes) do
    rows[one.row] = rows[one.row] or {}
    table.insert(rows[one.row], one)
    last = math.max(last, one.row)
    one.width = 16 + 7 * math.max(#one.label, one.note and math.ceil(#one.note * 0.9) or 0)
  end
  for row = 0, last do place_row(rows[row], by_key) end
  local left, right = math.huge, -math.huge
  for _, one in ipairs(nodes) do
    left, right = math.min(left, one.x - one.width / 2), math.max(right, one.x + one.width / 2)
  end
  for _, one in ipairs(nodes) do
    one.x, one.y = one.x - left, (last - one.row) * STEP + HEIGHT / 2
  end
  return right - left, last * STEP + HEIGHT
end

local function svg(nodes, by_key)
  local width, height = place(nodes, by_key)
  local out = {}
  local function put(format, ...) out[#out + 1] = core.format(format, ...) end
  put('<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 %.0f %.0f" width="%.0f" '
      .. 'height="%.0f" font-family="monospace" font-size="12" text-anchor="middle">\n',
      width + 20, height + 20, width + 20, height + 20)
  for _, one in ipairs(nodes) do
    for _, key in ipairs(one.inputs) do
      local from = by_key[key]
      put('<path d="M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f" fill="none" stroke="#94a3b8"/>\n',
          from.x, from.y + HEIGHT / 2, from.x, from.y + STEP / 2 + 4, one.x, one.y - STEP / 2 - 4,
          one.x, one.y - HEIGHT / 2)
    end
  end
  for _, one in ipairs(nodes) do
    put('<rect x="%.1f" y="%.1f" width="%.1f" height="%d" rx="5" fill="%s" stroke="#475569"/>\n',
        one.x - one.width / 2, one.y - HEIGHT / 2, one.width, HEIGHT,
        one.is_operator and "#ffffff" or "#dbeafe")
    put('<text x="%.1f" y="%.1f">%s</text>\n', one.x, one.y + (one.note and -2 or 4),
        escape(one.label))
    if one.note then
      put('<text x="%.1f" y="%.1f" font-size="10" fill="#64748b">%s</text>\n', one.x, one.y + 11,
          escape(one.note))
    end
  end
  out[#out + 1] = "</svg>\n"
  return table.concat(out)
end

local function dot(nodes)
  local out = {"digraph tape {\n  node [shape=box, fontname=monospace];\n"}
  local function quoted(text) return '"' .. text:gsub('[\\"]', "\\%0") .. '"' end
  for _, one in ipairs(nodes) do
    local label = quoted(one.note and one.label .. "\n" .. one.note or one.label)
    out[#out + 1] = ("  %s [label=%s%s];\n"):format(one.key, label:gsub("\n", "\\n"),
      one.is_operator and "" or ", style=filled, fillcolor=\"#dbeafe\"")
    for _, key in ipairs(one.inputs) do
      out[#out + 1] = ("  %s -> %s;\n"):format(key, one.key)
    end
  end
  out[#out + 1] = "}\n"
  return table.concat(out)
end

--- The graph behind a tensor.
-- @param o {as = "text", "dot" or "svg"; path = a file to write, whose extension says it, too;
-- most = 200 operators; model = a module, whose parameters are shown by their names}
-- @return the text; with `path` true, or nil and a message
function M.graph(x, o)
  o = options.check("graph", o, {as = options.none, path = options.none, most = 200,
                                 model = options.none})
  local as = o.as or o.path and o.path:match "%.(%w+)$" or "text"
  if as ~= "text" and as ~= "txt" and as ~= "dot" and as ~= "svg" then
    fail('graph: as is "text", "dot" or "svg", not "%s"', as)
  end
  local text = x:graph(o.most)
  if as == "dot" or as == "svg" then
    local names = {}
    if o.model then
      for name, parameter in o.model:named_parameters() do
        names[parameter.id] = ("%s %s"):format(name, parameter.shape)
      end
    end
    local nodes, by_key = read(text, names, x.id)
    text = as == "svg" and svg(nodes, by_key) or dot(nodes)
  end
  if not o.path then return text end
  return core.file.write_atomic(o.path, text)
end

return M
