-- Gradients between ranks: those that travel in fewer bits, and those that are not there, which an
-- optimizer leaves out as in one process.
local launch = require "spec.support.launch"

local tools = [[
  local nn, optim = flare.nn, flare.optim
  local function make()
    flare.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 33), nn.Tanh(), nn.LayerNorm(33),
      nn.Sequential(nn.Linear(33, 20), nn.ReLU()), nn.Linear(20, 3)):to(device)
  end
  flare.manual_seed(9)
  local x, y = flare.randn({8 * size, 6}):to(device), flare.randn({8 * size, 3}):to(device)
  local function mine(t) return t:narrow(1, rank * 8 + 1, 8) end
  local a, b = mine(x), mine(y)
  local function loss(model, input, target) return (model(input) - target):square():mean() end
  local function sgd(params) return optim.SGD(params, {lr = 0.05, momentum = 0.9}) end
  local function train(model, o, input, target, steps)
    for _ = 1, steps do
      o:zero_grad()
      loss(model, input, target):backward()
      o:step()
    end
    return model
  end
  local function far(state, other)
    local most = 0
    for name, t in pairs(state) do
      most = math.max(most, (t:detach() - other[name]:detach()):abs():max():item())
    end
    return most
  end
]]

local function good(n, text, device)
  return launch.good(n, ("local device = %q\n"):format(device or "cpu") .. tools .. text)
end

