-- A little of what spec/long/fuzz.sh does for longer, and what it has found.
local flare = require "flare"
local core = flare.core
local fuzz = require "spec.support.fuzz"
local library = require "spec.support.fuzz_library"
local values = require "spec.support.fuzz_values"
local parsers = require "spec.support.parsers"

values.memory = 32 << 20

describe("random arguments", function()
  it("give results or errors", function()
    assert.is_true(fuzz.operators(40000, 1) > 12000)
  end)
end)

describe("the library's other functions", function()
  it("give results or errors", function()
    assert.is_true(library.calls(10000, 1) > 2000)
  end)
end)

describe("files with bytes turned over", function()
  it("are read or refused", function()
    assert.is_true(parsers.files(600, 1) < 300)
  end)
end)

describe("a monitor", function()
  it("needs room for a row, and no negative period", function()
    for _, o in ipairs {{}, {room = 0}, {room = -1}, {room = 1 << 40}, {room = 4, period = -1}} do
      assert.error_matches(function() core.monitor(o) end, "monitor: room must be 1 to")
    end
  end)
end)

local function refused(message, op, ...)
  local ok, said = pcall(core.ops[op], ...)
  assert.is_false(ok)
  assert.is_truthy(said:find(message, 1, true), said)
end

describe("numbers where tensors belong", function()
  it("are refused by rows made of others, by name", function()
    refused("nan_to_num takes a tensor as x, got a number: x:num", "nan_to_num", 3)
    refused("isclose takes a tensor as a, got a number", "isclose", 3, 2.5)
    refused("cov takes a tensor as x, got a number", "cov", 3)
    refused("kron: reshape takes a tensor as x, got a number", "kron", core.zeros(2), 3)
  end)
end)

describe("rows for gradients", function()
  local z = core.zeros

  it("take what forward would have given them, nothing smaller", function()
    refused("saved is missing: it takes (dy, saved)", "log_backward", z(8))
    refused("neg", "neg_backward", "text")
    assert.same({-1, -1}, core.neg_backward(core.ones(2)):totable())
    refused("y has shape (2), but must have (3)", "softmax_backward", z(3), z(2))
    refused("cannot normalise over the last 9 dims", "layer_norm_backward", z(2, 3), z(2, 3), nil,
            z(2), z(2), {dims = 9})
    refused("mean has shape (1), but must have (2)", "layer_norm_backward", z(2, 3), z(2, 3),
            z(3), z(1), z(2))
    refused("rstd has shape (), but must have (2)", "rms_norm_backward", z(2, 3), z(2, 3), z(3), 1)
    refused("0 groups", "group_norm_backward", z(2, 4), z(2, 4), nil, z(2, 2), z(2, 2), 0)
    refused("mean has shape (4), but must have (2, 2)", "group_norm_backward", z(2, 4), z(2, 4),
            nil, z(4), z(2, 2), 2)
    refused("dy has shape (2), but must have (2, 4)", "batch_norm_backward", z(2), z(2, 4), nil,
            z(4), z(4))
    local target = core.tensor({1, 2}, {dtype = "i64"})
    refused("lse has shape (), but must have (2)", "cross_entropy_backward", 1, z(2, 3), target,
            nil, 0, 1)
    refused("scores of shape (2, 3) take targets of shape (2)", "cross_entropy_backward", 1,
            z(2, 3), target[{{1, 1}}], nil, z(2), 1)
    refused("seed has shape (3), but must have ()", "dropout_backward", z(3), z(3), 0)
    refused("lse has shape (4), but must have (5)", "attention_backward", z(5, 2), z(5, 2),
            z(3, 2), z(3, 2), nil, z(5, 2), z(4), 0, 0)
  end)
end)

describe("faults of earlier versions", function()
  it("is an error or right", function()
    local empty = core.zeros(1, 3, 0)
    assert.has_error(function() return empty:narrow(3, -1, 1, {step = 5}) end,
                     "narrow: 1 elements from position 1 with step 5 do not lie within size 0")
    assert.has_error(function() return core.zeros(5, 0, 2):as_strided({}, {}) end)
    assert.equal(0, core.zeros(0):as_strided({0}, {1}, 1 << 62):numel())
    assert.equal("(2, 0)", tostring(core.group_norm(core.zeros(2, 0), {groups = 3}).shape))
    assert.same({{true, true}}, core.ops["repeat"](true, {1, 2}):totable())
    assert.equal(false, core.flip(false, {}):item())
    refused("xs: expected a tensor or a number, got string", "cat", {xs = "text"})
    assert.same({1, 1}, core.cat{xs = core.ones(2)}:totable())
    assert.has_error(function() return core.zeros(1 << 40, 0):totable() end,
                     "totable: (1099511627776, 0) has too many rows for tables")
    -- batches of very small matrices, and of empty ones
    assert.equal(1000000, core.cholesky(core.ones(1000000, 1, 1)):sum():item())
    local planes = core.zeros(4, 1 << 36, 7, 0)
    local back = core.max_pool_backward(planes, planes:to "i64", {4, 1 << 36, 7, 0}, 1)
    assert.equal(0, back:numel())
    planes = core.zeros({1, 1 << 38, 5, 0}, {dtype = "f64"})
    assert.equal(0, core.group_norm(planes, nil, nil, {groups = 1}):numel())
    assert.same({1 << 37, 0, 0}, core.qr(core.zeros(1 << 37, 0, 0)).shape)
    assert.equal(0, core.svdvals(core.zeros(5, 1 << 57, 3, 4, 0)[{{2, 3}, {9, 1 << 40}}]):numel())
    local c = core.zeros(3, {dtype = "c64"})
    refused("does not take c64", "scatter_reduce", c, 1, core.tensor({1}, {dtype = "i64"}), c,
            {reduce = "amax", include_self = false})
    local many = core.meta(core.zeros, 1 << 40, 3)
    core.meta(function() refused("depends on values", "unique", many, {dim = 2}) end)
    local less = core.meta(core.ops.diff, many, {n = 1 << 31, dim = 1}) -- in one step
    assert.same({(1 << 40) - (1 << 31), 3}, {table.unpack(less.shape)})
    assert.equal(1, #core.unique(core.zeros(1, 1 << 20), {dim = 1}))
    local none = core.diff(core.zeros(7, 1 << 48, 0), 1 << 31, {dim = 2})
    assert.same({7, (1 << 48) - (1 << 31), 0}, none.shape)
    assert.same({0, 7}, core.diff(core.zeros(3, 7), 9, {dim = 1}).shape)
    refused("at most 8 dims, not 10", "as_strided_backward", c, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {}, {})
    assert.same({0}, core.multinomial(core.ones(3), 0).shape)
    local moved = core.meta(function() return core.ones(2, 3):t():to("sim:0", "f64") end)
    assert.equal("f64 (3, 2)", moved.dtype .. " " .. tostring(moved.shape))
    local turned = core.tensor({{1, 2}, {3, 4}}):t()
    assert.same({{1, 3}, {2, 4}}, core.meta(function() return turned:totable() end))
    local tanh = flare.nn.Tanh()
    assert.has_error(function() tanh:watch() end,
                     "watch: a function or nil is expected, got a Tanh")
    refused("comm_scatter: a tensor has at most 8 dims, not 9", "comm_scatter", core.zeros(1),
            {shape = {1, 1, 1, 1, 1, 1, 1, 1, 1}})
  end)
end)
