-- flare.compile(f, {memory = bytes}): calls keep to so many bytes in tensors, with the results of
-- the function itself, or say what is missing.
local flare = require "flare"
local rows = require "spec.support.rows"
local steps = require "spec.support.steps"

-- What was live before a call of f, and the peak of the call.
local function call(device, f)
  collectgarbage()
  collectgarbage()
  local before = flare.memory.stats(device).live
  flare.memory.reset_peak(device)
  local result = f()
  return before, flare.memory.stats(device).peak, result
end

-- A model that has taken two steps, which have made the state of its optimizer.
local function settled(device, name)
  local model = steps[name](device)
  flare.manual_seed(12)
  for _ = 1, 2 do model.step() end
  return model
end

for _, device in ipairs(rows.devices) do
  describe("a cap of memory on " .. device, function()
    for _, case in ipairs{{"mlp", 0.9}, {"conv", 0.7}, {"gpt", 0.8}, {"gpt", 0.6}, {"gpt", 0.5}} do
      local name, part = table.unpack(case)
      it(("holds at %g of what a step of %s takes"):format(part, name), function()
        local plain, capped = settled(device, name), settled(device, name)
        flare.manual_seed(13)
        local losses = {}
        local before, peak
        for k = 1, 4 do
          local loss
          before, peak, loss = call(device, plain.step)
          losses[k] = loss:item()
        end
        local cap = before + (peak - before) * part // 1
        local f = flare.compile(capped.step, {memory = cap})
        flare.manual_seed(13)
        for k = 1, 4 do
          local _, most, loss = call(device, f)
          -- what kernels need while they run is known after the first call; sim needs nothing
          if k > 1 or device:find "sim" then
            assert(most <= cap, ("call %d takes %d of %d bytes"):format(k, most, cap))
          end
          assert(math.abs(loss:item() - losses[k]) <= 1e-4 * (1 + math.abs(losses[k])),
            ("loss %d: %g and %g"):format(k, losses[k], loss:item()))
        end
        for k, p in ipairs(plain.parameters) do
          local off = (p - capped.parameters[k]):abs():max():item()
          assert(off <= 2e-3 * (1 + p:abs():max():item()), ("parameter %d: %g"):format(k, off))
        end
        if name == "gpt" and part < 0.6 then -- products run again
          assert.is_true(flare.compile_stats(f).repeats > 25)
        end
      end)
    end

    it("cuts large values into smaller chunks", function()
      local x, w = flare.randn(512, 16, {device = device}), flare.randn(1000, 16, {device = device})
      local target = flare.range(1, 512, {dtype = "i64", device = device})
      local function step()
        w.grad = nil
        w:requires_grad_()
        local y = flare.nn.functional.linear(x, w)
        local loss = flare.nn.functional.cross_entropy(y, target)
        loss:backward()
        return loss
      end
      local want = step():item()
      w.grad = nil
      local cap = flare.memory.stats(device).live + 512 * 1000 * 4
      local f = flare.compile(step, {memory = cap})
      assert.is_true(math.abs(f():item() - want) <= 1e-4 * want)
      assert.is_true(flare.compile_stats(f).chunks > 1)
      assert.is_true(flare.compile_stats(f).memory < 512 * 1000 * 4)
    end)

    it("that cannot be held says by how much, and what holds memory", function()
      local model = settled(device, "mlp")
      local kept = {}
      for k, p in ipairs(model.parameters) do kept[k] = p:clone() end
      local cap = flare.memory.stats(device).live + (1 << 20)
      local f = flare.compile(model.step, {memory = cap})
      local ok, text = pcall(f)
      assert.is_false(ok)
      assert.matches("compile: memory = [%d.]+ MiB is [%d.]+ %a+ too little: tensors had [%d.]+ MiB"
        .. " before, and the call needs [%d.]+ MiB, .*; most of it: [%d.]+ [MK]iB by [%l_]+ at "
        .. ".*spec/support/steps.lua:%d+", text)
      for k, p in ipairs(model.parameters) do assert.is_true(p:eq(kept[k]):all():item()) end
      for _, p in ipairs(model.parameters) do p.grad = nil end
      assert.is_true(model.step():item() < math.huge)
    end)
  end)
end

describe("a cap of memory", function()
  it("is a number of bytes, or text", function()
    assert.error_matches(function() flare.compile(print, {memory = "much"}) end,
      'compile: memory must be a number of bytes, text such as "20GiB", got "much"', 1, true)
    assert.error_matches(function() flare.compile(print, {memory = 0}) end, "got 0", 1, true)
    assert.equal(3, flare.compile(function() return 3 end, {memory = "2GiB"})())
  end)
end)
