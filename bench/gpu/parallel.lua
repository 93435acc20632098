-- Two GPUs: whether divided models compute what one GPU computes, and tokens a second of GPT-2
-- medium with data, tensor and pipeline parallel training.
--   flare launch -n 2 bench/gpu/parallel.lua [--what check|speed] [--only 'WORD WORD']
local flare = require "flare"
local o = flare.args(arg, "Parallel training on two GPUs.", {
  what = {"all", "check, speed or all"}, only = {"", "words of the schemes to run"},
  steps = {10, "measured"}, device = {"cuda", "of tensors"},
  layers = {24, "of the model"}, width = {1024, "of the model"}, length = {1024, "of sequences"},
  batch = {16, "sequences of a step, of all ranks"}, micro = {4, "micro-batches of a pipeline"}})
local dist, models, optim = flare.dist, flare.models, flare.optim
local rank, size = dist.init()
local on = {device = o.device}
local function wanted(what)
  if o.only == "" then return true end
  for word in o.only:gmatch "%S+" do
    if what:find(word, 1, true) then return true end
  end
  return false
end
local function say(...) if rank == 0 then print((...):format(select(2, ...))) end end

---------------------------------------------------------------- checks, f32

local small = {vocab_size = 101, n_positions = 128, n_embd = 64, n_layer = 4, n_head = 4,
  resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}
local function llama(more)
  local c = {vocab_size = 101, hidden_size = 64, intermediate_size = 96, num_hidden_layers = 4,
    num_attention_heads = 4, num_key_value_heads = 2}
  for key, value in pairs(more or {}) do c[key] = value end
  return c
end
local function seeded(make, where)
  flare.manual_seed(1)
  local model = make()
  return where == "cpu" and model or model:to(o.device)
end
local function gpt2() return models.GPT2LMHeadModel(small) end
local function a_llama() return models.LlamaForCausalLM(llama()) end
local function mixtral()
  return models.MixtralForCausalLM(llama{num_local_experts = 4, router_aux_loss_coef = 0})
end
local function sgd(params) return optim.SGD(params, {lr = 0.1}) end

local bad = 0
-- Two steps of one GPU and of all ranks: losses, and how far parameters moved apart relative to how
-- far they moved.
local function compare(what, make, ids, step, state_of, optimizer)
  if not wanted(what) then return end
  local whole = seeded(make)
  local start = {}
  for name, p in pairs(whole:state_dict()) do start[name] = p:clone() end
  local opt, off = sgd(whole:parameters()), 0
  for _ = 1, 2 do
    opt:zero_grad()
    local want = whole:loss(ids)
    want:backward()
    opt:step()
    optimizer:zero_grad()
    local got = step()
    optimizer:step()
    off = math.max(off, math.abs(got:item() - want:item()) / want:item())
  end
  local state, apart, moved = state_of(), 0, 0
  for name, p in pairs(whole:state_dict()) do
    apart = math.max(apart, (p - state[name]:to(p.device)):abs():max():item())
    moved = math.max(moved, (p - start[name]):abs():max():item())
  end
  local good = off < 1e-5 and apart / moved < 2e-3
  if not good then bad = bad + 1 end
  say("%-28s loss off by %.1e, parameters by %.1e of their change%s", what, off, apart / moved,
    good and "" or "  WRONG")
end

