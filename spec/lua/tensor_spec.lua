local core = require "flare.core"

local function values(x) return x:totable() end

describe("making tensors", function()
  it("takes nested tables, floats by default", function()
    local x = core.tensor{{1, 2, 3}, {4, 5, 6}}
    assert.equal("f32", x.dtype)
    assert.equal("(2, 3)", tostring(x.shape))
    assert.same({{1, 2, 3}, {4, 5, 6}}, values(x))
    assert.equal("cpu", x.device)
    assert.equal(2, #x)
    assert.equal(2, x.ndim)
    assert.equal(6, x:numel())
  end)

  it("takes a number, booleans, and dtypes", function()
    assert.equal(3, core.tensor(3):item())
    assert.equal("()", tostring(core.tensor(3).shape))
    assert.equal("bool", core.tensor{true, false}.dtype)
    assert.same({true, false}, values(core.tensor{true, false}))
    for _, d in ipairs{"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8"} do
      local x = core.tensor({1, 2, 3}, {dtype = d})
      assert.equal(d, x.dtype)
      assert.same({1, 2, 3}, values(x))
    end
    local big = {(1 << 53) + 1, math.maxinteger}
    assert.same(big, values(core.tensor(big, {dtype = "i64"})))
  end)

  it("takes options inside the table", function()
    local x = core.tensor{1, 2, dtype = "f64", requires_grad = true}
    assert.equal("f64", x.dtype)
    assert.is_true(x.requires_grad)
    assert.equal("i32", core.zeros{2, 3, dtype = "i32"}.dtype)
  end)

  it("has empty and 0-d ones", function()
    assert.equal("(0)", tostring(core.tensor{}.shape))
    assert.equal("(2, 0)", tostring(core.tensor{{}, {}}.shape))
    assert.equal("()", tostring(core.zeros{}.shape))
    assert.same({}, values(core.zeros(0)))
  end)

  it("fills", function()
    assert.same({{0, 0}, {0, 0}}, values(core.zeros(2, 2)))
    assert.same({1, 1}, values(core.ones(2)))
    assert.same({7, 7}, values(core.full({2}, 7)))
    assert.equal("(3, 2)", tostring(core.empty{3, 2}.shape))
    local x = core.rand(2, 3, {dtype = "f64"})
    assert.equal("f64", core.zeros_like(x).dtype)
    assert.same({{1, 1, 1}, {1, 1, 1}}, values(core.ones_like(x)))
    assert.equal("f32", core.zeros_like(x, {dtype = "f32"}).dtype)
    assert.same({{5, 5, 5}, {5, 5, 5}}, values(core.full_like(x, 5)))
    assert.equal("(2, 3)", tostring(core.rand_like(x).shape))
    assert.equal("f64", core.randn_like(x).dtype)
  end)

  it("counts", function()
    assert.same({0, 1, 2, 3}, values(core.arange(4)))
    assert.equal("i64", core.arange(4).dtype)
    assert.same({2, 4}, values(core.arange(2, 6, 2)))
    assert.equal("f32", core.arange(0, 1, 0.25).dtype)
    assert.same({0, 0.25, 0.5, 0.75}, values(core.arange(0, 1, 0.25)))
    assert.same({1, 2, 3}, values(core.range(3)))
    assert.same({2, 4, 6}, values(core.range(2, 6, 2)))
    assert.same({3, 2, 1}, values(core.range(3, 1, -1)))
  end)

  it("takes bytes", function()
    local x = core.from_bytes(string.pack("<i4i4i4i4", 1, 2, 3, 4), "i32", {2, 2})
    assert.same({{1, 2}, {3, 4}}, values(x))
    assert.equal(string.pack("<i4i4i4i4", 1, 2, 3, 4), x:bytes())
    assert.equal(string.pack("<i4i4i4i4", 1, 3, 2, 4), x:t():bytes())
    assert.same({65, 66}, values(core.from_bytes("AB", "u8")))
    assert.error_matches(function() core.from_bytes("abc", "i32", {1}) end,
                         "from_bytes: %(1%) of i32 needs 4 bytes, got 3")
  end)

  it("names the error and its position", function()
    local cases = {
      {{{1, 2}, {3}}, "the table at %[2%] has 1 elements, the ones before have 2"},
      {{1, {2}}, "there is a table at %[2%]"},
      {{{1}, 2}, "expected a table of 1 at %[2%], got an integer"},
      {{1, "a"}, "expected a number at %[2%], got string"},
      {{1, true}, "expected a number at %[2%], got boolean"},
      {{true, 1}, "expected a boolean at %[2%], got an integer"},
      {{core.zeros(1)}, "at %[1%] is a tensor; tensors are joined by flare.stack"},
      {"text", "from_bytes"},
      {core.zeros(1), "this is a tensor already"},
      {print, "expected a number or a table of numbers, got function"},
    }
    for _, case in ipairs(cases) do
      assert.error_matches(function() core.tensor(case[1]) end, case[2])
    end
    local integers = {
      {{1.5}, "1.5 at %[1%] is no integer"},
      {{1, 300}, "300 at %[2%] does not fit u8 %(0%.%.255%)"},
      {{0/0}, "at %[1%] is no integer"},
      {{-1}, "%-1 at %[1%] does not fit u8"},
    }
    for _, case in ipairs(integers) do
      assert.error_matches(function() core.tensor(case[1], {dtype = "u8"}) end, case[2])
    end
    local deep = {1}
    for _ = 1, 200000 do deep = {deep} end
    assert.error_matches(function() core.tensor(deep) end, "deeper than 8 levels")
    local itself = {}
    itself[1] = itself
    assert.error_matches(function() core.tensor(itself) end, "deeper than 8 levels")
    assert.error_matches(function() core.zeros(2^40 | 0, 2^40 | 0) end, "too large")
    assert.error_matches(function() core.zeros(-1) end, "sizes cannot be negative")
    assert.error_matches(function() core.zeros(1.5) end, "expected an integer, got 1.5")
  end)
end)

describe("a tensor", function()
  it("knows itself by id", function()
    local x = core.ones(2, {requires_grad = true})
    x:sum():backward()
    assert.is_true(x.grad == x.grad)
    assert.is_false(rawequal(x.grad, x.grad))
    assert.is_true(x == x)
    assert.is_false(x == core.ones(2))
    assert.equal(x.grad.id, x.grad.id)
    assert.is_false(x == 1)
  end)

  it("has operators", function()
    local x = core.tensor{7, 8}
    assert.same({8, 9}, values(x + 1))
    assert.same({-6, -7}, values(1 - x))
    assert.same({14, 16}, values(2 * x))
    assert.same({3.5, 4}, values(x / 2))
    assert.same({3, 4}, values(x // 2))
    assert.same({1, 0}, values(x % 2))
    assert.same({49, 64}, values(x ^ 2))
    assert.same({-7, -8}, values(-x))
    local b, c = core.tensor{true, false}, core.tensor{true, true}
    assert.same({true, false}, values(b & c))
    assert.same({true, true}, values(b | c))
    assert.same({false, true}, values(b ~ c))
    assert.same({false, true}, values(~b))
    local i = core.tensor({1, 2}, {dtype = "i64"})
    assert.same({4, 8}, values(i << 2))
    assert.same({0, 1}, values(i >> 1))
    assert.same({false, true}, values(x:gt(7)))
  end)

  it("promotes numbers by kind only", function()
    local i = core.tensor({1, 2}, {dtype = "i32"})
    assert.equal("i32", (i + 1).dtype)
    assert.equal("f32", (i + 1.5).dtype)
    assert.equal("f64", (core.ones(2, {dtype = "f64"}) + 1.5).dtype)
    assert.equal("bf16", (core.ones(2, {dtype = "bf16"}) * 2.5).dtype)
  end)

  it("converts", function()
    local x = core.tensor{1.75, -2.5}
    assert.equal("f64", x:to("f64").dtype)
    assert.equal("i64", x:long().dtype)
    assert.same({1, -2}, values(x:i32()))
    assert.is_true(rawequal(x, x:to("f32")))
    assert.is_true(rawequal(x, x:to("cpu")))
    assert.equal("sim:0", x:to("sim:0").device)
    assert.equal("f16", x:to("sim:1", "f16").dtype)
    assert.equal("f16", x:to{device = "sim:1", dtype = "f16"}.dtype)
    assert.equal("i8", x:to(core.zeros(1, {dtype = "i8"})).dtype)
    assert.same({1.75, -2.5}, values(x:to("sim:0")))
    assert.equal("f32", x:type())
    assert.equal("u8", x:type("u8").dtype)
    local far = x:to("sim:0")
    assert.equal("cpu", far:cpu().device)
    assert.same({1.75, -2.5}, values(far:cpu()))
    assert.same({1.75, -2.5}, values(far:to("sim:1")))
    assert.equal("sim:0", far:type("f64").device)
    for name, dtype in pairs {float = "f32", double = "f64", half = "f16", bfloat16 = "bf16",
        long = "i64", int = "i32", short = "i16", char = "i8"} do
      assert.equal(dtype, x[name](x).dtype)
      assert.equal(dtype, x[dtype](x).dtype)
      assert.same(dtype:find "i" and {1, -2} or {1.75, -2.5}, values(x[dtype](x)))
    end
    assert.error_matches(function() x:to(1) end,
                         "expected a dtype, a device or a tensor, got an integer")
    assert.error_matches(function() x:to("float32") end, 'did you mean "f32"')
    assert.error_matches(function() x:to("tpu:0") end, "tpu:0")
  end)

  it("is written from one of another device, gradients included", function()
    local x = core.zeros(2, 3, {device = "sim:0"})
    local y = core.tensor({1, 2, 3}, {requires_grad = true})
    local z = x * 2
    z:copy_(y * 3)
    assert.same({{3, 6, 9}, {3, 6, 9}}, z:totable())
    assert.equal("sim:0", z.device)
    z:sum():backward()
    assert.same({6, 6, 6}, y.grad:totable())
    x[{2, {}}] = core.ones(3, {device = "sim:1", dtype = "i64"})
    assert.same({{0, 0, 0}, {1, 1, 1}}, x:totable())
  end)

  it("gives sizes and facts", function()
    local x = core.zeros(2, 3, 4)
    assert.equal(3, x:size(2))
    assert.equal(4, x:size(-1))
    assert.equal("(2, 3, 4)", tostring(x:size()))
    assert.equal("(12, 4, 1)", tostring(x:stride()))
    assert.equal(3, x:dim())
    assert.equal(4, x:element_size())
    assert.equal(96, x:nbytes())
    assert.is_true(x:is_contiguous())
    assert.is_false(x:transpose(1, 2):is_contiguous())
    assert.is_true(x:shares(x[1]))
    assert.equal(12, x[2]:storage_offset())
    assert.equal("userdata", type(x:data_ptr()))
    local safe = core.zeros(2)
    assert.equal(safe, safe[{{1}}]:protect() and safe)
    assert.has_error(function() safe:add_(1) end,
                     "add_: the tensor lies in memory that may only be read: clone() it first")
    assert.has_error(function() safe[2] = 1 end)
    assert.equal(1, safe:clone():add_(1)[2]:item())
    assert.is_true(x:is_floating_point())
    assert.is_false(x:i64():is_floating_point())
    assert.is_false(x.closed)
    local version = x.version
    x:add_(1)
    assert.equal(version + 1, x.version)
    assert.is_true(x.shape == x:size())
    assert.equal(4, x.shape[-1])
    assert.is_nil(x.shape[4])
    assert.error_matches(function() return x:size(4) end, "no dim 4 in a tensor of 3 dims")
    assert.error_matches(function() return x:size(0) end, "dims count from 1")
  end)

  it("is cut in pieces that are views", function()
    local x = core.arange(7)
    local list = x:split(3)
    assert.equal(3, #list)
    assert.same({6}, values(list[3]))
    list[1]:fill_(9)
    assert.same({9, 9, 9, 3, 4, 5, 6}, values(x))
    assert.same({3, 4}, values(x:split({3, 2, 2})[2]))
    assert.equal(2, #x:chunk(2))
    assert.equal(4, #x:chunk(2)[1])
    local y = core.arange(6):view(2, 3)
    assert.equal(3, #y:unbind(2))
    assert.same({1, 4}, values(y:unbind(2)[2]))
    assert.equal("(2, 2)", tostring(y:split(2, 2)[1].shape))
    assert.error_matches(function() x:split({3, 3}) end, "sizes add up to 6, the dim has 7")
    assert.error_matches(function() x:split({3, 5}) end, "sizes do not add up to 7")
    assert.error_matches(function() x:split(0) end, "size: expected at least 1, got 0")
    assert.error_matches(function() x:chunk(0) end, "n: expected at least 1, got 0")
    assert.error_matches(function() x:unbind(2) end, "there is no dim 2 in a tensor of 1 dims")
    local long = core.zeros(0, 1 << 49) -- of nothing
    assert.error_matches(function() long:unbind(2) end, "unbind: a list of %d+ tensors")
    assert.error_matches(function() long:split(1, 2) end, "split: a list of %d+ tensors")
    assert.error_matches(function() long:chunk(1 << 40, 2) end, "chunk: a list of %d+ tensors")
    assert.equal(3, #long:chunk(3, 2))
    assert.equal(1, #core.zeros(1):chunk(math.maxinteger))
  end)

  it("has the names of PyTorch that differ", function()
    local x = core.tensor{{1, 5}, {7, 2}}
    assert.equal(7, x:max():item())
    local v, i = x:max(2)
    assert.same({5, 7}, values(v))
    assert.same({2, 1}, values(i))
    v = x:min{dim = 1, keepdim = true}
    assert.same({{1, 2}}, values(v))
    assert.same({{3, 5}, {7, 3}}, values(x:max(core.full({2, 2}, 3))))
    assert.same({{1, 7}, {5, 2}}, values(x:t()))
    assert.same({{1, 7}, {5, 2}}, values(x.T))
    assert.same({1, 2}, values(core.tensor{1, 2}.T))
    assert.equal("(4, 3, 2)", tostring(core.zeros(2, 3, 4).T.shape))
    assert.same({36, 15}, values(core.tensor{1, 5}:mm(x)))
    assert.error_matches(function() core.zeros(2, 3, 4):t() end,
                         "at most 2 dims, got %(2, 3, 4%); use transpose or permute")
    local line = core.arange(4)
    assert.same({{0, 1}, {2, 3}}, values(line:view_as(x)))
    assert.same({{0, 1}, {2, 3}}, values(line:reshape_as(x)))
    assert.same({{0, 1}, {0, 1}}, values(core.arange(2):expand_as(x)))
    assert.error_matches(function() line:view_as(2) end,
                         "view: other: expected a tensor, got an integer")
  end)

  it("closes once, twice, and says so afterwards", function()
    local x = core.zeros(2)
    assert.is_false(x.closed)
    x:close()
    x:close()
    assert.is_true(x.closed)
    assert.equal("flare.Tensor (closed)", tostring(x))
    assert.error_matches(function() return x + 1 end, "add: a: tensor is closed")
    assert.error_matches(function() return x:sum() end, "sum: x: tensor is closed")
    assert.error_matches(function() return x[1] end, "tensor is closed")
    assert.error_matches(function() return x.shape end, "tensor is closed")
    assert.error_matches(function() x[1] = 2 end, "tensor is closed")
    local kept
    do
      local y <close> = core.ones(2)
      kept = y
    end
    assert.is_true(kept.closed)
  end)

  it("is iterated by ipairs and pairs", function()
    local x = core.tensor{{1, 2}, {3, 4}}
    local sums = {}
    for i, row in ipairs(x) do sums[i] = row:sum():item() end
    assert.same({3, 7}, sums)
    sums = {}
    for i, row in pairs(x) do sums[i] = row:sum():item() end
    assert.same({3, 7}, sums)
    assert.error_matches(function() pairs(core.tensor(1)) end, "no rows")
  end)

  it("keeps its methods to itself", function()
    local x = core.zeros(1)
    assert.equal("flare.tensor", getmetatable(x))
    assert.has_error(function() setmetatable(x, {}) end)
    assert.is_nil(x._anything)
    assert.equal("method", core.methods().sum)
    assert.equal("field", core.methods().shape)
    assert.error_matches(function() core.method("sum", print) end, "have 'sum' already")
    core.method("test_twice", function(t) return t * 2 end)
    assert.same({2}, values(core.ones(1):test_twice()))
  end)

  it("is filled with random numbers in place", function()
    local x = core.zeros(1000)
    assert.is_true(rawequal(x, x:uniform_(2, 3)))
    assert.is_true(x:min():item() >= 2 and x:max():item() <= 3)
    x:normal_(5, 0.1)
    assert.is_true(math.abs(x:mean():item() - 5) < 0.05)
    x:zero_()
    assert.equal(0, x:max():item())
    local a = core.zeros(4):uniform_(0, 1, {generator = core.generator(3)})
    local b = core.zeros(4):uniform_(0, 1, {generator = core.generator(3)})
    assert.same(values(a), values(b))
  end)
end)

describe("one element for all", function()
  local list, two = {{1, -2, 4}, {8, 0.5, -16}}, 2 -- quotients are exact
  local of = {add = function(a, b) return a + b end, div = function(a, b) return a / b end,
    lt = function(a, b) return a < b end, maximum = math.max}

  local function ones() -- 2 in every form that is read for all of a matrix
    local one = core.tensor(two)
    return {one, one:reshape(1), one:reshape(1, 1), one:expand(2, 3), core.tensor{0, two}[2]}
  end

  for name, f in pairs(of) do
    it("is what " .. name .. " of numbers gives, on either side", function()
      local x = core.tensor(list)
      for _, y in ipairs(ones()) do
        local xy, yx = {{}, {}}, {{}, {}}
        for i, row in ipairs(list) do
          for j, v in ipairs(row) do xy[i][j], yx[i][j] = f(v, two), f(two, v) end
        end
        assert.same(xy, values(x[name](x, y)))
        assert.same(yx, values(y[name](y, x)))
        assert.same(xy, values(x[name](x, two)))
        assert.same(yx, values(core[name](two, x)))
      end
    end)
  end

  it("has the shape of the other, unless its own has more dims", function()
    local x, y = core.tensor{1, 2, 3}, core.tensor{{2}}
    assert.equal("(1, 3)", tostring((x * y).shape))
    assert.equal("(1, 3)", tostring((y * x).shape))
    assert.equal("(0)", tostring((core.zeros(0) * core.tensor(2)).shape))
  end)

  it("has gradients", function()
    local x = core.tensor({{1, -2}, {3, 4}}, {requires_grad = true})
    local y = core.tensor(3, {requires_grad = true});
    (x:relu() * y):sum():backward()
    assert.same({{3, 0}, {3, 3}}, values(x.grad))
    assert.equal(8, y.grad:item())
  end)
end)

describe("generators", function()
  it("give the same numbers again", function()
    core.manual_seed(7)
    local a = core.rand(5)
    core.manual_seed(7)
    assert.same(values(a), values(core.rand(5)))
    local g, h = core.generator(7), core.generator(7)
    local x = core.rand({5}, {generator = g})
    assert.same(values(a), values(x))
    core.rand(100)
    assert.same(values(x), values(core.rand({5}, {generator = h})))
    assert.is_true(g.offset > 0)
    assert.equal(7, g.seed)
  end)

  it("are two integers", function()
    local g = core.generator(5)
    core.rand({3}, {generator = g})
    local seed, offset = g:state()
    local a = core.rand({3}, {generator = g})
    g:set_state(seed, offset)
    assert.same(values(a), values(core.rand({3}, {generator = g})))
    g.offset = offset
    assert.same(values(a), values(core.rand({3}, {generator = g})))
    local c = g:clone()
    assert.same(values(core.rand({3}, {generator = g})), values(core.rand({3}, {generator = c})))
    core.default_generator():set_state(seed, offset)
    assert.same(values(a), values(core.rand(3)))
    assert.error_matches(function() core.rand({3}, {generator = 5}) end, "generator: expected one")
    assert.has_error(function() g.sed = 1 end)
  end)
end)
