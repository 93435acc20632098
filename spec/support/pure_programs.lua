-- Random functions without side effects but on tensors: operators, views, writes in place to
-- tensors that outlast a call, random numbers, gradients, optimizers. A function is drawn from a
-- seed, and called as it is and compiled with {pure = true}, for other values of its arguments.
local flare = require "flare"

local M = {}

local function stream(seed)
  local state = seed * 2 + 1
  return function(n)
    state = state * 6364136223846793005 + 1442695040888963407
    return (state >> 33) % n + 1
  end
end

local unary = {"tanh", "sigmoid", "relu", "square", "neg", "abs"}

-- Each gives a value from two values of shape (4, 6) and what the function keeps.
local steps = {
  function(draw, a) return a[unary[draw(#unary)]](a) end,
  function(_, a, b) return a + b end,
  function(_, a, b) return a * b * 0.5 end,
  function(draw, a) return a * (draw(8) / 4) - 0.25 end,
  function(_, a) return a:softmax(-1) * 3 end,
  function(_, a) return a - a:mean(2, {keepdim = true}) end,
  function(_, a, b) return a:matmul(b:t()):matmul(b) * 0.05 end,
  function(_, a, _, s) return a:matmul(s.w):tanh() end,
  function(_, a, b) return flare.cat({a:narrow(2, 1, 3), b:narrow(2, 3, 3)}, 2) end,
  function(_, a) return a:t():contiguous():t() end,
  function(_, a) return flare.nn.functional.dropout(a, 0.3) end,
  function(_, a) return a + flare.rand_like(a) end,
  function(_, a, _, s)
    flare.no_grad(function() s.state:mul_(0.9):add_(a) end)
    return a
  end,
  function(_, a, _, s)
    flare.no_grad(function() s.state:narrow(1, 2, 2):mul_(0.5) end)
    return a
  end,
  function(_, a, _, s) return a + s.state:clone() * 0.1 end,
  function(_, a)
    local square = flare.autocast("bf16", function() return a:matmul(a:t()) end)
    return square:to "f32":matmul(a) * 0.05
  end,
}

-- The function, and the tensors that it keeps.
local function make(seed, device)
  flare.manual_seed(seed)
  local draw = stream(seed)
  local s = {
    w = flare.randn(6, 6):to(device):requires_grad_(),
    bias = flare.randn(6):to(device):requires_grad_(),
    state = flare.randn(4, 6):to(device),
  }
  local trains, n, returns = draw(2) == 1, 2 + draw(10), draw(3)
  local class = ({"SGD", "Adam", "RMSprop"})[draw(3)]
  if trains then s.opt = flare.optim[class]({s.w, s.bias}, {lr = 0.01}) end
  local plan = draw(1 << 30)
  local function f(x, y)
    local pick = stream(plan)
    local values = {x, y, x + s.bias}
    for _ = 1, n do
      local step = steps[pick(#steps)]
      local a, b = values[pick(#values)], values[pick(#values)]
      values[#values + 1] = step(pick, a, b, s):clamp(-50, 50)
    end
    local last = values[#values]
    if not trains then
      if returns == 1 then return last, values[#values - 1]:sum() end
      return returns == 2 and last or {last = last, t = last:t()}
    end
    s.opt:zero_grad()
    local loss = (last + s.bias * 0.1):square():mean()
    loss:backward()
    s.opt:step()
    if returns == 1 then return loss:detach() end
    return loss:detach(), last:detach()
  end
  if trains then return f, s end
  return function(...) return flare.no_grad(f, ...) end, s
end

local function same(a, b)
  if flare.is_tensor(a) then
    local bits = a:eq(b):logical_or(a:ne(a):logical_and(b:ne(b)))
    return a.shape == b.shape and bits:all():item()
  elseif type(a) == "table" then
    for k, v in pairs(a) do
      if not same(v, b[k]) then return false end
    end
    return true
  end
  return a == b
end

--- Raises where a pure function gives or leaves behind something else than the function.
-- @return how many calls ran without the code
function M.check(device, first, count)
  local traced = 0
  for seed = first, first + count - 1 do
    local plain, a = make(seed, device)
    local code, b = make(seed, device)
    local pure = flare.compile(code, {pure = true, exact = true})
    local sides, draws = {{f = plain, s = a}, {f = pure, s = b}}, {}
    for call = 1, 8 do
      flare.manual_seed(seed + 1000 * call)
      local wide = call % 3 == 0 and flare.randn(20, 6):to(device) -- arguments that are views
      local x = wide and wide:narrow(1, 1, 4) or flare.randn(4, 6):to(device)
      local y = flare.randn(4, 6):to(device)
      for k, side in ipairs(sides) do
        flare.manual_seed(seed + call)
        side.got = table.pack(side.f(x, y))
        draws[k] = flare.rand(1):item()
      end
      local what = ("function %d on %s, call %d: "):format(seed, device, call)
      assert(draws[1] == draws[2], what .. "other random numbers")
      for i = 1, sides[1].got.n do
        assert(same(sides[1].got[i], sides[2].got[i]), what .. "result " .. i)
      end
      for _, name in ipairs {"w", "bias", "state"} do
        assert(same(a[name], b[name]), what .. name)
        assert(same(a[name].grad or 0, b[name].grad or 0), what .. "gradient of " .. name)
      end
    end
    traced = traced + flare.compile_stats(pure).traced
  end
  return traced
end

return M
