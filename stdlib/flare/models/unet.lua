--- U-Nets of diffusion models (arXiv:2006.11239), alone and with a text (arXiv:2112.10752).
local flare = require "flare"
local Diffuser = require "flare.models.diffuser"
local Model = require "flare.models.model"
local parts = require "flare.models.unet_parts"
local nn = flare.nn
local null = flare.core.json.null

local shared = {sample_size = null, in_channels = 4, out_channels = 4, center_input_sample = false,
  flip_sin_to_cos = true, freq_shift = 0, layers_per_block = 2, downsample_padding = 1,
  mid_block_scale_factor = 1, dropout = 0, act_fn = "silu", norm_num_groups = 32, norm_eps = 1e-5,
  attention_head_dim = 8, class_embed_type = null, num_class_embeds = null,
  resnet_time_scale_shift = "default", time_embedding_type = "positional",
  time_embedding_dim = null}

local function with(more)
  local out = {}
  for _, fields in ipairs{shared, more} do
    for name, value in pairs(fields) do out[name] = value end
  end
  return out
end

local alone = with{in_channels = 3, out_channels = 3,
  down_block_types = {"DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"},
  up_block_types = {"AttnUpBlock2D", "AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"},
  mid_block_type = "UNetMidBlock2D", block_out_channels = {224, 448, 672, 896},
  downsample_type = "conv", upsample_type = "conv", attn_norm_num_groups = null,
  add_attention = true, num_train_timesteps = null}

local conditional = with{
  down_block_types = {"CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D",
                      "DownBlock2D"},
  up_block_types = {"UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"},
  mid_block_type = "UNetMidBlock2DCrossAttn", block_out_channels = {320, 640, 1280, 1280},
  only_cross_attention = false, mid_block_only_cross_attention = null, cross_attention_dim = 1280,
  transformer_layers_per_block = 1, reverse_transformer_layers_per_block = null,
  encoder_hid_dim = null, encoder_hid_dim_type = null, num_attention_heads = null,
  dual_cross_attention = false, use_linear_projection = false, addition_embed_type = null,
  addition_time_embed_dim = null, upcast_attention = false, resnet_skip_time_act = false,
  resnet_out_scale_factor = 1, time_embedding_act_fn = null, timestep_post_act = null,
  time_cond_proj_dim = null, conv_in_kernel = 3, conv_out_kernel = 3,
  projection_class_embeddings_input_dim = null, attention_type = "default",
  class_embeddings_concat = false, cross_attention_norm = null,
  addition_embed_type_num_heads = 64}

-- Random frequencies, which are not trained.
local Fourier = flare.class("GaussianFourierProjection", nn.Module)

function Fourier:init(width, scale)
  self.weight = self:buffer(flare.randn({width}, {std = scale}))
end

function Fourier:forward(t, flip)
  local angles = t:unsqueeze(2) * self.weight * (2 * math.pi)
  local waves = {angles:sin(), angles:cos()}
  if flip then waves[1], waves[2] = waves[2], waves[1] end
  return flare.cat(waves, 2)
end

local UNet = flare.class("UNet", Diffuser)

-- The value of a field for a level, from 1: one for all levels, or a list.
local function level(value, k)
  if type(value) == "table" then return value[k] end
  return value
end

-- Makes embeddings of times, and of classes; the width of the first.
local embeddings = {}

function embeddings.positional(c)
  return nil, c.block_out_channels[1], c.time_embedding_dim or 4 * c.block_out_channels[1]
end

function embeddings.learned(c)
  local width = c.block_out_channels[1]
  return nn.Embedding(c.num_train_timesteps, width, {base = 0}), width,
         c.time_embedding_dim or 4 * width
end

