-- flare.backends: settings for GPUs, which need none to be set and read.
local fakes = require "spec.support.fakes"
local flare = require "flare"
local tree = require "spec.support.tree"

local function refused(given, message)
  local ok, err = pcall(flare.backends, given)
  assert.is_false(ok)
  assert.equal(message, (tostring(err):gsub("^[^:]*:%d+: ", "")))
end

describe("flare.backends", function()
  local before
  setup(function() before = flare.backends() end)
  teardown(function() flare.backends(before) end)

  it("tells the defaults", function()
    assert.same({matmul = "auto", conv = "auto", tf32 = false, deterministic = false}, before)
  end)

  it("sets the given settings, and keeps the others", function()
    local now = flare.backends{conv = "own", tf32 = true}
    assert.same({matmul = "auto", conv = "own", tf32 = true, deterministic = false}, now)
    flare.backends{matmul = "cublaslt", conv = "cudnn", deterministic = true}
    assert.same({matmul = "cublaslt", conv = "cudnn", tf32 = true, deterministic = true},
      flare.backends())
    assert.same(before, flare.backends(before))
  end)

  it("is for the whole process", function()
    flare.backends{conv = "own"}
    local _, seen = flare.core.spawn([[return require "flare".backends().conv]]):join()
    assert.equal("own", seen)
    flare.backends(before)
  end)

  it("names the nearest of what it does not know, and then sets nothing", function()
    refused({convs = "own"}, "backends: unknown option 'convs' (did you mean 'conv'?)")
    refused({tf32 = true, conv = "cudn"},
      'backends: conv: there is no "cudn" (did you mean "cudnn"?)')
    refused({matmul = "openblas"},
      'backends: matmul: there is no "openblas"; there are "auto", "cublaslt", "own"')
    refused({matmul = 1}, 'backends: matmul must be one of "auto", "cublaslt", "own", got 1')
    refused({tf32 = "yes"}, "backends: tf32 must be true or false, got yes")
    refused("own", "backends: options must be a table {name = value}, got string (there are: "
      .. "conv, deterministic, matmul, tf32)")
    assert.same(before, flare.backends())
  end)

  it("refuses controls that a backend does not have", function()
    local control = flare.core.backend_control
    assert.has_error(function() control("cuda", "speed", 1) end)
    assert.match("cuda has no control \"speed\"", select(2, pcall(control, "cuda", "speed", 1)))
    assert.match("conv must be 0 to 2, got 3", select(2, pcall(control, "cuda", "conv", 3)))
    assert.match("conv must be 0 to 2, got 0.5", select(2, pcall(control, "cuda", "conv", 0.5)))
    assert.match("there is no backend \"gpu\"", select(2, pcall(control, "gpu", "conv", 1)))
  end)
end)

-- The kernels that lines of a script launch, on a GPU that does nothing.
describe("flare.backends{deterministic = true}", function()
  local place = os.tmpname() .. ".d"
  setup(function() fakes.machine(place) end)
  teardown(function() os.execute("rm -rf " .. place) end)

  local function launched(script, deterministic)
    local log = place .. "/launched"
    os.execute((": >'%s'"):format(log))
    local said, status = fakes.run(place, ("FLARE_CACHE=off FAKE_LAUNCHED='%s'"):format(log), [[
local flare = require "flare"
flare.backends{deterministic = ]] .. tostring(deterministic) .. "}\n" .. script)
    assert.equal("", said)
    assert.equal(0, status)
    return "\n" .. tree.read(log)
  end

  local function takes(script, free, ordered)
    local out = launched(script, false)
    assert(out:find("\n" .. free .. "<", 1, true), out)
    assert(not out:find("\n" .. ordered .. "<", 1, true), out)
    out = launched(script, true)
    assert(not out:find("\n" .. free .. "<", 1, true), out)
    assert(out:find("\n" .. ordered .. "<", 1, true), out)
  end

  it("adds no floats in whatever order they come", function()
    takes([[
local at = flare.ones({20000}, {dtype = "i64", device = "cuda"})
flare.zeros({40}, {device = "cuda"}):scatter_add(1, at, flare.ones({20000}, {device = "cuda"}))
]], "add", "places")
    local out = launched([[
local x = flare.zeros({2, 30, 30}, {device = "cuda", requires_grad = true})
x:max_pool{kernel = {5, 5}, stride = {1, 1}}:sum():backward()
]], false)
    assert(out:find("\nunmost<", 1, true) and not out:find("\nput<", 1, true), out)
    takes([[
local q = flare.zeros({1, 2, 200, 64}, {dtype = "bf16", device = "cuda", requires_grad = true})
flare.attention(q, q, q):sum():backward()
]], "gather", "queries")
  end)
end)
