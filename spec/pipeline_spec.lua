-- Pipelines and rings compute what one process computes, wait as long as their papers say, and are
-- balanced by what passes take. Times are units that the specs set, never those of a clock.
local launch = require "spec.support.launch"

local function good(n, text) return launch.good(n, text, 60) end

local helpers = [[
  local models, nn, optim = flare.models, flare.nn, flare.optim
  local function near(a, b, what)
    local off = (a - b):abs():max():item()
    assert(off < 1e-12, ("%s: off by %g"):format(what, off))
  end
  local function refused(text, f, ...)
    local ok, why = pcall(f, ...)
    assert(not ok and tostring(why):find(text, 1, true), tostring(why))
  end
  local function adamw(params) return optim.AdamW(params, {lr = 0.1}) end
  local function error_of(y, t) return (y - t):square():mean() end
  local function layers()
    flare.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8, {act = "tanh"}),
      nn.Linear(8, 8, {act = "gelu"}), nn.LayerNorm(8), nn.Linear(8, 8),
      nn.Linear(8, 3, {bias = false}), nn.Identity(), nn.Identity()):to "f64"
  end
  flare.manual_seed(2)
  local x = flare.randn({8, 6}, {dtype = "f64"})
  local t = flare.randn({8, 3}, {dtype = "f64"})
  -- Trains both for two steps with the same batches; `batch` is what this rank gives the divided.
  local function compare(what, model, divided, loss, batch, whole)
    local o = adamw(model:parameters())
    for k = 1, 2 do
      o:zero_grad()
      local want = loss(model)
      want:backward()
      o:step()
      divided.optimizer:zero_grad()
      near(want:detach(), divided:step(batch[1], batch[2]), what .. " loss " .. k)
      divided.optimizer:step()
    end
    local state = (whole or divided.state_dict)(divided)
    for name, p in pairs(model:state_dict()) do near(p, state[name], what .. " " .. name) end
  end
]]

describe("schedules", function()
  local flare = require "flare"
  local dataflow = flare.dataflow
  local machine = {name = "any", peak = {f32 = 1}, memory = {bytes = 1e9, rate = 1}}

  it("give slower devices fewer layers, and rings compute again what they do not keep", function()
    local layers = dataflow.uniform {layers = 6, saved = 5}
    local s = dataflow.schemes.gpipe(layers, {devices = 2, micro_batches = 4, slow = {1, 2}})
    assert.same({4, 6}, {s.stages[1].last, s.stages[2].last})
    local r = flare.simulate(s, machine)
    assert.equal(4 * 3 * 4, r.devices[1].busy)
    assert.equal(4 * 3 * 4, r.devices[2].busy)
    assert.equal(4 * 3 * 4 + 3 * 4, r.time)
    for recompute, peak in pairs {[false] = 30, [true] = 5} do
      r = flare.simulate(dataflow.schemes.ring(layers, {devices = 2, recompute = recompute}),
        machine)
      assert.equal(recompute and 24 or 18, r.time)
      assert.equal(peak, r.places["device 1"].peak)
    end
  end)
end)

