-- Trains a Llama of 8 billion parameters on one GPU, within 24 GiB of its memory and 110 GiB of the
-- host's: flare.plan moves parameters, gradients and states between them while blocks compute.
--
--   flare examples/train_8b_one_gpu.lua --dry_run    whether it fits, and how long a step takes
--   flare examples/train_8b_one_gpu.lua
--
-- Without a GPU, or with --small, it trains a small model on a simulated device.
local flare = require "flare"
local core, models = flare.core, flare.models
local o = flare.args(arg, "Trains a Llama of 8 billion parameters on one GPU.", {
  device = {"24GiB", "cap of the device's memory"}, host = {"110GiB", "cap of pinned memory"},
  batch = {64, "sequences of a step"}, rounds = {0, "in which they are computed; 0: as planned"},
  chunk = {2048, "tokens whose logits exist at once"}, steps = {2, "of training"},
  optimizer = {"AdamW8bit", "of flare.optim; AdamW has states of 12 bytes for each parameter"},
  machine = {"h200", "whose figures predict times"}, small = {false, "a small model"},
  dry_run = {false, "only plans"}})

local gpu
for _, name in ipairs(core.devices()) do gpu = gpu or name:match "^cuda:%d+$" end
local small = o.small or not gpu and not o.dry_run
local on, length = not small and gpu or "sim:0", small and 64 or 4096
local shape = {vocab_size = 128256, hidden_size = 4096, intermediate_size = 14336,
  num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 8,
  max_position_embeddings = length, tie_word_embeddings = false}
if small then
  shape.vocab_size, shape.hidden_size, shape.intermediate_size = 512, 128, 256
  shape.num_hidden_layers, shape.num_attention_heads, shape.num_key_value_heads = 4, 4, 2
  o.device, o.host, o.batch, o.chunk = "64MiB", "1GiB", 4, 64
end
local model = flare.meta(function() return models.LlamaForCausalLM(shape):to "bf16" end)

-- All logits at once would be the largest values of a step, and keep rounds small. Each chunk's are
-- computed again in backward: little beside what larger rounds save in transfers of parameters.
local function loss_of(net, ids)
  local features = net:features(ids):narrow(2, 1, length - 1):flatten(1, 2)
  local targets = ids:narrow(2, 2, length - 1):flatten(1, 2)
  local rows, total = features:size(1), nil
  for first = 1, rows, o.chunk do
    local n = math.min(o.chunk, rows - first + 1)
    local part = flare.checkpoint(function(x)
      return net:criterion(x:unsqueeze(1), targets:narrow(1, first, n):unsqueeze(1)) * (n / rows)
    end, features:narrow(1, first, n))
    total = total and total + part or part
  end
  return total
end

local plan = flare.plan({model = model, loss = loss_of,
  inputs = {flare.zeros({o.batch, length}, {dtype = "i64"})},
  init = function(name, p)
    if name:find "norm" then p:fill_(1) else p:normal_(0, 0.02) end
  end,
  optimizer = function(params) return flare.optim[o.optimizer](params, {lr = 1e-4}) end},
  {device = o.device, host = o.host, on = on, machine = o.machine,
   rounds = o.rounds > 0 and o.rounds or nil})
print(plan)
if not plan.fits or o.dry_run then return end

local count = 0
for _, p in ipairs(model:parameters()) do count = count + p:numel() end
local peak = flare.dataflow.machine(o.machine).peak.bf16
flare.manual_seed(1)
for step = 1, o.steps do
  local ids = flare.randint(0, shape.vocab_size, {o.batch, length})
  local began = core.clock()
  local loss = plan(ids):item()
  local seconds = core.clock() - began
  local rate = o.batch * length / seconds
  print(("step %d: loss %.4f, %.2f s, %.0f tokens/s"):format(step, loss, seconds, rate))
  if not small then print(("  MFU %.1f %%"):format(100 * 6 * count * rate / peak)) end
end
