--- Attaches many times to a job that trains: for spec/attach_spec.lua and spec/long/attach.lua.
local Wire = require "flare.repl.dap.wire"
local alert = require "flare.repl.alert"
local attach = require "flare.repl.attach"
local core = require "flare.core"
local launch = require "spec.support.launch"
local tree = require "spec.support.tree"

local M = {}

-- Trains until `last` is set on a rank, or so many steps; prints what was trained.
local training = [[
local nn = flare.nn
local most, last, step = tonumber(arg[1]), false, 0
flare.manual_seed(3)
local model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 4))
local optimizer = flare.optim.AdamW(model, {lr = 1e-3})
local parallel = dist.DataParallel(model)
flare.manual_seed(10 + rank)
if rank == 0 then
  local file <close> = assert(io.open("started", "w"))
end
while step < most do
  local loss = parallel(flare.randn(32, 16)):square():mean()
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  step = step + 1
  local ends = dist.all_reduce(flare.tensor{last and 1 or 0}, {reduce = "max"})
  if ends:item() > 0 then break end
end
local text = {}
for _, p in ipairs(model:parameters()) do text[#text + 1] = p:detach():bytes() end
local seed, offset = flare.default_generator():state()
print(("%d %s %d %d"):format(step, flare.core.xxh64(table.concat(text)), seed, offset))
]]

-- What the ranks of an ended job printed, without their order.
local function results(folder)
  local lines = {}
  for rank = 0, M.ranks - 1 do
    lines[rank + 1] = launch.read(folder, ("logs/rank-%d.log"):format(rank))
  end
  return table.concat(lines)
end

M.ranks = 4

-- Connections to the ranks of a launcher.
local function connect(launcher)
  local children = core.file.read(("/proc/%d/task/%d/children"):format(launcher, launcher)) or ""
  local wires = {}
  for pid in children:gmatch "%d+" do
    local file = alert.connect((attach.path(math.tointeger(pid))))
    wires[#wires + 1] = file and Wire.new(file)
  end
  return wires
end

-- Asks all ranks to stop, runs a line in the first that does, and lets all go on.
-- @return what the line printed, or nil if no rank listens
local function visit(launcher, line)
  local wires, files, ready = connect(launcher), {}, nil
  if #wires == 0 then return nil end
  for k, wire in ipairs(wires) do
    files[k] = wire.reads
    wire:send {stop = true}
  end
  local printed, ended = {}, false
  while not ended do
    core.net.poll(files, {}, 1000)
    for _, wire in ipairs(wires) do
      local message, over = wire:receive()
      ended = ended or over
      while message do
        if message.output and wire == ready then printed[#printed + 1] = message.output end
        if message.ready and not ready then
          ready = wire
          wire:send {line = line}
        elseif message.ready and wire == ready then
          ended = true
        end
        message = wire:receive()
      end
    end
  end
  for _, wire in ipairs(wires) do core.net.close(wire.reads) end
  return table.concat(printed)
end

--- Attaches to a job of four ranks at so many of its steps while it trains, then ends it, and runs
-- as many steps undisturbed.
-- @return what the ranks of the disturbed and of the undisturbed job ended with, how many steps,
--   the steps at which it was looked at, a list, and how often it was stopped
function M.campaign(times)
  local folder = launch.folder(training)
  local start = ("cd %s; exec %s launch --logs logs -n %d script.lua "):format(folder,
    launch.program, M.ranks)
  local job = assert(io.popen("echo $$; " .. start .. "1e9 2>&1"))
  local launcher = job:read "n"
  while not tree.exists(folder .. "/started") do os.execute "sleep 0.05" end
  local seen, visits = {}, 0
  while #seen < times do
    local text = assert(visit(launcher, "'step', step"), "the job has ended")
    local step = tonumber(text:match "step\n(%d+)\n") -- none between the lines of the script
    if step and step ~= seen[#seen] then seen[#seen + 1] = step end
    visits = visits + 1
    core.net.poll({}, {}, 2)
  end
  repeat until not visit(launcher, "last = true")
  local out = job:read "a"
  assert(job:close(), out)
  local disturbed = results(folder)
  local steps = math.tointeger(tonumber(disturbed:match "^(%d+) "))
  assert(os.execute(start:gsub("exec ", "") .. steps .. " >/dev/null 2>&1"))
  local alone = results(folder)
  launch.remove(folder)
  return disturbed, alone, steps, seen, visits
end

return M
