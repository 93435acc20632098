-- Models of diffusion beside diffusers, on the same weights: spec/support/diffusion_data.py.
local flare = require "flare"
local data = require "spec.support.diffusion"
local support = require "spec.support.models"

local models = flare.models
local LIMIT = 2e-5 -- of the largest number
local FILE = "diffusion_pytorch_model.safetensors"

local function load(about)
  local path = support.folder(about, false, FILE)
  local model = assert(models.load(path))
  support.remove(path)
  return model
end

local function tensor(list) return flare.tensor(list, {dtype = "i64"}) end

local function close(name, what, got)
  assert.truthy(support.off(got, data.expected(name, what)) <= LIMIT, what)
end

local function check_gradients(name, model, loss, about)
  loss:backward()
  local names = {}
  for k, e in ipairs(about.tensors) do names[k] = e[1] end
  local squares, products = support.sums(require "flare.models.weights".gradients(model), names)
  local want = data.expected(name, "grads")
  local norm = want:select(2, 1):max():sqrt():item() -- of the largest gradient
  assert.truthy((squares:sqrt() - want:select(2, 1):sqrt()):abs():max():item() <= LIMIT * norm)
  assert.truthy((products - want:select(2, 2)):abs():max():item() <= LIMIT * norm * 10)
end

-- The loss of known numbers.
local function weighted(y, name) return (y * support.numbers(name, y.shape)):sum() end

describe("The model of case", function()
  for _, name in ipairs(data.names "tensors") do
    it(name .. " computes what diffusers does", function()
      local about = data.about(name)
      local model = load(about)
      if about.inputs.times then
        local y = data.call(model, about.inputs)
        close(name, "predicted", y)
        return check_gradients(name, model, weighted(y, "target"), about)
      end
      local shape = about.inputs.sample
      local x = support.numbers("sample", table.move(shape, 1, 4, 1, {})) * 4
      local mean, log_var = model:encode(x)
      close(name, "mean", mean)
      close(name, "log_var", log_var)
      local y = model:decode(mean)
      close(name, "decoded", y)
      check_gradients(name, model, y:sum() * 0.1 + weighted(log_var, "log_var"), about)
    end)

    it(name .. " is saved under the names and shapes of diffusers", function()
      local about = data.about(name)
      local model, path = load(about), os.tmpname()
      os.remove(path)
      assert(model:save(path))
      local reader <close> = assert(flare.io.safetensors.open(path .. "/" .. FILE))
      local want, got, weights = {}, {}, support.weights(about)
      for _, e in ipairs(about.tensors) do want[e[1]] = table.concat(e[2], " ") end
      for _, e in ipairs(reader:entries()) do
        got[e.name] = table.concat(e.shape, " ")
        assert.truthy(reader:tensor(e.name):eq(weights[e.name]):all():item(), e.name)
      end
      assert.same(want, got)
      local config = flare.core.json.decode(assert(flare.core.file.read(path .. "/config.json")))
      assert.same(about.config, config)
      support.remove(path)
    end)
  end
end)

