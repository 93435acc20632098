--- What the training steps of this folder share: their list, inputs and initial weights that
-- bench/peers/models.py makes alike, the training step, and the timed loop.
-- A model's file is called with this module and returns
--   {unit =, sizes = {small = options, full = options}, steps =, read =, build(o) -> built}
-- `o` has the options of the size and `device`, `amp` (a dtype for autocast, or false). `built` has
-- `step`, a function that returns the loss; `model`; and `items`, the units of one step. `read`:
-- the loss is read every so many steps.
local flare = require "flare"
local optim = flare.optim

local M = {}

M.names = {"gpt2", "llama", "resnet50", "vit", "unet", "lstm", "dlrm", "gat", "mlp", "gpt2_decode",
           "llama_decode", "linear_ce", "bert", "mixer", "convnext", "wavenet", "t5", "realnvp",
           "vae"}
-- The whole list, with other options of some.
M.default = {"gpt2", "gpt2:batch=16", "llama", "resnet50", "resnet50:layout=last", "vit", "unet",
             "lstm", "dlrm", "gat", "mlp", "gpt2_decode", "linear_ce", "bert",
             "mixer", "convnext", "wavenet", "t5", "realnvp", "vae"}

local folder = debug.getinfo(1, "S").source:match "^@(.*/)" or "./"

--- A model's table by its name, or nil and a message.
function M.load(name)
  for _, known in ipairs(M.names) do
    if known == name then
      local def = assert(loadfile(folder .. name .. ".lua"))(M)
      def.name = name
      return def
    end
  end
  return nil, ("no model '%s'; there are: %s"):format(name, table.concat(M.names, ", "))
end

--- Splits "resnet50:layout=last,batch=64" into the name and a table of options.
function M.parse(text)
  local name, rest = text:match "^([^:]+):?(.*)$"
  local o = {}
  for key, value in rest:gmatch "([%w_]+)=([^,]+)" do o[key] = tonumber(value) or value end
  return name, o
end

