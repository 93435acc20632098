-- vmap against loops over samples: every row with the arguments that its own spec tries, and
-- whole functions with their gradients, inside and through.
local families = require "spec.support.families"
local flare = require "flare"
local fails = require "spec.support.expect".refused
local gradients = require "spec.support.gradients"
local rows = require "spec.support.rows"

local function same(got, want, how)
  if not flare.is_tensor(want) then return assert.same(want, got) end
  assert(got.dtype == want.dtype and got.shape == want.shape,
    ("%s: %s %s, not %s %s"):format(how, got.dtype, got.shape, want.dtype, want.shape))
  if want.dtype:find "^c" then got, want = got:view_as_real(), want:view_as_real() end
  local a, b = got:detach():to("cpu"):to("f64"), want:detach():to("cpu"):to("f64")
  local close = (a - b):abs():le(1e-4 * (b:abs() + 1)):logical_or(a:eq(b))
  close = close:logical_or(a:ne(a):logical_and(b:ne(b)))
  assert(close:all():item(), how .. ": other values")
end

-- Three samples of an argument: itself, turned over, itself.
local function several(x)
  local dims = {}
  for d = 1, x:dim() do dims[d] = d end
  local other = x:dim() > 0 and x:flip(dims) or x
  return {x, other, x}
end

