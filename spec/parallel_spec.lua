-- Experts and parts of sequences on several ranks, and tensors divided over a mesh, compute what
-- one process computes, in f64.
local launch = require "spec.support.launch"

local function good(n, text) return launch.good(n, text, 60) end

local helpers = [[
  local models, nn, optim, core = flare.models, flare.nn, flare.optim, flare.core
  local function near(a, b, what)
    local off = (a - b):abs():max():item()
    assert(off < 1e-12, ("%s: off by %g"):format(what, off))
  end
  local function random(seed, ...)
    return flare.randn({...}, {dtype = "f64", generator = flare.generator(seed)})
  end
  local function refused(text, f, ...)
    local ok, why = pcall(f, ...)
    assert(not ok and tostring(why):find(text, 1, true), tostring(why))
  end
]]

describe("experts on several ranks", function()
  it("train as one process, with and without a capacity", function()
    good(2, helpers .. [[
      local mesh = dist.mesh{ep = size}
      local x, t, n = random(1, 12, 6), random(2, 12, 3), 12 // size
      for _, o in ipairs {{}, {gated = false}, {capacity = 0.8}, {bias_balance = 0.1},
                          {balance = 0.1, z_loss = 0.1}} do
        o.experts, o.top_k, o.hidden, o.balance = 4, 2, 5, o.balance or 0
        local function make()
          flare.manual_seed(1)
          return nn.Sequential(nn.Linear(6, 8), nn.MoE(8, o), nn.Linear(8, 3)):to "f64"
        end
        local function loss(m, r)
          local y = m(x:narrow(1, r * n + 1, n))
          return (y - t:narrow(1, r * n + 1, n)):square():mean() + nn.moe_loss(m)
        end
        local a, b = make(), dist.expert_parallel(make(), mesh)
        assert(b[2].up_proj:size(1) == 2)
        local first = optim.AdamW(a:parameters(), {lr = 0.1})
        local second = optim.AdamW(b:parameters(), {lr = 0.1})
        for _ = 1, 2 do
          first:zero_grad()
          second:zero_grad()
          -- the mean of the ranks' losses: capacity and balance count a rank's tokens
          local want
          if o.bias_balance then -- the bias moves with each forward, by the load of all ranks
            want = (a(x) - t):square():mean()
          else
            want = (loss(a, 0) + loss(a, 1)) / 2
          end
          want:backward()
          first:step()
          local got = loss(b, rank)
          got:backward()
          dist.average_gradients(b, mesh)
          second:step()
          near(want:detach(), mesh.ep:all_reduce(got:detach(), {reduce = "mean"}), "loss")
        end
        local state = dist.state_dict(b)
        for name, p in pairs(a:state_dict()) do near(p, state[name], name) end
      end
      -- all tokens to one expert, and none for a rank
      local moe = nn.MoE(6, {experts = 2, top_k = 1, hidden = 3, balance = 0}):to "f64"
      flare.no_grad(moe.router.zero_, moe.router)
      for _, p in ipairs(moe:parameters()) do mesh.ep:broadcast_(p:detach()) end
      local want = moe(x:narrow(1, rank * n + 1, n))
      near(want, dist.expert_parallel(moe, mesh)(x:narrow(1, rank * n + 1, n)), "one expert")
      refused("1 has 3 experts, which 2 ranks cannot share equally", dist.expert_parallel,
        nn.Sequential(nn.MoE(4, {experts = 3})), mesh)
      refused("this Linear has no nn.MoE", dist.expert_parallel, nn.Linear(2, 2), mesh)
      refused("'weight' has no gradient", dist.average_gradients, nn.Linear(2, 2), mesh)
      refused("or a mesh with an axis dp, ep or cp, got axes tp", dist.average_gradients,
        nn.Linear(2, 2), dist.mesh{tp = size})
    ]])
  end)
end)

