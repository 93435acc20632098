--- Parts of U-Nets and of their autoencoders: embeddings of times, residual blocks, attention, and
-- blocks of one resolution. Fields have the names of diffusers' files.
local flare = require "flare"
local Diffuser = require "flare.models.diffuser"
local activations = require "flare.models.activations"
local attend = require "flare.models.heads"
local nn = flare.nn

local M = {}

local acts = {silu = flare.silu, swish = flare.silu, mish = flare.mish, gelu = flare.gelu,
              relu = flare.relu}

--- The function of an activation's name.
function M.act(name) return Diffuser.find("act_fn", name, acts) end

--- Sines and cosines of times, (batch, width).
-- @param t (batch), f32
-- @param o {flip = cosines first, shift = of the number of frequencies}
function M.waves(t, width, o)
  local half = width // 2
  local rates = (flare.arange(0, half, {device = t.device}):to "f64"
    * (-math.log(10000) / (half - (o.shift or 0)))):exp():to "f32"
  local angles = t:unsqueeze(2) * rates
  local parts = {angles:sin(), angles:cos()}
  if o.flip then parts[1], parts[2] = parts[2], parts[1] end
  if width % 2 == 1 then parts[3] = flare.zeros(t:size(1), 1, {device = t.device}) end
  return flare.cat(parts, 2)
end

local TimeEmbedding = flare.class("TimestepEmbedding", nn.Module)
M.TimeEmbedding = TimeEmbedding

-- @param o {act =, after = the name of an activation of the result, condition = width of a second
--   input}
function TimeEmbedding:init(from, to, o)
  o = o or {}
  local act, more = activations.find(o.act or "silu")
  self.act, self.after = more, o.after and M.act(o.after) or nil
  self.linear_1 = nn.Linear(from, to, {act = act})
  if o.condition then self.cond_proj = nn.Linear(o.condition, from, {bias = false}) end
  self.linear_2 = nn.Linear(to, to)
end

function TimeEmbedding:forward(x, condition)
  if condition then x = x + self.cond_proj(condition) end
  x = self.linear_1(x)
  x = self.linear_2(self.act and self.act(x) or x)
  return self.after and self.after(x) or x
end

local Resnet = flare.class("ResnetBlock2D", nn.Module)
M.Resnet = Resnet

local function halve(x) return flare.avg_pool(x, {2, 2}, {stride = {2, 2}}) end
local function double(x) return flare.interpolate(x, {scale = 2}) end

local shifts = {default = 1, scale_shift = 2} -- outputs of the projection for each channel

-- @param o {time = width of the embedding or nil, groups =, eps =, act =, dropout =, shift = how
--   the embedding enters, scale = what the sum is divided by, resize = function of both inputs}
function Resnet:init(from, to, o)
  self.act, self.scale, self.resize = M.act(o.act), o.scale or 1, o.resize
  self.norm1 = nn.GroupNorm(o.groups, from, {eps = o.eps})
  self.conv1 = nn.Conv2d(from, to, 3, {padding = 1})
  local n = Diffuser.find("resnet_time_scale_shift", o.shift or "default", shifts)
  if o.time then self.time_emb_proj = nn.Linear(o.time, n * to) end
  self.both = n == 2
  self.norm2 = nn.GroupNorm(o.groups, to, {eps = o.eps})
  self.dropout = nn.Dropout(o.dropout or 0)
  self.conv2 = nn.Conv2d(to, to, 3, {padding = 1})
  if from ~= to then self.conv_shortcut = nn.Conv2d(from, to, 1) end
end

-- @param t the activated embedding of the times, or nil
function Resnet:forward(x, t)
  local y = self.act(self.norm1(x))
  if self.resize then x, y = self.resize(x), self.resize(y) end
  y = self.conv1(y)
  if t then t = self.time_emb_proj(t):unsqueeze(3):unsqueeze(4) end
  if self.both then
    local n = y:size(2)
    y = self.norm2(y) * (1 + t:narrow(2, 1, n)) + t:narrow(2, n + 1, n)
  else
    y = self.norm2(t and y + t or y)
  end
  y = self.conv2(self.dropout(self.act(y)))
  if self.conv_shortcut then x = self.conv_shortcut(x) end
  return self.scale == 1 and x + y or (x + y) / self.scale
end

local Attention = flare.class("Attention", nn.Module)
M.Attention = Attention

-- @param o {heads =, size = of a head, context = width of what is attended to, bias =, dropout =,
--   groups = of a norm of the input, eps =, scale =}
function Attention:init(width, o)
  local inner, context = o.heads * o.size, o.context or width
  self.heads, self.scale = o.heads, o.scale or 1
  if o.groups then self.group_norm = nn.GroupNorm(o.groups, width, {eps = o.eps}) end
  self.to_q = nn.Linear(width, inner, {bias = o.bias})
  self.to_k = nn.Linear(context, inner, {bias = o.bias})
  self.to_v = nn.Linear(context, inner, {bias = o.bias})
  self.to_out = nn.ModuleList(nn.Linear(inner, width), nn.Dropout(o.dropout or 0))
