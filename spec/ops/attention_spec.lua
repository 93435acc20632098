-- Attention and recurrent cells; and attention and LSTMs of lengths and sizes that devices have
-- kernels of their own for, against the CPU in f64.
require "spec.support.declare"("attention", describe, it)

local flare = require "flare"
local rows = require "spec.support.rows"

-- Head size, queries, keys, options. Rounding of the weights counts, so it is the results'
-- largest value that an error is measured by.
local cases = {
  {64, 130, 130, causal = true}, {128, 200, 140}, {128, 140, 200, causal = true, shared = 2},
  {40, 70, 300, columns = 72}, {64, 200, 96, mask = "bool"}, {128, 96, 200, mask = "f32"},
  {64, 129, 132, dropout = 0.3}, {128, 100, 70, dropout = 0.3, causal = true},
  {96, 60, 90, causal = true}, {192, 70, 66}, {256, 33, 65, mask = "bool", dropout = 0.2},
  {13, 20, 35, columns = 7}, {64, 1, 1500, shared = 4}, {300, 20, 20, causal = true},
  {64, 80, 90, scale = -0.2}, {64, 380, 260, mask = "keys", dropout = 0.2},
  {128, 150, 300, mask = "turned"}, {64, 140, 260, mask = "heads", causal = true, shared = 2},
  {128, 3, 700, mask = "bool"}, {256, 2, 90, mask = "f32"}, {40, 4, 300, columns = 72},
  {64, 1, 77, mask = "keys", shared = 2}, {128, 4, 200, causal = true, scale = -0.3},
  {128, 100, 130, mask = "queries", dropout = 0.1}, {64, 200, 96, mask = "keys", scale = -0.1},
}
local tolerance = {f64 = 1e-11, f32 = 3e-5, f16 = 5e-3, bf16 = 3e-2}

local function leaf(x, device, dtype)
  x = x:to(device):to(dtype):clone()
  x.requires_grad = true
  return x
end

local function inputs(c, dtype)
  local g = flare.generator(3)
  local function draw(...) return flare.randn({...}, {generator = g}):to(dtype) end
  local d, nq, nk, heads = c[1], c[2], c[3], 2 * (c.shared or 1)
  local t = {q = draw(1, heads, nq, d), k = draw(1, 2, nk, d), v = draw(1, 2, nk, c.columns or d),
             dy = draw(1, heads, nq, c.columns or d)}
  local shapes = {bool = {nq, nk}, keys = {1, 1, 1, nk}, queries = {1, heads, nq, 1},
                  heads = {1, heads, nq, nk}, turned = {nk, nq}}
  if shapes[c.mask] then
    t.mask = flare.rand(shapes[c.mask], {generator = g}):gt(0.3)
    if c.mask == "turned" then t.mask = t.mask:transpose(1, 2) end
  elseif c.mask then
    t.mask = flare.randn({1, heads, 1, nk}, {generator = g})
  end
  return t
end

local function run(c, t, device, dtype)
  local q, k, v = leaf(t.q, device, dtype), leaf(t.k, device, dtype), leaf(t.v, device, dtype)
  local y = flare.attention(q, k, v, t.mask and t.mask:to(device), {
    causal = c.causal or false, dropout = c.dropout or 0, scale = c.scale,
    generator = c.dropout and flare.generator(8) or nil})
  y:backward(t.dy:to(device):to(dtype))
  return {y = y:detach(), dq = q.grad, dk = k.grad, dv = v.grad}
end

describe("attention of any length", function()
  for _, device in ipairs(rows.devices) do
    for _, dtype in ipairs {"f64", "f32", "f16", "bf16"} do
      it(("is what f64 gives, %s in %s"):format(device, dtype), function()
        for _, c in ipairs(cases) do
          local t = inputs(c, dtype)
          local want, got = run(c, t, "cpu", "f64"), run(c, t, device, dtype)
          for name, w in pairs(want) do
            local off = (got[name]:to("cpu"):to("f64") - w):abs():max():item()
            local most = tolerance[dtype] * w:abs():max():item()
            assert(off <= most, ("%s of size %d, %d queries, %d keys: off by %g, not %g")
              :format(name, c[1], c[2], c[3], off, most))
          end
        end
      end)
    end
  end
end)

-- time, batch, n; from the last time to the first
local sequences = {{12, 3, 128}, {5, 17, 70, true}, {3, 64, 256}, {2, 24, 512}, {2, 130, 40, true},
                   {2, 2, 1200}, {9, 8, 33}}

local function lstm(s, t, device, dtype)
  local x = {}
  for i = 1, 4 do x[i] = leaf(t[i], device, dtype) end
  local y, cs = flare.lstm(x[1], x[2], x[3], x[4], {reverse = s[4] or false})
  local dy = {t[5]:to(device):to(dtype), t[6]:to(device):to(dtype)}
  local dx = table.pack(flare.grad({y, cs}, x, {gradient = dy}))
  return {y = y:detach(), cs = cs:detach(), gates = dx[1], weight = dx[2], h = dx[3], c = dx[4]}
