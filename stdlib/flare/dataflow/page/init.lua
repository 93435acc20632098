--- flare.dataflow.page: schedules and a machine as one HTML file, in which sliders change the
-- machine's figures. The browser simulates; nothing is loaded from elsewhere.
local core = require "flare.core"
local fail = require "flare.fail"
local machines = require "flare.dataflow.machine"
local make = require "flare.dataflow.make"
local options = require "flare.options"
local svg = require "flare.dataflow.svg"

local array = core.json.array

local function list(values) return array(values) end

-- A schedule as the page needs it: tasks with positions from 0 in place of names.
local function plain_schedule(label, s)
  local out = {label = label, name = s.name, devices = s.devices, tokens = s.info.tokens,
               tasks = list {}, streams = list {}, residents = list {}}
  for k, stream in ipairs(s.streams) do
    out.streams[k] = {device = stream.device, name = stream.name}
  end
  for k, b in ipairs(s.residents) do out.residents[k] = b end
  for i, t in ipairs(s.tasks) do
    local needs = list {}
    for k, needed in ipairs(t.after) do needs[k] = needed.index - 1 end
    local frees = list(table.move(t.frees, 1, #t.frees, 1, {}))
    out.tasks[i] = {name = t.name, device = t.device, stream = t.stream, of = t.of.number - 1,
      costs = list(table.move(t.costs, 1, #t.costs, 1, {})), transfer = t.transfer, link = t.link,
      to = t.to, again = t.again or nil, needs = needs, frees = frees,
      holds = list(table.move(t.holds, 1, #t.holds, 1, {}))}
  end
  return out
end

-- The machine's figures, with the share that each kind of operator reaches.
local function plain_machine(m, schedules)
  local share = {memory = m:share "memory", link = m:share "link", other = m:share "other"}
  local links = {}
  for _, s in ipairs(schedules) do
    for _, t in ipairs(s.tasks) do
      for _, cost in ipairs(t.costs) do
        if cost.kind then share[cost.kind] = m:share(cost.kind) end
        if (cost.flops or 0) > 0 then m:rate(cost.dtype or "f32") end
      end
      if t.link then m:link(t.link, t.name) end
    end
  end
  for name, link in pairs(m.links) do links[name] = link end
  local host = {rate = m.host.rate, bytes = m.host.bytes < math.huge and m.host.bytes or nil}
  return {name = m.name, source = m.source, measured = m.measured, peak = m.peak,
    memory = m.memory, host = host, links = links, power = m.power, latency = m.latency,
    matrix = m.matrix, node = m.node, share = share}
end

-- JSON inside of a script: "</script>" must not end it.
local function embedded(value) return (core.json.encode(value):gsub("</", "<\\/")) end

local M = {}

--- Schedules on a machine as one file of HTML with sliders for the machine's figures, a timeline
-- and a curve over the figure that was moved last. It computes the numbers of flare.simulate.
-- @param schedules a schedule, or a list of {label, schedule} to choose from
-- @param machine a name, a table or a Machine
-- @param opts {title = the first schedule's name, command = "flare simulate ...": shown with the
--   options that the sliders stand for}
-- @return the text of the page
function M.page(schedules, machine, opts)
  local o = options.check("dataflow.page", opts, {title = options.none, command = ""})
  local variants = {}
  if type(schedules) ~= "table" then
    fail("dataflow.page: a schedule or a list of {label, schedule} is expected, got %s",
      options.kind(schedules))
  end
  if getmetatable(schedules) or schedules.tasks then schedules = {{"", schedules}} end
  local made = {}
  for k, pair in ipairs(schedules) do
    if type(pair) ~= "table" or type(pair[1]) ~= "string" then
      fail("dataflow.page: schedules[%d] must be {label, schedule}", k)
    end
    made[k] = make.schedule(pair[2])
    variants[k] = plain_schedule(pair[1], made[k])
  end
  if not made[1] then fail "dataflow.page: there is no schedule" end
  local data = {machine = plain_machine(machines.machine(machine), made),
    schedules = list(variants), title = o.title or made[1].name, command = o.command}
  local view = require "flare.dataflow.page.view"
  return (view.html:gsub("@(%u+)@", {
    TITLE = svg.escape(data.title), STYLE = view.style, DATA = embedded(data),
    SIMULATOR = require "flare.dataflow.page.script", VIEW = view.script,
  }))
end

return M