function embeddings.fourier(c, text)
  local width = c.block_out_channels[1]
  local all = c.time_embedding_dim or (text and 2 or 4) * width
  if text then return Fourier(all // 2, 1), all, all end
  return Fourier(width, 16), 2 * width, all
end

local function class_embedding(c, from, to, act)
  local type, given = c.class_embed_type, c.projection_class_embeddings_input_dim
  if not type then
    return c.num_class_embeds and nn.Embedding(c.num_class_embeds, to, {base = 0})
  end
  local make = Diffuser.find("class_embed_type", type, {
    timestep = function() return parts.TimeEmbedding(from, to, {act = act}) end,
    identity = nn.Identity,
    projection = function() return parts.TimeEmbedding(given, to) end,
    simple_projection = function() return nn.Linear(given, to) end})
  return make()
end

function UNet:embed(c, text)
  local make = Diffuser.find("time_embedding_type", c.time_embedding_type, embeddings)
  local proj, from, to = make(c, text)
  self.time_proj = proj
  local act = text and c.act_fn or "silu"
  self.time_embedding = parts.TimeEmbedding(from, to, {act = act, after = c.timestep_post_act,
                                                       condition = c.time_cond_proj_dim or nil})
  self.class_embedding = class_embedding(c, from, to, act) or nil
  self.act = not c.resnet_skip_time_act and parts.act(c.act_fn)
  return c.class_embeddings_concat and 2 * to or to
end

-- Options of the transformers of a level's layers.
local function cross(c, k, layers, n, width)
  local heads = level(c.num_attention_heads or c.attention_head_dim, k)
  local out = {}
  for j = 1, n do
    out[j] = {heads = heads, context = level(c.cross_attention_dim, k),
      layers = level(layers, j), groups = c.norm_num_groups, linear = c.use_linear_projection,
      only_context = level(c.only_cross_attention, k)}
    if heads > width then flare.core.raise("attention_head_dim is larger than a block's width") end
  end
  return out
end

-- Makes the layers between the first convolution and the last.
-- @param time the width of their embedding of times
-- @param text whether they attend to a text
function UNet:layers(c, time, text)
  local widths, n = c.block_out_channels, #c.block_out_channels
  if #c.down_block_types ~= n or #c.up_block_types ~= n then
    flare.core.raise(("block_out_channels has %d levels, down_block_types %d, up_block_types %d")
      :format(n, #c.down_block_types, #c.up_block_types))
  end
  local function o(k, layers, count)
    return {time = time, groups = c.norm_num_groups, eps = c.norm_eps, act = c.act_fn,
      dropout = c.dropout, shift = c.resnet_time_scale_shift, padding = c.downsample_padding,
      head_size = level(c.attention_head_dim, k) or nil, attention_groups = c.norm_num_groups,
      cross = text and cross(c, k, layers, count, widths[k])}
  end
  self.conv_in = nn.Conv2d(c.in_channels, widths[1], c.conv_in_kernel or 3,
                           {padding = ((c.conv_in_kernel or 3) - 1) // 2})
  self.down_blocks, self.up_blocks = nn.ModuleList(), nn.ModuleList()
  local skips, from = {widths[1]}, widths[1]
  for k, name in ipairs(c.down_block_types) do
    local inputs, count = {}, level(c.layers_per_block, k)
    for j = 1, count do
      inputs[j], from = from, widths[k]
      skips[#skips + 1] = from
    end
    if k < n then skips[#skips + 1] = from end
    local own = o(k, level(c.transformer_layers_per_block, k), count)
    own.sample, own.sampler = k < n, c.downsample_type
    if name == "ResnetDownsampleBlock2D" then own.scale = c.resnet_out_scale_factor end
    self.down_blocks:append(parts.Stage(name, inputs, widths[k], false, own))
  end
  self:middle(c, o(n, level(c.transformer_layers_per_block, n), 1), text)
  for k, name in ipairs(c.up_block_types) do
    local at = n + 1 - k
    local inputs, count = {}, level(c.layers_per_block, at) + 1
    for j = 1, count do inputs[j], from = from + table.remove(skips), widths[at] end
    local layers = c.reverse_transformer_layers_per_block
    layers = layers and level(layers, k) or level(c.transformer_layers_per_block, at)
    local own = o(at, layers, count)
    own.sample, own.sampler = k < n, c.upsample_type
    if name == "ResnetUpsampleBlock2D" then own.scale = c.resnet_out_scale_factor end
    self.up_blocks:append(parts.Stage(name, inputs, widths[at], true, own))
  end
  self.conv_norm_out = nn.GroupNorm(c.norm_num_groups, widths[1], {eps = c.norm_eps})
  self.last_act = parts.act(text and c.act_fn or "silu")
  self.conv_out = nn.Conv2d(widths[1], c.out_channels, c.conv_out_kernel or 3,
                            {padding = ((c.conv_out_kernel or 3) - 1) // 2})
end

-- The layers of the lowest resolution.
function UNet:middle(c, o, text)
  local kind, width = c.mid_block_type, c.block_out_channels[#c.block_out_channels]
  if not kind then return end
  o.scale = c.mid_block_scale_factor
  local attention
  if text then
    attention = Diffuser.find("mid_block_type", kind, {UNetMidBlock2DCrossAttn = "cross",
                                                      UNetMidBlock2D = "none"})
    if attention == "none" then attention = nil end
  else
    Diffuser.find("mid_block_type", kind, {UNetMidBlock2D = true})
    attention = c.add_attention and "self"
    local plain = c.resnet_time_scale_shift == "default"
    o.attention_groups = c.attn_norm_num_groups or plain and c.norm_num_groups or nil
  end
  if o.cross then
    o.cross = o.cross[1]
    o.cross.only_context = false
  end
  self.mid_block = parts.Middle(width, attention, o)
end

-- The embedding of times and classes, (batch, width).
function UNet:conditions(x, t, labels, guidance)
  local c = self.config
  local function waves(of)
    if not self.time_proj then
      return parts.waves(of, c.block_out_channels[1], {flip = c.flip_sin_to_cos,
                                                       shift = c.freq_shift})
    elseif c.time_embedding_type == "learned" then
      return self.time_proj(of:to "i64")
    end
    -- models without a text take the logarithm of the level of the noise
    return self.time_proj(self.text and of or of:log(), self.text and c.flip_sin_to_cos)
  end
  local e = self.time_embedding(waves(t):to(x.dtype), guidance)
  if self.class_embedding then
    if not labels then
      flare.core.raise("this model needs the classes of its images, which count from 0")
    end
    if c.class_embed_type == "timestep" then labels = waves(labels:to "f32"):to(x.dtype) end
    labels = self.class_embedding(labels):to(e.dtype)
    e = c.class_embeddings_concat and flare.cat({e, labels}, 2) or e + labels
  elseif labels then
    flare.core.raise("this model has no classes: num_class_embeds is not set")
  end
  return e
end

-- From an image to an image, with an embedding and the features of a text.
function UNet:run(x, e, context, mask)
  if self.act then e = self.act(e) end
  if self.config.center_input_sample then x = 2 * x - 1 end
  x = self.conv_in(x)
  local skips = {x}
  for _, block in ipairs(self.down_blocks) do x = block(x, e, context, mask, skips) end
  if self.mid_block then x = self.mid_block(x, e, context, mask) end
  for _, block in ipairs(self.up_blocks) do x = block(x, e, context, mask, skips) end
  return self.conv_out(self.last_act(self.conv_norm_out(x)))
end

local Alone = flare.class("UNet2DModel", UNet)

function Alone:build(c) self:layers(c, self:embed(c, false), false) end

--- What the model predicts of samples, (batch, out_channels, height, width).
-- @param x samples (batch, in_channels, height, width)
-- @param t their time, a number, or a tensor (batch)
-- @param labels classes (batch) from 0, for models with classes
function Alone:forward(x, t, labels)
  t = Diffuser.times(t, x)
  local y = self:run(x, self:conditions(x, t, labels))
  if self.config.time_embedding_type ~= "fourier" then return y end
  return y / t:reshape(-1, 1, 1, 1):to(y.dtype)
end

local Conditional = flare.class("UNet2DConditionModel", UNet)

function Conditional:build(c)
  Diffuser.refuse(c, {dual_cross_attention = false, attention_type = "default",
    addition_embed_type = "text_time", encoder_hid_dim_type = "text_proj",
    cross_attention_norm = false})
  self.text = true
  local time = self:embed(c, true)
  if c.encoder_hid_dim then
    self.encoder_hid_proj = nn.Linear(c.encoder_hid_dim, c.cross_attention_dim)
  end
  if c.addition_embed_type then
    self.add_embedding = parts.TimeEmbedding(c.projection_class_embeddings_input_dim, time)
  end
  self.last = c.time_embedding_act_fn and parts.act(c.time_embedding_act_fn) or nil
  self:layers(c, time, true)
end

--- What the model predicts of samples, (batch, out_channels, height, width).
-- @param x samples (batch, in_channels, height, width)
-- @param t their time, a number, or a tensor (batch)
-- @param context features of texts (batch, time, width)
-- @param o {mask = (batch, time), true where the text is; labels = classes (batch) from 0; pooled =
--   features of whole texts, and sizes = (batch, 6), for models with addition_embed_type
--   "text_time"; guidance = (batch, time_cond_proj_dim)}
function Conditional:forward(x, t, context, o)
  o = flare.options.check("UNet2DConditionModel", o, {mask = flare.options.none,
    labels = flare.options.none, pooled = flare.options.none, sizes = flare.options.none,
    guidance = flare.options.none})
  flare.options.tensor("UNet2DConditionModel", "the features of the texts", context)
  local c = self.config
  local e = self:conditions(x, Diffuser.times(t, x), o.labels, o.guidance)
  if self.add_embedding then
    flare.options.tensors("UNet2DConditionModel", "pooled", o.pooled, "sizes", o.sizes)
    local sizes = parts.waves(o.sizes:flatten():to "f32", c.addition_time_embed_dim,
                              {flip = c.flip_sin_to_cos, shift = c.freq_shift})
    sizes = sizes:view(x:size(1), -1):to(e.dtype)
    e = e + self.add_embedding(flare.cat({o.pooled, sizes}, 2))
  end
  if self.last then e = self.last(e) end
  if self.encoder_hid_proj then context = self.encoder_hid_proj(context) end
  local mask = o.mask and o.mask:unsqueeze(2):unsqueeze(2):ne(0)
  return self:run(x, e, context, mask)
end

for class, defaults in pairs{[Alone] = alone, [Conditional] = conditional} do
  Model.publish(class, {defaults = defaults, tensors = parts.tensors})
end

return {UNet2DModel = Alone, UNet2DConditionModel = Conditional}
