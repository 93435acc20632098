-- Batches of a data set: shuffled by seed and epoch, prepared ahead of time by threads, and
-- resumable.
local flare = require "flare"
flare.args(arg, "Loads batches of a data set, and resumes in the middle of an epoch.")
local data = flare.data

local x = flare.arange(1, 101):to("f32")
local set = data.Tensors(x, x * x)
local loader = data.Loader(set, {batch = 30, shuffle = true, seed = 7, workers = 2})

for a, b in loader:epoch() do
  print(#a, a[1]:item(), b[1]:item())
end

-- the position in the data is a small table; a new loader continues from it
local seen = 0
for _ in loader:epoch() do
  seen = seen + 1
  if seen == 2 then break end
end
local place = loader:state_dict()
local other = data.Loader(set, {batch = 30, shuffle = true, seed = 7}):load_state_dict(place)
for a in other:epoch() do print("goes on:", #a, a[1]:item()) end
loader:close()