--- Builds a model in a size; `given` replaces options of the size. In mode "graph" steps run by
-- CUDA graphs of compiled functions.
function M.build(def, size, device, given, mode)
  local o = {device = device, amp = "bf16"}
  for key, value in pairs(def.sizes[size]) do o[key] = value end
  for key, value in pairs(given or {}) do
    if o[key] == nil then
      local known = {}
      for name in pairs(o) do known[#known + 1] = name end
      table.sort(known)
      error(("%s has no option '%s'; there are: %s"):format(def.name, key,
                                                             table.concat(known, ", ")))
    end
    if type(o[key]) ~= type(value) then
      error(("%s: option '%s' is a %s"):format(def.name, key, type(o[key])))
    end
    o[key] = value
  end
  if o.amp == "none" then o.amp = false end
  o.mode = mode
  flare.manual_seed(1)
  return def.build(o), o
end

-- --- inputs and weights: hashes of positions, so that other programs can make them too ---

local function hash(shape, salt, device)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  local i = flare.arange(0, n, {dtype = "f64", device = device})
  return ((i * 12.9898 + salt * 78.233):sin_() * 43758.5453):frac():abs():reshape(shape)
end

--- Positions from 1 to `classes`, i64.
function M.ids(o, classes, shape, salt)
  local x = (hash(shape, salt or 1, o.device) * classes):floor_():to "i64"
  return x:clamp(0, classes - 1) + 1
end

--- Numbers of mean 0 and variance 1, f32.
function M.numbers(o, shape, salt)
  return ((hash(shape, salt or 2, o.device) - 0.5) * math.sqrt(12)):to "f32"
end

--- Sets matrices and kernels to numbers of variance gain^2 / inputs, biases to 0, the other vectors
-- to 1, and moves the model to the device.
function M.prepare(o, model, gain)
  model:to(o.device)
  flare.no_grad(function()
    local k = 0
    for name, p in model:named_parameters() do
      k = k + 1
      if p:dim() > 1 then
        local inputs = p:numel() // p:size(1)
        local std = name:find "embed" and 0.02 or (gain or 1) / math.sqrt(inputs)
        p:copy_(M.numbers(o, {table.unpack(p.shape, 1, p:dim())}, 100 + k) * std)
      else
        p:fill_(name:find "bias" and 0 or 1)
      end
    end
  end)
  return model
end

-- --- steps ---

--- In mode "graph" a function that runs f, compiled, as a CUDA graph, which it captures when it is
-- first called; else f.
function M.captured(o, f)
  if o.mode ~= "graph" then return f end
  local graph
  local place = flare.zeros({1}, {device = o.device}) -- tells the device
  local compiled = flare.compile(f)
  return function()
    graph = graph or flare.cuda.graph(function() return compiled() end, place)
    return graph(place)
  end
end

--- What a model that generates token by token runs: model(token, position) is the next one, ids of
-- shape (1, 1), positions from 1 to o.time and then from 1 again.
function M.decoding(o, model)
  local token, position = M.ids(o, o.vocabulary, {1, 1}), M.ids(o, 1, {1})
  local function step()
    return flare.no_grad(function()
      token:copy_(model(token, position))
      position:copy_(position % o.time + 1)
      return token
    end)
  end
  return {model = model, items = 1, step = M.captured(o, step)}
end

--- x (batch, heads, time, size) with the pairs (i, i + size / 2) rotated: RoPE (Su et al., 2021)
-- by slices and cat.
function M.rotate(x, cos, sin)
  local half = x:size(4) // 2
  local a, b = x:narrow(4, 1, half), x:narrow(4, half + 1, half)
  return flare.cat({a * cos - b * sin, b * cos + a * sin}, 4)
end

--- A training step: gradients to zero, `forward` in autocast, backward pass, clipping to the norm
-- `clip`, if given, and the optimizer, whose numbers a graph could not change.
function M.training(o, model, optimizer, forward, clip)
  local params = model:parameters()
  local gradients = M.captured(o, function()
    optimizer:zero_grad()
    local loss = flare.autocast(o.amp, forward)
    loss:backward()
    if clip then optim.clip_grad_norm_(params, clip) end
    return loss
  end)
  return function()
    local loss = gradients()
    optimizer:step()
    return loss
  end
end

local function sync(device)
  if device ~= "cpu" then flare.synchronize() end
end

-- The steps before the last one that took 1.5 times the median, or longer.
local function settled(times)
  local sorted = {table.unpack(times)}
  table.sort(sorted)
  local median = sorted[(#sorted + 1) // 2]
  local last, total = 0, 0
  for k, t in ipairs(times) do
    if t > 1.5 * median then last = k end
  end
  for k = 1, last do total = total + times[k] end
  return last, total
end

--- Runs a built model and returns a table of figures.
-- @param mode "eager", "compile", "launches", "pure" or "graph"
-- @param n {warm = steps before the clock starts, steps = timed steps}
function M.measure(built, mode, n, device, read)
  local step = built.step
  if mode == "compile" or mode == "launches" or mode == "pure" then
    step = flare.compile(step, {graphs = mode ~= "launches", pure = mode == "pure"})
  end
  local times, losses = {}, {}
  local function unready() -- its kernels are being compiled
    local stats = step ~= built.step and flare.compile_stats(step)
    return stats and stats.planned == 0 and stats.unready > 0 and not stats.failure
  end
  while #times < n.warm or unready() do
    local start = flare.clock()
    local loss = step()
    sync(device)
    local k = #times + 1
    times[k] = flare.clock() - start
    if k <= 4 and flare.is_tensor(loss) then losses[k] = loss:to("f32"):mean():item() end
  end
  flare.memory.reset_peak(device)
  sync(device)
  local start = flare.clock()
  for k = 1, n.steps do
    local loss = step()
    if read and k % read == 0 then loss:item() end
  end
  sync(device)
  local seconds = (flare.clock() - start) / n.steps
  local memory = flare.memory.stats(device)
  local steps, total = settled(times)
  local figures = {
    mode = mode, step_ms = seconds * 1e3, rate = built.items / seconds,
    peak_mib = memory.peak / 2^20, reserved_mib = memory.reserved / 2^20, losses = losses,
    first_s = times[1], settle_steps = steps, settle_s = total,
  }
  if mode ~= "eager" and mode ~= "graph" then figures.plan = flare.compile_stats(step) end
  return figures
end

return M
