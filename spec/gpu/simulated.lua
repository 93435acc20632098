-- Five schedules of a training step of GPT-2 (124M, bf16, AdamW): what the simulator and flare.fits
-- predict, and what a GPU does. simulated.sh runs both.
--
--   flare spec/gpu/simulated.lua predict > FILE     (needs no GPU; a minute on 16 cores)
--   flare spec/gpu/simulated.lua measure FILE
local flare = require "flare"
local core, dataflow, nn, F = flare.core, flare.dataflow, flare.nn, flare.nn.functional

local TIME, VOCABULARY, WIDTH = 1024, 50304, 768
local small = os.getenv "SMALL" -- of a device without a GPU, for a try: sim
local DEVICE = small and "sim" or "cuda"
if small then TIME, VOCABULARY, WIDTH = 64, 512, 96 end

local schedules = {
  {name = "in memory", batch = 16}, {name = "in memory", batch = 64},
  {name = "recomputed", batch = 16, recompute = true},
  {name = "recomputed", batch = 64, recompute = true},
  {name = "offloaded", batch = 16, offload = true},
}

-- --- the model, as examples/gpt2.lua has it ---

local Block = flare.class("Block", nn.Module)

function Block:init()
  self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
  self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
  self.up = nn.Linear(WIDTH, 4 * WIDTH, {act = "gelu_tanh"})
  self.down = nn.Linear(4 * WIDTH, WIDTH)
end

function Block:forward(x)
  local batch, time = table.unpack(x.shape)
  local heads = self.qkv(self.norm1(x)):view(batch, time, 3, 12, WIDTH // 12):permute(3, 1, 4, 2, 5)
  local y = flare.attention(heads[1], heads[2], heads[3], {causal = true})
  x = x + self.proj(y:transpose(2, 3):reshape(x.shape))
  return x + self.down(self.up(self.norm2(x)))
end

local GPT = flare.class("GPT", nn.Module)

function GPT:init(recompute)
  self.recompute = recompute
  self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TIME, WIDTH)
  self.blocks = nn.ModuleList()
  for _ = 1, 12 do self.blocks:append(Block()) end
  self.norm = nn.LayerNorm(WIDTH)
  for _, p in self:named_parameters() do
    if p.ndim > 1 then nn.init.normal_(p, {std = 0.02}) end
  end
end

function GPT:loss(x)
  local h = self.tokens(x) + self.positions.weight
  for _, block in ipairs(self.blocks) do
    h = self.recompute and flare.checkpoint(block, h) or block(h)
  end
  local logits = F.linear(self.norm(h), self.tokens.weight)
  return F.cross_entropy(logits:flatten(1, 2), x:flatten(1, 2))
end

function GPT:forward(x) return flare.autocast("bf16", self.loss, self, x) end

local function adamw(parameters) return flare.optim.AdamW(parameters, {lr = 1e-4}) end

-- --- the optimizer: flare's, or with the moments of matrices in pinned memory, which come to the
-- device and leave it again, one matrix after the other ---

local Offloaded = flare.class "Offloaded"

