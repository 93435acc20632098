-- Text that follows a JSON schema, streamed as it is written; a chat template; preferences.
local flare = require "flare"
local text, models = flare.text, flare.models
flare.manual_seed(9)

local lines = {'{"city": "Rome", "people": 3}', '{"city": "Oslo", "people": 12}',
  '{"city": "Bern", "people": 7}'}
local i = 0
local tokenizer = text.train_bpe(function()
  i = i + 1
  return lines[i]
end, {vocab = 300, special = {"<end>", "<user>", "<assistant>"}})
local eos = tokenizer:id "<end>"
local model = models.Qwen2ForCausalLM{vocab_size = #tokenizer, hidden_size = 32,
  intermediate_size = 64,
  num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2, eos_token_id = eos}
model:train()
local optimizer = flare.optim.AdamW(model, {lr = 5e-3})
local ids = tokenizer:encode_batch({lines[1] .. "<end>", lines[2] .. "<end>", lines[3] .. "<end>"},
  {tensor = true, pad = {id = eos}})
for _ = 1, 20 do
  optimizer:zero_grad()
  model:loss(ids):backward()
  optimizer:step()
end
model:eval()

local schema = {type = "object", required = {"city", "people"}, properties = {
  city = {type = "string", maxLength = 8}, people = {type = "integer", minimum = 0, maximum = 99}}}
local grammar = text.grammar{json = schema}
local pieces = {}
local out = model:generate{prompt = "{", tokenizer = tokenizer, max_tokens = 5,
  temperature = 0.5, seed = 1}
print("free:", out.text)
for seed = 1, 5 do
  out = model:generate{prompt = "<user>where?<assistant>", tokenizer = tokenizer, grammar = grammar,
    max_tokens = 60, temperature = 1, seed = seed,
    on_text = function(piece) pieces[#pieces + 1] = piece end}
  print(out.text, out.reason)
  assert(grammar:matches(out.text))
  local value = flare.core.json.decode(out.text)
  assert(type(value.city) == "string" and math.type(value.people) == "integer")
end
assert(#pieces > 5)

local template = assert(text.template(
  "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"))
print(template{messages = {{role = "user", content = "where?"}}})

-- prefer Oslo
local function answer(line)
  local list = tokenizer:encode("<user>where?<assistant>" .. line)
  local labels, begun = {}, false
  for k, id in ipairs(list) do
    labels[k] = begun and id or -100
    if id == tokenizer:id "<assistant>" then begun = true end
  end
  return {ids = list, labels = labels}
end
local batch = {{chosen = answer(lines[2]), rejected = answer(lines[1])},
               {chosen = answer(lines[2]), rejected = answer(lines[3])}}
local reference = model:clone()
local figures
model:train()
local opt = flare.optim.AdamW(model, {lr = 1e-3})
for _ = 1, 20 do
  local loss
  loss, figures = flare.train.dpo_loss(model, reference, batch, {beta = 0.1})
  opt:zero_grad()
  loss:backward()
  opt:step()
end
print("accuracy", figures.accuracy:item(), "margin", figures.margin:item())
assert(figures.accuracy:item() == 1)
