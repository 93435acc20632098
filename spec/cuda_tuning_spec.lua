-- What autotuning takes of a launch: candidates have scratch memory of their own. The GPU computes
-- nothing, and the libraries' heuristics name many algorithms.
local fakes = require "spec.support.fakes"

local place = os.tmpname() .. ".d"
local settings = "FLARE_CACHE=off FLARE_CUDA_HIDE=none FLARE_PACK=none"

local function run(script)
  local said, status = fakes.run(place, settings, script)
  return said, status
end

describe("a launch on a GPU", function()
  setup(function() fakes.tuning(place) end)
  teardown(function() os.execute("rm -rf " .. place) end)

  it("trains a U-Net in bf16, whose convolutions and products are autotuned", function()
    local said, status = run [[
package.path = "./?.lua;" .. package.path
local losses = require("spec.support.unet").train("cuda", 5, 64, 32)
print(#losses)
]]
    assert.equal("5\n", said)
    assert.equal(0, status)
  end)

  it("has the memory of one candidate at a time", function()
    local said, status = run [[
local flare = require "flare"
local x = flare.ones({8, 64, 64, 64}, {dtype = "bf16", device = "cuda"})
local w = flare.ones({64, 64, 3, 3}, {dtype = "bf16", device = "cuda"})
local function peak()
  flare.memory.reset_peak "cuda"
  local before = flare.memory.stats "cuda".live
  local y = flare.nn.functional.conv(x, w, nil, {padding = 1})
  return flare.memory.stats "cuda".peak - before
end
peak()
local plain = peak()
local tuned = peak()
for _ = 1, 100 do tuned = math.max(tuned, peak()) end
assert(tuned < 4 * plain + 64 * 2 ^ 20, plain .. " bytes, then " .. tuned)
]]
    assert.equal("", said)
    assert.equal(0, status)
  end)

  it("uses cuBLASLt's epilogues for what plans have behind a product", function()
    local epilogues = (" FAKE_EPILOGUES=%s/epilogues"):format(place)
    local said, status = fakes.run(place, settings .. epilogues, [[
local flare = require "flare"
local core = require "flare.core"
local o = {device = "cuda", dtype = "bf16"}
local x, w, bias = flare.zeros({256, 256}, o), flare.zeros({512, 256}, o), flare.zeros({512}, o)
local h = flare.zeros({256, 512}, o)
local function asked(f)
  local compiled, object = core.compiled(f, false, true, false, false)
  for _ = 1, 4 do compiled() end
  assert(core.compiled_stats(object).kernels == 1)
  local name, set, list = os.getenv "FAKE_EPILOGUES", {}, {}
  io.open(name, "a"):close()
  for line in io.lines(name) do set[tonumber(line)] = true end
  io.open(name, "w"):close()
  for epilogue in pairs(set) do list[#list + 1] = epilogue end
  table.sort(list)
  print(table.unpack(list))
end
local function linear() return flare.nn.functional.linear(x, w, bias) end
asked(function() return linear():relu() end) -- RELU_BIAS
asked(function() local y = linear() return flare.gelu(y, "tanh"), y end) -- GELU_AUX_BIAS
asked(function() local y = linear() return y:relu(), y end) -- BIAS: y is a result, too
asked(function() return flare.silu(linear()) end)
asked(function() return core.ops.gelu_backward(x:matmul(w:t()), h, "tanh") end) -- DGELU
asked(function() return core.ops.gelu_backward(x:matmul(w:t()), h, "erf") end) -- none has it
]])
    assert.equal("6\n164\n4\n4\n192\n\n", said)
    assert.equal(0, status)
  end)

  it("prefers an epilogue of cuBLASLt to a kernel of its own behind the product", function()
    local epilogues = (" FAKE_TIME=100 FAKE_EPILOGUES=%s/epilogues"):format(place)
    local said, status = fakes.run(place, settings .. epilogues, [[
local flare = require "flare"
local core = require "flare.core"
local o = {device = "cuda", dtype = "bf16"}
local x, w, h = flare.zeros({256, 256}, o), flare.zeros({512, 256}, o), flare.zeros({256, 512}, o)
local f = core.compiled(function()
  return core.ops.gelu_backward(x:matmul(w:t()), h, "tanh")
end, false, true, false, false)
for _ = 1, 4 do f() end -- from the second on, both are candidates
io.open(os.getenv "FAKE_EPILOGUES", "w"):close()
f()
for line in io.lines(os.getenv "FAKE_EPILOGUES") do print(line) end -- DGELU
]])
    assert.equal("192\n", said)
    assert.equal(0, status)
  end)

  it("has cuBLASLt's heuristic asked about a plan's products before the plan runs", function()
    local asked = (" FLARE_COMPILE=on FAKE_ASKED=%s/asked"):format(place)
    local said, status = fakes.run(place, settings .. asked, [[
local flare = require "flare"
local F = flare.nn.functional
local x = flare.zeros({512, 256}, {device = "cuda", dtype = "bf16"})
local w = flare.zeros({1000, 256}, {device = "cuda", dtype = "bf16"}):requires_grad_()
local target = flare.ones({512}, {dtype = "i64"}):to "cuda"
local step = flare.compile(function()
  w.grad = nil
  F.cross_entropy(F.linear(x, w), target):backward()
end, {chunk = 128 * 1000 * 2})
local function asked()
  local n = {program = 0, beside = 0}
  for line in io.lines(os.getenv "FAKE_ASKED") do n[line] = n[line] + 1 end
  return n
end
step()
step() -- candidates of the whole products
local before = asked().beside
for turn = 1, 5000 do
  step()
  if flare.compile_stats(step).planned > 0 then break end
  os.execute "sleep 0.01"
end
print(asked().beside - before >= 2, flare.compile_stats(step).planned)
]])
    assert.equal("true\t1\n", said)
    assert.equal(0, status)
  end)

  -- The kernels of one call of conv, and of its gradients, with cuDNN there.
  local function launched(setup, shape, groups)
    local names = place .. "/launched"
    os.remove(names)
    local said, status = fakes.run(place, settings .. " FAKE_LAUNCHED=" .. names, ([[
local flare = require "flare"
local function last(x) return x:permute{1, 3, 4, 2}:contiguous():permute{1, 4, 2, 3} end
%s
local x = flare.ones({8, 64, 56, 56}, {dtype = "bf16", device = "cuda"})
local w = flare.ones(%s, {dtype = "bf16", device = "cuda"})
local options = {padding = 1, groups = %d}
local y = flare.conv(last(x), w, nil, options)
flare.conv_input_grad(y, w, x.shape, options)
flare.conv_weight_grad(y, last(x), w.shape, options)
]]):format(setup, shape, groups))
    assert.equal("", said)
    assert.equal(0, status)
    local found, file = {}, assert(io.open(names))
    for name in file:lines() do
      if name:find "^places<" or name:find "^taps<" or name:find "^pieces<" then
        found[#found + 1] = name
      end
    end
    file:close()
    return table.concat(found, " ")
  end

  it("computes depthwise convolutions by flare's kernels until they are measured", function()
    local all = "places<3, 1, 2, 3, 1, 4, 8> places<3, 1, 2, 3, 1, 4, 8> "
      .. "taps<3, 1, 2, 3, 1, 3, 8> pieces<3>"
    assert.equal(all, launched("", "{64, 1, 3, 3}", 64))
    assert.equal(all, launched("flare.backends{deterministic = true}", "{64, 1, 3, 3}", 64))
    assert.equal("", launched("flare.backends{conv = 'cudnn'}", "{64, 1, 3, 3}", 64))
    assert.equal("", launched("", "{64, 2, 3, 3}", 32))
  end)

  it("may have more operands to copy than a hundred", function()
    local said, status = run [[
local flare = require "flare"
local core = require "flare.core"
for _, dtype in ipairs {"f32", "bf16"} do
  local list = {}
  for k = 1, 150 do
    list[k] = flare.ones({4, 3}, {dtype = k % 2 == 0 and dtype or "f32", device = "cuda"}):t()
  end
  core.ops.global_norm(list)
  core.ops.scale_step(2, list)
  core.ops.lerp_step(0.5, list)
  flare.cat(list)
end
]]
    assert.equal("", said)
    assert.equal(0, status)
  end)
end)
