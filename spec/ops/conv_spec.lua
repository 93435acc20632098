-- Convolutions and pooling; and 16-bit convolutions with channels innermost, whose results lie
-- so too.
require "spec.support.declare"("conv", describe, it)

local flare = require "flare"
local rows = require "spec.support.rows"

local function last(x) return x:permute{1, 3, 4, 2}:contiguous():permute{1, 4, 2, 3} end

local function run(c, device, lay, lay_weight)
  local g = flare.generator(5)
  local function draw(...) return flare.randn({...}, {generator = g}):to("bf16"):to(device) end
  local kernel, stride = c[3], c[4]
  local x, w = lay(draw(2, c[1], 9, 8)):detach(), lay_weight(draw(c[2], c[1], kernel, kernel))
  local b = c.bias and draw(c[2]) or nil
  w = w:detach()
  x.requires_grad, w.requires_grad = true, true
  local y = flare.conv(x, w, b, {stride = {stride, stride}, padding = {kernel // 2, kernel // 2}})
  local dy = lay(draw(table.unpack(y.shape)))
  y:backward(dy)
  return {y = y:detach(), dx = x.grad, dw = w.grad}
end

describe("convolutions with channels innermost", function()
  local function same(x) return x end
  for _, device in ipairs(rows.devices) do
    it("are what they are otherwise, on " .. device, function()
      for _, c in ipairs{{16, 24, 3, 1}, {64, 64, 3, 1, bias = true}, {8, 16, 1, 1}, {16, 8, 3, 2},
                         {64, 128, 1, 2, bias = true}} do
        local want = run(c, device, same, same)
        for _, lay_weight in ipairs{same, last} do
          local got = run(c, device, last, lay_weight)
          assert.is_false(got.y:is_contiguous())
          assert.is_true(want.y:is_contiguous())
          assert.same(got.y:stride(2), 1)
          for name, w in pairs(want) do
            w = w:to("cpu"):to("f32")
            local off = (got[name]:to("cpu"):to("f32") - w):abs():max():item()
            assert(off <= 2e-2 * w:abs():max():item(), ("%s of %d to %d, kernel %d: off by %g")
              :format(name, c[1], c[2], c[3], off))
          end
        end
      end
    end)
  end
  it("need no number of channels, and only one operand of that layout", function()
    local x, w = flare.randn{2, 12, 9, 8}, flare.randn{5, 12, 3, 3}
    for _, dtype in ipairs{"f32", "bf16"} do
      local want = flare.conv(x:to(dtype), w:to(dtype))
      assert.is_true(want:is_contiguous())
      for _, y in ipairs{flare.conv(last(x):to(dtype), w:to(dtype)),
                         flare.conv(x:to(dtype), last(w):to(dtype))} do
        assert.is_true(y:is_contiguous "channels_last")
        assert.is_true(y:eq(want):all():item())
      end
    end
  end)
end)
