-- Values that a plan computes a second time instead of keeping them: results and random draws stay
-- as they are, and the step needs less memory.
local flare = require "flare"
local programs = require "spec.support.programs"
local rows = require "spec.support.rows"
local steps = require "spec.support.steps"
local view_programs = require "spec.support.view_programs"

-- The losses of four steps and the parameters after them; the peak of the last step, beside what
-- was there before.
local function trained(device, name, compile)
  local model = steps[name](device)
  local step = compile(model.step)
  local losses, peak = {}, nil
  flare.manual_seed(11)
  for k = 1, 4 do
    collectgarbage()
    collectgarbage()
    local before = flare.memory.stats(device).live
    flare.memory.reset_peak(device)
    losses[k] = step():item()
    peak = flare.memory.stats(device).peak - before
  end
  return losses, model.parameters, peak
end

local function near(want, got, eps, what)
  local off = (want - got):abs():max():item()
  assert(off <= eps * (1 + want:abs():max():item()), ("%s is off by %g"):format(what, off))
end

for _, device in ipairs(rows.devices) do
  describe("values that are computed again on " .. device, function()
    for _, case in ipairs{{"mlp", 0.85}, {"conv", 0.8}, {"gpt", 0.75}} do
      local name, part = table.unpack(case)
      it("leave a step of " .. name .. " as it is, with less memory", function()
        local object
        local losses, parameters, peak = trained(device, name, function(f) return f end)
        local got, others, less = trained(device, name, function(f)
          local run
          run, object = flare.core.compiled(f, false, "again", false, false, 0)
          return run
        end)
        for k = 1, 4 do
          assert(math.abs(losses[k] - got[k]) <= 1e-4 * (1 + math.abs(losses[k])),
            ("loss %d: %g and %g"):format(k, losses[k], got[k]))
        end
        for k = 1, #parameters do near(parameters[k], others[k], 2e-3, "parameter " .. k) end
        local stats = flare.core.compiled_stats(object)
        assert.is_true(stats.repeats > 0)
        assert.is_true(stats.memory < part * peak, stats.memory .. " of " .. peak)
        if device:find "sim" then assert.is_true(less < part * peak, less .. " of " .. peak) end
        if device:find "cuda" then assert.is_true(less < peak, less .. " of " .. peak) end
      end)
    end

    it("are few by default, where a step hardly reads and writes more", function()
      local f = flare.compile(steps.gpt(device).step, {graphs = false})
      for _ = 1, 3 do f() end
      local step = steps.gpt(device).step
      local all, object = flare.core.compiled(step, false, "again", false, false, 0)
      for _ = 1, 2 do all() end -- the first one makes the state of the optimizer
      local few, most = flare.compile_stats(f), flare.core.compiled_stats(object)
      assert.is_true(few.repeats > 0 and few.repeats < most.repeats)
      assert.is_true(most.memory < few.memory)
    end)

    it("are not those whose operands have been written since", function()
      local x = flare.randn(64, 64, {device = device})
      local w = {}
      for k = 1, 8 do w[k] = flare.randn(64, 64, {device = device}) * 0.1 end
      local function body(t)
        local y = t:tanh()
        local z = y
        for k = 1, 8 do z = z:matmul(w[k]) end
        t:add_(1)
        return z:matmul(y), y:t():matmul(z)
      end
      local a, b = x:clone(), x:clone()
      local f = flare.core.compiled(body, true, "again", false, false, 0)
      for _ = 1, 3 do
        local want, got = {body(a)}, {f(b)}
        for k = 1, 2 do assert.is_true(want[k]:eq(got[k]):all():item()) end
        assert.is_true(a:eq(b):all():item())
      end
    end)

    it("are computed from second copies by launches that run again themselves", function()
      local function summed(x) return x:sum(-1, {keepdim = true}):expand(9, 9) end
      local function body(x, y, z)
        local twice, a = y * 2, y + z
        local first = summed(a)
        local c = twice - a
        local q = (z + first):sum(1, {keepdim = true}):expand(9, 9) * 0.1
        local b = summed(a) + summed(q) -- the same sum of a, which is computed once
        z:narrow(1, 2, 5):add_(summed(c):narrow(1, 3, 5))
        x:narrow(1, 2, 5):add_((c * 0.5):narrow(1, 3, 5))
        return b - x
      end
      local _ <close> = flare.no_grad()
      local a, b = {}, {}
      for k = 1, 3 do a[k] = flare.rand({9, 9}, {device = device}) end
      for k = 1, 3 do b[k] = a[k]:clone() end
      local f = flare.core.compiled(body, true, "again", false, true, 0)
      for _ = 1, 3 do
        assert.is_true(body(table.unpack(a)):equal(f(table.unpack(b))))
        for k = 1, 3 do assert.is_true(a[k]:equal(b[k])) end
      end
    end)

    it("are right in programs of views and writes in place", function()
      view_programs.check(device, tonumber(os.getenv "FLARE_PROGRAMS") or 150, 1)
    end)

    it("are right in any program", function()
      local count = tonumber(os.getenv "FLARE_PROGRAMS") or 40
      programs.check(device, count, true, {first = 3000, again = true})
      programs.check(device, count, false, {first = 4000, again = true})
      programs.check(device, count // 2, true, {first = 5000, again = true, wild = true})
      programs.check(device, count // 2, false, {first = 6000, again = true, wild = true})
    end)
  end)
end
