-- A small Llama learns one task, is saved, loaded and tuned to another by low-rank adapters.
local flare = require "flare"
local models, optim = flare.models, flare.optim
flare.manual_seed(2)

local function batch(shift)            -- counts up from a random number, by shift
  local start = flare.randint(0, 20, {16, 1})
  return (start + flare.arange(0, 12) * shift) % 20
end

local function train(model, optimizer, shift, steps)
  local loss
  for _ = 1, steps do
    loss = model:loss(batch(shift))
    optimizer:zero_grad()
    loss:backward()
    optim.clip_grad_norm_(model, 1)
    optimizer:step()
  end
  return loss:item()
end

local model = models.LlamaForCausalLM{vocab_size = 20, hidden_size = 48, intermediate_size = 96,
  num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2}
model:train()
print("loss of counting by 1:", train(model, optim.AdamW(model, {lr = 3e-3}), 1, 150))
local folder = os.tmpname() .. ".llama"
assert(model:save(folder))

local tuned = assert(models.load(folder))
tuned:train()
local before = tuned:loss(batch(3)):item()
local adapter = models.lora(tuned, {rank = 8, alpha = 16,
  targets = {"q_proj", "k_proj", "v_proj", "o_proj",
  "gate_proj", "up_proj", "down_proj"}})
print("trainable:", adapter:count())
local after = train(tuned, optim.AdamW(adapter:parameters(), {lr = 1e-2}), 3, 200)
print("loss of counting by 3:", before, after)
assert(after < before / 4)

tuned:eval()
local out = tuned:generate{ids = {0, 3, 6}, max_tokens = 4, ignore_eos = true}
print(table.concat(out.ids, " "))
assert(table.concat(out.ids, " ") == "9 12 15 18")

assert(adapter:save(folder .. "/adapter"))
adapter:merge()
assert(tuned:save(folder .. "/merged"))
local merged = assert(models.load(folder .. "/merged"))
out = merged:generate{ids = {0, 3, 6}, max_tokens = 4, ignore_eos = true}
assert(table.concat(out.ids, " ") == "9 12 15 18")

local base = assert(models.load(folder))
local loaded = assert(models.lora.load(base, folder .. "/adapter"))
out = base:generate{ids = {0, 3, 6}, max_tokens = 4, ignore_eos = true}
assert(table.concat(out.ids, " ") == "9 12 15 18")
loaded:remove()
out = base:generate{ids = {0, 1, 2}, max_tokens = 4, ignore_eos = true}
assert(table.concat(out.ids, " ") == "3 4 5 6")
os.execute("rm -r " .. folder)
