-- Trains GPT-2 (Radford et al. 2019; 124M parameters as it comes) on one GPU: f32 weights,
-- products and attention in bf16, AdamW. Prints loss and tokens a second.
--
--   flare examples/gpt2.lua --data tokens.safetensors --batch 16 --steps 200
--
-- --data: a file with a tensor "tokens" of token ids that count from 0 (any integer dtype);
-- without one the tokens are random. --weights: a file to start from, by the names below.
-- Other options: --layers --heads --width --block --vocabulary --lr --seed --device --autocast.
local flare = require "flare"
local nn, optim, F = flare.nn, flare.optim, flare.nn.functional

local o = assert(flare.options.command(arg or {}, {
  data = "", weights = "", batch = 16, steps = 20, layers = 12, heads = 12, width = 768,
  block = 1024, vocabulary = 50304, lr = 3e-4, seed = 1, device = "cuda", autocast = "bf16",
  every = 10}))

---------------------------------------------------------------- model

local Block = flare.class("Block", nn.Module)

function Block:init(width, heads)
  self.heads = heads
  self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
  self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
  self.up = nn.Linear(width, 4 * width, {act = "gelu_tanh"})
  self.down = nn.Linear(4 * width, width)
end

function Block:forward(x)
  local batch, time, width = table.unpack(x.shape)
  local qkv = self.qkv(self.norm1(x)):view(batch, time, 3, self.heads, width // self.heads)
  local heads = qkv:permute(3, 1, 4, 2, 5) -- q, k, v; each (batch, heads, time, size)
  local y = flare.attention(heads[1], heads[2], heads[3], {causal = true})
  x = x + self.proj(y:transpose(2, 3):reshape(x.shape))
  return x + self.down(self.up(self.norm2(x)))
end

local GPT = flare.class("GPT", nn.Module)

function GPT:init()
  self.tokens = nn.Embedding(o.vocabulary, o.width)
  self.positions = nn.Embedding(o.block, o.width)
  self.blocks = nn.ModuleList()
  for _ = 1, o.layers do self.blocks:append(Block(o.width, o.heads)) end
  self.norm = nn.LayerNorm(o.width)
  for _, p in self:named_parameters() do
    if p.ndim > 1 then nn.init.normal_(p, {std = 0.02}) end
  end
end

-- x, y (batch, time): the mean loss of predicting y
function GPT:forward(x, y)
  local h = self.tokens(x) + self.positions.weight:narrow(1, 1, x:size(2))
  for i = 1, #self.blocks do h = self.blocks[i](h) end
  local logits = F.linear(self.norm(h), self.tokens.weight)
  return F.cross_entropy(logits:flatten(1, 2), y:flatten(1, 2))
end

---------------------------------------------------------------- data

-- Batch k: windows that follow each other, from the start again at the end.
local function batches()
  if o.data == "" then
    local x = flare.randint(1, math.min(50257, o.vocabulary), {o.batch, o.block + 1},
                            {device = o.device})
    return function() return x end
  end
  local tokens = assert(flare.io.safetensors.load(o.data)).tokens:to("i32"):to(o.device) + 1
  local windows = tokens:unfold(1, o.block + 1, o.block) -- they share their ends
  local all = windows:size(1) // o.batch
  return function(k) return windows:narrow(1, (k - 1) % all * o.batch + 1, o.batch) end
end

---------------------------------------------------------------- training

flare.manual_seed(o.seed)
local model = GPT():to(o.device)
if o.weights ~= "" then
  model:load_state_dict(assert(flare.io.safetensors.load(o.weights)))
end
local optimizer = optim.AdamW(model:parameters(), {lr = o.lr, weight_decay = 0.01})
local scaler = optim.GradScaler{enabled = o.autocast == "f16"}
local parameters, batch = model:parameters(), batches()
print(("%d parameters, batches of %d x %d on %s"):format(model:count(), o.batch, o.block, o.device))

local function step(k)
  local tokens = batch(k)
  local x, y = tokens:narrow(2, 1, o.block), tokens:narrow(2, 2, o.block)
  local loss = flare.autocast(o.autocast ~= "none" and o.autocast or false, model, x, y)
  optimizer:zero_grad()
  scaler:scale(loss):backward()
  scaler:unscale_(optimizer)
  optim.clip_grad_norm_(parameters, 1.0)
  scaler:step(optimizer)
  scaler:update()
  return loss
end

local clock = flare.core.clock
local began = clock()
print(("step 1: loss %.4f, %.2f s"):format(step(1):item(), clock() - began))
local last, done = clock(), 1
for k = 2, o.steps do
  local loss = step(k)
  if k % o.every == 0 or k == o.steps then
    local value, now = loss:item(), clock() -- item() waits for the device
    print(("step %d: loss %.4f, %d tokens/s"):format(k, value,
      (k - done) * o.batch * o.block // (now - last)))
    last, done = now, k
  end
end
local stats = flare.memory.stats(o.device)
print(("peak %.2f GiB live, %.2f GiB reserved"):format(stats.peak / 2^30, stats.reserved / 2^30))