end

-- x (batch, time, width) to itself, or to (batch, other time, context).
function Attention:tokens(x, context, mask)
  context = context or x
  local y = attend(self.to_q(x), self.to_k(context), self.to_v(context), {heads = self.heads,
                                                                          mask = mask})
  return self.to_out[2](self.to_out[1](y))
end

-- Each place of an image to all places.
function Attention:forward(x)
  local y = self.group_norm and self.group_norm(x) or x
  y = self:tokens(y:flatten(3, 4):transpose(2, 3)):transpose(2, 3):reshape(x.shape)
  return self.scale == 1 and x + y or (x + y) / self.scale
end

-- An activation within a feed-forward layer: `act` of a projection, or of half of it, a gate.
local Inner = flare.class("FeedForwardInner", nn.Module)

local inners = {
  geglu = {act = flare.gelu, gate = true},
  ["geglu-approximate"] = {act = function(x) return x * (x * 1.702):sigmoid() end},
  gelu = {fused = "gelu"},
  ["gelu-approximate"] = {fused = "gelu_tanh"},
  swiglu = {act = flare.silu, gate = true},
  ["linear-silu"] = {fused = "silu"},
}

function Inner:init(from, to, kind)
  kind = Diffuser.find("activation_fn", kind, inners)
  self.act, self.gate = kind.act, kind.gate
  self.proj = nn.Linear(from, kind.gate and 2 * to or to, {act = kind.fused})
end

function Inner:forward(x)
  x = self.proj(x)
  if not self.gate then return self.act and self.act(x) or x end
  local n = x:size(-1) // 2
  return x:narrow(-1, 1, n) * self.act(x:narrow(-1, n + 1, n))
end

--- A feed-forward layer, four times as wide inside.
function M.feed_forward(width, act, dropout)
  return nn.ModuleDict{net = nn.Sequential(Inner(width, 4 * width, act), nn.Dropout(dropout or 0),
                                           nn.Linear(4 * width, width))}
end

local Block = flare.class("BasicTransformerBlock", nn.Module)

function Block:init(width, o)
  self.only = o.only_context
  self.norm1 = nn.LayerNorm(width)
  self.attn1 = Attention(width, {heads = o.heads, size = o.size, bias = false,
                                 context = o.only_context and o.context or nil})
  if o.context then
    self.norm2 = nn.LayerNorm(width)
    self.attn2 = Attention(width, {heads = o.heads, size = o.size, bias = false,
                                   context = o.context})
  end
  self.norm3 = nn.LayerNorm(width)
  self.ff = M.feed_forward(width, "geglu")
end

function Block:forward(x, context, mask)
  if self.only then
    x = x + self.attn1:tokens(self.norm1(x), context, mask)
  else
    x = x + self.attn1:tokens(self.norm1(x))
  end
  if self.attn2 then x = x + self.attn2:tokens(self.norm2(x), context, mask) end
  return x + self.ff.net(self.norm3(x))
end

local Transformer = flare.class("Transformer2DModel", nn.Module)

-- Attention of the places of an image to themselves and to a text.
-- @param o {heads =, context = width of the text, layers =, groups =, linear = whether projections
--   are linear layers, only_context =}
function Transformer:init(width, o)
  local size = width // o.heads
  local inner, parts = o.heads * size, {size = size}
  for name, value in pairs(o) do parts[name] = value end
  self.linear = o.linear
  self.norm = nn.GroupNorm(o.groups, width, {eps = 1e-6})
  self.proj_in = o.linear and nn.Linear(width, inner) or nn.Conv2d(width, inner, 1)
  self.transformer_blocks = nn.ModuleList()
  for _ = 1, o.layers do self.transformer_blocks:append(Block(inner, parts)) end
  self.proj_out = o.linear and nn.Linear(inner, width) or nn.Conv2d(inner, width, 1)
end

function Transformer:forward(x, context, mask)
  local batch, _, height, width = table.unpack(x.shape)
  local y = self.norm(x)
  if not self.linear then y = self.proj_in(y) end
  y = y:flatten(3, 4):transpose(2, 3)
  if self.linear then y = self.proj_in(y) end
  for _, block in ipairs(self.transformer_blocks) do y = block(y, context, mask) end
  if self.linear then y = self.proj_out(y) end
  y = y:transpose(2, 3):reshape(batch, -1, height, width)
  return x + (self.linear and y or self.proj_out(y))
end

-- Halves a resolution. Without padding, zeros are added below and on the right.
local Down = flare.class("Downsample2D", nn.Module)

function Down:init(width, padding)
  self.bare = padding == 0
  self.conv = nn.Conv2d(width, width, 3, {stride = 2, padding = padding})
end

function Down:forward(x)
  if self.bare then x = flare.pad(x, {0, 1, 0, 1}) end
  return self.conv(x)