describe("norms of gradients", function()
  it("are those of the whole model", function()
    good(2, helpers .. [[
      local ids = flare.randint(0, 13, {4, 8}, {generator = flare.generator(3)})
      local function gpt2()
        flare.manual_seed(1)
        return models.GPT2LMHeadModel{vocab_size = 13, n_positions = 8, n_embd = 8, n_layer = 2,
          n_head = 2, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}:to "f64"
      end
      local whole = gpt2()
      whole:loss(ids):backward()
      local want = optim.clip_grad_norm_(whole:parameters(), 0.1)
      for _, sequence in ipairs {false, true} do
        local m = dist.tensor_parallel(gpt2(), dist.mesh{tp = size}, {sequence = sequence})
        m:loss(ids):backward()
        near(want, dist.clip_grad_norm_(m, 0.1), "tensor")
        near(whole.transformer.ln_f.weight.grad, m.transformer.ln_f.weight.grad, "clipped")
      end
      -- the embedding, which both stages have, counts once
      local pipe = dist.Pipeline(gpt2(), dist.mesh{pp = size}, {micro_batches = 2})
      pipe:step(ids, ids)
      near(want, dist.clip_grad_norm_(pipe, 0.1), "pipeline")
      if rank == 0 then
        near(whole.transformer.wte.weight.grad, pipe.model.transformer.wte.weight.grad, "tied")
      end
      refused("a model, a Pipeline or a Ring is expected, got nil", dist.clip_grad_norm_)
      refused("must be a number above 0, got 0", dist.clip_grad_norm_, pipe, 0)
    ]])
  end)
end)

describe("folders of divided models", function()
  it("are those of ordinary ones", function()
    good(2, helpers .. [[
      local ids = flare.randint(0, 13, {4, 8}, {generator = flare.generator(3)})
      local function make()
        flare.manual_seed(1)
        return models.MixtralForCausalLM{vocab_size = 13, hidden_size = 16, intermediate_size = 6,
          num_hidden_layers = 2, num_attention_heads = 2, num_key_value_heads = 2,
          num_local_experts = 2}
      end
      local want = make()(ids)
      for k, divided in ipairs {
        dist.tensor_parallel(make(), dist.mesh{tp = size}),
        dist.expert_parallel(make(), dist.mesh{ep = size}),
        dist.Pipeline(make(), dist.mesh{pp = size}),
      } do
        assert(divided:save("model-" .. k))
        dist.barrier()
        near(want, models.load("model-" .. k)(ids), "folder " .. k)
      end
      local pipe = dist.Pipeline(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)),
        dist.mesh{pp = size}, {loss = function(y) return y:mean() end})
      refused("a model of flare.models is expected, got Sequential", pipe.save, pipe, "model")
    ]])
  end)
end)

describe("sequences on several ranks", function()
  it("have exact attention, forward and backward", function()
    for _, n in ipairs {2, 3} do
      good(n, helpers .. [[
        local mesh = dist.mesh{cp = size}
        local q = random(1, 2, 4, 12, 4):requires_grad_(true)
        local k = random(2, 2, 2, 12, 4):requires_grad_(true)
        local v = random(3, 2, 2, 12, 4):requires_grad_(true)
        local w = random(4, 2, 4, 12, 4)
        for _, causal in ipairs {true, false} do
          local context = dist.Context(mesh, {causal = causal})
          local want = flare.attention(q, k, v, {causal = causal, scale = 0.7})
          local grads = table.pack(flare.grad((want * w):sum(), {q, k, v}))
          local parts = {}
          for i, x in ipairs {q, k, v} do
            parts[i] = context:part(x:detach(), 3):requires_grad_(true)
          end
          local y = context:attention(parts[1], parts[2], parts[3], {scale = 0.7})
          near(want, context:whole(y, 3), "attention")
          local got = table.pack(flare.grad((y * context:part(w, 3)):sum(), parts))
          for i, grad in ipairs(grads) do near(grad, context:whole(got[i], 3), "input " .. i) end
        end
      ]])
    end
  end)

  it("train decoders as one process, and say what cannot be divided", function()
    good(2, helpers .. [[
      local mesh = dist.mesh{cp = size}
      local ids = flare.randint(0, 13, {2, 12}, {generator = flare.generator(3)})
      local labels = ids:clone()
      labels[{1, {1, 5}}] = -100 -- ranks count different numbers of tokens
      local function gpt2(o)
        return function()
          flare.manual_seed(1)
          return models.GPT2LMHeadModel{vocab_size = 13, n_positions = 16, n_embd = 8, n_layer = 2,
            n_head = 2, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = o or 0}:to "f64"
        end
      end
      local function llama(class, window)
        return function()
          flare.manual_seed(1)
          return models[class]{vocab_size = 13, hidden_size = 16, intermediate_size = 12,
            num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2,
            sliding_window = window}:to "f64"
        end
      end
      for _, make in ipairs {gpt2(), llama "LlamaForCausalLM"} do
        local a, b = make(), dist.context_parallel(make(), mesh)
        local want, got = a:loss(ids, labels), b:loss(ids, labels)
        near(want:detach(), got:detach(), "loss")
        want:backward()
        got:backward()
        dist.average_gradients(b, mesh)
        local list = b:parameters()
        for k, p in ipairs(a:parameters()) do near(p.grad, list[k].grad, "parameter " .. k) end
        near(a(ids), b(ids), "logits")
      end
      local model = dist.context_parallel(gpt2()(), mesh)
      refused(("rank %d: a sequence of 10 positions cannot be cut into 4 equal chunks")
        :format(rank), model.loss, model, ids:narrow(2, 1, 10))
      model = dist.context_parallel(gpt2(0.1)(), mesh)
      refused("attention has dropout", model.loss, model, ids)
      model = dist.context_parallel(llama("MistralForCausalLM", 4)(), mesh)
      refused("attention sees 4 tokens only", model.loss, model, ids)
      refused("a decoder of flare.models is expected, got Linear", dist.context_parallel,
        nn.Linear(2, 2), mesh)
    ]])
  end)
end)