function Offloaded:init(parameters)
  self.rows, self.t = {}, 0
  local rest = {}
  for _, p in ipairs(parameters) do
    if p.ndim > 1 then
      local row = {p}
      for k = 2, 3 do row[k] = core.zeros(p.shape, {device = "cpu", pinned = true}) end
      self.rows[#self.rows + 1] = row
    else
      rest[#rest + 1] = p
    end
  end
  self.rest = adamw(rest)
end

local asynchronous = {async = true}

function Offloaded:step()
  self.t = self.t + 1
  local _ <close> = core.no_grad()
  self.rest:step()
  for _, row in ipairs(self.rows) do
    local p = row[1]
    local first <close> = row[2]:to(DEVICE, asynchronous)
    local second <close> = row[3]:to(DEVICE, asynchronous)
    core.adam_step(1e-4, self.t, {p, p.grad, first, second},
      {weight_decay = 0.01, decoupled = true})
    row[2]:copy_(first, asynchronous) -- pinned memory is slow to allocate
    row[3]:copy_(second, asynchronous)
  end
end

local function clear(model)
  for _, p in ipairs(model:parameters()) do p.grad = nil end
end

-- --- predictions ---

-- Of the operators of this model, bench/results/gpu-kernels.md has: the products of its layers and
-- of the head, weighted by their FLOPs, 637 of 989.5 TFLOP/s; attention of 1024 tokens in heads of
-- 64, forward and backward, 248 to 288 TFLOP/s; and, weighted by the bytes that a step has of each,
-- layer norms (3.66 and 2.5 TB/s), gelu (4.19), cross entropy (3.88), AdamW (4.0) and copies (4.05)
-- 3.7 of 4.8 TB/s.
local function machine()
  local m = dataflow.machine "h200"
  m.efficiency.product, m.efficiency.attention, m.efficiency.memory = 0.644, 0.27, 0.77
  return m
end

-- The operators of a step, recorded on a device that computes nothing, and the transfers of the
-- offloaded moments.
local function schedule_of(c)
  local moved = 0
  core.backend_control("dry", "open", 1)
  local model = GPT(c.recompute):to "dry"
  local optimizer = adamw(model:parameters())
  local x = core.ones({c.batch, TIME}, {dtype = "i64", device = "dry"})
  local function step()
    model(x):backward()
    optimizer:step()
    clear(model)
  end
  step() -- makes the states
  local recording = flare.record(step)
  if c.offload then
    for _, p in ipairs(model:parameters()) do
      if p.ndim > 1 then moved = moved + 2 * p:nbytes() end
    end
    for _ = 1, 2 do -- there and back
      table.insert(recording.operators, {name = "moments", kind = "host", flops = 0, bytes = moved})
    end
  end
  return recording:schedule()
end

local function predict()
  local peaks = {}
  for _, c in ipairs(schedules) do
    local simulated = assert(flare.simulate(schedule_of(c), machine()))
    local key = tostring(c.recompute) .. tostring(c.offload)
    peaks[key] = peaks[key] or flare.fits(GPT(c.recompute), {probes = {1, 2},
      input = function(batch) return core.ones(batch, TIME, {dtype = "i64"}) end,
      loss = function(loss) return loss end, optimizer = not c.offload and "AdamW"})
    print(core.json.encode {name = c.name, batch = c.batch, time = simulated.time,
                            peak = peaks[key]:at(c.batch)})
  end
end

-- --- measurements ---

local function measure_one(c)
  flare.manual_seed(1)
  local model = GPT(c.recompute):to(DEVICE)
  local optimizer = (c.offload and Offloaded or adamw)(model:parameters())
  local x = flare.randint(1, VOCABULARY, {c.batch, TIME}):to(DEVICE)
  local loss
  local function run(steps)
    for _ = 1, steps do
      loss = nil
      loss = model(x)
      loss:backward()
      optimizer:step()
      clear(model)
    end
    return loss:item()
  end
  local best = math.huge
  run(small and 2 or 12)
  for _ = 1, small and 1 or 4 do
    local began = core.clock()
    run(5)
    best = math.min(best, (core.clock() - began) / 5)
  end
  collectgarbage()
  collectgarbage()
  core.memory.reset_peak(DEVICE)
  local last = run(2)
  return best, core.memory.stats(DEVICE).peak, core.memory.stats(DEVICE).peak_reserved, last
end

local function measure(path)
  local file <close> = assert(io.open(path))
  local wrong = 0
  print(("%-22s %21s %8s %23s %8s %9s"):format("schedule", "time: simulated, ms", "measured",
    "peak: predicted, GiB", "measured", "reserved"))
  for _, c in ipairs(schedules) do
    local p = core.json.decode(file:read "l")
    assert(p.name == c.name and p.batch == c.batch, "predictions of other schedules")
    local time, peak, reserved, loss = measure_one(c)
    local a, b = p.time / time - 1, p.peak / peak - 1
    local fits = math.abs(a) <= 0.1 and math.abs(b) <= 0.03 and loss == loss
    print(("%-12s batch %-3d %10.2f (%+5.1f %%) %8.2f %11.3f (%+6.2f %%) %8.3f %9.3f%s"):format(
      c.name, c.batch, 1e3 * p.time, 100 * a, 1e3 * time, p.peak / 2^30, 100 * b, peak / 2^30,
      reserved / 2^30, fits and "" or "  FAILED"))
    io.stdout:flush()
    wrong = wrong + (fits and 0 or 1)
    collectgarbage()
    collectgarbage()
    core.memory.flush(DEVICE)
  end
  os.exit(wrong == 0 and 0 or 1)
end

if arg[1] == "measure" then measure(arg[2]) else predict() end
