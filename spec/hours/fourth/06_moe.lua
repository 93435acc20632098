-- A language model with mixtures of experts, trained in bf16, and its load; then text by beams.
local flare = require "flare"
local nn, models, optim = flare.nn, flare.models, flare.optim
flare.manual_seed(6)

local model = models.MixtralForCausalLM{vocab_size = 24, hidden_size = 32, intermediate_size = 48,
  num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2, num_local_experts = 4,
  num_experts_per_tok = 2}
model:train()
local function batch()
  local step = flare.randint(1, 4, {16, 1})
  return (flare.randint(0, 24, {16, 1}) + flare.arange(0, 12) * step) % 24
end
local optimizer = optim.AdamW(model, {lr = 4e-3})
local first, last
for step = 1, 250 do
  local loss = flare.autocast("bf16", function() return model:loss(batch()) end)
  local total = loss + 0.01 * nn.moe_loss(model)
  optimizer:zero_grad()
  total:backward()
  optim.clip_grad_norm_(model, 1)
  optimizer:step()
  first, last = first or loss:item(), loss:item()
  if step % 50 == 0 then print(step, last) end
end
assert(last < first / 2)
local experts = 0
for _, m in ipairs(model:modules()) do
  if flare.class.is(m, nn.MoE) then
    experts = experts + 1
    print(m, m:load())
  end
end
assert(experts == 2)

model:eval()
local out = model:generate{ids = {0, 2, 4, 6, 8}, max_tokens = 5, ignore_eos = true, beams = 3}
print(table.concat(out.ids, " "))
assert(table.concat(out.ids, " ") == "10 12 14 16 18")
local draft = models.LlamaForCausalLM{vocab_size = 24, hidden_size = 16, intermediate_size = 24,
  num_hidden_layers = 1, num_attention_heads = 2, num_key_value_heads = 1}
draft:eval()
local fast = model:generate{ids = {0, 2, 4, 6, 8}, max_tokens = 5, ignore_eos = true, draft = draft}
assert(table.concat(fast.ids, " ") == "10 12 14 16 18")
local r = models.perplexity(model, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
print("perplexity", r.perplexity)
assert(r.perplexity < 5)