-- Products of matrices in all placements over a mesh: values and gradients.
local function products()
  if not wanted "flare.shard" then return end
  local mesh, worst, count = dist.mesh{dp = 1, tp = size}, 0, 0
  local function random(seed, ...)
    return flare.randn({...}, {generator = flare.generator(seed)}):to(o.device)
  end
  local function off(a, b) return ((a - b):abs():max() / a:abs():max()):item() end
  local axes = {false, "dp", "tp"}
  for k = 0, 80 do
    local p = {axes[k % 3 + 1], axes[k // 3 % 3 + 1]}
    local q = {axes[k // 9 % 3 + 1], axes[k // 27 + 1]}
    if not (p[1] and p[1] == p[2] or q[1] and q[1] == q[2]) then
      local x = random(1, 64, 96):requires_grad_(true)
      local w = random(2, 96, 128):requires_grad_(true)
      local weight = random(3, 64, 128)
      local want = (x:matmul(w):tanh() * weight):sum()
      want:backward()
      local a, b = flare.shard(x, mesh, p), flare.shard(w, mesh, q)
      local got = (a:matmul(b):tanh() * flare.shard(weight, mesh, {"tp", "dp"})):sum():whole()
      got:backward()
      worst = math.max(worst, math.abs(got:item() - want:item()) / math.abs(want:item()),
        off(x.grad, a:grad():whole()), off(w.grad, b:grad():whole()))
      count = count + 1
    end
  end
  local good = count == 49 and worst < 1e-4
  if not good then bad = bad + 1 end
  say("%-28s %d placements, off by %.1e%s", "flare.shard", count, worst, good and "" or "  WRONG")
end

local function check()
  local ids = flare.randint(0, 101, {8, 128}, {generator = flare.generator(3)}):to(o.device)
  local mine = ids:chunk(size, 1)[rank + 1]
  local tp, pp, dp = dist.mesh{tp = size}, dist.mesh{pp = size}, dist.mesh{dp = size}
  local ep, cp = dist.mesh{ep = size}, dist.mesh{cp = size}
  for _, sequence in ipairs {false, true} do
    local m = dist.tensor_parallel(seeded(gpt2), tp, {sequence = sequence})
    compare(("tensor, gpt2%s"):format(sequence and ", sequence" or ""), gpt2, ids, function()
      local loss = m:loss(ids)
      loss:backward()
      return loss
    end, function() return dist.state_dict(m) end, sgd(m:parameters()))
  end
  for _, scheme in ipairs {"gpipe", "1f1b", "interleaved", "zb_h1"} do
    local p = dist.Pipeline(seeded(gpt2), pp, {scheme = scheme, micro_batches = 4, optimizer = sgd})
    compare("pipeline, " .. scheme, gpt2, ids, function() return p:step(ids, ids) end,
      function() return p:state_dict() end, p.optimizer)
  end
  local ring = dist.Ring(seeded(a_llama), dp, {optimizer = sgd})
  compare("ring of layers, llama", a_llama, ids, function() return ring:step(mine, mine) end,
    function() return ring:state_dict() end, ring.optimizer)
  local c = dist.context_parallel(seeded(a_llama), cp)
  compare("context, llama", a_llama, ids, function()
    local loss = c:loss(ids)
    loss:backward()
    dist.average_gradients(c, cp)
    return loss
  end, function() return dist.state_dict(c) end, sgd(c:parameters()))
  local e = dist.expert_parallel(seeded(mixtral), ep)
  compare("experts, mixtral", mixtral, ids, function()
    local loss = e:loss(mine)
    loss:backward()
    dist.average_gradients(e, ep)
    return ep.ep:all_reduce(loss:detach(), {reduce = "mean"})
  end, function() return dist.state_dict(e) end, sgd(e:parameters()))
  products()
  say(bad == 0 and "all schemes equal one GPU" or "%d schemes are WRONG", bad)
end

---------------------------------------------------------------- speed, bf16

local function medium()
  flare.manual_seed(1)
  return models.GPT2LMHeadModel{n_embd = o.width, n_layer = o.layers, n_head = o.width // 64,
    n_positions = o.length, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}
end

-- Attention and feed-forward layers of a sequence that two GPUs share.
local function long(length)
  flare.manual_seed(1)
  return models.LlamaForCausalLM{vocab_size = 32000, hidden_size = o.width,
    intermediate_size = 4 * o.width, num_hidden_layers = o.layers // 3,
    num_attention_heads = o.width // 64, num_key_value_heads = o.width // 256,
    max_position_embeddings = length}
end

local function sparse()
  flare.manual_seed(1)
  return models.MixtralForCausalLM{vocab_size = 32000, hidden_size = o.width,
    intermediate_size = 2 * o.width, num_hidden_layers = o.layers // 3,
    num_attention_heads = o.width // 64, num_key_value_heads = o.width // 256,
    num_local_experts = 8, max_position_embeddings = o.length}
end

local function timed(what, step, optimizer)
  local function once()
    optimizer:zero_grad()
    step()
    optimizer:step()
  end
  for _ = 1, 4 do once() end
  flare.synchronize(on.device)
  dist.barrier()
  local start = flare.clock()
  for _ = 1, o.steps do once() end
  flare.synchronize(on.device)
  dist.barrier()
  local seconds = (flare.clock() - start) / o.steps
  say("%-28s %8.1f ms a step, %9.0f tokens/s, %.1f GiB at most", what, 1e3 * seconds,
    o.batch * o.length / seconds, flare.memory.stats(on.device).peak / 2 ^ 30)
end

local function speed()
  local ids = flare.randint(0, 50257, {o.batch, o.length}, {generator = flare.generator(3)})
    :to(o.device)
  local mine = ids:chunk(size, 1)[rank + 1]
  local function adamw(params) return optim.AdamW(params, {lr = 1e-4}) end
  local function run(what, make)
    if not wanted(what) then return end
    collectgarbage()
    collectgarbage()
    flare.memory.reset_peak(on.device)
    local step, optimizer = make()
    timed(what, function() flare.autocast("bf16", step) end, optimizer)
  end
  run(("data, %d ranks"):format(size), function()
    local m = dist.DataParallel(medium():to(o.device))
    return function() m:loss(mine):backward() end, adamw(m:parameters())
  end)
  local tp, pp = dist.mesh{tp = size}, dist.mesh{pp = size}
  for _, sequence in ipairs {false, true} do
    run(("tensor, %d ranks%s"):format(size, sequence and ", sequence" or ""), function()
      local m = dist.tensor_parallel(medium(), tp, {sequence = sequence}):to(o.device)
      return function() m:loss(ids):backward() end, adamw(m:parameters())
    end)
  end
  for _, scheme in ipairs {"1f1b", "zb_h1"} do
    run(("pipeline, %d ranks, %s"):format(size, scheme), function()
      local p = dist.Pipeline(medium():to(o.device), pp, {scheme = scheme,
        micro_batches = o.micro, optimizer = adamw})
      return function() p:step(ids, ids) end, p.optimizer
    end)
  end
  local words = ids:remainder(32000)
  local line = words:reshape(1, -1)
  run("long sequence, each rank all", function()
    local m = long(line:size(2)):to(o.device)
    return function() m:loss(line):backward() end, adamw(m:parameters())
  end)
  run(("long sequence, %d ranks"):format(size), function()
    local mesh = dist.mesh{cp = size}
    local m = dist.context_parallel(long(line:size(2)), mesh):to(o.device)
    return function()
      m:loss(line):backward()
      dist.average_gradients(m, mesh)
    end, adamw(m:parameters())
  end)
  local part = words:chunk(size, 1)[rank + 1]
  run(("experts, data, %d ranks"):format(size), function()
    local m = dist.DataParallel(sparse():to(o.device))
    return function() m:loss(part):backward() end, adamw(m:parameters())
  end)
  run(("experts, %d ranks"):format(size), function()
    local mesh = dist.mesh{ep = size}
    local m = dist.expert_parallel(sparse():to(o.device), mesh)
    return function()
      m:loss(part):backward()
      dist.average_gradients(m, mesh)
    end, adamw(m:parameters())
  end)
end

if o.what ~= "speed" then check() end
if o.what ~= "check" then speed() end
assert(bad == 0)
