-- Kernels of a plan that become one because a launch reads what both compute.
local flare = require "flare"
local rows = require "spec.support.rows"

local function kernels(f, ...)
  return tonumber(tostring(flare.explain(f, ...)):match "in (%d+) kernel")
end

for _, device in ipairs(rows.devices) do
  describe("a plan on " .. device, function()
    local function random(...) return flare.rand({...}, {device = device}) end

    -- Runs f on the same values eagerly and compiled, twice, and compares everything that it
    -- returns and writes bit for bit.
    local function same(f, make)
      flare.manual_seed(3)
      local eager, compiled = make(), make()
      for k, x in ipairs(eager) do compiled[k]:copy_(x) end
      local g = flare.compile(f, {exact = true})
      for _ = 1, 6 do
        local a, b = {f(table.unpack(eager))}, {g(table.unpack(compiled))}
        for k, x in ipairs(a) do assert.is_true(x:equal(b[k])) end
        for k, x in ipairs(eager) do assert.is_true(x:equal(compiled[k])) end
      end
    end

    local function adam(p, g, m, v)
      m:mul_(0.9):add_(g * 0.1)
      v:mul_(0.999):add_(g * g * 0.001)
      p:sub_(m / 0.5 / ((v / 0.25):sqrt() + 1e-8) * 1e-4)
    end

    it("updates both moments and the parameter of Adam in one kernel", function()
      local _ <close> = flare.no_grad()
      local function make()
        return {random(40, 33), random(40, 33), random(40, 33), random(40, 33)}
      end
      assert.equal(1, kernels(adam, table.unpack(make())))
      same(adam, make)
    end)

    it("joins chains of their own that meet in a sum over rows", function()
      local _ <close> = flare.no_grad()
      local function f(x, y)
        local a, b = x:add_(1), y:mul_(2)
        return (a * b):sum(-1)
      end
      assert.equal(1, kernels(f, random(24, 50), random(24, 50)))
      same(f, function() return {random(24, 50), random(24, 50)} end)
    end)

    it("keeps the order of writes to memory that both kernels read", function()
      local _ <close> = flare.no_grad()
      local function f(x, y)
        local before = x * 3 -- of the old x
        x:add_(y)
        local other = y * 2
        y:sub_(1)
        return before + other, x * y
      end
      same(f, function() return {random(31, 17), random(31, 17)} end)
    end)

    it("computes from the old values of memory that a joined kernel has written", function()
      local _ <close> = flare.no_grad()
      local function f(x, y)
        local a = x:transpose(1, 2) * 2
        x:add_(1) -- must run after the kernel that reads x the other way round
        local b = y + 1
        y:mul_(3)
        return a + b, x - y
      end
      same(f, function() return {random(23, 23), random(23, 23)} end)
    end)
  end)
end
