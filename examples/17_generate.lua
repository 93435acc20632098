-- Trains a small Llama on a text, letter by letter, saves it as a folder that transformers reads,
-- loads it again and continues a beginning. With --model it continues ids with a published model.
--
--   flare examples/17_generate.lua
--   flare examples/17_generate.lua --model SmolLM2-135M --ids 504,3575,282
local flare = require "flare"
local models = flare.models

local o = flare.args(arg, "Trains a small Llama, saves, loads and runs it.", {
  model = {"", "folder of a published model; without it a small one is trained"},
  ids = {"1,2,3", "token ids that the published model continues"},
  steps = {150, "training steps"}, tokens = {60, "tokens to generate"},
  temperature = {0.5, "0 takes the likeliest token"}, seed = {1, "of random numbers"},
})

local function continue(model, ids)
  return model:generate{ids = ids, max_tokens = o.tokens, temperature = o.temperature,
                        seed = o.seed}.ids
end

if o.model ~= "" then
  local model, ids = assert(models.load(o.model)), {}
  for id in o.ids:gmatch "%d+" do ids[#ids + 1] = math.tointeger(tonumber(id)) end
  print(table.concat(continue(model, ids), " "))
  return
end

flare.manual_seed(o.seed)
local text = ("the cat sat on the mat and the dog sat on the log; "):rep(40)
local letters = flare.data.Vocabulary(text)           -- letters, numbered from 1
local function ids_of(s) return letters:encode(s) - 1 end -- token ids count from 0

local model = models.LlamaForCausalLM {
  vocab_size = letters:size(), hidden_size = 48, intermediate_size = 96, num_hidden_layers = 2,
  num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = 256,
}
local optimizer = flare.optim.AdamW(model, {lr = 3e-3})
local all = ids_of(text)
local step = flare.compile(function(ids)
  optimizer:zero_grad()
  local loss = model:loss(ids)
  loss:backward()
  optimizer:step()
  return loss
end)
for k = 1, o.steps do
  local starts, rows = flare.randint(1, #all - 48, {8}):totable(), {}
  for b, start in ipairs(starts) do rows[b] = all:narrow(1, start, 48) end
  local loss = step(flare.stack(rows))
  if k % 50 == 0 or k == o.steps then print(("step %d: loss %.3f"):format(k, loss:item())) end
end

local folder = os.tmpname() .. ".model"
assert(model:save(folder))
model = assert(models.load(folder))
local beginning = "the dog "
local ids = continue(model, ids_of(beginning):totable())
print(beginning .. letters:decode(flare.tensor(ids, {dtype = "i64"}) + 1))
for _, file in ipairs(flare.core.file.list(folder)) do os.remove(folder .. "/" .. file) end
os.remove(folder)
