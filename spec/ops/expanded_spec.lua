-- Reductions of expanded tensors: the values of the copy, without the copy's memory.
local flare = require "flare"

local names = {"sum", "mean", "prod", "amax", "amin", "any", "all", "count_nonzero", "var",
               "logsumexp"}
local floats = {var = true, logsumexp = true}

local function near(want, got, what)
  want, got = want:to("f64"):flatten():totable(), got:to("f64"):flatten():totable()
  assert.equal(#want, #got)
  for k = 1, #want do
    local w, g = want[k], got[k]
    local close = w == g or (w ~= w and g ~= g) or math.abs(w - g) <= 1e-5 * math.abs(w)
    assert(close, ("%s: %g, not %g"):format(what, g, w))
  end
end

-- Views that repeat elements, with the shape {3, 4, 5}.
local function views(dtype, device)
  local function made(list) return flare.tensor(list, {device = device}):to(dtype) end
  local base, row = made {{3, 1}, {-2, 7}, {2, 5}}, made {2, -1, 3, 1}
  return {
    one = base[{1, 1}]:view(1, 1, 1):expand(3, 4, 5),
    first = base:select(2, 1):view_as(row:narrow(1, 1, 3)):view(3, 1, 1):expand(3, 4, 5),
    stepped = base:select(2, 2):unsqueeze(2):unsqueeze(3):expand(3, 4, 5),
    middle = row:view(1, 4, 1):expand(3, 4, 5),
    last = row:view(1, 1, 4):expand(5, 3, 4):permute(2, 3, 1),
    turned = row:view(4, 1):expand(4, 3):t():unsqueeze(3):expand(3, 4, 5),
    two = made {{1, 2, 3, 4}, {0, -1, 2, 5}, {7, 7, 2, 1}}:unsqueeze(3):expand(3, 4, 5),
    back = row:flip(1):view(1, 4, 1):expand(3, 4, 5),
  }
end

for _, device in ipairs {"cpu", "sim:0"} do
  describe("reductions of expanded tensors on " .. device, function()
    it("are those of a copy", function()
      for _, dtype in ipairs {"f32", "f64", "bf16", "i64", "u8", "bool"} do
        for name, x in pairs(views(dtype, device)) do
          local copy = x:copy()
          for _, op in ipairs(names) do
            if not floats[op] or dtype:find "f%d" then
              for _, dims in ipairs {{}, {1}, {2}, {3}, {1, 2}, {2, 3}, {1, 3}, {1, 2, 3}} do
                local what = ("%s of %s %s {%s}"):format(op, dtype, name, table.concat(dims, ","))
                near(copy[op](copy, dims), x[op](x, dims), what)
              end
            end
          end
          if dtype:find "f%d" then
            for _, p in ipairs {0, 1, 2, 3, math.huge, -math.huge} do
              near(copy:norm(p, {1, 2}), x:norm(p, {1, 2}), "norm " .. name)
              near(copy:norm(p), x:norm(p), "norm " .. name)
            end
          end
          for _, op in ipairs {"argmax", "argmin"} do
            near(copy[op](copy), x[op](x), op .. " " .. name)
            for d = 1, 3 do
              near(copy[op](copy, d), x[op](x, d), op .. " " .. name)
              near(copy[op](copy, d, true), x[op](x, d, true), op .. " " .. name)
            end
          end
          for d = 1, 3 do
            local v, i = copy:max(d)
            local w, j = x:max(d)
            near(v, w, "max " .. name)
            near(i, j, "max " .. name)
          end
        end
      end
    end)

    it("know NaN, infinities and empty dims", function()
      local o = {device = device}
      for _, value in ipairs {0 / 0, math.huge, -math.huge, -0.0} do
        local x = flare.full({1}, value, o):expand(6)
        for _, op in ipairs(names) do near(x:copy()[op](x:copy()), x[op](x), op) end
      end
      assert.equal(0, flare.ones({1, 0}, o):expand(5, 0):sum():item())
      assert.same({0, 0}, flare.ones({1, 0}, o):expand(2, 0):sum(2):totable())
    end)

    it("take no memory for repeated elements", function()
      local o = {device = device}
      local column = flare.ones({2048, 2}, o):select(2, 1):unsqueeze(2)
      local row = flare.ones({1, 2048}, o)
      local wide = {flare.ones({1}, o):expand(1 << 30), row:expand(1 << 18, 2048),
                    column:expand(2048, 1 << 18),
                    row:t():expand(2048, 1 << 18)}
      for _, x in ipairs(wide) do
        for _, op in ipairs {"sum", "mean", "amax", "any", "var", "norm", "argmax", "argmin"} do
          flare.memory.reset_peak(device)
          local before = flare.memory.stats(device).peak
          local y = x[op](x):item()
          local took = flare.memory.stats(device).peak - before
          assert(took < 1 << 20, ("%s of %s took %d bytes"):format(op, x.shape, took))
          if op == "sum" then assert.equal(x:numel(), y) end
        end
      end
    end)
  end)
end