-- The tensors of a call's arguments, by name (and place in a list).
local function places(args)
  local list = {}
  for name, v in pairs(args) do
    if flare.is_tensor(v) then
      list[#list + 1] = {name}
    elseif type(v) == "table" and flare.is_tensor(v[1]) then
      for k = 1, #v do list[#list + 1] = {name, k} end
    end
  end
  table.sort(list, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    return (a[2] or 0) < (b[2] or 0)
  end)
  return list
end

local function with(args, where, tensors)
  local out = {}
  for name, v in pairs(args) do
    local list = type(v) == "table" and not getmetatable(v)
    out[name] = list and table.move(v, 1, #v, 1, {}) or v
  end
  for k, place in ipairs(where) do
    if place[2] then out[place[1]][place[2]] = tensors[k] else out[place[1]] = tensors[k] end
  end
  return out
end

-- What vmap says when it cannot run a call.
local function has_reason(message)
  return message:find "depends on values" or message:find "a shape but no values"
    or message:find "at most 8 dims"
end

-- What the results of a factorization determine: vectors have free signs, those of equal values
-- any basis, and libraries choose otherwise for a batch than for one matrix.
local determined = {
  eigh = function(values, vectors)
    local t = vectors:transpose(-2, -1)
    return values, (vectors * values:unsqueeze(-2)):matmul(t), t:matmul(vectors)
  end,
  svd = function(u, s, vh)
    local k = s.shape[-1]
    local product = (u:narrow(-1, 1, k) * s:unsqueeze(-2)):matmul(vh:narrow(-2, 1, k))
    return s, product, u:transpose(-2, -1):matmul(u), vh:matmul(vh:transpose(-2, -1))
  end,
}

local function same_results(row, got, want, how)
  local parts = determined[row.name]
  if parts then
    got, want = table.pack(parts(table.unpack(got))), table.pack(parts(table.unpack(want)))
  end
  for k = 1, want.n do same(got[k], want[k], how) end
end

-- Compares a row's call over samples of the tensors at `where` with three calls.
local function check(row, sample, where, device)
  local args = rows.with_options(row, sample, rows.tensors(sample, device), device, true)
  local stacks, singles = {}, {{}, {}, {}}
  for k, place in ipairs(where) do
    local x = place[2] and args[place[1]][place[2]] or args[place[1]]
    local list = several(x)
    stacks[k] = flare.stack(list, 1)
    for b = 1, 3 do singles[b][k] = list[b] end
  end
  local function call(...) return table.unpack(rows.call(row, with(args, where, {...}))) end
  local wants = {}
  for b = 1, 3 do
    local ok, want = pcall(function()
      local results = table.pack(call(table.unpack(singles[b])))
      flare.synchronize(device)
      return results
    end)
    if not ok then return false end -- a sample that is refused when it is turned over
    wants[b] = want
  end
  local ok, all = pcall(function() return table.pack(flare.vmap(call)(table.unpack(stacks))) end)
  local how = rows.describe(row, sample)
  if not ok then
    all = tostring(all)
    assert(has_reason(all), how .. ": " .. all)
    return false
  end
  for b = 1, 3 do
    local got = {n = wants[b].n}
    for k = 1, got.n do got[k] = all[k][b] end
    same_results(row, got, wants[b], how)
  end
  return true
end

-- The sum of all float results of one sample, or of several, by weights that tell elements apart;
-- of their squares where signs are free.
local function weighted(results, first, signs)
  local sum
  for k = 1, results.n do
    local y, one = results[k], first[k]
    if flare.is_tensor(y) and y.requires_grad then
      local weights = flare.arange(1, one:numel() + 1, {dtype = y.dtype, device = y.device}):cos()
      if signs then y = y * y end
      local part = (y * weights:view(one.shape)):sum()
      sum = sum and sum + part or part
    end
  end
  return sum
end

-- Compares the gradients of a row over three samples with those of three calls.
local function check_gradients(row, sample, device)
  local f, inputs = gradients.prepared(row, sample, device)
  if #inputs == 0 then return false end
  local stacks, singles, wants, first = {}, {{}, {}, {}}, {}, nil
  for k, x in ipairs(inputs) do
    local list = several(x)
    stacks[k] = flare.stack(list, 1):requires_grad_()
    for b = 1, 3 do singles[b][k] = list[b]:clone():requires_grad_() end
  end
  for b = 1, 3 do
    local ok, results = pcall(function()
      local out = table.pack(f(table.unpack(singles[b])))
      flare.synchronize(device)
      return out
    end)
    if not ok then return false end -- refused when it is turned over
    first = first or results
    local sum = weighted(results, first, sample._signs)
    if not sum then return false end
    wants[b] = table.pack(flare.grad(sum, singles[b], {allow_unused = true}))
  end
  local how = rows.describe(row, sample) .. " gradient"
  local ok, all = pcall(function()
    local out = table.pack(flare.vmap(f)(table.unpack(stacks)))
    local sum = weighted(out, first, sample._signs)
    return table.pack(flare.grad(sum, stacks, {allow_unused = true}))
  end)
  if not ok then
    all = tostring(all)
    assert(has_reason(all), how .. ": " .. all)
    return false
  end
  for k in ipairs(inputs) do
    for b = 1, 3 do
      assert((all[k] == nil) == (wants[b][k] == nil), how .. ": of an input that has none")
      if all[k] then same(all[k][b], wants[b][k], how) end
    end
  end
  return true
end

-- Their gradients are checked through igamma and gamma, as in spec/ops/table_spec.lua.
local through_others = {gamma_da = true, gamma_daa = true}

-- Rows whose results have a shape that depends on values: vmap refuses them.
local by_values = {nonzero = true, masked_select = true, unique = true, unique_consecutive = true,
                   bincount = true}

describe("vmap gives what a loop gives", function()
  local values, slopes, sampled = {}, {}, {}
  for n = 1, #families * #rows.devices do
    local family = families[(n - 1) % #families + 1]
    local device = rows.devices[(n - 1) // #families + 1]
    it(("for %s on %s"):format(family, device), function()
      local samples = require("spec.support.samples." .. family)
      for name, list in pairs(samples) do
        local row = rows.rows[name]
        if #row.results > 0 and not row.random then
          for _, sample in ipairs(rows.accepted(list)) do
            local where = places(rows.tensors(sample, device))
            if #where > 0 then
              sampled[name] = true
              values[name] = check(row, sample, where, device) or values[name]
              if #where > 1 then
                check(row, sample, {where[1]}, device)
                check(row, sample, {where[#where]}, device)
              end
              if row.differentiable then
                slopes[name] = check_gradients(row, sample, device) or slopes[name]
              end
            end
          end
        end
      end
    end)
  end

  it("where a library chooses other vectors, too", function()
    local x = flare.diag(flare.tensor({1, 2, 2}, {dtype = "f64"}))
    local w, v = flare.eigh(x)
    local turned = flare.tensor({{1, 0, 0}, {0, 0.6, 0.8}, {0, -0.8, 0.6}}, {dtype = "f64"})
    for _, other in ipairs {-v, v:matmul(turned)} do
      same_results(rows.rows.eigh, {w, other, n = 2}, {w, v, n = 2}, "eigh")
    end
    turned[{1, 1}] = 2
    fails("other values", same_results, rows.rows.eigh, {w, turned, n = 2}, {w, v, n = 2},
      "eigh")
  end)

  it("for every row that has samples", function()
    local missing = {}
    for name in pairs(sampled) do
      if not values[name] and not by_values[name] then missing[#missing + 1] = name end
      local differentiable = rows.rows[name].differentiable and not by_values[name]
        and not through_others[name]
      if differentiable and not slopes[name] then missing[#missing + 1] = name .. "'s gradient" end
    end
    table.sort(missing)
    assert.same({}, missing)
    assert(next(sampled))
  end)
end)

local function loop(n, f)
  local list = {}
  for b = 1, n do list[b] = f(b) end
  return flare.stack(list, 1)
end

describe("vmap", function()
  local x = flare.randn({5, 3}, {generator = flare.generator(1)})
  local y = flare.randn({4, 5}, {generator = flare.generator(2)})

  it("takes samples from any dim, and the same for all", function()
    local f = flare.vmap(function(a, b, k) return a * b:sum() + k end, {in_dims = {1, 2, false}})
    same(f(x, y, 2), loop(5, function(b) return x[b] * y:select(2, b):sum() + 2 end), "dims")
    local g = flare.vmap(function(a, w) return w:matmul(a), a end,
                         {in_dims = {1, false}, out_dims = {2, 1}})
    local w = flare.randn(4, 3)
    local wa, a = g(x, w)
    same(wa, w:matmul(x.T), "out_dims")
    same(a, x, "as it was")
    same(flare.vmap(function(_) return w end)(x), flare.stack({w, w, w, w, w}, 1), "constant")
  end)

  it("indexes by what each sample has, from the end, too", function()
    local table_ = flare.arange(1, 13):view(3, 4)
    local wanted = flare.tensor({{1, -1}, {-2, 2}, {3, 4}}, {dtype = "i64"})
    local pick = flare.vmap(function(row, k) return row[k] end)
    assert.same({{1, 4}, {7, 6}, {11, 12}}, pick(table_, wanted):totable())
    assert.has_error(function() pick(table_, wanted - 9) end)
    local mask = flare.tensor({true, false, false, true}, {dtype = "bool"})
    local masked = flare.vmap(function(row) return row[mask] end) -- the same for all samples
    assert.same({{1, 4}, {5, 8}, {9, 12}}, masked(table_):totable())
    local learned = table_:to("f32"):requires_grad_()
    masked(learned):square():sum():backward()
    assert.same({10, 0, 0, 16}, learned.grad[2]:totable())
    local reason = "masked_select: the size of the result depends on values, which inside vmap"
    local ok, why = pcall(flare.vmap(function(row) return row[row:gt(2)] end), table_)
    assert.is_truthy(not ok and why:find(reason, 1, true))
  end)

  it("takes and gives tables", function()
    local f = flare.vmap(function(p, a) return {y = p.w:matmul(a) + p.b, n = 3} end,
                         {in_dims = {{w = 1, b = false}, 1}})
    local p = {w = flare.randn(5, 2, 3), b = flare.randn(2)}
    local out = f(p, x)
    assert.equal(3, out.n)
    same(out.y, loop(5, function(b) return p.w[b]:matmul(x[b]) + p.b end), "tables")
  end)

  it("nests", function()
    local f = flare.vmap(flare.vmap(function(a, b) return (a - b):square():sum() end,
                                    {in_dims = {false, 1}}), {in_dims = {1, false}})
    same(f(x, x), loop(5, function(i)
      return loop(5, function(j) return (x[i] - x[j]):square():sum() end)
    end), "all pairs")
    local function jacobian(a)
      return flare.jacobian(function(t) return t:tanh():cumsum(1) end, a)
    end
    same(flare.vmap(jacobian)(x), loop(5, function(b) return jacobian(x[b]) end), "Jacobians")
  end)

  it("sees the shapes of one sample, and no values", function()
    flare.vmap(function(a)
      assert.same({3}, {table.unpack(a.shape)})
      assert.equal(1, a:dim())
      assert.has_error(function() a:item() end)
      assert.has_error(function() a:totable() end)
      assert.has_error(function() a:to_dlpack() end)
      local ok, message = pcall(a.add_, a, 1)
      assert.is_false(ok)
      assert.match("inside vmap nothing is written in place", message)
      return a
    end)(x)
  end)

  it("lets gradients through", function()
    for _, f in ipairs{
      function(a, w) return w:matmul(a):tanh():sum() end,
      function(a, w) return flare.linear(a, w, nil, {act = "gelu"}) end,
      function(a, w) return flare.softmax(w:matmul(a), 1) end,
      function(a, w) return flare.layer_norm(a * w[1]) end,
      function(a, w)
        return flare.cross_entropy(w:matmul(a):unsqueeze(1), flare.tensor({2}, {dtype = "i64"}))
      end,
      function(a, w) return (a * w[2]:detach()):norm() + w[{{1, 2}, {2, 3}}]:sum() end,
    } do
      local function both(run)
        local a, w = x:clone():requires_grad_(true), y[{{}, {1, 3}}]:clone():requires_grad_(true)
        local out = run(a, w)
        return out, flare.grad((out * out):sum(), {a, w})
      end
      local mapped = flare.vmap(f, {in_dims = {1, false}})
      local out, da, dw = both(mapped)
      local out2, da2, dw2 = both(function(a, w)
        return loop(5, function(b) return f(a[b], w) end)
      end)
      same(out, out2, "values")
      same(da, da2, "gradient by the samples")
      same(dw, dw2, "gradient by what all share")
    end
  end)

  it("of a gradient is one for each sample", function()
    local model = flare.nn.Sequential(flare.nn.Linear(3, 4), flare.nn.Tanh(), flare.nn.Linear(4, 2))
    local target = flare.tensor({1, 2, 2, 1, 1}, {dtype = "i64"})
    local parameters = model:parameters()
    local function of(a, t)
      local loss = flare.cross_entropy(model(a:unsqueeze(1)), t:unsqueeze(1))
      return table.pack(flare.grad(loss, parameters))
    end
    local all = flare.vmap(of)(x, target)
    for k = 1, #parameters do
      same(all[k], loop(5, function(b) return of(x[b], target[b])[k] end), "parameter " .. k)
    end
    -- by the sample itself, and twice
    local function slope(a)
      local t = a:detach():requires_grad_(true)
      local g = flare.grad((t ^ 3):sum(), {t}, {create_graph = true})
      return flare.grad((g * a):sum(), {t})
    end
    same(flare.vmap(slope)(x), 6 * x * x, "second")
    -- and the loss of the whole by what the gradient depends on
    local w = flare.randn(3):requires_grad_(true)
    local function penalty(a)
      return flare.grad((w * a):tanh():sum(), {w}, {create_graph = true}):square():sum()
    end
    local got = flare.grad(flare.vmap(penalty)(x):sum(), {w})
    same(got, flare.grad(loop(5, function(b) return penalty(x[b]) end):sum(), {w}), "through")
  end)

  it("takes kernels and functions of one's own", function()
    local swish = flare.elementwise("T x, T b", "T y", "y = x / (1 + exp(-b * x))")
    local distance = flare.reduce("T x, T y", "T d", "T t = x - y; t * t", "sum")
    local traced = flare.kernel(function(a, b) return a * b:sigmoid() end)
    for _, f in ipairs{
      function(a) return swish(a, 2.0) end, function(a) return swish(a, a:sum()) end,
      function(a) return distance(a, a * 2) end, function(a) return distance(a, x[2], 1) end,
      function(a) return traced(a, a:exp()) end,
    } do
      local a = x:clone():requires_grad_(true)
      local out, want = flare.vmap(f)(a), loop(5, function(b) return f(a[b]) end)
      same(out, want, "values")
      same(flare.grad(out:sum(), {a}), flare.grad(want:sum(), {a}), "gradient")
    end
    local twice = flare.func{
      name = "twice",
      forward = function(_, t) return t * 2 end,
      backward = function(_, dy) return dy * 2 end,
    }
    same(flare.vmap(twice)(x), x * 2, "values")
    local w = flare.ones(3, {requires_grad = true})
    local function inner(a) return flare.grad((twice(w * 1) * a):sum(), {w}) end
    same(flare.vmap(inner)(x), 2 * x, "a gradient inside")
    local ok, message = pcall(flare.vmap(twice), x:clone():requires_grad_(true))
    assert.is_false(ok)
    assert.match("gradients do not pass through a function of one's own", message)
  end)

  it("holds no memory when it is over", function()
    flare.core.collect()
    local before, kept = flare.memory.stats().live, {}
    local f = flare.vmap(function(a)
      kept[#kept + 1] = a * 2
      return a
    end)
    for _ = 1, 3 do f(flare.ones(1000, 100)) end
    flare.core.collect()
    assert.equal(before, flare.memory.stats().live)
    assert.equal(3, #kept)
    assert.has_error(function() return kept[1] + 1 end)
  end)

  it("draws for each sample", function()
    local f = flare.vmap(function(a) return flare.dropout(a, 0.5) end)
    local ones = flare.ones(4, 1000, {requires_grad = true})
    local z = f(ones)
    assert.is_false(z[1]:eq(z[2]):all():item())
    same(flare.grad(z:sum(), {ones}), z, "its mask")
  end)

  it("refuses what it cannot do", function()
    local id = flare.vmap(function(a) return a end)
    fails("argument 1 has no dim", id, flare.tensor(1))
    fails("no argument has samples", flare.vmap(function() end, {in_dims = false}), x)
    fails("at least one sample", id, flare.zeros(0, 3))
    fails("argument 2 has 4 samples, argument 1 has 5", flare.vmap(function(a) return a end), x, y)
    fails("a function is expected", flare.vmap, 3)
    fails("in_dims must be dims", flare.vmap(function(a) return a end, {in_dims = "1"}), x)
    fails("unknown option 'dims'", flare.vmap, print, {dims = 1})
    for name, f in pairs{
      nonzero = function(a) return a:nonzero() end,
      masked_select = function(a) return a[a:gt(0)] end,
      unique = function(a) return (a:unique()) end,
      bincount = function(a) return a:gt(0):to("i64"):add(1):bincount() end,
    } do
      local says = ": the size of the result depends on values, which inside vmap are those of many"
      local ok, said = pcall(flare.vmap(f), x)
      assert.is_false(ok)
      said = tostring(said)
      assert.is_truthy(said:find(name, 1, true) and said:find(says, 1, true), said)
    end
    fails("item: inside vmap a tensor stands for many samples", flare.vmap(function(a)
      return a:sum():item() > 0 and a or -a
    end), x)
    fails("inside vmap use grad", flare.vmap(function(a)
      (a * flare.ones(3, {requires_grad = true})):sum():backward()
    end), x)
    local kept
    flare.vmap(function(a) kept = a * 1 return a end)(x)
    fails("no values", function() return kept + 1 end)
    fails("no values", function() return kept:item() end)
    flare.vmap(function(a) fails("no values", function() return kept + a end) return a end)(x)
    -- an error inside leaves no level open
    pcall(flare.vmap(function() error "stop" end), x)
    same(x + 1, 1 + x, "after an error")
  end)
end)