describe("A model of diffusion", function()
  local SMALL = {block_out_channels = {8, 16}, norm_num_groups = 4, attention_head_dim = 4,
    layers_per_block = 1, down_block_types = {"DownBlock2D", "AttnDownBlock2D"},
    up_block_types = {"AttnUpBlock2D", "UpBlock2D"}}

  local function small(more)
    local out = {}
    for _, fields in ipairs{SMALL, more or {}} do
      for name, value in pairs(fields) do out[name] = value end
    end
    return out
  end

  local function refuses(pattern, f, ...) assert.match(pattern, select(2, pcall(f, ...))) end

  it("is read from files with older names of attention", function()
    for _, name in ipairs{"unet", "vae"} do
      local about = data.about(name)
      local model, path = load(about), support.folder(about, true)
      local weights, n = {}, 0
      for key, tensor_ in pairs(support.weights(about)) do
        local renamed = 0
        for now, before in pairs{["to_q"] = "query", ["to_k"] = "key", ["to_v"] = "value",
                                 ["to_out.0"] = "proj_attn"} do
          local from = "(attentions%.%d+%.)" .. now:gsub("%.", "%%.")
          local k
          key, k = key:gsub(from, "%1" .. before)
          renamed = renamed + k
        end
        weights[key], n = tensor_, n + renamed
      end
      assert.truthy(n >= 8)
      assert(flare.io.safetensors.save(path .. "/" .. FILE, weights, {format = "pt"}))
      local again = assert(models.load(path))
      support.remove(path)
      local x = support.numbers("sample", {1, 3, 8, 8})
      assert.truthy(model(x, 5):eq(again(x, 5)):all():item())
    end
  end)

  it("is read from files of a variant, one or many", function()
    local about = data.about "vae_plain"
    local model, path = load(about), os.tmpname()
    os.remove(path)
    local x = support.numbers("sample", {1, 1, 8, 8})
    for _, shard in ipairs{"5GB", "8kB"} do
      assert(model:save(path, {shard = shard}))
      for _, file in ipairs(flare.core.file.list(path)) do
        local name = file:gsub("%.index%.json$", ".index.fp16.json")
        if file:find "%.safetensors$" and shard == "5GB" then
          name = file:gsub("safetensors$", "fp16.%0")
        end
        os.rename(path .. "/" .. file, path .. "/" .. name)
      end
      local none, message = models.load(path)
      assert.is_nil(none)
      assert.match("there is no model.safetensors; it has ", message)
      assert.truthy(model(x):eq(assert(models.load(path, {variant = "fp16"}))(x)):all():item())
      support.remove(path)
    end
  end)

  it("learns under compile as it does without", function()
    local function losses(compiled)
      flare.manual_seed(3)
      local model = models.UNet2DModel(small())
      local optimizer = flare.optim.AdamW(model, {lr = 1e-3})
      local scheduler = models.DDPMScheduler()
      local x, out = flare.rand(4, 3, 8, 8), {}
      local function step()
        optimizer:zero_grad()
        local loss = model:loss(scheduler, x)
        loss:backward()
        optimizer:step()
        return loss
      end
      if compiled then step = flare.compile(step) end
      for k = 1, 6 do out[k] = step():item() end
      return out
    end
    local plain, compiled = losses(false), losses(true)
    for k = 1, 6 do assert.near(plain[k], compiled[k], 1e-4 * plain[k]) end
  end)

  it("learns with each scheduler", function()
    flare.manual_seed(1)
    local dit = models.DiTTransformer2DModel {num_attention_heads = 2, attention_head_dim = 8,
      num_layers = 1, sample_size = 4, in_channels = 1, num_embeds_ada_norm = 3}
    local x, labels = flare.ones(8, 1, 4, 4), flare.randint(0, 3, {8})
    for _, class in ipairs{"DDPMScheduler", "EulerDiscreteScheduler",
                           "FlowMatchEulerDiscreteScheduler"} do
      local model, scheduler = dit:clone(), models[class]()
      local optimizer = flare.optim.Adam(model, {lr = 1e-2})
      local first, last = 0, 0
      for k = 1, 24 do
        optimizer:zero_grad()
        local loss = model:loss(scheduler, x, labels)
        loss:backward()
        optimizer:step()
        if k <= 6 then first = first + loss:item() end
        if k > 18 then last = last + loss:item() end
      end
      assert.truthy(last < 0.9 * first, class)
    end
  end)

  it("has images and latents that are each other's inverse", function()
    flare.manual_seed(2)
    local vae = models.AutoencoderKL {block_out_channels = {8}, norm_num_groups = 4,
                                      shift_factor = 0.3}
    local x = flare.rand(2, 3, 8, 8)
    local z = vae:latents(x, {mean = true})
    assert.truthy(support.off(vae:images(z), vae(x)) < 1e-5)
    local a = vae:latents(x, {generator = flare.generator(1)})
    assert.truthy(a:eq(vae:latents(x, {generator = flare.generator(1)})):all():item())
    local mean, log_var = vae:encode(x)
    local off = (a / vae.config.scaling_factor + 0.3 - mean) / (log_var * 0.5):exp()
    assert.near(1, off:std():item(), 0.2)
    assert.truthy(vae:loss(x, {weight = 1}):item() > vae:loss(x):item())
  end)

  it("computes with other sizes than that of its training, and without a class", function()
    local dit = models.DiTTransformer2DModel {num_attention_heads = 2, attention_head_dim = 8,
      num_layers = 1, sample_size = 8, num_embeds_ada_norm = 3}
    dit:eval()
    for _, p in dit:named_parameters() do flare.no_grad(p.normal_, p, 0, 0.3) end
    local x = flare.randn(2, 4, 4, 12)
    local none = tensor {3, 3}
    assert.truthy(dit(x, 7):eq(dit(x, 7, none)):all():item())
    assert.truthy(dit(x, 7):ne(dit(x, 7, tensor {1, 3})):any():item())
    dit:train()
    local all = flare.zeros(400, 4, 2, 2)
    local y = dit(all, 7, flare.zeros(400, {dtype = "i64"}))
    dit:eval()
    local same = y:eq(dit(all, 7, flare.zeros(400, {dtype = "i64"}))):flatten(2):all(2)
    assert.near(0.9, same:to "f32":mean():item(), 0.06)
    local unet = models.UNet2DModel(small())
    assert.same({1, 3, 9, 5}, table.move(unet(flare.randn(1, 3, 9, 5), 3).shape, 1, 4, 1, {}))
  end)

  -- The configurations of Stable Diffusion 1.5, XL and their autoencoder, of DDPM for CIFAR-10 and
  -- of DiT-XL/2; the numbers are those of diffusers 0.36.0.
  it("has the parameters of published ones", function()
    local vae = {block_out_channels = {128, 256, 512, 512}, layers_per_block = 2,
                 down_block_types = {}, up_block_types = {}}
    for k = 1, 4 do
      vae.down_block_types[k], vae.up_block_types[k] = "DownEncoderBlock2D", "UpDecoderBlock2D"
    end
    for _, c in ipairs{
      {859520964, "UNet2DConditionModel", {cross_attention_dim = 768}},
      {2567463684, "UNet2DConditionModel", {cross_attention_dim = 2048,
        attention_head_dim = {5, 10, 20}, use_linear_projection = true,
        block_out_channels = {320, 640, 1280}, transformer_layers_per_block = {1, 2, 10},
        down_block_types = {"DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"},
        up_block_types = {"CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"},
        addition_embed_type = "text_time", addition_time_embed_dim = 256,
        projection_class_embeddings_input_dim = 2816}},
      {35746307, "UNet2DModel", {block_out_channels = {128, 256, 256, 256}, freq_shift = 1,
        down_block_types = {"DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"},
        up_block_types = {"UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"},
        attention_head_dim = flare.core.json.null, downsample_padding = 0}},
      {83653863, "AutoencoderKL", vae},
      {749826464, "DiTTransformer2DModel", {out_channels = 8}},
    } do
      assert.equal(c[1], flare.meta(models[c[2]], c[3]):count())
    end
  end)

  it("says that a pipeline has parts", function()
    local path = os.tmpname()
    os.remove(path)
    assert(flare.core.file.mkdir(path))
    assert(flare.core.file.write_atomic(path .. "/model_index.json",
      '{"_class_name": "DDPMPipeline", "unet": ["diffusers", "UNet2DModel"], "vae": [null, null]}'))
    assert(flare.core.file.mkdir(path .. "/unet"))
    local none, message = models.load(path)
    os.execute("rm -r '" .. path .. "'")
    assert.is_nil(none)
    assert.match("it is a pipeline, whose parts are loaded one by one: unet$", message)
  end)

  it("says what is wrong", function()
    refuses("unknown block type 'DownBlok2D' %(did you mean 'DownBlock2D'%?%)", models.UNet2DModel,
            small{down_block_types = {"DownBlok2D", "DownBlock2D"}})
    refuses("unknown block type 'UpBlock2D'", models.UNet2DModel,
            small{down_block_types = {"UpBlock2D", "DownBlock2D"}})
    refuses("has 2 levels, down_block_types 1, up_block_types 2", models.UNet2DModel,
            small{down_block_types = {"DownBlock2D"}})
    refuses("dual_cross_attention = true is not known", models.UNet2DConditionModel,
            {dual_cross_attention = true})
    refuses("addition_embed_type = image is not known", models.UNet2DConditionModel,
            {addition_embed_type = "image"})
    refuses("unknown act_fn 'sillu' %(did you mean 'silu'%?%)", models.UNet2DModel,
            small{act_fn = "sillu"})
    refuses("norm_type = ada_norm is not known", models.DiTTransformer2DModel,
            {norm_type = "ada_norm"})
    refuses("2 heads of 3, must be a multiple of 4", models.DiTTransformer2DModel,
            {num_attention_heads = 2, attention_head_dim = 3})
    refuses("block_out_channels has 2 levels, down_block_types 1", models.AutoencoderKL,
            {block_out_channels = {8, 16}})
    local x = flare.randn(1, 3, 8, 8)
    local unet = models.UNet2DModel(small())
    refuses("this model has no classes", unet, x, 1, tensor {1})
    refuses("the times must be a tensor", unet, x, "1")
    refuses("needs the classes", models.UNet2DModel(small{num_class_embeds = 2}), x, 1)
    local text = models.UNet2DConditionModel(small{cross_attention_dim = 8})
    refuses("the features of the texts must be a tensor", text, flare.randn(1, 4, 8, 8), 1)
  end)
end)
