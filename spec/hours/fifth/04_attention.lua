-- Which position an encoder looks at: a transformer finds a marked number; its weights as pictures.
local flare = require "flare"
local nn, optim = flare.nn, flare.optim
flare.manual_seed(4)

local time = 10
local function batch(n)                       -- the answer is the number behind the mark (token 1)
  local ids = flare.randint(2, 12, {n, time})
  local at = flare.randint(1, time, {n})
  ids = ids:scatter(2, at:unsqueeze(2), flare.ones(n, 1, {dtype = "i64"}))
  return ids, ids:gather(2, (at + 1):unsqueeze(2)):squeeze(2), at
end

local Net = flare.class("Net", nn.Module)
function Net:init(width)
  self.tokens, self.places = nn.Embedding(11, width), nn.Embedding(time, width)
  local layer = nn.TransformerEncoderLayer(width, 2, {hidden = 64, dropout = 0, norm_first = true})
  self.encoder = nn.TransformerEncoder(layer, 2, {norm = nn.LayerNorm(width)})
  self.query = self:param(flare.randn(1, 1, width) * 0.1)
  self.pool = nn.MultiHeadAttention(width, 1)
  self.out = nn.Linear(width, 11)
end
function Net:features(ids)
  return self.encoder(self.tokens(ids) + self.places(flare.range(1, time)))
end
function Net:forward(ids)
  local h = self:features(ids)
  local q = self.query:expand(#ids, 1, -1)
  return self.out(self.pool(q, h):squeeze(2)), self.pool:weights(q, h)
end

local model = Net(32)
local optimizer = optim.AdamW(model, {lr = 2e-3})
for step = 1, 300 do
  local ids, answer = batch(64)
  local loss = flare.cross_entropy((model(ids)), answer)
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  if step % 100 == 0 then print(step, loss:item()) end
end
model:eval()
local ids, answer, at = batch(200)
local logits, weights = flare.no_grad(model, ids)
local right = logits:argmax(2):eq(answer):mean():item()
print("right", right, weights.shape)
assert(right > 0.9, right)
local looked = weights:flatten(2):argmax(2)
print("looks at the mark or behind it", (looked:eq(at) | looked:eq(at + 1)):mean():item())
local name = os.tmpname() .. ".png"
assert(weights[{{1, 20}}]:flatten(2):heat(name))
assert(flare.data.images.read(name))
os.remove(name)
