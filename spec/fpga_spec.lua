-- The FPGA back end: results beside the CPU's within bounds that follow from the number formats,
-- cycles as counted by hand, descriptors beside the sources, and the machine of the simulator.
local flare = require "flare"
local tree = require "spec.support.tree"
local core, fpga = flare.core, flare.fpga

local function there(x) return x:to "fpga" end

-- f on the FPGA: its result on the CPU, and the report.
local function run(f, ...)
  local args = {}
  for k, x in ipairs {...} do args[k] = there(x) end
  fpga.reset()
  local y = f(table.unpack(args))
  assert.equal("fpga:0", y.device)
  return y:to "cpu", fpga.report()
end

local function alone(report) assert.is_nil(next(report.cpu)) end

-- Fails unless |got - exact| <= bound everywhere, and the bound is a small part of the results.
local function within(bound, exact, got, share)
  bound = bound + exact:abs() * 2^-22 -- sums and results are f32
  local worst = ((exact - got:to "f64"):abs() - bound):amax():item()
  assert(worst <= 0, ("%g above the bound"):format(worst))
  assert(bound:amax():item() <= (share or 0.01) * exact:abs():amax():item())
end

-- By how much x (m, k) w (n, k)^T may be off. A chunk of 512 elements of a row is off by at most
-- max|row| 2^-14 in each element, and (x + dx)(w + dw) - x w = x dw + w dx + dx dw.
local function product_bound(x, w)
  local k, bound = x:size(2), 0
  for from = 1, k, 512 do
    local n = math.min(512, k - from + 1)
    local a, b = x:narrow(2, from, n):abs(), w:narrow(2, from, n):abs()
    local da, db = a:amax(2):unsqueeze(2) * 2^-14, b:amax(2):unsqueeze(1) * 2^-14
    bound = bound + a:sum(2):unsqueeze(2) * db + da * b:sum(2):unsqueeze(1) + da * db * n
  end
  return bound + x:abs():matmul(w:abs():t()) * 2^-22 -- sums of chunks are f32
end

describe("products on the FPGA", function()
  setup(function() flare.manual_seed(3) end)

  it("are those of the CPU to fixed-point error", function()
    for _, size in ipairs {{64, 64, 64}, {33, 45, 700}, {1, 17, 5}, {16, 16, 1025}, {5, 1, 512}} do
      local m, n, k = table.unpack(size)
      local x, w, bias = flare.randn(m, k), flare.randn(n, k), flare.randn(n)
      local a, b = x:to "f64", w:to "f64"
      local bound = product_bound(a, b)
      local exact = a:matmul(b:t())
      for _, f in ipairs {
        function(p, q) return p:matmul(q:t()) end,
        function(p, q) return p:t():contiguous():t():matmul(q:t():contiguous()) end,
        function(p, q) return core.linear(p, q) end,
      } do
        local y, report = run(f, x, w)
        within(bound, exact, y)
        alone(report)
      end
      local y = run(function(p, q, r) return core.linear(p, q, r, "relu") end, x, w, bias)
      within(bound, (exact + bias:to "f64"):clamp(0), y, 0.02)
    end
  end)

  it("follow batches, vectors and broadcasting", function()
    local function same(f, ...)
      local y, report = run(f, ...)
      local exact = f(...)
      assert.same(exact.shape, y.shape)
      assert.truthy((exact - y):abs():amax():item() < 0.01)
      alone(report)
    end
    local function product(a, b) return a:matmul(b) end
    same(product, flare.randn(3, 2, 9, 20), flare.randn(2, 20, 7))
    same(product, flare.randn(3, 9, 20), flare.randn(20, 7))
    same(product, flare.randn(20), flare.randn(20, 7))
    same(product, flare.randn(4, 9, 20), flare.randn(20))
    same(function(a, b) return a:transpose(1, 2):matmul(b) end, flare.randn(9, 3, 20),
      flare.randn(3, 20, 7))
    same(core.linear, flare.randn(3, 4, 20), flare.randn(7, 20), flare.randn(7))
  end)

  it("of rows of any size are as near, and NaN and inf give NaN", function()
    for _, scale in ipairs {1e-30, 1, 1e15} do
      local x, w = flare.randn(20, 40) * scale, flare.randn(20, 40)
      local a, b = x:to "f64", w:to "f64"
      within(product_bound(a, b), a:matmul(b:t()), (run(core.linear, x, w)))
    end
    for _, odd in ipairs {1 / 0, -1 / 0, 0 / 0} do
      local x = flare.ones(3, 40)
      x[{2, 5}] = odd
      local y = run(core.linear, x, flare.ones(4, 40))
      assert.same({40, 40}, {y[{1, 1}]:item(), y[{3, 4}]:item()})
      assert.truthy(y[2]:isnan():all():item())
    end
  end)
end)

