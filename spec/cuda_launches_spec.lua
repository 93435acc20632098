-- The host's side of every row's CUDA kernels, forward and backward, with a driver whose kernels do
-- nothing: sizes, grids, scratch memory and specialisations are worked out, nothing is refused.
local fakes = require "spec.support.fakes"
local tree = require "spec.support.tree"

local place = os.tmpname() .. ".d"

describe("on a GPU that computes nothing", function()
  setup(function() fakes.machine(place) end)
  teardown(function() os.execute("rm -rf " .. place) end)

  local families = {}
  for _, family in ipairs(require "spec.support.families") do
    if family ~= "comm" then families[#families + 1] = family end
  end

  -- every row on its samples; fails with what a row said
  local function launch(settings)
    -- memory without a cache is zeros here: kernels that count have counted nothing
    local out = tree.output(fakes.command(place, "FLARE_CACHE=off FLARE_MEMORY=direct " .. settings,
      -- bincount refuses the smallest position that it reads back, since it is always 0 here; the
      -- rows that it is made of are launched by themselves
      "spec/support/every_row.lua --device cuda --dtypes f32,bf16,f64 --without bincount "
      .. table.concat(families, " ")) .. " 2>&1")
    local pieces, calls, failed = out:match "(%d+) pieces of rows, (%d+) calls, (%d+) failed\n$"
    assert(failed == "0", out)
    assert.is_true(tonumber(pieces) > 500 and tonumber(calls) > 9000, out)
  end

  -- Compute capability and KiB of shared memory that a block may ask for. FLARE_SPEC_CHIPS has the
  -- capabilities of those that are tested, such as "8.6 9.0"; by default all are.
  local wanted = os.getenv "FLARE_SPEC_CHIPS"
  for _, chip in ipairs {{8, 0, 163}, {8, 6, 99}, {8, 9, 99}, {9, 0, 227}, {12, 0, 99}} do
    local capability = ("%d.%d"):format(chip[1], chip[2])
    local settings = ("FAKE_MAJOR=%d FAKE_MINOR=%d FAKE_SHARED=%d"):format(chip[1], chip[2],
      chip[3] * 1024)
    local name = "of compute capability " .. capability .. " "

    if not wanted or wanted:find(capability, 1, true) then
      -- those of 9.0 come from the pack, below
      if capability ~= "9.0" then
        it(name .. "every row is launched on its samples", function() launch(settings) end)
      end

      it(name .. "large calls ask for no more shared memory than it has", function()
        local out = tree.output(fakes.command(place, "FLARE_CACHE=off FLARE_MEMORY=direct "
          .. settings, "spec/support/large_calls.lua 2>&1"))
        assert.equal("done\n", out)
      end)
    end
  end

  -- The kernels of a new window are asked for by probes of its launches, which must launch nothing.
  for _, libraries in ipairs {false, true} do
    it("every row is asked for ahead, " .. (libraries and "with" or "without") .. " libraries",
       function()
      local script = place .. "/ahead.lua"
      local file = assert(io.open(script, "w"))
      file:write [[require("flare").compile(dofile)("spec/support/every_row.lua")]]
      file:close()
      if libraries then fakes.tuning(place) end
      local names = place .. "/beside"
      local out = tree.output(fakes.command(place, "FLARE_CACHE=off FLARE_MEMORY=direct "
        .. (libraries and "FLARE_CUDA_HIDE=none " or "") .. "FAKE_BESIDE=" .. names, script
        .. " --device cuda --dtypes f32,bf16 --without bincount " .. table.concat(families, " "))
        .. " 2>&1")
      assert.truthy(out:find "%d+ pieces of rows, %d+ calls, 0 failed\n$", out)
      assert.is_true(select(2, tree.read(names):gsub("\n", "")) > 100)
      os.remove(names)
    end)
  end

  it("sums of few lines take one kernel", function()
    local names = place .. "/launched"
    local sums = {[128] = "columns<0, 1, 1>", [4096] = "columns<0, 1, 1> merge<0, 1>"}
    for lines, kernels in pairs(sums) do
      os.remove(names)
      local script = "require 'flare'.zeros({%d, 10}, {device = 'cuda'}):sum(1)"
      local said, status = fakes.run(place, "FLARE_CACHE=off FAKE_LAUNCHED=" .. names,
        script:format(lines))
      assert.equal(0, status, said)
      local found = tree.read(names):gsub("flat<.->\n", ""):gsub("\n", " "):gsub(" $", "")
      assert.equal(kernels, found)
    end
  end)

  it("a launch that asks for more shared memory than the chip has is refused by name", function()
    local out = tree.output(fakes.command(place, "FLARE_CACHE=off FAKE_SHARED=4096",
      "-e 'require([[flare]]).ones({64, 64}, {device = [[cuda]]}):matmul("
      .. "require([[flare]]).ones({64, 64}, {device = [[cuda]]}))' 2>&1"))
    assert.truthy(out:find("matmul: its kernel %w+ needs %d+ bytes of shared memory, "
      .. "cuda:0 has 4096"), out)
  end)

  -- {what is reduced, the first kernels that run}: the tensor is filled, then reduced where it is
  for expression, kernels in pairs {
    ["ones(1):expand(1 << 29):sum()"] = "rows<0, 1>",
    ["ones(1):expand(4, 1 << 27):mean(2)"] = "rows<0, 1>",
    ["ones{4, 1}:expand(4, 1 << 27):var(2)"] = "columns<7, 1, 4>",
    ["ones{8, 4}:narrow(2, 1, 1):expand(8, 1 << 27):amax()"] = "words<4> rows<5, 1>",
    ["ones({1}, {dtype = 'i8'}):expand(1 << 29):prod()"] = "convert<4> rows<4, 4>",
    ["ones{8, 1}:expand(8, 1 << 20):argmax(1)"] = "rows<9, 1>",
  } do
    it("flare." .. expression .. " reads its elements without repeats", function()
      local names = place .. "/compiled"
      os.remove(names)
      local said, status = fakes.run(place, "FLARE_CACHE=off FAKE_MEMORY=100000000 FAKE_COMPILED="
        .. names, [[
          local flare = require "flare"
          flare.set_default_device "cuda"
          local _ = flare.]] .. expression)
      assert.equal(0, status, said)
      local found = " " .. tree.read(names):gsub("\n", " ")
      assert.truthy(found:gsub(" flat<.->", ""):find(" " .. kernels, 1, true) == 1, found)
    end)
  end

  it("of compute capability 9.0 the pack has every kernel that the rows ask for", function()
    local pack = place .. "/flare.pack"
    local out = tree.output(fakes.command(place, "FLARE_CACHE=off",
      ("kernels --pack sm_90a --out '%s' 2>&1"):format(pack)))
    assert.truthy(out:find "%d+ kernels for 1 architectures", out)
    launch(("FAKE_MAJOR=9 FAKE_MINOR=0 FAKE_SHARED=%d FLARE_PACK='%s' "
      .. "FLARE_CUDA_HIDE=libnvrtc,libcublasLt,libcudnn"):format(227 * 1024, pack))
  end)
end)
