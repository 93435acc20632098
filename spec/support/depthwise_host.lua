--- The kernels of depthwise.cu on the host: a driver that runs those that some cases ask for.
local fakes = require "spec.support.fakes"
local tree = require "spec.support.tree"

local M = {compiler = os.getenv "CXX" or "c++"}

-- The source of the kernels, as the host's compiler takes it.
local function kernels()
  local text = ""
  for _, name in ipairs {"conv.h", "conv.cuh", "depthwise.h", "depthwise.cu"} do
    text = text .. tree.read("kernels/cuda/conv/" .. name)
  end
  return (text:gsub('#include "[^\n]*\n', ""):gsub("#pragma once", "")
    :gsub("extern __shared__ __align__%(16%) float (%w+)%[%];", "float *%1 = ::staged;")
    :gsub("__shared__", "static"))
end

--- Runs cases of depthwise_cases.lua in a folder: once with a driver that computes nothing, to
-- learn which kernels there are, and again with these.
-- @return what they print
function M.run(place, seed, count)
  local names, forms, seen = place .. "/compiled", {}, {}
  local cases = ("spec/support/depthwise_cases.lua %d %d"):format(seed, count)
  local settings = "FLARE_CACHE=off FLARE_MEMORY=direct FAKE_COMPILED=" .. names
  fakes.machine(place)
  os.remove(names)
  tree.output(fakes.command(place, settings, cases) .. " 2>&1")
  for name in tree.read(names):gmatch "[^\n]+" do
    if not seen[name] and (name:find "^places<" or name:find "^taps<" or name:find "^pieces<") then
      forms[#forms + 1] = ('{"%s", %s},'):format(name, name)
      seen[name] = true
    end
  end
  local text = tree.read "spec/support/fake_cuda/depthwise.cc"
    :gsub("// KERNELS", function() return kernels() end)
    :gsub("// FORMS", table.concat(forms, "\n  "))
  local file = assert(io.open(place .. "/source.cc", "w"))
  file:write(text)
  file:close()
  local said = tree.output(("%s -std=gnu++17 -O1 -w -fsanitize=alignment "
    .. "-fsanitize-undefined-trap-on-error -I. -I'%s/generated' -fPIC -c '%s/source.cc' "
    .. "-o '%s/kernels.o' 2>&1"):format(M.compiler, tree.build, place, place))
  assert(said == "", said)
  fakes.build(place, "libcuda.so.1", "all machine", ("-D DRIVER -Wl,--allow-multiple-definition "
    .. "'%s/kernels.o' -lstdc++"):format(place))
  return tree.output(fakes.command(place, settings, cases) .. " 2>&1")
end

return M
