--- Control flow: graphs inside of graphs.
local core = require "flare.core"
local graph = require "flare.onnx.graph"

local M = {}

local function truth(n, x)
  local value = n:number(x)
  return value ~= false and value ~= 0
end

function M.If(n, condition)
  local branch = truth(n, condition) and n.attr.then_branch or n.attr.else_branch
  return table.unpack(graph.call(branch, n.env, {}), 1, #branch.outputs)
end

-- Results of all rounds along a new dim.
local function stacked(parts, dim, n)
  if #parts == 0 then return core.zeros({0}, {device = n.device}) end
  return core.stack(parts, dim or 1)
end

function M.Loop(n, trips, condition, ...)
  local body, state = n.attr.body, {...}
  local carried = #body.inputs - 2
  local most = trips and n:number(trips) or math.maxinteger
  local go = condition == nil or truth(n, condition)
  local scans, round = {}, 0
  for k = carried + 2, #body.outputs do scans[k - carried - 1] = {} end
  while go and round < most do
    local number = core.tensor(round, {dtype = "i64"}):to(n.device)
    local yes = core.tensor(true, {dtype = "bool"}):to(n.device)
    local results = graph.call(body, n.env, {number, yes, table.unpack(state, 1, carried)})
    go = truth(n, results[1])
    state = table.move(results, 2, carried + 1, 1, {})
    for k, list in ipairs(scans) do list[#list + 1] = results[carried + 1 + k] end
    round = round + 1
  end
  for k, list in ipairs(scans) do state[carried + k] = stacked(list, 1, n) end
  return table.unpack(state, 1, carried + #scans)
end

-- Runs the body along the scanned inputs; `o` has axes and directions for inputs and outputs.
local function scan(n, state, inputs, o)
  local body, scans, length = n.attr.body, {}, nil
  for k = #state + 1, #body.outputs do scans[k - #state] = {} end
  local dims = {}
  for k, x in ipairs(inputs) do
    dims[k] = n:axis(o.in_axes[k] or 0, x:dim())
    length = length or x.shape[dims[k]]
  end
  length = o.length or length
  for t = 1, length do
    local values = table.move(state, 1, #state, 1, {})
    for k, x in ipairs(inputs) do
      values[#state + k] = x:select(dims[k], o.in_ways[k] == 1 and length + 1 - t or t)
    end
    local results = graph.call(body, n.env, values)
    state = table.move(results, 1, #state, 1, {})
    for k, list in ipairs(scans) do
      table.insert(list, o.out_ways[k] == 1 and 1 or #list + 1, results[#state + k])
    end
  end
  local results = state
  local states = #state
  for k, list in ipairs(scans) do
    local rank = list[1] and list[1]:dim() + 1 or 1
    results[states + k] = stacked(list, n:axis(o.out_axes[k] or 0, rank), n)
  end
  return results
end

-- Version 8 had a batch in front of everything, and lengths.
local function scan_batch(n, lengths, ...)
  local values, count = {...}, n.attr.num_scan_inputs
  local states = #values - count
  local sizes, batch = n:list(lengths), values[#values].shape[1]
  local rows = {}
  for b = 1, batch do
    local state, inputs = {}, {}
    for k, x in ipairs(values) do
      if k <= states then state[k] = x:select(1, b) else inputs[k - states] = x:select(1, b) end
    end
    local full = inputs[1].shape[1]
    local row = scan(n, state, inputs, {in_axes = {}, in_ways = n.attr.directions or {},
                                        out_axes = {}, out_ways = {}, length = sizes and sizes[b]})
    for k = states + 1, #row do
      local pads = {}
      for _ = 2, row[k]:dim() do pads[#pads + 1], pads[#pads + 2] = 0, 0 end
      pads[#pads + 1], pads[#pads + 2] = 0, full - row[k].shape[1]
      row[k] = row[k]:pad(pads)
    end
    for k, x in ipairs(row) do
      rows[k] = rows[k] or {}
      rows[k][b] = x
    end
  end
  local results = {}
  for k, list in ipairs(rows) do results[k] = core.stack(list, 1) end
  return table.unpack(results)
end

function M.Scan(n, ...)
  if (n.version or 9) < 9 then return scan_batch(n, ...) end
  local values, a = {...}, n.attr
  local states = #values - a.num_scan_inputs
  local results = scan(n, table.move(values, 1, states, 1, {}),
                       table.move(values, states + 1, #values, 1, {}), {
    in_axes = a.scan_input_axes or {}, in_ways = a.scan_input_directions or {},
    out_axes = a.scan_output_axes or {}, out_ways = a.scan_output_directions or {},
  })
  return table.unpack(results)
end

return M
