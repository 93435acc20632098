-- Tunes a model whose weights have 4 bits: trains a small Llama on one text, quantises it, trains
-- adapters of low rank on another (QLoRA), and saves the adapters as PEFT reads them.
--
--   flare examples/18_lora.lua
--   flare examples/18_lora.lua --method gptq --rank 8
local flare = require "flare"
local models = flare.models

local o = flare.args(arg, "Tunes a quantised model with adapters.", {
  bits = {4, "of a weight: 4, 8, or 0 for floats"}, method = {"rtn", "rtn, gptq or awq"},
  rank = {8, "of the adapters"}, dora = {false, "learn the magnitudes of rows apart"},
  steps = {120, "training steps of the model, half as many of the adapters"},
  seed = {1, "of random numbers"},
})

flare.manual_seed(o.seed)
local first = ("the cat sat on the mat and the dog sat on the log; "):rep(40)
local second = ("a cow lay in the hay and a hen lay in the pen; "):rep(40)
local letters = flare.data.Vocabulary(first .. second)
local function ids_of(s) return letters:encode(s) - 1 end -- token ids count from 0

local model = models.LlamaForCausalLM {
  vocab_size = letters:size(), hidden_size = 64, intermediate_size = 128, num_hidden_layers = 2,
  num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = 256,
}

local function batch(all)
  local starts, rows = flare.randint(1, #all - 48, {8}):totable(), {}
  for b, start in ipairs(starts) do rows[b] = all:narrow(1, start, 48) end
  return flare.stack(rows)
end

local function train(parameters, text, steps, rate)
  local optimizer, all, loss = flare.optim.AdamW(parameters, {lr = rate}), ids_of(text), nil
  for _ = 1, steps do
    optimizer:zero_grad()
    loss = model:loss(batch(all))
    loss:backward()
    optimizer:step()
  end
  return loss:item()
end

print(("trained: loss %.2f"):format(train(model, first, o.steps, 3e-3)))
if o.bits > 0 then
  local data = {batch(ids_of(first))}
  local _, report = model:quantize{bits = o.bits, group = 32, method = o.method, data = data}
  print(report)
end
local adapter = models.lora(model, {rank = o.rank, alpha = 2 * o.rank, dora = o.dora,
  targets = {"q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}})
print(("adapters: %d parameters"):format(adapter:count()))
local loss = train(adapter:parameters(), second, o.steps // 2, 1e-2)
print(("tuned: loss %.2f"):format(loss))

local folder = os.tmpname() .. ".adapter"
assert(adapter:save(folder))
adapter:remove()
adapter = assert(models.lora.load(model, folder))
adapter:merge() -- the model is one of floats again, and can be saved
local all = ids_of(second)
loss = flare.no_grad(function() return model:loss(batch(all)):item() end)
print(("merged: loss %.2f"):format(loss))
for _, file in ipairs(flare.core.file.list(folder)) do os.remove(folder .. "/" .. file) end
os.remove(folder)
