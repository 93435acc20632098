-- Launches of products with few rows, and of kernels that begin early, on a GPU that computes
-- nothing. What the kernels compute is compared on a GPU: spec/gpu/decode.lua.
local fakes = require "spec.support.fakes"
local tree = require "spec.support.tree"

local place = os.tmpname() .. ".d"

-- The kernels of one call of the compiled function that returns `value`.
-- @param setup what it refers to
local function launched(setup, value)
  local names = place .. "/launched"
  local said, status = fakes.run(place, "FLARE_CACHE=off FAKE_LAUNCHED=" .. names, ([[
local flare = require "flare"
local F = flare.nn.functional
local function zeros(dtype, ...) return flare.zeros({...}, {dtype = dtype, device = "cuda"}) end
%s
local f = flare.compile(function() return %s end)
for _ = 1, 3 do f() end
io.open("%s", "w"):close()
f()
]]):format(setup, value, names))
  assert.equal("", said)
  assert.equal(0, status)
  return tree.read(names):gsub("\n", " "):gsub(" $", "")
end

-- A product of x (m, k) and the transpose of w (n, k); r is like its result.
local function product(dtype, m, k, n, value)
  local function zeros(name, rows, columns)
    return ("local %s = zeros('%s', %d, %d) "):format(name, dtype, rows, columns)
  end
  local setup = zeros("x", m, k) .. zeros("w", n, k) .. zeros("r", m, n)
  return (launched(setup, value or "F.linear(x, w)"))
end

describe("a product with few rows", function()
  setup(function() fakes.machine(place) end)
  teardown(function() os.execute("rm -rf " .. place) end)

  it("is a kernel that reads the other operand once", function()
    assert.equal("tensor<3, 1, 4, 4, -1>", product("bf16", 1, 768, 2304))
    assert.equal("tensor<2, 2, 4, 4, -1>", product("f16", 16, 768, 2304))
    assert.equal("plain<1, 8, 4, -1>", product("f32", 5, 768, 2304))
    assert.equal("plain<0, 1, 2, -1>", product("f64", 1, 768, 2304))
    assert.equal("tensor<3, 1, 4, 4, -1>", product("bf16", 1, 768, 2304, "w:matmul(x[1])"))
  end)

  it("of other shapes and layouts is not", function()
    for _, case in ipairs {{"bf16", 17, 768, 2304}, {"f32", 9, 768, 2304}, {"bf16", 1, 772, 2304},
                           {"bf16", 1, 768, 2304, "r:matmul(w)"}} do
      local found = product(table.unpack(case))
      assert.falsy(found:find "tensor" or found:find "plain", found)
    end
  end)

  it("contains what a plan has behind it", function()
    for dtype, kernel in pairs {bf16 = "tensor<3, 1, 4, 4, ", f32 = "plain<1, 4, 4, "} do
      local function with(value) return product(dtype, 3, 768, 2304, value) end
      assert.equal(kernel .. "0>", with "F.linear(x, w, r[1]) + r")
      assert.equal(kernel .. "0>", with "F.silu(F.linear(x, w)) * r * 0.5 + r[1]")
      local three = "(function(y) return y:tanh(), y, y:to 'f64' end)(F.linear(x, w))"
      assert.equal(kernel .. "0>", with(three))
      assert.equal(kernel .. "-1>", with "F.relu(F.linear(x, w))")
    end
  end)

  it("of quantised weights reads them as they are stored", function()
    local function quantized(dtype, m, value)
      local setup = "local x, w = zeros('%s', %d, 512), zeros('u8', 96, 256) "
        .. "local s = zeros('f16', 96, 4)"
      local y = "flare.quantized_linear(x, w, s)"
      return (launched(setup:format(dtype, m), (value or "%s"):format(y)))
    end
    assert.equal("tensor<3, 8, 1, 1, 2, -1>", quantized("bf16", 1))
    assert.equal("tensor<2, 8, 2, 1, 2, -1>", quantized("f16", 9))
    assert.equal("rows<8, 4, -1>", quantized("f32", 3))
    assert.equal("tensor<3, 8, 1, 1, 2, 0>", quantized("bf16", 1, "F.silu(%s) * 2"))
    assert.truthy(quantized("bf16", 40):find "^dequantize<3, 8, 8> ")
  end)
end)

describe("kernels that may begin before the one in front of them has ended", function()
  setup(function() fakes.machine(place) end)
  teardown(function() os.execute("rm -rf " .. place) end)

  it("wait for it first", function()
    local names = place .. "/early"
    local said, status = fakes.run(place, "FLARE_CACHE=off FAKE_EARLY=" .. names, [[
local flare = require "flare"
local function zeros(dtype, ...) return flare.zeros({...}, {dtype = dtype, device = "cuda"}) end
flare.linear(zeros("bf16", 1, 2048), zeros("bf16", 2048, 2048))
for _, dtype in ipairs {"bf16", "f32"} do
  flare.quantized_linear(zeros(dtype, 1, 4096), zeros("u8", 4096, 2048), zeros("f16", 4096, 32))
end]])
    assert.equal("", said)
    assert.equal(0, status)
    local text, seen = {}, {}
    for path in tree.output "find kernels/cuda -name '*.cu'":gmatch "%S+" do
      text[#text + 1] = tree.read(path)
    end
    for name in tree.read(names):gmatch "[^\n]+" do seen[name:match "^%w+" or name] = true end
    for name in pairs(seen) do
      local waits = false
      for _, source in ipairs(text) do
        local _, at = source:find("%f[%w_]" .. name .. "%(const __grid_constant__ [%w_]+ a%) {\n")
        local body = at and source:sub(at):match "^.-\n}\n"
        local begins = body and (body:find "fl_begin%(" or body:find "skinny_begin<"
          or body:find "fl_await%(")
        waits = waits or begins ~= nil
      end
      assert(waits, name .. " does not call fl_begin")
    end
    assert.is_true(seen.tensor and seen.rows)
  end)

  -- How many products of a compiled function's graph begin early.
  local function early(body)
    local names = place .. "/early"
    io.open(names, "w"):close()
    local said, status = fakes.run(place, "FLARE_CACHE=off FAKE_EARLY=" .. names, ([[
local flare = require "flare"
local F = flare.nn.functional
local function zeros(...) return flare.zeros({...}, {dtype = "bf16", device = "cuda"}) end
local x, w, b, step = zeros(1, 768), zeros(768, 768), zeros(768), zeros(768, 768)
local f = flare.compile(function() %s end, {wait = true})
for _ = 1, 30 do f() end]]):format(body))
    assert.equal("", said)
    assert.equal(0, status)
    return select(2, tree.read(names):gsub("tensor<", ""))
  end

  it("are products of a graph whose weights it leaves as they are", function()
    assert.equal(2, early "return F.linear(F.tanh(F.linear(x, w, b)) + 1, w, b)")
    assert.equal(0, early "local y = F.linear(x, w, b) w:add_(step) return F.linear(y, w, b)")
    assert.equal(0, early "local y = F.linear(x, w, b) b:add_(step[1]) return F.linear(y, w, b)")
    assert.equal(1, early "return F.linear(F.linear(x, w), w + step)")
  end)
end)
