-- A small GPT: trains a character-level language model and samples text from it.
--
--     flare examples/char_gpt.lua                     learns from flare's own sources
--     flare examples/char_gpt.lua --data FILE         learns from any text
--     flare examples/char_gpt.lua --resume            resumes the last run
--
-- --help lists the options.
local flare = require "flare"
local nn, optim, data, io_, log = flare.nn, flare.optim, flare.data, flare.io, flare.log
local F = nn.functional

local settings = {
  data = {"", "file with the text to learn"},
  steps = {6000, "training steps"},
  device = {"", "cuda where there is a GPU, else cpu"},
  autocast = {"", "dtype of products: bf16, f16 or none; bf16 on cuda, else none"},
  layers = {4, "transformer blocks"}, heads = {4, "attention heads"}, width = {128, "features"},
  block = {64, "characters that the model sees"}, batch = {12, "texts of a step"},
  dropout = {0.0, "probability"}, lr = {1e-3, "learning rate"}, seed = {1337, "of random numbers"},
  out = {"char_gpt.out", "folder for checkpoints, metrics and the curve of the loss"},
  resume = {false, "go on from the last checkpoint in the folder"},
  stop = {0, "end after that many steps, as a power cut would"},
  quiet = {false, "print no samples and no curves"},
}

local function usage(message)
  io.stderr:write("char_gpt: ", message, "\n")
  os.exit(2)
end

---------------------------------------------------------------- text

