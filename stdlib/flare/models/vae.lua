--- The autoencoder of latent diffusion (arXiv:2112.10752): images to the means and variances of
-- latents, an eighth of the size, and back.
local flare = require "flare"
local Diffuser = require "flare.models.diffuser"
local Model = require "flare.models.model"
local parts = require "flare.models.unet_parts"
local nn = flare.nn
local null = flare.core.json.null

local defaults = {in_channels = 3, out_channels = 3, down_block_types = {"DownEncoderBlock2D"},
  up_block_types = {"UpDecoderBlock2D"}, block_out_channels = {64}, layers_per_block = 1,
  act_fn = "silu", latent_channels = 4, norm_num_groups = 32, sample_size = 32,
  scaling_factor = 0.18215, shift_factor = null, latents_mean = null, latents_std = null,
  force_upcast = true, use_quant_conv = true, use_post_quant_conv = true,
  mid_block_add_attention = true}

-- Options of the blocks of a level.
local function options_of(c, width)
  return {groups = c.norm_num_groups, attention_groups = c.norm_num_groups, eps = 1e-6,
          act = c.act_fn, padding = 0, head_size = width}
end

-- Makes the layers around the blocks.
local function frame(self, c, from, first, last, to)
  self.conv_in = nn.Conv2d(from, first, 3, {padding = 1})
  local width = c.block_out_channels[#c.block_out_channels]
  self.mid_block = parts.Middle(width, c.mid_block_add_attention and "self",
                                options_of(c, width))
  self.conv_norm_out = nn.GroupNorm(c.norm_num_groups, last, {eps = 1e-6})
  self.conv_out = nn.Conv2d(last, to, 3, {padding = 1})
end

local function finish(self, x) return self.conv_out(flare.silu(self.conv_norm_out(x))) end

local Encoder = flare.class("Encoder", nn.Module)

function Encoder:init(c)
  local widths, n = c.block_out_channels, #c.block_out_channels
  frame(self, c, c.in_channels, widths[1], widths[n], 2 * c.latent_channels)
  self.down_blocks = nn.ModuleList()
  local from = widths[1]
  for k, name in ipairs(c.down_block_types) do
    local o, inputs = options_of(c, widths[k]), {}
    o.sample = k < n
    for j = 1, c.layers_per_block do inputs[j], from = from, widths[k] end
    self.down_blocks:append(parts.Stage(name, inputs, widths[k], false, o))
  end
end

function Encoder:forward(x)
  x = self.conv_in(x)
  for _, block in ipairs(self.down_blocks) do x = block(x) end
  return finish(self, self.mid_block(x))
end

local Decoder = flare.class("Decoder", nn.Module)

function Decoder:init(c)
  local widths, n = c.block_out_channels, #c.block_out_channels
  frame(self, c, c.latent_channels, widths[n], widths[1], c.out_channels)
  self.up_blocks = nn.ModuleList()
  local from = widths[n]
  for k, name in ipairs(c.up_block_types) do
    local width, inputs = widths[n + 1 - k], {}
    local o = options_of(c, width)
    o.sample = k < n
    for j = 1, c.layers_per_block + 1 do inputs[j], from = from, width end
    self.up_blocks:append(parts.Stage(name, inputs, width, true, o))
  end
end

function Decoder:forward(x)
  x = self.mid_block(self.conv_in(x))
  for _, block in ipairs(self.up_blocks) do x = block(x) end
  return finish(self, x)
end

local VAE = flare.class("AutoencoderKL", Diffuser)

function VAE:build(c)
  local n, down, up = #c.block_out_channels, #c.down_block_types, #c.up_block_types
  if down ~= n or up ~= n then
    flare.core.raise(("block_out_channels has %d levels, down_block_types %d, up_block_types %d")
      :format(n, down, up))
  end
  self.encoder, self.decoder = Encoder(c), Decoder(c)
  local latent = c.latent_channels
  if c.use_quant_conv then self.quant_conv = nn.Conv2d(2 * latent, 2 * latent, 1) end
  if c.use_post_quant_conv then self.post_quant_conv = nn.Conv2d(latent, latent, 1) end
end

--- The means of the latents of images and the logarithms of their variances, both (batch,
-- latent_channels, height, width) of the latents.
-- @param x images (batch, in_channels, height, width), between -1 and 1
function VAE:encode(x)
  local y = self.encoder(x)
  if self.quant_conv then y = self.quant_conv(y) end
  local n = self.config.latent_channels
  return y:narrow(2, 1, n), y:narrow(2, n + 1, n):clamp(-30, 20)
end

--- Images of latents, as `encode` or a draw of its distribution has them.
function VAE:decode(z)
  return self.decoder(self.post_quant_conv and self.post_quant_conv(z) or z)
end

-- A draw of latents.
local function draw(mean, log_var, generator)
  return mean + (log_var * 0.5):exp() * flare.randn(mean.shape, {dtype = mean.dtype,
    device = mean.device, generator = generator})
end

--- Latents of images as diffusion models of latents take them: drawn, shifted and scaled to a
-- variance of 1.
-- @param opts {generator =, mean = true for the means in place of a draw}
function VAE:latents(x, opts)
  local o = flare.options.check("latents", opts, {generator = flare.options.none, mean = false})
  local mean, log_var = self:encode(x)
  local z = o.mean and mean or draw(mean, log_var, o.generator)
  return (z - (self.config.shift_factor or 0)) * self.config.scaling_factor
end

--- Images of the latents that a diffusion model makes: the inverse of `latents`.
function VAE:images(z)
  return self:decode(z / self.config.scaling_factor + (self.config.shift_factor or 0))
end

--- Images as the means of their latents describe them.
function VAE:forward(x)
  return self:decode((self:encode(x)))
end

--- The loss of a draw: the mean square of the difference to the images, and the divergence of the
-- latents from the normal distribution, for each image and times `weight`.
-- @param opts {weight = 1e-6, generator =}
function VAE:loss(x, opts)
  local o = flare.options.check("loss", opts, {weight = 1e-6, generator = flare.options.none})
  local mean, log_var = self:encode(x)
  local y = self:decode(draw(mean, log_var, o.generator))
  mean, log_var = mean:to "f32", log_var:to "f32"
  local divergence = (mean:square() + log_var:exp() - 1 - log_var):sum() * (0.5 / x:size(1))
  return (y:to "f32" - x:to "f32"):square():mean() + o.weight * divergence
end

Model.publish(VAE, {defaults = defaults, tensors = parts.tensors})

return {AutoencoderKL = VAE}
