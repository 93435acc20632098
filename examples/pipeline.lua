-- Trains a small GPT-2 as a pipeline, and compares what its schedule promises with what it did.
--
--   flare launch -n 2 examples/pipeline.lua
--   flare launch -n 4 examples/pipeline.lua --scheme zb_h1 --micro-batches 8 --dp 2
--
-- It also runs as a single process.
local flare = require "flare"
local o = flare.args(arg, "Trains a small GPT-2 as a pipeline.", {
  scheme = {"1f1b", "gpipe, 1f1b, interleaved or zb_h1"}, micro_batches = {4, "of a batch"},
  dp = {1, "pipelines side by side"}, layers = {4, "of the model"}, width = {32, "of the model"},
  steps = {30, "of training"}})
local dist, models, optim = flare.dist, flare.models, flare.optim
local rank, size = dist.init()

flare.manual_seed(1)
local model = models.GPT2LMHeadModel{vocab_size = 64, n_positions = 32, n_embd = o.width,
  n_layer = o.layers, n_head = 4, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}
local mesh = dist.mesh{dp = o.dp, pp = size // o.dp}
local pipe = dist.Pipeline(model, mesh, {scheme = o.scheme, micro_batches = o.micro_batches,
  measure = true, optimizer = function(params) return optim.AdamW(params, {lr = 3e-3}) end})

-- sequences that count up from any number
local function batch(rows)
  local first = flare.randint(0, 32, {rows, 1})
  return first + flare.arange(0, 32):unsqueeze(1)
end

local first, last
for step = 1, o.steps do
  local ids = batch(4 * o.micro_batches * o.dp)
  local mine = ids:chunk(o.dp, 1)[mesh.at.dp + 1]
  pipe.optimizer:zero_grad()
  last = pipe:step(mine, mine):item()
  pipe.optimizer:step()
  first = first or last
  if step == o.steps // 2 then pipe:rebalance() end -- by the times of the step before
end

if rank == 0 then
  local simulated = flare.simulate(pipe.schedule, {name = "this machine", peak = {f32 = 1},
    memory = {bytes = 1e9, rate = 1}})
  print(("%s: %d ranks, loss %.2f -> %.2f"):format(o.scheme, size, first, last))
  print(("idle: simulated %.0f %%, measured on rank 0 %.0f %%"):format(100 * simulated.bubble,
    100 * pipe.report.idle / pipe.report.time))
end
