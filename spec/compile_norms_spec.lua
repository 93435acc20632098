-- Statistics of rows in compiled functions, against sums in double precision, on rows that lose
-- digits where squares are summed in f32: large means, tiny variances, one element far from all
-- others.
local flare = require "flare"
local rows = require "spec.support.rows"

-- {what, element i of a row}
local kinds = {
  {"constant", function() return 123456.7 end},
  {"far from 0", function(noise) return 1000 + noise end},
  {"of tiny variance", function(noise) return 3 + 1e-3 * noise end},
  {"with an outlier first", function(noise, i) return i == 1 and 1e4 or noise end},
  {"of two halves", function(noise, i, n) return (i <= n // 2 and -300 or 300) + noise end},
  {"around 0", function(noise) return noise end},
}

-- (#kinds, n) of a dtype, and the rows as they are rounded to it, in tables.
local function make_rows(n, dtype, device)
  local noise = flare.randn({#kinds, n}, {dtype = "f64"}):tolist()
  local values = {}
  for k, kind in ipairs(kinds) do
    values[k] = {}
    for i = 1, n do
      -- f16 has no 123456.7
      values[k][i] = kind[2](noise[k][i], i, n) * (dtype == "f16" and 1 / 16 or 1)
    end
  end
  local x = flare.tensor(values, {dtype = "f64"}):to(dtype)
  return x:to(device), x:to("f64"):tolist()
end

local function statistics(row)
  local mean, square = 0, 0
  for _, v in ipairs(row) do mean = mean + v / #row end
  for _, v in ipairs(row) do square = square + (v - mean) ^ 2 end
  return mean, square / #row
end

local last = {f32 = 2 ^ -24, f16 = 2 ^ -11, bf16 = 2 ^ -8} -- half the distance of numbers at 1

-- A plan runs the third call.
local function compiled(f, ...)
  local run, y = flare.compile(f)
  for _ = 1, 3 do y = run(...) end
  local stats = flare.compile_stats(run)
  assert(stats.plans == 1 and stats.kernels <= stats.launches, "no plan was made")
  return y
end

for _, device in ipairs(rows.devices) do
  describe("statistics of a compiled function on " .. device, function()
    for _, dtype in ipairs {"f32", "bf16", "f16"} do
      for _, n in ipairs {96, 1000, 40000} do
        -- rows as layer_norm has them, groups of channels, and columns
        local norms = {
          ["layer_norm"] = function(x) return flare.layer_norm(x) * 2 end,
          ["group_norm"] = function(x)
            local y = flare.group_norm(x:reshape(1, #kinds * 8, n // 8), nil, nil, #kinds) * 2
            return y:reshape(#kinds, n)
          end,
          ["batch_norm of columns"] = function(x)
            return (flare.batch_norm(x:t()) * 2):t()
          end,
        }
        for name, f in pairs(norms) do
          it(("%s of %d elements of %s"):format(name, n, dtype), function()
            flare.manual_seed(n)
            local x, values = make_rows(n, dtype, device)
            local y = compiled(f, x):to("cpu"):to("f64"):tolist()
            for k, row in ipairs(values) do
              local mean, var = statistics(row)
              local rstd = 1 / math.sqrt(var + 1e-5)
              for i = 1, n, 7 do
                local want = 2 * (row[i] - mean) * rstd
                -- the mean is an f32, and so is its difference from an element
                local slack = 4 * rstd * math.abs(mean) * last.f32
                  + math.abs(want) * (2e-5 + 4 * last[dtype]) + 1e-6
                if math.abs(y[k][i] - want) > slack then
                  error(("a row %s, element %d: %.9g, not %.9g"):format(kinds[k][1], i, y[k][i],
                                                                       want))
                end
              end
            end
          end)
        end
      end
    end

    it("variances", function()
      for _, n in ipairs {96, 40000} do
        local x, values = make_rows(n, "f32", device)
        for correction = 0, 1 do
          local got = compiled(function(v)
            return v:var{dims = {2}, correction = correction} * 2
          end, x):tolist()
          local columns = compiled(function(v)
            return v:t():contiguous():var{dims = {1}, correction = correction} * 2
          end, x):tolist()
          for k, row in ipairs(values) do
            local _, var = statistics(row)
            var = 2 * var * n / (n - correction)
            for _, y in ipairs {got[k], columns[k]} do
              assert(math.abs(y - var) <= 1e-5 * var + 1e-9,
                ("a row %s: %.9g, not %.9g"):format(kinds[k][1], y, var))
            end
          end
        end
      end
    end)

    it("computes a group norm again where its gradient reads it", function()
      local x = flare.randn({4, 32, 16, 16}, {device = device}):requires_grad_()
      local w = flare.randn({32 * 256, 8}, {device = device}) * 0.01
      local function step()
        x.grad = nil
        local y = flare.silu(flare.group_norm(x, nil, nil, 8))
        local loss = y:reshape(4, 32 * 256):matmul(w):square():sum()
        loss:backward()
        return loss
      end
      step()
      local want = x.grad:clone()
      local written = {}
      for _, kernel in ipairs(flare.explain(step).kernels) do
        written[kernel.operators:gsub("^matmul%+", "")] = kernel.written -- or behind a product
      end
      -- the result of silu and the statistics; the gradient of the norm's result
      assert.equal(4 * x:numel() + 2 * 4 * 8 * 4, written["group_norm+silu"])
      assert.equal(4 * x:numel(), written["group_norm+silu_backward"])
      local off = (x.grad - want):abs():max():item()
      assert(off <= 1e-5 * want:abs():max():item(), off)
    end)

    it("adds two batch norms of 16-bit floats in one kernel", function()
      local shape = {8, 16, 24, 24}
      local a, b = flare.randn(shape, {dtype = "f64"}), flare.randn(shape, {dtype = "f64"}) * 3 + 1
      local function both(x, y) return (flare.batch_norm(x) + flare.batch_norm(y)):relu() end
      for _, dtype in ipairs {"bf16", "f16"} do
        local x = a:to(dtype):to{layout = "channels_last"}
        local y = b:to(dtype):to{layout = "channels_last"}
        local want = both(x:to "f64", y:to "f64")
        local plan = flare.explain(both, x:to(device), y:to(device))
        assert.equal("batch_norm x2+add+relu", plan.kernels[#plan.kernels].operators)
        assert.equal(3, #plan.kernels) -- statistics, statistics, the rest
        local off = (compiled(both, x:to(device), y:to(device)):to("cpu"):to "f64" - want):abs()
        -- the result is rounded once, and what is added is at most 16 large
        assert(off:max():item() <= 8 * last[dtype], off:max():item())
      end
    end)
  end)
end
