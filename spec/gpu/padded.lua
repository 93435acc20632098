-- Products of 16-bit matrices of odd sizes on a GPU, against f64 on the CPU: odd rows, columns and
-- sums, operands turned and parts of larger tensors, biases, sums added to a tensor. Needs one GPU;
-- less than a minute. Ends with PASS or FAIL.
local flare = require "flare"
local F = flare.nn.functional
local worst, failed, count = {}, 0, 0
local tolerance = {f16 = 2e-3, bf16 = 1.2e-2}

local function check(name, dtype, got, want)
  got, want = got:to "cpu":to "f64", want:to "cpu":to "f64"
  local off = (got - want):abs():max():item() / (want:abs():max():item() + 1e-30)
  count = count + 1
  if off ~= off or off > tolerance[dtype] then
    failed = failed + 1
    print("FAIL", name, dtype, off)
  end
  worst[dtype] = math.max(worst[dtype] or 0, off)
end

-- A matrix (rows, columns): contiguous, turned, or a part that starts at an odd element.
local layouts = {
  plain = function(dtype, rows, columns) return flare.randn({rows, columns}):to(dtype) end,
  turned = function(dtype, rows, columns) return flare.randn({columns, rows}):to(dtype):t() end,
  part = function(dtype, rows, columns)
    return flare.randn({rows + 3, columns + 5}):to(dtype)[{{2, rows + 1}, {4, columns + 3}}]
  end,
}

local function operand(layout, dtype, rows, columns)
  local x = layouts[layout](dtype, rows, columns)
  local y = flare.empty({rows, columns}, {dtype = dtype, device = "cuda"})
  if layout == "turned" then
    y = flare.empty({columns, rows}, {dtype = dtype, device = "cuda"}):t()
  elseif layout == "part" then
    y = flare.empty({rows + 3, columns + 5}, {dtype = dtype, device = "cuda"})
    y = y[{{2, rows + 1}, {4, columns + 3}}]
  end
  y:copy_(x)
  return y, x:to "cuda":to "f64"
end

local shapes = {{2048, 1027, 520}, {2049, 1025, 515}, {4097, 1026, 1030}, {1031, 8, 4099},
                {520, 50257, 768}}
for _, dtype in ipairs{"bf16", "f16"} do
  for _, s in ipairs(shapes) do
    local m, n, k = table.unpack(s)
    for _, left in ipairs{"plain", "turned", "part"} do
      for _, right in ipairs{"plain", "turned", "part"} do
        local a, ac = operand(left, dtype, m, k)
        local b, bc = operand(right, dtype, k, n)
        local name = ("%d x %d x %d %s %s"):format(m, k, n, left, right)
        local y = ac:matmul(bc)
        check(name, dtype, a:matmul(b), y)
        local bias, biasc = operand("plain", dtype, 1, n)
        check(name .. " bias", dtype, F.linear(a, b:t(), bias[1]), y + biasc[1])
        local sum, sumc = operand("plain", dtype, m, n)
        flare.core.matmul_add(sum, a, b)
        check(name .. " added", dtype, sum, sumc + y)
      end
    end
  end
end
for dtype, off in pairs(worst) do print(dtype, "worst", off) end
print(count .. " comparisons")
print(failed == 0 and "PASS" or "FAIL: " .. failed)
os.exit(failed == 0)
