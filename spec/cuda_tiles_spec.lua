-- Random tile programs (spec/c/tile.c) on a GPU whose kernels do nothing: NVRTC compiles each.
local flare = require "flare"
local fakes = require "spec.support.fakes"
local tree = require "spec.support.tree"

local place = os.tmpname() .. ".d"

describe("CUDA's text of random tiles", function()
  setup(function() fakes.build(place, "libcuda.so.1", "all machine", "-D DRIVER") end)
  teardown(function() os.execute("rm -rf " .. place) end)

  it("compiles", function()
    if flare.cuda.report():find "nvrtc +no:" then return pending "needs NVRTC" end
    local said, status = tree.output(("%s FLARE_CUDA_PATH='%s' FLARE_CACHE=off "
      .. "FLARE_CUDA_HIDE=libcublas,libcublasLt,libcudnn FLARE_PACK=none "
      .. "'%s/spec/tile' cuda:0 40 1 launch 2>&1; echo status=$?"):format(fakes.leaks, place,
      tree.build)):match "^(.*)status=(%d+)\n$"
    assert(status == "0", said)
    assert(tonumber(said:match "tile: (%d+) checks, 0 failed") > 40, said)
  end)
end)
