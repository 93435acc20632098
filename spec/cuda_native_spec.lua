-- What reaches a GPU of kernels of users, without one: a driver whose GPU is host memory
-- (spec/support/fake_cuda/host_gpu.c) runs a few by name, and tells what it was asked for.
local fakes = require "spec.support.fakes"
local tree = require "spec.support.tree"

local place = os.tmpname() .. ".d"

-- What a script prints, with that driver alone.
local function run(text)
  local path = place .. "/script.lua"
  local file <close> = assert(io.open(path, "w"))
  file:write([[
    local flare = require "flare"
    local image = "\127ELF" .. ("x"):rep(100)
    local function blend(more)
      local o = {name = "blend", image = image, symbol = "blend_*", dtypes = {"f32", "f64"},
        signature = "x:float, w:float, by:real=2, twice:flag=false -> y:x",
        expression = "y = x * w * by + (twice ? x : 0)"}
      for key, value in pairs(more or {}) do o[key] = value end
      return flare.op.register(o)
    end
    local function on(list, dtype) return flare.tensor(list, {dtype = dtype}):to "cuda" end
    local function show(y) print(y.dtype, table.unpack(y:tolist())) end
  ]], text)
  file:close()
  return tree.output(("%s FLARE_CUDA_PATH='%s' FLARE_CUDA_HIDE=libnvrtc,libcublasLt,libcudnn "
    .. "FLARE_PACK=none FLARE_CACHE=off '%s/flare' '%s' 2>&1"):format(fakes.leaks, place,
    tree.build, path))
end

describe("a registered kernel on a GPU", function()
  setup(function()
    assert(os.execute("mkdir " .. place))
    local said = tree.output(("%s -std=gnu11 -shared -fPIC -I'%s/generated' -D DRIVER "
      .. "-o '%s/libcuda.so.1' "
      .. "spec/support/fake_cuda/all.c spec/support/fake_cuda/host_gpu.c 2>&1"):format(
      os.getenv "CC" or "cc", tree.build, place))
    assert(said == "", said)
  end)
  teardown(function() os.execute("rm -rf " .. place) end)

  it("gets pointers, attributes and the number of elements, in its type", function()
    local out = run [[
      local f = blend()
      show(f(on {1, 2, 3}, on {4, 5, 6}, {by = 10}))
      show(f(on({1, 2}, "f64"), on({3, 4}, "f64"), {twice = true}))
      show(f(flare.tensor {1, 2}, flare.tensor {3, 4}))       -- the expression, on the CPU
      print(f(on {}, on {}):numel())                          -- nothing to launch
    ]]
    assert.equal("[blend_f32 1 1 1 256 1 1 0]\nf32\t40.0\t100.0\t180.0\n"
      .. "[blend_f64 1 1 1 256 1 1 0]\nf64\t7.0\t18.0\nf32\t6.0\t16.0\n0\n", out)
  end)

  it("is launched as its function says", function()
    local out = run [[
      local f = blend {launch = function(c)
        return {#c.x, c.y[1]}, {32, 2}, c.by * 1024 // 1 | 0
      end}
      show(f(on {1, 2, 3}, on {4, 5, 6}, {by = 3}))
      print(pcall(blend {launch = function() return 1, 2000 end, name = "b"}, on {1}, on {1}))
      print(pcall(blend {launch = function() return "x" end, name = "c"}, on {1}, on {1}))
      print(pcall(blend {launch = function() error("no", 0) end, name = "d"}, on {1}, on {1}))
      print(pcall(blend {launch = function() return 1, 1, 1 << 20 end, name = "e"}, on {1}, on {1}))
      print(pcall(blend {launch = function() return 0 end, name = "f"}, on {1}, on {1}))
    ]]
    assert.truthy(out:find("[blend_f32 1 3 1 32 2 1 3072]\nf32\t12.0\t30.0\t54.0\n", 1, true), out)
    assert.truthy(out:find
      "b: 1 blocks of 2000 threads along x: at most %d+ blocks, and 1 to 1024 threads", out)
    assert.truthy(out:find "c: launch: blocks must be whole numbers from 0, got string", out)
    assert.truthy(out:find "\nfalse\tno\n", out)
    assert.truthy(out:find "e: 1048584 bytes of shared memory %(8 of its own%) are more than", out)
    assert.truthy(out:find "\ntrue\t", out)
  end)

  it("has the gradient of its expression, in the expression's kernel's place", function()
    local out = run [[
      local x = on {1, 2}
      x.requires_grad = true
      local y = blend()(x, on {3, 4})
      print(y.requires_grad, y.grad_fn)
      print(pcall(function() return flare.grad({y}, {x}, {gradient = {on {1, 1}}}) end))
    ]]
    assert.truthy(out:find "true\tblend\n", out)
    assert.truthy(out:find "false\t[^\n]*libnvrtc", out) -- it would have to be compiled
  end)

  it("is in the launch ring and in profiles, as raw kernels are", function()
    local out = run [[
      local f, x = blend(), on {1, 2}
      local y = f(x, x)
      print((flare.core.launches(1):gsub("^#%d+", "#")))
      local report = flare.profile(function() f(x, x, {by = 1}) end)
      local s = report:sums "launch"
      print(#s, s[1].name:match "script.lua:%d+ .*", s[1].bytes, s[1].host > 0)
    ]]
    assert.truthy(out:find "# blend [^\n]*script.lua:13 %(2%) %(2%)", out)
    assert.truthy(out:find "1\tscript.lua:15 blend\t24.0\ttrue", out)
  end)

  it("is named, with its line, when the GPU breaks later", function()
    local out = run [[
      local f = flare.op.register {name = "wrong", signature = "x:float -> y:x", image = image,
        symbol = "fault"}
      local y = f(on {1, 2})
      print(pcall(y.tolist, y))
    ]]
    assert.truthy(out:find
      "false\t[^\n]*illegal memory access[^\n]*kernel fault[^\n]*script.lua:14", out)
  end)

  it("takes part in the search for races", function()
    local out = run [[
      local f, x, y = blend(), on {1, 2}, on {1, 2}
      flare.debug_streams(true)
      local z = f(x, y)
      local s = flare.stream "cuda"
      print(pcall(s.run, s, function() return f(z, y) end))
      s:wait(flare.event("cuda"):record())
      print(pcall(s.run, s, function() return f(z, y):numel() end))
    ]]
    assert.truthy(out:find "false\t[^\n]*blend on stream 1 of cuda:0 [^\n]* without order", out)
    assert.truthy(out:find "\ntrue\t2", out)
  end)
end)
