-- Positions of extremes in rows that kernels read piece by piece: the first of equal elements, the
-- first NaN, wherever they are.
local flare = require "flare"
local rows = require "spec.support.rows"

local nan = 0 / 0
local lengths = {1, 31, 32, 63, 64, 65, 511, 512, 513, 1024, 1500, 2049}

-- Numbers without an order, most of them several times.
local function numbers(n)
  local list = {}
  for k = 1, n do list[k] = k * 37 % 101 - 50 end
  return list
end

local function first(list, better)
  local at
  for k, v in ipairs(list) do
    if v ~= v then return k end
    if not at or better(v, list[at]) then at = k end
  end
  return at
end

local function check(list, dtype, device)
  local x = flare.tensor(list, {dtype = dtype}):to(device)
  local what = ("%d of %s on %s"):format(#list, dtype, device)
  assert.equal(first(list, function(a, b) return a > b end), x:argmax(1):item(), what)
  assert.equal(first(list, function(a, b) return a < b end), x:argmin(1):item(), what)
  local values, indices = x:max(1)
  local want = list[indices:item()]
  assert(values:item() == want or want ~= want, what)
end

for _, device in ipairs(rows.devices) do
  describe("the position of an extreme in " .. device, function()
    for _, dtype in ipairs {"f32", "f64", "i64", "bf16"} do
      it("is the first of equal elements, of " .. dtype, function()
        for _, n in ipairs(lengths) do
          local list = numbers(n)
          check(list, dtype, device)
          for _, at in ipairs {1, n // 2 + 1, n} do
            list[at] = at == n and -90 or 90
            check(list, dtype, device)
          end
        end
      end)
    end

    for _, dtype in ipairs {"f32", "f64"} do
      it("is the first NaN, of " .. dtype, function()
        for _, n in ipairs(lengths) do
          for _, at in ipairs {n, n // 2 + 1, 1} do
            local list = numbers(n)
            list[at], list[n] = nan, nan
            check(list, dtype, device)
          end
        end
      end)
    end

    it("knows one zero and infinities", function()
      local list = {}
      for k = 1, 1200 do list[k] = -math.huge end
      check(list, "f32", device)
      list[700], list[701] = -0.0, 0.0
      check(list, "f32", device)
    end)
  end)
end
