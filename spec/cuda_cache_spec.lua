-- Compiled kernels on disk: found again, made again where they are damaged, done without where
-- there is no place for them, written by many at once; and the threads that compile ahead. The GPU
-- and the compiler are fakes.
local core_kernels = require "spec.support.core_kernels"
local fakes = require "spec.support.fakes"
local tree = require "spec.support.tree"

local place = os.tmpname() .. ".d"
local cache, log = place .. "/cache", place .. "/compiled"
local script = [[
local flare = require "flare"
local x = flare.ones({4, 8}, {dtype = "f64", device = "cuda"})
x:softmax(2)
]]

-- Runs the script; how often its kernel, none of those compiled ahead, was compiled by then, and
-- the exit status.
local function run(folder, more)
  local said, status = fakes.run(place, ("FLARE_CACHE='%s' FAKE_COMPILED='%s'"):format(folder, log),
    script .. (more or ""))
  assert.equal("", said)
  local count = 0
  for line in tree.read(log):gmatch "[^\n]+" do
    if line:find "^forward<0, " then count = count + 1 end
  end
  return count, status
end

local function files(ending)
  return tree.files("'" .. cache .. "'", ending)
end

-- Waits until a folder has at least so many files and no more come.
local settled = [[
local function count()
  local pipe = io.popen "ls '%s' 2>&1 | wc -l"
  return pipe:read "n", pipe:close()
end
local last, same, turns = -1, 0, 0
while same < 3 do
  turns = turns + 1
  assert(turns < 1000, "no more than " .. last .. " files have come")
  os.execute "sleep 0.1"
  local n = count()
  same, last = n == last and n >= %d and same + 1 or 0, n
end
]]

-- Rewrites every file of the cache.
local function damage(f)
  for _, path in ipairs(files ".cubin") do
    local text = tree.read(path)
    local file = assert(io.open(path, "w"))
    file:write(f(text))
    file:close()
  end
end

describe("compiled kernels on disk", function()
  setup(function() fakes.machine(place) end)
  teardown(function() os.execute("rm -rf " .. place) end)
  before_each(function()
    os.execute(("rm -rf '%s'; : >'%s'"):format(cache, log))
  end)

  it("are compiled once", function()
    assert.equal(1, (run(cache)))
    assert.equal(1, (run(cache)))
    assert.is_true(#files ".cubin" >= 2)
    assert.equal(0, #files ".part")
  end)

  it("need no compiler", function()
    run(cache)
    local said, status = fakes.run(place,
      ("FLARE_CACHE='%s' FLARE_CUDA_HIDE=libnvrtc,libcublasLt,libcudnn"):format(cache), script)
    assert.equal("", said)
    assert.equal(0, status)
  end)

  it("are made again where they are damaged", function()
    run(cache)
    for _, f in ipairs {
      function(text) return text:sub(1, -2) end,
      function(text) return text:sub(1, 7) end,
      function() return "" end,
      function(text) return text:sub(1, -2) .. "?" end,
      function(text) return ("\255"):rep(16) .. text:sub(17) end,
      function() return ("x"):rep(10000) end,
    } do
      local before = run(cache)
      damage(f)
      assert.equal(before + 1, (run(cache)))
      assert.equal(before + 1, (run(cache)))
    end
  end)

  it("are done without where nothing can be written", function()
    for n, folder in ipairs {"/dev/null/cache", place .. "/script.lua/cache", "/proc/cache"} do
      local count, status = run(folder)
      assert.equal(n, count)
      assert.equal(0, status)
    end
    local _, status = run "off"
    assert.equal(0, status)
    assert.equal(0, #files ".cubin")
  end)

  it("can be written by many at once", function()
    run(cache)
    os.execute(("rm -rf '%s'"):format(cache))
    local command = fakes.command(place, ("FLARE_CACHE='%s' FAKE_COMPILED='%s'"):format(cache, log),
      place .. "/script.lua")
    local out = tree.output(("for i in 1 2 3 4 5 6 7 8; do (%s 2>&1; echo status=$?) & done; wait")
      :format(command))
    assert.equal(("status=0\n"):rep(8), out)
    assert.equal(0, #files ".part")
    local before = run(cache)
    assert.equal(before, (run(cache)))
  end)

  it("of core.def are what a GPT and a residual network ask for first", function()
    assert(tree.read "kernels/cuda/driver/core.def" == core_kernels.page(), "build/flare "
      .. "spec/support/core_kernels.lua > kernels/cuda/driver/core.def brings it up to date")
  end)

  it("of core.def come into being as soon as a device is used, no others", function()
    local _, core = tree.read "kernels/cuda/driver/core.def":gsub("CORE%(0x", "")
    local said, status = fakes.run(place, ("FLARE_CACHE='%s'"):format(cache),
      "require [[flare]].ones(4):to [[cuda]]\n" .. settled:format(cache, core))
    assert.equal("", said)
    assert.equal(0, status)
    assert.equal(core, #files ".cubin")
  end)

  it("come into being beside the program, before they are asked for", function()
    local _, status = run(cache, "local y = flare.ones(4, 8, {device = [[cuda]]})\n"
      .. settled:format(cache, 100) .. [[
y:sigmoid():tanh():exp()
os.exit(count() == last and 0 or 3)
]])
    assert.equal(0, status)
    assert.equal(0, #files ".part")
  end)
end)
