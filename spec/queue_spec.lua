-- What data parallel and ZeRO do with gradients that come in an unusual way, against one process on
-- the whole batch, in f64.
local launch = require "spec.support.launch"

-- train(kind, make, step): trains a model of make() in one process and as `kind`, and compares.
-- step(model, o, x, y, k, inside) is one step; ways are all kinds.
local tools = [[
  local nn, optim = flare.nn, flare.optim
  flare.manual_seed(9)
  local x = flare.randn({4 * size, 6}, {dtype = "f64"})
  local y = flare.randn({4 * size, 3}, {dtype = "f64"})
  local function part(t) return t:narrow(1, rank * 4 + 1, 4) end
  local function adamw(params) return optim.AdamW(params, {lr = 0.01, weight_decay = 0.1}) end
  local function wrap(kind, model, o)
    if kind == "parallel" then
      return dist.DataParallel(model, o), adamw(model:parameters())
    end
    local zero = dist.ZeRO(model, adamw, {stage = kind, bucket_mb = o.bucket_mb})
    return zero, zero
  end
  local function usual(model, o, a, b)
    o:zero_grad();
    (model(a) - b):square():mean():backward()
    o:step()
  end
  local function train(kind, make, step, options)
    flare.manual_seed(3)
    local alone = make():to "f64"
    local one = adamw(alone:parameters())
    for k = 1, 5 do step(alone, one, x, y, k, alone) end
    for _, mb in ipairs {25, 0.0002} do
      flare.manual_seed(3)
      local inside = make():to "f64"
      local o = {bucket_mb = mb}
      for key, value in pairs(options or {}) do o[key] = value end
      local model, optimizer = wrap(kind, inside, o)
      for k = 1, 5 do step(model, optimizer, part(x), part(y), k, inside) end
      local state = model:state_dict()
      for name, p in alone:named_parameters() do
        local far = p:numel() > 0 and (state[name]:detach() - p:detach()):abs():max():item() or 0
        assert(far < 1e-11, kind .. ": " .. name .. " is off by " .. far)
      end
    end
  end
  local function plain()
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.LayerNorm(9), nn.Linear(9, 3))
  end
]]

local function good(text, n) launch.good(n or 2, tools .. text) end

