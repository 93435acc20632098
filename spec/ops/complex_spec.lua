-- Complex tensors: what makes them, what other rows do with them, what they refuse.
local flare = require "flare"
local gradcheck = require "flare.gradcheck"
local rows = require "spec.support.rows"

require "spec.support.declare"("complex", describe, it)

local function random(shape, seed)
  return flare.randn({shape[1], shape[2], 2}, {dtype = "f64", generator = flare.generator(seed)})
end

-- Numbers as {re, im}, in row order.
local function list(x)
  return x:to "cpu":contiguous():view_as_real():reshape(-1, 2):tolist()
end

local arithmetic = {
  add = function(a, b) return a[1] + b[1], a[2] + b[2] end,
  sub = function(a, b) return a[1] - b[1], a[2] - b[2] end,
  mul = function(a, b) return a[1] * b[1] - a[2] * b[2], a[1] * b[2] + a[2] * b[1] end,
  div = function(a, b)
    local d = b[1] ^ 2 + b[2] ^ 2
    return (a[1] * b[1] + a[2] * b[2]) / d, (a[2] * b[1] - a[1] * b[2]) / d
  end,
}

local function close(got, want, room)
  assert.equal(#want, #got)
  for k = 1, #want do
    for part = 1, 2 do
      local off = math.abs(got[k][part] - want[k][part])
      assert(off <= (room or 1e-13) * (1 + math.abs(want[k][part])),
        ("number %d: %.17g should be %.17g"):format(k, got[k][part], want[k][part]))
    end
  end
end

for _, device in ipairs(rows.devices) do
  describe("complex numbers on " .. device, function()
    local a = random({3, 4}, 1):to(device):view_as_complex()
    local b = random({3, 4}, 2):to(device):view_as_complex()

    for name, f in pairs(arithmetic) do
      it("have " .. name, function()
        local function expected(x, y)
          local out = {}
          for k, v in ipairs(x) do out[k] = {f(v, y[k] or y[1])} end
          return out
        end
        local op = flare.core.ops[name]
        close(list(op(a, b)), expected(list(a), list(b)))
        close(list(op(a, b:transpose(1, 2):clone():transpose(1, 2))), expected(list(a), list(b)))
        local real = b:real()
        local as_complex = flare.complex(real, real * 0)
        close(list(op(a, real)), list(op(a, as_complex)))
        close(list(op(real, a)), list(op(as_complex, a)))
        close(list(op(a, 3)), expected(list(a), {{3, 0}}))
        close(list(op(2.5, a)), list(op(flare.full({3, 4}, 2.5, {device = device}):to "c128", a)))
        local row = a[1]
        close(list(op(a, row)), list(op(a, row:unsqueeze(1):expand(3, 4):contiguous())))
        local single = op(a:to "c64", b:to "c64")
        assert.equal("c64", single.dtype)
        close(list(single), list(op(a, b)), 1e-5)
        local x = a:clone()
        x[name .. "_"](x, b)
        close(list(x), list(op(a, b)))
      end)
    end

    it("have products of matrices", function()
      local p, q = a:matmul(b:transpose(1, 2)), a:real():matmul(b:real():transpose(1, 2))
        - a:imag():matmul(b:imag():transpose(1, 2))
      assert(((p:real() - q):abs():max()):item() < 1e-13)
      local r = a:imag():matmul(b:real():transpose(1, 2))
        + a:real():matmul(b:imag():transpose(1, 2))
      assert(((p:imag() - r):abs():max()):item() < 1e-13)
    end)

    it("have functions", function()
      local e = a:exp()
      close(list(e:log():exp()), list(e))
      close(list(a:reciprocal() * a), list(a * 0 + 1))
      close(list(a:square()), list(a * a))
      close(list(-a), list(a * -1))
      local size = a:abs()
      assert.equal("f64", size.dtype)
      close(list(flare.polar(size, a:angle())), list(a))
      assert.is_true(a:eq(a):all():item())
      assert.is_false(a:eq(b):any():item())
      assert.is_true(a:ne(b):all():item())
    end)

    it("are divided without overflow", function()
      local x = flare.complex(flare.tensor{1e30, 1e-30}, flare.tensor{1e30, 1e-30}):to(device)
      close(list(x / x), {{1, 0}, {1, 0}}, 1e-6)
      assert(x:abs():isfinite():all():item())
    end)

    it("are summed, moved and picked", function()
      local pairs_of = function(x) return x:contiguous():view_as_real() end
      local function same(x, y)
        assert.equal(tostring(y.shape), tostring(pairs_of(x).shape))
        assert(x:numel() == 0 or (pairs_of(x) - y):abs():max():item() < 1e-13)
      end
      local p = pairs_of(a)
      same(a:sum(), p:sum{dims = {1, 2}})
      same(a:sum(-1), p:sum(2))
      same(a:mean(1), p:mean(1))
      same(a:cumsum(2), p:cumsum(2))
      local one = a[{1, 1}]
      for _, y in ipairs {one:cumsum(-1), one:flip{1}, one:sum(1), one:mean()} do
        same(y, pairs_of(one))
        assert.is_false(y:shares(one))
      end
      same(flare.cat({a, b}, -1), flare.cat({p, pairs_of(b)}, 2))
      same(flare.stack({a, b}, 1), flare.stack({p, pairs_of(b)}, 1))
      same(a:flip(-1), p:flip(2))
      same(a["repeat"](a, 2, 1), p["repeat"](p, 2, 1, 1))
      same(a[{{1, 2}, {2, 4, 2}}], p[{{1, 2}, {2, 4, 2}}])
      local index = flare.tensor({3, 1, 1}, {dtype = "i64"}):to(device)
      same(a:index_select(1, index), p:index_select(1, index))
      same(a[index], p[index])
      local mask = a:real():gt(0)
      same(a[mask], p[mask])
      same(flare.where(mask, a, b), flare.where(mask:unsqueeze(-1), p, pairs_of(b)))
      same(a:tril(), p:permute(3, 1, 2):tril():permute(2, 3, 1))
      same(a:t():contiguous(), p:transpose(1, 2))
      same(a:clone(), p)
      same(a:to "cpu":to(device), p)
      same(a:reshape(2, 6), p:reshape(2, 6, 2))
    end)

    it("are written", function()
      local x = a:clone()
      x[1] = 2
      x[{2, 3}] = b[{2, 3}]
      x[{3, {1, 2}}] = flare.ones({2}, {device = device})
      local v = list(x)
      close({v[1], v[7], v[9], v[12]}, {{2, 0}, list(b)[7], {1, 0}, list(a)[12]})
      x:fill_(3)
      close(list(x), list(a * 0 + 3))
      x:zero_()
      assert.equal(0, x:abs():sum():item())
    end)
  end)
end

describe("complex tensors", function()
  it("are shown, listed and saved", function()
    local x = flare.complex(flare.tensor{1, -2.5}, flare.tensor{-1, 0.25})
    assert.equal("[      1-1i, -2.5+0.25i]\nflare.tensor c64 [2] cpu", tostring(x))
    assert.same({{1.0, -1.0}, {-2.5, 0.25}}, x:tolist())
    assert.same({1.0, -1.0}, {x[1]:item()})
    assert.equal("1-1i\nflare.tensor c64 [] cpu", tostring(x[1]))
    local path = os.tmpname()
    assert(flare.io.safetensors.save(path, {x = x}))
    local y = assert(flare.io.safetensors.load(path)).x
    os.remove(path)
    assert.equal("c64", y.dtype)
    assert.same(x:tolist(), y:tolist())
    assert.same(x:tolist(), flare.from_bytes(x:bytes(), "c64", {2}):tolist())
  end)

  it("are made of reals, and not lost on the way back", function()
    assert.equal("c64", flare.zeros({2, 2}, {dtype = "c64"}).dtype)
    assert.same({{3.0, 0.0}}, flare.full({1}, 3, {dtype = "c128"}):tolist())
    assert.same({{1.0, 0.0}, {2.0, 0.0}}, flare.tensor({1, 2}, {dtype = "c64"}):tolist())
    assert.same({{1.0, 0.0}, {0.0, 0.0}}, flare.tensor {true, false}:to "c64":tolist())
    assert.error_matches(function() flare.tensor({1}, {dtype = "c64"}):to "f32" end,
      "c64 as f32 would lose the imaginary part")
  end)

  it("refuse unsupported operators by name", function()
    local x = flare.tensor({1, 2}, {dtype = "c64"})
    for _, name in ipairs {"tanh", "relu", "softmax", "sort", "lt", "prod", "amax", "atan2"} do
      local ok, why = pcall(flare.core.ops[name], x, x)
      if name ~= "lt" and name ~= "atan2" then ok, why = pcall(flare.core.ops[name], x) end
      assert.is_false(ok)
      assert(why:find(name .. ": does not take c64 yet", 1, true), why)
    end
    assert.error_matches(function() flare.randn({2}, {dtype = "c64"}) end,
      "randn: does not make c64 yet")
    assert.error_matches(function() flare.ones{2}:mul_(x) end,
      "mul_: the result is complex and cannot be kept in a f32 tensor")
    assert.error_matches(function() flare.ones{2}[1] = x[1] end, "cannot be kept in a f32 tensor")
    assert.error_matches(function() x:sum(2) end, "there is no dim 2 in a complex tensor of 1")
    assert.error_matches(function() flare.elementwise("T x", "T z", "z = x * 2")(x) end, "c64")
  end)

  it("have gradients through arithmetic, to the second order", function()
    local function f(p, q)
      local x, y = p:view_as_complex(), q:view_as_complex()
      local z = x * y:conj() + x / y - 2 * y + x:exp() * flare.cat({x:abs(), y:abs()}, 2):sum()
      return z:abs(), z:real(), z:matmul(y:t()):view_as_real()
    end
    local p, q = random({2, 2}, 3), random({2, 2}, 4)
    assert(gradcheck.gradcheck(f, {p, q}, {1, 2}))
    assert(gradcheck.gradgradcheck(f, {p, q}, {1, 2}))
  end)

  it("are leaves, and add gradients up", function()
    local z = flare.complex(flare.tensor{1, 2}, flare.tensor{3, 4}):requires_grad_(true)
    for _ = 1, 2 do (z * z):abs():sum():backward() end
    close(list(z.grad), list(z:detach() * 4), 1e-5)
    local part = z[{{1, 1}}] * 1
    z.grad = nil
    part:abs():sum():backward()
    close(list(z.grad), {{1 / math.sqrt(10), 3 / math.sqrt(10)}, {0, 0}}, 1e-5)
  end)

  it("are not written in place where gradients are recorded", function()
    local z = flare.complex(flare.tensor{1, 2}, flare.tensor{3, 4}):requires_grad_(true)
    local y = z * 2
    assert.error_matches(function() y:mul_(2) end,
      "mul_: complex tensors cannot be written in place where gradients are recorded")
    local pairs_of = y:view_as_real()
    pairs_of:mul_(2)
    assert.error_matches(function() return (y * 2):abs():sum():backward() end, "make it again")
    local leaf = z:detach():clone():requires_grad_(true)
    assert.error_matches(function() leaf:view_as_real():mul_(2) end, "mul_")
  end)
end)