describe("gradients that travel in fewer bits", function()
  -- the mean of what all ranks have, each rounded, is made in more bits and rounded once
  local check = [[
    local function mean(grad, dtype)
      local list = dist.all_gather(grad:to(dtype):to("f32"):unsqueeze(1))
      local sum = list[1]
      for r = 2, size do sum = sum + list[r] end
      return (sum / size):to(dtype):to "f32"
    end
    local function expect(model, grads, dtype)
      for k, p in ipairs(model:parameters()) do
        assert(p.grad.dtype == "f32" and p.grad:eq(mean(grads[k], dtype)):all():item(),
          ("parameter %d in %s"):format(k, dtype))
      end
    end
  ]]
  for _, device in ipairs {"cpu", "sim:0"} do
    for _, n in ipairs {2, 4} do
      it(("are means of rounded ones, rounded, with %d ranks on %s"):format(n, device), function()
        good(n, check .. [[
          local alone = make()
          local params = alone:parameters()
          local grads = {flare.grad(loss(alone, a, b), params)}
          for _, dtype in ipairs {"bf16", "f16"} do
            for _, mb in ipairs {25, 0.001} do
              local model = dist.DataParallel(make(), {compress = dtype, bucket_mb = mb})
              for _ = 1, 3 do -- the first one copies gradients into their places
                loss(model, a, b):backward()
                expect(model, grads, dtype)
                for _, p in ipairs(model:parameters()) do p.grad = nil end
              end
              model:no_sync(function() loss(model, a, b):backward() end) -- adds up in f32
              loss(model, a, b):backward()
              local twice = {}
              for k, g in ipairs(grads) do twice[k] = g * 2 end
              expect(model, twice, dtype)
            end
          end
        ]], device)
      end)

      it(("train as whole ones do, with %d ranks on %s"):format(n, device), function()
        local text = [[
          local alone = make()
          local want = train(alone, sgd(alone:parameters()), x, y, 6):state_dict()
          local model = dist.DataParallel(make(), {compress = "bf16", bucket_mb = 0.001})
          train(model, sgd(model:parameters()), a, b, 6)
          local words = {}
          local function compare(what, state)
            assert(far(state, want) < 2e-3, what .. far(state, want))
            assert(far(state, want) > 0, what)
            for name, t in pairs(state) do
              words[#words + 1] = what .. name .. flare.core.crc32c(t:detach():to "cpu")
            end
          end
          compare("parallel", model:state_dict())
          for k = 1, 4 do
            local zero = dist.ZeRO(make(), sgd, {stage = math.min(k, 3), bucket_mb = 0.003,
              recompute = k < 4, compress = "bf16"})
            train(zero, zero, a, b, 6)
            compare("zero" .. k, zero:state_dict())
          end
          table.sort(words)
          if rank == 0 then print(table.concat(words, " ")) end
        ]]
        local first = good(n, text, device)
        assert.equal(first, good(n, text, device)) -- the same bits
      end)
    end
  end

  it("may be missing", function()
    good(2, [[
      local model = make()
      model.spare, model.once = nn.Linear(2, 2), nn.Linear(6, 3)
      local model = dist.DataParallel(model, {compress = "bf16", find_unused = true})
      for _ = 1, 2 do
        local out = model(a)
        if rank == 1 then out = out + model.once(a) end
        (out - b):square():mean():backward()
        assert(not model.spare.weight.grad and model.once.weight.grad:abs():max():item() > 0)
      end
    ]])
  end)

  it("are those of f32 and f64; others go as they are", function()
    good(2, [[
      for _, dtype in ipairs {"f64", "bf16", "f16"} do
        local model = dist.DataParallel(make():to(dtype), {compress = "bf16"})
        loss(model, a:to(dtype), b:to(dtype)):backward()
        local plain = dist.DataParallel(make():to(dtype))
        loss(plain, a:to(dtype), b:to(dtype)):backward()
        for k, p in ipairs(model:parameters()) do
          local grad = plain:parameters()[k].grad
          assert(p.grad.dtype == dtype and p.grad:eq(grad):all():item() == (dtype ~= "f64"))
        end
      end
      for _, make_it in ipairs {function(o) return dist.DataParallel(make(), o) end,
          function(o) return dist.ZeRO(make(), sgd, o) end} do
        for wrong, got in pairs {f8 = '"f8"', f32 = '"f32"', [true] = "boolean"} do
          local ok, why = pcall(make_it, {compress = wrong})
          assert(not ok and why:find('compress must be "bf16" or "f16", got ' .. got, 1, true), why)
        end
      end
    ]])
  end)

  it("are whole in a job of one", function()
    good(1, [[
      local model = dist.DataParallel(make(), {compress = "bf16"})
      train(model, sgd(model:parameters()), x, y, 3)
      local plain = make()
      train(plain, sgd(plain:parameters()), x, y, 3)
      assert(far(model:state_dict(), plain:state_dict()) == 0)
    ]])
  end)
end)

describe("parameters without a gradient", function()
  -- `spare` has none, `once` has one in the first two of four steps, `some` in the others, of the
  -- last rank's rows alone
  local model = [[
    local function wide(seed)
      local model, extra = make(), nn.Module()
      extra.spare, extra.once, extra.some = nn.Linear(2, 2), nn.Linear(6, 3), nn.Linear(6, 3)
      function extra:forward(input, step, rows)
        if step <= 2 then return self.once(input) end
        local none = flare.zeros({input:size(1) - rows, 3}, {dtype = "f64"})
        return rows == 0 and none or flare.cat({none, self.some(input:narrow(1, -rows, rows))}, 1)
      end
      model.extra = extra
      function model:forward(input, step, rows)
        local h = input
        for k = 1, 5 do h = self[k](h) end
        return h + self.extra(input, step, rows)
      end
      flare.manual_seed(seed or 4)
      for _, p in ipairs(model:parameters()) do nn.init.normal_(p, {std = 0.5}) end
      return model:to "f64"
    end
    x, y, a, b = x:to "f64", y:to "f64", a:to "f64", b:to "f64"
    local function adamw(params) return optim.AdamW(params, {lr = 0.01, weight_decay = 0.1}) end
    local function go(model, o, input, target, rows, passes)
      for step = 1, 4 do
        o:zero_grad()
        for _ = 1, passes or 1 do
          (model(input, step, rows) - target):square():mean():backward()
        end
        o:step()
      end
      return model:state_dict()
    end
    local alone, rows = wide(), rank == size - 1 and 8 or 0
    local want = go(alone, adamw(alone:parameters()), x, y, 8)
    assert(want["extra.spare.weight"]:eq(wide().extra.spare.weight):all():item())
  ]]

  for _, n in ipairs {2, 4} do
    it("stay as in one process, without decay, with " .. n .. " ranks", function()
      good(n, model .. [[
        local parallel = dist.DataParallel(wide(rank + 4), {find_unused = true})
        local state = go(parallel, adamw(parallel:parameters()), a, b, rows)
        assert(far(want, state) < 1e-12, far(want, state))
        for stage = 1, 3 do
          for _, compress in ipairs {false, "bf16"} do
            local zero = dist.ZeRO(wide(rank + 4), adamw, {stage = stage, find_unused = true,
              compress = compress or nil})
            state = go(zero, zero, a, b, rows)
            local most = far(want, state)
            assert(most < (compress and 0.05 or 1e-12), most)
            assert(state["extra.spare.weight"]:eq(want["extra.spare.weight"]):all():item())
          end
        end
      ]])
    end)
  end

  it("are left out of parts that a checkpoint has, too", function()
    good(2, model .. [[
      for stage = 1, 3 do
        local o = {stage = stage, find_unused = true}
        local zero = dist.ZeRO(wide(), adamw, o)
        go(zero, zero, a, b, rows)
        assert(zero:save("checkpoint-" .. stage))
        local other = dist.ZeRO(wide(7), adamw, o)
        assert(other:load("checkpoint-" .. stage))
        assert(far(go(zero, zero, a, b, rows), go(other, other, a, b, rows)) == 0)
      end
    ]])
  end)

  it("are named where they are not expected", function()
    good(2, model .. [[
      for k = 1, 4 do
        local zero = dist.ZeRO(wide(), adamw, {stage = math.min(k, 3), recompute = k < 4})
        for _ = 1, 2 do -- and again: nothing is left of the first one
          zero:zero_grad()
          local ok, why = pcall(go, zero, zero, a, b, 8)
          assert(not ok and why:find("ZeRO: no gradient came to extra.some.bias, "
            .. "extra.some.weight, extra.spare.bias, extra.spare.weight; pass find_unused = true",
            1, true), why)
        end
      end
      local ok, why = pcall(dist.ZeRO, wide(), adamw, {stage = 3, find_unused = true,
        recompute = false})
      assert(not ok and why:find("find_unused in stage 3 needs recompute = true", 1, true), why)
    ]])
  end)
end)

describe("norms over all ranks", function()
  for _, device in ipairs {"cpu", "sim:0"} do
    it("are those of one process with all batches, on " .. device, function()
      good(2, [[
        local function net(cumulative)
          flare.manual_seed(5)
          return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, {cumulative = cumulative}),
            nn.Tanh(), nn.Linear(4, 3)):double():to(device)
        end
        x, y = x:double(), y:double()
        -- ranks have batches of different sizes
        local from, n = rank == 0 and 1 or 6, rank == 0 and 5 or 11
        for _, cumulative in ipairs {false, true} do
          local alone, model = net(cumulative), nn.sync_norms(net(cumulative), dist.world)
          for _ = 1, 2 do
            local whole = (alone(x) - y):square()
            local part = (model(x:narrow(1, from, n)) - y:narrow(1, from, n)):square()
            assert((part - whole:narrow(1, from, n)):abs():max():item() < 1e-12)
            alone:zero_grad()
            model:zero_grad()
            whole:sum():backward()
            part:sum():backward()
          end
          for name, p in alone:named_parameters() do
            local all = model
            for part in name:gmatch "[^.]+" do all = all[math.tointeger(part) or part] end
            assert((dist.all_reduce(all.grad) - p.grad):abs():max():item() < 1e-10, name)
          end
          assert(far(alone:state_dict(), model:state_dict()) < 1e-12)
          assert(far({alone:eval()(x)}, {model:eval()(x)}) < 1e-12)
        end
      ]], device)
    end)
  end
end)
