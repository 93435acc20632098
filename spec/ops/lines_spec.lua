-- Single lines that are long enough to be cut for several threads, against loops in Lua; and
-- copies that turn rows into columns, for every size of element.
local flare = require "flare"
local core = flare.core

-- Numbers with many ties from -500 to 499, in an order of their own.
local function numbers(n)
  local list, state = {}, 12345
  for i = 1, n do
    state = (state * 1103515245 + 12345) & 0x7fffffff
    list[i] = (state >> 8) % 1000 - 500
  end
  return list
end

local N = 140001 -- more than all that is done in one piece
local given = numbers(N)

local function column(values) -- as a line with a stride
  local x = core.zeros({#values, 2}, {dtype = values.dtype})
  x[{{}, 2}] = core.tensor(values, {dtype = values.dtype})
  return x[{{}, 2}]
end

local function differ(got, want)
  local list = got:totable()
  if #list ~= #want then return ("%d elements for %d"):format(#list, #want) end
  for i = 1, #want do
    if list[i] ~= want[i] and (list[i] == list[i] or want[i] == want[i]) then
      return ("at %d: %s, not %s"):format(i, list[i], want[i])
    end
  end
end

local function equal(got, want) assert.is_nil(differ(got, want)) end

describe("a long line", function()
  for _, dtype in ipairs {"f32", "f64", "f16", "bf16", "i64", "i32", "i16"} do
    it("of " .. dtype .. " is sorted, and equals stay in their order", function()
      local small = {}
      -- what bf16 can hold
      for i = 1, N do small[i] = given[i] // 2 end
      for _, descending in ipairs {false, true} do
        local order = {}
        for i = 1, N do order[i] = i end
        table.sort(order, function(a, b)
          local x, y = small[a], small[b]
          if x == y then return a < b end
          if descending then return x > y end
          return x < y
        end)
        local want = {}
        for i = 1, N do want[i] = small[order[i]] end
        local x = core.tensor(small, {dtype = dtype})
        local values, indices = x:sort{descending = descending}
        equal(values, want)
        equal(indices, order)
        for _, k in ipairs {1, 32, 33, 500, 20000} do
          values, indices = x:topk(k, {largest = descending})
          equal(values, table.move(want, 1, k, 1, {}))
          equal(indices, table.move(order, 1, k, 1, {}))
        end
      end
    end)
  end

  it("with a stride is sorted like one without", function()
    local x = core.tensor(given)
    local values, indices = column(given):sort()
    local v, i = x:sort()
    assert.is_true(values:eq(v):all():item() and indices:eq(i):all():item())
  end)

  it("of integers is sorted by all their bits, near each other or far apart", function()
    local low, high, apart = math.mininteger, math.maxinteger, 1 << 32
    for _, list in ipairs {{0, high, low, -1, 1}, {high, high - apart + 1, high - 5},
      {low + apart, low, low + 7}, {5, apart - 1, 0}, {5, apart, 0}, {-3, apart - 4, -2}} do
      local x = core.tensor(list, {dtype = "i64"})
      table.sort(list)
      equal((x:sort()), list)
      table.sort(list, function(a, b) return a > b end)
      equal((x:sort{descending = true}), list)
    end
  end)

  it("is searched among shorter lines, too", function()
    local n, k = 9000, 300
    local x = core.tensor(numbers(5 * n)):view(5, n)
    local values, indices = x:topk(k)
    for row = 1, 5 do
      local v, i = x[row]:sort{descending = true}
      assert.is_true(values[row]:eq(v[{{1, k}}]):all():item())
      assert.is_true(indices[row]:eq(i[{{1, k}}]):all():item())
    end
  end)

  it("with NaNs has them as the greatest", function()
    local list = {table.unpack(given, 1, 1000)}
    for i = 1, N do list[i] = given[i] end
    list[77], list[90001] = 0 / 0, 0 / 0
    local x = core.tensor(list, {dtype = "f64"})
    local _, indices = x:sort{descending = true}
    assert.same({77, 90001}, indices[{{1, 2}}]:totable())
    assert.equal(77, x:argmax():item())
    assert.equal(77, select(2, x:min(1)):item())
    assert.is_true(x:cumsum(1)[N]:isnan():item())
    assert.is_true(x:softmax(1)[1]:isnan():item())
  end)

  for _, dtype in ipairs {"f32", "f64", "i64", "i16", "bf16"} do
    it("of " .. dtype .. " gives its extremes, the first of equals", function()
      for _, at in ipairs {1, 20000, 70001, N - 1} do
        local list = {}
        for i = 1, N do list[i] = given[i] // 4 end
        list[at], list[at + 1] = 200, 200
        list[N + 1 - at // 2] = -200
        local x = core.tensor(list, {dtype = dtype})
        assert.equal(at, x:argmax():item())
        assert.equal(N + 1 - at // 2, x:argmin():item())
        local most, where = x:max(1)
        assert.equal(200, most:item())
        assert.equal(at, where:item())
        local least, there = x:min(1)
        assert.equal(-200, least:item())
        assert.equal(N + 1 - at // 2, there:item())
      end
    end)
  end

  for _, dtype in ipairs {"f32", "f64", "i64", "i32"} do
    it("of " .. dtype .. " has its running sums", function()
      local want, sum = {}, 0
      for i = 1, N do
        sum = sum + given[i]
        want[i] = sum
      end
      equal(core.tensor(given, {dtype = dtype}):cumsum(1), want)
      local two = core.tensor({given, given}, {dtype = dtype}):cumsum(2)
      equal(two[2], want)
    end)
  end

  for _, dtype in ipairs {"f32", "f64"} do
    local slack = dtype == "f32" and 1e-5 or 1e-12
    -- in Lua's doubles
    local function exponentials()
      local sum, y, dot, all = 0, {}, 0, 0
      for i = 1, N do sum = sum + math.exp(given[i] / 100 - 5) end
      for i = 1, N do
        y[i] = math.exp(given[i] / 100 - 5) / sum
        dot, all = dot + y[i] * given[N + 1 - i], all + given[N + 1 - i]
      end
      return y, dot, all, math.log(sum) + 5
    end
    local function near(got, f)
      local list, worst, most = got:totable(), 0, 0
      for i = 1, N do
        local want = f(i)
        worst, most = math.max(worst, math.abs(list[i] - want)), math.max(most, math.abs(want))
      end
      assert.is_true(worst < slack * most, ("off by %g of %g"):format(worst, most))
    end

    it("of " .. dtype .. " has a softmax and a logarithm of it, with gradients", function()
      local y, dot, all, logarithm = exponentials()
      local back = {}
      for i = 1, N do back[i] = given[N + 1 - i] end
      local dy = core.tensor(back, {dtype = dtype})
      local x = core.tensor(given, {dtype = dtype}):div(100):requires_grad_(true)
      local s, l = x:softmax(1), x:log_softmax(1)
      near(s:detach(), function(i) return y[i] end)
      near(l:detach(), function(i) return given[i] / 100 - logarithm end)
      near(flare.grad((s * dy):sum(), x), function(i) return y[i] * (back[i] - dot) end)
      near(flare.grad((l * dy):sum(), x), function(i) return back[i] - y[i] * all end)
    end)
  end

  it("of nothing but -inf has no softmax", function()
    local x = core.full({N}, -math.huge)
    assert.is_true(x:softmax(1):isnan():all():item())
    x[90000] = 3
    local y = x:softmax(1)
    assert.equal(1, y[90000]:item())
    assert.equal(1, y:sum():item())
  end)
end)

describe("a copy that turns rows into columns", function()
  for _, dtype in ipairs {"f64", "f32", "f16", "i64", "i16", "u8", "bool"} do
    it("keeps every element of " .. dtype, function()
      local n = 3 * 70 * 45
      local list = {}
      for i = 1, n do
        list[i] = (i * 7919) % 251
        if dtype == "bool" then list[i] = list[i] % 3 == 0 end
      end
      local x = core.tensor(list, {dtype = dtype}):view(3, 70, 45)
      for _, dims in ipairs {{1, 3, 2}, {3, 1, 2}, {2, 1, 3}, {3, 2, 1}, {2, 3, 1}} do
        local y = x:permute(table.unpack(dims)):contiguous()
        assert.is_true(y:is_contiguous())
        local got, sizes, at = y:view(-1):totable(), y.shape, 0
        local strides = {70 * 45, 45, 1}
        for a = 0, sizes[1] - 1 do
          for b = 0, sizes[2] - 1 do
            for c = 0, sizes[3] - 1 do
              at = at + 1
              local from = 1 + a * strides[dims[1]] + b * strides[dims[2]] + c * strides[dims[3]]
              if got[at] ~= list[from] then
                error(("%s: element %d, %d, %d is %s, not %s"):format(table.concat(dims, " "),
                  a + 1, b + 1, c + 1, got[at], list[from]))
              end
            end
          end
        end
      end
    end)
  end
end)
