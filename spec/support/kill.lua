-- Kills trainings that save checkpoints, and looks at what is left: for spec/kill_spec.lua
-- and spec/long/kill.lua.
local core = require "flare".core
local tree = require "spec.support.tree"

local LAST = 40
local command = ("exec '%s' spec/support/kill_child.lua '%%s' %d %%s 2>&1")
  :format(os.getenv "FLARE_PROGRAM" or tree.build .. "/flare", LAST)

local kill = {}

local function folder()
  local path = os.tmpname()
  os.remove(path)
  return path
end

--- An undisturbed run: the hash of each step's file, and how long a save takes.
function kill.reference()
  local path, sums, began, spent = folder(), {}, nil, 0
  local pipe = assert(io.popen(command:format(path, "reference")))
  for line in pipe:lines() do
    local step, sum = line:match "^sum (%d+) (%x+)$"
    if step then sums[tonumber(step)] = sum
    elseif line:find "^begin" then began = core.clock()
    elseif line:find "^end" then spent = spent + core.clock() - began
    elseif not line:find "^pid" and line ~= "done" then error(line) end
  end
  pipe:close()
  os.execute(("rm -rf '%s'"):format(path))
  assert(#sums == LAST, "the reference run did not come to its end")
  return {sums = sums, save = spent / LAST}
end

-- Runs one training and kills it: after a time if `aim` is false, else some time into the
-- save that it begins as its aim'th. The steps it said it began and ended to save.
local function run(path, aim, wait)
  local pipe = assert(io.popen(command:format(path, "")))
  local pid, first = pipe:read "l":match "^pid (%d+) from (%d+)$"
  assert(pid, "the training did not begin")
  local began, ended, done, saves = tonumber(first), tonumber(first), false, 0
  local function take(line)
    local word, step = line:match "^(%l+) ?(%d*)$"
    assert(word == "begin" or word == "end" or word == "done", line)
    if word == "begin" then began, saves = tonumber(step), saves + 1
    elseif word == "end" then ended = tonumber(step)
    else done = true end
  end
  while aim and saves < aim and not done do
    local line = pipe:read "l"
    if not line then break end
    take(line)
  end
  os.execute(("sleep %.4f; kill -9 %s 2>/dev/null"):format(wait, pid))
  for line in pipe:lines() do take(line) end
  pipe:close()
  return began, ended, done, tonumber(first)
end

local function newest(path)
  local step
  for _, name in ipairs(core.file.list(path) or {}) do
    local digits = name:match "^step%-(%d+)%.flare$"
    step = digits and math.max(step or 0, tonumber(digits)) or step
  end
  return step
end

--- Kills `times` trainings, or more until `least` kills fell inside a save, each of which goes
-- on from what the one before left. Fails if a file is anything but what the undisturbed run
-- wrote for its step, or if the newest is neither the last whole save nor the one under way.
-- @return how many kills fell inside a save, how often such a save was complete, and all kills
function kill.campaign(reference, times, seed, least)
  math.randomseed(seed)
  local path, inside, complete, k = folder(), 0, 0, 0
  while k < times or (inside < (least or 0) and k < 6 * times) do
    k = k + 1
    local aim = k % 4 > 0 and math.random(1, 3)
    local wait = aim and math.random() * reference.save or math.random() * 0.2
    local began, ended, done, first = run(path, aim, wait)
    local step = newest(path)
    local where = ("kill %d of seed %d: "):format(k, seed)
    if began > ended then
      inside = inside + 1
      if step == began then complete = complete + 1 end
    end
    if step ~= began and (step or 0) ~= ended then
      error(("%snewest is %s, the last saves began at %d and ended at %d"):format(where,
        tostring(step), began, ended))
    end
    if first > 0 and not step then error(where .. "nothing is left") end
    for _, name in ipairs(core.file.list(path)) do
      local digits = name:match "^step%-(%d+)%.flare$"
      if digits then
        local text = assert(core.file.read(path .. "/" .. name))
        local sum = core.xxh64(text)
        if sum ~= reference.sums[tonumber(digits)] then
          error(where .. name .. " is not what the undisturbed run saved")
        end
      end
    end
    if done then os.execute(("rm -rf '%s'"):format(path)) end
  end
  os.execute(("rm -rf '%s'"):format(path))
  return inside, complete, k
end

return kill