end

-- Doubles a resolution, or brings it to a size.
local Up = flare.class("Upsample2D", nn.Module)

function Up:init(width) self.conv = nn.Conv2d(width, width, 3, {padding = 1}) end

function Up:forward(x, _, size)
  return self.conv(size and flare.interpolate(x, {size = size}) or double(x))
end

-- What the names of blocks of one resolution say: `attention` to itself or "cross", and whether
-- residual blocks change the resolution.
local kinds = {DownBlock2D = {}, AttnDownBlock2D = {attention = "self"},
  CrossAttnDownBlock2D = {attention = "cross"}, ResnetDownsampleBlock2D = {sampler = "resnet"},
  DownEncoderBlock2D = {}, AttnDownEncoderBlock2D = {attention = "self"}}
local up_kinds = {UpBlock2D = {}, AttnUpBlock2D = {attention = "self"},
  CrossAttnUpBlock2D = {attention = "cross"}, ResnetUpsampleBlock2D = {sampler = "resnet"},
  UpDecoderBlock2D = {}, AttnUpDecoderBlock2D = {attention = "self"}}

-- Attention behind a residual block, or nil.
local function attention_of(kind, width, o)
  if kind == "self" then
    local size = o.head_size or width
    return Attention(width, {heads = width // size, size = size, groups = o.attention_groups,
                             eps = o.eps, scale = o.scale})
  elseif kind == "cross" then
    return Transformer(width, o.cross)
  end
end

local Stage = flare.class("Block2D", nn.Module)
M.Stage = Stage

-- @param name of the kind
-- @param inputs widths of the inputs of its residual blocks
-- @param o options of residual blocks, and {sample = whether the resolution changes, sampler =,
--   padding = of Down, head_size =, attention_groups =, cross = options of transformers, or a list
--   of these}
function Stage:init(name, inputs, width, up, o)
  local kind = Diffuser.find("block type", name:gsub("^UNetRes", ""), up and up_kinds or kinds)
  self.resnets, self.up = nn.ModuleList(), up
  for _, from in ipairs(inputs) do self.resnets:append(Resnet(from, width, o)) end
  if kind.attention then
    self.attentions = nn.ModuleList()
    for k = 1, #inputs do
      local own = setmetatable({cross = o.cross and o.cross[k]}, {__index = o})
      self.attentions:append(attention_of(kind.attention, width, own))
    end
  end
  if not o.sample then return end
  local by_resnet = kind.sampler or kind.attention == "self" and o.sampler
  if by_resnet == "resnet" then
    local own = setmetatable({resize = up and double or halve}, {__index = o})
    self[up and "upsamplers" or "downsamplers"] = nn.ModuleList(Resnet(width, width, own))
  elseif up then
    self.upsamplers = nn.ModuleList(Up(width))
  else
    self.downsamplers = nn.ModuleList(Down(width, o.padding or 1))
  end
end

-- @param t the activated embedding of the times
-- @param context (batch, time, width) and its mask, for transformers
-- @param skips a list: of the results so far, on the way down; from which inputs are taken, on the
--   way up
function Stage:forward(x, t, context, mask, skips)
  for k, resnet in ipairs(self.resnets) do
    if self.up and skips then x = flare.cat({x, table.remove(skips)}, 2) end
    x = resnet(x, t)
    if self.attentions then x = self.attentions[k](x, context, mask) end
    if skips and not self.up then skips[#skips + 1] = x end
  end
  local sampler = (self.up and self.upsamplers or self.downsamplers or {})[1]
  if not sampler then return x end
  local last = self.up and skips and skips[#skips]
  local size = last and {last:size(3), last:size(4)} or nil
  x = sampler(x, t, size)
  if skips and not self.up then skips[#skips + 1] = x end
  return x
end

local Middle = flare.class("UNetMidBlock2D", nn.Module)
M.Middle = Middle

-- Residual blocks with attention between them.
-- @param attention "self", "cross", or nil for one residual block alone; false for two without
function Middle:init(width, attention, o)
  self.resnets = nn.ModuleList(Resnet(width, width, o))
  if attention == nil then return end
  self.resnets:append(Resnet(width, width, o))
  if attention then self.attentions = nn.ModuleList(attention_of(attention, width, o)) end
end

function Middle:forward(x, t, context, mask)
  x = self.resnets[1](x, t)
  if self.attentions then x = self.attentions[1](x, context, mask) end
  return self.resnets[2] and self.resnets[2](x, t) or x
end

--- The rules of names for files with older names of attention.
M.tensors = {}
for now, before in pairs{to_q = "query", to_k = "key", to_v = "value",
                         ["to_out.0"] = "proj_attn"} do
  local pattern = "^(.*attentions%.%d+)%." .. now:gsub("%.", "%%.") .. "%.(%a+)$"
  table.insert(M.tensors, {pattern, "%1." .. now .. ".%2", nil, {"%1." .. before .. ".%2"}})
end

return M
