-- The training that spec/support/kill.lua kills: a small net with dropout, a checkpoint
-- after every step. Goes on from what is in the folder, says "begin N" and "end N" around
-- each save, and in the reference run what the file of the step has in it.
--   kill_child.lua FOLDER LAST [reference]
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data

local folder, last, reference = arg[1], tonumber(arg[2]), arg[3] == "reference"
io.stdout:setvbuf "no"

local function pid()
  local file = assert(io.open "/proc/self/stat")
  local n = file:read "n"
  file:close()
  return n
end

flare.manual_seed(11)
local model = nn.Sequential(nn.Linear(32, 2048), nn.Dropout(0.4), nn.ReLU(),
                            nn.Linear(2048, 64), nn.Dropout(0.1), nn.Linear(64, 1))
local optimizer = optim.AdamW(model:parameters(), {lr = 1e-3})
local set = data.Tensors(flare.rand(48, 32, {generator = flare.generator(5)}))
local parts = {model = model, optimizer = optimizer,
               schedule = optim.CosineLR(optimizer, {total = last}),
               loader = data.Loader(set, {batch = 8, shuffle = true, seed = 2}),
               generator = flare.default_generator()}

local checkpoints = assert(flare.io.Checkpoint(folder))
local saved, message = checkpoints:load()
if saved then
  checkpoints:restore(saved, parts)
elseif not message:find "there is no checkpoint" then
  error(message)
end
local step = saved and saved.step or 0
print(("pid %d from %d"):format(pid(), step))

if step < last then
  for x in parts.loader:forever() do
    local loss = (model(x) - x:sum{dim = 2, keepdim = true}):square():mean()
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    parts.schedule:step()
    step = step + 1
    print("begin " .. step)
    assert(checkpoints:save(step, parts))
    print("end " .. step)
    if reference then
      print(("sum %d %s"):format(step, flare.core.xxh64(
        assert(flare.core.file.read(checkpoints:path(step))))))
    end
    if step == last then break end
  end
end
print "done"
