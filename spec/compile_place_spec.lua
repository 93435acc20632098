-- Compiled functions: results that are copied into a part of another tensor.
local flare = require "flare"
local core = require "flare.core"

describe("the gradient of parts of a tensor", function()
  -- bytes above those at the start, once plans run
  local function peak(f)
    for _ = 1, 3 do f() end
    collectgarbage()
    collectgarbage()
    core.memory.reset_peak()
    local before = core.memory.stats().live
    f()
    return core.memory.stats().peak - before
  end

  it("has memory in a compiled function only while something uses it", function()
    flare.manual_seed(1)
    local weights, x = {}, flare.randn(256, 64)
    for k = 1, 8 do
      weights[k] = flare.randn(192, 64) * 0.1
      weights[k].requires_grad = true
    end
    local function step()
      local h = x
      for _, w in ipairs(weights) do
        w.grad = nil
        local parts = flare.nn.functional.linear(h, w):view(256, 3, 64):permute(2, 1, 3)
        h = parts[1]:softmax(-1) + parts[2]:softmax(-1) * parts[3]:softmax(-1)
      end
      h:square():sum():backward()
    end
    local eager = peak(step)
    assert.is_true(peak((core.compiled(step, false, true))) < 0.7 * eager)
  end)
end)
