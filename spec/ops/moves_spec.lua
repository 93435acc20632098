-- Copies between layouts: what moves together, in any order of dims, from any place to any.
local flare = require "flare"
local rows = require "spec.support.rows"

local sizes = {1, 2, 3, 4, 8, 16, 33, 64}

local function shuffled(n)
  local order = {}
  for i = 1, n do table.insert(order, math.random(i), i) end
  return order
end

-- A tensor of `shape` whose dims lie in `order`, inside of one that is larger, and the same on a
-- device.
local function placed(shape, order, dtype, device)
  local big, back = {}, {}
  for i, dim in ipairs(order) do
    big[i] = shape[dim] + math.random(0, 1) * math.random(0, 8)
    back[dim] = i
  end
  local x = flare.randint(0, 100, big, {dtype = dtype})
  local there = x:to(device)
  for i, dim in ipairs(order) do
    local start = 1 + math.random(0, big[i] - shape[dim])
    x, there = x:narrow(i, start, shape[dim]), there:narrow(i, start, shape[dim])
  end
  return x:permute(table.unpack(back)), there:permute(table.unpack(back))
end

describe("a copy from one layout to another", function()
  for _, device in ipairs(rows.devices) do
    for _, dtype in ipairs {"u8", "bf16", "f32", "f64"} do
      it(("is the same elements, of %s on %s"):format(dtype, device), function()
        math.randomseed(11)
        for _ = 1, 60 do
          local shape, n = {}, math.random(4)
          for i = 1, n do shape[i] = sizes[math.random(n == 4 and 6 or #sizes)] end
          local from, from_there = placed(shape, shuffled(n), dtype, device)
          local whole = flare.randint(0, 100, {from:numel() + 16}, {dtype = dtype})
          local strides, step, shift = {}, 1, math.random(0, 8)
          for _, dim in ipairs(shuffled(n)) do
            strides[dim] = step
            step = step * shape[dim]
          end
          local there = whole:to(device):clone()
          there:as_strided(shape, strides, shift):copy_(from_there)
          there = there:to "cpu"
          assert.is_true(there:as_strided(shape, strides, shift):eq(from):all():item())
          assert.is_true(there:narrow(1, 1, shift):eq(whole:narrow(1, 1, shift)):all():item())
          local rest = 16 - shift
          local at = from:numel() + shift + 1
          assert.is_true(there:narrow(1, at, rest):eq(whole:narrow(1, at, rest)):all():item())
        end
      end)
    end
  end
end)
