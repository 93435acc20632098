-- Divided layers compute what one process computes: losses, parameters after two steps, logits and
-- checkpoints, in f64.
local launch = require "spec.support.launch"

local good = launch.good

-- A job's functions: `compare(make, loss, o)` trains a model of make() for two steps in one process
-- and divided among the ranks, `near(a, b, what)` compares.
local helpers = [[
  local models, nn, optim = flare.models, flare.nn, flare.optim
  local mesh = dist.mesh{tp = size}
  local ids = flare.randint(0, 13, {2, 8}, {generator = flare.generator(3)})
  local function near(a, b, what)
    local off = (a - b):abs():max():item()
    assert(off < 1e-12, ("%s: off by %g"):format(what, off))
  end
  local function train(model, loss)
    local o, losses = optim.SGD(model:parameters(), {lr = 0.5}), {}
    for k = 1, 2 do
      o:zero_grad()
      local l = loss(model)
      l:backward()
      o:step()
      losses[k] = l:item()
    end
    return flare.tensor(losses, {dtype = "f64"})
  end
  local function seeded(make)
    flare.manual_seed(1)
    return make():to "f64"
  end
  local function compare(what, make, loss, o)
    local whole, parts = seeded(make), dist.tensor_parallel(seeded(make), mesh, o)
    near(train(whole, loss), train(parts, loss), what .. " losses")
    local state = dist.state_dict(parts)
    for name, p in pairs(whole:state_dict()) do near(p, state[name], what .. " " .. name) end
    return whole, parts
  end
]]

