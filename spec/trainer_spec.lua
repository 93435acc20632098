-- train.Trainer: what a loop written out gives, interrupted anywhere or not, and over ranks.
local flare = require "flare"
local launch = require "spec.support.launch"
local message = require "spec.support.expect".message
local nn, optim, data, metrics = flare.nn, flare.optim, flare.data, flare.metrics

local x, y = data.digits(100, {seed = 1})
local vx, vy = data.digits(50, {seed = 2})

local function make(more)
  flare.manual_seed(7)
  local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.BatchNorm1d(16), nn.ReLU(),
                              nn.Dropout(0.2), nn.Linear(16, 10))
  local optimizer = optim.AdamW(model, {lr = 5e-3})
  local o = {model = model, optimizer = optimizer, loss = flare.cross_entropy, epochs = 2,
    train = data.Loader(data.Tensors(x, y), {batch = 16, shuffle = true, seed = 3}),
    validate = data.Loader(data.Tensors(vx, vy), {batch = 32}),
    metrics = {accuracy = metrics.Accuracy()}, progress = false,
    schedule = optim.WarmupCosineLR(optimizer, {warmup = 3, total = 14})}
  for key, value in pairs(more or {}) do o[key] = value end
  return flare.train.Trainer(o)
end

local function same(a, b)
  local other = b.options.model:state_dict()
  for name, value in pairs(a.options.model:state_dict()) do
    assert(value:eq(other[name]):all():item(), name .. " differs")
  end
end