describe("pipelines", function()
  it("train as one process, with the bubbles and activations of their papers", function()
    for p = 2, 3 do
      good(p, helpers .. [[
        local mesh, F, B, W, M = dist.mesh{pp = size}, 1, 1.5, 0.5, 2 * size
        local cut = {gpipe = size, ["1f1b"] = size, zb_h1 = size, interleaved = 2 * size}
        local bubbles = {gpipe = (size - 1) * (F + B + W), ["1f1b"] = (size - 1) * (F + B + W),
          interleaved = (size - 1) * (F + B + W) / 2, zb_h1 = (size - 1) * (F + B - W)}
        local d = rank + 1
        local kept = {gpipe = M, ["1f1b"] = size - rank, zb_h1 = size,
          interleaved = 2 * (size - d) + size + 1}
        local units = {F = F, B = B + W}
        local x, t = flare.cat({x, x, x}, 1), flare.cat({t, t, t}, 1) -- 24 divides by 4 and 6
        for _, scheme in ipairs {"gpipe", "1f1b", "interleaved", "zb_h1"} do
          local stages = cut[scheme]
          -- of 8 parts as many cost as there are stages, the others nothing
          local work, each = {}, scheme == "interleaved" and 2 or 1
          for k = 1, 8 do work[k] = k <= stages and 1 or 1e-9 end
          local function clock(kind, part)
            if part > stages then return 0 end
            return (scheme == "zb_h1" and kind == "B" and B or units[kind] or W) / each
          end
          for _, recompute in ipairs(scheme == "gpipe" and {false, true} or {false}) do
            local pipe = dist.Pipeline(layers(), mesh, {scheme = scheme, micro_batches = M,
              loss = error_of, work = work, clock = clock, optimizer = adamw,
              recompute = recompute})
            near(error_of(layers()(x), t):detach(), pipe:evaluate(x, t), scheme .. " evaluated")
            compare(scheme, layers(), pipe, function(m) return error_of(m(x), t) end, {x, t})
            local r = pipe.report
            near(flare.tensor{bubbles[scheme]}, flare.tensor{r.idle}, scheme .. " bubble")
            near(flare.tensor{M * (F + B + W)}, flare.tensor{r.busy}, scheme .. " busy")
            assert(r.kept == kept[scheme], ("%s keeps %d"):format(scheme, r.kept))
            -- the simulator says the same of the same schedule
            local s = assert(flare.simulate(pipe.schedule, {name = "any", peak = {f32 = 1},
              memory = {bytes = 1e9, rate = 1}}))
            local orders = {}
            for _, task in ipairs(s.tasks) do
              local kind, stage, micro = task.name:match "^(%a)%a+ s(%d+) m(%d+)$"
              if kind and task.device == d then
                orders[#orders + 1] = kind:upper() .. stage .. " " .. micro
              end
            end
            for k, pass in ipairs(r.passes) do
              assert(orders[k] == ("%s%d %d"):format(pass.kind, pass.stage, pass.micro), scheme)
            end
          end
        end
      ]])
    end
  end)

  it("go with data and tensor parallel training of decoders", function()
    good(4, helpers .. [[
      local ids = flare.randint(0, 13, {8, 8}, {generator = flare.generator(3)})
      local function gpt2()
        flare.manual_seed(1)
        return models.GPT2LMHeadModel{vocab_size = 13, n_positions = 8, n_embd = 8, n_layer = 2,
          n_head = 2, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0}:to "f64"
      end
      local function llama()
        flare.manual_seed(1)
        return models.LlamaForCausalLM{vocab_size = 13, hidden_size = 8, intermediate_size = 12,
          num_hidden_layers = 3, num_attention_heads = 2, num_key_value_heads = 2}:to "f64"
      end
      local function loss(m) return m:loss(ids) end
      local mesh = dist.mesh{dp = 2, pp = 2}
      local mine = ids:narrow(1, 1 + 4 * mesh.at.dp, 4)
      for _, scheme in ipairs {"1f1b", "zb_h1"} do
        -- its embedding and head, of different stages, are one parameter
        local pipe = dist.Pipeline(gpt2(), mesh, {scheme = scheme, micro_batches = 2,
          optimizer = adamw})
        compare("gpt2 " .. scheme, gpt2(), pipe, loss, {mine, mine})
        -- gradients of several steps add up
        local whole = gpt2()
        dist.load_state_dict(whole, pipe:state_dict())
        pipe.optimizer:zero_grad()
        for _ = 1, 2 do
          whole:loss(ids):backward()
          pipe:step(mine, mine)
        end
        local here = pipe.model.transformer[rank % 2 == 0 and "wte" or "ln_f"].weight
        if here:numel() > 0 then
          near(whole.transformer[rank % 2 == 0 and "wte" or "ln_f"].weight.grad, here.grad, "sums")
        end
      end
      mesh = dist.mesh{tp = 2, pp = 2}
      for _, sequence in ipairs {false, true} do
        local model = dist.tensor_parallel(llama(), mesh, {sequence = sequence})
        local pipe = dist.Pipeline(model, mesh, {scheme = "zb_h1", micro_batches = 4,
          optimizer = adamw})
        compare("llama", llama(), pipe, loss, {ids, ids})
      end
    ]])
  end)

  it("are cut anew where devices or parts are slower, states included", function()
    good(2, helpers .. [[
      local mesh = dist.mesh{pp = size}
      local function blocks(n)
        flare.manual_seed(1)
        local list = {nn.Linear(6, 8)}
        for k = 1, n do list[#list + 1] = nn.Linear(8, 8, {act = "tanh"}) end
        list[#list + 1] = nn.Linear(8, 3)
        return nn.Sequential(list):to "f64"
      end
      local function loss(m) return error_of(m(x), t) end
      local n = 12
      for what, clock in ipairs {
        -- device 2 takes twice as long, and the other way around
        function(_, k) return (k == 1 or k == n + 2) and 1e-6 or 1 + rank end,
        function(_, k) return (k == 1 or k == n + 2) and 1e-6 or 2 - rank end,
        -- the head alone is as much as four blocks
        function(_, k) return k == 1 and 1e-6 or k == n + 2 and 4 or 1 end,
      } do
        local ones = {}
        for k = 1, n + 2 do ones[k] = (k == 1 or k == n + 2) and 1e-6 or 1 end
        local pipe = dist.Pipeline(blocks(n), mesh, {micro_batches = 4, loss = error_of,
          work = ones, clock = clock, optimizer = adamw})
        local model = blocks(n)
        local o = adamw(model:parameters())
        for step = 1, 3 do
          o:zero_grad()
          local want = loss(model)
          want:backward()
          o:step()
          pipe.optimizer:zero_grad()
          near(want:detach(), pipe:step(x, t), what .. " loss")
          pipe.optimizer:step()
          if step == 1 then
            local busy = dist.all_reduce(flare.tensor{pipe.report.busy}, {reduce = "max"}):item()
            assert(busy > 1.2 * 8 * 8, busy) -- it was not balanced
            pipe:rebalance()
          end
        end
        -- the slowest device against a cut by any fractions of layers
        local busy = dist.all_reduce(flare.tensor{pipe.report.busy}, {reduce = "max"}):item()
        assert(busy <= 1.15 * 8 * 8, ("%s: %g"):format(what, busy))
        local state = pipe:state_dict()
        for name, p in pairs(model:state_dict()) do near(p, state[name], what .. " " .. name) end
      end
    ]])
  end)

  it("give slower replicas fewer micro-batches", function()
    good(2, helpers .. [[
      local mesh = dist.mesh{dp = size, pp = 1}
      local units = {1, 2}
      local shares = dist.shares(8, units)
      assert(shares[1] == 5 and shares[2] == 3 or shares[1] == 6 and shares[2] == 2)
      -- the slowest takes at most 15 % more than 8 / (1 + 1 / 2)
      assert(math.max(shares[1], 2 * shares[2]) <= 1.15 * 8 / 1.5)
      local pipe = dist.Pipeline(layers(), mesh, {loss = error_of, optimizer = adamw})
      local model = layers()
      local first = rank == 0 and 1 or 1 + shares[1]
      local mine = {x:narrow(1, first, shares[rank + 1]), t:narrow(1, first, shares[rank + 1])}
      local want = error_of(model(x), t)
      want:backward()
      near(want:detach(), pipe:step(mine[1], mine[2], {micro_batches = shares[rank + 1]}), "loss")
      for name, p in model:named_parameters() do
        local k, key = name:match "^(%d+)%.(.*)"
        near(p.grad, pipe.model[math.tointeger(k)][key].grad, name)
      end
      refused("1 micro-batches are too few for 2 ranks", dist.shares, 1, {1, 1})
      refused("seconds of rank 1 must be a number above 0, got 0", dist.shares, 4, {1, 0})
    ]])
  end)

  it("say what is wrong", function()
    good(2, helpers .. [[
      local mesh = dist.mesh{pp = size}
      local P = dist.Pipeline
      refused("unknown scheme 'gpip' (did you mean 'gpipe'?)", P, layers(), mesh,
        {scheme = "gpip"})
      refused("the mesh has no axis 'pp'; its axes are dp", P, layers(), dist.mesh{dp = size})
      refused("GELU has no parts that follow each other", P, nn.GELU(), mesh)
      refused("Sequential has none of its own", P, layers(), mesh)
      refused("micro_batches must be a multiple of 2", P, layers(), mesh, {scheme = "interleaved",
        micro_batches = 3, loss = error_of})
      refused("1 layers cannot be cut into 2 stages", P, nn.Sequential(nn.Linear(2, 2)), mesh,
        {loss = error_of})
      local pipe = P(layers(), mesh, {loss = error_of, micro_batches = 3})
      refused(("rank %d: a batch of 8 cannot be cut into 3"):format(rank), pipe.step, pipe, x, t)
      refused("there was no step yet", pipe.rebalance, pipe)
      pipe = P(layers(), mesh, {loss = error_of})
      pipe:step(x, t)
      refused("make the pipeline with measure = true", pipe.rebalance, pipe)
      pipe = P(layers(), mesh, {loss = error_of, measure = true})
      pipe:step(x, t)
      assert(#pipe:rebalance() == 8)
      local moved = P(layers(), mesh, {loss = error_of, device = "sim:0", optimizer = adamw})
      for _, p in ipairs(moved:parameters()) do assert(p.device == "sim:0") end
      near(error_of(layers()(x), t):detach(), moved:step(x:to "sim:0", t:to "sim:0"), "sim")
      for name, p in pairs(layers():state_dict()) do
        near(p, moved:state_dict()[name]:to "cpu", name)
      end
      assert(tostring(pipe):find "1f1b, 2 devices, 2 micro%-batches, 8 parts")
    ]])
  end)
end)

describe("rings", function()
  it("train as one process, and hold each layer at home alone", function()
    good(3, helpers .. [[
      local mesh = dist.mesh{dp = size}
      local function six() -- without the two identities at the end
        local model = layers()
        return nn.Sequential{model[1], model[2], model[3], model[4], model[5], model[6]}
      end
      local x, t = flare.cat({x, x, x}, 1), flare.cat({t, t, t}, 1)
      local a, b = x:narrow(1, 1 + 8 * rank, 8), t:narrow(1, 1 + 8 * rank, 8)
      local ring = dist.Ring(six(), mesh, {micro_batches = 2, loss = error_of, optimizer = adamw})
      compare("ring", six(), ring, function(m) return error_of(m(x), t) end, {a, b})
      for k, piece in ipairs(ring.pieces) do
        for _, slot in ipairs(piece.slots) do
          local n = slot.holder[slot.key]:numel()
          assert((n > 0) == ((k - 1) % size == rank), slot.name)
        end
      end
      refused("'1.weight' and '2.weight' are one parameter", dist.Ring, (function()
        local one = nn.Linear(4, 4)
        return nn.Sequential(one, one)
      end)(), mesh, {loss = error_of})
      refused(("rank %d: a batch of 7 cannot be cut into 2"):format(rank), ring.step, ring,
        a:narrow(1, 1, 7), b:narrow(1, 1, 7))
    ]])
  end)
end)
