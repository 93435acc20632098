-- Trains a small Llama whose layers are divided among the ranks; saves it in the ordinary layout.
--
--   flare launch -n 2 examples/tensor_parallel.lua
--   flare launch -n 4 examples/tensor_parallel.lua --dp 2 --sequence
--
-- It also runs as a single process.
local flare = require "flare"
local o = flare.args(arg, "Trains a small Llama with divided layers.", {
  dp = {1, "replicas side by side"}, sequence = {false, "split sequences between layers"},
  layers = {2, "of the model"}, width = {32, "of the model"}, steps = {30, "of training"},
  save = {"", "the folder for the trained model"}})
local dist, models, optim = flare.dist, flare.models, flare.optim
local rank, size = dist.init()

local config = {vocab_size = 64, hidden_size = o.width, intermediate_size = 3 * o.width,
  num_hidden_layers = o.layers, num_attention_heads = 4, num_key_value_heads = 4}
flare.manual_seed(1)
local mesh = dist.mesh{dp = o.dp, tp = size // o.dp}
local model = dist.tensor_parallel(models.LlamaForCausalLM(config), mesh, {sequence = o.sequence})
local optimizer = optim.AdamW(model:parameters(), {lr = 3e-3})

local first, last
for _ = 1, o.steps do
  -- sequences that count up from any number
  local ids = flare.randint(0, 32, {16, 1}) + flare.arange(0, 32):unsqueeze(1)
  optimizer:zero_grad()
  local loss = model:loss(ids:chunk(o.dp, 1)[mesh.at.dp + 1])
  loss:backward()
  dist.average_gradients(model, mesh)
  optimizer:step()
  last = loss:item()
  first = first or last
end

local state = dist.state_dict(model) -- whole, on all ranks
if rank == 0 then
  print(("%d ranks, loss %.2f -> %.2f"):format(size, first, last))
  print(("of %d elements this rank has %d"):format(models.LlamaForCausalLM(config):count(),
    model:count()))
  local whole = models.LlamaForCausalLM(config)
  whole:load_state_dict(state)
  if o.save ~= "" then assert(whole:save(o.save)) end
  local ids = flare.arange(0, 8):unsqueeze(1)
  print("7 is followed by " .. whole(ids)[{1, -1}]:argmax():item() - 1)
end
