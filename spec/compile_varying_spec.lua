-- Compiled functions whose calls keep coming with new shapes: they end at once, and say so.
local tree = require "spec.support.tree"

describe("a compiled function whose shapes vary", function()
  local path = os.tmpname()
  teardown(function() os.remove(path) end)

  -- What the script prints, and the lines that flare writes to stderr.
  local function run(text)
    local f <close> = assert(io.open(path, "w"))
    f:write('local flare = require "flare"\n', text)
    f:flush()
    local out = tree.output(("FLARE_COMPILE= %s/flare %s 2>&1"):format(tree.build, path))
    local warnings = {}
    out = out:gsub("flare: ([^\n]* compile: [^\n]*)\n", function(line)
      warnings[#warnings + 1] = line
      return ""
    end)
    return out, warnings
  end

  local warning = (": compile: calls of this function keep coming with new shapes or operators, so"
    .. " from now on it runs without compilation; pad its tensors to a few sizes, or compile a"
    .. " part whose shapes recur")
  local function line(n) return path:match "[^/]*$" .. ":" .. n .. warning end
  local function names(n, warnings)
    assert.equal(1, #warnings, table.concat(warnings, "\n"))
    assert.equal(line(n), warnings[1]:match "[^/]*$")
  end

  it("ends without compilation after 10^5 shapes, with one warning and no memory", function()
    local out, warnings = run [[
      local function resident()
        local f <close> = assert(io.open "/proc/self/statm")
        return tonumber(f:read "a":match "%d+ (%d+)") * 4096
      end
      local f = flare.compile(function(x)
        return (x + 1) * x
      end)
      local numbers, n, middle = flare.ones(100000), 0, nil
      for a = 10, 1, -1 do for b = 1, 10 do for c = 1, 10 do for d = 1, 10 do for e = 1, 10 do
        local y = f(numbers:narrow(1, 1, a * b * c * d * e):view(a, b, c, d, e))
        n = n + 1
        if n % 5000 == 0 then assert(y:size(5) == e and y:eq(2):all():item()) end
        if n == 20000 then middle = resident() end
      end end end end end
      assert(resident() - middle < 2 << 20, "memory grows")
      local s = flare.compile_stats(f)
      print(n, s.off, s.windows, s.plans)
    ]]
    assert.equal("100000\ttrue\t64\t0\n", out)
    names(6, warnings)
  end)

  it("names a module by the line of the call, pure functions by their own", function()
    local out, warnings = run [[
      local model = flare.compile(flare.nn.Sequential(flare.nn.Linear(4, 4), flare.nn.GELU()))
      for n = 1, 200 do
        model(flare.ones(n, 4)) -- line 4
      end
      local count = 0
      local pure = flare.compile(function(x) -- line 7
        count = count + 1
        return x * 2 + 1
      end, {pure = true})
      for n = 1, 200 do assert(pure(flare.ones(n)):sum():item() == 3 * n) end
      print(flare.compile_stats(pure).off, flare.compile_stats(model).off, count)
    ]]
    assert.equal("true\ttrue\t200\n", out)
    assert.equal(2, #warnings)
    names(4, {warnings[1]})
    names(7, {warnings[2]})
  end)

  -- {what it is, lengths, calls, whether it ends}: a plan lasts while it is among the last 32
  for _, case in ipairs {
    {"hardly recur", 100, 1500, true},
    {"are few", 20, 1500, false},
    {"come in pairs", 100000, 400, true, 2},
  } do
    it((case[4] and "ends" or "goes on") .. " where they " .. case[1], function()
      local out, warnings = run(([[
        local f = flare.compile(function(x)
          return (x + 1) * x
        end)
        local x, seed, n = flare.ones({1000, 100}, {device = "sim:0"}), 1, nil
        for k = 1, %d do
          if (k - 1) %% %d == 0 then
            seed = (seed * 1103515245 + 12345) %% 2147483648
            n = (seed >> 8) %% %d + 1
          end
          local y = f(x:narrow(1, 1, n %% 1000 + 1):narrow(2, 1, n // 1000 + 1))
          assert(k %% 100 > 0 or y:eq(2):all():item())
        end
        print(flare.compile_stats(f).off)
      ]]):format(case[3], case[5] or 1, case[2]))
      assert.equal(tostring(case[4]) .. "\n", out)
      assert.equal(case[4] and 1 or 0, #warnings, out)
    end)
  end

  it("goes on if it ends with an error, or in coroutines that nothing resumes", function()
    local out, warnings = run [[
      local f = flare.compile(function(x, how)
        local y = x * 2 + 1
        if how == "error" then error("no", 0) end
        if how == "yield" then coroutine.yield(y) end
        return y
      end)
      for n = 1, 300 do
        local x = flare.ones(n)
        if n % 3 == 0 then assert(not pcall(f, x, "error"))
        elseif n % 3 == 1 then assert(coroutine.wrap(f)(x, "yield"):sum():item() == 3 * n)
        else assert(f(x):sum():item() == 3 * n) end
      end
      collectgarbage()
      assert(f(flare.ones(7)):sum():item() == 21)
      print(flare.compile_stats(f).off)
    ]]
    assert.equal("true\n", out)
    assert.is_true(#warnings <= 1)
  end)
end)
