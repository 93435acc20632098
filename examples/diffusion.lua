-- Diffusion by flow matching: a U-Net or a transformer learns to make handwritten digits of noise,
-- and draws each of them into a PNG file.
--
--     flare examples/diffusion.lua --steps 2000        on digits that flare generates
--     flare examples/diffusion.lua --images t10k-images-idx3-ubyte.gz \
--                                  --labels t10k-labels-idx1-ubyte.gz --model dit
--
-- --help lists the options. A column of the picture is a digit; --folder keeps the model and the
-- scheduler as diffusers reads them.
local flare = require "flare"
local data, models, optim = flare.data, flare.models, flare.optim

local function stop(message)
  io.stderr:write("diffusion: ", message, "\n")
  os.exit(2)
end

local o = flare.args(arg, "Trains a model of diffusion on handwritten digits and draws samples.", {
  images = {"", "file of images in idx format, gzipped or not; without one digits are drawn"},
  labels = {"", "file of their labels"},
  model = {"unet", "unet or dit"}, width = {0, "channels; 0: 16 for unet, 64 for dit"},
  steps = {1000, "of training"}, batch = {32, "digits of a step"}, lr = {2e-3, "learning rate"},
  count = {4000, "digits to draw for the training"},
  rows = {4, "of the picture"}, draws = {20, "steps from noise to a digit"},
  guidance = {2, "how far samples keep from those of any class; 1 is not at all"},
  out = {"diffusion.png", "file of the picture"}, folder = {"", "of the trained model"},
  device = {"cpu", "cpu or cuda"}, seed = {0, "of the weights, the digits and the noise"},
})

local SIDE, NONE = 28, 10 -- of images; the class that stands for any digit

local function build(name)
  if name == "unet" then
    local w = o.width > 0 and o.width or 16
    return models.UNet2DModel {in_channels = 1, out_channels = 1, num_class_embeds = NONE + 1,
      block_out_channels = {w, 2 * w, 2 * w}, layers_per_block = 1, norm_num_groups = 8,
      down_block_types = {"DownBlock2D", "DownBlock2D", "AttnDownBlock2D"},
      up_block_types = {"AttnUpBlock2D", "UpBlock2D", "UpBlock2D"}}
  elseif name == "dit" then
    local w = o.width > 0 and o.width or 64
    return models.DiTTransformer2DModel {in_channels = 1, sample_size = SIDE, patch_size = 4,
      num_attention_heads = 4, attention_head_dim = w // 4, num_layers = 4,
      num_embeds_ada_norm = NONE}
  end
  stop(("--model is unet or dit, not '%s'"):format(name))
end

if not o.out:find "%.png$" then stop("--out must end in .png") end
flare.manual_seed(o.seed)
local x, y
if o.images ~= "" then
  x, y = data.idx.pairs(o.images, o.labels)
  if not x then stop(y) end
else
  x, y = data.digits(o.count, {seed = o.seed})
end

local model = build(o.model)
local known, problem = pcall(model.to, model, o.device)
if not known then stop((problem:gsub("^%S+:%d+: ", ""))) end
print(("%s with %d parameters, %d digits"):format(o.model, model:count(), #x))

local scheduler = models.FlowMatchEulerDiscreteScheduler()
local optimizer = optim.AdamW(model, {lr = o.lr})
local rate = optim.CosineLR(optimizer, {total = o.steps, floor = 0.05})
local average = optim.EMA(model, {decay = 0.995})
local loader = data.Loader(data.Tensors(x, y), {batch = o.batch, shuffle = true, seed = o.seed,
                                                drop_last = true})

-- A tenth of the digits is learned without its class, so that guidance has something to keep from.
local step = flare.compile(function(images, classes)
  local any = flare.rand({#classes}, {device = o.device}):lt(0.1)
  optimizer:zero_grad()
  local loss = model:loss(scheduler, images * 2 - 1, classes:masked_fill(any, NONE))
  loss:backward()
  optimizer:step()
  return loss
end)

local bar = flare.log.progress{total = o.steps, label = o.model}
local done, sum, shown = 0, 0, 0
while done < o.steps do
  for images, labels in loader:epoch() do
    local loss = step(images:to(o.device), labels:to(o.device) - 1)
    rate:step()
    average:update()
    done, sum, shown = done + 1, sum + loss:item(), shown + 1
    bar:update(done, {loss = loss})
    if done % math.max(o.steps // 5, 1) == 0 then
      print(("step %d: loss %.4f"):format(done, sum / shown))
      sum, shown = 0, 0
    end
    if done == o.steps then break end
  end
end
bar:finish()

average:copy_to()
model:eval()
local classes = flare.arange(0, 10 * o.rows):remainder(10):to(o.device)
local none = flare.full_like(classes, NONE)
local noise = flare.randn({10 * o.rows, 1, SIDE, SIDE}, {device = o.device})
local samples = scheduler:sample(function(at, t)
  local with = model(at, t, classes)
  if o.guidance == 1 then return with end
  local without = model(at, t, none)
  return without + (with - without) * o.guidance
end, noise, {steps = o.draws})

-- a row of the picture has each digit once
local picture = samples:view(o.rows, 10, SIDE, SIDE):permute(1, 3, 2, 4)
picture = picture:reshape(o.rows * SIDE, 10 * SIDE) * 0.5 + 0.5
local written, message = data.images.write(o.out, picture)
if not written then stop(message) end
print(("%d samples are in %s"):format(10 * o.rows, o.out))
if o.folder ~= "" then
  assert(flare.core.file.mkdir(o.folder))
  assert(model:save(o.folder .. "/" .. o.model))
  assert(scheduler:save(o.folder .. "/scheduler"))
end
