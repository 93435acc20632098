-- Tensors that are cut into pieces for several threads: what a row gives for all of it is what
-- it gives for uneven parts, forward and backward, and the same bits every time.
local core = require "flare.core"
local flare = require "flare"

local generator = flare.generator(9)

local function random(...) return flare.randn({...}, {generator = generator}) end
local function positive(...) return random(...):abs() + 0.1 end
local function positions(n, ...)
  return flare.randint(1, n + 1, {...}, {generator = generator, dtype = "i64"})
end

-- Where to cut a leading dim.
local function cuts(n)
  local a = n // 7 + 1
  local b = math.max(a + 1, n // 2 - 3)
  return {{1, a}, {a + 1, b}, {b + 1, n}}
end

local cases = {}

-- f(x, shared...): x and the results have a leading dim of independent parts.
local function case(name, f, x, shared, more)
  cases[#cases + 1] = {name = name, f = f, x = x, shared = shared or {}, more = more or {}}
end

for _, name in ipairs {"neg", "exp", "tanh", "sigmoid", "gelu", "relu", "erf", "sin", "silu",
    "softplus", "clamp", "square"} do
  case(name, core.ops[name], random(200003))
end
for _, name in ipairs {"log", "sqrt", "reciprocal"} do case(name, core.ops[name],
  positive(200003)) end
for _, name in ipairs {"add", "mul", "div", "maximum", "pow", "atan2"} do
  case(name .. " with a row", function(x, b) return core.ops[name](x, b) end, positive(4001, 61),
    {positive(61)})
  case(name .. " with a number", function(x) return core.ops[name](x, 1.5) end, positive(200003))
  case(name .. " of both", function(x) return core.ops[name](x[1], x[2]) end, positive(2, 150001),
    {}, {dim = 2})
end
case("a transposed sum", function(x) return x:permute(1, 3, 2) + x:permute(1, 3, 2):clone() end,
  random(41, 70, 90))
case("where", function(x, b) return core.where(x:gt(0), x, b) end, random(4001, 61), {random(61)})
for _, name in ipairs {"sum", "mean", "amax", "var", "logsumexp", "norm", "prod"} do
  case(name .. " of rows", function(x) return core.ops[name](x * 0.2 + 1, {dims = {2}}) end,
    random(3001, 67))
  case(name .. " of planes", function(x) return core.ops[name](x * 0.2 + 1, {dims = {2, 3}}) end,
    random(301, 31, 17))
  case(name .. " between", function(x) return core.ops[name](x * 0.2 + 1, {dims = {2}}) end,
    random(61, 53, 71))
end
case("argmax", function(x) return core.argmax(x, {dim = 2}):to "f32" end, random(3001, 67))
case("cumsum", function(x) return x:cumsum(2) end, random(3001, 67))
case("sort", function(x) return (core.sort(x, 2)) end, random(1501, 67))
case("topk", function(x) return (core.topk(x, 5, 2)) end, random(1501, 67))
for _, name in ipairs {"softmax", "log_softmax"} do
  case(name, function(x) return core.ops[name](x, 2) end, random(3001, 67))
  case(name .. " of columns", function(x) return core.ops[name](x, 2) end, random(61, 53, 71))
end
case("layer_norm", function(x, w, b) return core.layer_norm(x, w, b) end, random(3001, 67),
  {random(67), random(67)})
case("rms_norm", function(x, w) return core.rms_norm(x, w) end, random(3001, 67), {random(67)})
case("group_norm", function(x, w, b) return core.group_norm(x, w, b, {groups = 4}) end,
  random(101, 16, 9, 11), {random(16), random(16)})
case("matmul", function(x, b) return x:matmul(b) end, random(701, 129), {random(129, 130)})
case("matmul of batches", function(x) return x:matmul(x:transpose(2, 3)) end, random(67, 33, 45))
case("linear", function(x, w, b) return core.linear(x, w, b, {act = "gelu"}) end, random(701, 129),
  {random(65, 129), random(65)})
case("conv", function(x, w, b) return core.conv(x, w, b, {padding = {1}}) end, random(13, 5, 31,
  33),
  {random(7, 5, 3, 3), random(7)})
case("conv of channels", function(x, w) return core.conv(x, w, {groups = 24, stride = {2}}) end,
  random(9, 24, 31, 33), {random(24, 1, 3, 3)})
case("conv of one dim", function(x, w) return core.conv(x, w, {dilation = {2}}) end,
  random(41, 6, 203), {random(8, 6, 5)})
case("max_pool", function(x) return core.max_pool(x, {kernel = {3}, stride = {2},
  padding = {1}}) end,
  random(23, 7, 41, 43))
case("avg_pool", function(x) return core.avg_pool(x, {kernel = {2}}) end, random(23, 7, 41, 43))
case("adaptive_avg_pool", function(x) return core.adaptive_avg_pool(x, {size = {5, 6}}) end,
  random(23, 7, 41, 43))
case("attention", function(x) return core.attention(x, x * 0.5, x + 1, {causal = true}) end,
  random(19, 3, 70, 24))
case("attention to shared keys", function(x, k, v)
  return core.attention(x, k:expand(x.shape[1], 2, 150, 24), v:expand(x.shape[1], 2, 150, 24))
end, random(19, 4, 70, 24), {random(1, 2, 150, 24), random(1, 2, 150, 24)})
case("lstm_cell", function(x, c)
  return (core.lstm_cell(x, c:expand(x.shape[1], 70)))
end, random(1001, 280), {random(1, 70)})
case("cat", function(x, b) return core.cat({x, b:expand(x.shape[1], 9), x}, 2) end, random(3001,
  47),
  {random(1, 9)})
case("pad", function(x) return core.pad(x, {2, 3, 1, 0}, "reflect") end, random(301, 21, 33))
case("index_select", function(x) return x:index_select(2, positions(67, 90)) end, random(3001, 67),
  nil, {seeded = true})

-- Positions that lead: index is cut, the table is shared.
local index = positions(500, 20011)
case("embedding", function(x, w)
  return core.embedding(w, index:narrow(1, x[1]:to("i64"):item(), #x))
end, core.arange(1, 20012, {dtype = "f32"}), {random(500, 33)}, {leading = true})

local function gradients(c, x, shared)
  local leaves = {x:detach():requires_grad_(true)}
  for k, s in ipairs(shared) do leaves[k + 1] = s:detach():requires_grad_(true) end
  if c.more.seeded then generator.seed, generator.offset = 77, 0 end
  local y = c.f(table.unpack(leaves))
  local weights = (y:detach() * 3):sin()
  local grads = {}
  if y.requires_grad then
    grads = table.pack(flare.grad((y * weights):sum(), leaves, {allow_unused = true}))
  end
  return y:detach(), grads
end

local function near(name, got, want, slack)
  local off = (got - want):abs():amax():item()
  local most = want:abs():amax():item()
  assert.is_true(off <= slack * (1 + most),
    ("%s is off by %g of %g"):format(name, off, most))
end

describe("a large", function()
  for _, c in ipairs(cases) do
    it(c.name .. " is what its parts are", function()
      local dim = c.more.dim or 1
      local whole, grads = gradients(c, c.x, c.shared)
      local again, same = gradients(c, c.x, c.shared)
      assert.is_true(whole:eq(again):all():item() or whole:isnan():any():item())
      for k, g in ipairs(same) do
        assert.is_true(g:eq(grads[k]):all():item(), "gradient " .. k .. " differs from run to run")
      end
      local ys, parts, sums = {}, {}, {}
      for n, cut in ipairs(cuts(c.x.shape[dim])) do
        local x = c.x:narrow(dim, cut[1], cut[2] - cut[1] + 1)
        local y, g = gradients(c, x, c.shared)
        ys[n], parts[n] = y, g[1]
        for k = 2, #c.shared + 1 do sums[k] = sums[k] and g[k] and sums[k] + g[k] or g[k] end
      end
      near("the result", whole, flare.cat(ys, 1), 2e-6)
      if #parts == 3 and grads[1] then near("its gradient", grads[1], flare.cat(parts, dim),
        1e-5) end
      for k = 2, #c.shared + 1 do
        if grads[k] then near("gradient " .. k, grads[k], sums[k], 3e-5) end
      end
    end)
  end
end)

describe("products of integers", function()
  -- sums that f32 has, that f64 has, and that wrap
  for _, limit in ipairs {1, 100, 1 << 20, 1 << 40} do
    it("are exact, or wrap: numbers up to " .. limit, function()
      for _, dtype in ipairs {"i8", "u8", "i32", "i64"} do
        local low = dtype == "u8" and 0 or -limit
        local a = flare.randint(low, limit + 1, {3, 67, 300}, {generator = generator})
        local b = flare.randint(low, limit + 1, {90, 300}, {generator = generator})
        a, b = a:to(dtype), b:to(dtype)
        local want = (a:to "i64":unsqueeze(3) * b:to "i64"):sum(4):to(dtype)
        assert.is_true(a:matmul(b:t()):equal(want))
        assert.is_true(a[1]:t():contiguous():t():matmul(b:t()):equal(want[1]))
      end
    end)
  end
end)