describe("functions on the FPGA", function()
  -- The largest slope and second derivative of each; between points h apart, lines are off by
  -- h^2 / 8 times the latter. Arguments are off by 2^-20 and parts of h by 2^-16; values are
  -- rounded to 2^-26 and cut to that.
  local h = 32 / 2048
  local functions = {gelu = {1.13, 0.798}, silu = {1.1, 0.5}, tanh = {1, 0.77},
                     sigmoid = {0.25, 0.0963}}

  it("are lines between points of a table", function()
    flare.manual_seed(4)
    local ends = flare.tensor {0, 16, -16}
    local x = flare.cat({flare.randn(2000) * 4, flare.randn(200) * 40, ends}, 1)
    for name, most in pairs(functions) do
      local y, report = run(function(p) return p[name](p) end, x)
      local exact = x:to("f64")
      exact = exact[name](exact)
      local bound = h * h / 8 * most[2] + (2^-20 + 2^-16 * h) * most[1] + 2^-25
        + 2e-6 -- beyond 16, silu is x, or 0, to 16 e^-16
      within(flare.zeros(1, {dtype = "f64"}) + bound, exact, y, 0.05)
      alone(report)
    end
    local y = run(function(p) return p:gelu "tanh" end, x)
    within(flare.zeros(1, {dtype = "f64"}) + h * h / 8 * 0.81 + 2^-18, x:to("f64"):gelu "tanh", y)
    assert.truthy(run(function(p) return p:tanh() end, flare.tensor {0 / 0})[1]:isnan():item())
  end)

  it("of two operands are those of the CPU, bit for bit", function()
    local a, b, c = flare.randn(5, 6, 7), flare.randn(6, 1), flare.randn(7, 6, 5)
    for _, f in ipairs {
      function(x, y) return x + y end, function(x, y) return x - y end,
      function(x, y) return x * y end, function(x) return x * 2.5 - 1 end,
      function(x) return x:relu() end, function(x, _, z) return x + z:permute(3, 2, 1) end,
      function(_, _, z) return z:permute(2, 3, 1):contiguous() end,
    } do
      local y, report = run(f, a, b, c)
      assert.truthy(flare.equal(f(a, b, c), y))
      alone(report)
    end
  end)

  it("softmax is off by what its exponentials are", function()
    -- Each is off by a part: h^2 / 8 e^h of the line, 2^-20 of the difference from the maximum,
    -- 2^-19 of the argument and its part of h; and by 2^-25 + e^-16 of the table and its end. The
    -- sum of exponentials is at least 1.
    local part, rest = (2^-7)^2 / 8 * math.exp(2^-7) + 2^-20 + 2^-19, 2^-25 + math.exp(-16)
    for _, size in ipairs {{13, 100}, {4, 16}, {2, 4096}, {3, 1}} do
      local x = flare.randn(size) * 5
      local y, report = run(function(p) return p:softmax(-1) end, x)
      local bound = 2 * (part + (size[2] + 1) * rest)
      within(flare.zeros(1, {dtype = "f64"}) + bound, x:to("f64"):softmax(-1), y, 0.05)
      alone(report)
    end
    local y = run(function(p) return p:softmax(-1) end, flare.tensor {{1, 0 / 0}, {-1 / 0, 3}})
    assert.truthy(y[1]:isnan():all():item())
    assert.same({0, 1}, y[2]:totable())
  end)
end)

