-- Third derivatives of elementwise rows, against differences of their second ones: the second are
-- against differences in spec/ops. What cannot be differentiated so often is in refusals_spec.lua.
local flare = require "flare"
local gradcheck = require "flare.gradcheck"
local gradients = require "spec.support.gradients"
local rows = require "spec.support.rows"

local refused = {gamma_da = true, gamma_daa = true, igamma = true, igammac = true}

-- The gradients of a function of tensors, of which those at `positions` are differentiated, as such
-- a function.
local function derivative(f, positions)
  return function(...)
    local given = {...}
    local _ <close> = flare.enable_grad()
    local leaves = {}
    for k, i in ipairs(positions) do
      leaves[k] = given[i].requires_grad and given[i] or given[i]:detach():requires_grad_(true)
      given[i] = leaves[k]
    end
    local y = f(table.unpack(given))
    if not y.requires_grad then return flare.zeros(1, {dtype = "f64"}) end
    local out = {}
    local all = table.pack(flare.grad(y:sum(), leaves, {create_graph = true, allow_unused = true}))
    for k = 1, #leaves do out[#out + 1] = all[k] end
    return table.unpack(out)
  end
end

local function check(row, sample)
  local f, inputs, positions = gradients.prepared(row, sample)
  if #positions == 0 then return end
  local ok, why = gradcheck.gradgradcheck(derivative(f, positions), inputs, positions)
  if not ok and why ~= "the gradient cannot be differentiated"
    and why ~= "no result requires a gradient" then
    rows.fail(row, sample, "third gradient", "%s", why)
  end
end

describe("the third derivative of", function()
  for _, family in ipairs{"math", "elementwise"} do
    for name, list in pairs(require("spec.support.samples." .. family)) do
      local row = rows.rows[name]
      if row.differentiable and not refused[name] then
        it(name, function()
          local accepted = rows.accepted(list)
          for k = 1, math.min(3, #accepted) do check(row, accepted[k]) end
        end)
      end
    end
  end
end)

-- By a, a and x; by a three times it is refused.
it("the third derivative of the gamma functions is there by x", function()
  local a = flare.tensor({0.3, 1.5, 3, 40, 2}, {dtype = "f64"})
  local x = flare.tensor({0.7, 1.0, 2.2, 43, 0.1}, {dtype = "f64"})
  assert(gradcheck.gradcheck(function(t) return flare.gamma_daa(a, t) end, {x}, {1}))
  assert(gradcheck.gradgradcheck(function(t) return flare.gamma_daa(a, t) end, {x}, {1}))
  local zero = flare.zeros(2, {dtype = "f64", requires_grad = true})
  assert.same({0, 0}, flare.grad(flare.gamma_daa(a[{{1, 2}}], zero):sum(), {zero}):totable())
end)

describe("derivatives of any order", function()
  local x = flare.tensor({0.3, 0.7}, {dtype = "f64"})

  it("are those of sin and exp, for every float", function()
    for _, dtype in ipairs{"f64", "f32", "bf16"} do
      local leaf = x:to(dtype):requires_grad_(true)
      local y, z = leaf:sin():sum(), leaf:exp():sum()
      local first = y:detach()
      for order = 1, 8 do
        y = flare.grad(y, {leaf}, {create_graph = true}):sum()
        z = flare.grad(z, {leaf}, {create_graph = true}):sum()
        assert(z:sub(leaf:exp():sum()):abs():item() < 0.05, dtype .. " " .. order)
      end
      assert(y:sub(first):abs():item() < 0.05, dtype)
    end
  end)

  it("come by hessian of a hessian, and by forward mode of gradients", function()
    local function hessian(a)
      return flare.hessian(function(b) return b:exp():sum() end, a, {create_graph = true}):sum()
    end
    local fourth = flare.hessian(hessian, x)
    assert(fourth:sub(x:exp():diag()):abs():max():item() < 1e-12)
    local function gradient(a)
      a = a.requires_grad and a or a:detach():requires_grad_(true)
      return flare.grad(a:exp():sum(), {a}, {create_graph = true})
    end
    local v = flare.tensor({1, 2}, {dtype = "f64"})
    local _, along = flare.jvp(gradient, x, v)
    assert(along:sub(x:exp() * v):abs():max():item() < 1e-12)
    local _, hv = flare.hvp(function(a) return gradient(a):sum() end, x, v)
    assert(hv:sub(x:exp() * v):abs():max():item() < 1e-12)
  end)

  it("come inside vmap", function()
    local third = flare.vmap(function(a)
      a = a:detach():requires_grad_(true)
      local y = a:tanh()
      for _ = 1, 3 do y = flare.grad(y, {a}, {create_graph = true}) end
      return y
    end)
    local s = x:tanh():square()
    local expected = (s - 1) * (s * -6 + 2)
    assert(third(x):sub(expected):abs():max():item() < 1e-12)
  end)

  it("come on the simulated device", function()
    local a = x:to("sim:0"):detach():requires_grad_(true)
    local y = a:sigmoid():sum()
    for _ = 1, 3 do y = flare.grad(y, {a}, {create_graph = true}):sum() end
    local s = x:sigmoid()
    local expected = (s * (1 - s) * (s * s * 6 - s * 6 + 1)):sum()
    assert(math.abs(y:item() - expected:item()) < 1e-12)
  end)
end)
