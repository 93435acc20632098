-- A character model by the trainer: it stops, goes on from its checkpoint, and writes text.
local flare = require "flare"
local nn, optim, data = flare.nn, flare.optim, flare.data
local o = flare.args(arg, "Trains a character model.",
  {text = "input.txt", steps = 120, width = 64, block = 32})
flare.strict()

local text = assert(flare.core.file.read(o.text)):sub(1, 60000)
local small = os.tmpname()
assert(flare.core.file.write_atomic(small, text))
local tokens, vocabulary = assert(data.text.load(small))
os.remove(small)
local cut = math.floor(0.9 * #tokens)
local train, held = tokens[{{1, cut}}], tokens[{{cut + 1, -1}}]
print(#tokens, vocabulary:size())

local GPT = flare.class("GPT", nn.Module)
function GPT:init(vocab, width, block)
  self.block = block
  self.tokens = nn.Embedding(vocab, width)
  self.places = nn.Embedding(block, width)
  self.blocks = nn.ModuleList{nn.TransformerBlock(width, 4, {causal = true}),
                              nn.TransformerBlock(width, 4, {causal = true})}
  self.norm = nn.LayerNorm(width)
  self.head = nn.Linear(width, vocab, {bias = false})
  self.head.weight = self.tokens.weight
end
function GPT:forward(ids)
  local x = self.tokens(ids) + self.places(flare.range(1, ids:size(2)))
  for _, block in ipairs(self.blocks) do x = block(x) end
  return self.head(self.norm(x))
end
function GPT:write(ids, n)
  for _ = 1, n do
    local seen = ids[{{}, {math.max(1, ids:size(2) - self.block + 1), -1}}]
    local p = flare.softmax(self(seen)[{{}, -1}] / 0.8, 2)
    ids = flare.cat({ids, p:multinomial(1)}, 2)
  end
  return ids
end

local folder = os.tmpname()
os.remove(folder)
local function make(steps)
  flare.manual_seed(1)
  local model = GPT(vocabulary:size(), o.width, o.block)
  local optimizer = optim.AdamW(model, {lr = 3e-3})
  return flare.train.Trainer{
    model = model, optimizer = optimizer, steps = steps, folder = folder, progress = false,
    train = data.Loader(data.Windows(train, o.block), {batch = 32, shuffle = true, seed = 1}),
    step = function(m, x, y)
      return flare.cross_entropy(m(x):flatten(1, 2), y:flatten())
    end,
    schedule = optim.WarmupCosineLR(optimizer, {warmup = 10, total = o.steps}), clip = 1,
    log = folder .. "/metrics.jsonl", log_every = 10,
  }, model
end

local trainer = make(o.steps // 2)
trainer:fit()
local again, model = make(o.steps)
again:fit()
local rows = flare.log.read_metrics(folder .. "/metrics.jsonl")
print(#rows, rows[1].loss, rows[#rows].loss, rows[#rows].step)
assert(rows[#rows].step == o.steps and rows[#rows].loss < 2.9)

model:eval()
local x = held[{{1, 320}}]:view(10, 32)
local perplexity = flare.metrics.Perplexity()
perplexity:update(flare.no_grad(model, x[{{}, {1, -2}}]), x[{{}, {2, -1}}])
print("perplexity", perplexity:compute())
assert(perplexity:compute() < 18)
local start = vocabulary:encode "The "
local out = flare.no_grad(function() return model:write(start:view(1, -1), 80) end)
print(vocabulary:decode(out[1]))
assert(#vocabulary:decode(out[1]) == 84)
os.execute("rm -r " .. folder)