end

local function gru(s, t, device, dtype)
  local x = {}
  for i = 1, 4 do x[i] = leaf(t[i], device, dtype) end
  local y = flare.gru(x[1], x[2], x[3], x[4], {reverse = s[4] or false})
  local dx = table.pack(flare.grad({y}, x, {gradient = {t[5]:to(device):to(dtype)}}))
  return {y = y:detach(), gates = dx[1], weight = dx[2], bias = dx[3], h = dx[4]}
end

describe("an LSTM or a GRU of any size", function()
  local function check(run_one, s, t, device, dtype)
    local want, got = run_one(s, t, "cpu", "f64"), run_one(s, t, device, dtype)
    for name, w in pairs(want) do
      local off = (got[name]:to("cpu"):to("f64") - w):abs():max():item()
      local most = tolerance[dtype] * w:abs():max():item()
      assert(off <= most, ("%s of %d x %d x %d: off by %g, not %g")
        :format(name, s[1], s[2], s[3], off, most))
    end
  end
  for _, device in ipairs(rows.devices) do
    for _, dtype in ipairs {"f64", "f32", "f16", "bf16"} do
      it(("is what f64 gives, %s in %s"):format(device, dtype), function()
        local g = flare.generator(4)
        local function draw(scale, ...)
          return (flare.randn({...}, {generator = g}) * scale):to(dtype)
        end
        for _, s in ipairs(sequences) do
          local time, batch, n = table.unpack(s)
          local t = {draw(1, time, batch, 4 * n), draw(n ^ -0.5, 4 * n, n), draw(0.5, batch, n),
                     draw(1, batch, n), draw(1, time, batch, n), draw(1, time, batch, n)}
          check(lstm, s, t, device, dtype)
          t = {draw(1, time, batch, 3 * n), draw(n ^ -0.5, 3 * n, n), draw(1, 3 * n),
               draw(0.5, batch, n), t[5]}
          check(gru, s, t, device, dtype)
        end
      end)
    end
  end
end)

describe("attention of heads that are slices of rows", function()
  -- (batch, heads, rows, size), lying as (batch, rows, heads, size)
  local function heads(rows_, count, size, device, dtype)
    local x = flare.randn({2, rows_, count, size}, {generator = flare.generator(rows_)})
    return x:to(device):to(dtype):transpose(2, 3)
  end
  local function run_one(q, k, v, dy)
    local leaves = {q:requires_grad_(true), k:requires_grad_(true), v:requires_grad_(true)}
    local y = flare.attention(q, k, v)
    return y, flare.grad((y * dy):sum(), leaves)
  end

  it("gives heads that are joined once they are back in their rows", function()
    local x = heads(70, 6, 8, "cpu", "f32")
    local y = flare.attention(x, x, x)
    local ok, text = pcall(y.view, y, 2, 6 * 70 * 8)
    assert.is_false(ok)
    assert.matches("view: a tensor of shape (2, 6, 70, 8) with strides (3360, 8, 48, 1) cannot be "
      .. "seen as (2, 3360) without a copy: use reshape", text, 1, true)
    assert.same(y:reshape(2, 6 * 70 * 8):tolist(), y:contiguous():view(2, 6 * 70 * 8):tolist())
    assert.same({2, 70, 48}, {table.unpack(y:transpose(2, 3):view(2, 70, 48).shape)})
  end)

  for _, device in ipairs(rows.devices) do
    for _, dtype in ipairs {"f64", "f32", "bf16"} do
      for _, size in ipairs {64, 24} do
        local name = "computes the same on strided inputs, %s in %s of %d"
        it(name:format(device, dtype, size), function()
          for _, queries in ipairs {1, 70} do
            local t = {heads(queries, 6, size, device, dtype), heads(90, 3, size, device, dtype),
              heads(91, 3, size, device, dtype):narrow(3, 1, 90),
              heads(queries, 6, size, device, dtype)}
            local y, dq, dk, dv = run_one(t[1]:detach(), t[2]:detach(), t[3]:detach(), t[4])
            assert.is_true(y:transpose(2, 3):is_contiguous())
            for i = 1, 4 do t[i] = t[i]:contiguous() end
            local want = {run_one(table.unpack(t))}
            assert.is_true(want[1]:is_contiguous())
            for i, got in ipairs {y, dq, dk, dv} do
              local off = (got - want[i]):abs():max():item()
              assert(off <= tolerance[dtype] * want[i]:abs():max():item(), off)
            end
          end
        end)
      end
    end
  end
end)