describe("gradients on their way", function()
  it("may come in parts, one from each checkpoint", function()
    good [[
      local function make()
        local model = nn.Module()
        model.a, model.b, model.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        local function twice(h) return model.b(model.a(h):tanh()) end
        function model:forward(h)
          return self.out(flare.checkpoint(twice, flare.checkpoint(twice, self.a(h))))
        end
        return model
      end
      for _, kind in ipairs {"parallel", 1, 2} do train(kind, make, usual) end
    ]]
  end)

  it("are as if a backward that failed had not been", function()
    good [[
      local function step(model, o, a, b, k, inside)
        if k == 3 then
          local hook = inside[1].bias:register_hook(function() error "no" end)
          assert(not pcall(usual, model, o, a, b))
          hook:remove()
        end
        usual(model, o, a, b)
      end
      for _, kind in ipairs {"parallel", 1, 2} do train(kind, plain, step) end
      local function early(model, o, a, b, k)
        if k == 3 then
          a = a:detach():requires_grad_(true)
          a:register_hook(function() error "no" end)
          assert(not pcall(usual, model, o, a, b))
        end
        usual(model, o, a:detach(), b)
      end
      train(3, plain, early)
    ]]
  end)

  it("are those of few elements on many ranks", function()
    good([[
      local function make()
        local model = nn.Module()
        model.scale = flare.randn{}:requires_grad_(true)
        model.none, model.empty = flare.zeros{0, 4}, flare.zeros{0}
        model.none:requires_grad_(true)
        model.empty:requires_grad_(true)
        function model:forward(h)
          return h:narrow(2, 1, 3) * self.scale + self.none:sum() + self.empty:sum()
        end
        return model
      end
      for _, kind in ipairs {"parallel", 1, 2, 3} do train(kind, make, usual) end
    ]], 4)
  end)

  it("are added up, also where the last backward does not come", function()
    good [[
      local function make()
        local model = nn.Module()
        model.a, model.b = nn.Linear(6, 3), nn.Linear(6, 6)
        function model:forward(h, deep) return self.a(deep and self.b(h) or h) end
        return model
      end
      local function step(model, o, a, b)
        o:zero_grad()
        local function first() (model(a, true) - b):square():mean():backward() end
        if model.no_sync then model:no_sync(first) else first() end
        (model(a) - b):square():mean():backward()
        o:step()
      end
      for _, kind in ipairs {"parallel", 1, 2, 3} do train(kind, make, step) end
      train("parallel", make, step, {find_unused = true})
    ]]
  end)

  it("go to the newest that the model is in", function()
    good [[
      local all = {} -- on rank 0 none is ever collected
      adamw = function(params) return optim.SGD(params, {lr = 0.1}) end
      for _, kinds in ipairs {{"parallel", 1}, {2, "parallel"}, {1, 1}} do
        train("parallel", plain, function(model, o, a, b, k, inside)
          if model ~= inside then
            model, o = wrap(kinds[k % 2 + 1], inside, {bucket_mb = 0.0002})
            if rank == 0 then all[#all + 1] = model else collectgarbage() end
          end
          usual(model, o, a, b)
        end)
      end
    ]]
  end)
end)

describe("data parallel", function()
  it("leaves parameters that no rank uses without a gradient", function()
    good [[
      local function make()
        local model = nn.Module()
        model.a, model.b, model.c = nn.Linear(6, 3), nn.Linear(6, 6), nn.Linear(6, 6)
        function model:forward(h, deep) return self.a(deep and self.b(h) or h) end
        return model
      end
      train("parallel", make, function(model, o, a, b, k)
        o:zero_grad();
        (model(a, k % 2 == 0) - b):square():mean():backward()
        o:step()
      end, {find_unused = true})
      local model = dist.DataParallel(make(), {find_unused = true})
      for k = 1, 3 do -- one rank uses it
        model.b.weight.grad = nil
        model(flare.ones(2, 6), (rank + k) % size == 0):sum():backward()
        local sums = dist.all_gather(model.b.weight.grad:abs():sum():reshape(1))
        assert(sums[1]:item() > 0 and sums:eq(sums[1]):all():item())
        assert(not model.c.weight.grad)
      end
    ]]
  end)

  it("follows what begins and stops learning", function()
    good [[
      train("parallel", plain, function(model, o, a, b, k, inside)
        inside[1].weight:requires_grad_(k < 3 or k > 4)
        inside[4].bias:requires_grad_(k > 2)
        usual(model, o, a, b)
      end)
    ]]
  end)
end)

describe("ZeRO", function()
  it("refuses what begins or stops learning", function()
    good [[
      for stage = 1, 2 do
        local model = plain()
        model[4].bias:requires_grad_(false)
        local zero = dist.ZeRO(model, adamw, {stage = stage})
        usual(zero, zero, flare.ones(4, 6), 0)
        model[4].bias:requires_grad_(true)
        local ok, message = pcall(usual, zero, zero, flare.ones(4, 6), 0)
        assert(not ok and message:find("'4.bias' requires a gradient now: make ZeRO again", 1,
          true), message)
        model[4].bias:requires_grad_(false)
        model[1].weight:requires_grad_(false)
        ok, message = pcall(usual, zero, zero, flare.ones(4, 6), 0)
        assert(not ok and message:find("'1.weight' does not require a gradient", 1, true), message)
      end
    ]]
  end)

  it("stage 3 has units that take and give tables, and checkpoints inside of units", function()
    good [[
      local function make()
        local model = nn.Module()
        model.a, model.b, model.c = nn.Module(), nn.Module(), nn.Linear(6, 3)
        model.a.l, model.b.l = nn.Linear(6, 6), nn.Linear(6, 6)
        function model.a:forward(t, factor, none)
          assert(none == nil)
          return {h = self.l(t[1]) * factor, [2] = {t[1] + 1}}, none, "words"
        end
        function model.b:forward(t)
          return flare.checkpoint(function(h) return self.l(self.l(h):tanh()) end, t.h) + t[2][1]
        end
        function model:forward(h)
          local t, none, words = self.a({self.a({h}, 1).h}, 2, nil)
          assert(none == nil and words == "words")
          return self.c(self.b(t))
        end
        return model
      end
      train(3, make, usual)
    ]]
  end)

  it("refuses what makes no optimizer of its parts", function()
    good [[
      local model = plain()
      for _, case in ipairs {
        {nil, "a function that makes the optimizer is expected, got nil"},
        {adamw(model:parameters()),
         "a function that makes the optimizer is expected, got an AdamW"},
        {function() end, "the function must return an optimizer, not nil"},
        {function() return adamw(model:parameters()) end, "one of the parts that the function"},
      } do
        local ok, message = pcall(dist.ZeRO, model, case[1])
        assert(not ok and message:find(case[2], 1, true), message)
      end
      local ok, message = pcall(dist.ZeRO, nn.Tanh(), adamw)
      assert(not ok and message:find("no parameters that require gradients", 1, true), message)
      ok, message = pcall(dist.ZeRO, model, adamw, {kind = 3})
      assert(not ok and message:find("kind must be a function of a name and a parameter", 1, true))
      for _, f in ipairs {function(o) dist.all_reduce(flare.ones(2), o) end,
          function(o) dist.ZeRO(model, adamw, o) end, function(o) dist.DataParallel(model, o) end,
          function(o) dist.LocalSGD(model, adamw(model:parameters()), o) end} do
        ok, message = pcall(f, {group = 3})
        assert(not ok and message:find("group must be one that dist.group makes, got number", 1,
          true), message)
      end
      ok, message = pcall(dist.ZeRO, model, adamw, {bucket_mb = "x"})
      assert(not ok and message:find("bucket_mb must be a number of at least 0, got x", 1, true))
    ]]
  end)

  it("leaves a step out on all ranks where one has an infinite gradient", function()
    good [[
      for stage = 1, 3 do
        local zero = dist.ZeRO(plain(), adamw, {stage = stage})
        local scaler = optim.GradScaler{scale = 1024}
        optim.StepLR(zero, {every = 2})
        for k = 1, 3 do
          zero:zero_grad()
          scaler:scale(zero(flare.ones(4, 6)):square():mean()):backward()
          if k == 2 and rank == 1 then
            flare.no_grad(function() zero.shards[1].part.grad[1] = math.huge end)
          end
          scaler:unscale_(zero)
          zero:clip_grad_norm_(1)
          assert(scaler:step(zero) == (k ~= 2))
          scaler:update()
          assert(scaler.factor == (k > 1 and 512 or 1024))
        end
        for _, t in pairs(zero:state_dict()) do assert(t:isfinite():all():item()) end
        assert(zero.optimizer.groups[1].state[1].step == 2)
      end
    ]]
  end)
end)
