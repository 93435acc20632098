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

  -- Runs a script on the device and returns which kernels began early, as "file name", those
  -- whose text waits, and what a compiled function launched in its last call.
  local function early_of(script)
    local files = {}
    for _, name in ipairs {"early", "waiting", "launched"} do
      files[name] = place .. "/" .. name
      io.open(files[name], "w"):close()
    end
    local said, status = fakes.run(place, ("FLARE_CACHE=off FAKE_EARLY='%s' FAKE_WAITING='%s' "
      .. "FAKE_LAUNCHED='%s'"):format(files.early, files.waiting, files.launched),
      ("local launched = %q\n"):format(files.launched) .. [[
local flare = require "flare"
local nn, F = flare.nn, flare.nn.functional
local function zeros(dtype, ...) return flare.zeros({...}, {dtype = dtype, device = "cuda"}) end
]] .. script)
    assert.equal("", said)
    assert.equal(0, status)
    local early, waiting, names = {}, {}, {}
    for line in tree.read(files.early):gmatch "[^\n]+" do early[line] = true end
    for line in tree.read(files.waiting):gmatch "[^\n]+" do waiting[line] = true end
    for line in tree.read(files.launched):gmatch "[^\n]+" do names[#names + 1] = line end
    return early, waiting, names
  end

  it("wait for it first", function()
    local early, waiting = early_of [[
flare.linear(zeros("bf16", 1, 2048), zeros("bf16", 2048, 2048))
for _, dtype in ipairs {"bf16", "f32"} do
  flare.quantized_linear(zeros(dtype, 1, 4096), zeros("u8", 4096, 2048), zeros("f16", 4096, 32))
end]]
    local files = {}
    for kernel in pairs(early) do
      assert(waiting[kernel], kernel .. " does not wait")
      files[kernel:match "(%w+)%.cu "] = true
    end
    assert.is_true(files.skinny and files.quantized)
  end)

  -- Every launch of the graph, but for products of f32, which slow down.
  local function all_begin(setup, step)
    local early, waiting, names = early_of(setup .. [[

local f = flare.compile(]] .. step .. [[, {wait = true})
for _ = 1, 30 do f() end
io.open(launched, "w"):close()
f()]])
    local entries, graph = {}, false
    for kernel in pairs(early) do
      assert(waiting[kernel], kernel .. " does not wait")
      entries[kernel:match " (.*)$"] = true
    end
    for _, name in ipairs(names) do
      graph = graph or name == "graph"
      local f32 = name:find "^simt<" or name:find "^gather<%d+, %d+>"
      assert(name == "graph" or name:find "^set " or f32 or entries[name],
        name .. " begins late")
    end
    assert(graph, "no graph")
  end

  it("are all of a step that decodes", function()
    all_begin([[
local d = 64
local embed = nn.Embedding(512, d):to "bf16":to "cuda"
local norm, qkv = nn.LayerNorm(d):to "bf16":to "cuda", nn.Linear(d, 3 * d):to "bf16":to "cuda"
local cache, token = zeros("bf16", 2, 1, 2, 1024, 32), zeros("i64", 1, 1) + 1
local position, all = zeros("i64", 1) + 1, flare.arange(1, 1025, {device = "cuda"})]], [[
function()
  return flare.no_grad(function()
    local h = embed(token)
    local parts = qkv(norm(h)):view(1, 1, 3, 2, -1):permute(3, 1, 4, 2, 5)
    cache:index_copy_(4, position, parts:narrow(1, 2, 2))
    local mask = all:le(position):view(1, 1, 1, -1)
    local y = flare.attention(parts[1], cache[1], cache[2], {mask = mask})
    h = norm(h + y:transpose(2, 3):reshape(1, 1, d))
    token:copy_(F.linear(h, embed.weight):argmax(3))
    position:copy_(position % 1024 + 1)
    return token
  end)
end]])
  end)

  it("are all of a small step of training but its products", function()
    all_begin([[
local net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)):to "cuda"
local optimizer = flare.optim.Adam(net:parameters(), {lr = 1e-3})
local x, y = zeros("f32", 128, 784), zeros("i64", 128) + 1]], [[
function()
  optimizer:zero_grad()
  local loss = F.cross_entropy(net(x), y)
  loss:backward()
  optimizer:step()
  return loss
end]])
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
    return select(2, tree.read(names):gsub("skinny.cu tensor<", ""))
  end

  it("are products of a graph whose weights it leaves as they are", function()
    assert.equal(2, early "return F.linear(F.tanh(F.linear(x, w, b)) + 1, w, b)")
    assert.equal(0, early "local y = F.linear(x, w, b) w:add_(step) return F.linear(y, w, b)")
    assert.equal(0, early "local y = F.linear(x, w, b) b:add_(step[1]) return F.linear(y, w, b)")
    assert.equal(1, early "return F.linear(F.linear(x, w), w + step)")
  end)
end)
