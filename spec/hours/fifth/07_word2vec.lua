-- Word vectors: skip-grams with negative samples of a text; the words that are near to others.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
local o = flare.args(arg, "Learns word vectors.", {text = "input.txt", epochs = 2})
flare.manual_seed(7)

local text = assert(flare.core.file.read(o.text)):lower():sub(1, 300000)
local count, words = {}, {}
for word in text:gmatch "%a+" do
  words[#words + 1] = word
  count[word] = (count[word] or 0) + 1
end
local list = {}
for word, n in pairs(count) do if n >= 10 then list[#list + 1] = word end end
table.sort(list, function(a, b)
  if count[a] ~= count[b] then return count[a] > count[b] end
  return a < b
end)
local id = {}
for k, word in ipairs(list) do id[word] = k end
local ids = {}
for _, word in ipairs(words) do
  local k = id[word]
  -- frequent words are left out now and then
  if k and math.random() < (1e-3 / (count[word] / #words)) ^ 0.5 + 0.05 then ids[#ids + 1] = k end
end
local sequence = flare.tensor(ids, {dtype = "i64"})
local centers, others = {}, {}
for distance = 1, 2 do
  centers[#centers + 1], others[#others + 1] = sequence[{{1, -1 - distance}}],
    sequence[{{1 + distance, -1}}]
end
local a, b = flare.cat(centers, 1), flare.cat(others, 1)
local set = data.Tensors(flare.cat({a, b}, 1), flare.cat({b, a}, 1))
print(#list, #ids, #set)

local vocab, width = #list, 32
local near, far = nn.Embedding(vocab, width), nn.Embedding(vocab, width)
nn.init.uniform_(near.weight, {low = -0.5 / width, high = 0.5 / width})
nn.init.zeros_(far.weight)
local model = nn.ModuleList{near, far}
local optimizer = optim.Adam(model, {lr = 5e-3})
local frequency = {}
for k, word in ipairs(list) do frequency[k] = count[word] ^ 0.75 end
frequency = flare.tensor(frequency)
local first, last
for epoch = 1, o.epochs do
  for x, y in data.Loader(set, {batch = 1024, shuffle = true, seed = epoch}):epoch() do
    local wrong = frequency:multinomial(#x * 5, {replacement = true}):view(#x, 5)
    local v = near(x)
    local good = flare.logsigmoid((v * far(y)):sum(2))
    local bad = flare.logsigmoid(-(far(wrong):matmul(v:unsqueeze(3)):squeeze(3))):sum(2)
    local loss = -(good + bad):mean()
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    first, last = first or loss:item(), loss:item()
  end
  print(epoch, last)
end
assert(last < first - 0.5)
local vectors = flare.normalize(near.weight:detach(), {dim = 2})
for _, word in ipairs{"king", "thy", "he"} do
  local _, at = vectors:matmul(vectors[id[word]]):topk(6)
  local names = {}
  for _, k in ipairs(at:totable()) do names[#names + 1] = list[k] end
  print(table.concat(names, " "))
  assert(names[1] == word)
end
