-- Kernels of a plan are compiled by threads beside the program, once each, on a driver whose
-- kernels do nothing.
local fakes = require "spec.support.fakes"

local place = os.tmpname() .. ".d"

local script = [[
  local flare = require "flare"
  local function randn(...) return flare.randn({...}, {device = "cuda"}) end
  local x, w = randn(64, 96), randn(96, 96)
  local step = flare.compile(function()
    local y = x
    for k = 1, 4 do -- four kernels of rows, each with numbers of its own
      y = (y * (y * y):mean(-1, {keepdim = true}) + k):matmul(w)
      y = y:narrow(2, 1, 96 - 8 * k):contiguous()
      y = flare.cat({y, y:narrow(2, 1, 8 * k)}, 2)
    end
    return y
  end)
  for _ = 1, CALLS do step() end
  print(flare.compile_stats(step).kernels - 4) -- but the products
]]

-- How often a kernel "tile" was compiled, and how many the plan has.
local function compile(calls, settings)
  local names = place .. "/compiled"
  os.remove(names)
  local said, status = fakes.run(place, settings .. " FAKE_COMPILED=" .. names,
    (script:gsub("CALLS", calls)))
  assert.equal(0, status, said)
  local file = io.open(names)
  local _, n = ("\n" .. (file and file:read "a" or "")):gsub("\ntile%f[\n]", "")
  if file then file:close() end
  return n, tonumber(said)
end

describe("kernels of a plan on a GPU that computes nothing", function()
  setup(function() fakes.machine(place) end)
  teardown(function() os.execute("rm -rf " .. place) end)

  for _, cache in ipairs {"off", place .. "/cache"} do
    it("are compiled once each with the cache " .. (cache == "off" and cache or "on"), function()
      local n, kernels = compile(6, "FLARE_CACHE=" .. cache)
      assert(kernels >= 4)
      assert.equal(kernels, n)
      assert.equal(n, (compile(2, "FLARE_CACHE=off"))) -- a program that ends soon after
      if cache ~= "off" then assert.equal(0, (compile(6, "FLARE_CACHE=" .. cache))) end
    end)
  end
end)