describe("tensor parallel models", function()
  it("are decoders whose loss, gradients and logits are those of one process", function()
    good(2, helpers .. [[
      local small = {vocab_size = 13, hidden_size = 16, intermediate_size = 12, head_dim = 4,
        num_hidden_layers = 1, num_attention_heads = 4, num_key_value_heads = 2}
      local function llama(class, more)
        local c = {}
        for key, value in pairs(small) do c[key] = value end
        for key, value in pairs(more or {}) do c[key] = value end
        return function() return models[class](c) end
      end
      local labels = ids:clone()
      labels[{1, {1, 4}}] = -100 -- left out
      local function loss(m) return m:loss(ids, labels) + nn.moe_loss(m) end
      for _, case in ipairs {
        {"gpt2", function()
          return models.GPT2LMHeadModel{vocab_size = 13, n_positions = 16, n_embd = 12, n_layer = 2,
            n_head = 4, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}
        end},
        {"llama", llama "LlamaForCausalLM"},
        {"qwen3", llama("Qwen3ForCausalLM", {tie_word_embeddings = true})},
        {"mixtral", llama("MixtralForCausalLM", {num_local_experts = 4})},
        {"qwen2_moe", llama("Qwen2MoeForCausalLM", {num_experts = 3, num_experts_per_tok = 2,
          moe_intermediate_size = 6, shared_expert_intermediate_size = 4})},
      } do
        for _, sequence in ipairs {false, true} do
          local a, b = compare(case[1], case[2], loss, {sequence = sequence})
          near(a(ids), b(ids), case[1] .. " logits")
          local c = dist.tensor_parallel(case[2]():to "f64", mesh, {sequence = sequence})
          dist.load_state_dict(c, a:state_dict())
          near(a(ids), c(ids), case[1] .. " loaded")
          if not sequence then
            local function text(m)
              local o = {ids = {1, 2, 3}, max_tokens = 4, temperature = 0, ignore_eos = true}
              return table.concat(m:eval():generate(o).ids, " ")
            end
            assert(text(a) == text(c))
          end
        end
      end
    ]])
  end)

  it("are encoders, nn's transformers, and models with a plan of their own", function()
    good(2, helpers .. [[
      local labels = flare.randint(0, 13, {2, 8}, {generator = flare.generator(4)})
      compare("bert", function()
        return models.BertForMaskedLM{vocab_size = 13, hidden_size = 12, num_hidden_layers = 1,
          num_attention_heads = 4, intermediate_size = 20, max_position_embeddings = 16,
          hidden_dropout_prob = 0, attention_probs_dropout_prob = 0}
      end, function(m) return m:loss(ids, labels) end)
      local images = flare.randn({2, 3, 8, 8}, {dtype = "f64", generator = flare.generator(5)})
      compare("vit", function()
        return models.ViTForImageClassification{hidden_size = 12, num_hidden_layers = 1,
          num_attention_heads = 2, intermediate_size = 20, image_size = 8, patch_size = 4}
      end, function(m) return m(images):square():mean() end)
      local tower = {hidden_size = 12, intermediate_size = 8, num_hidden_layers = 1,
        num_attention_heads = 2, vocab_size = 13, eos_token_id = 2, image_size = 8, patch_size = 4}
      compare("clip", function()
        return models.CLIPModel{projection_dim = 6, text_config = tower, vision_config = tower}
      end, function(m) return m:loss(images, ids) end)
      local spectra = flare.randn({2, 4, 12}, {dtype = "f64", generator = flare.generator(7)})
      compare("whisper", function()
        return models.WhisperForConditionalGeneration{vocab_size = 13, num_mel_bins = 4,
          d_model = 8, encoder_layers = 1, decoder_layers = 1, encoder_attention_heads = 2,
          decoder_attention_heads = 4, encoder_ffn_dim = 6, decoder_ffn_dim = 10,
          max_source_positions = 6, max_target_positions = 8, decoder_start_token_id = 1,
          pad_token_id = 0, dropout = 0, attention_dropout = 0}
      end, function(m) return m:loss(spectra, labels) end)
      local x = flare.randn({2, 5, 12}, {dtype = "f64", generator = flare.generator(6)})
      compare("transformer", function()
        local layer = nn.TransformerEncoderLayer(12, 2, {hidden = 8, dropout = 0})
        return nn.TransformerEncoder(layer, 2)
      end, function(m) return m(x):square():mean() end)
      local a, b = compare("head", function()
        return nn.Sequential(nn.Linear(12, 6), nn.Linear(6, 5))
      end, function(m) return m(x):square():mean() end, {plan = {["2"] = "head"}})
      near(a(x), b(x), "head")
      a, b = compare("plan", function()
        return nn.Sequential(nn.Linear(12, 6, {act = "gelu"}), nn.Linear(6, 12, {bias = false}))
      end, function(m) return m(x):square():mean() end, {plan = {["1"] = "column", ["2"] = "row"}})
      assert(tostring(b):find("ColumnLinear(12 -> 3 of 6)", 1, true), tostring(b))
      assert(tostring(b):find("RowLinear(3 of 6 -> 12)", 1, true), tostring(b))
      near(a[2].weight:narrow(2, 1 + 3 * rank, 3), b[2].weight, "part")
    ]])
  end)

  it("drop alike outside of regions, and otherwise on each rank", function()
    good(2, [[
      local models, mesh = flare.models, dist.mesh{tp = size}
      local ids = flare.zeros({2, 8}, {dtype = "i64"})
      local function make(o)
        flare.manual_seed(1)
        return models.GPT2LMHeadModel{vocab_size = 13, n_positions = 8, n_embd = 8, n_layer = 1,
          n_head = 2, resid_pdrop = o.rest or 0, embd_pdrop = o.rest or 0, attn_pdrop = o.attention}
      end
      local function dropped(y) return y:ne(0):to "i64" end
      for _, sequence in ipairs {false, true} do
        local model = dist.tensor_parallel(make{rest = 0.5, attention = 0}, mesh,
          {sequence = sequence})
        local mine
        model.transformer.drop:register_forward_hook(function(_, _, y) mine = dropped(y) end)
        model:loss(ids)
        local other = dist.broadcast(mine, {root = 0})
        assert(rank == 0 or mine:eq(other):all():item() == not sequence)
        local a = select(2, flare.default_generator():state()) -- the ranks have drawn alike
        assert(dist.all_reduce(flare.tensor({a}, {dtype = "i64"}), {reduce = "max"}):item() == a)
      end
      -- heads of different ranks drop different weights
      local model = dist.tensor_parallel(make{attention = 0.5}, mesh)
      local attn, y = model.transformer.h[1].attn, nil
      for _, p in ipairs{attn.c_attn.weight, attn.c_attn.bias} do
        flare.no_grad(p.fill_, p, 0.1) -- all heads compute the same
      end
      attn.c_proj:register_forward_pre_hook(function(_, x) y = x:detach() end)
      model:loss(ids)
      local other = dist.broadcast(y, {root = 0})
      assert(rank == 0 or not other:eq(y):all():item())
      -- a checkpoint draws the same numbers again
      local function gradient(f)
        flare.manual_seed(2)
        model:zero_grad()
        f():backward()
        return attn.c_attn.weight.grad
      end
      local want = gradient(function() return model:loss(ids) end)
      local got = gradient(function()
        return flare.checkpoint(function(x) return model:loss(x) end, ids)
      end)
      assert(want:ne(0):any():item() and want:eq(got):all():item())
    ]])
  end)

  it("say what does not divide, and where", function()
    good(2, [[
      local models, nn = flare.models, flare.nn
      local mesh = dist.mesh{tp = size}
      local function refused(text, f, ...)
        local ok, why = pcall(f, ...)
        assert(not ok and tostring(why):find(text, 1, true), tostring(why))
      end
      local parallel = dist.tensor_parallel
      refused(("tensor_parallel: rank %d: transformer.h.1.attn has 3 heads, which 2 ranks cannot "
        .. "share equally"):format(rank), parallel, models.GPT2LMHeadModel{vocab_size = 4,
        n_embd = 12, n_head = 3, n_layer = 1, n_positions = 4}, mesh)
      refused("1.self_attn.k_proj has 1 heads, which 2 ranks", parallel, models.LlamaForCausalLM{
        vocab_size = 4, hidden_size = 8, intermediate_size = 8, num_hidden_layers = 1,
        num_attention_heads = 2, num_key_value_heads = 1}, mesh)
      refused("1 has 5 outputs, which 2 ranks", parallel, nn.Sequential(nn.Linear(4, 5)), mesh,
        {plan = {["1"] = "column"}})
      refused("1 has the activation relu", parallel, nn.Sequential(nn.Linear(4, 4, {act = "relu"})),
        mesh, {plan = {["1"] = "row"}})
      refused("1 is to be column, which needs an nn.Linear, but it is a ReLU", parallel,
        nn.Sequential(nn.ReLU()), mesh, {plan = {["1"] = "column"}})
      refused("the plan says 'colum' for 1 (did you mean 'column'?)", parallel,
        nn.Sequential(nn.Linear(4, 4)), mesh, {plan = {["1"] = "colum"}})
      refused("no layer of this Linear is in a plan", parallel, nn.Linear(4, 4), mesh)
      refused("a mesh is expected, as dist.mesh{tp = 2} makes it, or a group, got nil", parallel,
        nn.Linear(4, 4))
      refused("the mesh has no axis 'tp'; its axes are dp", parallel, nn.Linear(4, 4),
        dist.mesh{dp = size})
      refused("sequence = true is for decoders", parallel, nn.Linear(4, 4), mesh,
        {sequence = true})
      local model = parallel(models.GPT2LMHeadModel{vocab_size = 4, n_embd = 8, n_head = 2,
        n_layer = 1, n_positions = 8}, mesh, {sequence = true})
      refused("dim 2 of a tensor (1, 5, 8) has size 5, which 2 ranks cannot share equally",
        model.loss, model, flare.zeros({1, 5}, {dtype = "i64"}))
      refused("'lm_head.weight' is (3, 8), dim 1 must have size 4", dist.load_state_dict, model,
        {["lm_head.weight"] = flare.zeros(3, 8)})
    ]])
  end)
end)
