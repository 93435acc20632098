-- Sentences into three classes: a byte-pair tokenizer of one's own, padding, bags of embeddings.
local flare = require "flare"
local nn, optim, data, metrics = flare.nn, flare.optim, flare.data, flare.metrics
flare.manual_seed(7)

local subjects = {"the film", "this movie", "the plot", "the acting", "every scene", "the ending"}
local words = {
  {"wonderful", "brilliant", "a delight", "moving", "superb"},
  {"terrible", "boring", "a waste of time", "awful", "dull"},
  {"average", "fine, I guess", "neither good nor bad", "watchable", "okay"},
}
local texts, labels = {}, {}
for k = 1, 600 do
  local class = k % 3 + 1
  local list = words[class]
  texts[k] = subjects[math.random(#subjects)] .. " was " .. list[math.random(#list)] .. " and "
    .. subjects[math.random(#subjects)] .. " was " .. list[math.random(#list)]
  labels[k] = class
end

local i = 0
local tokenizer = flare.text.train_bpe(function()
  i = i + 1
  return texts[i]
end, {vocab = 400, special = {"<pad>"}})
local path = os.tmpname() .. ".json"
assert(tokenizer:save(path))
tokenizer = assert(flare.text.load(path))
os.remove(path)

local pad = tokenizer:id "<pad>"
local ids, mask = tokenizer:encode_batch(texts, {tensor = true, pad = {id = pad}})
print(ids.shape, mask.shape, ids.dtype, #tokenizer)

local Classifier = flare.class("Classifier", nn.Module)
function Classifier:init(vocab, width, classes)
  self.embedding = nn.Embedding(vocab, width, {base = 0})
  self.out = nn.Linear(width, classes)
end
function Classifier:forward(x, m)
  m = m:to("f32"):unsqueeze(3)
  local mean = (self.embedding(x) * m):sum(2) / m:sum(2)
  return self.out(mean)
end

local set = data.Tensors(ids, mask, flare.tensor(labels, {dtype = "i64"}))
local train, held = data.split(set, {500, 100}, {seed = 3})
local model = Classifier(#tokenizer, 32, 3)
local optimizer = optim.Adam(model, {lr = 1e-2})
for _ = 1, 5 do
  for x, m, y in data.Loader(train, {batch = 50, shuffle = true}):epoch() do
    local loss = flare.cross_entropy(model(x, m), y)
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
  end
end

model:eval()
local f1 = metrics.F1{average = "macro"}
for x, m, y in data.Loader(held, {batch = 50}):epoch() do
  f1:update(flare.no_grad(function() return model(x, m) end), y)
end
print("macro F1", f1:compute())
assert(f1:compute() > 0.95)

local names = {"good", "bad", "so-so"}
local one, m = tokenizer:encode_batch({"the plot was superb"}, {tensor = true})
local p = flare.softmax(model(one, m), 2)
print("the plot was superb:", names[p:argmax(2):item()], p:max():item())
assert(names[p:argmax(2):item()] == "good")