describe("schemes together", function()
  it("train as one process: on meshes of data, tensor, context and expert parallel axes", function()
    good(4, helpers .. [[
      local ids = flare.randint(0, 13, {4, 8}, {generator = flare.generator(3)})
      local config = {vocab_size = 13, hidden_size = 16, intermediate_size = 12,
        num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2}
      local function make(class)
        flare.manual_seed(1)
        if class == "MixtralForCausalLM" then
          config.num_local_experts, config.router_aux_loss_coef = 4, 0
        end
        return models[class](config):to "f64"
      end
      local function adamw(params) return optim.AdamW(params, {lr = 0.1}) end
      -- Three steps: `loss(step)` of the divided model, and the group whose mean it is.
      local function compare(what, class, optimizer, loss, group)
        local whole = make(class)
        local o = adamw(whole:parameters())
        for k = 1, 3 do
          o:zero_grad()
          local want = whole:loss(ids)
          want:backward()
          o:step()
          optimizer:zero_grad()
          local got = loss()
          optimizer:step()
          near(want:detach(), group:all_reduce(got:detach(), {reduce = "mean"}), what .. " " .. k)
        end
      end
      local function backward(l, sync)
        l:backward()
        if sync then sync() end
        return l
      end
      local mesh = dist.mesh{dp = 2, tp = 2}
      local mine = ids:chunk(2, 1)[mesh.at.dp + 1]
      for _, sequence in ipairs {false, true} do
        local model = dist.tensor_parallel(make "LlamaForCausalLM", mesh, {sequence = sequence})
        local wrapped = dist.DataParallel(model, {group = mesh.dp})
        compare("DataParallel", "LlamaForCausalLM", adamw(model:parameters()),
          function() return backward(wrapped:loss(mine)) end, mesh.dp)
        model = dist.tensor_parallel(make "LlamaForCausalLM", mesh, {sequence = sequence})
        local zero = dist.ZeRO(model, adamw, {stage = 3, group = mesh.dp,
          units = {model.model.layers[1], model.model.layers[2]}})
        compare("ZeRO", "LlamaForCausalLM", zero, function() return backward(model:loss(mine)) end,
          mesh.dp)
      end
      mesh = dist.mesh{cp = 2, tp = 2}
      local model = dist.context_parallel(dist.tensor_parallel(make "LlamaForCausalLM", mesh), mesh)
      local function sync() dist.average_gradients(model, mesh) end
      compare("context and tensor", "LlamaForCausalLM", adamw(model:parameters()),
        function() return backward(model:loss(ids), sync) end, mesh.cp)
      mesh = dist.mesh{dp = 2, ep = 2}
      model = dist.expert_parallel(make "MixtralForCausalLM", mesh)
      compare("experts and data", "MixtralForCausalLM", adamw(model:parameters()),
        function() return backward(model:loss(ids:chunk(4, 1)[rank + 1]), sync) end, dist.world)
    ]])
  end)
end)

