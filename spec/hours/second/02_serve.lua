-- A small model with its tokenizer goes to a folder, flare serve puts it behind HTTP, curl asks it.
local flare = require "flare"
local models, text, optim = flare.models, flare.text, flare.optim
flare.manual_seed(1)

local sentences = {"the cat sat on the mat.", "the dog ran in the park.",
  "a bird sang in the tree."}
local i = 0
local tokenizer = text.train_bpe(function()
  i = i + 1
  return sentences[i]
end, {vocab = 280, special = {"<end>"}})

local model = models.LlamaForCausalLM{vocab_size = #tokenizer, hidden_size = 32,
  intermediate_size = 64,
  num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2,
  max_position_embeddings = 64,
  eos_token_id = tokenizer:id "<end>", bos_token_id = tokenizer:id "<end>"}
model:train()
local optimizer = optim.AdamW(model, {lr = 3e-3})
local examples = {}
for k, sentence in ipairs(sentences) do
  local ids = tokenizer:encode(sentence)
  ids[#ids + 1] = tokenizer:id "<end>"
  examples[k] = {ids = ids}
end
local packed = flare.train.Packed(examples, {length = 64})
local loader = flare.data.Loader(packed, {batch = 1})
local last
for _ = 1, 150 do
  for ids, targets, lengths in loader:epoch() do
    local loss = flare.train.loss(model, ids, targets, lengths)
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    last = loss:item()
  end
end
print("loss", last)
model:eval()
print(model:generate{prompt = "the cat", tokenizer = tokenizer, max_tokens = 20}.text)

local folder = os.tmpname() .. ".small"
assert(model:save(folder))
assert(tokenizer:save(folder .. "/tokenizer.json"))

local port = 20000 + math.random(20000)
local log = folder .. "/serve.log"
local pipe = assert(io.popen(("flare serve %s --port %d --name small > %s 2>&1 & echo $!")
  :format(folder, port, log)))
local pid = pipe:read "l"
pipe:close()

local function curl(path, body)
  local data = body and ("-d '%s'"):format(flare.core.json.encode(body)) or ""
  local answer = assert(io.popen(("curl -s localhost:%d%s %s"):format(port, path, data)))
  local reply = answer:read "a"
  answer:close()
  return reply
end

local ready
for _ = 1, 50 do
  if os.execute(("curl -sf localhost:%d/health > /dev/null"):format(port)) then
    ready = true
    break
  end
  os.execute "sleep 0.1"
end
assert(ready, flare.core.file.read(log))
local reply = flare.core.json.decode(curl("/v1/completions",
  {model = "small", prompt = "the dog", max_tokens = 20, temperature = 0}))
print(reply.choices[1].text, reply.usage.completion_tokens)
assert(reply.choices[1].text == " ran in the park.")
assert(reply.choices[1].finish_reason == "stop")
local wrong = flare.core.json.decode(curl("/v1/completions", {prompt = "a", max_tokens = -1}))
print(wrong.error.message)
assert(curl("/metrics"):find "flare")
os.execute("kill -TERM " .. pid)
os.execute("rm -r " .. folder)