describe("attention on the FPGA", function()
  -- Scores are off by ds = scale times the bound of their products, so exponentials by a part
  -- e^ds - 1, and by that of the table once more for each tile of 16 keys; in Q0.15 they are off by
  -- 2^-15, at most. Values are off by max|v| 2^-14. Sums of exponentials are at least 1.
  local function bound_of(q, k, v)
    local ds = product_bound(q, k):amax():item() / math.sqrt(q:size(2))
    local keys, table_part = k:size(1), (2^-7)^2 / 8 * math.exp(2^-7) + 2^-19 + 2^-20
    local part = math.exp(2 * ds) - 1 + (keys // 16 + 2) * table_part
    local e = part + keys * (2^-15 + math.exp(-16))
    return v:abs():amax():item() * (2 * e / (1 - e) + 2^-14)
  end

  it("is that of the CPU to fixed-point error", function()
    flare.manual_seed(5)
    for _, c in ipairs {{50, 50, 32, true}, {50, 70, 32, false}, {20, 90, 64, true},
                        {7, 5, 8, true}, {1, 40, 16, true}} do
      local t, s, d, causal = table.unpack(c)
      local q, k, v = flare.randn(2, 4, t, d), flare.randn(2, 2, s, d), flare.randn(2, 2, s, d)
      local function f(a, b, e) return flare.attention(a, b, e, {causal = causal}) end
      local y, report = run(f, q, k, v)
      local exact = f(q:to "f64", k:to "f64", v:to "f64")
      for b = 1, 2 do
        for head = 1, 4 do
          local one = (head + 1) // 2
          local bound = bound_of(q[b][head]:to "f64", k[b][one]:to "f64", v[b][one]:to "f64")
          within(flare.zeros(1, {dtype = "f64"}) + bound, exact[b][head], y[b][head], 0.25)
        end
      end
      assert.truthy((exact - y:to "f64"):abs():amax():item() < 2e-3) -- bounds take the worst case
      alone(report)
      assert.equal(8, report.kernels.attention.calls)
    end
  end)

  it("reads heads where they are, and writes them so", function()
    local x = flare.randn(2, 20, 3, 2, 16)
    local function f(p)
      local h = p:permute(3, 1, 4, 2, 5)
      return flare.attention(h[1], h[2], h[3], {causal = true}):transpose(2, 3):reshape {2, 20, 32}
    end
    local y, report = run(f, x)
    assert.truthy((f(x) - y):abs():amax():item() < 2e-3)
    alone(report)
    assert.equal(0, report.kernels.elementwise.calls) -- no copies
  end)

  it("leaves masks and dropout to the CPU", function()
    local q = flare.randn(1, 1, 4, 8)
    local mask = flare.zeros(4, 4)
    local y, report = run(function(p, m) return flare.attention(p, p, p, {mask = m}) end, q, mask)
    assert.truthy((flare.attention(q, q, q, {mask = mask}) - y):abs():amax():item() < 1e-6)
    assert.same({attention = 1}, report.cpu)
  end)
end)

-- A loop of n rounds with a pipeline of depth d takes d + n - 1 cycles. Depths (hls.h): reads 64,
-- writes 32, multiply 12, add 8, look up 16, divide 28. Rows of 16 k elements come 16 a cycle.
describe("cycles on the FPGA", function()
  local function count(kernel, calls, cycles, f, ...)
    local _, report = run(f, ...)
    assert.same({calls = calls, cycles = cycles}, report.kernels[kernel])
  end

  it("of a product are those of its tiles", function()
    -- (64, 64) by (64, 64): 4 x 4 tiles of y, one chunk of 64 products each. Both operands come
    -- beside each other in 16 * 64 / 16 = 64 rounds: 64 + 63 = 127. A tile takes 12 + 63 to
    -- multiply, 8 + 15 to add, 32 + 15 to write its 16 rows: 145, while the next one is read.
    count("product", 1, 127 + 16 * 145, function(a, b) return a:matmul(b) end,
      flare.randn(64, 64), flare.randn(64, 64))
    -- (16, 1024) by (16, 1024)^T with a bias: one tile, two chunks, which come in 64 + 511 = 575.
    -- The first takes 64 for the bias, 12 + 511 and 23, 610, while the second is read; that takes
    -- 523 + 23 + 47 = 593.
    count("product", 1, 575 + 610 + 593, core.linear, flare.randn(16, 1024), flare.randn(16, 1024),
      flare.randn(16))
    -- Rows of 20 begin anywhere: one element a cycle, 64 + 20 * 16 - 1 = 383 for a tile of 16 rows
    -- and 64 + 20 * 4 - 1 = 143 for one of 4 rows. y (20, 16) has 2 tiles; both read all of w.
    -- multiply 12 + 19, add 23, write 47 or 32 + 3.
    count("product", 1, 383 + math.max(383, 31 + 23 + 47) + 31 + 23 + 35, core.linear,
      flare.randn(20, 20), flare.randn(16, 20))
  end)

  it("of softmax are three passes over each row", function()
    -- The table of 2049 entries: 64 + 129 - 1 = 192. Rows of 128: read 64 + 7, exponentials 16 + 7,
    -- divide and write 28 + 32 + 7.
    count("softmax", 1, 192 + 13 * (71 + 23 + 67), function(x) return x:softmax(-1) end,
      flare.randn(13, 128))
    -- Rows of 100 come and go one element a cycle: 64 + 99, 16 + 6, 60 + 99.
    count("softmax", 1, 192 + 13 * (163 + 22 + 159), function(x) return x:softmax(-1) end,
      flare.randn(13, 100))
  end)

  it("of elementwise operators are those of their beats", function()
    -- 64 + 8 + 32 and a beat of 16 elements each cycle: 48 * 64 / 16 = 192 of them.
    count("elementwise", 1, 104 + 192 - 1, function(a, b) return a + b end, flare.randn(48, 64),
      flare.randn(48, 64))
    -- A transposed operand comes one element a cycle.
    count("elementwise", 1, 104 + 48 * 64 - 1, function(a, b) return a:t() + b end,
      flare.randn(64, 48), flare.randn(48, 64))
    -- A table, then 1000 elements in 63 beats through 64 + 16 + 32.
    count("lookup", 1, 192 + 112 + 63 - 1, function(a) return a:gelu() end, flare.randn(1000))
  end)

  it("of attention are those of its tiles of queries and keys", function()
    -- 32 queries and keys of 32: 2 x 2 tiles. 16 rows of 32 come in 64 + 31 = 95, keys and values
    -- beside each other. A tile of keys: scores 12 + 31 and 8 + 15, exponentials 16 + 2 * 8 + 15,
    -- values 12 + 31, sums 2 * 8 + 31: 203, while the next one is read. Queries leave in 60 + 31.
    local tile = 95 + 95 + 2 * 203 + 91
    count("attention", 1, 192 + 2 * tile, function(q) return flare.attention(q, q, q) end,
      flare.randn(1, 1, 32, 32))
    -- Causal: the first queries see one tile of keys.
    count("attention", 1, 192 + 2 * tile - 203,
      function(q) return flare.attention(q, q, q, {causal = true}) end, flare.randn(1, 1, 32, 32))
  end)

  it("are those of the simulator's machine, but for the start of a kernel", function()
    local rate = flare.dataflow.machine("u250").fabric.clock
    assert.equal(fpga.report().clock, rate)
    local a, big = there(flare.randn(256, 512)), there(flare.randn(256, 4096))
    local q = there(flare.randn(1, 1, 512, 64))
    for _, f in ipairs {
      function() return core.linear(a, a) end, function() return big + big end,
      function() return flare.attention(q, q, q) end,
    } do
      fpga.reset()
      f()
      local seconds = fpga.report().seconds
      local replay = flare.record(f):replay("u250", {latency = 1e-6})
      assert.near(1, replay.time / seconds, 0.1)
    end
  end)
end)

describe("what the FPGA has no kernel for", function()
  it("is run by the CPU, and counted, or refused", function()
    finally(function() fpga.fallback(true) end)
    local x = flare.randn(4, 32)
    local y, report = run(function(p) return p:exp() end, x)
    assert.truthy(flare.equal(x:exp(), y))
    assert.same({exp = 1}, report.cpu)
    assert.equal(0, report.cycles)
    assert.is_true(fpga.fallback(false))
    assert.is_false(fpga.report().fallback)
    assert.error_matches(function() there(x):exp() end, "exp: the FPGA has no kernel for exp; it "
      .. "has kernels for matmul, linear, softmax, .* of f32 tensors, and after "
      .. "flare.fpga.fallback%(true%) the CPU runs the rest")
    assert.error_matches(function() return there(x:to "f64") + 1 end,
      "add: the FPGA has no kernel for these operands")
    assert.error_matches(function() fpga.fallback "no" end, "true or false is expected, got string")
    assert.error_matches(function() core.backend_control("fpga", "speed", 1) end,
      "fpga has no control \"speed\"; it has fallback and reset")
    assert.match('only "report"', select(2, core.backend_query("fpga", "speed")))
  end)

  it("does not keep a model from training", function()
    flare.manual_seed(6)
    local nn = flare.nn
    local model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    model:to "fpga"
    local optimizer = flare.optim.AdamW(model, {lr = 0.02})
    local x = flare.randn(64, 8)
    local y = there(x:sum(2):unsqueeze(2):tanh())
    x = there(x)
    local first, last
    for _ = 1, 60 do
      optimizer:zero_grad()
      local loss = (model(x) - y):square():mean()
      loss:backward()
      optimizer:step()
      first, last = first or loss:item(), loss:item()
    end
    assert.truthy(last < first / 4)
  end)
end)

describe("the sources for Vitis HLS", function()
  local kernels = {"product", "softmax", "lookup", "elementwise", "attention"}

  it("have descriptors with the arguments, ports and registers of each", function()
    local prototypes = tree.read "kernels/fpga/kernels.h":gsub("%s+", " ")
    for _, name in ipairs(kernels) do
      local d = core.json.decode(tree.read("kernels/fpga/" .. name .. ".json"))
      local source = tree.read("kernels/fpga/" .. name .. ".c")
      assert.same({"fl_fpga_" .. name, name .. ".c"}, {d.kernel, d.source})
      local k, offset, ports = 0, 0x10, {}
      local list = prototypes:match("void " .. d.kernel .. "%(CLOCK (.-)%);")
      for argument in list:gmatch "[^,]+" do
        k = k + 1
        local kind, pointer, own = argument:match "(%w+[_%w]*) (%*?)([%w_]+)$"
        local bundle = source:match("m_axi port = " .. own .. " bundle = (%w+)")
        assert.equal(pointer == "*", bundle ~= nil, own)
        -- registers have 32 bits; one more than a value needs is reserved
        assert.same({index = k - 1, name = own, type = kind:gsub("int32_t", "int") .. pointer,
          port = bundle and "M_AXI_" .. bundle:upper() or "S_AXI_CONTROL",
          offset = ("0x%02x"):format(offset), size = bundle and 8 or 4}, d.arguments[k])
        offset = offset + (bundle and 12 or 8)
        if bundle then ports[bundle] = true end
      end
      assert.equal(k, #d.arguments)
      for _, connection in ipairs(d.sp) do
        local port = connection:match("^" .. d.instance .. "%.m_axi_(%w+):DDR%[[0-3]%]$")
        assert.truthy(ports[port], connection)
        ports[port] = nil
      end
      assert.is_nil(next(ports))
    end
  end)

  it("are C by themselves, without the emulator", function()
    for _, name in ipairs(kernels) do
      assert.equal("", tree.output(("cc -std=c99 -D__SYNTHESIS__ -Wall -Werror -fsyntax-only "
        .. "kernels/fpga/%s.c 2>&1"):format(name)))
    end
    for _, name in ipairs {"hls.h", "tile.h", "kernels.h"} do
      for include in tree.read("kernels/fpga/" .. name):gmatch '#include "(.-)"' do
        assert.truthy(include:find "^[%w]+%.h$", include)
      end
    end
  end)
end)
