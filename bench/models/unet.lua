-- The U-Net of a diffusion model (arXiv:2006.11239) on latents of 64 x 64: residual blocks with
-- group norm and SiLU, skip connections by cat, attention at two resolutions. A step draws times
-- and noise; noise=fixed takes the same in each step.
local flare = require "flare"
local common = ...
local nn, F = flare.nn, flare.nn.functional

local Res = flare.class("Res", nn.Module)

function Res:init(o, inputs, outputs)
  self.norm1 = nn.GroupNorm(o.groups, inputs)
  self.conv1 = nn.Conv2d(inputs, outputs, 3, {padding = 1})
  self.time = nn.Linear(4 * o.width, outputs)
  self.norm2 = nn.GroupNorm(o.groups, outputs)
  self.drop = nn.Dropout(o.dropout)
  self.conv2 = nn.Conv2d(outputs, outputs, 3, {padding = 1})
  if inputs ~= outputs then self.short = nn.Conv2d(inputs, outputs, 1) end
end

function Res:forward(x, t)
  local h = self.conv1(flare.silu(self.norm1(x)))
  h = h + self.time(flare.silu(t)):unsqueeze(3):unsqueeze(4)
  h = self.conv2(self.drop(flare.silu(self.norm2(h))))
  return h + (self.short and self.short(x) or x)
end

local Attention = flare.class("Attention", nn.Module)

function Attention:init(o, width)
  self.heads = width // o.head
  self.norm = nn.GroupNorm(o.groups, width)
  self.qkv = nn.Conv2d(width, 3 * width, 1)
  self.proj = nn.Conv2d(width, width, 1)
end

function Attention:forward(x)
  local batch, width, height, length = table.unpack(x.shape)
  local qkv = self.qkv(self.norm(x)):view(batch, 3, self.heads, width // self.heads,
                                          height * length):permute(2, 1, 3, 5, 4)
  local y = flare.attention(qkv[1], qkv[2], qkv[3])
  return x + self.proj(y:transpose(3, 4):reshape(x.shape))
end

local UNet = flare.class("UNet", nn.Module)

local function stage(o, level, inputs, outputs)
  local s = nn.Module()
  s.res = Res(o, inputs, outputs)
  if level > #o.factors - 2 then s.attention = Attention(o, outputs) end
  return s
end

function UNet:init(o)
  self.width = o.width
  self.time1, self.time2 = nn.Linear(o.width, 4 * o.width), nn.Linear(4 * o.width, 4 * o.width)
  self.first = nn.Conv2d(4, o.width, 3, {padding = 1})
  self.down, self.up = nn.ModuleList(), nn.ModuleList()
  local channels, skips = o.width, {o.width}
  for level, factor in ipairs(o.factors) do
    for _ = 1, o.depth do
      self.down:append(stage(o, level, channels, o.width * factor))
      channels = o.width * factor
      skips[#skips + 1] = channels
    end
    if level < #o.factors then
      self.down:append(nn.Conv2d(channels, channels, 3, {stride = 2, padding = 1}))
      skips[#skips + 1] = channels
    end
  end
  self.middle1, self.middle2 = Res(o, channels, channels), Attention(o, channels)
  self.middle3 = Res(o, channels, channels)
  for level = #o.factors, 1, -1 do
    for _ = 0, o.depth do
      local outputs = o.width * o.factors[level]
      self.up:append(stage(o, level, channels + table.remove(skips), outputs))
      channels = outputs
    end
    if level > 1 then self.up:append(nn.Conv2d(channels, channels, 3, {padding = 1})) end
  end
  self.norm = nn.GroupNorm(o.groups, channels)
  self.last = nn.Conv2d(channels, 4, 3, {padding = 1})
end

local function run(s, h, t)
  h = s.res(h, t)
  return s.attention and s.attention(h) or h
end

function UNet:forward(x, t)
  local half = self.width // 2
  local rates = (flare.arange(0, half, {dtype = "f32", device = x.device})
    * (-math.log(10000) / half)):exp()
  local angles = t:to("f32"):unsqueeze(2) * rates
  t = self.time2(flare.silu(self.time1(flare.cat({angles:sin(), angles:cos()}, 2))))
  local h = self.first(x)
  local skips = {h}
  for _, s in ipairs(self.down) do
    h = s.res and run(s, h, t) or s(h)
    skips[#skips + 1] = h
  end
  h = self.middle3(self.middle2(self.middle1(h, t)), t)
  for _, s in ipairs(self.up) do
    if s.res then h = run(s, flare.cat({h, table.remove(skips)}, 2), t)
    else h = s(F.interpolate(h, {scale = 2})) end
  end
  return self.last(flare.silu(self.norm(h)))
end

local function build(o)
  local model = common.prepare(o, UNet(o))
  local optimizer = flare.optim.AdamW(model:parameters(), {lr = 1e-4, weight_decay = 0.01})
  local x = common.numbers(o, {o.batch, 4, o.image, o.image})
  local noise, times = common.numbers(o, x.shape, 3), common.ids(o, 1000, {o.batch})
  local kept = (1 - flare.linspace(1e-4, 0.02, 1000, {device = o.device})):cumprod(1)
  local function forward()
    local e, t = noise, times
    if o.noise == "drawn" then
      e = flare.randn(x.shape, {device = o.device})
      t = flare.randint(1, 1001, {o.batch}, {device = o.device})
    end
    local a = kept:index_select(1, t):view(-1, 1, 1, 1)
    return F.mse_loss(model(a:sqrt() * x + (1 - a):sqrt() * e, t - 1):to "f32", e)
  end
  return {model = model, items = o.batch, step = common.training(o, model, optimizer, forward, 1.0)}
end

return {
  unit = "images", build = build,
  sizes = {
    small = {batch = 2, image = 8, width = 8, factors = {1, 2, 2}, depth = 1, groups = 4, head = 8,
             dropout = 0.1, noise = "drawn"},
    full = {batch = 32, image = 64, width = 128, factors = {1, 2, 3, 4}, depth = 2, groups = 32,
            head = 64, dropout = 0, noise = "drawn"},
  },
}
