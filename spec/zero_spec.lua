-- ZeRO: states, gradients and parameters in parts, against one process on the whole batch, in f64.
local launch = require "spec.support.launch"

local tools = [[
  local nn, optim = flare.nn, flare.optim
  local function make(seed)
    flare.manual_seed(seed or 3)
    return nn.Sequential(nn.Linear(6, 33), nn.Tanh(), nn.LayerNorm(33),
      nn.Sequential(nn.Linear(33, 20), nn.ReLU()), nn.Linear(20, 3)):to "f64"
  end
  flare.manual_seed(9)
  local x = flare.randn({8 * size, 6}, {dtype = "f64"})
  local y = flare.randn({8 * size, 3}, {dtype = "f64"})
  local a, b = x:narrow(1, rank * 8 + 1, 8), y:narrow(1, rank * 8 + 1, 8)
  local function train(model, o, input, target, steps)
    for _ = 1, steps do
      o:zero_grad();
      (model(input) - target):square():mean():backward()
      o:step()
    end
  end
  local function adam(params) return optim.Adam(params, {lr = 0.01}) end
  local function rates(params) -- each second one in a group of its own, backwards
    local a, b = {}, {}
    for k = #params, 1, -1 do
      local list = k % 2 == 0 and a or b
      list[#list + 1] = params[k]
    end
    return optim.AdamW{{params = a, lr = 0.01}, {params = b, lr = 0.02}}
  end
  local function far(zero, model)
    local most, state = 0, zero:state_dict()
    for name, p in model:named_parameters() do
      most = math.max(most, (state[name] - p:detach()):abs():max():item())
    end
    return most
  end
  local function alone(steps)
    local model = make()
    train(model, adam(model:parameters()), x, y, steps)
    return model
  end
]]

local function good(n, text, folder)
  local mine = folder or launch.folder ""
  local file <close> = assert(io.open(mine .. "/script.lua", "w"))
  file:write('local flare = require "flare"\nlocal dist = flare.dist\n',
    "local rank, size = dist.init()\n", tools, text)
  file:close()
  local command = ("exec $F launch -n %d --tee all script.lua"):format(n)
  local status, out = launch.shell(mine, command)
  if not folder then launch.remove(mine) end
  assert.equal(0, status, out)
  return out
end

describe("ZeRO", function()
  for stage = 1, 3 do
    for _, n in ipairs {2, 4} do
      it(("stage %d is one process, to rounding, with %d ranks"):format(stage, n), function()
        good(n, ([[
          local stage <const> = %d
          local zero = dist.ZeRO(make(rank + 3), adam, {stage = stage, bucket_mb = 0.003,
            recompute = stage == 3 and size == 4})
          train(zero, zero, a, b, 6)
          assert(far(zero, alone(6)) < 1e-12, far(zero, alone(6)))
          local kept = 0
          for _, state in ipairs(zero.optimizer.groups[1].state) do
            kept = kept + state.moments[1]:numel()
          end
          local all = 0
          for _, p in ipairs(make():parameters()) do all = all + p:numel() end
          assert(kept <= all / size + 8, kept)
          if zero.stage > 1 then
            for _, p in ipairs(zero.model:parameters()) do assert(not p.grad) end
          end
          if zero.stage == 3 then
            for _, p in ipairs(zero.model:parameters()) do assert(p:numel() == 0) end
          end
        ]]):format(stage))
      end)
    end

    it(("stage %d goes on from a checkpoint of another number of ranks"):format(stage), function()
      local folder = launch.folder ""
      local text = ([[
        local zero = dist.ZeRO(make(rank + 3), adam, {stage = %d, bucket_mb = 0.003})
      ]]):format(stage)
      -- the batch is the same for 4 ranks and for 2: each takes its part of the first 16 rows
      local part = [[
        local rows = 16 // size
        a, b = x:narrow(1, rank * rows + 1, rows), y:narrow(1, rank * rows + 1, rows)
        x, y = x:narrow(1, 1, 16), y:narrow(1, 1, 16)
      ]]
      good(2, "x = flare.arange(0, 96, {dtype = 'f64'}):view(16, 6) / 50 y = x:narrow(2, 1, 3)\n"
        .. part .. text .. [[
        train(zero, zero, a, b, 3)
        assert(zero:save "checkpoint")
      ]], folder)
      good(4, "x = flare.arange(0, 96, {dtype = 'f64'}):view(16, 6) / 50 y = x:narrow(2, 1, 3)\n"
        .. part .. text .. [[
        assert(zero:load "checkpoint")
        train(zero, zero, a, b, 3)
        assert(far(zero, alone(6)) < 1e-12, far(zero, alone(6)))
        local ok, message = zero:load "nowhere"
        assert(ok == nil and message:find "nowhere", message)
      ]], folder)
      launch.remove(folder)
    end)
  end

  it("finds the state of each part again, whatever the order in the optimizer is", function()
    local folder = launch.folder ""
    local text = [[
      x, y = x:narrow(1, 1, 16), y:narrow(1, 1, 16)
      local rows = 16 // size
      a, b = x:narrow(1, rank * rows + 1, rows), y:narrow(1, rank * rows + 1, rows)
      local straight = dist.ZeRO(make(rank + 3), rates, {stage = 1, bucket_mb = 0.003})
      train(straight, straight, a, b, 6)
      local zero = dist.ZeRO(make(rank + 3), rates, {stage = 1, bucket_mb = 0.003})
    ]]
    local same = "x = flare.arange(0, 96, {dtype = 'f64'}):view(16, 6) / 50 y = x:narrow(2, 1, 3)\n"
    good(2, same .. text .. [[
      train(zero, zero, a, b, 3)
      assert(zero:save "checkpoint")
    ]], folder)
    good(4, same .. text .. [[
      assert(zero:load "checkpoint")
      train(zero, zero, a, b, 3)
      local state = straight:state_dict()
      for name, t in pairs(zero:state_dict()) do
        assert((t - state[name]):abs():max():item() < 1e-12, name)
      end
      local small = dist.ZeRO(make():to "f32", rates, {bucket_mb = 0.0015}) -- of half the bytes
      assert(small:load "checkpoint")
      train(small, small, a:to "f32", b:to "f32", 1)
      for _, method in ipairs {"save", "load"} do
        local ok, message = pcall(small[method], small, 3)
        assert(not ok and message:find(method .. ": a folder's name is expected", 1, true))
      end
    ]], folder)
    launch.remove(folder)
  end)

  it("has parameters of different kinds in different parts", function()
    good(2, [[
      local function kind(_, p) return p:dim() > 1 and "decays" or "stays" end
      local function groups(params, kinds)
        local of = {decays = {}, stays = {}}
        for k, p in ipairs(params) do
          local list = of[ kinds[k] ]
          list[#list + 1] = p
        end
        return optim.AdamW{{params = of.decays, weight_decay = 0.3}, {params = of.stays, lr = 0.02}}
      end
      local one, kinds = make(), {}
      for k, p in ipairs(one:parameters()) do kinds[k] = kind("", p) end
      train(one, groups(one:parameters(), kinds), x, y, 5)
      for stage = 1, 3 do
        local zero = dist.ZeRO(make(), groups, {stage = stage, kind = kind, bucket_mb = 0.003})
        train(zero, zero, a, b, 5)
        assert(far(zero, one) < 1e-12, far(zero, one))
      end
    ]])
  end)

  it("stage 3 without gathering again is the same, and needs half of the gathers", function()
    good(2, [[
      local count, plain = 0, dist.world.all_gather
      dist.world.all_gather = function(...) count = count + 1 return plain(...) end
      local zero = dist.ZeRO(make(rank + 3), adam, {stage = 3, regather = false})
      count = 0
      train(zero, zero, a, b, 6)
      assert(count == 6 * #zero.units + 1, count) -- the first unit's for the seventh step
      assert(far(zero, alone(6)) < 1e-12, far(zero, alone(6)))
      for _, p in ipairs(zero.model:parameters()) do assert(p:numel() == 0) end
    ]])
  end)

  it("stage 3 has checkpoints inside units, whether it computes units again or not", function()
    good(2, [[
      local function wrap(model) -- one in the other, with a tensor in a table, and one alone
        local last = model[5].forward
        model[4].forward = function(self, input)
          return flare.checkpoint(function(t)
            local h = flare.checkpoint(function(u) return self[1](u) end, t.x)
            return self[2](h) * t.scale
          end, {x = input, scale = 1})
        end
        model[5].forward = function(self, input) return flare.checkpoint(last, self, input) end
        return model
      end
      for k = 1, 3 do
        local zero = dist.ZeRO(wrap(make(rank + 3)), adam, {stage = 3, recompute = k == 1,
          regather = k < 3})
        train(zero, zero, a, b, 3)
        flare.no_grad(zero, a)
        train(zero, zero, a, b, 3)
        assert(far(zero, alone(6)) < 1e-12, far(zero, alone(6)))
        for _, p in ipairs(zero.model:parameters()) do assert(p:numel() == 0) end
        local ok, why = pcall(zero, x:narrow(2, 1, 5))
        assert(not ok and why:find "linear", why)
        for _, p in ipairs(zero.model:parameters()) do assert(p:numel() == 0) end
      end
    ]])
  end)

  for stage = 1, 5 do
    it(("stage %d is in order on a device with streams"):format(stage), function()
      good(2, ([[
        flare.debug_streams(true)
        local device = "sim:0"
        flare.core.backend_control("sim", "delay_us", 300)
        local zero = dist.ZeRO(make(rank + 3):to(device), adam, {stage = %d, bucket_mb = 0.003,
          recompute = %s, regather = %s})
        train(zero, zero, a:to(device), b:to(device), 3)
        zero:step() -- nothing has a gradient but the parts: they may be on their way
        train(zero, zero, a:to(device), b:to(device), 3)
        local state, model = zero:state_dict(), dist.DataParallel(make():to(device))
        local o = adam(model:parameters())
        train(model, o, a:to(device), b:to(device), 3)
        o:step()
        train(model, o, a:to(device), b:to(device), 3)
        for name, p in model:named_parameters() do
          assert((state[name] - p:detach()):abs():max():item() < 1e-12, name)
        end
      ]]):format(math.min(stage, 3), stage < 4, stage < 5))
    end)
  end

  it("sends gradients as they come, from the second backward on", function()
    for stage = 1, 2 do
      good(2, ([[
        local model = make()
        -- its weight is used first as well: complete at the end
        model[6] = nn.Linear(3, 6, {bias = false})
        model[6].weight = model[6].weight:detach():to("f64"):requires_grad_(true)
        model:to "f64"
        function model:forward(input)
          local h = nn.functional.linear(input, self[6].weight:transpose(1, 2))
          h = nn.functional.linear(h, self[6].weight)
          for k = 1, 5 do h = self[k](h) end
          return h
        end
        local zero = dist.ZeRO(model, adam, {stage = %d, bucket_mb = 0.0001})
        local before, plain, ready = {}, dist.world.reduce_scatter, 0
        local heard = zero.listener.ready
        zero.listener.ready = function(...) ready = ready + 1 heard(...) end
        dist.world.reduce_scatter = function(...)
          before[#before + 1] = ready
          return plain(...)
        end
        train(zero, zero, a, b, 1)
        before, ready = {}, 0
        train(zero, zero, a, b, 1)
        assert(before[1] == 1 and before[2] < ready, table.concat(before, " "))
      ]]):format(stage))
    end
  end)

  it("has memory for gradients only while they are on their way", function()
    for stage = 1, 2 do
      good(2, ([[
        local mib, layers = 2 ^ 20, 8 -- of a MiB each, as are buckets
        local model = nn.Sequential()
        for _ = 1, layers do model:append(nn.Linear(512, 512, {bias = false})) end
        local zero = dist.ZeRO(model, adam, {stage = %d, bucket_mb = 1})
        local input = flare.randn(4, 512)
        local function live() flare.core.collect() return flare.memory.stats().live / mib end
        local before = live() - 1.5 * layers -- what others have
        local report, plain = nil, dist.world.reduce_scatter
        dist.world.reduce_scatter = function(...) -- however fast the others are
          local work = plain(...)
          work:wait()
          return work
        end
        for step = 1, 3 do
          zero:zero_grad()
          local loss = zero(input):square():mean()
          flare.memory.reset_peak()
          report = flare.profile(function() loss:backward() end)
          local peak = flare.memory.stats().peak / mib - before
          loss:close()
          zero:step()
          -- the parameters; of this rank's half, the part, two moments, and its gradients at last
          local kept = layers * (1 + 0.5 * (step > 1 and 3 or 1))
          assert(peak < kept + 0.5 * layers + 2.5, peak .. " " .. kept)
          assert(live() - before < layers * (1 + 0.5 * 4) + 0.1, live() - before)
        end
        local writes = 0 -- the first gradient is copied, the others are written there
        for _, sum in ipairs(report:sums "op") do
          if sum.name:find "^assign" then writes = writes + sum.calls end
          assert(not sum.name:find "^copy", sum.name)
        end
        assert(writes == layers, writes)
      ]]):format(stage))
    end
  end)

  it("is in autocast where one process is", function()
    for stage = 1, 4 do
      good(2, ([[
        local function ends(model, o)
          for _ = 1, 3 do
            local loss = flare.autocast("bf16", function()
              return (model(x) - y):square():mean()
            end)
            o:zero_grad()
            loss:backward()
            o:step()
          end
        end
        local model = make():to "f32"
        x, y = x:to "f32", y:to "f32"
        local one = make():to "f32"
        ends(one, adam(one:parameters()))
        local zero = dist.ZeRO(model, adam, {stage = %d, recompute = %s})
        ends(zero, zero)
        assert(far(zero, one) < 1e-6, far(zero, one))
      ]]):format(math.min(stage, 3), stage == 4))
    end
  end)

  it("sends for the parameters of the next unit while one computes", function()
    good(2, [[
      local model, seen = make(), {}
      local zero
      for k = 1, 5 do
        local forward = model[k].forward
        model[k].forward = function(self, input)
          if zero then
            local words = {k}
            for u, unit in ipairs(zero.units) do
              if unit.asked then words[#words + 1] = "unit " .. u end
            end
            seen[#seen + 1] = table.concat(words, " ")
          end
          return forward(self, input)
        end
      end
      zero = dist.ZeRO(model, adam, {stage = 3, recompute = true})
      train(zero, zero, a, b, 1)
      seen = {}
      train(zero, zero, a, b, 1)
      -- the second layer has no parameters; backward computes the units again, last one first
      assert(table.concat(seen, ", ") == "1 unit 2, 2 unit 2, 3 unit 3, 4 unit 4, 5, "
        .. "5 unit 3, 4 unit 2, 3 unit 1, 1", table.concat(seen, ", "))
    ]])
  end)

  it("keeps parameters that are in no unit whole", function()
    good(2, [[
      local function tied()
        local model = nn.Module()
        model.inner = nn.ModuleList{nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Tanh())}
        model.scale = nn.Linear(6, 3)
        function model:forward(input)
          for k = 1, 2 do input = self.inner[k](input) end
          return nn.functional.linear(input, self.scale.weight) + self.scale(input)
        end
        flare.manual_seed(4)
        for _, p in ipairs(model:parameters()) do nn.init.normal_(p) end
        return model:to "f64"
      end
      local alone, model = tied(), tied()
      train(alone, adam(alone:parameters()), x, y, 4)
      local zero = dist.ZeRO(model, adam, {stage = 3, units = {model.inner[1], model.inner[2]}})
      train(zero, zero, a, b, 4)
      assert(far(zero, alone) < 1e-12, far(zero, alone))
      assert(model.scale.weight:numel() == 18 and model.inner[1].weight:numel() == 0)
      local shares = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
      shares[2].weight = shares[1].weight
      for _, case in ipairs {{{shares[1], shares[2]},
                              "'1.weight' is in two units, which stage 3 cannot share"},
          {{nn.Linear(2, 2)}, "unit 1 (Linear) has other parameters"}} do
        local ok, message = pcall(dist.ZeRO, shares, adam, {stage = 3, units = case[1]})
        assert(not ok and message:find(case[2], 1, true), message)
      end
      local plain = dist.ZeRO(nn.Sequential(nn.ModuleList{nn.Tanh()}, nn.Linear(6, 3)), adam,
        {stage = 3})
      assert(#plain.units == 1)
    ]])
  end)

  it("updates parameters in place, whatever refers or writes to them", function()
    good(2, [[
      local model = make()
      local w = model:parameters()[1]
      local turned = w:t()
      local zero = dist.ZeRO(model, adam)
      assert(model:parameters()[1].id == w.id)
      model:load_state_dict(make():state_dict())
      flare.no_grad(function() w:fill_(0.5) end) -- the parts as well
      for _ = 1, 3 do
        zero:zero_grad();
        (zero(a) - b):square():mean():backward()
        zero:step()
        local all = zero:state_dict()
        for name, p in model:named_parameters() do assert(p:eq(all[name]):all():item()) end
        assert(turned:t():eq(w):all():item())
      end
      assert(not w:eq(0.5):any():item())
      assert(dist.all_reduce(w, {reduce = "max"}):eq(w):all():item())
    ]])
  end)

  it("has low parameters in units, and parts as they were", function()
    good(2, [[
      for stage = 1, 2 do
        local model, plain, low = make(), make(), make()
        local first = model[1]
        local function sgd(params) return optim.SGD(params, {lr = 0.1, momentum = 0.9}) end
        local zero = dist.ZeRO(model, sgd, {stage = stage, gather = "bf16", bucket_mb = 0.003})
        for _, p in ipairs(model:parameters()) do
          assert(p.dtype == "bf16" and p.requires_grad and p.is_leaf)
        end
        assert(model[1] == first and zero:state_dict()["1.weight"].dtype == "f64")
        assert(far(zero, plain) == 0) -- nothing is lost before the first step
        for _, shard in ipairs(zero.shards) do
          assert(shard.part.dtype == "f64" and shard.whole.dtype == "bf16")
        end
        -- one process whose parameters are rounded for each pass
        local optimizer = sgd(plain:parameters())
        for _ = 1, 3 do
          zero:zero_grad();
          (zero(a:to "bf16"):to "f64" - b):square():mean():backward()
          zero:step()
          local state = {}
          for name, p in plain:named_parameters() do state[name] = p:detach():to "bf16":to "f64" end
          low:load_state_dict(state)
          low:to "bf16"
          low:zero_grad();
          (low(x:to "bf16"):to "f64" - y):square():mean():backward()
          local grads = {}
          for name, p in low:named_parameters() do grads[name] = p.grad:to "f64" end
          for name, p in plain:named_parameters() do p.grad = grads[name] end
          low:to "f64"
          optimizer:step()
        end
        assert(far(zero, plain) < 1e-3, far(zero, plain)) -- gradients of 8 bits, steps of 0.1
        local state = zero:state_dict()
        for name, p in zero.model:named_parameters() do
          assert(p:eq(state[name]:to "bf16"):all():item(), name)
        end
      end
      local model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
      local zero = dist.ZeRO(model, adam, {gather = "bf16", units = {model[3]}})
      assert(model[1].weight.dtype == "f32" and model[3].weight.dtype == "bf16")
      flare.autocast("bf16", zero, flare.randn{4, 6}):sum():backward()
      zero:step()
    ]])
  end)

  it("takes over a whole state, and says what does not fit", function()
    good(2, [[
      local function model(seed)
        local m = make(seed)
        m[1].bias:requires_grad_(false)
        m[3].steps = m[3]:buffer(flare.zeros{1})
        return m
      end
      local function sgd(params) return optim.SGD(params, {lr = 0.1}) end
      local from = model(7)
      for stage = 1, 3 do
        local zero = dist.ZeRO(model(3), sgd, {stage = stage, bucket_mb = 0.003})
        train(zero, zero, a, b, 2)
        zero:load_state_dict(from:state_dict())
        assert(far(zero, from) == 0)
        train(zero, zero, a, b, 2)
        local one = model(7)
        train(one, sgd(one), x, y, 2)
        assert(far(zero, one) < 1e-12, far(zero, one))
        local ok, why = pcall(zero.load_state_dict, zero, {})
        assert(not ok and why:find("' is nil, here it is ", 1, true), why)
      end
    ]])
  end)

  it("clips by the norm over all ranks", function()
    good(2, [[
      local model = make()
      ;(model(x) - y):square():mean():backward()
      local norm = optim.grad_norm(model:parameters()):item()
      for stage = 1, 3 do
        local zero = dist.ZeRO(make(), adam, {stage = stage});
        (zero(a) - b):square():mean():backward()
        local got = zero:clip_grad_norm_(norm / 2):item()
        assert(math.abs(got - norm) < 1e-9, got .. " " .. norm)
        assert(math.abs(zero:clip_grad_norm_(1e9):item() - norm / 2) < 1e-5)
      end
    ]])
  end)
end)
