-- ZeRO in stage 3 by the trainer, stopped after half and resumed: flare launch -n 2 04_zero.lua
local flare = require "flare"
local optim, data, dist, models = flare.optim, flare.data, flare.dist, flare.models
local o = flare.args(arg, "Trains a GPT-2 by ZeRO.", {folder = "run", steps = 60})
local rank = dist.init()
flare.manual_seed(4)

local Data = flare.class "Data"
function Data:size() return 400 end
function Data:get(i)
  return (flare.arange(0, 17) * (i % 3 + 1) + i) % 31
end

local function make(steps)
  local model = models.GPT2LMHeadModel{vocab_size = 32, n_embd = 32, n_layer = 2, n_head = 4,
    n_positions = 32}
  model:train()
  local zero = dist.ZeRO(model, function(parts) return optim.AdamW(parts, {lr = 5e-3}) end,
    {stage = 3})
  return flare.train.Trainer{
    model = model, optimizer = zero, steps = steps, folder = o.folder, progress = false, clip = 1,
    train = data.Loader(Data(), {batch = 16, shuffle = true, shard = dist.world}),
    step = function(m, ids) return m:loss(ids) end,
    schedule = optim.CosineLR(zero, {total = o.steps}),
  }, model
end
local history = make(o.steps // 2):fit()
local first = history[1].loss
local trainer = make(o.steps)
history = trainer:fit()
local last = history[#history].loss
if rank == 0 then print(dist.size() .. " ranks", first, last) end
assert(last < first)
dist.barrier()
if rank == 0 then
  assert(flare.load(o.folder .. "/best.flare"))
  os.execute("rm -r " .. o.folder)
end
