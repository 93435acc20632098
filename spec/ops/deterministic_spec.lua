-- With flare.backends{deterministic = true} every run gives the same bits, and they are right:
-- gradients and sums where devices could add in any order.
local flare = require "flare"
local rows = require "spec.support.rows"

local function draw(seed, ...) return flare.randn({...}, {generator = flare.generator(seed)}) end

local function places(n, most)
  return flare.rand({n}, {generator = flare.generator(9)}):mul(most):floor():to "i64":add(1)
end

-- The gradients of f's inputs for a fixed gradient of its result.
local function gradients(f, inputs, device, dtype)
  local leaves = {}
  for k, x in ipairs(inputs) do
    leaves[k] = x:to(device):to(dtype):clone()
    leaves[k].requires_grad = true
  end
  local y = f(table.unpack(leaves))
  y:backward(draw(4, table.unpack(y.shape, 1, y:dim())):to(device):to(dtype))
  local all = {}
  for k, x in ipairs(leaves) do all[k] = x.grad end
  return all
end

local function attention(causal)
  return function(q, k, v) return flare.attention(q, k, v, {causal = causal}) end
end

local function table_of(device)
  local at = places(6000, 17):to(device)
  return function(w) return flare.embedding(w, at) end
end

-- name, dtype, f(device) -> tensors
local cases = {
  {"scatter_add", "f32", function(device, dtype)
    local x = flare.zeros({40}, {dtype = dtype, device = device})
    return {x:scatter_add(1, places(20000, 40):to(device), draw(1, 20000):to(device):to(dtype))}
  end},
  {"scatter_add of 16 bits", "bf16", function(device, dtype)
    local x = flare.zeros({3, 40}, {dtype = dtype, device = device})
    local at = places(6000, 40):reshape(3, 2000):to(device)
    return {x:scatter_add(2, at, draw(1, 3, 2000):to(device):to(dtype))}
  end},
  {"index_add", "f32", function(device, dtype)
    local x = flare.zeros({20, 33}, {dtype = dtype, device = device})
    return {x:index_add(1, places(5000, 20):to(device), draw(1, 5000, 33):to(device):to(dtype))}
  end},
  {"embedding backward", "f32", function(device, dtype)
    return gradients(table_of(device), {draw(1, 17, 24)}, device, dtype)
  end},
  {"max_pool backward", "f32", function(device, dtype)
    return gradients(function(x)
      return x:max_pool{kernel = {5, 5}, stride = {1, 1}, padding = {2, 2}}
    end, {draw(1, 2, 3, 40, 40)}, device, dtype)
  end},
  {"max_pool backward of 16 bits", "f16", function(device, dtype)
    return gradients(function(x) return x:max_pool{kernel = {7}, stride = {2}} end,
      {draw(1, 2, 3, 500)}, device, dtype)
  end},
  {"attention backward", "bf16", function(device, dtype)
    return gradients(attention(false), {draw(1, 1, 2, 400, 64), draw(2, 1, 2, 300, 64),
      draw(3, 1, 2, 300, 64)}, device, dtype)
  end},
  {"causal attention backward", "f16", function(device, dtype)
    return gradients(attention(true), {draw(1, 1, 4, 260, 128), draw(2, 1, 2, 260, 128),
      draw(3, 1, 2, 260, 128)}, device, dtype)
  end},
  {"conv backward", "f32", function(device, dtype)
    return gradients(function(x, w) return x:conv(w, {padding = {1, 1}}) end,
      {draw(1, 4, 8, 20, 20), draw(2, 16, 8, 3, 3)}, device, dtype)
  end},
  {"a product", "f32", function(device, dtype)
    return {draw(1, 300, 700):to(device):to(dtype):matmul(draw(2, 700, 200):to(device):to(dtype))}
  end},
}

local tolerance = {f32 = 2e-5, f16 = 5e-3, bf16 = 3e-2}

describe("deterministic", function()
  local before
  setup(function() before = flare.backends{} flare.backends{deterministic = true} end)
  teardown(function() flare.backends(before) end)

  for _, c in ipairs(cases) do
    local name, dtype, run = c[1], c[2], c[3]
    it(name .. " gives the same bits each time", function()
      local exact = run("cpu", "f64")
      for _, device in ipairs(rows.devices) do
        local first = run(device, dtype)
        for _ = 1, device:find "^cuda" and 20 or 1 do
          for k, x in ipairs(run(device, dtype)) do
            assert.is_true(x:eq(first[k]):all():item(), device .. ": other bits in " .. k)
          end
        end
        for k, x in ipairs(first) do
          local most = exact[k]:abs():max():item()
          local error = (x:to "cpu":to "f64" - exact[k]):abs():max():item() / most
          assert(error < tolerance[dtype], ("%s: %d is %g off"):format(device, k, error))
        end
      end
    end)
  end
end)