describe("train.Trainer", function()
  local folder
  before_each(function()
    folder = os.tmpname()
    os.remove(folder)
  end)
  after_each(function() os.execute("rm -rf " .. folder) end)

  it("takes the steps of a loop that is written out", function()
    local trainer, plain = make{accumulate = 2, clip = 0.5}, make()
    local history = trainer:fit()
    local o = plain.options
    flare.manual_seed(7) -- as make does; then the weights are drawn
    make()
    for epoch = 1, 2 do
      local sum, rows, waiting = 0, 0, {}
      for a, b in o.train:epoch() do
        waiting[#waiting + 1] = {a, b}
        if #waiting == 2 or o.train.position == o.train:batches() then
          o.optimizer:zero_grad()
          for _, batch in ipairs(waiting) do
            local loss = flare.cross_entropy(o.model(batch[1]), batch[2])
            sum, rows = sum + loss:item() * #batch[1], rows + #batch[1]
            loss = loss / #waiting
            loss:backward()
          end
          optim.clip_grad_norm_(o.model, 0.5)
          o.optimizer:step()
          o.schedule:step()
          waiting = {}
        end
      end
      assert.near(sum / rows, history[epoch].loss, 1e-12)
      o.model:eval()
      local right = flare.no_grad(function() return o.model(vx):argmax(2):eq(vy):sum() end)
      o.model:train()
      assert.near(right:item() / 50, history[epoch].accuracy, 1e-12)
    end
    same(trainer, plain)
    assert.equal(8, history[2].step)
  end)

  -- Settings of a run, and the steps after which it is interrupted.
  for k, case in ipairs {
    {{}, {1, 6, 7, 9}}, {{accumulate = 3, clip = 1}, {2, 4}}, {{autocast = "bf16"}, {9}},
    {{autocast = "f16", compile = true}, {9}}, {{compile = true}, {3, 9}},
  } do
    it(("continues from any step, bit for bit (%d)"):format(k), function()
      local o, stops = table.unpack(case)
      local whole = make(o)
      local history = whole:fit()
      local part
      for _, stop in ipairs(stops) do
        local with = {folder = folder, callbacks = {{step = function(trainer, figures)
          if figures.step == stop then trainer:stop() end
        end}}}
        for key, value in pairs(o) do with[key] = value end
        part = make(with)
        part:fit()
        assert.equal(stop, part.at)
      end
      local last = {folder = folder}
      for key, value in pairs(o) do last[key] = value end
      part = make(last)
      assert.same(history, part:fit())
      same(whole, part)
    end)
  end

  it("is the same after a kill between checkpoints", function()
    local whole = make()
    whole:fit()
    local broken = make{folder = folder, save_every = 4, callbacks = {{step = function(_, figures)
      if figures.step == 11 then error "the power is gone" end
    end}}}
    assert.match("the power is gone", message(function() broken:fit() end))
    local first
    local again = make{folder = folder, callbacks = {{start = function(trainer)
      first = trainer.at
    end}}}
    again:fit()
    assert.equal(8, first)
    same(whole, again)
  end)

  it("stops when the figure does not get better, and has the best model", function()
    local values, k = {0.5, 0.7, 0.6, 0.65, 0.1}, 0
    local Figure = flare.class("Figure", metrics.Mean)
    function Figure:compute() -- luacheck: ignore self
      k = k + 1
      return values[k]
    end
    local weights = {}
    local trainer = make{epochs = 5, folder = folder, monitor = "figure", mode = "max",
      patience = 2, metrics = {figure = Figure()}, callbacks = {{epoch = function(t)
        weights[t.epoch] = t.options.model:state_dict()["2.weight"]:clone()
      end}}}
    function Figure:update() end -- luacheck: ignore self
    assert.equal(4, #trainer:fit())
    assert.equal(4, #make{epochs = 5, folder = folder}:fit()) -- it has stopped for good
    local figures = trainer:load_best()
    assert.equal(2, figures.epoch)
    assert.is_true(trainer.options.model:state_dict()["2.weight"]:eq(weights[2]):all():item())
  end)

  it("writes metrics, once for each step, and calls what it is given", function()
    local path, events = os.tmpname(), {}
    local function run(stop)
      make{folder = folder, log = path, log_every = 1, callbacks = {{
        start = function() table.insert(events, "start") end,
        epoch = function(_, figures) table.insert(events, figures.epoch) end,
        finish = function() table.insert(events, "finish") end,
        step = function(t, figures) if figures.step == stop then t:stop() end end,
      }}}:fit()
    end
    run(3)
    run()
    local rows = flare.log.read_metrics(path)
    os.remove(path)
    local steps = {}
    for k, row in ipairs(rows) do steps[k] = row.step end
    assert.same({1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10, 11, 12, 13, 14, 14}, steps)
    assert.is_true(rows[8].accuracy ~= nil and rows[8].val_loss ~= nil)
    assert.same({"start", "finish", "start", 1, 2, "finish"}, events)
    local resumed
    make{folder = folder, epochs = 3, log = {write = function() return true end,
      resume = function(_, step)
        resumed = step
        return true
      end}}:fit()
    assert.equal(14, resumed)
  end)

  it("takes a step of one's own, and a schedule that watches", function()
    flare.manual_seed(1)
    local model = nn.Linear(3, 1)
    local optimizer = optim.SGD(model, {lr = 0.1})
    local trainer = flare.train.Trainer{model = model, optimizer = optimizer, epochs = 6,
      train = data.Loader(data.Tensors(flare.randn(20, 3)), {batch = 5}), progress = false,
      schedule = optim.PlateauLR(optimizer, {patience = 0, threshold = 0.9}),
      step = function(m, rows) return (m(rows):squeeze(2) - 1):square():mean() end}
    local history = trainer:fit()
    assert.is_true(history[6].loss < history[1].loss)
    assert.is_true(optimizer.groups[1].lr < 0.1)
  end)

  it("says what is missing", function()
    assert.match("train.Trainer: pass loss or step", message(function()
      make{step = function() end}
    end))
    assert.match("unknown option 'epoch' %(did you mean 'epochs'%?%)",
      message(function() make{epoch = 1} end))
    assert.match("train must be a data.Loader, got table", message(function()
      make{train = {x, y}}
    end))
    assert.match("optimizer must be an optimizer such as optim.AdamW%(model%), "
                 .. "got the class AdamW",
      message(function() make{optimizer = optim.AdamW} end))
    assert.match("model must be a module, got a tensor", message(function() make{model = x} end))
    local function said(o, run) return message(function()
      local trainer = make(o)
      trainer[run or "state_dict"](trainer)
    end) end
    for text, o in pairs {
      ["clip must be the greatest norm, a number of at least 0, got 1"] = {clip = "1"},
      ["unknown autocast 'fp16' %(did you mean 'f16'%?%)"] = {autocast = "fp16"},
      ["schedule must be a schedule such as .*, got function"] = {schedule = print},
      ["log must be the path of a file or an object with write{step = ...}, got table"] =
        {log = {}},
      ["loss must be a function, such as flare.cross_entropy, or a loss layer, got table"] =
        {loss = {}},
      ["callbacks must be a list, {{step = f}, ...}, got a table with 'step'"] =
        {callbacks = {step = print}},
      ["callback 1 must be a table such as {step = f}, got function"] = {callbacks = {print}},
      ["callback 1: there is no event 'stpe' %(did you mean 'step'%?%)"] =
        {callbacks = {{stpe = print}}},
      ["a part cannot be called 'model'"] = {parts = {model = nn.ReLU()}},
      ["part 'ema' has no state_dict"] = {parts = {ema = 1}},
      ["the optimizer has none of the model's parameters"] = {model = nn.Linear(2, 2)},
      ["a table {name = metric} is expected, got a metric"] = {metrics = metrics.Accuracy()},
    } do
      assert.match("^spec/trainer_spec.lua:%d+: .*" .. text, said(o))
    end
    for text, o in pairs {
      ["loss must return the loss, a tensor of one element, got nil"] = {loss = function() end},
      ["loss must return the loss, a tensor of one element, got one of shape %(16, 10%)"] =
        {loss = function(p) return p end},
      ["/dev/null: File exists"] = {folder = "/dev/null"},
      ["/dev/null/x: Not a directory"] = {log = "/dev/null/x"},
    } do
      assert.match("^spec/trainer_spec.lua:%d+: train.Trainer: " .. text, said(o, "fit"))
    end
    assert.match("train.Trainer: save needs a folder", said({}, "save"))
    assert.match("train.Trainer: load_best needs a folder", said({}, "load_best"))
    assert.match("monitor = 'acuracy' is no figure %(did you mean 'accuracy'%?%)",
      message(function() make{monitor = "acuracy"}:fit() end))
  end)

  it("trains on ranks as one process does, and resumes there", function()
    local status, out, _, dir = launch.run("-n 2 --tee all", [[
      local nn, optim, data, metrics = flare.nn, flare.optim, flare.data, flare.metrics
      local x, y = data.digits(52, {seed = 1})
      x = x:to "f64"
      local function make(group, o)
        flare.manual_seed(7)
        local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.Tanh(), nn.Linear(12, 10))
        model:to "f64"
        local t = {model = model, optimizer = optim.Adam(model, {lr = 1e-2}), epochs = 2,
          loss = flare.cross_entropy, progress = false, accumulate = 2, clip = 0.5,
          parallel = group ~= nil,
          train = data.Loader(data.Tensors(x, y), {batch = 10, shuffle = true, shard = group}),
          validate = data.Loader(data.Tensors(x:narrow(1, 1, 21), y:narrow(1, 1, 21)),
                                 {batch = 10, shard = group, repeats = false}),
          metrics = {accuracy = metrics.Accuracy{group = group or false}}}
        for key, value in pairs(o or {}) do t[key] = value or nil end
        if t.steps then t.epochs = nil end
        return flare.train.Trainer(t)
      end
      local function far(a, b)
        local other, most = b.options.model:state_dict(), 0
        for name, value in pairs(a.options.model:state_dict()) do
          most = math.max(most, (value - other[name]):abs():max():item())
        end
        return most
      end
      local alone, both = make(), make(dist.world)
      local h, g = alone:fit(), both:fit()
      assert(far(alone, both) < 1e-9, far(alone, both))
      assert(math.abs(h[2].accuracy - g[2].accuracy) < 1e-12, g[2].accuracy)
      assert(math.abs(h[2].val_loss - g[2].val_loss) < 1e-9)
      local function stop(t, figures) if figures.step == 2 then t:stop() end end
      make(dist.world, {folder = "run", callbacks = {{step = stop}}}):fit()
      local again = make(dist.world, {folder = "run"})
      local r = again:fit()
      assert(far(again, both) == 0 and r[2].loss == g[2].loss and r[1].loss == g[1].loss)
      -- statistics of batches, within an epoch: each rank has its own until the end
      local function normed(steps, folder)
        flare.manual_seed(7)
        local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.BatchNorm1d(10))
        local t = make(dist.world, {model = model, optimizer = optim.SGD(model, {lr = 1e-2}),
          steps = steps, folder = folder, validate = false, metrics = false,
          train = data.Loader(data.Tensors(x:to "f32", y), {batch = 13, shard = dist.world})})
        t:fit()
        return t
      end
      local whole = normed(5)
      normed(1, "norm")
      again = normed(5, "norm")
      local digest = again.options.model[3].running_var
      assert(far(again, whole) == 0, "statistics differ")
      assert(dist.all_gather(digest:unsqueeze(1)):eq(digest):all():item(), "ranks differ")
    ]], 120)
    launch.remove(dir)
    assert.equal(0, status, out)
  end)

  it("goes on with another number of ranks", function()
    local text = [[
      local flare = require "flare"
      local nn, optim, data = flare.nn, flare.optim, flare.data
      local a, b = data.digits(52, {seed = 1})
      return function(group, folder, stop)
        flare.manual_seed(7)
        local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
        model:to "f64"
        return flare.train.Trainer{model = model, optimizer = optim.Adam(model, {lr = 1e-2}),
          epochs = 2, loss = flare.cross_entropy, progress = false, folder = folder,
          train = data.Loader(data.Tensors(a:to "f64", b), {batch = 12, shuffle = true,
                                                            shard = group}),
          callbacks = {{step = function(t, figures)
            if figures.step == stop then t:stop() end
          end}}}
      end]]
    local start = assert(load(text))()
    local whole = start():fit()
    local status, out, _, dir = launch.run("-n 3 --tee all", ([[
      local start = (function() %s end)()
      start(dist.world, %q, 2):fit()]]):format(text, folder), 120)
    launch.remove(dir)
    assert.equal(0, status, out)
    start(nil, folder, 4):fit()
    status, out, _, dir = launch.run("-n 2 --tee all", ([[
      local start = (function() %s end)()
      local history = start(dist.world, %q):fit()
      assert(math.abs(history[1].loss - %.17g) < 1e-9, history[1].loss)
      assert(math.abs(history[2].loss - %.17g) < 1e-9, history[2].loss)
    ]]):format(text, folder, whole[1].loss, whole[2].loss), 120)
    launch.remove(dir)
    assert.equal(0, status, out)
  end)

  it("divides what it trains by dist.ZeRO, and resumes that", function()
    local status, out, _, dir = launch.run("-n 2 --tee all", [[
      local nn, optim, data, metrics = flare.nn, flare.optim, flare.data, flare.metrics
      local x, y = data.digits(52, {seed = 1})
      x = x:to "f64"
      local function make(stage, o)
        flare.manual_seed(7)
        local model = nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.Tanh(), nn.Linear(12, 10))
        model:to "f64"
        local function adam(p) return optim.AdamW(p, {lr = 1e-2}) end
        local optimizer = stage and dist.ZeRO(model, adam, {stage = stage}) or adam(model)
        local t = {model = model, optimizer = optimizer, epochs = 2, loss = flare.cross_entropy,
          progress = false, accumulate = 2, clip = 0.5,
          schedule = optim.CosineLR(optimizer, {total = 6}),
          train = data.Loader(data.Tensors(x, y), {batch = 10, shuffle = true,
                                                   shard = dist.world}),
          validate = data.Loader(data.Tensors(x:narrow(1, 1, 21), y:narrow(1, 1, 21)),
                                 {batch = 10, shard = dist.world, repeats = false}),
          metrics = {accuracy = metrics.Accuracy()}}
        for key, value in pairs(o or {}) do t[key] = value end
        return flare.train.Trainer(t)
      end
      local function state(t) return (t.zero or t.options.model):state_dict() end
      local function far(a, b)
        local most = 0
        for name, value in pairs(a) do
          most = math.max(most, (value - b[name]):abs():max():item())
        end
        return most
      end
      local plain = make()
      local h = plain:fit()
      local function stop(t, figures) if figures.step == 3 then t:stop() end end
      for stage = 1, 3 do
        local whole = make(stage)
        local g = whole:fit()
        assert(far(state(plain), state(whole)) < 1e-9)
        assert(h[2].accuracy == g[2].accuracy and math.abs(h[2].val_loss - g[2].val_loss) < 1e-9)
        local folder = "run-" .. stage
        make(stage, {folder = folder, save_every = 1, callbacks = {{step = stop}}}):fit()
        local again = make(stage, {folder = folder})
        local r = again:fit()
        assert(far(state(again), state(whole)) == 0, "differs after the stop")
        assert(r[2].loss == g[2].loss and r[2].val_loss == g[2].val_loss)
        assert(again:load_best().val_loss == math.min(g[1].val_loss, g[2].val_loss))
        local list = flare.core.file.list(folder) -- two files, a folder for each, the best
        assert(#list == 5, table.concat(list, " "))
        dist.barrier()
      end
      local ok, problem = pcall(function() make(nil, {folder = "run-1"}):fit() end)
      assert(not ok and problem:find("saved with dist.ZeRO", 1, true), problem)
      ok, problem = pcall(make, nil, {optimizer = make(2).zero})
      assert(not ok and problem:find("dist.ZeRO is of another model", 1, true), problem)
    ]], 120)
    launch.remove(dir)
    assert.equal(0, status, out)
  end)
end)
