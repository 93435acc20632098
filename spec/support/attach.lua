--- Attaches many times to a job that trains: for spec/attach_spec.lua and spec/long/attach.lua.
local Peers = require "flare.repl.peers"
local core = require "flare.core"
local launch = require "spec.support.launch"
local tree = require "spec.support.tree"

local M = {}

-- Trains until `last` is set on a rank, or so many steps; prints what was trained. The ranks call
-- each other in the background, in groups of two, in a chain.
local training = [[
local nn = flare.nn
local most, last, step = tonumber(arg[1]), false, 0
flare.manual_seed(3)
local model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 4))
local optimizer = flare.optim.AdamW(model, {lr = 1e-3})
local parallel = dist.DataParallel(model)
local pairs_of = {dist.group {0, 1}, dist.group {2, 3}}
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
  local both = pairs_of[rank // 2 + 1]:all_reduce(loss:detach())
  local one = rank == 0 and loss:detach() or dist.recv({}, rank - 1)
  if rank < size - 1 then dist.send(one + both, rank + 1) end
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

-- Stops all ranks, runs a line in each, and lets them go on.
-- @return what the line printed, by rank, a list; nil if no rank listens; and whether all stopped
local function visit(launcher, line)
  local printed, told = {}, {}
  local peers = Peers.connect(launcher, function(peers, peer, text)
    for k, other in ipairs(peers) do
      if other == peer then printed[k] = (printed[k] or "") .. text end
    end
  end)
  if #peers == 0 then return nil end
  local function note(text) told[#told + 1] = text end
  if peers:stop(note) then
    for k in ipairs(peers) do printed[k] = "" end
    peers:run(line, note)
  end
  local all = #peers == M.ranks and peers:count "ready" == #peers
  peers:close()
  return printed, all
end

--- Attaches to a job of four ranks at so many of its steps while it trains, then ends it, and runs
-- as many steps undisturbed.
-- @return what the ranks of the disturbed and of the undisturbed job ended with, how many steps,
--   the steps at which it was looked at, a list, how often it was stopped, and how often all ranks
--   were, within a step
function M.campaign(times)
  local folder = launch.folder(training)
  local start = ("cd %s; exec %s launch --logs logs -n %d script.lua "):format(folder,
    launch.program, M.ranks)
  local job = assert(io.popen("echo $$; " .. start .. "1e9 2>&1"))
  local launcher = job:read "n"
  while not tree.exists(folder .. "/started") do os.execute "sleep 0.05" end
  local seen, visits, together = {}, 0, 0
  while #seen < times do
    local texts, all = visit(launcher, "'step', step")
    assert(texts, "the job has ended")
    local step = tonumber(texts[1]:match "step\n(%d+)\n")
    for k = 2, M.ranks do -- between the same collectives, and there before or behind the count
      local other = tonumber(texts[k]:match "step\n(%d+)\n")
      all = all and (not step or not other or math.abs(step - other) <= 1)
    end
    if step and step ~= seen[#seen] then seen[#seen + 1] = step end
    visits, together = visits + 1, together + (all and 1 or 0)
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
  return disturbed, alone, steps, seen, visits, together
end

return M
