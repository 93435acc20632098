-- The kernels of collectives over peer memory, on threads of the host: no GPU is needed for what
-- they do, only for how fast.
local fakes = require "spec.support.fakes"
local tree = require "spec.support.tree"

local compiler = os.getenv "CXX" or "c++"
local place = os.tmpname() .. ".d"

-- Compiles a source with the kernels in it. @return the command's output, "" where all is well
local function compile(source, out, options)
  local kernels = tree.read "kernels/cuda/peer.h"
    .. tree.read "kernels/cuda/peer.cu":gsub('#include "[^\n]*\n', "")
  local text = tree.read(source):gsub("// KERNELS", function() return kernels end)
  local file <close> = assert(io.open(place .. "/source.cc", "w"))
  file:write(text)
  file:close()
  return tree.output(("%s -std=gnu++17 -O1 -w -pthread -I. -I'%s/generated' %s -o %s/%s "
    .. "%s/source.cc 2>&1"):format(compiler, tree.build, options, place, out, place))
end

describe("collectives over peer memory", function()
  if not os.execute(compiler .. " --version >/dev/null 2>&1") then
    pending "there is no C++ compiler"
    return
  end
  setup(function()
    os.execute("mkdir -p " .. place)
    fakes.machine(place)
    assert.equal("", compile("spec/support/fake_cuda/peers.cc", "peers.o", "-fPIC -c"))
    fakes.build(place, "libcuda.so.1", "all machine", ("-D DRIVER -Wl,--allow-multiple-definition "
      .. "%s/peers.o -lstdc++"):format(place))
  end)
  teardown(function() os.execute("rm -rf " .. place) end)

  it("give the sums, in order, and end when a rank does not come", function()
    assert.equal("", compile("spec/support/peer_emulated.cc", "emulated", ""))
    local out = tree.output(("timeout 300 %s/emulated"):format(place))
    assert.truthy(out:find "bad: 0\n$", out)
  end)

  -- Eight processes on two devices, without NCCL.
  local function eight(script)
    local launch = ("launch -n 8 --timeout 60 --logs %s/logs %s"):format(place, script)
    return tree.output(fakes.command(place, "FLARE_PEERS=only FLARE_CACHE=off "
      .. "FLARE_CUDA_HIDE=libcublasLt,libcudnn,libnccl", launch) .. " 2>&1")
  end

  it("work among eight processes without NCCL", function()
    local out = eight "spec/gpu/dist/eight.lua quick"
    assert.truthy(out:find "right: %d+ checks", out)
  end)

  it("end when one of eight processes dies", function()
    local file <close> = assert(io.open(place .. "/dies.lua", "w"))
    file:write [[
      local flare = require "flare"
      local x = flare.ones({70000}):to "cuda"
      for k = 1, math.maxinteger do
        if k == 20 and flare.dist.rank() == 1 then
          flare.synchronize()
          os.execute("kill -KILL " .. flare.core.net.pid())
        end
        flare.dist.all_reduce_(x, {reduce = "mean"})
      end
    ]]
    file:close()
    local out, told = eight(place .. "/dies.lua"), 0
    for rank = 0, 7 do
      local log = tree.read(("%s/logs/rank-%d.log"):format(place, rank))
      if log:find "rank 1 %(pid %d+%) died: signal 9" then told = told + 1 end
    end
    assert.equal(7, told, out)
  end)
end)
