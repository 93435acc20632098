-- Trains GPT-2 (Radford et al. 2019; 124M parameters by default) on one GPU or several: f32
-- weights, products and attention in bf16, AdamW. Prints the loss and tokens per second of all
-- GPUs.
--
--   flare examples/gpt2.lua --data tokens.safetensors --batch 16 --steps 200
--   flare launch -n 4 examples/gpt2.lua --batch 32        (32 on each GPU)
--
-- --help lists the options. Without --data the tokens are random.
local flare = require "flare"
local nn, optim, dist, F = flare.nn, flare.optim, flare.dist, flare.nn.functional

local o = flare.args(arg, "Trains GPT-2 on one GPU or several.", {
  data = {"", "file with a tensor \"tokens\" of token ids that count from 0"},
  weights = {"", "safetensors file to start from"},
  batch = {16, "texts of a step on each GPU"}, steps = {20, "training steps"},
  layers = {12, "transformer blocks"}, heads = {12, "attention heads"}, width = {768, "features"},
  block = {1024, "tokens of a text"}, vocabulary = {50304, "token ids"},
  lr = {3e-4, "learning rate"}, seed = {1, "of random numbers"}, device = {"cuda", "cuda or cpu"},
  autocast = {"bf16", "dtype of products: bf16, f16 or none"},
  every = {10, "steps between lines of output"},
  zero = {0, "1, 2 or 3: divide optimizer state, gradients, parameters among the GPUs"},
  recompute = {0, "1: recompute activations in backward, for less memory; with --zero 3"},
  regather = {1, "0: keep gathered parameters until backward, for speed; with --zero 3"},
  gather = {"", "dtype in which parameters are gathered, such as bf16"},
  compress = {"", "dtype in which gradients are exchanged, such as bf16"},
})
local rank, size = dist.init()
local compress = o.compress ~= "" and o.compress or nil

local function say(...)
  if rank == 0 then print((...):format(select(2, ...))) end
end

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

-- This rank's batch k: consecutive windows, wrapping around at the end of the tokens.
local function batches()
  if o.data == "" then
    local x = flare.randint(1, math.min(50257, o.vocabulary), {o.batch, o.block + 1},
                            {device = o.device})
    return function() return x end
  end
  local tokens = assert(flare.io.safetensors.load(o.data)).tokens:to("i32"):to(o.device) + 1
  local windows = tokens:unfold(1, o.block + 1, o.block) -- they share their ends
  local all = windows:size(1) // o.batch
  return function(k)
    return windows:narrow(1, ((k - 1) * size + rank) % all * o.batch + 1, o.batch)
  end
end

---------------------------------------------------------------- training

flare.manual_seed(o.seed)
local model = GPT():to(o.device)
local count = model:count()
if o.weights ~= "" then
  model:load_state_dict(assert(flare.io.safetensors.load(o.weights)))
end
local function adamw(params) return optim.AdamW(params, {lr = o.lr, weight_decay = 0.01}) end

local optimizer
if o.zero > 0 then
  local units = {}
  for i = 1, #model.blocks do units[i] = model.blocks[i] end
  local apart = o.zero == 3 or o.gather ~= ""
  model = dist.ZeRO(model, adamw, {stage = o.zero, units = apart and units or nil,
    recompute = o.recompute ~= 0, regather = o.regather ~= 0,
    gather = o.gather ~= "" and o.gather or nil, compress = compress})
  optimizer = model
else
  if size > 1 then model = dist.DataParallel(model, {compress = compress}) end
  optimizer = adamw(model:parameters())
end
local scaler = optim.GradScaler{enabled = o.autocast == "f16"}
flare.manual_seed(o.seed + rank)
local batch = batches()
say("%d parameters, batches of %d x %d on each of %d GPUs", count, o.batch, o.block, size)

local function update()
  scaler:unscale_(optimizer)
  if o.zero > 0 then model:clip_grad_norm_(1.0)
  else optim.clip_grad_norm_(model:parameters(), 1.0) end
  scaler:step(optimizer)
  scaler:update()
end

local function step(k)
  local tokens = batch(k)
  local x, y = tokens:narrow(2, 1, o.block), tokens:narrow(2, 2, o.block)
  local loss = flare.autocast(o.autocast ~= "none" and o.autocast or false, model, x, y)
  optimizer:zero_grad()
  scaler:scale(loss):backward()
  update()
  return loss
end

local clock = flare.core.clock
local began = clock()
say("step 1: loss %.4f, %.2f s", step(1):item(), clock() - began)
local last, done = clock(), 1
for k = 2, o.steps do
  local loss = step(k)
  if k % o.every == 0 or k == o.steps then
    local value, now = loss:item(), clock() -- item() waits for the device
    say("step %d: loss %.4f, %d tokens/s", k, value,
      (k - done) * o.batch * o.block * size // (now - last))
    last, done = now, k
  end
end
local stats = flare.memory.stats(o.device)
say("peak %.2f GiB live, %.2f GiB reserved", stats.peak / 2^30, stats.reserved / 2^30)
