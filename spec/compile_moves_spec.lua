-- Compiled functions while tensors that they use move into other memory: in a window, between
-- calls, on another stream, in threads.
local core = require "flare.core"
local flare = require "flare"
local rows = require "spec.support.rows"

local function control(us) core.backend_control("sim", "delay_us", us) end

local function all(x, value)
  assert(x:eq(value):all():item(), ("expected %s, got %s"):format(value, x))
end

for _, device in ipairs(rows.devices) do
  describe("a compiled function on " .. device, function()
    local homes, x

    before_each(function()
      homes = {flare.zeros({40}, {device = device}), flare.zeros({40}, {device = device})}
      x = flare.full({3, 4}, 2, {device = device})
    end)

    it("writes a tensor where it is, whenever it moves", function()
      local row = x[2]
      local f = flare.compile(function(run)
        local home, before = homes[run % 2 + 1], x * 10
        x:add_(1)
        core.place(x, home, run % 3 + 1)
        local after = row * 1
        x:mul_(2)
        home:narrow(1, run % 3 + 1, 4):add_(100) -- the first row
        return before, after, x - 1
      end, {exact = true})
      for run = 1, 12 do
        x:fill_(run)
        homes[run % 2 + 1]:fill_(0) -- x is in the other one
        local before, after, last = f(run)
        all(before, 10 * run)
        all(after, run + 1)
        all(last[1], 2 * run + 101)
        all(last:narrow(1, 2, 2), 2 * run + 1)
        assert.equal(24 * (run + 1) + 400, homes[run % 2 + 1]:sum():item())
        homes[run % 2 + 1]:fill_(0)
        all(row, 0)
      end
      assert.is_true(flare.compile_stats(f).windows >= 24) -- a move ends one
    end)

    for _, o in ipairs {{exact = true}, {exact = true, pure = true}} do
      it("reads a tensor where it is" .. (o.pure and ", without its code" or ""), function()
        local w = flare.ones({4, 5}, {device = device})
        local f = flare.compile(function(t) return (x:matmul(t) * 2 + 1):relu() end, o)
        for run = 1, 30 do
          if run % 4 == 0 then
            local home = homes[run // 4 % 2 + 1]
            core.place(x, home, run % 7 + 1)
            home:narrow(1, run % 7 + 1, 12):fill_(run)
            all(f(w), 8 * run + 1)
          end
          x:fill_(-run)
          all(f(w), 0)
          x:fill_(run)
          all(f(w), 8 * run + 1)
        end
        local stats = flare.compile_stats(f)
        assert.is_true(stats.planned >= 5)
        assert.is_true(not o.pure or stats.traced > 20)
      end)
    end

    it("trains parameters that move between steps and within them", function()
      local function trained(compile)
        flare.manual_seed(3)
        local model = flare.nn.Sequential(flare.nn.Linear(6, 8), flare.nn.Tanh(),
          flare.nn.Linear(8, 1)):to(device)
        local opt = flare.optim.Adam(model:parameters(), {lr = 0.05})
        local data = flare.randn({16, 6}, {device = device})
        local flats, moved = {}, 0
        for k = 1, 2 do flats[k] = flare.zeros({500}, {device = device}) end
        local step = compile(function(run)
          opt:zero_grad()
          local loss = model(data):square():mean()
          if run % 5 == 0 then flare.no_grad(function() model[1].weight:mul_(1) end) end
          loss:backward()
          if run % 3 == 0 then
            moved = moved + 1
            local home = flats[moved % 2 + 1]
            for k, p in ipairs(model:parameters()) do core.place(p, home, (k - 1) * 90 + run) end
          end
          opt:step()
          return loss
        end)
        local losses = {}
        for run = 1, 12 do
          if run % 4 == 1 then
            core.place(model[3].weight, flare.zeros({20}, {device = device}), 7)
          end
          local ok, loss = pcall(step, run)
          losses[run] = ok and loss:item() or "error"
        end
        return losses
      end
      local eager = trained(function(f) return f end)
      local compiled = trained(function(f) return flare.compile(f, {exact = true}) end)
      for run = 1, 12 do
        local a, b = eager[run], compiled[run]
        assert.equal(type(a), type(b), "run " .. run)
        if type(a) == "number" then assert(math.abs(a - b) <= 1e-5 * math.abs(a)) end
      end
      assert.is_true(eager[12] ~= eager[1] and eager[2] ~= "error")
    end)
  end)
end

describe("a tensor that moves on another stream", function()
  local device = "sim:0"
  after_each(function() control(0) flare.synchronize(device) end)

  it("does so behind the launches that waited, and keeps what they read", function()
    local s, here = flare.stream(device), flare.current_stream(device)
    local f = flare.compile(function(t) return ((t + 1) * 2):add_(t) end, {exact = true})
    flare.debug_streams(true)
    local ok, why = pcall(function()
      for round = 1, 12 do
        if round == 4 then flare.debug_streams(false) end -- launches wait only without it
        local x = flare.full({1024}, round, {device = device})
        local home = flare.zeros({3000}, {device = device})
        control(300)
        local before = f(x)
        s:wait(here)
        s:run(function()
          core.place(x, home, round)
          x:mul_(5)
        end)
        here:wait(s)
        local after = f(x)
        control(0)
        local junk = flare.full({1024}, -1000, {device = device})
        all(before, 3 * round + 2)
        all(after, 15 * round + 2)
        assert.equal(5 * round * 1024, home:sum():item())
        all(junk, -1000)
      end
    end)
    flare.debug_streams(false)
    assert(ok, why)
    assert.is_true(flare.compile_stats(f).planned >= 5)
  end)

  it("does so inside of a window, which runs first", function()
    local s, here = flare.stream(device), flare.current_stream(device)
    local homes = {flare.zeros({200}, {device = device}), flare.zeros({200}, {device = device})}
    local x = flare.zeros({64}, {device = device})
    local f = flare.compile(function(round)
      x:fill_(round)
      local y = x * 3 + 1
      s:wait(here)
      s:run(function() core.place(x, homes[round % 2 + 1], round) end)
      here:wait(s)
      x:add_(1)
      return y, x * 2
    end, {exact = true})
    for round = 1, 10 do
      control(round % 2 * 200)
      local y, z = f(round)
      control(0)
      all(y, 3 * round + 1)
      all(z, 2 * round + 2)
      all(homes[round % 2 + 1]:narrow(1, round, 64), round + 1)
    end
  end)
end)

describe("tensors that move in two threads", function()
  it("have their windows apart from those of the other", function()
    local text = [[
      local flare, core, device, first = require "flare", require "flare.core", ...
      local homes = {flare.zeros({300}, {device = device}), flare.zeros({300}, {device = device})}
      local x = flare.zeros({64}, {device = device})
      local f = flare.compile(function(run)
        x:fill_(first + run)
        local y = x * 3 + 1
        core.place(x, homes[run % 2 + 1], run % 100 + 1)
        x:add_(1)
        return y:sum(), x * 2
      end, {exact = true})
      for run = 1, 200 do
        local y, z = f(run)
        if run % 5 == 0 then
          local got = {y:item(), z:min():item(), z:max():item()}
          local n = first + run
          if got[1] ~= 64 * (3 * n + 1) or got[2] ~= 2 * n + 2 or got[3] ~= 2 * n + 2 then
            return ("run %d: %g, %g, %g"):format(run, table.unpack(got))
          end
        end
      end
      return flare.compile_stats(f).windows]]
    for _, device in ipairs(rows.devices) do
      local other = assert(flare.spawn(text, device, 1000))
      local mine = load(text)(device, 0)
      assert.same({true, mine}, {other:join(60)})
      assert.is_true(math.type(mine) == "integer", mine)
    end
  end)
end)