-- All sources and documents of the repository that this file lies in, as one text.
local function own_text()
  local file = flare.core.file
  local root = (arg and arg[0] or ""):match("^(.*)examples/[^/]*$") or ""
  local parts = {}
  local function walk(folder)
    for _, name in ipairs(file.list(folder) or {}) do
      local path = folder .. "/" .. name
      if file.exists(path) == "directory" then
        walk(path)
      elseif name:find("%.lua$") or name:find("%.md$") or name:find("%.[ch]$") then
        parts[#parts + 1] = file.read(path)
      end
    end
  end
  for _, folder in ipairs{"docs", "stdlib", "examples", "runtime", "kernels", "lua"} do
    walk(root .. folder)
  end
  -- characters outside of ASCII are too rare to learn
  return (table.concat(parts, "\n"):gsub("[^\n -~]", ""))
end

local function load_text(o)
  local text, message
  if o.data ~= "" then
    text, message = data.text.read(o.data)
    if not text then usage(message) end
  else
    text = own_text()
    if #text < 10000 then usage("no sources found beside this script; give a text by --data") end
  end
  local vocabulary = data.Vocabulary(text)
  return assert(vocabulary:encode(text)), vocabulary
end

---------------------------------------------------------------- model

local GPT = flare.class("GPT", nn.Module)

function GPT:init(vocabulary, o)
  self.block, self.dropout = o.block, o.dropout
  self.tokens = nn.Embedding(vocabulary, o.width)
  self.positions = nn.Embedding(o.block, o.width)
  self.blocks = nn.ModuleList()
  for i = 1, o.layers do
    self.blocks:append(nn.TransformerBlock(o.width, o.heads, {bias = false, causal = true,
                                                              dropout = o.dropout}))
  end
  self.norm = nn.LayerNorm(o.width, {bias = false})
  -- every layer adds twice to the residual stream; smaller initial weights keep its variance
  local small = 0.02 / math.sqrt(2 * o.layers)
  for name, p in self:named_parameters() do
    if p.ndim > 1 then
      local adds = name:find("out%.weight$") or name:find("down%.weight$")
      nn.init.normal_(p, {std = adds and small or 0.02})
    end
  end
end

-- x (batch, time): logits (batch, time, characters), or with targets y the mean loss
function GPT:forward(x, y)
  local h = self.tokens(x) + self.positions.weight:narrow(1, 1, x:size(2))
  h = F.dropout(h, {p = self.dropout, training = self.training})
  for i = 1, #self.blocks do h = self.blocks[i](h) end
  -- the embedding is the output layer as well (weight tying)
  local logits = F.linear(self.norm(h), self.tokens.weight)
  if not y then return logits end
  return F.cross_entropy(logits:flatten(1, 2), y:reshape(-1))
end

-- Continues a text by top-k sampling.
local function sample(model, vocabulary, start, count, generator, device)
  local _ <close> = flare.no_grad()
  model:eval()
  local tokens = assert(vocabulary:encode(start)):tolist()
  for _ = 1, count do
    local first = math.max(1, #tokens - model.block + 1)
    local x = flare.tensor({table.move(tokens, first, #tokens, 1, {})},
                           {dtype = "i64", device = device})
    local logits = model(x)
    local last = logits[{1, -1}]:to("cpu") / 0.8
    local best, which = last:topk(math.min(20, #last))
    local pick = best:softmax(-1):multinomial(1, {generator = generator}):item()
    tokens[#tokens + 1] = which[pick]:item()
  end
  model:train()
  return vocabulary:decode(tokens)
end

-- The loss, with matrix products in the dtype of --autocast.
local function loss_of(model, o, x, y)
  return flare.autocast(o.autocast ~= "none" and o.autocast or false, model, x:to(o.device),
                        y:to(o.device))
end

-- The mean loss over a whole text, in which each character is predicted once.
local function evaluate(model, tokens, o, most)
  local _ <close> = flare.no_grad()
  model:eval()
  local total, count = 0, 0
  for x, y in data.text.blocks(tokens, o.block, 64) do
    local loss = loss_of(model, o, x, y):item()
    total, count = total + loss * y:numel(), count + y:numel()
    if most and count >= most then break end
  end
  model:train()
  return total / count
end

---------------------------------------------------------------- training

local o, given = flare.args(arg, "Trains a small GPT to write, one character after the other.",
                            settings)
if o.steps < 0 then usage(("--steps cannot be negative, got %d"):format(o.steps)) end
if o.device == "" then o.device = flare.cuda.available() and "cuda" or "cpu" end
if o.autocast == "" then o.autocast = o.device:find "^cuda" and "bf16" or "none" end
local checkpoints = assert(io_.Checkpoint(o.out))
local saved
if o.resume then
  local message
  saved, message = checkpoints:load()
  if not saved then usage(message) end
  -- options that define the run are those of the checkpoint
  for _, key in ipairs{"data", "layers", "heads", "width", "block", "batch", "dropout", "lr",
                       "seed", "steps", "autocast"} do
    local value = saved.options[key]
    if given[key] and key ~= "steps" and o[key] ~= value then
      usage(("--%s is %s in the run that goes on, not %s"):format(key, value, o[key]))
    end
    if not given[key] then o[key] = value end
  end
  if saved.step > o.steps then
    usage(("--steps %d: the run that goes on has done %d"):format(o.steps, saved.step))
  end
end
local known, problem = pcall(flare.zeros, 1, {device = o.device})
if not known then usage((problem:gsub("^%S+:%d+: ", ""))) end

local tokens, vocabulary = load_text(o)
-- the prompt of samples: a new line, or the first character of a text without one
local start = vocabulary:encode "\n" and "\n" or vocabulary:decode(tokens:narrow(1, 1, 1))
local n = math.floor(0.9 * #tokens)
local train, validation = tokens:narrow(1, 1, n), tokens:narrow(1, n + 1, #tokens - n)

flare.manual_seed(o.seed)
local model = GPT(#vocabulary, o):to(o.device)
local matrices, vectors = {}, {}
for _, p in model:named_parameters() do table.insert(p.ndim > 1 and matrices or vectors, p) end
local optimizer = optim.AdamW({{params = matrices, weight_decay = 0.1},
                               {params = vectors, weight_decay = 0.0}},
                              {lr = o.lr, betas = {0.9, 0.99}})
local schedule = optim.WarmupCosineLR(optimizer, {warmup = 100, total = o.steps, floor = 0.1})
local loader = data.Loader(data.Windows(train, o.block),
                           {batch = o.batch, shuffle = true, seed = o.seed, drop_last = true})
-- small gradients would underflow in f16 without it
local scaler = optim.GradScaler{enabled = o.autocast == "f16"}
local parts = {model = model, optimizer = optimizer, schedule = schedule, loader = loader,
               scaler = scaler, vocabulary = vocabulary, generator = flare.default_generator()}

local step = 0
if saved then
  checkpoints:restore(saved, parts)
  step = saved.step
end

local function save()
  local ok, message = checkpoints:save(step, parts, {options = o, step = step})
  if not ok then io.stderr:write("not saved: ", message, "\n") end
end

print(("%d characters, %d of them different; %d parameters; %s, %d steps of %d x %d"):format(
  #tokens, #vocabulary, model:count(), o.device, o.steps, o.batch, o.block))
local metrics = assert(log.metrics(o.out .. "/metrics.jsonl", saved and {after = step} or nil))
local bar = log.progress{total = o.steps, label = "train", start = step}
local parameters = model:parameters()
local began, sampled = os.time(), false
local last_step = o.stop > 0 and math.min(o.stop, o.steps) or o.steps

local function show_sample()
  sampled = true
  if o.quiet then return end
  local text = sample(model, vocabulary, start, 160, flare.generator(o.seed + step), o.device)
  bar:print(("--- step %d writes:%s\n---"):format(step, text))
end

local batches = loader:forever()
while step < last_step do
  local x, y = batches()
  local loss = loss_of(model, o, x, y)
  optimizer:zero_grad()
  scaler:scale(loss):backward()
  scaler:unscale_(optimizer)
  optim.clip_grad_norm_(parameters, 1.0)
  scaler:step(optimizer)
  scaler:update()
  schedule:step()
  step = step + 1
  bar:update(step, {loss = loss})
  if step % 20 == 0 then metrics:write{step = step, loss = loss, lr = schedule:lr()} end
  -- a first sample after a few seconds, then at intervals
  if not sampled and os.time() - began >= 8 then show_sample() end
  if step % 500 == 0 and step < last_step then
    local value = evaluate(model, validation, o, 20000)
    metrics:write{step = step, val_loss = value}
    bar:print(("step %d: loss %.3f on the first 20,000 characters of the validation text; "
      .. "the last line has that of the whole"):format(step, value))
    if step % 1000 == 0 then show_sample() end
    save()
  end
end
loader:close()
bar:finish()
save()

local value = evaluate(model, validation, o)
metrics:write{step = step, val_loss = value}
metrics:close()
if not o.quiet then
  print(sample(model, vocabulary, start, 400, flare.generator(o.seed), o.device))
  local text, message = log.curve(o.out .. "/metrics.jsonl",
                                  {svg = o.out .. "/loss.svg", title = "loss", smooth = 0.8})
  print(text or message)
  local program = arg[-1] or "flare"
  print(([[

In %s: checkpoints, metrics.jsonl, loss.svg. Try next:
  %s examples/char_gpt.lua --data your.txt --out your.out
  %s examples/char_gpt.lua --data your.txt --layers 6 --width 192 --block 128
  %s examples/mnist.lua   digits
  %s                      the prompt]]):format(o.out, program, program, program, program))
end
print(("val_loss %.4f"):format(value))
