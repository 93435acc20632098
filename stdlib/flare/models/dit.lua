--- The diffusion transformer (arXiv:2212.09748): patches as tokens; times and classes shift, scale
-- and gate each part.
local flare = require "flare"
local Diffuser = require "flare.models.diffuser"
local Model = require "flare.models.model"
local parts = require "flare.models.unet_parts"
local nn = flare.nn
local null = flare.core.json.null

local defaults = {num_attention_heads = 16, attention_head_dim = 72, in_channels = 4,
  out_channels = null, num_layers = 28, dropout = 0, norm_num_groups = 32, attention_bias = true,
  sample_size = 32, patch_size = 2, activation_fn = "gelu-approximate",
  num_embeds_ada_norm = 1000, upcast_attention = false, norm_type = "ada_norm_zero",
  norm_elementwise_affine = false, norm_eps = 1e-5}

local DROPPED = 0.1 -- part of the classes that training leaves out, for guidance without them

local Embedding = flare.class("CombinedTimestepLabelEmbeddings", nn.Module)

function Embedding:init(width, classes)
  self.timestep_embedder = parts.TimeEmbedding(256, width)
  self.class_embedder = nn.ModuleDict{embedding_table = nn.Embedding(classes + 1, width,
                                                                     {base = 0})}
end

function Embedding:forward(waves, labels)
  return self.timestep_embedder(waves) + self.class_embedder.embedding_table(labels)
end

-- The scales and shifts of a part begin at zero, so that a new block changes nothing.
local function zero(layer)
  nn.init.zeros_(layer.weight)
  nn.init.zeros_(layer.bias)
  return layer
end

local Norm = flare.class("AdaLayerNormZero", nn.Module)

function Norm:init(width, classes)
  self.emb = Embedding(width, classes)
  self.linear = zero(nn.Linear(width, 6 * width))
  self.norm = nn.LayerNorm(width, {affine = false, eps = 1e-6})
end

local function modulate(x, shift, scale) return x * (1 + scale) + shift end

local Block = flare.class("DiTBlock", nn.Module)

function Block:init(width, c)
  self.norm1 = Norm(width, c.num_embeds_ada_norm)
  self.attn1 = parts.Attention(width, {heads = c.num_attention_heads, size = c.attention_head_dim,
                                       bias = c.attention_bias, dropout = c.dropout})
  self.norm3 = nn.LayerNorm(width, {affine = c.norm_elementwise_affine, eps = c.norm_eps})
  self.ff = parts.feed_forward(width, c.activation_fn, c.dropout)
end

function Block:forward(x, waves, labels)
  local norm = self.norm1
  local m = norm.linear(flare.silu(norm.emb(waves, labels))):view(x:size(1), 6, 1, -1)
  local function part(k) return m:select(2, k) end
  x = x + part(3) * self.attn1:tokens(modulate(norm.norm(x), part(1), part(2)))
  return x + part(6) * self.ff.net(modulate(self.norm3(x), part(4), part(5)))
end

local DiT = flare.class("DiTTransformer2DModel", Diffuser)

function DiT:build(c)
  Diffuser.refuse(c, {norm_type = "ada_norm_zero"})
  local width = c.num_attention_heads * c.attention_head_dim
  if width % 4 ~= 0 then
    flare.core.raise(("the width of the model, %d heads of %d, must be a multiple of 4")
      :format(c.num_attention_heads, c.attention_head_dim))
  end
  local patch = c.patch_size
  self.pos_embed = nn.ModuleDict{proj = nn.Conv2d(c.in_channels, width, patch, {stride = patch})}
  self.transformer_blocks = nn.ModuleList()
  for _ = 1, c.num_layers do self.transformer_blocks:append(Block(width, c)) end
  self.norm_out = nn.LayerNorm(width, {affine = false, eps = 1e-6})
  self.proj_out_1 = zero(nn.Linear(width, 2 * width))
  self.proj_out_2 = zero(nn.Linear(width, patch * patch * (c.out_channels or c.in_channels)))
end

-- Sines and cosines of places along one dim, (n, width / 2).
local function along(n, side, width)
  local half = width // 4
  local rates = (flare.arange(0, half, {device = "cpu"}):to "f64" * (-math.log(10000) / half)):exp()
  local angles = (flare.arange(0, n, {device = "cpu"}):to "f64" * (side / n)):unsqueeze(2) * rates
  return flare.cat({angles:sin(), angles:cos()}, 2)
end

-- The positions of patches, (height * width, width of the model). Other sizes than that of the
-- training are spread over its range.
function DiT:positions(height, width, like)
  local key = ("%d %d %s %s"):format(height, width, like.device, like.dtype)
  self._positions = self._positions or {}
  if not self._positions[key] then
    local _ <close> = flare.no_grad()
    local side, all = self.config.sample_size // self.config.patch_size, like:size(3)
    local x = along(width, side, all):unsqueeze(1):expand(height, width, all // 2)
    local y = along(height, side, all):unsqueeze(2):expand(height, width, all // 2)
    self._positions[key] = flare.cat({x, y}, 3):flatten(1, 2):to(like.dtype):to(like.device)
  end
  return self._positions[key]
end

-- Classes of samples; the last one stands for none.
function DiT:classes(labels, x)
  local none, batch = self.config.num_embeds_ada_norm, x:size(1)
  if not labels then
    return flare.full({batch}, none, {dtype = "i64", device = x.device})
  end
  flare.options.tensor("DiTTransformer2DModel", "the classes", labels)
  if not self.training then return labels end
  return labels:masked_fill(flare.rand({batch}, {device = x.device}):lt(DROPPED), none)
end

--- What the model predicts of samples, (batch, out_channels, height, width).
-- @param x samples (batch, in_channels, height, width)
-- @param t their time, a number, or a tensor (batch)
-- @param labels classes (batch) from 0; without them, or with num_embeds_ada_norm as a class, the
--   model predicts samples of any class
function DiT:forward(x, t, labels)
  local c = self.config
  local patch, batch = c.patch_size, x:size(1)
  labels = self:classes(labels, x)
  local waves = parts.waves(Diffuser.times(t, x), 256, {flip = true, shift = 1}):to(x.dtype)
  local y = self.pos_embed.proj(x)
  local height, width = y:size(3), y:size(4)
  y = y:flatten(3, 4):transpose(2, 3)
  y = y + self:positions(height, width, y)
  for _, block in ipairs(self.transformer_blocks) do y = block(y, waves, labels) end
  local e = self.transformer_blocks[1].norm1.emb(waves, labels)
  local m = self.proj_out_1(flare.silu(e)):view(batch, 2, 1, -1)
  y = self.proj_out_2(modulate(self.norm_out(y), m:select(2, 1), m:select(2, 2)))
  y = y:view(batch, height, width, patch, patch, -1):permute(1, 6, 2, 4, 3, 5)
  return y:reshape(batch, -1, height * patch, width * patch)
end

Model.publish(DiT, {defaults = defaults, ignored = {"^pos_embed%.pos_embed$"}})

return {DiTTransformer2DModel = DiT}