describe("flare.shard", function()
  it("multiplies matrices of all placements, with gradients, and refuses the rest", function()
    good(4, [[
      local mesh = dist.mesh{dp = 2, tp = 2}
      local function near(a, b, what)
        local off = (a - b):abs():max():item()
        assert(off < 1e-12, ("%s: off by %g"):format(what, off))
      end
      local function random(seed, ...)
        return flare.randn({...}, {dtype = "f64", generator = flare.generator(seed)})
      end
      -- all placements of two matrices: values and gradients
      local axes = {false, "dp", "tp"}
      local count = 0
      local function text(p) return tostring(p[1]) .. " " .. tostring(p[2]) end
      for k = 0, 80 do
        local p = {axes[k % 3 + 1], axes[k // 3 % 3 + 1]}
        local q = {axes[k // 9 % 3 + 1], axes[k // 27 + 1]}
        if not (p[1] and p[1] == p[2] or q[1] and q[1] == q[2]) then
          count = count + 1
          local x = random(1, 4, 6):requires_grad_(true)
          local w = random(2, 6, 8):requires_grad_(true)
          local bias = random(3, 8):requires_grad_(true)
          local weight = random(4, 4, 8)
          local want = ((x:matmul(w) + bias):tanh() * weight):sum()
          want:backward()
          local what = text(p) .. " by " .. text(q)
          local a, b = flare.shard(x, mesh, p), flare.shard(w, mesh, q)
          local c = flare.shard(bias, mesh, {q[2]})
          local y = (a:matmul(b) + c):tanh() * flare.shard(weight, mesh, {"tp", "dp"})
          local got = y:sum():whole()
          near(want:detach(), got:detach(), what)
          got:backward()
          near(x.grad, a:grad():whole(), what .. " dx")
          near(w.grad, b:grad():whole(), what .. " dw")
          near(bias.grad, c:grad():whole(), what .. " db")
        end
      end
      assert(count == 49)
      -- what is sent, and what is not
      local x, w = random(1, 4, 6), random(2, 6, 8)
      local a, b = flare.shard(x, mesh, {"dp", "tp"}), flare.shard(w, mesh, {"tp"})
      local y = a:matmul(b)
      assert(tostring(y) == 'divided tensor (4, 8) over {"dp", nil}, partial over tp, part (2, 8)',
        tostring(y))
      near(y:whole(), x:matmul(w), "partial")
      near((y + y * 2 - y / 4):whole(), x:matmul(w) * 2.75, "sums of partial tensors")
      near((1 - y):whole(), 1 - x:matmul(w), "a number")
      near((y + 1):relu():mean{dim = 1}:whole(), (x:matmul(w) + 1):relu():mean{dim = 1}, "mean")
      near(a:t():softmax(1):whole(), x:t():softmax(1), "softmax")
      near(a:redistribute{nil, "dp"}:whole(), x, "redistribute")
      local z = flare.shard(x, mesh, {"dp"}):matmul(flare.shard(w, mesh, {nil, "tp"}))
      assert(z.part.shape[1] == 2 and z.part.shape[2] == 4)
      local function refused(message, f, ...)
        local ok, why = pcall(f, ...)
        assert(not ok and tostring(why):find(message, 1, true), tostring(why))
      end
      refused("dim 2 of (4, 7) cannot be divided equally over the 2 ranks of 'tp'", flare.shard,
        random(1, 4, 7), mesh, {nil, "tp"})
      refused("dims 1 and 2 cannot both be divided over 'dp'", flare.shard, x, mesh, {"dp", "dp"})
      refused("the mesh has no axis 'pp'; its axes are dp, tp", flare.shard, x, mesh, {"pp"})
      refused("a placement for dim 3, but the tensor has 2 dims", flare.shard, x, mesh,
        {nil, nil, "dp"})
      refused("a mesh is expected, as dist.mesh{dp = 2} makes it, got nil", flare.shard, x)
      refused("divided tensors have no 'matmull' (did you mean 'matmul'?)", function()
        return a:matmull(b)
      end)
      refused("must be (rows, inner) and (inner, columns), got (4, 6) and (4, 6)", a.matmul, a, a)
      refused("(4, 6) and (6, 8) do not fit", function() return a + b end)
      refused("over different meshes", function()
        return a + flare.shard(x, dist.mesh{dp = 4}, {"dp"})
      end)
    ]])
  end)
end)
